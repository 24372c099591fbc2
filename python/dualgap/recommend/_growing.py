"""Arrays, sparse matrices and ids to which a new user is appended without copying other users.

Models share memory: a model with new users extends the arrays of the earlier model. The earlier
model reads only the rows that it had before, which do not change. Other threads may therefore use
it at the same time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from functools import cached_property
from threading import Lock
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._records import ListsRecord
from dualgap._validation import FloatArray
from dualgap.recommend._tables import join_ids, unrounded

# Held while rows or ids are added.
_LOCK = Lock()


class _Buffer(np.ndarray[Any, Any]):
    """An array with spare rows at the end."""

    used = 0


def append_rows(array: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Return `array` followed by the rows `new`; the amortised time depends only on `new`.

    The result is a view of a buffer with spare rows. If `array` already is such a view and ends at
    the last used row, the rows go into the same buffer. Otherwise, for example because another
    model has extended `array`, a new buffer is allocated.
    """
    n, end, buffer = len(array), len(array) + len(new), array.base
    while type(buffer) is np.ndarray:
        buffer = buffer.base
    with _LOCK:
        if not isinstance(buffer, _Buffer) or buffer.used != n or len(buffer) < end:
            buffer = _Buffer((end + end // 2 + 8, *array.shape[1:]), array.dtype)
            buffer[:n] = array
        buffer[n:end] = new
        buffer.used = end
    return np.ndarray((end, *array.shape[1:]), array.dtype, buffer)


def rows_of(table: FloatArray, positions: NDArray[np.intp]) -> FloatArray:
    """Return rows of a table; its first row is for unknown ids, which have the last position."""
    return table[(positions + 1) % len(table)]


class Cached:
    """A dataclass whose cached properties are neither copied nor pickled."""

    def __getstate__(self) -> dict[str, Any]:
        parts: Any = self
        return {part.name: getattr(self, part.name) for part in fields(parts)}

    def with_caches_of(self, other: Self, *names: str) -> Self:
        """Reuse properties that `other` has computed from the same data."""
        vars(self).update({name: vars(other)[name] for name in names if name in vars(other)})
        return self


@dataclass(frozen=True)
class Lists(Cached):
    """A sparse matrix in CSR format. Rows after the last stored row count as empty."""

    offsets: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[Any]
    n_columns: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, matrix: sp.csr_array) -> Self:
        """Convert a SciPy matrix."""
        offsets = matrix.indptr.astype(np.int64)
        columns = matrix.indices.astype(np.int32, copy=False)
        return cls(offsets, columns, matrix.data, matrix.shape[1])

    @classmethod
    def of_pairs(
        cls,
        pairs: tuple[NDArray[np.intp], NDArray[np.intp]],
        values: NDArray[Any],
        shape: tuple[int, int],
    ) -> Self:
        """Return the matrix with these values at distinct pairs of row and column."""
        rows, columns = pairs
        order = np.lexsort((columns, rows))
        return cls(
            _ends(np.bincount(rows, minlength=shape[0])),
            columns[order].astype(np.int32),
            values[order],
            shape[1],
        )

    @cached_property
    def matrix(self) -> sp.csr_array:
        """The matrix as a SciPy array."""
        # Use the smallest type of offsets, because SciPy converts the columns to the same type.
        offsets = self.offsets.astype(sp.get_index_dtype(maxval=len(self.columns)))
        shape = len(self), self.n_columns
        return sp.csr_array((self.values, self.columns, offsets), shape=shape)

    def take(self, rows: NDArray[np.intp]) -> Lists:
        """Return the given rows."""
        starts, ends = (self.offsets[np.minimum(rows + at, len(self))] for at in (0, 1))
        offsets = _ends(ends - starts)
        if len(rows) == 1:
            places: Any = slice(starts[0], ends[0])
        else:
            places = np.repeat(starts - offsets[:-1], ends - starts) + np.arange(offsets[-1])
        return Lists(offsets, self.columns[places], self.values[places], self.n_columns)

    def first(self, n: int) -> Lists:
        """Return the first `n` rows, without a copy of their entries."""
        offsets = self.offsets[np.minimum(np.arange(n + 1), len(self))]
        columns, values = self.columns[: offsets[-1]], self.values[: offsets[-1]]
        return Lists(offsets, columns, values, self.n_columns)

    def with_rows(self, rows: NDArray[np.intp], new: Lists) -> Lists:
        """Return the matrix with `rows` taken from `new`; indices past the last row append rows."""
        if np.array_equal(rows, np.arange(len(self), len(self) + len(rows))):
            return Lists(
                append_rows(self.offsets, self.offsets[-1] + new.offsets[1:]),
                append_rows(self.columns, new.columns),
                append_rows(self.values, new.values),
                self.n_columns,
            )
        n_old = len(self)
        lengths = np.zeros(max(n_old, int(rows.max(initial=-1)) + 1), dtype=np.int64)
        lengths[:n_old] = np.diff(self.offsets)
        lengths[rows] = np.diff(new.offsets)
        # Copy all entries between two replaced rows in one slice.
        parts, first = [], 0
        for at in np.argsort(rows).tolist():
            last = min(int(rows[at]), n_old)
            parts += [(self, first, last), (new, at, at + 1)]
            first = min(last + 1, n_old)
        parts.append((self, first, n_old))
        entries = [(part, slice(*part.offsets[[low, high]])) for part, low, high in parts]
        columns = np.concatenate([part.columns[some] for part, some in entries])
        values = np.concatenate([part.values[some] for part, some in entries])
        return Lists(_ends(lengths), columns, values, self.n_columns)

    def transposed(self) -> Lists:
        """Return the matrix with rows and columns exchanged."""
        return Lists.of(sp.csr_array(self.matrix.T))

    def record(self) -> ListsRecord:
        """Return the arrays in the core's format."""
        values = self.values.astype(np.float32, copy=False)
        return {"offsets": self.offsets, "columns": self.columns, "values": values}


def _ends(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return the offsets of rows with these lengths: the start of each row, and the last end."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


@dataclass(frozen=True)
class Places:
    """Positions of ids: first the ids of `table`, then ids that were added later.

    Models with added ids reuse the hash table of `table`, which is slow to build.
    """

    table: pd.Index[Any]
    n: int
    # Positions of added ids. A model and its extensions share this dictionary.
    added: dict[Hashable, int] = field(default_factory=dict)

    def find(self, ids: pd.Index[Any]) -> NDArray[np.intp]:
        """Return the position of each id; unknown ids have the position `n`."""
        if len(ids) == 1 and ids.dtype == self.table.dtype:
            # For one id, preparations take most of the time of `get_indexer`.
            try:
                return np.array([self.table.get_loc(ids[0])])
            except KeyError:
                return np.array([min(self.added.get(ids[0], self.n), self.n)])
        ids = unrounded(ids, self.table)
        found = self.table.get_indexer(ids)
        missing = found < 0
        if not missing.any():
            return found
        found = np.where(missing, self.n, found)
        if self.n > len(self.table):
            for at in np.flatnonzero(missing).tolist():
                found[at] = min(self.added.get(ids[at], self.n), self.n)
        return found

    def with_ids(self, ids: pd.Index[Any]) -> Places:
        """Return the positions of these ids and of `ids`, which follow them."""
        with _LOCK:
            added = self.added
            if len(self.table) + len(added) != self.n:
                added = {one: place for one, place in added.items() if place < self.n}
            added.update(zip(ids.tolist(), range(self.n, self.n + len(ids)), strict=True))
        return Places(self.table, self.n + len(ids), added)


def append_ids(known: pd.Index[Any], ids: pd.Index[Any]) -> pd.Index[Any]:
    """Return `known` followed by `ids`."""
    if known.dtype == ids.dtype and known.dtype.kind in "iuf":
        longer: pd.Index[Any] = pd.Index(append_rows(known.to_numpy(), ids.to_numpy()), copy=False)
        return longer
    return join_ids(known, ids)
