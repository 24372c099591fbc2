"""Adapts structured models written in Python to the interface of the core."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import Any

import numpy as np

from dualgap._sparse import check_sparse
from dualgap._validation import FloatArray
from dualgap._validation.copies import collect
from dualgap.structured._arrays import Examples

VERIFIED = 100
"""Number of examples on which the oracle is compared with plain decoding after a fit."""


class PythonOracle:
    """Wraps a custom `Model` in the interface that the core calls, and checks every result."""

    def __init__(self, model: Any, X: Examples, y: Examples, *, verify: bool, exact: bool) -> None:
        names = ["joint_features", "loss", "loss_augmented_decode", *["decode"] * verify]
        missing = [name for name in names if not hasattr(model, name)]
        if missing:
            msg = f"model: must be a built-in model or have the method(s) {', '.join(missing)}"
            if missing == ["decode"]:
                msg += "; with verify_decoder=False, training works without it, predict does not"
            raise ValueError(msg)
        if any(hasattr(values, "columns") or isinstance(values, dict) for values in (X, y)):
            msg = "X: a custom model takes sequences of examples and labels, got a table"
            raise ValueError(msg)
        self.model, self.X, self.y = model, list(X), list(y)
        self.exact = exact
        self.n_weights = -1
        self.right: list[FloatArray] = []
        for index, (x, label) in enumerate(zip(self.X, self.y, strict=True)):
            check_label(model, x, label)
            self.right.append(self._features(index, label))
            self.n_weights = len(self.right[0])
            if self._loss(index, label) != 0.0:
                msg = f"model: loss(y, y) must be 0 for the label of example {index}"
                raise ValueError(msg)

    @property
    def norm(self) -> float:
        """Return the largest norm of the joint features of a true label."""
        return float(max(np.linalg.norm(features) for features in self.right))

    def vertices(self, indices: list[int], weights: FloatArray) -> list[tuple[FloatArray, float]]:
        """Return phi(x, y) - phi(x, y_true) and the loss at each loss-augmented decoding y."""
        weights.setflags(write=False)
        return [self._vertex(index, weights) for index in indices]

    def doubt(self, weights: FloatArray) -> str | None:
        """Return a reason why the certificate may be wrong, or None.

        Loss-augmented decoding is compared with plain decoding on the first examples. An exception
        in either is returned as a reason, so that the finished fit is not lost.
        """
        try:
            return self._missed(weights)
        except Exception as error:
            return f"the model failed when its decodings were compared ({error!r})"

    def _missed(self, weights: FloatArray) -> str | None:
        """Describe a label that `decode` found and loss-augmented decoding missed; else None."""
        frozen = weights.copy()
        frozen.setflags(write=False)
        for index in range(min(len(self.X), VERIFIED)):
            best, loss = self._vertex(index, frozen)
            margin = loss + float(best @ frozen)
            y = self.model.decode(self.X[index], frozen)
            self._check_decoded("decode", index, y)
            features = self._features(index, y) - self.right[index]
            other = self._loss(index, y) + float(features @ frozen)
            if other > margin + 1e-6 * (1.0 + abs(margin) + abs(other)):
                return (
                    f"loss_augmented_decode missed the label of example {index} that decode "
                    f"returns, which scores {other - margin:.3g} more; it must return a maximiser"
                )
        return None

    def _check_decoded(self, name: str, index: int, y: Any) -> None:
        """Raise a ValueError for None (from a missing ``return``), unless None is a label."""
        if y is None and not any(label is None for label in self.y):
            msg = f"model: {name} returned None for example {index}; it must return a label"
            raise ValueError(msg)

    def _vertex(self, index: int, weights: FloatArray) -> tuple[FloatArray, float]:
        x, right = self.X[index], self.y[index]
        y = self.model.loss_augmented_decode(x, right, weights)
        self._check_decoded("loss_augmented_decode", index, y)
        check_label(self.model, x, y)
        loss = self._loss(index, y)
        features = self._features(index, y) - self.right[index]
        margin = loss + float(features @ weights)
        scale = 1.0 + loss + float(np.abs(features) @ np.abs(weights))
        if margin < 0.0 and not self.exact:
            # The true label has a higher score than y, so return the vertex of the true label.
            return np.zeros_like(features), 0.0
        if margin < -1e-9 * scale:
            msg = (
                f"model: loss_augmented_decode returned a label for example {index} that scores "
                f"{-margin:.3g} less than the true label; return a maximiser, or set "
                "exact_decoder=False"
            )
            raise ValueError(msg)
        return features, loss

    def _features(self, index: int, y: Any) -> FloatArray:
        returned = self.model.joint_features(self.X[index], y)
        if np.iscomplexobj(returned):
            msg = f"model: joint_features returned complex numbers for example {index}"
            raise ValueError(msg)
        try:
            # A copy, because the model may reuse the array for another label.
            features = np.array(returned, dtype=np.float64, order="C")
        except (TypeError, ValueError):
            features = np.zeros((0, 0))
        wanted = "n_weights" if self.n_weights < 0 else self.n_weights
        if features.ndim != 1 or returned is None or wanted not in ("n_weights", len(features)):
            msg = (
                f"model: joint_features must return an array of shape ({wanted},), got "
                f"{type(returned).__name__} {np.shape(features)} for example {index}"
            )
            raise ValueError(msg)
        if not np.isfinite(features).all():
            msg = f"model: joint_features returned values that are not finite for example {index}"
            raise ValueError(msg)
        return features

    def _loss(self, index: int, y: Any) -> float:
        returned = self.model.loss(self.y[index], y)
        loss = float(returned) if isinstance(returned, Real) else np.nan
        if not (np.isfinite(loss) and loss >= 0.0):
            msg = (
                f"model: loss must be finite and not negative, got {returned!r} for example {index}"
            )
            raise ValueError(msg)
        return loss


def check_label(model: Any, x: Any, y: Any) -> None:
    """Call the optional method `check` of the model for a label."""
    if hasattr(model, "check"):
        model.check(x, y)


def predict_with(model: Any, X: Examples, weights: FloatArray) -> list[Any]:
    """Decode every example."""
    if not hasattr(model, "decode"):
        msg = "model: has no method decode, which predictions require"
        raise ValueError(msg)
    frozen = weights.copy()
    frozen.setflags(write=False)

    def decoded() -> Iterator[Any]:
        for x in list(check_sparse(X)):
            y = model.decode(x, frozen)
            check_label(model, x, y)
            yield y

    return collect(decoded(), "model: decode")
