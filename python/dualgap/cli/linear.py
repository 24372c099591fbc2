"""The commands `dualgap fit` and `dualgap predict`, after LIBLINEAR's train and predict."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from dualgap import _core
from dualgap._choices import LinearSolver
from dualgap.cli._linear_file import read_linear, write_linear
from dualgap.cli._tables import FORMATS, read_table
from dualgap.cli._terminal import errors, exit_codes
from dualgap.losses import LOSSES, Loss
from dualgap.multiclass import MulticlassSVC

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUT = click.Path(dir_okay=False, path_type=Path, allow_dash=True)
_POSITIVE = click.FloatRange(min=0, min_open=True)

_data_options = [
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        help="Format of the rows; by default what the file's name says, else libsvm.",
    ),
    click.option(
        "--label",
        help="Column of the labels (CSV, Parquet); by default label, target, class or y.",
    ),
    click.option("--labels", type=_FILE, help="File with the labels alone (npy, or one a line)."),
    click.option("-q", "--quiet", is_flag=True, help="Print results only."),
]


def _with_data_options(command: Any) -> Any:
    for option in reversed(_data_options):
        command = option(command)
    return command


def _takers(parameter: str) -> str:
    names = [name for name, parameters in LOSSES.items() if parameter in parameters]
    return f" ({', '.join(names)})"


def _numbers(_: click.Context, option: click.Parameter, value: str | None) -> list[float] | None:
    try:
        return None if value is None else [float(number) for number in value.split(",")]
    except ValueError:
        msg = f"{value!r} is not a list of numbers with commas between them"
        raise click.BadParameter(msg, param=option) from None


@click.command()
@click.argument("training_file", type=_FILE)
@click.argument("model_file", type=_OUT, required=False)
@click.option(
    "-s",
    "--loss",
    type=click.Choice(list(LOSSES)),
    default="crammer-singer",
    show_default=True,
    help="Loss (LIBLINEAR's -s 4 is crammer-singer).",
)
@click.option(
    "-k", "--k", type=click.IntRange(min=1), help=f"Number of classes that count{_takers('k')}."
)
@click.option(
    "--weights",
    callback=_numbers,
    metavar="W,W,...",
    help=f"A weight for each sorted margin, falling to 0{_takers('weights')}.",
)
@click.option(
    "-c", "--cost", type=_POSITIVE, default=1.0, show_default=True, help="C, as in LIBLINEAR."
)
@click.option(
    "-e",
    "--tolerance",
    type=click.FloatRange(min=0),
    default=1e-3,
    show_default=True,
    help="Duality gap to stop at, relative to the objective of the model that knows nothing.",
)
@click.option(
    "-B",
    "--bias",
    type=float,
    default=-1.0,
    show_default=True,
    help="Value of a constant feature; none if negative.",
)
@click.option(
    "-v", "--cross-validation", type=click.IntRange(min=2), help="Report accuracy over N folds."
)
@click.option(
    "--smoothing", type=click.FloatRange(min=0), default=0.0, help="Smoothing of the loss."
)
@click.option(
    "--solver", type=click.Choice(_core.SOLVERS), default="auto", show_default=True, help="Solver."
)
@click.option(
    "--max-iter", type=click.IntRange(min=1), default=1000, show_default=True, help="Most epochs."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the order of the rows.")
@click.option(
    "-n", "--n-jobs", default=-1, show_default=True, help="Number of threads; -1 for all cores."
)
@_with_data_options
def fit(
    training_file: Path,
    model_file: Path | None,
    loss: str,
    k: int | None,
    weights: list[float] | None,
    cost: float,
    tolerance: float,
    bias: float,
    cross_validation: int | None,
    smoothing: float,
    solver: LinearSolver,
    max_iter: int,
    seed: int,
    n_jobs: int,
    form: str | None,
    label: str | None,
    labels: Path | None,
    quiet: bool,
) -> None:
    """Fit a linear classifier to TRAINING_FILE and write it to MODEL_FILE.

    TRAINING_FILE holds labelled rows: LIBSVM format, npz (X and y, or scipy.sparse.save_npz),
    npy, CSV or Parquet. MODEL_FILE is by default the training file's name and ".model", in the
    current folder. With --cross-validation no model is written.

    Exit status: 0 on success, 1 if the data cannot be used, 2 for a usage error, 130 if
    interrupted.
    """
    if cross_validation is not None and model_file is not None:
        raise click.UsageError("--cross-validation writes no MODEL_FILE")
    if bias == 0:
        raise click.UsageError("--bias: 0 is no use; give a positive value, or -1 for none")
    notes = Console(stderr=True, highlight=False, quiet=quiet)
    with exit_codes():
        margin_loss = Loss(loss, k=k, weights=weights)
        margin_loss.parameters()
        model = MulticlassSVC(
            margin_loss,
            C=cost,
            smoothing=smoothing,
            solver=solver,
            fit_intercept=bias > 0,
            intercept_scaling=bias if bias > 0 else 1.0,
            tol=tolerance,
            max_iter=max_iter,
            random_state=seed,
            n_jobs=n_jobs,
            verbose=not quiet,
        )
        table = read_table(training_file, form=form, label=label, labels=labels)
        X, y = table.X, table.y
        assert y is not None
        notes.print(
            f"{training_file.name}: {X.shape[0]} rows, {X.shape[1]} features, "
            f"{len(np.unique(y))} classes",
            markup=False,
            soft_wrap=True,
        )
        if cross_validation is not None:
            folds = StratifiedKFold(cross_validation, shuffle=True, random_state=seed)
            with _warnings_noted():
                predicted = cross_val_predict(model, X, y, cv=folds)
            click.echo(f"cross-validation {_accuracy(predicted, y)}")
            return
        with _warnings_noted():
            model.fit(X, y)
        path = model_file or Path(f"{training_file.name}.model")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_linear(path, model, margin_loss, table.first_index)
        relative = model.duality_gap_ / model.null_objective_
        click.echo(
            f"objective {model.objective_:.6g}  gap {model.duality_gap_:.3g} "
            f"({relative:.2g} of the null model's objective)  epochs {model.n_iter_}"
        )
        click.echo(f"training {_accuracy(model.predict(X), y)}")
        notes.print(f"model written to {path}", markup=False, soft_wrap=True)


@click.command()
@click.argument("test_file", type=_FILE)
@click.argument("model_file", type=_FILE)
@click.argument("output_file", type=_OUT, default="-")
@click.option(
    "--top",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Labels a row, best first.",
)
@click.option("--scores", is_flag=True, help="Write each class's score behind the label(s).")
@_with_data_options
def predict(
    test_file: Path,
    model_file: Path,
    output_file: Path,
    top: int,
    scores: bool,
    form: str | None,
    label: str | None,
    labels: Path | None,
    quiet: bool,
) -> None:
    """Write the labels that MODEL_FILE predicts for the rows of TEST_FILE.

    OUTPUT_FILE has a line for each row; by default they go to standard output. With --scores its
    first line names the classes. Where TEST_FILE has labels, the accuracy is printed, and with
    --top the share of rows whose label is among those predicted.
    """
    with exit_codes():
        model, first_index = read_linear(model_file)
        table = read_table(
            test_file,
            form=form,
            label=label,
            labels=labels,
            like=(model.n_features_in_, first_index),
            need_labels=False,
        )
        best = model.predict_top_k(table.X, top)
        columns: list[Any] = [best.astype(np.str_)]
        header = ""
        if scores:
            columns.append(np.char.mod("%.9g", model._scores(table.X)))
            header = f"labels {' '.join(map(str, model.classes_))}\n"
        lines = "\n".join(" ".join(row) for row in np.hstack(columns))
        to_stdout = str(output_file) == "-"
        if not to_stdout:
            output_file.parent.mkdir(parents=True, exist_ok=True)
        with click.open_file(str(output_file), "w", encoding="utf-8") as file:
            file.write(f"{header}{lines}\n")
        if table.y is not None and not (quiet and to_stdout):
            # Standard output is for the labels where they go there.
            click.echo(_accuracy(best[:, 0], table.y), err=to_stdout)
            if top > 1:
                click.echo(_accuracy(best, table.y, f"top-{top} accuracy"), err=to_stdout)


def _accuracy(predicted: NDArray[Any], y: NDArray[Any], name: str = "accuracy") -> str:
    if (predicted.dtype.kind in "iufb") != (y.dtype.kind in "iufb"):
        predicted, y = predicted.astype(np.str_), y.astype(np.str_)
    right = int((predicted.reshape(len(y), -1) == y[:, None]).any(axis=1).sum())
    return f"{name} = {100 * right / len(y):.4g}% ({right}/{len(y)})"


@contextmanager
def _warnings_noted() -> Iterator[None]:
    """Print what a fit warns of, once, as a line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        errors.print(f"warning: {message}", markup=False, soft_wrap=True)
