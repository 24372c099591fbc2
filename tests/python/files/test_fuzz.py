"""Fuzz tests of files: each file is read or gives one error, quickly and in little memory.

By default, the tests draw few examples and read the corpus in `tests/fixtures/corpus`. For each
reader, the corpus contains the first file that led to each result or message. DUALGAP_FUZZ=1000
draws a thousand times the number of examples, DUALGAP_FUZZ_SECONDS=600 draws for ten minutes, and
`--hypothesis-profile=default` draws other examples in each run. DUALGAP_FUZZ_KEEP=1 adds files with
new results to the corpus.
"""

from __future__ import annotations

import io
import json
import os
import re
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualgap import MulticlassSVC
from dualgap.cli._linear_file import Training, read_linear, write_linear
from dualgap.cli._tables import Source, Table, read_table
from dualgap.losses import Loss
from dualgap.recommend import OrdinalRecommender

TRIES = int(os.environ.get("DUALGAP_FUZZ", "1"))
SECONDS = float(os.environ.get("DUALGAP_FUZZ_SECONDS", "0"))
KEEP = bool(os.environ.get("DUALGAP_FUZZ_KEEP"))
CORPUS = Path(__file__).parents[2] / "fixtures/corpus"
fuzz = settings(
    max_examples=60 * TRIES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

ROWS = np.array([[1.0, 0.0, -2.0], [0.0, 3.0, 0.5], [4.0, 0.0, 0.0], [0.0, 0.0, 7.5]])
LABELS = np.array([0, 1, 1, 0])


def _saved(save: Callable[..., None], *args: Any, **named: Any) -> bytes:
    file = io.BytesIO()
    save(file, *args, **named)
    return file.getvalue()


def _table(form: str) -> bytes:
    """Write a valid file of each format. The fuzz tests damage it."""
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"]).assign(label=LABELS)
    if form == "libsvm":
        return b"0 1:1 3:-2\n1 2:3 3:0.5 # comment\n1 1:4\n0 3:7.5\n"
    if form == "npy":
        return _saved(np.save, ROWS)
    if form == "npz":
        return _saved(np.savez, X=ROWS, y=LABELS)
    return frame.to_csv(index=False).encode()


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """Draw a file with some bytes changed, removed or inserted, or an empty file."""
    content = bytearray(good)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content)))
        kind = draw(st.sampled_from(["change", "cut", "insert", "end", "digits"]))
        if kind == "change" and at < len(content):
            content[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del content[at : at + draw(st.integers(1, 40))]
        elif kind == "insert":
            content[at:at] = draw(st.binary(max_size=20))
        elif kind == "digits":
            content[at:at] = draw(
                st.sampled_from([b"9999999", b"1e999", b"nan", b"-", b",", b"\n"])
            )
        else:
            del content[at:]
    return bytes(content)


class FuzzedReader:
    """A reader of files that must return a result or raise one kind of error."""

    def __init__(self, name: str, use: Callable[[Path], None], message: str = "") -> None:
        self.name, self.use, self.message = name, use, message
        self.seen = 0

    def try_file(self, path: Path) -> None:
        """Read a file; the only allowed error names the file."""
        self.seen += 1
        answer = "read"
        try:
            self.use(path)
        except ValueError as error:
            answer = str(error)
            assert answer.startswith(f"{path}: {self.message}"), answer
        if KEEP:
            # Messages that differ only in numbers or quoted text count as equal.
            kind = re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "", answer.removeprefix(str(path)))
            kept = CORPUS / self.name / f"{zlib.crc32(kind[:80].encode()):08x}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            if not kept.exists() and len(list(kept.parent.iterdir())) < 40:
                kept.write_bytes(path.read_bytes())

    def explore(self, read_example: Callable[[], None]) -> None:
        """Run a property test once, or repeatedly for the given time."""
        start = time.monotonic()
        read_example()
        while time.monotonic() - start < SECONDS:
            read_example()
        if SECONDS:
            print(f"{self.name}: {self.seen} files")


def check(table: Table) -> None:
    """Check that a successfully read file is usable."""
    assert table.y is None or len(table.y) == table.X.shape[0]
    X = table.X
    if sp.issparse(X):
        X.check_format(full_check=True)
        assert np.isfinite(X.data).all()
        if X.shape[0] * X.shape[1] < 10**6:
            X.toarray()
    else:
        assert np.isfinite(X).all()


def _read(form: str | None) -> Callable[[Path], None]:
    return lambda path: check(read_table(Source(path, form), need_labels=False))


# Parquet is excluded, because its parser belongs to another project and expects trusted files.
@pytest.mark.timeout(max(2 * SECONDS, 120))
@pytest.mark.parametrize("form", ["libsvm", "npy", "npz", "csv"])
def test_damaged_tables_are_read_or_rejected(form: str, tmp_path: Path) -> None:
    path, reader = tmp_path / "rows", READERS[form]

    @fuzz
    @given(content=damaged(_table(form)) | st.binary(max_size=60))
    def read_example(content: bytes) -> None:
        path.write_bytes(content)
        reader.try_file(path)

    reader.explore(read_example)


