"""LIBLINEAR's options and files for the commands `dualgap fit` and `dualgap predict`."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner, Result
from sklearn.datasets import dump_svmlight_file, load_iris, load_svmlight_file
from sklearn.linear_model import LogisticRegression as SklearnRegression
from sklearn.model_selection import StratifiedKFold

from dualgap import (
    LogisticRegression,
    LogisticRegressionCV,
    MulticlassSVC,
    MulticlassSVCCV,
)
from dualgap._libsvm import read_libsvm
from dualgap.cli import main

X, Y = load_iris(return_X_y=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test in a folder that contains the file `iris`."""
    monkeypatch.chdir(tmp_path)
    dump_svmlight_file(X, Y, "iris", zero_based=False)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def fit_and_read_objective(*arguments: object, command: str = "fit") -> str:
    result = run(command, "-q", *arguments, "iris", "model")
    assert result.exit_code == 0, result.output
    return result.stdout.split()[1]


def fit_objective_in_python(**parameters: object) -> str:
    model = MulticlassSVC("crammer-singer", fit_intercept=False, random_state=0, **parameters)
    return f"{model.fit(sp.csr_array(X), Y).objective_:.6g}"


def test_solver_numbers_select_the_loss() -> None:
    assert fit_and_read_objective("-s", 4, "-c", 2, "-e", 0.01) == fit_objective_in_python(
        C=2, tol=0.01
    )
    assert fit_and_read_objective("-s4", "-m", 1) == fit_objective_in_python()
    assert fit_and_read_objective("-s4", command="train") == fit_objective_in_python()
    assert run("predict", "iris", "model").stdout.split() != []


def test_log_is_another_name_for_the_logistic_loss() -> None:
    objectives = [fit_and_read_objective("--loss", name) for name in ("log", "logistic")]
    assert objectives[0] == objectives[1]


@pytest.mark.parametrize("number", [0, 7])
def test_logistic_regression_of_two_classes_gives_the_probabilities_of_scikit_learn(
    number: int,
) -> None:
    rows, labels = X[50:], Y[50:]
    dump_svmlight_file(rows, labels, "iris", zero_based=False)
    fit_and_read_objective("-s", number, "-c", 2, "-e", 1e-10)
    run("predict", "-b", 1, "iris", "model", "out")
    wanted = SklearnRegression(
        C=2, solver="liblinear", fit_intercept=False, tol=1e-12, max_iter=10_000
    ).fit(rows, labels)
    found = np.loadtxt("out", skiprows=1)
    assert Path("out").read_text().splitlines()[0] == "labels 1 2"
    assert (found[:, 0] == wanted.predict(rows)).all()
    assert np.allclose(found[:, 1:], wanted.predict_proba(rows), rtol=1e-4, atol=1e-9)


def test_the_bias_of_logistic_regression_is_not_regularised() -> None:
    model = LogisticRegression(C=0.1, class_weight={1: 2.0}, random_state=0).fit(sp.csr_array(X), Y)
    wanted = f"{model.objective_:.6g}"
    assert fit_and_read_objective("-s", "logistic", "-c", 0.1, "-B", 1, "-w1", 2) == wanted
    assert fit_and_read_objective("-s", 0, "-c", 0.1, "-B", 5, "-w1", 2, "-R") == wanted
    assert fit_and_read_objective("-s", 0, "-c", 0.1, "-w1", 2) != wanted
    result = run("fit", "-s", 4, "-B", 1, "-R", "iris")
    assert result.exit_code == 1
    assert "only --loss logistic" in result.stderr


