"""Structured models: what labels look like, and how they are scored and decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualgap import _core
from dualgap._base import FloatArray, core_rows
from dualgap._examples import (
    count_wrong,
    encode,
    indicators,
    matrix,
    pair_features,
    right_pairs,
    stack,
)

__all__ = [
    "BuiltinModel",
    "ChainModel",
    "MatchingModel",
    "Model",
    "MulticlassModel",
    "MultilabelModel",
]


@runtime_checkable
class Model(Protocol):
    """A structured model of your own: any object with these four methods.

    Examples ``x`` and labels ``y`` may be anything. All methods must be deterministic. They are
    called with Python's global lock held; built-in models decode in parallel instead. Decodings
    must be exact: what is not the maximum makes the certificate untrue.

    Weights ``w`` are read-only. An optional method ``max_loss(y)`` gives the largest loss for a
    right label ``y`` (default 1), which `StructuredSVM.score` divides by. An optional method
    ``check(x, y)`` is called with every label, right or decoded, and raises an exception if the
    label is not a feasible one for ``x``.
    """

    def joint_features(self, x: Any, y: Any) -> ArrayLike:
        """Return phi(x, y), of shape (n_weights,), always of the same length and finite."""
        ...

    def loss(self, y_true: Any, y: Any) -> float:
        """Return the loss of ``y`` where ``y_true`` is right: not negative, and 0 for itself."""
        ...

    def loss_augmented_decode(self, x: Any, y_true: Any, w: FloatArray) -> Any:
        """Return a ``y`` that maximises ``loss(y_true, y) + w @ joint_features(x, y)``."""
        ...

    def decode(self, x: Any, w: FloatArray) -> Any:
        """Return a ``y`` that maximises ``w @ joint_features(x, y)``."""
        ...


class Coding(ABC):
    """A built-in model that has seen training data: shapes and classes are known."""

    @abstractmethod
    def core(self, X: Any, Y: Any) -> _core.StructuredModel:
        """Hand examples to the core, with their labels unless ``Y`` is None."""

    @abstractmethod
    def labels(self, offsets: NDArray[np.int64], flat: NDArray[np.uint32]) -> list[Any]:
        """Return decoded labels as the user writes them."""

    @abstractmethod
    def parameters(self, coef: FloatArray) -> dict[str, FloatArray]:
        """Return named views of the weights."""

    def losses(self, X: Any, Y: Any, coef: FloatArray, n_threads: int) -> FloatArray:
        """Return the loss of each example's prediction."""
        return self.core(X, Y).losses(coef, n_threads)

    @abstractmethod
    def largest_losses(self, X: Any, Y: Any) -> FloatArray:
        """Return the largest possible loss of each example."""


class BuiltinModel(ABC):
    """A model that the core decodes."""

    @abstractmethod
    def learn(self, X: Any, Y: Any) -> Coding:
        """Read shapes and classes off the training data."""


@dataclass(frozen=True)
class ChainModel(BuiltinModel):
    """Sequences whose neighbouring labels interact (letters of a word, tags of a sentence).

    An example is an array of shape (length, n_features), a row for each position, dense or CSR; its
    label is a sequence of `length` classes of any kind. Lengths may differ and may be 0. The score
    of a label is ``sum_t <node[:, y_t], x_t> + sum_t transition[y_{t-1}, y_t]``, decoded by the
    Viterbi algorithm.

    Parameters
    ----------
    boundaries : bool, default=False
        Whether there are weights for the class of the first and of the last position
        (``start[y_0] + end[y_last]``).
    loss : {"hamming", "mean-hamming"}, default="hamming"
        Number of wrong positions, or their share.
    """

    boundaries: bool = False
    loss: str = "hamming"

    def learn(self, X: Any, Y: Any) -> Coding:
        """Read the classes and the number of features off the training data."""
        rows, _ = stack(X)
        labels = [np.asarray(y) for y in Y]
        if any(label.ndim != 1 for label in labels):
            msg = "Y: each label must be a one-dimensional sequence of classes"
            raise ValueError(msg)
        found = np.unique(np.concatenate([label for label in labels if len(label)] or labels))
        if len(found) == 0:
            msg = "Y: there is no position in any sequence"
            raise ValueError(msg)
        return ChainCoding(self, found, rows.shape[1])


