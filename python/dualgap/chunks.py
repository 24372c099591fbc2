"""Rows in several pieces that need not be in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dualgap._validation import check_matrix
from dualgap._validation.copies import refuse_refilled

__all__ = ["Chunks"]


class Chunks:
    """Rows in several pieces, one after the other, as the ``X`` of a polynomial estimator's fit.

    Every pass of a fit reads the pieces where they lie. Arrays are not copied; those in
    memory-mapped files (``np.load(file, mmap_mode="r")``) stay there, and the system's page cache
    decides how much of them is in memory.

    Parameters
    ----------
    chunks : iterable of array-like or CSR matrix
        At least one, with the same columns; float32 and float64 are read in place. It is gone
        through once.
    spill : path, optional
        A folder on a disk. Each chunk is moved to a file without a name there as it comes, and
        mapped, so that a generator may yield more than memory holds; the files vanish with this
        object.

    Attributes
    ----------
    chunks : list of ndarray and CSR matrices
    shape : tuple
        Numbers of rows and columns.
    """

    def __init__(
        self, chunks: Iterable[Any], *, spill: str | os.PathLike[str] | None = None
    ) -> None:
        self.chunks: list[Any] = []
        # A file keeps a piece whatever becomes of its array.
        for chunk in refuse_refilled("chunks", chunks) if spill is None else chunks:
            rows = check_matrix(chunk)
            if self.chunks and rows.shape[1] != self.chunks[0].shape[1]:
                first = self.chunks[0].shape[1]
                msg = f"chunks: one has {rows.shape[1]} columns, the first {first}"
                raise ValueError(msg)
            self.chunks.append(rows if spill is None else _spilled(rows, spill))
        if not self.chunks:
            msg = "chunks: at least one is needed"
            raise ValueError(msg)
        self.shape = (sum(rows.shape[0] for rows in self.chunks), self.chunks[0].shape[1])

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        # Called by whoever takes any rows, and would else say that this is no number.
        msg = (
            "X: Chunks are read by the fit and the predictions of polynomial networks and "
            "factorization machines alone; give other estimators an array or a CSR matrix, such as "
            "numpy.concatenate(X.chunks)"
        )
        raise TypeError(msg)

    @classmethod
    def from_pairs(
        cls,
        pairs: Iterable[tuple[Any, ArrayLike]],
        *,
        spill: str | os.PathLike[str] | None = None,
    ) -> tuple[Self, NDArray[Any]]:
        """Take (X, y) pieces; return the rows and all of y.

        Raises
        ------
        ValueError
            If a piece does not have a target for each row; the message has its number, from 0.
        """
        targets: list[NDArray[Any]] = []

        def rows() -> Iterator[Any]:
            for number, (X, y) in enumerate(pairs):
                n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
                # The iterator may fill the same array again.
                targets.append(np.array(y))
                if targets[-1].ndim == 0 or len(targets[-1]) != n_rows:
                    msg = (
                        f"pairs: piece {number} has {n_rows} rows and targets of shape "
                        f"{targets[-1].shape}; give one target for each row"
                    )
                    raise ValueError(msg)
                yield X

        pieces = rows() if isinstance(pairs, Iterator) else list(rows())
        chunks = cls(pieces, spill=spill)
        return chunks, np.concatenate(targets)


def _spilled(rows: Any, folder: str | os.PathLike[str]) -> Any:
    if not sp.issparse(rows):
        return _mapped(rows, folder)
    matrix: Any = rows
    matrix.sum_duplicates()
    arrays = (
        _mapped(matrix.data, folder),
        _mapped(np.asarray(matrix.indices, dtype=np.int32), folder),
        _mapped(np.asarray(matrix.indptr, dtype=np.int64), folder),
    )
    spilled = sp.csr_array(matrix.shape, dtype=matrix.dtype)
    spilled.data, spilled.indices, spilled.indptr = arrays
    spilled.has_canonical_format = True
    return spilled


def _mapped(array: NDArray[Any], folder: str | os.PathLike[str]) -> NDArray[Any]:
    """Move an array to a file without a name, and map it.

    The file is written before it is mapped: a full disk is an error of a write, but ends the
    process where a page of a map cannot be written.
    """
    if array.size == 0:
        return array
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(np.ascontiguousarray(array).data.cast("B"))
            file.flush()
            # Some file systems report a full disk only here.
            os.fsync(file.fileno())
            return np.memmap(file, array.dtype, "r", shape=array.shape)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(folder)) from error
