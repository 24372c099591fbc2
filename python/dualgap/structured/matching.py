"""Matchings: pairs of rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._estimator import storable
from dualgap._validation import FloatArray, check_positive, core_rows
from dualgap.structured._arrays import Stacked, pair_features, true_pairs
from dualgap.structured.models import BuiltinModel, Coding

__all__ = ["MatchingModel"]


@storable
@dataclass(eq=False, repr=False)
class MatchingModel(BuiltinModel):
    """Matchings of rows to columns (words of a sentence to words of its translation).

    An example is an array of shape (n_rows, n_columns, n_features), the features of each pair;
    sizes may differ. Its label is an array of shape (n_pairs, 2) of (row, column) pairs. In
    predictions, each row and each column is in at most `max_links` pairs. The score of a matching
    is the sum of ``<weight, x[a, b]>`` over its pairs. Decoding is exact: it solves an assignment
    problem, or a flow problem if `max_links` is above 1, and leaves out pairs that lower the score.

    Parameters
    ----------
    false_positive_cost, false_negative_cost : float, default=1.0
        Loss of each predicted pair that is wrong, and of each true pair that is missing. If both
        costs are 1, the loss is the number of pairs in which the matchings differ.
    max_links : int or (int, int), default=1
        Maximum number of pairs per row and per column, in predictions and in the labels that
        training compares with the true label. Two numbers are the limits for rows and for columns.
        True labels may exceed the limits. "extragradient" requires 1.
    """

    false_positive_cost: float = 1.0
    false_negative_cost: float = 1.0
    max_links: int | tuple[int, int] = 1

    def stack(self, X: Any) -> Stacked:
        """Check examples and concatenate their rows."""
        return pair_features(X)

    def learn(self, X: Stacked, y: Any) -> Coding:
        """Read the number of features from the training data."""
        return MatchingCoding(self, X.n_features, self._max_links())

    def _max_links(self) -> list[int]:
        given = self.max_links
        links = list(given) if isinstance(given, (tuple, list)) else [given, given]
        if len(links) != 2:
            msg = f"max_links: must be a number or two, of rows and of columns, got {given!r}"
            raise ValueError(msg)
        for number in links:
            check_positive("max_links", number, integer=True)
        return [int(number) for number in links]


@storable
@dataclass(frozen=True, eq=False)
class MatchingCoding(Coding):
    """A `MatchingModel` with its number of features."""

    model: MatchingModel
    n_features: int
    max_links: list[int]

    def zeros(self) -> Any:
        """Return one pair whose features are all 0."""
        return [np.zeros((1, 1, self.n_features))]

    def core(self, X: Stacked, y: Any) -> _core.StructuredModel:
        """Create the core's model of matchings."""
        truth = None
        if y is not None:
            labels = [true_pairs(label, index) for index, label in enumerate(y)]
            offsets = np.cumsum([0, *(len(label) for label in labels)], dtype=np.int64)
            truth = (np.concatenate(labels).tolist(), offsets)
        return _core.StructuredModel.matching(
            core_rows(X.rows),
            X.sizes or [],
            truth,
            costs=(float(self.model.false_positive_cost), float(self.model.false_negative_cost)),
            max_links=self.max_links,
        )

    def decode(self, X: Stacked, coef: FloatArray, n_threads: int) -> list[Any]:
        """Return an array of (row, column) pairs for each example, sorted by row."""
        found = super().decode(X, coef, n_threads)
        pairs = []
        for label, (n_rows, n_columns) in zip(found, X.sizes or [], strict=True):
            # `label` holds the column of each row's first link (the largest uint32 if the row has
            # no link), then any further pairs as row * n_columns + column.
            rows = np.flatnonzero(label[:n_rows] != np.iinfo(np.uint32).max)
            first = np.column_stack([rows, label[rows]])
            others = np.column_stack(np.divmod(label[n_rows:], max(n_columns, 1)))
            together = np.concatenate([first, others])
            pairs.append(together[np.lexsort(together.T[::-1])])
        return pairs

    def labels(self, offsets: NDArray[np.int64], flat: NDArray[np.uint32]) -> list[Any]:
        """Return the decoded indices of each example."""
        return np.split(flat.astype(np.int64), offsets[1:-1])

    def parameters(self, coef: FloatArray) -> dict[str, FloatArray]:
        """Return the weights of the features."""
        return {"weight": coef}

    def maximum_losses(self, X: Stacked, y: Any) -> FloatArray:
        """Return an upper bound on the loss of each example.

        It is the loss of missing all true pairs and predicting the largest number of wrong pairs.
        """
        found = []
        for (n_rows, n_columns), label in zip(X.sizes or [], y, strict=True):
            missed = len(label) * self.model.false_negative_cost
            of_rows, of_columns = self.max_links
            most = min(n_rows * of_rows, n_columns * of_columns, n_rows * n_columns)
            found.append(missed + most * self.model.false_positive_cost)
        return np.array(found, dtype=np.float64)
