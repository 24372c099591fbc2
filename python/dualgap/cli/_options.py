"""Arguments and options of `dualgap fit` and `dualgap predict`."""

from __future__ import annotations

import math
from typing import Any

import click

from dualgap import _core
from dualgap.cli._paths import IN
from dualgap.cli._tables import FORMATS
from dualgap.losses import LOSSES

# Any more could not be counted to, nor be given to the core.
_COUNT = click.IntRange(min=1, max=2**31 - 1)


class _Finite(click.FloatRange):
    """A number in a range; NaN and infinity are in none."""

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
        msg = f"{value!r} is not a list of numbers with commas between them"
        raise click.BadParameter(msg, param=option) from None


def _separator(_: click.Context, option: click.Parameter, value: str | None) -> str | None:
    character = {"tab": "\t", "\\t": "\t"}.get(value or "", value)
    if character is not None and (len(character) != 1 or character in '"\r\n'):
        raise click.BadParameter(f"{value!r} is not one character", param=option)
    return character


def _bias(_: click.Context, option: click.Parameter, value: float) -> float:
    if value == 0:
        msg = "0 is no use; give a positive value, or -1 for none"
        raise click.BadParameter(msg, param=option)
    return value


def _threads(_: click.Context, option: click.Parameter, value: int) -> int:
    if value == 0:
        raise click.BadParameter("0 threads do nothing; -1 is all cores", param=option)
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
            msg = f"{value!r} is not LABEL=WEIGHT with a weight of 0 or more"
            raise click.BadParameter(msg, param=option)
    return weights or None


def _with(options: list[Any], command: Any) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


def _takers(parameter: str) -> str:
    names = [name for name, parameters in LOSSES.items() if parameter in parameters]
    return f" ({', '.join(names)})"


_DATA = [
    click.option(
        "--input-format",
        "form",
        type=click.Choice(FORMATS),
        help="Format of the rows; by default what the file's name says, else libsvm.",
    ),
    click.option(
        "--separator",
        callback=_separator,
        metavar="CHARACTER",
        help="Between the fields of CSV files; by default a comma, or a tab in .tsv files.",
    ),
    click.option(
        "--label",
        help="Column of the labels (CSV, Parquet); by default the training file's, else "
        "label, target, class or y.",
    ),
    click.option("--labels", type=IN, help="File with the labels alone (npy, or one a line)."),
    click.option("-q", "--quiet", is_flag=True, help="Print results only."),
]

_MODEL = [
    click.option(
        "-s",
        "--loss",
        type=click.Choice(list(LOSSES)),
        default="crammer-singer",
        show_default=True,
        help="Loss (LIBLINEAR's -s 4 is crammer-singer).",
    ),
    click.option("-k", "--k", type=_COUNT, help=f"Number of classes that count{_takers('k')}."),
    click.option(
        "--weights",
        callback=_numbers,
        metavar="W,W,...",
        help=f"A weight for each sorted margin, falling to 0{_takers('weights')}.",
    ),
    click.option(
        "-c",
        "--cost",
        type=_Finite(min=0, min_open=True),
        default=1.0,
        show_default=True,
        help="C, as in LIBLINEAR.",
    ),
    click.option(
        "-e",
        "--tolerance",
        type=_Finite(min=0),
        default=1e-3,
        show_default=True,
        help="Duality gap to stop at, relative to the objective.",
    ),
    click.option(
        "-B",
        "--bias",
        type=_Finite(),
        callback=_bias,
        default=-1.0,
        show_default=True,
        help="Value of a constant feature; none if negative.",
    ),
    click.option(
        "-w",
        "--class-weight",
        multiple=True,
        metavar="LABEL=WEIGHT",
        callback=_class_weights,
        help="A factor on C for a class; may be given for several. Also as in LIBLINEAR: -w1 0.5.",
    ),
    click.option("--smoothing", type=_Finite(min=0), default=0.0, help="Smoothing of the loss."),
    click.option(
        "--solver",
        type=click.Choice(_core.SOLVERS),
        default="auto",
        show_default=True,
        help="Solver.",
    ),
    click.option(
        "--max-iter", type=_COUNT, default=1000, show_default=True, help="Maximum epochs."
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0, max=2**32 - 1),
        default=0,
        show_default=True,
        help="Seed of the order of the rows.",
    ),
    click.option(
        "-n",
        "-m",
        "--n-jobs",
        type=click.IntRange(min=-(2**31), max=2**31 - 1),
        callback=_threads,
        default=-1,
        show_default=True,
        help="Number of threads; -1 for all cores, at most four for each core.",
    ),
]


def data_options(command: Any) -> Any:
    """How files of rows are read."""
    return _with(_DATA, command)


def model_options(command: Any) -> Any:
    """Loss, solver and when it stops."""
    return _with(_MODEL, command)
