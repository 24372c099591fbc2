"""What a structured model is: the protocol of a user's own, and the base of those built in."""

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
    """A structured model of your own: any object with these methods.

    Examples ``x`` and labels ``y`` may be anything. All methods must be deterministic. They are
    called with Python's global lock held; built-in models decode in parallel instead. Decodings
    must be exact, since what is not the maximum makes the certificate untrue, unless the fit is
    told otherwise (``StructuredSVM(exact=False)``).

    A method ``decode(x, w)``, which returns a ``y`` that maximises ``w @ joint_features(x, y)``,
    is what `StructuredSVM.predict` calls and what ``verify`` compares the fit with. Only a model
    that is trained with ``verify=False`` can do without.

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


class Coding(ABC):
    """A built-in model that has seen training data: shapes and classes are known."""

    model: BuiltinModel
    n_features: int

    def stack(self, X: Any) -> Stacked:
        """Read examples, of as many features as in training."""
        return self.model.stack(X).check_features(type(self.model).__name__, self.n_features)

    def zeros(self) -> Any:
        """Return one example whose features are all 0."""
        return np.zeros((1, self.n_features))

    @abstractmethod
    def core(self, X: Stacked, y: Any) -> _core.StructuredModel:
        """Hand examples to the core, with their labels unless ``y`` is None."""

    def decode(self, X: Stacked, coef: FloatArray, n_threads: int) -> Any:
        """Return the best label of each example."""
        return self.labels(*self.core(X, None).decode(coef, n_threads))

    @abstractmethod
    def labels(self, offsets: NDArray[np.int64], flat: NDArray[np.uint32]) -> Any:
        """Return decoded labels as the user writes them."""

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
    """A model that the core decodes; its parameters are scikit-learn's."""

    @abstractmethod
    def stack(self, X: Any) -> Stacked:
        """Check examples and put their rows after one another."""

    @abstractmethod
    def learn(self, X: Stacked, y: Any) -> Coding:
        """Read shapes and classes off the training data."""
