"""The commands `dualgap fit` and `dualgap predict`, modelled on LIBLINEAR's train and predict."""

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
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from dualgap._estimator.probabilities import no_probabilities
from dualgap._files import check_writable
from dualgap.cli._integers import COUNT, Integer
from dualgap.cli._liblinear import Command
from dualgap.cli._linear_file import LinearModel, read_linear, write_linear
from dualgap.cli._options import LOGISTIC, data_options, model_options
from dualgap.cli._paths import IN, OUT, refuse_overwriting
from dualgap.cli._predictions import FORMATS, Predictions
from dualgap.cli._tables import Source, Table, read_table
from dualgap.cli._terminal import errors, exit_codes
from dualgap.logistic import LogisticRegression, LogisticRegressionCV
from dualgap.losses import Loss
from dualgap.multiclass import MulticlassSVC, MulticlassSVCCV


@click.command(cls=Command)
@click.argument("training_file", type=IN)
@click.argument("model_file", type=OUT, required=False)
@click.option(
    "-v",
    "--cross-validation",
    type=Integer(2, 2**31 - 1),
    help="Report the accuracy of N-fold cross-validation.",
)
@click.option(
    "-C",
    "--search-cost",
    is_flag=True,
    help="Choose C from 13 values from 1e-3 to 1e3 by the accuracy in cross-validation "
    "(--cross-validation sets the number of folds, by default 5). If MODEL_FILE is given, also fit "
    "a model with the chosen C.",
)
@model_options
@data_options
def fit(
    training_file: Path,
    model_file: Path | None,
    cross_validation: int | None,
    search_cost: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Fit a linear classifier to TRAINING_FILE and write it to MODEL_FILE.

    TRAINING_FILE contains labelled rows in LIBSVM format, npz (X and y, or
    scipy.sparse.save_npz), npy, CSV or Parquet. The default MODEL_FILE is the name of the training
    file plus ".model", in the current folder. Either may be "-" for standard input or output. With
    --cross-validation, no model is written; with -C, only if MODEL_FILE is given.

    Exit status: 0 on success, 1 if the data cannot be used, 2 for a usage error, 130 if
    interrupted.
    """
    _check_combination(cross_validation, model_file, search=search_cost)
    writes = model_file is not None or not (cross_validation or search_cost)
    path = model_file or Path(f"{training_file.name}.model")
    if model_file is None and writes and str(training_file) == "-":
        raise click.UsageError("reading from standard input requires a MODEL_FILE argument")
    notes = Console(stderr=True, highlight=False, quiet=quiet)
    with exit_codes():
        model = _model(quiet=quiet, **options)
        # Check output files before the fit, not after it.
        if writes and str(path) != "-":
            inputs = {"TRAINING_FILE": training_file, "--labels": options["labels"] or "-"}
            refuse_overwriting(inputs, {"MODEL_FILE": path})
            check_writable(path)
        table = read_table(_source(training_file, options))
        assert table.y is not None
        _refuse_measurements(options["labels"] or training_file, table.y)
        model.class_weight = _class_weight(options["class_weight"], table.y)
        _describe(training_file, table, notes)
        if not _is_given("loss"):
            notes.print(_DEFAULT_LOSS, soft_wrap=True)
        if search_cost:
            to_stderr = writes and str(path) == "-"
            _search(model, table, (cross_validation or 5, options["seed"]), to_stderr=to_stderr)
        elif cross_validation is not None:
            _cross_validate(model, table, cross_validation, options["seed"])
        if not writes:
            return
        with _warnings_noted():
            model.fit(table.X, table.y)
        write_linear(path, model, table.training)
        _report(model, table, to_stderr=str(path) == "-")
        if str(path) != "-":
            notes.print(f"model written to {path}", markup=False, soft_wrap=True)


def _refuse_measurements(path: Path, y: NDArray[Any]) -> None:
    """Raise an error for the first numeric label that cannot be a class."""
    if y.dtype.kind != "f":
        return
    wrong = np.flatnonzero((y != np.trunc(y)) | (np.abs(y) >= 2.0**53))
    if len(wrong):
        msg = (
            f"{path}: row {wrong[0] + 1}: the label {float(y[wrong[0]])!r} is not a whole number "
            "below 2**53; labels must be whole numbers or names of classes"
        )
        raise ValueError(msg)


_DEFAULT_LOSS = (
    "loss: crammer-singer, as with -s 4. LIBLINEAR's default, -s 1, trains each class against the "
    "others and is not available"
)


def _is_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _check_combination(cross_validation: int | None, model: Path | None, *, search: bool) -> None:
    if cross_validation is not None and model is not None and not search:
        raise click.UsageError("--cross-validation writes no model; leave out MODEL_FILE")
    for name, option in (("cost", "-c"), ("solver", "--solver")):
        if search and _is_given(name):
            msg = f"-C chooses C with the default solver; leave out {option}"
            raise click.UsageError(msg)


def _source(path: Path, options: dict[str, Any]) -> Source:
    names = ("form", "separator", "label", "labels")
    source = Source(path, **{name: options[name] for name in names})
    if str(source.labels) == str(path) == "-":
        raise click.UsageError("rows and labels cannot both be read from standard input")
    return source


def _model(*, quiet: bool, **options: Any) -> LinearModel:
    """Create the estimator from the options, and check its parameters."""
    bias = options["bias"]
    run = {
        "C": options["cost"],
        "solver": options["solver"],
        "fit_intercept": bias > 0,
        "tol": options["tolerance"],
        "max_iter": options["max_iter"],
        "random_state": options["seed"],
        "n_jobs": options["n_jobs"],
        "verbose": not quiet,
    }
    _check_used(options)
    model: LinearModel
    is_logistic = options["loss"] == LOGISTIC
    model = LogisticRegression(**run) if is_logistic else _margin_model(options, run)
    model._check_parameters()
    return model


def _check_used(options: dict[str, Any]) -> None:
    """Raise an error for an option that does not apply to the loss."""
    if options["loss"] != LOGISTIC:
        if options["free_bias"]:
            msg = "-R: only --loss logistic has a constant feature without regularisation"
            raise ValueError(f"{msg}; for other losses, a large -B has nearly the same effect")
        return
    for name, unset in (("k", None), ("weights", None), ("smoothing", 0.0)):
        if options[name] != unset:
            msg = f"--{name}: the loss logistic does not use it, got {options[name]}"
            raise ValueError(msg)


def _margin_model(options: dict[str, Any], run: dict[str, Any]) -> MulticlassSVC:
    loss = Loss(options["loss"], k=options["k"], weights=options["weights"])
    loss.parameters()
    scaling = options["bias"] if options["bias"] > 0 else 1.0
    smoothing = options["smoothing"]
    return MulticlassSVC(loss, smoothing=smoothing, intercept_scaling=scaling, **run)


def _class_weight(weights: dict[str, float] | None, y: NDArray[Any]) -> dict[Any, float] | None:
    """Match the labels given in the option, which are strings, with the labels of the rows."""
    if weights is None:
        return None
    known = {str(label): label for label in np.unique(y).tolist()}
    if y.dtype.kind in "iuf":
        # A number has several spellings, such as 1 and 1.0.
        known |= {name: float(name) for name in weights if _is_number(name) and float(name) in y}
    missing = [name for name in weights if name not in known]
    if missing:
        msg = f"--class-weight: the label {missing[0]!r} does not occur in the rows"
        raise ValueError(msg)
    return {known[name]: weight for name, weight in weights.items()}


def _is_number(name: str) -> bool:
    try:
        return float(name) == float(name)
    except ValueError:
        return False


def _describe(path: Path, table: Table, notes: Console) -> None:
    X, y = table.X, table.y
    assert y is not None
    notes.print(
        f"{path.name}: {X.shape[0]} rows, {X.shape[1]} features, {len(np.unique(y))} classes",
        markup=False,
        soft_wrap=True,
    )


def _cross_validate(model: LinearModel, table: Table, n_folds: int, seed: int) -> None:
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    with _warnings_noted():
        # A progress line would not show to which fold it belongs.
        quiet = clone(model).set_params(verbose=0)
        predicted = cross_val_predict(quiet, table.X, table.y, cv=folds)
    assert table.y is not None
    click.echo(f"cross-validation {_accuracy(predicted, table.y)}")


def _search(
    model: LinearModel, table: Table, folds_and_seed: tuple[int, int], *, to_stderr: bool
) -> None:
    """Set the C of a model by cross-validation; print the accuracy for each C."""
    n_folds, seed = folds_and_seed
    logistic = isinstance(model, LogisticRegression)
    kind = LogisticRegressionCV if logistic else MulticlassSVCCV
    given = model.get_params(deep=False)
    shared = {name: given[name] for name in kind._get_param_names() if name in given}
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    search = kind(**shared, cv=folds, refit=False)
    assert table.y is not None
    with _warnings_noted():
        search.fit(table.X, table.y)
    if model.verbose:
        for C, score in zip(search.Cs_, search.mean_score_, strict=True):
            click.echo(f"C = {C:<10.6g} accuracy = {100 * score:.4g}%", err=to_stderr)
    # The same line as LIBLINEAR's, which scripts parse.
    click.echo(
        f"Best C = {search.C_:g}  CV accuracy = {100 * search.best_score_:g}%", err=to_stderr
    )
    model.set_params(C=search.C_)


def _report(model: LinearModel, table: Table, *, to_stderr: bool) -> None:
    click.echo(
        f"objective {model.objective_:.6g}  gap {model.duality_gap_:.3g} "
        f"({model.relative_gap_:.2g} of the objective)  epochs {model.n_iter_}",
        err=to_stderr,
    )
    assert table.y is not None
    click.echo(f"training {_accuracy(model.predict(table.X), table.y)}", err=to_stderr)


@click.command(cls=Command)
@click.argument("test_file", type=IN)
@click.argument("model_file", type=IN)
@click.argument("output_file", type=OUT, default="-")
@click.option(
    "--top",
    default=1,
    show_default=True,
    type=COUNT,
    help="Number of labels per row, best first.",
)
@click.option("--scores", is_flag=True, help="Write the score of each class after the labels.")
@click.option(
    "-b",
    "--probabilities",
    is_flag=True,
    help="Write the probability of each class after the labels (models of --loss logistic). "
    "LIBLINEAR's form -b 1 works, too.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    help="Format of the predictions; by default text (one label per line; with -b 1, LIBLINEAR's "
    "format), or csv with --top or --scores.",
)
@data_options
def predict(
    test_file: Path,
    model_file: Path,
    output_file: Path,
    top: int,
    scores: bool,
    probabilities: bool,
    output_format: str | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Predict labels for the rows of TEST_FILE with MODEL_FILE.

    OUTPUT_FILE gets one line per row; the default is standard output. Each file may be "-" for
    standard input or output. If the model was fitted to named columns, columns of TEST_FILE are
    matched by name. If TEST_FILE has labels, the command prints the accuracy and, with --top, the
    share of rows whose label is among the predicted labels.
    """
    if output_format == "text" and (scores or top > 1):
        raise click.UsageError(
            "--format text supports only one label per row and no scores; use csv or json"
        )
    if scores and probabilities:
        raise click.UsageError("--scores cannot be combined with --probabilities")
    if [str(test_file), str(model_file), str(options["labels"])].count("-") > 1:
        raise click.UsageError("only one file can be read from standard input")
    to_stdout = str(output_file) == "-"
    with exit_codes():
        if not to_stdout:
            check_writable(output_file)
        model, training = read_linear(model_file)
        if top > len(model.classes_):
            msg = f"--top: {top} exceeds the number of classes, {len(model.classes_)}"
            raise ValueError(msg)
        if probabilities and not isinstance(model, LogisticRegression):
            reason = no_probabilities("--loss logistic, or --scores")
            msg = f"--probabilities: {model_file}: {reason}"
            raise ValueError(msg)
        table = read_table(_source(test_file, options), training, need_labels=False)
        if not quiet:
            for note in table.notes:
                errors.print(note, markup=False, soft_wrap=True)
        values = _scores(model, table, test_file)
        best = model.classes_[np.argsort(-values, axis=1, kind="stable")[:, :top]]
        predictions = Predictions(best, model.classes_, values if scores else None)
        if probabilities:
            shares = np.asarray(softmax(values, axis=1))
            predictions = Predictions(best, model.classes_, shares, "probability")
        predictions.write(output_file, output_format)
        if table.y is not None and not (quiet and to_stdout):
            # If labels go to standard output, the accuracy goes to standard error.
            click.echo(_accuracy(best[:, 0], table.y), err=to_stdout)
            if top > 1:
                click.echo(_accuracy(best, table.y, f"top-{top} accuracy"), err=to_stdout)
            if not _matches(model.classes_, table.y).any():
                note = f"{test_file}: no label of the file is a class of the model"
                errors.print(note, markup=False, soft_wrap=True)


def _scores(model: LinearModel, table: Table, path: Path) -> NDArray[np.float64]:
    with np.errstate(over="ignore", invalid="ignore"):
        scores = model._scores(table.X)
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if len(bad):
        msg = f"{path}: row {bad[0] + 1}: the scores overflow; scale the features down"
        raise ValueError(msg)
    return scores


def _accuracy(predicted: NDArray[Any], y: NDArray[Any], name: str = "accuracy") -> str:
    right = int(_matches(predicted.reshape(len(y), -1), y).sum())
    return f"{name} = {100 * right / len(y):.4g}% ({right}/{len(y)})"


def _matches(labels: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each entry of y is in `labels` (one list for all entries, or one row each)."""
    if (labels.dtype.kind in "iufb") != (y.dtype.kind in "iufb"):
        labels, y = labels.astype(np.str_), y.astype(np.str_)
    found: NDArray[np.bool_] = (labels == y[:, None]).any(axis=1)
    return found


@contextmanager
def _warnings_noted() -> Iterator[None]:
    """Print each distinct convergence warning once, on one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        errors.print(f"warning: {message}", markup=False, soft_wrap=True)
