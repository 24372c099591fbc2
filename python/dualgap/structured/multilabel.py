"""Sets of labels with pairwise interactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._choices import PartLoss
from dualgap._estimator import storable
from dualgap._validation import FloatArray, core_rows
from dualgap.structured._arrays import Stacked, indicators, matrix
from dualgap.structured.models import BuiltinModel, Coding

__all__ = ["MultilabelModel"]


@storable
@dataclass(eq=False, repr=False)
class MultilabelModel(BuiltinModel):
    """Sets of labels, with a weight for each joint state of two interacting labels.

    Examples are the rows of an array or CSR matrix of shape (n_examples, n_features), labels the
    rows of a 0/1 array of shape (n_examples, n_labels). The score of a label set is the sum of
    ``<weight[:, l], x>`` over its labels l and of ``pairwise[e, s_a, s_b]`` over the edges
    e = (a, b), where s_a says whether a is in the set. Decoding is exact: by message passing if the
    edges form a forest, else by enumeration, for at most 16 labels.

    Parameters
    ----------
    edges : {"full", "tree"} or sequence of pairs, default="full"
        Pairs of labels that interact. "full": all pairs. "tree": the pairs of the tree with the
        largest total mutual information in the training labels (Chow and Liu 1968). Otherwise the
        given pairs, possibly none.
    loss : {"hamming", "mean-hamming"}, default="mean-hamming"
        Number of wrong labels, or their fraction of all labels.
    """

    edges: Any = "full"
    loss: PartLoss = "mean-hamming"

    def stack(self, X: Any) -> Stacked:
        """Check examples and concatenate their rows."""
        return matrix(X)

    def learn(self, X: Stacked, y: Any) -> Coding:
        """Read the numbers of features and labels from the training data, and choose the edges."""
        labels = indicators(y)
        edges = self._edges()
        pairs = _core.StructuredModel.label_edges(labels.ravel(), labels.shape[1], edges)
        return MultilabelCoding(self, X.n_features, labels.shape[1], pairs)

    def _edges(self) -> str | list[list[int]]:
        if isinstance(self.edges, str):
            return self.edges
        pairs = np.asarray(self.edges if self.edges is not None else "none")
        if pairs.size == 0:
            return []
        whole = np.issubdtype(pairs.dtype, np.integer)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not whole or pairs.min() < 0:
            msg = 'edges: must be "full", "tree" or pairs of labels, integers from 0 on'
            raise ValueError(msg)
        return [[int(a), int(b)] for a, b in pairs]


@storable
@dataclass(frozen=True, eq=False)
class MultilabelCoding(Coding):
    """A `MultilabelModel` with its edges."""

    model: MultilabelModel
    n_features: int
    n_labels: int
    edges: list[list[int]]

    def core(self, X: Stacked, y: Any) -> _core.StructuredModel:
        """Create the core's model of rows."""
        labels = None if y is None else indicators(y, self.n_labels).ravel()
        return _core.StructuredModel.multilabel(
            core_rows(X.rows),
            labels,
            n_labels=self.n_labels,
            edges=self.edges,
            loss=self.model.loss,
        )

    def labels(self, offsets: NDArray[np.int64], flat: NDArray[np.uint32]) -> Any:
        """Return a row of zeros and ones for each example, of shape (n_examples, n_labels)."""
        return flat.reshape(-1, self.n_labels).astype(np.int64)

    def parameters(self, coef: FloatArray) -> dict[str, FloatArray]:
        """Return weights (n_features, n_labels) and pairwise weights (n_edges, 2, 2)."""
        weight, pairwise = np.split(coef, [self.n_features * self.n_labels])
        return {
            "weight": weight.reshape(-1, self.n_labels),
            "pairwise": pairwise.reshape(-1, 2, 2),
        }

    def maximum_losses(self, X: Stacked, y: Any) -> FloatArray:
        """Return the largest possible loss of each example: `n_labels`, or 1 for the mean loss."""
        return np.full(
            np.shape(y)[0], float(self.n_labels) if self.model.loss == "hamming" else 1.0
        )
