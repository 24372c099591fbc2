"""Structured models: the protocol of custom models, and the base of built-in ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from dualgap import _core
from dualgap._validation import FloatArray
from dualgap.structured._arrays import Stacked

__all__ = ["BuiltinModel", "Coding", "Model"]


@runtime_checkable
class Model(Protocol):
    """A custom structured model: any object with these methods.

    Examples ``x`` and labels ``y`` may be any objects. All methods must be deterministic. Calls
    hold Python's global lock; built-in models decode in parallel instead. Decoding must be exact,
    because a label that is not a maximiser makes the certificate wrong. For approximate decoding,
    set ``StructuredSVM(exact_decoder=False)``.

    `StructuredSVM.predict` and ``verify_decoder`` call a further method, ``decode(x, w)``, which
    returns a ``y`` that maximises ``w @ joint_features(x, y)``. Training with
    ``verify_decoder=False`` does not require it.

    Weights ``w`` are read-only. The optional method ``max_loss(y)`` returns the largest loss for a
    true label ``y`` (default 1), by which `StructuredSVM.score` divides. The optional method
    ``check(x, y)`` is called with every true or decoded label, and raises an exception for a label
    that is not feasible for ``x``.
    """

    def joint_features(self, x: Any, y: Any) -> ArrayLike:
        """Return phi(x, y), finite and of shape (n_weights,) for all x and y."""
        ...

    def loss(self, y_true: Any, y: Any) -> float:
        """Return the loss of ``y`` if ``y_true`` is true: at least 0, and 0 for ``y_true``."""
        ...

    def loss_augmented_decode(self, x: Any, y_true: Any, w: FloatArray) -> Any:
        """Return a ``y`` that maximises ``loss(y_true, y) + w @ joint_features(x, y)``."""
        ...


class Coding(ABC):
    """A built-in model together with the shapes and classes of its training data."""

    model: BuiltinModel
    n_features: int

    def stack(self, X: Any) -> Stacked:
        """Read examples, and check that they have as many features as the training data."""
        return self.model.stack(X).check_features(type(self.model).__name__, self.n_features)

    def zeros(self) -> Any:
        """Return one example whose features are all 0."""
        return np.zeros((1, self.n_features))

    @abstractmethod
    def core(self, X: Stacked, y: Any) -> _core.StructuredModel:
        """Create the core's model of examples, with their labels unless ``y`` is None."""

    def decode(self, X: Stacked, coef: FloatArray, n_threads: int) -> Any:
        """Return the best label of each example."""
        return self.labels(*self.core(X, None).decode(coef, n_threads))

    @abstractmethod
    def labels(self, offsets: NDArray[np.int64], flat: NDArray[np.uint32]) -> Any:
        """Return decoded labels in the form of the training labels."""

    @abstractmethod
    def parameters(self, coef: FloatArray) -> dict[str, FloatArray]:
        """Return named views of the weights."""

    def losses(self, X: Stacked, y: Any, coef: FloatArray, n_threads: int) -> FloatArray:
        """Return the loss of each example's prediction."""
        return self.core(X, y).losses(coef, n_threads)

    @abstractmethod
    def maximum_losses(self, X: Stacked, y: Any) -> FloatArray:
        """Return the largest possible loss of each example."""


class BuiltinModel(BaseEstimator, ABC):  # type: ignore[misc]
    """A model that the core decodes, with scikit-learn parameters."""

    @abstractmethod
    def stack(self, X: Any) -> Stacked:
        """Check examples and concatenate their rows."""

    @abstractmethod
    def learn(self, X: Stacked, y: Any) -> Coding:
        """Return the model with the shapes and classes of training data."""
