"""Sentences in temporary files, for training data that does not fit in memory."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._estimator import refuse_unused
from dualgap._records import MappedRows
from dualgap._validation.copies import own_copy
from dualgap._validation.labels import read_labels, sorted_classes
from dualgap.chunks import Chunks, SpillFile
from dualgap.sequence._sentences import check_some, checked_matrix, peek, read_lengths
from dualgap.sequence.features import featured, transition_prefixes
from dualgap.structured._arrays import stack

# Number of sentences, or of rows of one matrix, that are in memory at a time.
_SENTENCES = 512
_ROWS = 1 << 14

Labels = tuple[NDArray[Any], NDArray[np.uint32], NDArray[np.bool_] | None]
"""Sorted classes, the class index of each token, and which tokens have a known label."""


@dataclass(frozen=True)
class Mapped:
    """The rows of all sentences in memory-mapped files, and the offset of each sentence."""

    rows: MappedRows
    offsets: NDArray[np.int64]
    n_features: int

    def __len__(self) -> int:
        return len(self.offsets) - 1


class Spill:
    """Sparse rows that are written to anonymous temporary files in a folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = folder
        self._ends, self._columns = SpillFile(folder), SpillFile(folder)
        self._ends.write(np.zeros(1, dtype=np.uint64))
        # The file of values is created only when a value other than 1 occurs.
        self._values: SpillFile | None = None
        self.n_rows, self.n_entries, self.n_columns = 0, 0, 0

    def append(self, indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any]) -> None:
        """Write rows in CSR format."""
        if self._values is None and not (data == 1.0).all():
            self._values = SpillFile(self._folder)
            for start in range(0, self.n_entries, _ROWS):
                self._values.write(np.ones(min(_ROWS, self.n_entries - start)))
        if self._values is not None:
            self._values.write(np.asarray(data, dtype=np.float64))
        self._ends.write(np.asarray(indptr[1:] + self.n_entries, dtype=np.uint64))
        self._columns.write(np.asarray(indices, dtype=np.uint32))
        self.n_rows += len(indptr) - 1
        self.n_entries += len(indices)

    def append_matrix(self, rows: Any) -> None:
        """Write the rows of a checked matrix."""
        if self.n_rows and rows.shape[1] != self.n_columns:
            msg = (
                "X: all sentences must have the same number of features, got "
                f"{self.n_columns} and {rows.shape[1]}"
            )
            raise ValueError(msg)
        self.n_columns = rows.shape[1]
        matrix: Any = sp.csr_array(rows)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        self.append(matrix.indptr.astype(np.int64), matrix.indices, matrix.data)

    def rows(self, n_columns: int) -> MappedRows:
        """Map the files into memory; return the rows in the core's format."""
        values = None if self._values is None else self._values.mapped(np.dtype(np.float64))
        ends = self._ends.mapped(np.dtype(np.uint64))
        return ends, self._columns.mapped(np.dtype(np.uint32)), values, n_columns


def spilled_problem(
    tagger: Any, X: Any, y: Any, lengths: Any, folder: str | os.PathLike[str]
) -> tuple[Mapped, _core.Vocabulary | None, Labels]:
    """Write the features of all tokens to files in a folder, reading the sentences only once.

    Without `y`, `X` consists of pairs of a sentence and its labels.
    """
    refuse_unused(tagger, ["min_count", "transition_features", "warm_start"], "spill")
    if tagger.C == "validation":
        msg = 'C: "validation" needs the sentences in memory; leave out spill, or set a number'
        raise ValueError(msg)
    if transition_prefixes(tagger.features):
        msg = "features: spill does not support templates of two labels (B...)"
        raise ValueError(msg)
    labels = _Labels()
    if y is None:
        X = labels.stripped(X)
    data, vocabulary = _spilled(tagger, X, lengths, Spill(folder))
    check_some(data.offsets)
    if y is not None:
        labels.read(y if lengths is None else [y])
    return data, vocabulary, labels.checked(data, flat=lengths is not None)


