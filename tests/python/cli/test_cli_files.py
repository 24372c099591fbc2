"""Files of `dualgap fit` and `dualgap predict`: columns, paths, pipes, damaged files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from click.testing import CliRunner, Result
from sklearn.datasets import dump_svmlight_file, load_iris

from dualgap.cli import main

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["New York", 'the "Hague"', "Rio, Brazil"])
COMMAND = [sys.executable, "-m", "dualgap.cli"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], input=stdin)


def run_successfully(*arguments: object, stdin: bytes | None = None) -> Result:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result


def run_failing(*arguments: object, code: int = 1, stdin: bytes | None = None) -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    return " ".join(result.stderr.split())


def iris_table(names: str = "abcd") -> pd.DataFrame:
    return pd.DataFrame(X, columns=list(names))


# --- Names of columns ---


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_columns_are_found_by_their_names(form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")

    def write(frame: pd.DataFrame, name: str) -> str:
        path = f"{name}.{form}"
        frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path)
        return path

    train = iris_table().assign(kind=Y)
    path = write(train, "train")
    run_successfully("fit", "-q", path, "m", "--label", "kind")
    expected = run_successfully("predict", "-q", path, "m").stdout
    result = run_successfully("predict", write(train[["c", "kind", "a", "d", "b"]], "turned"), "m")
    assert result.stdout == expected
    assert "accuracy = 9" in result.stderr
    # The label column is ignored, and may be missing.
    result = run_successfully("predict", write(train[["d", "c", "b", "a"]], "alone"), "m")
    assert result.stdout == expected
    assert result.stderr == ""
    missing = run_failing("predict", write(train.drop(columns="c"), "missing"), "m")
    assert "no column 'c', which is a feature of the model" in missing
    result = run_successfully("predict", write(train.assign(other=1), "more"), "m")
    assert result.stdout == expected
    assert "ignored columns that are not features of the model: 'other'" in result.stderr
    # The labels may be in another column.
    result = run_successfully(
        "predict", write(train.rename(columns={"kind": "truth"}), "x"), "m", "--label=truth"
    )
    assert "accuracy = 9" in result.stderr


def test_a_feature_may_be_named_y_if_the_label_column_is_given() -> None:
    train = iris_table("yabc").assign(kind=Y)
    train.to_csv("train.csv", index=False)
    run_successfully("fit", "-q", "train.csv", "m", "--label", "kind")
    expected = run_successfully("predict", "-q", "train.csv", "m").stdout
    train.drop(columns="kind").to_csv("alone.csv", index=False)
    assert run_successfully("predict", "-q", "alone.csv", "m").stdout == expected


# --- Standard input and output ---


def test_a_dash_means_standard_input_or_output() -> None:
    content = iris_table().assign(label=Y).to_csv(index=False).encode()
    Path("train.csv").write_bytes(content)
    run_successfully("fit", "-q", "train.csv", "m")
    options = ["-q", "--input-format", "csv"]
    written = run_successfully("fit", *options, "-", "-", stdin=content)
    assert written.stdout_bytes == Path("m").read_bytes()
    assert "training accuracy" in written.stderr
    expected = run_successfully("predict", "-q", "train.csv", "m").stdout
    assert run_successfully("predict", *options, "-", "m", "-", stdin=content).stdout == expected
    assert (
        run_successfully("predict", "-q", "train.csv", "-", stdin=written.stdout_bytes).stdout
        == expected
    )
    assert sorted(os.listdir()) == ["m", "train.csv"]
    assert "MODEL_FILE" in run_failing("fit", "-", code=2, stdin=content)
    assert "only one file" in run_failing("predict", "-", "-", code=2)
    assert "standard input" in run_failing("fit", "-", "--labels", "-", "x", code=2)
    assert "not a model file" in run_failing("predict", "train.csv", "-", stdin=b"PK nothing")


def test_a_closed_output_pipe_is_not_an_error() -> None:
    np.savez("rows.npz", X=np.tile(X, (2000, 1)), y=np.tile(Y, 2000))
    np.savez("few.npz", X=X, y=Y)
    run_successfully("fit", "-q", "few.npz", "m")
    command = [*COMMAND, "predict", "-q", "rows.npz", "m", "--scores"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"label,")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


# --- Labels and predictions ---


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_labels_with_blanks_and_quotes_are_read_and_written(end: str) -> None:
    np.save("rows.npy", X)
    Path("labels").write_bytes((end.join(NAMES[Y]) + end).encode("utf-8-sig"))
    run_successfully("fit", "-q", "rows.npy", "m", "--labels", "labels")
    assert set(run_successfully("predict", "-q", "rows.npy", "m").stdout.splitlines()) == set(NAMES)
    options = ["predict", "-q", "rows.npy", "m", "--top", "2", "--scores"]
    lines = list(csv.reader(io.StringIO(run_successfully(*options).stdout)))
    scores = [f"score_{name}" for name in sorted(NAMES)]
    assert lines[0] == ["label_1", "label_2", *scores]
    assert len(lines) == 151
    assert {label for line in lines[1:] for label in line[:2]} == set(NAMES)
    records = json.loads(run_successfully(*options, "--format", "json").stdout)
    assert [record["labels"] for record in records] == [line[:2] for line in lines[1:]]
    for record, line in zip(records, lines[1:], strict=True):
        assert list(record["scores"]) == sorted(NAMES)
        assert np.allclose(list(record["scores"].values()), np.array(line[2:], float), rtol=1e-8)
    assert "use csv or json" in run_failing(*options, "--format", "text", code=2)
    run_successfully(*options[:4], "out", "--format", "csv")
    assert next(csv.reader(io.StringIO(Path("out").read_text()))) == ["label"]


def test_numeric_labels_are_numbers_in_json() -> None:
    np.savez("rows.npz", X=X, y=Y)
    run_successfully("fit", "-q", "rows.npz", "m")
    records = json.loads(
        run_successfully("predict", "-q", "rows.npz", "m", "--format", "json").stdout
    )
    assert {record["labels"][0] for record in records} == {0, 1, 2}


def test_labels_with_line_ends_are_not_printed_as_lines() -> None:
    np.savez("rows.npz", X=X, y=np.array(["a", "b\nc", "d"])[Y])
    run_successfully("fit", "-q", "rows.npz", "m")
    assert "contains a line break" in run_failing("predict", "-q", "rows.npz", "m")
    lines = list(
        csv.reader(
            io.StringIO(run_successfully("predict", "-q", "rows.npz", "m", "--format=csv").stdout)
        )
    )
    assert {line[0] for line in lines[1:]} == {"a", "b\nc", "d"}


def test_empty_lines_of_labels_are_rejected() -> None:
    np.save("rows.npy", X)
    Path("labels").write_text("\n".join(["a", "", *NAMES[Y[2:]]]))
    assert "labels: line 2: missing label" in run_failing("fit", "rows.npy", "--labels", "labels")


@pytest.mark.parametrize("label", ["1.5", "1e+19"])
def test_numeric_labels_that_cannot_be_classes_are_rejected(label: str) -> None:
    Path("rows").write_text(f"1 1:1\n2 1:2\n{label} 1:3\n")
    error = run_failing("fit", "rows")
    assert f"rows: row 3: the label {label} is not a whole number below 2**53" in error


def test_whole_numbers_in_npz_files_may_be_labels() -> None:
    np.savez("rows.npz", X=X, y=Y.astype(np.float32))
    run_successfully("fit", "-q", "rows.npz", "m")


def test_too_large_indices_are_rejected() -> None:
    Path("rows").write_text("1 1:1\n2 2147483648:1\n")
    error = run_failing("fit", "rows")
    assert "line 2" in error
    assert "is not index:value with an index below 2147483647" in error


# --- Formats of tables ---


@pytest.mark.parametrize(
    ("name", "separator", "options"),
    [
        ("rows.tsv", "\t", []),
        ("rows.tsv.gz", "\t", []),
        ("rows.csv", ";", ["--separator", ";"]),
        ("rows.csv", "\t", ["--separator", "tab"]),
        ("rows.txt", "|", ["--separator", "|", "--input-format", "csv"]),
    ],
)
def test_separators_and_byte_order_marks_do_not_change_the_model(
    name: str, separator: str, options: list[str]
) -> None:
    iris_table().assign(label=Y).to_csv("plain.csv", index=False)
    run_successfully("fit", "-q", "plain.csv", "m")
    content = iris_table().assign(label=Y).to_csv(index=False, sep=separator).encode("utf-8-sig")
    Path(name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    run_successfully("fit", "-q", name, "n", *options)
    assert Path("m").read_bytes() == Path("n").read_bytes()
    assert "a single character" in run_failing("fit", name, "n", "--separator", "::", code=2)


def test_a_libsvm_file_may_have_a_byte_order_mark() -> None:
    dump_svmlight_file(X, Y, "plain", zero_based=False)
    Path("marked").write_bytes(b"\xef\xbb\xbf" + Path("plain").read_bytes())
    run_successfully("fit", "-q", "plain", "m")
    run_successfully("fit", "-q", "marked", "n")
    assert Path("m").read_bytes() == Path("n").read_bytes()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "a,y\n", "a.csv: the table has no rows"),
        ("a.csv", "a,b,a,y\n1,2,3,4\n", "a.csv: two columns have the name 'a'"),
        (
            "a.csv",
            "a,y\n1,2,3\n1,2,3\n",
            "a.csv: a row has more fields than the header, which has 2",
        ),
        (
            "a.csv",
            "a,b,y\n1,2,1\n3,,2\n",
            "a.csv: row 2, column 'b': values must be finite, got nan",
        ),
        (
            "a.csv",
            "a,b,y\n1,2,1\n3,inf,2\n",
            "a.csv: row 2, column 'b': values must be finite, got inf",
        ),
        ("a.csv", "a,b,y\n1,2,1\n3,red,2\n", "a.csv: column 'b', row 2: not a number"),
        ("a.csv", "a,y\n1,1\n2,\n", "column 'y' has missing values, the first in row 2"),
        ("a", "1 1:1 5:nan\n2 1:2\n", "a: row 1, column 5: values must be finite, got nan"),
        ("a", "1 1:1\nnan 1:2\n", "a: row 2: labels must be finite, got nan"),
        ("a", "1 99999999999:1\n2 1:1\n", "not in LIBSVM format"),
        ("a", "1 -1:1\n2 1:1\n", "not in LIBSVM format"),
    ],
)
def test_errors_name_file_row_and_column_of_bad_values(name: str, text: str, message: str) -> None:
    Path(name).write_text(text)
    assert message in run_failing("fit", "-q", name)


def test_errors_name_row_and_column_of_nan() -> None:
    rows = np.vstack([X] * 40)
    rows[5000, 2] = np.nan
    np.savez("rows.npz", X=rows, y=np.tile(Y, 40))
    assert "rows.npz: row 5001, column 3: values must be finite, got nan" in run_failing(
        "fit", "rows.npz"
    )
    np.savez("labels.npz", X=X, y=np.where(Y == 1, np.inf, Y))
    assert "labels.npz: row 51: labels must be finite, got inf" in run_failing("fit", "labels.npz")


# --- Usage errors, reported before any file is read ---


@pytest.mark.parametrize(
    "options",
    [
        ["-c", "nan"],
        ["-c", "inf"],
        ["-c", "-1"],
        ["-e", "nan"],
        ["-e", "inf"],
        ["-B", "nan"],
        ["-B", "inf"],
        ["--smoothing", "nan"],
        ["--max-iter", str(2**64)],
        ["-k", str(2**64)],
        ["-v", str(2**64)],
        ["--seed", str(2**64)],
        ["--seed", "-1"],
        ["-n", "0"],
        ["-n", str(2**64)],
    ],
)
def test_numbers_out_of_range_are_usage_errors(options: list[str]) -> None:
    Path("empty").write_text("")
    assert f"'{options[0]}'" in run_failing("fit", "empty", *options, code=2)


def test_a_value_of_top_beyond_64_bits_is_a_usage_error() -> None:
    assert "--top" in run_failing("predict", "-", "-", "--top", 2**64, code=2)


def test_an_unwritable_model_path_is_reported_before_the_fit() -> None:
    # These rows would raise an error if they were read.
    Path("empty").write_text("")
    Path("folder").mkdir()
    assert "/proc/model" in run_failing("fit", "empty", "/proc/model")
    assert "empty" in run_failing("fit", "empty", "empty/model")
    assert "directory" in run_failing("fit", "empty", "folder", code=2)
    assert "MODEL_FILE would overwrite TRAINING_FILE" in run_failing(
        "fit", "empty", "./empty", code=2
    )
    assert Path("empty").read_text() == ""
    assert sorted(os.listdir()) == ["empty", "folder"]


# --- Damaged files ---


def csr_arrays(**changes: Any) -> dict[str, Any]:
    matrix = sp.csr_array(X)
    parts = {"format": np.array(b"csr"), "shape": np.array(X.shape), "data": matrix.data}
    return {**parts, "indices": matrix.indices, "indptr": matrix.indptr, **changes}


DAMAGED_ARRAYS = {
    "large index": {"indices": np.full(600, 10**8)},
    "slightly large index": {"indices": np.tile([0, 1, 2, 4], 150)},
    "negative index": {"indices": np.full(600, -1)},
    "offset behind the end": {"indptr": np.append(np.arange(150) * 4, 10**9)},
    "offsets that fall": {"indptr": np.append(0, np.arange(600, 0, -4))},
    "offset far away inside": {"indptr": np.where(np.arange(151) == 7, 10**12, np.arange(151) * 4)},
    "negative offset": {"indptr": np.where(np.arange(151) == 7, -(10**9), np.arange(151) * 4)},
    "empty with offsets": {"indptr": np.where(np.arange(151) == 7, 10**6, 0)},
    "too few offsets": {"indptr": np.arange(3)},
    "another shape": {"shape": np.array([150, 2])},
    "a shape of three": {"shape": np.array([150, 2, 2])},
    "a negative shape": {"shape": np.array([-150, 4])},
    "text": {"data": np.full(600, "a")},
    "diagonals": {"format": np.array(b"dia")},
    "indices of csc": {"format": np.array(b"csc")},
    "a format of pickles": {"format": np.array({}, dtype=object)},
}


@pytest.mark.parametrize("name", DAMAGED_ARRAYS)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_sparse_matrices_are_rejected(name: str, save: Any) -> None:
    np.savez("iris.npz", X=X, y=Y)
    run_successfully("fit", "-q", "iris.npz", "m")
    save("bad.npz", **csr_arrays(**DAMAGED_ARRAYS[name]))
    np.save("labels.npy", Y)
    assert "bad.npz: not a readable NumPy" in run_failing(
        "fit", "bad.npz", "x", "--labels", "labels.npy"
    )
    assert "bad.npz: not a readable NumPy" in run_failing("predict", "bad.npz", "m")
    assert not Path("x").exists()


def test_a_damaged_matrix_gives_a_one_line_error_and_status_1() -> None:
    np.savez("bad.npz", **csr_arrays(**DAMAGED_ARRAYS["large index"]))
    command = [*COMMAND, "fit", "bad.npz", "x"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: bad.npz: not a readable NumPy file"), ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_valid_sparse_matrices_are_read(form: str) -> None:
    np.savez("dense.npz", X=X, y=Y)
    run_successfully("fit", "-q", "dense.npz", "m")
    sp.save_npz("rows.npz", sp.csr_array(X).asformat(form))
    assert (
        run_successfully("predict", "rows.npz", "m").stdout
        == run_successfully("predict", "-q", "dense.npz", "m").stdout
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8', "),
        (
            "a.npy",
            b"\x93NUMPY\x01\x00\x40\x00{'descr': '<f8', 'fortran_order': False, 'shape': (9, 9)}  ",
        ),
        ("a.npz", b"PK\x05\x06" + bytes(17)),
        ("a.csv.gz", b"\x1f\x8bnothing"),
        ("a.gz", gzip.compress(b"1 1:1\n2 2:1\n", mtime=0)[:-9]),
        ("a.bz2", b"BZhnothing"),
        ("a.parquet", b"PAR1 nothing PAR1"),
    ],
)
def test_damaged_files_are_rejected(name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    assert f"{name}: not " in run_failing("fit", name, "m")


def test_damaged_parquet_metadata_is_rejected() -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = pa.table({"a": [1.0, 2.0], "y": [0, 1]})
    metadata = {"pandas": json.dumps({"index_columns": ["nowhere"], "columns": [{"name": "a"}]})}
    pq.write_table(rows.replace_schema_metadata(metadata), "a.parquet")
    assert "a.parquet: not a readable parquet file" in run_failing("fit", "a.parquet", "m")


def test_inconsistent_model_files_are_rejected() -> None:
    iris_table().assign(label=Y).to_csv("iris.csv", index=False)
    run_successfully("fit", "-q", "iris.csv", "m")
    with np.load("m") as file:
        arrays = dict(file)
    meta = json.loads(arrays["meta"].tobytes())

    def described(**changes: Any) -> dict[str, Any]:
        changed = {
            name: {**meta[name], **value} if isinstance(value, dict) else value
            for name, value in changes.items()
        }
        text = json.dumps({**meta, **changed}).encode()
        return {"meta": np.frombuffer(text, dtype=np.uint8)}

    spoilt: list[dict[str, Any]] = [
        {"coef_": np.where(arrays["coef_"] > 0, np.nan, arrays["coef_"])},
        {"intercept_": np.full(3, np.inf)},
        {"coef_": arrays["coef_"].astype(np.float32)},
        {"classes_": np.arange(6).reshape(3, 2)},
        {"classes_": np.array([0, 1, 1])},
        {"classes_": np.array([0.0, 1.0, np.nan])},
        {"classes_": np.array([2, 1, 0])},
        described(fitted={"objective_": "x"}),
        described(fitted={"dual_objective_": float("nan")}),
        described(notes={"columns": ["a", "b", "c"]}),
        described(notes={"columns": ["a", "b", "c", "a"]}),
        described(notes={"columns": ["a", "b", "c", 4]}),
        described(notes={"columns": "abcd"}),
        described(notes={"label": 3}),
        described(notes={"first_index": -(10**9)}),
        described(notes={"first_index": 2**64}),
        described(notes={"n_features": 3, "columns": None}),
        described(notes=[1]),
        described(parameters={"C": -1}),
        described(parameters=[]),
        described(parameters={"loss": "nothing"}),
        described(parameters={"loss": []}),
        described(format="dualgap model 0"),
    ]
    for changes in spoilt:
        np.savez("bad.npz", **{**arrays, **changes})
        assert "bad.npz: not a model file" in run_failing("predict", "iris.csv", "bad.npz"), changes
    np.savez_compressed("bad.npz", **arrays)
    assert "compression" in run_failing("predict", "iris.csv", "bad.npz")


def test_rows_that_give_infinite_scores_are_rejected() -> None:
    np.savez("iris.npz", X=X, y=Y)
    run_successfully("fit", "-q", "iris.npz", "m")
    np.save("large.npy", np.full((2, 4), 1.7e308))
    assert "large.npy: row 1: the scores overflow" in run_failing("predict", "large.npy", "m")
