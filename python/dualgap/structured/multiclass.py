"""Multi-class SVM as a structured model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._estimator import storable
from dualgap._validation import FloatArray, core_rows, real_array
from dualgap._validation.labels import sorted_classes
from dualgap.structured._arrays import Stacked, count_wrong, encode, matrix, one_label_each
from dualgap.structured.models import BuiltinModel, Coding

__all__ = ["MulticlassModel"]


@storable
@dataclass(eq=False, repr=False)
class MulticlassModel(BuiltinModel):
    """Multi-class SVM as a structured model: each example has one of several classes.

    Examples are the rows of an array or CSR matrix of shape (n_examples, n_features), labels are
    classes of any kind. The score of a class is ``<weight[:, class], x>``.

    Parameters
    ----------
    costs : array-like of shape (n_classes, n_classes), optional
        Loss of predicting a class (column) for an example of another class (row), in the order of
        the sorted classes. It must be 0 on the diagonal. By default, it is 1 off the diagonal.
    """

    costs: Any = None

    def stack(self, X: Any) -> Stacked:
        """Check examples and concatenate their rows."""
        return matrix(X)

    def learn(self, X: Stacked, y: Any) -> Coding:
        """Read the classes and the number of features from the training data."""
        classes, _ = sorted_classes("y", one_label_each(y, len(X)))
        model = self if self.costs is None else replace(self, costs=np.array(self.costs))
        return MulticlassCoding(model, classes, X.n_features)


@storable
@dataclass(frozen=True, eq=False)
class MulticlassCoding(Coding):
    """A `MulticlassModel` with its classes."""

    model: MulticlassModel
    classes: NDArray[Any]
    n_features: int

    def core(self, X: Stacked, y: Any) -> _core.StructuredModel:
        """Create the core's model of rows."""
        labels = None
        if y is not None:
            labels = encode(one_label_each(y, len(X)), self.classes)
        return _core.StructuredModel.multiclass(
            core_rows(X.rows), labels, n_classes=len(self.classes), costs=self._costs()
        )

    def labels(self, offsets: NDArray[np.int64], flat: NDArray[np.uint32]) -> Any:
        """Return the class of each example, of shape (n_examples,)."""
        return self.classes[flat]

    def parameters(self, coef: FloatArray) -> dict[str, FloatArray]:
        """Return the weights, of shape (n_features, n_classes)."""
        return {"weight": coef.reshape(self.n_features, len(self.classes))}

    def losses(self, X: Stacked, y: Any, coef: FloatArray, n_threads: int) -> FloatArray:
        """Return the cost of each prediction.

        Without costs, a true class that did not occur in training counts as wrong.
        """
        if self.model.costs is not None:
            return super().losses(X, y, coef, n_threads)
        offsets, codes = self.core(X, None).decode(coef, n_threads)
        return count_wrong(one_label_each(y, len(X)), offsets, self.classes, codes)

    def maximum_losses(self, X: Stacked, y: Any) -> FloatArray:
        """Return the largest possible loss of each example: the largest cost for its true class."""
        costs = self._costs()
        if costs is None:
            return np.ones(len(y))
        codes = encode(one_label_each(y, len(X)), self.classes)
        return np.asarray(costs.reshape(len(self.classes), -1).max(axis=1)[codes])

    def _costs(self) -> FloatArray | None:
        if self.model.costs is None:
            return None
        costs = real_array("costs", self.model.costs)
        k = len(self.classes)
        if costs.shape != (k, k):
            msg = f"costs: must have shape ({k}, {k}), got {costs.shape}"
            raise ValueError(msg)
        return costs.ravel()
