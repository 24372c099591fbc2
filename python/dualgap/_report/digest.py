"""Digests of data sets: shape, type and SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._validation.columns import column_names
from dualgap.chunks import Chunks

__all__ = ["Digest", "digest"]

_LINES = "a line of JSON in UTF-8 for each item; arrays as type, shape and hexadecimal values"


class Digest(NamedTuple):
    """Description of a data set.

    Parameters
    ----------
    shape, dtype : str
        Size and type of the values.
    sha256 : str
        Hexadecimal digest.
    rule : str
        Description of the bytes that are hashed.
    """

    shape: str
    dtype: str
    sha256: str
    rule: str


def digest(name: str, data: Any) -> Digest:
    """Return shape, type and digest of rows, labels, a table or a sequence of examples.

    Parameters
    ----------
    name : str
        Name of the argument, for errors.
    data : array-like, sparse matrix, table, Chunks or sequence
        The data set.

    Raises
    ------
    TypeError
        For objects without a defined byte representation.
    """
    state = hashlib.sha256()
    shape, dtype, rule = _described(data)
    try:
        for piece in _pieces(data):
            state.update(piece)
    except TypeError as error:
        msg = f"{name}: cannot compute a digest ({error}); pass arrays, tables or sequences"
        raise TypeError(msg) from error
    return Digest(shape, dtype, state.hexdigest(), rule)


def _described(data: Any) -> tuple[str, str, str]:
    """Return the shape, the type, and the rule for converting values to bytes."""
    if isinstance(data, Chunks):
        types = ", ".join(dict.fromkeys(str(rows.dtype) for rows in data.chunks))
        return _sizes(data.shape), types, "the chunks in order, each as a matrix"
    names = column_names(data)
    if names is not None:
        types = data.dtypes if hasattr(data, "dtypes") else data.schema.types
        rule = "for each column its name in UTF-8, then its values as an array"
        return _sizes((len(data), len(names))), ", ".join(dict.fromkeys(map(str, types))), rule
    if sp.issparse(data):
        rule = "CSR: row pointers and column indices as int64, then the values, little-endian"
        return _sizes(data.shape), f"{data.dtype}, {data.nnz} stored", rule
    if hasattr(data, "__array__"):
        array = np.asarray(data)
        text = array.dtype.kind in "OUS"
        rule = _LINES if text else "values in C order, little-endian"
        return _sizes(array.shape), str(array.dtype), rule
    return f"{len(data)} items", type(data).__name__, _LINES


def _sizes(shape: tuple[int, ...]) -> str:
    return " \N{MULTIPLICATION SIGN} ".join(map(str, shape))


def _pieces(data: Any) -> Iterator[bytes]:
    """Yield the bytes of a data set."""
    if isinstance(data, Chunks):
        for rows in data.chunks:
            yield from _pieces(rows)
        return
    names = column_names(data)
    if names is not None:
        for position, name in enumerate(names):
            yield str(name).encode("utf-8", "backslashreplace")
            # pandas columns are read by position, because names may repeat.
            column = data.iloc[:, position] if hasattr(data, "iloc") else data[name]
            yield from _pieces(np.asarray(column))
    elif sp.issparse(data):
        matrix = sp.csr_array(data, copy=True)
        matrix.sum_duplicates()
        yield _bytes(matrix.indptr.astype(np.int64))
        yield _bytes(matrix.indices.astype(np.int64))
        yield _bytes(matrix.data)
    elif hasattr(data, "__array__"):
        array = np.asarray(data)
        if array.dtype.kind in "OUS":
            yield from map(_line, np.atleast_1d(array).tolist())
        else:
            yield _bytes(array)
    else:
        yield from map(_line, data)


def _bytes(array: NDArray[Any]) -> bytes:
    """Return the values of an array in C order, little-endian."""
    if array.dtype.kind in "mM":
        array = array.astype(np.int64)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()


def _line(value: Any) -> bytes:
    """Return an element of a sequence as a line of JSON."""
    written = json.dumps(value, ensure_ascii=False, default=_plain, sort_keys=True)
    return f"{written}\n".encode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    """Convert an object that JSON does not support to supported types."""
    if sp.issparse(value):
        matrix = sp.csr_array(value, copy=True)
        matrix.sum_duplicates()
        parts = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)
        return [list(matrix.shape), *map(_plain, parts)]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if type(value).__name__ == "NAType":
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind in "OUS":
            return array.tolist()
        return [array.dtype.str.lstrip("<>|="), list(array.shape), _bytes(array).hex()]
    msg = f"an object of type {type(value).__name__} has no defined order of bytes"
    raise TypeError(msg)