def _spilled(
    tagger: Any, X: Any, lengths: Any, spill: Spill
) -> tuple[Mapped, _core.Vocabulary | None]:
    X = featured(X, tagger.features, lengths)
    if lengths is not None:
        return _spilled_matrix(tagger, X, lengths, spill), None
    named, X = peek(X)
    if not named:
        return _spilled_matrices(tagger, X, spill), None
    vocabulary = _core.Vocabulary(tagger.hash_bits)
    sentences, sizes = iter(X), array("q")
    while True:
        batch = islice(sentences, _SENTENCES)
        offsets, indptr, indices, data = vocabulary.learn(batch, 1, len(sizes))
        spill.append(indptr, indices, data)
        sizes.extend(np.diff(offsets).tolist())
        if len(offsets) <= _SENTENCES:
            break
    n_columns = len(vocabulary)
    return Mapped(spill.rows(n_columns), _ends(sizes), n_columns), vocabulary


def _spilled_matrices(tagger: Any, X: Iterable[Any], spill: Spill) -> Mapped:
    """Write sentences that are matrices."""
    refuse_unused(tagger, ["hash_bits"], "a matrix")
    sentences, sizes = iter(X), array("q")
    while batch := [own_copy(rows) for rows in islice(sentences, _SENTENCES)]:
        stacked = stack(batch)
        spill.append_matrix(stacked.rows)
        sizes.extend(np.diff(stacked.offsets).tolist())
    return Mapped(spill.rows(spill.n_columns), _ends(sizes), spill.n_columns)


def _spilled_matrix(tagger: Any, X: Any, lengths: Any, spill: Spill) -> Mapped:
    """Write one matrix, or a matrix given as `Chunks`."""
    refuse_unused(tagger, ["hash_bits"], "a matrix")
    for chunk in X.chunks if isinstance(X, Chunks) else [checked_matrix(X)]:
        for start in range(0, chunk.shape[0], _ROWS):
            spill.append_matrix(stack([chunk[start : start + _ROWS]]).rows)
    offsets = read_lengths(lengths, spill.n_rows)
    return Mapped(spill.rows(spill.n_columns), offsets, spill.n_columns)


def _ends(sizes: Any) -> NDArray[np.int64]:
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(np.frombuffer(sizes, dtype=np.int64), out=offsets[1:])
    return offsets


class _Labels:
    """Labels of all sentences, read once and stored as class indices."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._codes, self._sizes = array("I"), array("q")

    def stripped(self, pairs: Any) -> Iterator[Any]:
        """Yield the sentence of each (sentence, labels) pair, and store the labels."""
        for place, pair in enumerate(pairs):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                msg = f"X: without y, item {place} must be a pair of a sentence and its labels"
                raise ValueError(msg)
            yield pair[0]
            self._add(pair[1])

    def read(self, sentences: Iterable[Any]) -> None:
        """Read the labels of all sentences."""
        for labels in sentences:
            self._add(labels)

    def _add(self, labels: Any) -> None:
        numbers = self._numbers
        if isinstance(labels, np.ndarray):
            labels = labels.tolist()
        if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
            msg = f"y: must be the labels of each sentence, got {type(labels).__name__}"
            raise ValueError(msg)
        before = len(self._codes)
        try:
            self._codes.extend(numbers.setdefault(label, len(numbers)) for label in labels)
        except TypeError as error:
            msg = f"y: labels must be strings or numbers ({error})"
            raise ValueError(msg) from error
        self._sizes.append(len(self._codes) - before)

    def checked(self, data: Mapped, *, flat: bool) -> Labels:
        """Check that each token has a label; return the labels in the core's format."""
        sizes = np.frombuffer(self._sizes, dtype=np.int64)
        wanted = np.array([data.offsets[-1]]) if flat else np.diff(data.offsets)
        if len(sizes) != len(wanted):
            msg = f"y: must have labels for {len(wanted)} sentences, got {len(sizes)}"
            raise ValueError(msg)
        wrong = np.flatnonzero(sizes != wanted)
        if len(wrong):
            at = int(wrong[0])
            msg = f"y: sentence {at} has {sizes[at]} labels and {wanted[at]} tokens"
            raise ValueError(msg)
        codes = np.frombuffer(self._codes, dtype=np.uint32)
        names = [label for label in self._numbers if label is not None]
        if not names:
            msg = "y: all labels are None, or there is no token; at least one must be known"
            raise ValueError(msg)
        classes, order = sorted_classes("y", read_labels("y", names))
        places = np.zeros(len(self._numbers), dtype=np.uint32)
        places[[self._numbers[name] for name in names]] = order
        missing = self._numbers.get(None)
        known = None if missing is None else codes != missing
        return classes, places[codes], known