def _member(draw: st.DrawFn, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Draw the array with some entries, its type or its shape changed."""
    array = array.copy()
    wild = st.sampled_from([0, 1, -1, 7, 2**31 - 1, -(2**31), 2**40])
    for _ in range(draw(st.integers(0, 3))):
        if array.size and array.dtype.kind == "i":
            at = draw(st.integers(0, array.size - 1))
            array.flat[at] = np.array(draw(wild)).astype(array.dtype)
    kind = draw(st.sampled_from(["same"] * 5 + ["int64", "uint32", "float64", "U3"]))
    shape = draw(st.sampled_from(["same"] * 5 + ["cut", "turn", "empty"]))
    array = array if kind == "same" else array.astype(kind)
    if shape == "cut":
        array = array.reshape(-1)[: draw(st.integers(0, array.size))]
    elif shape == "turn":
        array = array.reshape(1, -1)
    elif shape == "empty":
        array = array.reshape(-1)[:0]
    return array


@pytest.mark.timeout(max(2 * SECONDS, 120))
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_damaged_sparse_matrices_are_read_or_rejected(form: str, tmp_path: Path) -> None:
    path, reader = tmp_path / "rows.npz", READERS["sparse"]
    matrix = sp.csr_array(ROWS).asformat(form)
    parts = {"indices": matrix.indices, "indptr": matrix.indptr, "data": matrix.data}
    parts["shape"] = np.array(matrix.shape)

    @fuzz
    @given(data=st.data())
    def read_example(data: st.DataObject) -> None:
        drawn = {
            name: data.draw(st.composite(lambda draw, a=array: _member(draw, a))())
            for name, array in parts.items()
        }
        np.savez(path, format=np.array(form.encode()), **drawn)
        reader.try_file(path)

    reader.explore(read_example)


def _linear(path: Path) -> None:
    loss = Loss("crammer-singer")
    model = MulticlassSVC(loss, random_state=0, n_jobs=1).fit(ROWS, LABELS)
    write_linear(path, model, Training(3, columns=["a", "b", "c"], label="label"))


def _recommender(path: Path) -> None:
    users, items = np.repeat(np.arange(6), 4), np.tile(np.arange(4), 6)
    ratings = (users, items, 1.0 + (users + items) % 3)
    OrdinalRecommender(random_state=0, n_jobs=1).fit(ratings).save(path)


def _predict(path: Path) -> None:
    model, _ = read_linear(path)
    assert np.isfinite(model.decision_function(np.zeros((2, model.n_features_in_)))).all()


def _recommend(path: Path) -> None:
    model = OrdinalRecommender.load(path)
    model.recommend(list(model.user_ids_[:1]), 1)


WRITERS = {"linear": _linear, "recommender": _recommender}
READERS = {
    **{form: FuzzedReader(form, _read(form)) for form in ("libsvm", "npy", "npz", "csv")},
    "sparse": FuzzedReader("sparse", _read("npz")),
    "linear": FuzzedReader("linear", _predict, "not "),
    "recommender": FuzzedReader("recommender", _recommend, "not "),
}


@pytest.mark.timeout(max(2 * SECONDS, 120))
@pytest.mark.parametrize("name", WRITERS)
def test_damaged_model_files_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    path, reader = tmp_path / "model", READERS[name]

    @fuzz
    @given(content=damaged(good))
    def read_example(content: bytes) -> None:
        path.write_bytes(content)
        reader.try_file(path)

    reader.explore(read_example)


@pytest.mark.timeout(max(2 * SECONDS, 120))
@pytest.mark.parametrize("name", WRITERS)
def test_random_model_descriptions_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / "good")
    with np.load(tmp_path / "good") as file:
        arrays = dict(file)
    meta = json.loads(arrays["meta"].tobytes())
    path, reader = tmp_path / "model", READERS[name]
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=5,
    )

    @fuzz
    @given(key=st.sampled_from(sorted(meta)), value=values)
    def read_example(key: str, value: Any) -> None:
        text = json.dumps({**meta, key: value}).encode()
        with open(path, "wb") as file:
            np.savez(file, **{**arrays, "meta": np.frombuffer(text, dtype=np.uint8)})
        reader.try_file(path)

    reader.explore(read_example)


@pytest.mark.parametrize("name", READERS)
def test_files_of_the_corpus_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    kept = sorted((CORPUS / name).iterdir())
    assert len(kept) >= 2
    for file in kept:
        path = tmp_path / "file"
        path.write_bytes(file.read_bytes())
        READERS[name].try_file(path)
