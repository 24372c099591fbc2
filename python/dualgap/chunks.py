"""Training rows in chunks that need not fit in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dualgap._validation import check_matrix
from dualgap._validation.copies import refuse_refilled

__all__ = ["Chunks"]


class Chunks:
    """Training rows split into chunks. The polynomial estimators accept this object as ``X``.

    Every pass of a fit reads the chunks in place; arrays are not copied. Memory-mapped files
    (``np.load(file, mmap_mode="r")``) stay on disk, and the operating system's page cache decides
    how much of the files is in memory.

    Parameters
    ----------
    chunks : iterable of array-like or CSR matrix
        At least one chunk, all with the same number of columns. Chunks of float32 and float64 are
        read in place. The iterable is consumed once.
    spill : path, optional
        A folder on a disk. Each chunk is written to an anonymous temporary file in this folder and
        memory-mapped, so a generator may yield more data than fit in memory. The files are deleted
        with this object.

    Attributes
    ----------
    chunks : list of ndarray and CSR matrices
    shape : tuple
        Total number of rows, and number of columns.

    Examples
    --------
    >>> parts = [np.ones((100, 3)), np.zeros((50, 3))]
    >>> Chunks(parts).shape
    (150, 3)
    """

    def __init__(
        self, chunks: Iterable[Any], *, spill: str | os.PathLike[str] | None = None
    ) -> None:
        self.chunks: list[Any] = []
        # Spilled chunks are copies, so the caller may reuse the array.
        for chunk in refuse_refilled("chunks", chunks) if spill is None else chunks:
            rows = check_matrix(chunk)
            if self.chunks and rows.shape[1] != self.chunks[0].shape[1]:
                first = self.chunks[0].shape[1]
                msg = (
                    f"chunks: all must have the same number of columns, but chunk "
                    f"{len(self.chunks)} has {rows.shape[1]} and chunk 0 has {first}"
                )
                raise ValueError(msg)
            self.chunks.append(rows if spill is None else _spilled(rows, spill))
        if not self.chunks:
            msg = "chunks: must contain at least one chunk"
            raise ValueError(msg)
        self.shape = (sum(rows.shape[0] for rows in self.chunks), self.chunks[0].shape[1])

    def __repr__(self) -> str:
        n_rows, n_columns = self.shape
        return f"<Chunks: {n_rows} rows and {n_columns} columns in {len(self.chunks)} chunks>"

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        # Other estimators call this method to convert X. Without it, NumPy's error would be
        # misleading.
        msg = (
            "X: Chunks are supported only by polynomial networks and factorization machines; pass "
            "an array or a CSR matrix instead, such as numpy.concatenate(X.chunks)"
        )
        raise TypeError(msg)

    @classmethod
    def from_pairs(
        cls,
        pairs: Iterable[tuple[Any, ArrayLike]],
        *,
        spill: str | os.PathLike[str] | None = None,
    ) -> tuple[Self, NDArray[Any]]:
        """Build chunks from (X, y) pairs; return the chunks and the concatenated y.

        Raises
        ------
        ValueError
            If a pair does not have one target per row. The message gives its index.
        """
        targets: list[NDArray[Any]] = []

        def rows() -> Iterator[Any]:
            for number, (X, y) in enumerate(pairs):
                n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
                # Copied, because the iterator may reuse the array.
                targets.append(np.array(y))
                if targets[-1].ndim == 0 or len(targets[-1]) != n_rows:
                    msg = (
                        f"pairs: pair {number} has {n_rows} rows but targets of shape "
                        f"{targets[-1].shape}; pass one target per row"
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
    """Write an array to an anonymous temporary file and memory-map it."""
    file = SpillFile(folder)
    file.write(array)
    return file.mapped(array.dtype, array.shape)


class SpillFile:
    """An anonymous temporary file of numbers, which is written first and then memory-mapped.

    It is written before it is mapped, because a full disk raises an error in a write but kills the
    process when a mapped page cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = folder
        self._size = 0
        with self._errors():
            self._file = TemporaryFile(dir=folder)  # noqa: SIM115  # `mapped` closes it

    def write(self, array: NDArray[Any]) -> None:
        """Append the entries of an array."""
        if array.size == 0:
            return
        with self._errors():
            self._file.write(np.ascontiguousarray(array).data.cast("B"))
        self._size += array.nbytes

    def mapped(self, dtype: np.dtype[Any], shape: tuple[int, ...] = (-1,)) -> NDArray[Any]:
        """Return a read-only array of all entries, mapped from the file, and close the file."""
        with self._errors(), self._file as file:
            if self._size == 0:
                return np.zeros(tuple(max(side, 0) for side in shape), dtype)
            file.flush()
            # Some file systems report a full disk only here.
            os.fsync(file.fileno())
            n_entries = self._size // dtype.itemsize
            return np.memmap(file, dtype, "r", shape=(n_entries,)).reshape(shape)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Close the file after an error, and raise the error with the name of the folder."""
        try:
            yield
        except OSError as error:
            self._close()
            raise OSError(error.errno, error.strerror, os.fspath(self._folder)) from error

    def _close(self) -> None:
        # Closing writes the rest of the buffer, which fails again on a full disk.
        if hasattr(self, "_file"):
            with suppress(OSError):
                self._file.close()

    def __del__(self) -> None:
        self._close()