def test_every_output_format_has_the_probabilities() -> None:
    model = LogisticRegression(fit_intercept=False, random_state=0).fit(sp.csr_array(X), Y)
    wanted = model.predict_proba(X)
    fit_and_read_objective("-s", "logistic")
    result = run("predict", "-b1", "iris", "model", "-q")
    lines = result.stdout.splitlines()
    assert lines[0] == "labels 0 1 2"
    rows = np.array([line.split() for line in lines[1:]], dtype=float)
    assert (rows[:, 0] == model.predict(X)).all()
    assert np.allclose(rows[:, 1:], wanted, rtol=1e-8)
    result = run("predict", "--probabilities", "--top", 2, "iris", "model", "-q")
    header, first, *_ = result.stdout.splitlines()
    assert header == "label_1,label_2,probability_0,probability_1,probability_2"
    assert np.allclose(np.array(first.split(",")[2:], dtype=float), wanted[0], rtol=1e-8)
    result = run("predict", "-b", 1, "--format", "json", "iris", "model", "-q")
    assert np.allclose(list(json.loads(result.stdout)[7]["probabilities"].values()), wanted[7])
    assert run("predict", "-b", 0, "iris", "model", "-q").stdout.splitlines()[0] == "0"


def test_options_that_do_not_apply_to_probabilities_are_rejected() -> None:
    for option in (("-k", 2), ("--weights", "1,0,0"), ("--smoothing", 0.5)):
        result = run("fit", "-s", "logistic", *option, "iris")
        assert result.exit_code == 1
        assert (
            f"{option[0].replace('-k', '--k')}: the loss logistic does not use it" in result.stderr
        )
    assert "solver: unknown name" in run("fit", "--solver", "dual-descent", "iris").stderr
    assert "solver: must be one of" in run("fit", "-s0", "--solver", "frank-wolfe", "iris").stderr
    fit_and_read_objective("-s", 4)
    result = run("predict", "-b", 1, "iris", "model")
    assert result.exit_code == 1
    message = " ".join(result.stderr.split())
    assert "model: this loss does not model probabilities: use --loss logistic" in message
    assert "temperature" in message
    assert run("predict", "-b", 1, "--scores", "iris", "model").exit_code == 2
    Path("names").write_text("".join(f"kind {label}\n" for label in Y))
    assert run("fit", "-q", "-s0", "--labels", "names", "iris", "model").exit_code == 0
    result = run("predict", "-b", 1, "iris", "model")
    assert result.exit_code == 1
    assert "contains a blank; use --format csv or json" in " ".join(result.stderr.split())


def test_options_set_weights_of_classes() -> None:
    weights = {0: 2.0, 2: 0.5}
    wanted = fit_objective_in_python(class_weight=weights)
    assert fit_and_read_objective("-w0", 2, "-w2", "0.5") == wanted
    assert (
        fit_and_read_objective("-w", "0=2", "--class-weight", "2.0=0.5")
        == wanted
        != fit_objective_in_python()
    )
    assert run("fit", "-w1", 3, "-v", 3, "iris").exit_code == 0


@pytest.mark.parametrize(
    ("loss", "search", "model"),
    [
        (4, MulticlassSVCCV("crammer-singer"), MulticlassSVC("crammer-singer")),
        (0, LogisticRegressionCV(), LogisticRegression()),
    ],
)
def test_a_search_prints_the_best_c_and_fits_with_it(loss: int, search: Any, model: Any) -> None:
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    for each in (search, model):
        each.set_params(fit_intercept=False, random_state=0, class_weight={1: 2.0})
    search.set_params(cv=folds).fit(sp.csr_array(X), Y)
    model.set_params(C=search.C_).fit(sp.csr_array(X), Y)
    best = f"Best C = {search.C_:g}  CV accuracy = {100 * search.best_score_:g}%"
    result = run("fit", "-s", loss, "-C", "-v", 3, "-w1", 2, "iris")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 14
    assert lines[-1] == best
    assert {path.name for path in Path.cwd().iterdir()} == {"iris"}
    result = run("fit", "-q", "-s", loss, "-C", "-v", 3, "-w1", 2, "iris", "model")
    assert result.stdout.splitlines()[0] == best
    assert result.stdout.splitlines()[1].split()[1] == f"{model.objective_:.6g}"
    assert run("predict", "iris", "model").exit_code == 0
    # The model alone goes to standard output.
    result = run("fit", "-s", loss, "-C", "-v", 3, "iris", "-")
    assert result.stdout_bytes.startswith(b"PK")
    assert "Best C" in result.stderr