@dataclass(frozen=True, eq=False)
class ChainCoding(Coding):
    """A `ChainModel` with its classes."""

    model: ChainModel
    classes: NDArray[Any]
    n_features: int

    def core(self, X: Any, Y: Any) -> _core.StructuredModel:
        """Hand sequences to the core."""
        rows, offsets = stack(X, self.n_features)
        return _core.StructuredModel.chain(
            core_rows(rows),
            offsets,
            None if Y is None else encode(Y, offsets, self.classes),
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

    def losses(self, X: Any, Y: Any, coef: FloatArray, n_threads: int) -> FloatArray:
        """Return how many classes are wrong; what did not occur in training always is."""
        offsets, codes = self.core(X, None).decode(coef, n_threads)
        wrong = count_wrong(Y, offsets, self.classes[codes])
        return wrong if self.model.loss == "hamming" else wrong / np.maximum(np.diff(offsets), 1)

    def largest_losses(self, X: Any, Y: Any) -> FloatArray:
        """Return the lengths, or ones for the mean loss."""
        lengths = np.array([len(y) for y in Y], dtype=np.float64)
        return lengths if self.model.loss == "hamming" else np.minimum(lengths, 1.0)


@dataclass(frozen=True, eq=False)
class MulticlassModel(BuiltinModel):
    """One of several classes for each example: the multi-class SVM as a structured one.

    Examples are the rows of an array or CSR matrix of shape (n_examples, n_features), labels are
    classes of any kind. The score of a class is ``<weight[:, class], x>``.

    Parameters
    ----------
    costs : array-like of shape (n_classes, n_classes), optional
        Loss of predicting a class (column) where another is right (row), in the order of the sorted
        classes, 0 on the diagonal; 1 off the diagonal by default.
    """

    costs: Any = None

    def learn(self, X: Any, Y: Any) -> Coding:
        """Read the classes and the number of features off the training data."""
        return MulticlassCoding(self, np.unique(np.asarray(Y)), matrix(X).shape[1])


@dataclass(frozen=True, eq=False)
class MulticlassCoding(Coding):
    """A `MulticlassModel` with its classes."""

    model: MulticlassModel
    classes: NDArray[Any]
    n_features: int

    def core(self, X: Any, Y: Any) -> _core.StructuredModel:
        """Hand rows to the core."""
        rows = matrix(X, self.n_features)
        labels = None
        if Y is not None:
            labels = encode(np.asarray(Y)[:, None], np.arange(len(Y) + 1), self.classes)
        return _core.StructuredModel.multiclass(
            core_rows(rows), labels, n_classes=len(self.classes), costs=self._costs()
        )

    def labels(self, offsets: NDArray[np.int64], flat: NDArray[np.uint32]) -> list[Any]:
        """Return a class for each example."""
        return list(self.classes[flat])

    def parameters(self, coef: FloatArray) -> dict[str, FloatArray]:
        """Return the weights of shape (n_features, n_classes)."""
        return {"weight": coef.reshape(self.n_features, len(self.classes))}

    def losses(self, X: Any, Y: Any, coef: FloatArray, n_threads: int) -> FloatArray:
        """Return the costs; without any, what did not occur in training is wrong, too."""
        if self.model.costs is not None:
            return super().losses(X, Y, coef, n_threads)
        offsets, codes = self.core(X, None).decode(coef, n_threads)
        return count_wrong(np.asarray(Y)[:, None], offsets, self.classes[codes])

    def largest_losses(self, X: Any, Y: Any) -> FloatArray:
        """Return the largest cost of each example's class."""
        costs = self._costs()
        if costs is None:
            return np.ones(len(Y))
        codes = np.searchsorted(self.classes, np.asarray(Y))
        return np.asarray(costs.reshape(len(self.classes), -1).max(axis=1)[codes])

    def _costs(self) -> FloatArray | None:
        if self.model.costs is None:
            return None
        costs = np.ascontiguousarray(self.model.costs, dtype=np.float64)
        k = len(self.classes)
        if costs.shape != (k, k):
            msg = f"costs: must have shape ({k}, {k}), got {costs.shape}"
            raise ValueError(msg)
        return costs.ravel()


@dataclass(frozen=True)
class MultilabelModel(BuiltinModel):
    """Sets of labels, with a weight for each joint state of two labels that interact.

    Examples are the rows of an array or CSR matrix of shape (n_examples, n_features), labels the
    rows of a 0/1 array of shape (n_examples, n_labels). The score of a label set is the sum of
    ``<weight[:, l], x>`` over its labels l and of ``pairwise[e, s_a, s_b]`` over the edges
    e = (a, b), where s_a says whether a is in the set. Decoding is exact: by messages where the
    edges form a forest, else by enumeration, for at most 16 labels.

    Parameters
    ----------
    edges : {"full", "tree"} or sequence of pairs, default="full"
        Labels that interact: all pairs; the tree of the pairs with the largest mutual information
        in the training labels (Chow and Liu 1968); or the pairs given, of which there may be none.
    loss : {"hamming", "mean-hamming"}, default="mean-hamming"
        Number of wrong labels, or their share.
    """

    edges: Any = "full"
    loss: str = "mean-hamming"

    def learn(self, X: Any, Y: Any) -> Coding:
        """Read the numbers of features and labels and the edges off the training data."""
        labels = indicators(Y)
        edges = self._edges()
        pairs = _core.StructuredModel.label_edges(labels.ravel(), labels.shape[1], edges)
        return MultilabelCoding(self, matrix(X).shape[1], labels.shape[1], pairs)

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


@dataclass(frozen=True, eq=False)
class MultilabelCoding(Coding):
    """A `MultilabelModel` with its edges."""

    model: MultilabelModel
    n_features: int
    n_labels: int
    edges: list[list[int]]

    def core(self, X: Any, Y: Any) -> _core.StructuredModel:
        """Hand rows to the core."""
        rows = matrix(X, self.n_features)
        labels = None if Y is None else indicators(Y, self.n_labels).ravel()
        return _core.StructuredModel.multilabel(
            core_rows(rows),
            labels,
            n_labels=self.n_labels,
            edges=self.edges,
            loss=self.model.loss,
        )

    def labels(self, offsets: NDArray[np.int64], flat: NDArray[np.uint32]) -> list[Any]:
        """Return a 0/1 vector for each example."""
        return list(flat.reshape(-1, self.n_labels).astype(np.int64))

    def parameters(self, coef: FloatArray) -> dict[str, FloatArray]:
        """Return weights (n_features, n_labels) and pairwise ones (n_edges, 2, 2)."""
        weight, pairwise = np.split(coef, [self.n_features * self.n_labels])
        return {
            "weight": weight.reshape(-1, self.n_labels),
            "pairwise": pairwise.reshape(-1, 2, 2),
        }

    def largest_losses(self, X: Any, Y: Any) -> FloatArray:
        """Return the number of labels, or one for the mean loss."""
        return np.full(
            np.shape(Y)[0], float(self.n_labels) if self.model.loss == "hamming" else 1.0
        )


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

    def learn(self, X: Any, Y: Any) -> Coding:
        """Read the number of features off the training data."""
        return MatchingCoding(self, pair_features(X)[0].shape[1])


@dataclass(frozen=True, eq=False)
class MatchingCoding(Coding):
    """A `MatchingModel` with its number of features."""

    model: MatchingModel
    n_features: int

    def core(self, X: Any, Y: Any) -> _core.StructuredModel:
        """Hand the pairs' features to the core."""
        rows, sizes = pair_features(X, self.n_features)
        truth = None
        if Y is not None:
            labels = [right_pairs(y, index) for index, y in enumerate(Y)]
            offsets = np.cumsum([0, *(len(label) for label in labels)], dtype=np.int64)
            truth = (np.concatenate(labels).tolist(), offsets)
        return _core.StructuredModel.matching(
            core_rows(rows),
            sizes,
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

    def largest_losses(self, X: Any, Y: Any) -> FloatArray:
        """Return what it costs to miss all right pairs and to choose as many wrong ones as fit."""
        found = []
        for x, y in zip(X, Y, strict=True):
            n_rows, n_columns = np.shape(x)[:2]
            missed = len(y) * self.model.false_negative_cost
            found.append(missed + min(n_rows, n_columns) * self.model.false_positive_cost)
        return np.array(found, dtype=np.float64)
