"""Classes without weight, whose intercepts have no optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dualgap._validation import FloatArray

__all__ = ["PresentClasses"]

# exp(-800) is 0 in double precision, and so is its product with any number of rows.
_NEVER = 800.0


@dataclass(frozen=True)
class PresentClasses:
    """The classes with weight in a problem with intercepts.

    The intercept of a class without weight has no optimum: the objective decreases as the intercept
    goes to minus infinity. Such a class is left out. In the limit, the objective is that of the
    problem with the other classes.

    Parameters
    ----------
    places : ndarray of shape (n_kept,)
        The classes of the smaller problem.
    n_classes : int
        Number of all classes.
    sizes : ndarray of shape (n_features,)
        Largest absolute value of each column, or an upper bound on it.
    """

    places: NDArray[np.intp]
    n_classes: int
    sizes: FloatArray

    @classmethod
    def of(cls, class_weights: NDArray[Any], sizes: Callable[[], FloatArray]) -> Self | None:
        """Return the classes with weight, or None if no class can be left out."""
        has_weight = class_weights > 0.0
        n_classes = len(has_weight)
        if has_weight.sum() < 2:
            # The core's smallest problem has two classes.
            has_weight[np.flatnonzero(~has_weight)[:1]] = True
        if n_classes == 2 or has_weight.all():
            return None
        return cls(np.flatnonzero(has_weight), n_classes, sizes())

    @property
    def numbers(self) -> NDArray[np.uint32]:
        """The number of each class in the smaller problem; 0 for classes that are left out."""
        numbers = np.zeros(self.n_classes, dtype=np.uint32)
        numbers[self.places] = np.arange(len(self.places))
        return numbers

    @property
    def scale(self) -> float:
        """The number that multiplies C: 2 if two classes are left, else 1.

        With two classes, the core fits only the difference of the two vectors. Its squared norm is
        twice the sum of the squared norms of these two vectors.
        """
        return 2.0 if len(self.places) == 2 else 1.0

    def expand(self, weights: FloatArray, intercepts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weights and intercepts of all classes.

        On the training rows, the scores of classes whose examples all have weight 0 are far enough
        below the largest score that their probabilities are 0. The mean score of the other classes
        is at least the mean intercept minus the largest contribution of the mean weights.
        """
        if len(weights) == 1:
            weights = np.concatenate([-weights, weights]) / 2
            intercepts = np.concatenate([-intercepts, intercepts]) / 2
        coef = np.zeros((self.n_classes, weights.shape[1]))
        coef[self.places] = weights
        lowest = intercepts.mean() - np.abs(weights.mean(axis=0)) @ self.sizes
        intercept = np.full(self.n_classes, lowest - _NEVER * (1.0 + 1e-9 * abs(lowest)))
        intercept[self.places] = intercepts
        return coef, intercept
