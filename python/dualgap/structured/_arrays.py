"""Examples and labels of structured models, checked and converted to arrays for the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dualgap._sparse import check_sparse
from dualgap._validation import FloatArray, check_matrix
from dualgap._validation.arrays import as_numpy
from dualgap._validation.labels import class_codes, read_labels, read_sequences
from dualgap._validation.magnitudes import check_magnitude

Examples: TypeAlias = "Sequence[Any] | NDArray[Any] | sp.spmatrix | sp.sparray"
"""Examples or labels as users pass them: a sequence, or the rows of a matrix."""


def numpy_examples(name: str, values: Any) -> Any:
    """Convert an array of another library, or a list of such arrays, to NumPy."""
    if isinstance(values, list | tuple):
        return [as_numpy(name, value) for value in values]
    values = as_numpy(name, values)
    only_converts = hasattr(values, "__array__") and not hasattr(values, "__len__")
    return np.asarray(values) if only_converts else _sequence(name, values)


def _sequence(name: str, values: Any) -> Any:
    """Check that the values have a length."""
    if not (sp.issparse(values) or hasattr(values, "__len__")):
        msg = f"{name}: must be a sequence (a list, an array), got {type(values).__name__}"
        raise ValueError(msg)
    return values


def count_examples(X: Any, y: Any) -> int:
    """Check that the numbers of examples and labels are equal, and return this number."""
    for name, values in (("X", X), ("y", y)):
        check_sparse(_sequence(name, values), name)
    n_examples = X.shape[0] if sp.issparse(X) else len(X)
    if n_examples == 0:
        msg = "X: there must be at least one example"
        raise ValueError(msg)
    n_labels = y.shape[0] if sp.issparse(y) else len(y)
    if n_labels != n_examples:
        msg = f"y: there must be one label for each example, got {n_labels} for {n_examples}"
        raise ValueError(msg)
    return int(n_examples)


@dataclass(frozen=True)
class Stacked:
    """The concatenated rows of all examples, and the offset of each example.

    Each call of a public method creates one such object, so rows are checked and copied only once.
    """

    rows: Any
    offsets: NDArray[np.int64]
    sizes: list[list[int]] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.rows.shape[1])

    def check_features(self, model: str, n_features: int) -> Stacked:
        """Check that the examples have as many features as the training data."""
        if self.n_features != n_features:
            msg = (
                f"X has {self.n_features} features, but {model} is expecting {n_features} features "
                "as input; give the features of the training data"
            )
            raise ValueError(msg)
        return self


def stack(X: Any) -> Stacked:
    """Concatenate the rows of all examples, which have one row per position."""
    blocks = [_block(x, index) for index, x in enumerate(X)]
    widths = sorted({block.shape[1] for block in blocks})
    if len(widths) != 1:
        msg = f"X: all examples must have the same number of features, got {widths}"
        raise ValueError(msg)
    offsets = np.cumsum([0, *(block.shape[0] for block in blocks)], dtype=np.int64)
    # A single check of all entries is much faster than thousands of checks of short examples.
    if any(sp.issparse(block) for block in blocks):
        rows: Any = _stack_sparse(blocks, offsets[-1], widths[0])
        bad = np.flatnonzero(~np.isfinite(rows.data))
        bad = np.searchsorted(rows.indptr, bad, side="right") - 1
    else:
        rows = np.concatenate(blocks)
        bad = np.flatnonzero(~np.isfinite(rows)) // widths[0]
    if len(bad):
        index = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        msg = f"X: example {index} must be a matrix of finite numbers: it has NaN or infinity"
        raise ValueError(msg)
    check_magnitude("X", rows)
    return Stacked(rows, offsets)


def _stack_sparse(blocks: list[Any], n_rows: int, n_features: int) -> Any:
    """Stack many small matrices vertically, faster than `scipy.sparse.vstack`."""
    blocks = [block if sp.issparse(block) else sp.csr_array(block) for block in blocks]
    sizes = [int(block.indptr[-1]) for block in blocks]
    data = np.concatenate([b.data[:size] for b, size in zip(blocks, sizes, strict=True)])
    indices = np.concatenate([b.indices[:size] for b, size in zip(blocks, sizes, strict=True)])
    lengths = [np.diff(block.indptr) for block in blocks]
    indptr = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.concatenate(lengths), out=indptr[1:])
    return sp.csr_array((data, indices, indptr), shape=(n_rows, n_features))


def _block(x: Any, index: int) -> Any:
    """Return the rows of one example as a two-dimensional floating-point array."""
    x = check_sparse(x, f"X: example {index}")
    plain = isinstance(x, np.ndarray) or (sp.issparse(x) and x.format == "csr")
    if plain and x.dtype in _FLOATS and x.ndim == 2 and x.shape[1] > 0:
        return x
    try:
        return check_matrix(x, ensure_min_samples=0, order=None)
    except ValueError as error:
        msg = f"X: example {index} must be a matrix of finite numbers: {error}"
        raise ValueError(msg) from error


_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


def encode(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the class index of each label."""
    codes = class_codes(classes, labels)
    if (codes < 0).any():
        msg = f"y: the class {labels[codes < 0].tolist()[0]!r} did not occur in training"
        raise ValueError(msg)
    return codes.astype(np.uint32)


