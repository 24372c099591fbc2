"""Conversion of users' sentences to the rows and offsets that the core reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._validation import Rows, check_matrix, core_rows
from dualgap._validation.arrays import as_numpy
from dualgap._validation.copies import listed, own_copy
from dualgap._validation.labels import read_labels as read_classes
from dualgap._validation.labels import read_sequences, sorted_classes
from dualgap.structured._arrays import Stacked, check_lengths, numpy_examples, stack

Sentences: TypeAlias = "Iterable[Any] | NDArray[Any] | sp.spmatrix | sp.sparray"
"""Sentences with named features, one matrix per sentence, or one matrix for all sentences.

The lengths of the sentences in a single matrix are passed separately.
"""

Offsets: TypeAlias = NDArray[np.int64]

# Class index with which the core marks an unknown label (None).
_UNKNOWN = 2**32 - 1
_NO_LABEL = "y: all labels are None; at least one must be known"


@dataclass(frozen=True)
class Rowed:
    """The concatenated rows of all sentences, and the offset of each sentence."""

    rows: Rows
    offsets: Offsets
    n_features: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def split(self, columns: NDArray[np.bool_]) -> tuple[Rows, Rows]:
        """Return the rows without these columns, and the rows with only these columns."""
        if isinstance(self.rows, tuple):
            indptr, indices, data, width = self.rows
            matrix: Any = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, width))
        else:
            matrix = self.rows
        return core_rows(matrix[:, ~columns]), core_rows(matrix[:, columns])


def peek(X: Any) -> tuple[bool, Any]:
    """Return whether the features have names, and an iterable over all sentences."""
    if isinstance(X, np.ndarray) and X.dtype.kind in "OU":
        X = X.tolist()
    if sp.issparse(X) or len(getattr(X, "shape", ())) > 1:
        return False, X
    if isinstance(X, str | bytes | dict) or not isinstance(X, Iterable):
        msg = f"X: must be sentences, or a matrix with lengths, got {type(X).__name__}"
        raise ValueError(msg)
    if isinstance(X, list | tuple):
        return all(map(_is_named, islice(X, 3))), X
    sentences = iter(X)
    # Copy the sentences, because an iterator may reuse one object for all of them.
    head = list(map(own_copy, islice(sentences, 3)))
    named = all(map(_is_named, head))
    return named, chain(head, sentences)


def _is_named(sentence: Any) -> bool:
    """Return whether a sentence may consist of named features; True for an empty sentence."""
    if hasattr(sentence, "shape"):
        return False
    if not isinstance(sentence, list | tuple):
        return True
    return not sentence or not isinstance(sentence[0], list | tuple) or _named_token(sentence[0])


def _named_token(token: list[Any] | tuple[Any, ...]) -> bool:
    # Bytes are let through here, although they are not valid names, because the code that later
    # reads the names raises an error for them.
    return not token or isinstance(token[0], str | bytes)


def read_named(read: Callable[[Any], Any], X: Any, size: Callable[[], int]) -> Rowed:
    """Read sentences of named features, then call `size` for the number of columns."""
    offsets, indptr, indices, data = read(X)
    n_features = size()
    return Rowed((indptr, indices, data, n_features), offsets, n_features)


def read_matrices(X: Any, lengths: Any) -> Rowed:
    """Check matrices: one per sentence, or a single matrix with the lengths of the sentences."""
    if lengths is None and len(getattr(X, "shape", ())) == 2:
        msg = "lengths: one matrix needs the lengths of its sentences"
        raise ValueError(msg)
    if lengths is None:
        sentences = numpy_examples("X", listed(X, "X"))
        if not sentences:
            return Rowed(np.zeros((0, 0)), np.zeros(1, dtype=np.int64), 0)
        stacked = stack(sentences)
        return Rowed(core_rows(stacked.rows), stacked.offsets, stacked.n_features)
    rows = checked_matrix(X)
    stacked = Stacked(rows, read_lengths(lengths, rows.shape[0]))
    return Rowed(core_rows(stacked.rows), stacked.offsets, stacked.n_features)


def checked_matrix(X: Any) -> Any:
    """Check one matrix."""
    try:
        return check_matrix(X)
    except ValueError as error:
        msg = f"X: must be a matrix of finite numbers: {error}"
        raise ValueError(msg) from error


def check_some(offsets: Offsets) -> None:
    """Raise an error if there is no sentence."""
    if len(offsets) == 1:
        msg = "X: there must be at least one sentence"
        raise ValueError(msg)


def read_lengths(lengths: Any, n_rows: int) -> Offsets:
    """Return the offsets of sentences with these lengths."""
    sizes = np.asarray(as_numpy("lengths", lengths))
    whole = sizes.ndim == 1 and (sizes.size == 0 or np.issubdtype(sizes.dtype, np.integer))
    if not whole or (sizes.size and sizes.min() < 0) or sizes.sum() != n_rows:
        msg = f"lengths: must be integers that sum to the {n_rows} rows of X"
        raise ValueError(msg)
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def read_labels(y: Any, offsets: Offsets, *, flat: bool) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """Return the sorted classes and the class index of each row.

    With `flat`, `y` has one label per row instead of one sequence per sentence.
    """
    classes, codes, known = read_partial_labels(y, offsets, flat=flat)
    if known is not None:
        row = int(np.argmin(known))
        sentence = int(np.searchsorted(offsets, row, side="right")) - 1
        msg = f"y: label {row - offsets[sentence]} of sentence {sentence} is None"
        raise ValueError(msg)
    return classes, codes


def read_partial_labels(
    y: Any, offsets: Offsets, *, flat: bool
) -> tuple[NDArray[Any], NDArray[np.uint32], NDArray[np.bool_] | None]:
    """Return the sorted classes, the class index of each row, and which rows have a known label.

    The last item is None if all labels are known.
    """
    if flat:
        return _read_flat(y, offsets)
    check_iterable(y)
    sentences = numpy_examples("y", y if isinstance(y, list) else listed(y, "y"))
    check_count(len(offsets) - 1, len(sentences))
    try:
        found = _core.read_labels(sentences)
        if found is None:
            check_lengths("y", sentences, offsets)
            flat_labels = list(chain.from_iterable(sentences))
            if any(label is None for label in flat_labels):
                return _read_known(flat_labels)
            classes, codes = sorted_classes("y", read_sequences("y", sentences))
            return classes, codes.astype(np.uint32), None
    except (TypeError, UnicodeEncodeError) as error:
        msg = f"y: must be the labels of each sentence ({error})"
        raise ValueError(msg) from error
    names, numbers, ends = found
    wrong = np.flatnonzero(np.diff(ends) != np.diff(offsets))
    if len(wrong):
        at = int(wrong[0])
        msg = (
            f"y: sentence {at} has {ends[at + 1] - ends[at]} labels and "
            f"{offsets[at + 1] - offsets[at]} tokens"
        )
        raise ValueError(msg)
    if not len(numbers):
        return np.zeros(0, dtype="U1"), numbers, None
    known = numbers != _UNKNOWN
    if not known.any():
        raise ValueError(_NO_LABEL)
    classes, order = sorted_classes("y", read_classes("y", names))
    found_codes = order.astype(np.uint32)[np.where(known, numbers, 0)]
    return classes, found_codes, None if known.all() else known


def check_iterable(y: Any) -> None:
    """Raise an error if `y` cannot be the labels of several sentences."""
    if isinstance(y, str | bytes) or not isinstance(y, Iterable):
        msg = f"y: must be the labels of each sentence, got {type(y).__name__}"
        raise ValueError(msg)


def check_count(n_sentences: int, n_labels: int) -> None:
    """Raise an error if some sentences have no labels, or some labels have no sentence."""
    if n_sentences != n_labels:
        msg = f"y: must have labels for {n_sentences} sentences, got {n_labels}"
        raise ValueError(msg)


def _read_flat(
    y: Any, offsets: Offsets
) -> tuple[NDArray[Any], NDArray[np.uint32], NDArray[np.bool_] | None]:
    """Read labels that are given row by row."""
    is_plain = isinstance(y, np.ndarray) and y.dtype.kind != "O"
    is_partial = not is_plain and isinstance(y, Collection) and any(label is None for label in y)
    shape = (len(y),) if is_partial else read_classes("y", y).shape
    if shape != (offsets[-1],):
        msg = f"y: must have one label for each of {offsets[-1]} rows, got {shape}"
        raise ValueError(msg)
    if is_partial:
        return _read_known(list(y))
    classes, codes = sorted_classes("y", read_classes("y", y))
    return classes, codes.astype(np.uint32), None


def _read_known(
    labels: list[Any],
) -> tuple[NDArray[Any], NDArray[np.uint32], NDArray[np.bool_]]:
    """Return the classes, the class index of each label, and which labels are known."""
    known = np.array([label is not None for label in labels])
    if not known.any():
        raise ValueError(_NO_LABEL)
    own = read_classes("y", [label for label in labels if label is not None])
    classes, found = sorted_classes("y", own)
    codes = np.zeros(len(labels), dtype=np.uint32)
    codes[known] = found
    return classes, codes, known
