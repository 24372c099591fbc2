"""Detection of column scales that explain a slow fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dualgap._validation import FloatArray

__all__ = ["SPREAD", "sample_rows", "scale_cause"]

# Solvers are slow above this ratio of two columns' scales, or of a column's mean to its standard
# deviation.
SPREAD = 1e3
# Maximum number of rows or arrays to inspect, because a warning must not copy all data.
_SAMPLED = 1000


def scale_cause(X: Any, constant: float = 0.0, names: Any = None) -> str | None:
    """Describe a problem with the scales of the columns, and name the remedy.

    Parameters
    ----------
    X : object
        Rows of a fit: an array, a sparse matrix, or a sequence of arrays with the same number of
        columns. Anything else gives None.
    constant : float, default=0.0
        Value of the constant feature that the model adds to the columns; 0 means no feature.
    names : array-like of shape (n_features,), optional
        Names of the columns. By default a column is named by its index.

    Returns
    -------
    str or None
        None if the scales do not explain a slow fit.
    """
    blocks = _blocks(X)
    if not blocks:
        return None
    largest = np.max([_largest(block) for block in blocks], axis=0)
    scaler = "MaxAbsScaler" if sp.issparse(blocks[0]) else "StandardScaler"
    found = largest[largest > 0.0]
    if not found.size:
        return None
    top = int(largest.argmax())
    if found.max() > SPREAD * found.min():
        ratio = found.max() / found.min()
        return (
            f"the columns of X differ in scale by a factor of {ratio:.0e} "
            f"({_column(names, top)} reaches {largest[top]:.2g}): scale them with {scaler}"
        )
    if not sp.issparse(blocks[0]):
        means, deviations = _moments(blocks)
        shifted = np.abs(means) > SPREAD * deviations
        shifted &= deviations > 0.0
        if shifted.any():
            column = int(np.flatnonzero(shifted)[0])
            return (
                f"{_column(names, column)} of X has a mean of {means[column]:.2g} and a standard "
                f"deviation of only {deviations[column]:.2g}: scale the columns with {scaler}"
            )
    ends = np.append(found, abs(constant) or found.max())
    if ends.max() > SPREAD * ends.min():
        return (
            f"the columns of X reach {found.max():.2g} ({_column(names, top)}), and the constant "
            f"feature of the intercept is {constant:.2g}: scale the columns with {scaler}"
        )
    return None


def sample_rows(rows: Any) -> Any:
    """Copy some of the rows, given in the core's format, to a matrix."""
    if not isinstance(rows, tuple):
        return rows[:: -(-len(rows) // _SAMPLED) or 1].copy()
    indptr, indices, data, width = rows
    step = -(-(len(indptr) - 1) // _SAMPLED) or 1
    starts = np.asarray(indptr[:-1:step], dtype=np.int64)
    sizes = np.asarray(indptr[1::step], dtype=np.int64) - starts
    ends = np.cumsum(sizes)
    entries = np.arange(sizes.sum()) + np.repeat(starts - ends + sizes, sizes)
    values = np.ones(len(entries)) if data is None else data[entries]
    kept = values, indices[entries].astype(np.int64), np.append(0, ends)
    return sp.csr_array(kept, shape=(len(sizes), width))


def _column(names: Any, index: int) -> str:
    return f"column {index if names is None else repr(str(names[index]))}"


def _blocks(X: Any) -> list[Any]:
    """Return a sample of the rows as matrices, or an empty list if the columns are not numeric."""
    blocks = list(X[:: -(-len(X) // _SAMPLED) or 1]) if isinstance(X, (list, tuple)) else [X]
    if not all(isinstance(block, np.ndarray) or sp.issparse(block) for block in blocks):
        return []
    blocks = [block for block in blocks if block.ndim == 2 and min(block.shape) > 0]
    numbers = all(block.dtype.kind in "fiu" for block in blocks)
    same = len({block.shape[1] for block in blocks}) == 1
    if not (numbers and same):
        return []
    if len(blocks) == 1:
        blocks = [sp.csr_array(blocks[0])] if sp.issparse(blocks[0]) else blocks
        return [blocks[0][:: -(-blocks[0].shape[0] // _SAMPLED)]]
    return blocks


def _largest(block: Any) -> FloatArray:
    """Return the largest absolute value of each column."""
    ends = [block.max(axis=0), block.min(axis=0)]
    dense = [end.toarray() if sp.issparse(end) else end for end in ends]
    high, low = (np.asarray(end, dtype=np.float64).ravel() for end in dense)
    return np.maximum(high, -low)


def _moments(blocks: list[Any]) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of each column."""
    rows = np.concatenate([np.asarray(block, dtype=np.float64) for block in blocks])
    return rows.mean(axis=0), rows.std(axis=0)
