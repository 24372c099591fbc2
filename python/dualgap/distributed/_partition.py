"""Reading, validation and summaries of the rows of a partition."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._libsvm import read_libsvm
from dualgap._validation import FloatArray, check_matrix, real_array
from dualgap._validation.labels import read_labels, sorted_classes
from dualgap.distributed._storage import open_binary, parquet_source


@dataclass(frozen=True)
class Part:
    """Rows of one partition: dense, or sparse without columns that are empty in this partition."""

    X: Any
    y: NDArray[Any]
    weights: FloatArray | None
    names: tuple[str, ...] | None
    n_features: int
    columns: NDArray[Any] | None

    @classmethod
    def of(
        cls,
        X: Any,
        y: NDArray[Any],
        weights: FloatArray | None,
        names: tuple[str, ...] | None = None,
    ) -> Part:
        """Drop the empty columns of sparse rows."""
        width, columns = X.shape[1], None
        if sp.issparse(X):
            if not X.has_canonical_format:
                X = X.copy()
                X.sum_duplicates()
            columns, indices = np.unique(X.indices, return_inverse=True)
            columns = columns if len(columns) else np.zeros(1, X.indices.dtype)
            indices = indices.astype(np.int32)
            X = sp.csr_matrix((X.data, indices, X.indptr), shape=(X.shape[0], len(columns)))
        return cls(X, y, weights, names, width, columns)

    def __sizeof__(self) -> int:
        # Dask places and spills data by this size.
        matrix = self.X
        parts = (matrix.data, matrix.indices, matrix.indptr) if sp.issparse(matrix) else (matrix,)
        return int(sum(part.nbytes for part in parts) + self.y.nbytes)


@dataclass(frozen=True)
class Summary:
    """Summary of a partition, from which the coordinator plans the fit."""

    n_rows: int
    n_features: int
    names: tuple[str, ...] | None
    labels: NDArray[Any]
    label_weights: FloatArray
    columns: NDArray[Any] | None
    squares: FloatArray
    """Sum of squares of each column present in this partition."""
    largest_square: float
    """Largest squared norm of a row."""
    fingerprint: str | None
    """Hash of rows, labels and weights, if requested."""


_COLUMNS = 16
"""Number of columns of a Parquet file that are read at a time."""


def make_part(X: Any, y: Any, weights: Any, where: str) -> Part:
    """Validate the rows of one partition; `where` identifies it in error messages."""
    names, table = tuple(map(str, X.columns)) if hasattr(X, "columns") else None, X
    try:
        X = check_matrix(X, single=True, ensure_min_samples=0)
        y = read_labels("y", y)
        if y.shape != (X.shape[0],):
            msg = f"y: must have one label per row of X, got shape {y.shape} for {X.shape[0]} rows"
            raise ValueError(msg)
        if weights is not None:
            weights = real_array("sample_weight", weights)
            if weights.shape != y.shape or not (np.isfinite(weights) & (weights >= 0)).all():
                msg = "sample_weight: must have one finite non-negative number per row of X"
                raise ValueError(msg)
    except ValueError as error:
        missing = names is not None and str(error).startswith("Input X contains")
        column = f"column {_missing(table)!r} in " if missing else "in "
        msg = f"{error} ({column}{where})"
        raise ValueError(msg) from error
    return Part.of(X, y, weights, names)


def _missing(table: Any) -> Any:
    """Return the first column with NaN or infinity."""
    return next(name for name in table if not np.isfinite(table[name].astype(np.float64)).all())


def read_files(paths: Sequence[str], target: Any, weight: Any, n_features: int | None) -> Part:
    """Read a partition from Parquet or LIBSVM files (1-based indices)."""
    where = ", ".join(paths)
    if all(path.endswith((".parquet", ".pq")) for path in paths):
        return make_part(*_read_tables(paths, target, weight, where))
    read = [_read_libsvm(path, n_features) for path in paths]
    width = max(X.shape[1] for X, _ in read)
    X = sp.vstack([_widened(X, width) for X, _ in read], format="csr")
    return make_part(X, np.concatenate([y for _, y in read]), None, where)


def _read_libsvm(path: str, n_features: int | None) -> tuple[Any, Any]:
    with open_binary(path) as file:
        X, y, _ = read_libsvm(file, 1)
    if n_features is not None and X.shape[1] > n_features:
        msg = f"{path}: the file has {X.shape[1]} features, more than n_features={n_features}"
        raise ValueError(msg)
    return _widened(X, n_features or X.shape[1]), y


def _read_tables(paths: Sequence[str], target: Any, weight: Any, where: str) -> Any:
    """Read Parquet files, a few columns at a time to save memory.

    Returns the arguments of `make_part`.
    """
    import pandas as pd
    from pyarrow import types
    from pyarrow.parquet import ParquetFile

    files = [ParquetFile(parquet_source(path)) for path in paths]
    schema = files[0].schema_arrow
    about: dict[str, Any] = schema.pandas_metadata or {}
    left_out = {target, weight, *map(str, about.get("index_columns", []))}
    for name in [target] + ([] if weight is None else [weight]):
        if name not in schema.names:
            msg = f"{'y' if name == target else 'sample_weight'}: no column {name!r} in {where}"
            raise ValueError(msg)
    if any(set(file.schema_arrow.names) != set(schema.names) for file in files):
        msg = f"X: all files must have the same columns, but {where} differ"
        raise ValueError(msg)
    names = [name for name in schema.names if name not in left_out]
    kinds = [schema.field(name).type for name in names]
    for name, kind in zip(names, kinds, strict=True):
        if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)):
            msg = f"X: column {name!r} in {where} must be numeric, got {kind}"
            raise ValueError(msg)
    single = all(types.is_float32(kind) for kind in kinds)
    n_rows = sum(file.metadata.num_rows for file in files)
    X = np.empty((n_rows, len(names)), np.float32 if single else np.float64)
    first = 0
    for file in files:
        for group in range(file.num_row_groups):
            last = first + file.metadata.row_group(group).num_rows
            for at in range(0, len(names), _COLUMNS):
                some = names[at : at + _COLUMNS]
                table = file.read_row_group(group, some, use_threads=False)
                for offset, name in enumerate(some):
                    X[first:last, at + offset] = table[name].to_numpy()
            first = last

    def column(name: str) -> Any:
        return pd.concat([file.read([name]).column(0).to_pandas() for file in files]).to_numpy()

    table = pd.DataFrame(X, columns=names, copy=False)
    return table, column(target), None if weight is None else column(weight), where


def _widened(X: Any, width: int) -> Any:
    if X.shape[1] == width or not sp.issparse(X):
        return X
    return sp.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], width))


def summarize(part: Part, fingerprint: bool) -> Summary:
    """Return the summary of a partition, with its fingerprint if requested."""
    labels, codes = sorted_classes("y", part.y)
    counts = np.bincount(codes, weights=part.weights, minlength=len(labels)).astype(np.float64)
    found = _fingerprint(part, labels, codes) if fingerprint else None
    shape = (part.X.shape[0], part.n_features)
    squares = _squares(part.X)
    return Summary(*shape, part.names, labels, counts, part.columns, *squares, found)


def _squares(rows: Any) -> tuple[FloatArray, float]:
    """Return the sum of squares of each column, and the largest of a row (at least 0)."""
    if sp.issparse(rows):
        data = rows.data.astype(np.float64) ** 2
        squares = sp.csr_matrix((data, rows.indices, rows.indptr), shape=rows.shape)
        columns, sums = (np.asarray(squares.sum(axis=axis)).ravel() for axis in (0, 1))
    else:
        columns = np.asarray(np.einsum("ij,ij->j", rows, rows, dtype=np.float64))
        sums = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return columns, float(np.max(sums, initial=0.0))


def _fingerprint(part: Part, labels: NDArray[Any], codes: NDArray[Any]) -> str:
    """Return a 128-bit hash of all data of a partition on which the objective depends."""
    matrix = part.X
    rows = (matrix.indptr, matrix.indices, matrix.data) if sp.issparse(matrix) else (matrix,)
    # SciPy's choice of the index width must not change the hash.
    widths = [np.int64 if array.dtype.kind == "i" else array.dtype for array in rows]
    arrays = [array.astype(width, copy=False) for array, width in zip(rows, widths, strict=True)]
    for other in (codes, part.columns, part.weights):
        arrays.append(np.zeros(0, np.int8) if other is None else np.asarray(other))
    state = hashlib.blake2b(digest_size=16)
    about = [part.n_features, matrix.shape, labels.tolist()]
    state.update(repr([*about, *((a.dtype.str, a.shape) for a in arrays)]).encode())
    for array in arrays:
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()
