"""A structured model written in Python, as the core sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualgap._base import FloatArray
from dualgap.models import Model


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
