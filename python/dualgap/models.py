"""Structured models: what labels look like, and how they are scored and decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from dualgap import _core
from dualgap._base import FloatArray, core_rows

__all__ = [
    "BuiltinModel",
    "ChainModel",
    "Model",
]


@runtime_checkable
class Model(Protocol):
    """A structured model of your own: any object with these four methods.

    Examples ``x`` and labels ``y`` may be anything. All methods must be deterministic. They are
    called with Python's global lock held; built-in models decode in parallel instead.

    An optional method ``max_loss(y)`` gives the largest loss for a right label ``y`` (default 1),
    which `StructuredSVM.score` divides by. An optional method ``check(x, y)`` is called with every
    label, right or decoded, and raises an exception if the label is not a feasible one for ``x``.
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

    def largest_losses(self, X: Any, Y: Any) -> FloatArray:
        """Return the lengths, or ones for the mean loss."""
        lengths = np.array([len(y) for y in Y], dtype=np.float64)
        return lengths if self.model.loss == "hamming" else np.minimum(lengths, 1.0)


class PythonOracle:
    """What the core sees of a `Model` written in Python; checks all that the model returns."""

    def __init__(self, model: Any, X: Sequence[Any], Y: Sequence[Any]) -> None:
        if not isinstance(model, Model):
            names = ("joint_features", "loss", "loss_augmented_decode", "decode")
            missing = ", ".join(name for name in names if not hasattr(model, name))
            msg = f"model: must be a built-in model or have the method(s) {missing}"
            raise ValueError(msg)
        self.model, self.X, self.Y = model, X, Y
        self.check = getattr(model, "check", lambda _x, _y: None)
        self.n_weights = 0
        self.right = []
        for index, (x, y) in enumerate(zip(X, Y, strict=True)):
            self.check(x, y)
            self.right.append(self._features(index, y))
            self.n_weights = len(self.right[0])
            if self._loss(index, y) != 0.0:
                msg = f"model: loss(y, y) must be 0, and is not for the label of example {index}"
                raise ValueError(msg)

    def vertices(self, indices: list[int], weights: FloatArray) -> list[tuple[FloatArray, float]]:
        """Return phi(x, y) - phi(x, y_true) and the loss at each loss-augmented decoding y."""
        return [self._vertex(index, weights) for index in indices]

    def _vertex(self, index: int, weights: FloatArray) -> tuple[FloatArray, float]:
        x, right = self.X[index], self.Y[index]
        y = self.model.loss_augmented_decode(x, right, weights)
        self.check(x, y)
        loss = self._loss(index, y)
        features = self._features(index, y) - self.right[index]
        margin = loss + float(features @ weights)
        scale = 1.0 + loss + float(np.abs(features) @ np.abs(weights))
        if margin < -1e-9 * scale:
            msg = (
                f"model: loss_augmented_decode returned a label for example {index} that scores "
                f"{-margin:.3g} less than the right one; it must return a maximiser"
            )
            raise ValueError(msg)
        return features, loss

    def _features(self, index: int, y: Any) -> FloatArray:
        features = np.ascontiguousarray(
            self.model.joint_features(self.X[index], y), dtype=np.float64
        )
        if features.ndim != 1 or (self.n_weights and len(features) != self.n_weights):
            length = self.n_weights or "n_weights"
            msg = (
                f"model: joint_features must return an array of shape ({length},), and returned "
                f"{features.shape} for example {index}"
            )
            raise ValueError(msg)
        if not np.isfinite(features).all():
            msg = f"model: joint_features returned values that are not finite for example {index}"
            raise ValueError(msg)
        return features

    def _loss(self, index: int, y: Any) -> float:
        loss = float(self.model.loss(self.Y[index], y))
        if not (np.isfinite(loss) and loss >= 0.0):
            msg = f"model: loss must be finite and not negative, got {loss} for example {index}"
            raise ValueError(msg)
        return loss


def count_examples(X: Any, Y: Any) -> int:
    """Return the number of examples, and refuse it if there are not as many labels."""
    n_examples = X.shape[0] if sp.issparse(X) else len(X)
    if n_examples == 0:
        msg = "X: there must be at least one example"
        raise ValueError(msg)
    if len(Y) != n_examples:
        msg = f"Y: there must be one label for each example, got {len(Y)} for {n_examples}"
        raise ValueError(msg)
    return int(n_examples)


def stack(X: Any, n_features: int | None = None) -> tuple[Any, NDArray[np.int64]]:
    """Stack the rows of all examples; return them with the offsets of the examples."""
    blocks = [check_block(x, index) for index, x in enumerate(X)]
    widths = {block.shape[1] for block in blocks} | ({n_features} if n_features else set())
    if len(widths) != 1:
        msg = f"X: all examples must have the same number of features, got {sorted(widths)}"
        raise ValueError(msg)
    offsets = np.cumsum([0, *(block.shape[0] for block in blocks)], dtype=np.int64)
    if any(sp.issparse(block) for block in blocks):
        return sp.vstack(blocks, format="csr"), offsets
    return np.concatenate(blocks), offsets


def check_block(x: Any, index: int) -> Any:
    """Return one example's rows, finite and two-dimensional."""
    try:
        return check_array(
            x, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=0
        )
    except ValueError as error:
        msg = f"X: example {index} must be a matrix of finite numbers: {error}"
        raise ValueError(msg) from error


def encode(Y: Any, offsets: NDArray[np.int64], classes: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the indices of all labels' classes after one another."""
    lengths = np.array([len(y) for y in Y], dtype=np.int64)
    wrong = np.flatnonzero(lengths != np.diff(offsets))
    if len(wrong):
        index = int(wrong[0])
        msg = (
            f"Y: label {index} has {lengths[index]} entries, and its example has "
            f"{offsets[index + 1] - offsets[index]} rows"
        )
        raise ValueError(msg)
    if offsets[-1] == 0:
        return np.zeros(0, dtype=np.uint32)
    flat = np.concatenate([np.asarray(y) for y in Y if len(y)])
    codes = np.searchsorted(classes, flat)
    unknown = classes[np.minimum(codes, len(classes) - 1)] != flat
    if unknown.any():
        msg = f"Y: the class {flat[unknown][0]!r} did not occur in training"
        raise ValueError(msg)
    return codes.astype(np.uint32)
