"""LIBLINEAR's options and files for the commands `dualgap fit` and `dualgap predict`."""

from __future__ import annotations

import bz2
import gzip
import io
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner, Result
from sklearn.datasets import dump_svmlight_file, load_iris, load_svmlight_file

from dualgap import MulticlassSVC
from dualgap._libsvm import read_libsvm
from dualgap.cli import main

X, Y = load_iris(return_X_y=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the rows."""
    monkeypatch.chdir(tmp_path)
    dump_svmlight_file(X, Y, "iris", zero_based=False)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def objective(*arguments: object) -> str:
    result = run("fit", "-q", *arguments, "iris", "model")
    assert result.exit_code == 0, result.output
    return result.stdout.split()[1]


def expected(**parameters: object) -> str:
    model = MulticlassSVC("crammer-singer", fit_intercept=False, random_state=0, **parameters)
    return f"{model.fit(sp.csr_array(X), Y).objective_:.6g}"


def test_the_solver_s_number_is_the_loss() -> None:
    assert objective("-s", 4, "-c", 2, "-e", 0.01) == expected(C=2, tol=0.01)
    assert objective("-s4", "-m", 1) == expected()
    assert run("predict", "iris", "model").stdout.split() != []


def test_weights_of_classes() -> None:
    weights = {0: 2.0, 2: 0.5}
    wanted = expected(class_weight=weights)
    assert objective("-w0", 2, "-w2", "0.5") == wanted
    assert objective("-w", "0=2", "--class-weight", "2.0=0.5") == wanted != expected()
    assert run("fit", "-w1", 3, "-v", 3, "iris").exit_code == 0


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
        (("fit", "-s0", "iris"), "logistic regression"),
        (("fit", "-s", 12, "iris"), "not a classifier"),
        (("fit", "-C", "iris"), "MulticlassSVCCV"),
        (("fit", "-M", 1, "iris"), "all classes jointly"),
        (("fit", "-R", "iris"), "-B"),
        (("fit", "-p", 0.1, "iris"), "regression"),
        (("predict", "-b", 1, "iris", "model"), "--scores"),
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


def test_a_line_that_is_no_row_is_named() -> None:
    lines = Path("iris").read_text().splitlines()
    lines[41] = "1 1:2 1:3"
    Path("iris").write_text("\n".join(lines))
    result = run("fit", "iris")
    assert result.exit_code == 1
    assert "line 42: index 1" in " ".join(result.stderr.split())