def test_fit_prints_the_name_of_the_default_loss() -> None:
    note = "LIBLINEAR's default, -s 1, trains each class against the others"
    assert note in run("fit", "iris").stderr
    for arguments in (("-s", 4), ("--loss", "crammer-singer"), ("-s4",), ("-q",)):
        assert note not in run("fit", *arguments, "iris").stderr


def test_help_has_no_unreadable_ranges() -> None:
    for command in ("fit", "predict"):
        text = run(command, "--help").stdout
        assert "None" not in text
        assert "RANGE" not in text
        assert "2147483647" not in text


def test_invalid_class_weights_are_rejected() -> None:
    for arguments, message in [
        (("-w7", 1), "the label '7' does not occur in the rows"),
        (("-w1", "x"), "'1=x' is not of the form LABEL=WEIGHT"),
        (("-w", "0.5"), "is not of the form LABEL=WEIGHT"),
        (("-w1", -1), "is not of the form LABEL=WEIGHT"),
    ]:
        result = run("fit", *arguments, "iris")
        assert result.exit_code in (1, 2), result.output
        assert message in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("fit", "-s", 3, "iris"), "half of C"),
        (("fit", "-s2", "iris"), "squared hinge"),
        (("fit", "-s", 12, "iris"), "not a classifier"),
        (("fit", "-C", "-c", 2, "iris"), "leave out -c"),
        (("fit", "-C", "--solver", "newton", "iris"), "leave out --solver"),
        (("fit", "-M", 1, "iris"), "all classes jointly"),
        (("fit", "-p", 0.1, "iris"), "regression"),
        (("predict", "-b", 2, "iris", "model"), "0 or 1, got 2"),
        (("predict", "iris", "model", "-b"), "0 or 1, got nothing"),
    ],
)
def test_unsupported_options_give_a_hint(arguments: tuple[object, ...], answer: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert answer in " ".join(result.stderr.replace("│", " ").split())


def test_files_are_read_as_scikit_learn_reads_them() -> None:
    rng = np.random.default_rng(0)
    S = rng.normal(size=(300, 40)) * (rng.random((300, 40)) < 0.2)
    for base in (0, 1):
        dump_svmlight_file(S, rng.integers(-3, 4, 300), "rows", zero_based=base == 0, comment="c")
        text = Path("rows").read_bytes()
        Path("rows.gz").write_bytes(gzip.compress(text))
        Path("rows.bz2").write_bytes(bz2.compress(text))
        rows, labels = load_svmlight_file("rows", zero_based=base == 0)
        read, y, first = read_libsvm(io.BytesIO(text))
        assert first == base
        assert (y == labels).all()
        assert read.shape == rows.shape
        assert abs(read - rows).max() == 0
        assert read.indices.dtype == np.int32
        narrow = read_libsvm(io.BytesIO(text), base, 10)[0]
        assert narrow.shape == (300, 10)
        assert abs(narrow - rows[:, :10]).max() == 0
        assert read_libsvm(io.BytesIO(text), base, 99)[0].shape == (300, 99)
    with pytest.raises(ValueError, match="index 0 is below 1, the index of the first feature"):
        read_libsvm(io.BytesIO(b"1 0:1\n"), 1)


def test_errors_name_an_invalid_line() -> None:
    lines = Path("iris").read_text().splitlines()
    lines[41] = "1 1:2 1:3"
    Path("iris").write_text("\n".join(lines))
    result = run("fit", "iris")
    assert result.exit_code == 1
    assert "line 42: index 1" in " ".join(result.stderr.split())
