"""npz files with wrong sizes, headers, compression or indices."""

from __future__ import annotations

import ast
import io
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dualgap._npz import UNREADABLE, dump_npz, read_npz, refused_as
from dualgap._sparse import checked_csr


def header(text: str, length: int | None = None) -> bytes:
    """Return the header of an npy file."""
    content = text.encode("latin-1")
    size = len(content) if length is None else length
    return b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + content


def archive(compression: int = zipfile.ZIP_STORED, **members: bytes) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as target:
        for name, content in members.items():
            target.writestr(f"{name}.npy", content)
    return file


def descr(kind: object = "<f8", shape: object = (3,)) -> str:
    return f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape!r}}}\n"


def test_arrays_are_read_back_unchanged() -> None:
    arrays: dict[str, Any] = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "c": np.array(["one", "three"]),
        "d": np.zeros((0, 5), dtype=np.int32),
        "e": np.array(True),
        "f": np.arange(3, dtype=">f4"),
        "g": np.zeros((2, 0, 3)),
        "h": np.arange(2**18 + 5.0),
    }
    file = io.BytesIO()
    dump_npz(file, {"n": np.int64(3)}, arrays)
    read = read_npz(file)
    assert read["meta"].tobytes() == b'{"n": 3}'
    for name, array in arrays.items():
        assert np.array_equal(read[name], array)
        assert read[name].dtype == array.dtype


@pytest.mark.parametrize(
    "content",
    [
        header(descr(shape=(3, 10**9))),
        header(descr(shape=(3,))) + bytes(16),
        header(descr(shape=(3,))) + bytes(32),
        header(descr(shape=(-3,))) + bytes(24),
        header(descr(shape=(True,))) + bytes(8),
        header(descr(shape=[3])) + bytes(24),
        header(descr(shape=(10**40, 0))),
        header(descr(kind="|O", shape=(1,))) + bytes(8),
        header(descr(kind="<U0", shape=(10**12,))),
        header(descr(kind=[("a", "<f8")], shape=(1,))) + bytes(8),
        header(descr(kind="(1000,)f8", shape=(0,))),
        header("{'descr': '<f8', 'shape': (1,)}") + bytes(8),
        header("{'descr': '<f8', "),
        header("(" * 9000),
        header("-" * 9000),
        header("L(1)"),
        header("__import__('os').system('false')"),
        header(descr(), length=60000),
        header(descr())[:20],
        b"\x93NUMPY\x09\x00" + header(descr())[8:],
        b"",
        b"pickle",
    ],
)
def test_a_wrong_header_is_rejected(content: bytes) -> None:
    file = archive(a=content)
    tracemalloc.start()
    with (
        pytest.raises(ValueError, match="the file: not a model"),
        refused_as("the file", "a model"),
    ):
        read_npz(file)
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()


def test_compressed_members_are_rejected_unless_expected() -> None:
    content = io.BytesIO()
    np.save(content, np.zeros(25_000_000, dtype=np.int8))
    file = archive(zipfile.ZIP_DEFLATED, a=content.getvalue())
    assert len(file.getvalue()) < 192_000
    tracemalloc.start()
    with pytest.raises(ValueError, match="compression"):
        read_npz(file)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()
    assert read_npz(file, compressed=True)["a"].shape == (25_000_000,)


def test_members_that_overlap_or_have_the_same_name_are_rejected() -> None:
    content = io.BytesIO()
    np.save(content, np.zeros(1000))
    file = archive(a=content.getvalue(), b=content.getvalue())
    raw = file.getvalue()
    # Make the directory's second entry point to the first member.
    with zipfile.ZipFile(file) as source:
        second = source.infolist()[1].header_offset
    start = raw.index(b"PK\x01\x02")
    entry = raw.index(b"PK\x01\x02", start + 1)
    at = entry + 42
    assert int.from_bytes(raw[at : at + 4], "little") == second
    spoilt = raw[:at] + bytes(4) + raw[at + 4 :]
    with pytest.raises(UNREADABLE):
        read_npz(io.BytesIO(spoilt))
    with pytest.raises(UNREADABLE):
        read_npz(io.BytesIO(raw.replace(b"b.npy", b"a.npy")))


def test_reading_does_not_call_the_parser_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    # Some versions of Python raise a SystemError if two threads parse at the same time.
    monkeypatch.setattr(ast, "parse", None)
    monkeypatch.setattr(ast, "literal_eval", None)
    file = io.BytesIO()
    dump_npz(file, {}, {"x": np.zeros((3, 4))})
    assert read_npz(file)["x"].shape == (3, 4)


def test_a_missing_file_keeps_its_own_error() -> None:
    with pytest.raises(FileNotFoundError), refused_as("nowhere", "a model"):
        read_npz("nowhere")


INDPTR, INDICES, DATA = np.array([0, 2, 3]), np.array([0, 2, 1]), np.array([1.0, 2.0, 3.0])


def test_a_valid_csr_matrix_is_read() -> None:
    dense = [[1, 0, 2], [0, 3, 0]]
    assert checked_csr(DATA, INDICES, INDPTR, (2, 3)).toarray().tolist() == dense
    assert checked_csr(DATA[:0], INDICES[:0], np.zeros(3, int), (2, 3)).nnz == 0


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({"indices": np.array([0, 2, 3])}, (2, 3)),
        ({"indices": np.array([0, -1, 1])}, (2, 3)),
        ({"indices": np.array([0, 2**40, 1])}, (2, 3)),
        ({"indices": np.array([0.0, 2.0, 1.0])}, (2, 3)),
        ({"indices": np.array([0, 2])}, (2, 3)),
        ({"indptr": np.array([0, 2, 9])}, (2, 3)),
        ({"indptr": np.array([0, 9, 3])}, (2, 3)),
        ({"indptr": np.array([0, 9, 3], dtype=np.uint32)}, (2, 3)),
        ({"indptr": np.array([1, 2, 3])}, (2, 3)),
        ({"indptr": np.array([0, -5, 3])}, (2, 3)),
        ({"indptr": np.array([0, 3])}, (2, 3)),
        ({"indptr": np.array([[0, 2, 3]])}, (2, 3)),
        # The last offset of this matrix is 0, so it claims to be empty. SciPy does not check this
        # claim.
        ({"indptr": np.array([0, 10**6, 0]), "indices": INDICES[:0], "data": DATA[:0]}, (2, 3)),
        ({"indptr": np.array([0, 10**6, 0])}, (2, 3)),
        ({"data": DATA[:2]}, (2, 3)),
        ({"data": np.array(["a", "b", "c"])}, (2, 3)),
        ({}, (2, 2)),
        ({}, (3, 3)),
        ({}, (-1, 3)),
    ],
)
def test_an_inconsistent_csr_matrix_is_rejected(changes: Any, shape: tuple[int, int]) -> None:
    arrays = {"data": DATA, "indices": INDICES, "indptr": INDPTR, **changes}
    with pytest.raises((TypeError, ValueError)):
        checked_csr(arrays["data"], arrays["indices"], arrays["indptr"], shape)


def test_sparse_matrices_are_stored_unchanged() -> None:
    matrix = sp.random_array((20, 30), density=0.2, format="csr", rng=0)
    again = checked_csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape)
    assert (again != matrix).nnz == 0
