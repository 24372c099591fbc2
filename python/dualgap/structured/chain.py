"""Chains: sequences whose neighbouring labels interact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._choices import PartLoss
from dualgap._estimator import storable
from dualgap._validation import FloatArray, core_rows
from dualgap._validation.labels import sorted_classes
from dualgap.structured._arrays import Stacked, count_wrong, encode, flatten_labels, stack
from dualgap.structured.models import BuiltinModel, Coding

__all__ = ["ChainModel"]


@storable
@dataclass(eq=False, repr=False)
class ChainModel(BuiltinModel):
    """Sequences whose neighbouring labels interact (letters of a word, tags of a sentence).

    An example is an array of shape (length, n_features), one row per position, dense or CSR; its
    label is a sequence of `length` classes of any kind. Lengths may differ and may be 0. The score
    of a label is ``sum_t <node[:, y_t], x_t> + sum_t transition[y_{t-1}, y_t]``, decoded by the
    Viterbi algorithm.

    Parameters
    ----------
    boundaries : bool, default=False
        Whether the classes of the first and of the last position have extra weights (``start[y_0] +
        end[y_last]``).
    loss : {"hamming", "mean-hamming"}, default="hamming"
        Number of wrong positions, or their fraction of all positions.
    """

    boundaries: bool = False
    loss: PartLoss = "hamming"

    def stack(self, X: Any) -> Stacked:
        """Check examples and concatenate their rows."""
        return stack(X)

    def learn(self, X: Stacked, y: Any) -> Coding:
        """Read the classes and the number of features from the training data."""
        found, _ = sorted_classes("y", flatten_labels(y, X.offsets))
        if len(found) == 0:
            msg = "y: there is no position in any sequence"
            raise ValueError(msg)
        return ChainCoding(self, found, X.n_features)


@storable
@dataclass(frozen=True, eq=False)
class ChainCoding(Coding):
    """A `ChainModel` with its classes."""

    model: ChainModel
    classes: NDArray[Any]
    n_features: int

    def zeros(self) -> Any:
        """Return one sequence of one position whose features are all 0."""
        return [np.zeros((1, self.n_features))]

    def core(self, X: Stacked, y: Any) -> _core.StructuredModel:
        """Create the core's model of sequences."""
        return _core.StructuredModel.chain(
            core_rows(X.rows),
            X.offsets,
            None if y is None else encode(flatten_labels(y, X.offsets), self.classes),
            n_states=len(self.classes),
            boundaries=bool(self.model.boundaries),
            loss=self.model.loss,
        )

    def labels(self, offsets: NDArray[np.int64], flat: NDArray[np.uint32]) -> list[Any]:
        """Return a sequence of classes for each example."""
        return list(np.split(self.classes[flat], offsets[1:-1]))

    def parameters(self, coef: FloatArray) -> dict[str, FloatArray]:
        """Return node (n_features, n_classes), transition, start and end weights."""
        k = len(self.classes)
        node, transition, ends = np.split(coef, np.cumsum([self.n_features * k, k * k]))
        named = {"node": node.reshape(-1, k), "transition": transition.reshape(k, k)}
        if self.model.boundaries:
            named |= {"start": ends[:k], "end": ends[k:]}
        return named

    def losses(self, X: Stacked, y: Any, coef: FloatArray, n_threads: int) -> FloatArray:
        """Return the loss of each prediction; a true class not seen in training counts as wrong."""
        offsets, codes = self.core(X, None).decode(coef, n_threads)
        wrong = count_wrong(flatten_labels(y, offsets), offsets, self.classes, codes)
        return wrong if self.model.loss == "hamming" else wrong / np.maximum(np.diff(offsets), 1)

    def maximum_losses(self, X: Stacked, y: Any) -> FloatArray:
        """Return the largest possible losses: the lengths; for the mean loss, 1 (0 if empty)."""
        lengths = np.array([len(label) for label in y], dtype=np.float64)
        return lengths if self.model.loss == "hamming" else np.minimum(lengths, 1.0)
