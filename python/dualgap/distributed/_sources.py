"""Conversion of training data to partitions that an engine can read and reread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap.distributed._partition import Part, make_part, read_files


def is_dask(collection: Any) -> bool:
    """Return whether this is a Dask collection, without importing Dask."""
    return hasattr(collection, "__dask_graph__") and hasattr(collection, "to_delayed")


def as_paths(X: Any) -> list[str] | None:
    """Return `X` as a list of file names, or None if it is something else.

    Raises
    ------
    ValueError
        For a pattern of names.
    """
    if isinstance(X, str | os.PathLike):
        X = [X]
    if isinstance(X, list | tuple) and X and all(isinstance(x, str | os.PathLike) for x in X):
        paths = [os.fspath(path) for path in X]
        patterns = [path for path in paths if "*" in path and not os.path.exists(path)]
        if patterns:
            msg = (
                f"X: {patterns[0]!r} is a pattern; pass file names, such as sorted(glob.glob(...))"
            )
            raise ValueError(msg)
        return paths
    return None


def file_sources(
    paths: Sequence[str], y: Any, sample_weight: Any, n_partitions: int | None, n_features: Any
) -> list[Callable[[], Part]]:
    """Return a reader for each partition: one per file, or one per group of neighbouring files."""
    is_table = [path.endswith((".parquet", ".pq")) for path in paths]
    if any(is_table) != all(is_table):
        msg = "X: files must be all Parquet (.parquet, .pq) or all LIBSVM, got both"
        raise ValueError(msg)
    if isinstance(y, str) and not is_table[0]:
        msg = (
            f"X: {paths[0]} is not the name of a Parquet file (.parquet, .pq); y={y!r} is the name "
            "of a column, which only Parquet files have; write tables as Parquet and list the files"
        )
        raise ValueError(msg)
    if is_table[0] != isinstance(y, str):
        msg = (
            "y: must be the name of the label column for Parquet files and None for LIBSVM "
            f"files, got {y!r}"
        )
        raise ValueError(msg)
    if sample_weight is not None and not (is_table[0] and isinstance(sample_weight, str)):
        msg = (
            "sample_weight: must be the name of a column of Parquet files, or None, "
            f"got {sample_weight!r}"
        )
        raise ValueError(msg)
    groups = np.array_split(
        np.array(paths, dtype=object), min(n_partitions or len(paths), len(paths))
    )
    return [partial(read_files, list(group), y, sample_weight, n_features) for group in groups]


def split(X: Any, y: NDArray[Any], sample_weight: Any, n_partitions: int) -> list[Part]:
    """Split rows into partitions, each with rows of all classes if possible."""
    dealt = np.argsort(y, kind="stable")
    parts = []
    for number in range(n_partitions):
        rows = np.sort(dealt[number::n_partitions])
        weights = None if sample_weight is None else sample_weight[rows]
        parts.append(Part.of(X[rows], y[rows], weights))
    return parts


def same(part: Part) -> Part:
    """Return the partition itself: the reader of a partition that is already in memory."""
    return part


def dask_blocks(X: Any, y: Any, sample_weight: Any) -> list[tuple[Any, Any, Any]]:
    """Return delayed (rows, labels, weights) for each partition of Dask collections."""
    for name, column in (("y", y), ("sample_weight", sample_weight)):
        if isinstance(column, str) and column not in getattr(X, "columns", ()):
            msg = f"{name}: X has no column {column!r}"
            raise ValueError(msg)
    if isinstance(y, str):
        column = y
        y, X = X[column], X.drop(columns=[column])
    if isinstance(sample_weight, str):
        column = sample_weight
        sample_weight, X = X[column], X.drop(columns=[column])
    for name, other in (("y", y), ("sample_weight", sample_weight)):
        if not (is_dask(other) or (name == "sample_weight" and other is None)):
            msg = (
                f"{name}: must be a Dask collection like X, or the name of a column of a Dask data "
                f"frame, got {type(other).__name__}"
            )
            raise TypeError(msg)
    if hasattr(X, "rechunk") and X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    rows = _delayed(X)
    columns = [
        [None] * len(rows) if other is None else _delayed(_aligned(other, X))
        for other in (y, sample_weight)
    ]
    for name, other in zip(("y", "sample_weight"), columns, strict=True):
        if len(other) != len(rows):
            msg = f"{name}: must have {len(rows)} partitions, like X, but has {len(other)}"
            raise ValueError(msg)
    return list(zip(rows, *columns, strict=True))


def _aligned(other: Any, X: Any) -> Any:
    """Rechunk labels or weights like the rows, if both are arrays with known chunk sizes."""
    if hasattr(other, "rechunk") and hasattr(X, "chunks") and other.chunks[0] != X.chunks[0]:
        sizes = (*X.chunks[0], *other.chunks[0])
        if not any(np.isnan(size) for size in sizes):
            return other.rechunk({0: X.chunks[0]})
    return other


def _delayed(collection: Any) -> list[Any]:
    return list(np.ravel(collection.to_delayed()))


def part_of(X: Any, y: Any, weights: Any, number: int) -> Part:
    """Validate a block of Dask collections."""
    return make_part(X, y, weights, f"partition {number}")
