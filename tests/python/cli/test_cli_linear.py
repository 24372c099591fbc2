"""The commands `dualgap fit` and `dualgap predict` on small files."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from click.testing import CliRunner, Result
from sklearn.datasets import dump_svmlight_file, load_iris
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from dualgap import MulticlassSVC
from dualgap.cli import main
from dualgap.cli._linear_file import read_linear
from dualgap.losses import LOSSES, Loss, TopK

X, Y = load_iris(return_X_y=True)
S = sp.csr_array(X)
NAMES = np.array(["setosa", "versicolor", "virginica"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def run_successfully(*arguments: object) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def run_failing(*arguments: object, code: int = 1) -> str:
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    return result.stderr


def make_svm(*args: Any, **parameters: Any) -> MulticlassSVC:
    return MulticlassSVC(*args, fit_intercept=False, random_state=0, **parameters)


def write_libsvm(name: str = "iris", rows: slice = slice(None), base: int = 1) -> None:
    dump_svmlight_file(X[rows], Y[rows], name, zero_based=base == 0)


def test_the_fit_and_predict_commands_give_the_results_of_the_python_model() -> None:
    write_libsvm()
    result = run_successfully("fit", "iris")
    model = make_svm("crammer-singer").fit(S, Y)
    right = int((model.predict(X) == Y).sum())
    assert f"training accuracy = {100 * right / 150:.4g}% ({right}/150)" in result.stdout
    assert f"objective {model.objective_:.6g}  gap {model.duality_gap_:.3g}" in result.stdout
    assert "iris: 150 rows, 4 features, 3 classes" in result.stderr
    assert "epoch" in result.stderr
    result = run_successfully("predict", "iris", "iris.model", "out/predicted")
    assert Path("out/predicted").read_text().split() == list(map(str, model.predict(X)))
    assert result.stdout == f"accuracy = {100 * right / 150:.4g}% ({right}/150)\n"
    # Without an output file, standard output contains only the labels.
    result = run_successfully("predict", "iris", "iris.model")
    assert result.stdout.split() == list(map(str, model.predict(X)))
    assert "accuracy" in result.stderr
    assert run_successfully("predict", "-q", "iris", "iris.model").stderr == ""


def test_predict_says_when_no_label_of_the_file_is_a_class() -> None:
    write_libsvm()
    run_successfully("fit", "-q", "iris")
    note = "no label of the file is a class of the model"
    assert note not in run_successfully("predict", "iris", "iris.model", "predicted").stderr
    dump_svmlight_file(X, Y + 7, "other", zero_based=False)
    result = run_successfully("predict", "other", "iris.model", "predicted")
    assert result.stdout == "accuracy = 0% (0/150)\n"
    assert f"other: {note}" in result.stderr


def test_options_have_the_effect_of_the_estimators_parameters() -> None:
    write_libsvm()
    options = ["-s", "top-k", "-k", 2, "-c", 0.5, "-B", 2, "-e", 1e-4, "--smoothing", 0.1]
    result = run_successfully("fit", *options, "--seed", 3, "-n", 1, "-q", "iris", "deep/model")
    assert result.stderr == ""
    model = MulticlassSVC(
        TopK(2), C=0.5, intercept_scaling=2.0, tol=1e-4, smoothing=0.1, random_state=3
    ).fit(S, Y)
    assert f"objective {model.objective_:.6g}" in result.stdout
    result = run_successfully("predict", "iris", "deep/model", "--top", 2, "--scores", "-q")
    table = pd.read_csv(io.StringIO(result.stdout))
    assert list(table) == ["label_1", "label_2", "score_0", "score_1", "score_2"]
    assert table[["label_1", "label_2"]].to_numpy().tolist() == model.predict_top_k(X, 2).tolist()
    scores = table.iloc[:, 2:].to_numpy()
    assert np.allclose(scores, model.decision_function(X), rtol=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_can_be_fitted_saved_and_loaded(name: str) -> None:
    write_libsvm()
    texts = {"k": "2", "weights": "0.7,0.3,0"}
    values: dict[str, Any] = {"k": 2, "weights": [0.7, 0.3, 0.0]}
    options = [text for own in LOSSES[name] for text in (f"--{own}", texts[own])]
    loss = Loss(name, **{own: values[own] for own in LOSSES[name]})
    value = make_svm(loss, tol=0.05).fit(S, Y).objective_
    options += ["-e", "0.05"]
    assert (
        f"objective {value:.6g}"
        in run_successfully("fit", "-q", "-s", name, *options, "iris").stdout
    )
    assert read_linear(Path("iris.model"))[0].loss == loss
    run_successfully("predict", "-q", "iris", "iris.model")


def test_cross_validation_prints_the_accuracy_and_writes_no_file() -> None:
    write_libsvm()
    result = run_successfully("fit", "-v", 3, "-c", 0.1, "-q", "iris")
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    right = int((cross_val_predict(make_svm(C=0.1), X, Y, cv=folds) == Y).sum())
    accuracy = f"accuracy = {100 * right / 150:.4g}% ({right}/150)"
    assert result.stdout == f"cross-validation {accuracy}\n"
    assert os.listdir() == ["iris"]
    assert "leave out MODEL_FILE" in run_failing("fit", "-v", 3, "iris", "m", code=2)


def test_a_fit_that_does_not_converge_warns() -> None:
    write_libsvm()
    result = run_successfully("fit", "-q", "--max-iter", 1, "-c", 100, "iris")
    assert re.match(r"warning: stopped after 1 iterations", result.stderr)


@pytest.mark.parametrize("name", ["rows.csv", "rows.npz", "rows.npy", "sparse.npz", "rows.parquet"])
def test_every_format_gives_the_same_model(name: str) -> None:
    labels = NAMES[Y]
    extra: list[object] = []
    if name == "rows.csv":
        table = pd.DataFrame(X, columns=list("abcd"))
        table.insert(1, "kind", labels)
        table.to_csv(name, index=False)
        extra = ["--label", "kind"]
    elif name == "rows.parquet":
        pytest.importorskip("pyarrow")
        table = pd.DataFrame(X, columns=list("abcd")).assign(target=labels)
        table.to_parquet(name)
    elif name == "rows.npz":
        np.savez(name, X=X, y=labels)
    else:
        np.save(name, X) if name == "rows.npy" else sp.save_npz(name, sp.csr_array(X))
        Path("labels.txt").write_text("\n".join(labels))
        extra = ["--labels", "labels.txt"]
    # Sums over stored entries and over all entries are rounded differently.
    rows = sp.csr_array(X) if name == "sparse.npz" else X
    model = make_svm().fit(rows, labels)
    run_successfully("fit", "-q", name, "m", *extra)
    result = run_successfully("predict", name, "m", *extra)
    assert result.stdout.split() == model.predict(rows).tolist()
    assert "accuracy" in result.stderr
    if "--labels" in extra:
        # Without labels, there is no accuracy.
        result = run_successfully("predict", name, "m")
        assert result.stdout.split() == model.predict(X).tolist()
        assert "accuracy" not in result.stderr


def test_files_to_predict_may_have_other_features_and_labels() -> None:
    Path("train").write_text("1 1:1 3:1\n2 2:1\n1 1:2\n2 2:2\n")
    run_successfully("fit", "-q", "train")
    Path("test").write_text("1 1:3\n2 2:3 9:5\n7 1:1\n")
    result = run_successfully("predict", "test", "train.model")
    assert result.stdout.split() == ["1", "2", "1"]
    assert "(2/3)" in result.stderr
    Path("zero").write_text("1 0:1\n2 1:1\n")
    run_successfully("fit", "-q", "zero")
    assert run_successfully("predict", "-q", "zero", "zero.model").stdout.split() == ["1", "2"]
    assert "index 0" in run_failing("predict", "zero", "train.model")


def test_labels_may_come_from_arrays() -> None:
    np.save("rows.npy", X)
    np.save("labels.npy", Y.astype(float))
    run_successfully("fit", "-q", "rows.npy", "m", "--labels", "labels.npy")
    assert set(run_successfully("predict", "rows.npy", "m").stdout.split()) == {"0", "1", "2"}
    np.save("half.npy", Y[:75])
    assert "150 rows, but 75 labels" in run_failing("fit", "rows.npy", "--labels", "half.npy")
    np.save("square.npy", X)
    assert "one label per row" in run_failing("fit", "rows.npy", "--labels", "square.npy")
    Path("other.npy").write_bytes(b"nothing")
    assert "not a readable NumPy file" in run_failing("fit", "rows.npy", "--labels", "other.npy")
    assert "no labels; pass a file" in run_failing("fit", "rows.npy")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a", "1 1:1 2:x\n2 1:1\n", "not in LIBSVM format"),
        ("a", "", "the file has no rows"),
        ("a", "1 1:1\n1 1:2\n", "one class"),
        ("a", "\x00\x01binary", "not in LIBSVM format"),
        ("a.npy", "nothing", "not a readable NumPy file"),
        ("a.npz", "nothing", "not a readable NumPy file"),
        ("a.csv", "a,b\n1,2\n", "with --label"),
        ("a.csv", "a,y\n1,\n2,3\n", "missing values"),
        ("a.csv", "a,y\nred,1\n2,3\n", "column 'a', row 1: not a number"),
        ("a.csv", "", "not a readable csv file"),
        ("a.csv", "a,y\n1,1\n,2\n", "got nan"),
        ("a.csv", 'a,y\n1,"1\n', "not a readable csv file"),
    ],
)
def test_errors_of_bad_data_name_the_file_and_the_reason(
    name: str, text: str, message: str
) -> None:
    Path(name).write_text(text)
    error = run_failing("fit", "-q", name)
    assert message in error
    assert error.startswith("error: ")


def test_bad_options_and_unusable_files_are_rejected() -> None:
    write_libsvm()
    np.savez("keys.npz", rows=X)
    np.savez("pickle.npz", X=np.array([{}], dtype=object))
    np.savez("line.npz", X=X[:, 0], y=Y)
    assert "no array X found" in run_failing("fit", "keys.npz")
    assert "not a readable NumPy file" in run_failing("fit", "pickle.npz")
    assert "must be a matrix" in run_failing("fit", "line.npz")
    pd.DataFrame(X).to_csv("rows.csv", index=False)
    assert "no column 'kind'" in run_failing("fit", "rows.csv", "--label", "kind")
    assert '"top-k" needs k' in run_failing("fit", "-s", "top-k", "iris")
    assert "takes no k" in run_failing("fit", "-k", 2, "iris")
    assert "list of numbers" in run_failing("fit", "--weights", "1;0", "iris", code=2)
    assert "--cost" in run_failing("fit", "-c", 0, "iris", code=2)
    assert "--bias" in run_failing("fit", "-B", 0, "iris", code=2)
    run_failing("fit", "nowhere", code=2)
    run_successfully("fit", "-q", "iris")
    assert "--top: 4 exceeds the number of classes, 3" in run_failing(
        "predict", "iris", "iris.model", "--top", 4
    )
    assert "features" in run_failing("predict", "rows.csv", "iris.model", "--label", "0")


@pytest.mark.parametrize("loss", ["max-hinge", "logistic"])
def test_files_that_are_not_models_are_rejected(loss: str) -> None:
    write_libsvm()
    run_successfully("fit", "-q", "-s", loss, "iris")
    assert "not a model file" in run_failing("predict", "iris", "iris")
    np.savez("other", a=X)
    assert "not a model file" in run_failing("predict", "iris", "other.npz")
    with np.load("iris.model") as file:
        arrays = dict(file)
    for name, value in (("coef_", X), ("intercept_", X[0]), ("meta", arrays["meta"][:-3])):
        np.savez("broken.npz", **{**arrays, name: value})
        assert "not a model file" in run_failing("predict", "iris", "broken.npz")


@pytest.mark.parametrize("command", [["fit"], ["predict"], ["tag", "train"]])
def test_help_lists_no_limits_of_integer_types(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0
    assert "INTEGER" in result.output or command == ["predict"]
    assert not re.search(r"\d{10}", result.output)


@pytest.mark.parametrize(
    ("option", "value"), [("--max-iter", "0"), ("--seed", "-1"), ("--cross-validation", "1")]
)
def test_an_integer_out_of_bounds_is_a_usage_error(option: str, value: str) -> None:
    result = CliRunner().invoke(main, ["fit", option, value, __file__])
    assert result.exit_code == 2
    assert f"{value} is not between" in result.stderr
