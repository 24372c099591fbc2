"""Matchings: pairs of rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._validation import FloatArray, core_rows
from dualgap.structured._arrays import Stacked, pair_features, right_pairs
from dualgap.structured.models import BuiltinModel, Coding

__all__ = ["MatchingModel"]


@dataclass(frozen=True)
class MatchingModel(BuiltinModel):
    """Matchings of rows to columns (words of a sentence to those of its translation).

    An example is an array of shape (n_rows, n_columns, n_features), the features of each pair;
    sizes may differ. Its label is an array of shape (n_pairs, 2) of (row, column) pairs; in
    predictions no row and no column comes twice. The score of a matching is the sum of
    ``<weight, x[a, b]>``
    over its pairs; decoding solves an assignment problem exactly, and pairs that lower the score
    are left out.

    Parameters
    ----------
    false_positive_cost, false_negative_cost : float, default=1.0
        Loss of a wrong pair and of a right one that is missing. 1 and 1 give the L1 distance.
    """

    false_positive_cost: float = 1.0
    false_negative_cost: float = 1.0

    def stack(self, X: Any) -> Stacked:
        """Check examples and put their rows after one another."""
        return pair_features(X)

    def learn(self, X: Stacked, Y: Any) -> Coding:
        """Read the number of features off the training data."""
        return MatchingCoding(self, X.n_features)


@dataclass(frozen=True, eq=False)
class MatchingCoding(Coding):
    """A `MatchingModel` with its number of features."""

    model: MatchingModel
    n_features: int

    def core(self, X: Stacked, Y: Any) -> _core.StructuredModel:
        """Hand the pairs' features to the core."""
        truth = None
        if Y is not None:
            labels = [right_pairs(y, index) for index, y in enumerate(Y)]
            offsets = np.cumsum([0, *(len(label) for label in labels)], dtype=np.int64)
            truth = (np.concatenate(labels).tolist(), offsets)
        return _core.StructuredModel.matching(
            core_rows(X.rows),
            X.sizes or [],
            truth,
            false_positive_cost=float(self.model.false_positive_cost),
            false_negative_cost=float(self.model.false_negative_cost),
        )

    def labels(self, offsets: NDArray[np.int64], flat: NDArray[np.uint32]) -> list[Any]:
        """Return an array of (row, column) pairs for each example."""
        found = []
        for columns in np.split(flat, offsets[1:-1]):
            rows = np.flatnonzero(columns != np.iinfo(np.uint32).max)
            found.append(np.column_stack([rows, columns[rows].astype(np.int64)]))
        return found

    def parameters(self, coef: FloatArray) -> dict[str, FloatArray]:
        """Return the weights of the features."""
        return {"weight": coef}

    def maximum_losses(self, X: Stacked, Y: Any) -> FloatArray:
        """Return what it costs to miss all right pairs and to choose as many wrong ones as fit."""
        found = []
        for (n_rows, n_columns), y in zip(X.sizes or [], Y, strict=True):
            missed = len(y) * self.model.false_negative_cost
            found.append(missed + min(n_rows, n_columns) * self.model.false_positive_cost)
        return np.array(found, dtype=np.float64)