def count_wrong(
    labels: NDArray[Any],
    offsets: NDArray[np.int64],
    classes: NDArray[Any],
    found: NDArray[np.uint32],
) -> FloatArray:
    """Return the number of wrongly predicted labels of each example."""
    sums = np.cumsum(np.concatenate([[0.0], class_codes(classes, labels) != found]))
    return np.diff(sums[offsets])


def one_label_each(y: Any, n_examples: int) -> NDArray[Any]:
    """Check that each example has a single label, and return the labels as an array."""
    if sp.issparse(y):
        msg = "y: sparse labels are not supported; pass y.toarray()"
        raise TypeError(msg)
    labels = read_labels("y", y)
    if labels.shape != (n_examples,):
        msg = f"y: must have shape ({n_examples},), one label for each example, got {labels.shape}"
        if labels.shape == (n_examples, 1):
            msg += "; give y.ravel()"
        raise ValueError(msg)
    return labels


def flatten_labels(y: Any, offsets: NDArray[np.int64]) -> NDArray[Any]:
    """Return the concatenated labels of all sequences."""
    check_lengths("y", y, offsets)
    return read_sequences("y", list(y))


def flatten(name: str, y: Any, offsets: NDArray[np.int64]) -> NDArray[Any]:
    """Return the concatenated numbers of all sequences."""
    check_lengths(name, y, offsets)
    if offsets[-1] == 0:
        return np.zeros(0)
    return np.concatenate([np.asarray(as_numpy(name, label)) for label in y if len(label)])


def check_lengths(name: str, y: Any, offsets: NDArray[np.int64]) -> None:
    """Check that each sequence has one entry per row of its example."""
    lengths = np.array([len(label) for label in y], dtype=np.int64)
    wrong = np.flatnonzero(lengths != np.diff(offsets))
    if len(wrong):
        index = int(wrong[0])
        msg = (
            f"{name}: label {index} has {lengths[index]} entries, and its example has "
            f"{offsets[index + 1] - offsets[index]} rows"
        )
        raise ValueError(msg)


def matrix(X: Any) -> Stacked:
    """Check a matrix in which each row is an example."""
    try:
        rows = check_matrix(X)
    except ValueError as error:
        msg = f"X: must be a matrix of finite numbers: {error}"
        raise ValueError(msg) from error
    return Stacked(rows, np.arange(rows.shape[0] + 1))


def indicators(y: Any, n_labels: int | None = None) -> NDArray[np.uint8]:
    """Check label sets and return them as a matrix of zeros and ones."""
    try:
        labels = check_sparse(y, "y").toarray() if sp.issparse(y) else np.asarray(y)
    except ValueError as error:
        msg = "y: all labels must have the same number of entries"
        raise ValueError(msg) from error
    if labels.ndim != 2 or (n_labels is not None and labels.shape[1] != n_labels):
        msg = f"y: must have shape (n_examples, {n_labels or 'n_labels'}), got {labels.shape}"
        raise ValueError(msg)
    if not np.isin(labels, (0, 1)).all():
        msg = "y: must contain only zeros and ones"
        raise ValueError(msg)
    return np.ascontiguousarray(labels, dtype=np.uint8)


def pair_features(X: Any) -> Stacked:
    """Concatenate the features of the pairs of all examples."""
    blocks, sizes = [], []
    for index, x in enumerate(X):
        block = np.asarray(x)
        if block.ndim != 3:
            msg = (
                f"X: example {index} must have shape (n_rows, n_columns, n_features), "
                f"got {block.shape}"
            )
            raise ValueError(msg)
        sizes.append([int(side) for side in block.shape[:2]])
        blocks.append(block.reshape(sizes[-1][0] * sizes[-1][1], block.shape[2]))
    stacked = stack(blocks)
    return Stacked(stacked.rows, stacked.offsets, sizes)


def true_pairs(label: Any, index: int) -> NDArray[np.uint32]:
    """Check a matching and return its (row, column) pairs."""
    pairs = np.asarray(label)
    if pairs.size == 0:
        return np.zeros((0, 2), dtype=np.uint32)
    whole = np.issubdtype(pairs.dtype, np.integer)
    fits = whole and pairs.min() >= 0 and pairs.max() < 2**32
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not fits:
        msg = f"y: label {index} must be an array of (row, column) pairs of integers >= 0"
        raise ValueError(msg)
    return pairs.astype(np.uint32)


def signs_array(signs: ArrayLike | None) -> NDArray[np.int8] | None:
    """Return the signs of weights as an array, after a check."""
    if signs is None:
        return None
    found = np.asarray(signs)
    if found.ndim != 1 or not np.isin(found, (-1, 0, 1)).all():
        msg = "signs: must be one of -1, 0 and 1 for each weight"
        raise ValueError(msg)
    return np.ascontiguousarray(found, dtype=np.int8)
