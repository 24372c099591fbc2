"""Options shared by `dualgap fit` and `dualgap predict`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import click

from dualgap import _core
from dualgap._choices import LogisticSolver
from dualgap.cli._integers import COUNT, SEED, THREADS
from dualgap.cli._paths import IN
from dualgap.cli._tables import FORMATS
from dualgap.losses import LOSSES

# Name of the loss of logistic regression.
LOGISTIC = "logistic"


class Choice(click.Choice[str]):
    """A choice that also accepts other names for some values."""

    def __init__(self, choices: Sequence[str], others: Mapping[str, str]) -> None:
        super().__init__(choices)
        self._others = others

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(self._others.get(value, value), param, ctx)


class _Finite(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def _describe_range(self) -> str:
        # Without bounds, click prints "x<=None".
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def _numbers(_: click.Context, option: click.Parameter, value: str | None) -> list[float] | None:
    try:
        return None if value is None else [float(number) for number in value.split(",")]
    except ValueError:
        msg = f"{value!r} is not a comma-separated list of numbers"
        raise click.BadParameter(msg, param=option) from None


def separator_of(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return the character that the option names."""
    character = {"tab": "\t", "\\t": "\t"}.get(value or "", value)
    if character is not None and (len(character) != 1 or character in '"\r\n'):
        msg = f"{value!r} is not a single character (other than a quote or line break)"
        raise click.BadParameter(msg, param=option)
    return character


def _bias(_: click.Context, option: click.Parameter, value: float) -> float:
    if value == 0:
        msg = "must not be 0; pass a positive value, or -1 for no constant feature"
        raise click.BadParameter(msg, param=option)
    return value


def _threads(_: click.Context, option: click.Parameter, value: int) -> int:
    if value == 0:
        raise click.BadParameter("must not be 0; -1 uses all cores", param=option)
    return value


def _class_weights(
    _: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, float] | None:
    weights = {}
    for value in values:
        label, equals, factor = value.rpartition("=")
        try:
            weights[label] = float(factor)
        except ValueError:
            weights[label] = -1.0
        if not (equals and label and math.isfinite(weights[label]) and weights[label] >= 0):
            msg = f"{value!r} is not of the form LABEL=WEIGHT with a non-negative weight"
            raise click.BadParameter(msg, param=option)
    return weights or None


def _add_options(options: list[Any], command: Any) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


def _losses_with(parameter: str) -> str:
    names = [name for name, parameters in LOSSES.items() if parameter in parameters]
    return f" ({', '.join(names)})"


_DATA = [
    click.option(
        "--input-format",
        "form",
        type=click.Choice(FORMATS),
        help="Format of the rows; by default chosen by the file's extension, else libsvm.",
    ),
    click.option(
        "--separator",
        callback=separator_of,
        metavar="CHARACTER",
        help="Field separator of CSV files; by default a comma, or a tab in .tsv files.",
    ),
    click.option(
        "--label",
        help="Label column (CSV, Parquet); by default as in the training file, else the first "
        "column named label, target, class or y.",
    ),
    click.option(
        "--labels", type=IN, help="File that contains only the labels (npy, or one per line)."
    ),
    click.option("-q", "--quiet", is_flag=True, help="Print results only."),
]

_MODEL = [
    click.option(
        "-s",
        "--loss",
        type=Choice([*LOSSES, LOGISTIC], {"log": LOGISTIC}),
        default="crammer-singer",
        show_default=True,
        help="Loss (LIBLINEAR's -s 4 is crammer-singer, its -s 0 and -s 7 are logistic, or log).",
    ),
    click.option("-k", "--k", type=COUNT, help=f"Number of largest margins{_losses_with('k')}."),
    click.option(
        "--weights",
        callback=_numbers,
        metavar="W,W,...",
        help=f"Weights of the sorted margins, non-increasing to 0{_losses_with('weights')}.",
    ),
    click.option(
        "-c",
        "--cost",
        type=_Finite(min=0, min_open=True),
        default=1.0,
        show_default=True,
        help="Weight C of the losses, as in LIBLINEAR.",
    ),
    click.option(
        "-e",
        "--tolerance",
        type=_Finite(min=0),
        default=1e-3,
        show_default=True,
        help="Duality gap at which to stop, relative to the objective.",
    ),
    click.option(
        "-B",
        "--bias",
        type=_Finite(),
        callback=_bias,
        default=-1.0,
        show_default=True,
        help="Value of a constant feature; a negative value means no such feature. With --loss "
        "logistic, its weights are not regularised.",
    ),
    click.option(
        "-R",
        "free_bias",
        is_flag=True,
        help="LIBLINEAR's option for a constant feature without regularisation (logistic).",
    ),
    click.option(
        "-w",
        "--class-weight",
        multiple=True,
        metavar="LABEL=WEIGHT",
        callback=_class_weights,
        help="Factor on C for a class (repeatable). LIBLINEAR's form -w1 0.5 works, too.",
    ),
    click.option(
        "--smoothing",
        type=_Finite(min=0),
        default=0.0,
        help="Strength of the smoothing of the loss.",
    ),
    click.option(
        "--solver",
        type=click.Choice(list(dict.fromkeys([*_core.SOLVERS, *get_args(LogisticSolver)]))),
        default="auto",
        show_default=True,
        help="Solver.",
    ),
    click.option(
        "--max-iter", type=COUNT, default=1000, show_default=True, help="Maximum number of epochs."
    ),
    click.option(
        "--seed",
        type=SEED,
        default=0,
        show_default=True,
        help="Seed for the order of the rows.",
    ),
    click.option(
        "-n",
        "-m",
        "--n-jobs",
        type=THREADS,
        callback=_threads,
        default=-1,
        show_default=True,
        help="Number of threads; -1 for all cores. At most four per core are started.",
    ),
]


def data_options(command: Any) -> Any:
    """Add the options for reading rows."""
    return _add_options(_DATA, command)


def model_options(command: Any) -> Any:
    """Add the options for loss, solver and stopping."""
    return _add_options(_MODEL, command)
