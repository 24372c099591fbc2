"""Predictions and scores of given weights, for fitted estimators and pieces of a path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from dualgap._validation import FloatArray, example_weights, resolve_threads
from dualgap.structured._arrays import Examples, count_examples, numpy_examples
from dualgap.structured._oracle import predict_with
from dualgap.structured.models import Coding

__all__ = ["Predictor"]


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model: the coding of a built-in model, or a custom model."""

    model: Any
    coding: Coding | None
    n_jobs: int | None

    def predict(self, X: Examples, coef: FloatArray) -> Any:
        """Return the highest-scoring label of each example."""
        if self.coding is None:
            return predict_with(self.model, X, coef)
        X = numpy_examples("X", X)
        if not issparse(X) and len(X) == 0:
            return self.coding.labels(np.zeros(1, np.int64), np.zeros(0, np.uint32))[:0]
        weights = np.ascontiguousarray(coef)
        return self.coding.decode(self.coding.stack(X), weights, resolve_threads(self.n_jobs))

    def score(
        self, X: Examples, y: Examples, coef: FloatArray, sample_weight: ArrayLike | None
    ) -> float:
        """Return one minus the ratio of the predictions' loss to the largest possible loss."""
        if self.coding is not None:
            X, y = numpy_examples("X", X), numpy_examples("y", y)
        weights = example_weights(sample_weight, count_examples(X, y))
        if self.coding is not None:
            examples, n_threads = self.coding.stack(X), resolve_threads(self.n_jobs)
            losses = self.coding.losses(examples, y, np.ascontiguousarray(coef), n_threads)
            largest = self.coding.maximum_losses(examples, y)
        else:
            own = self.model
            found = self.predict(X, coef)
            losses = np.array(
                [float(own.loss(right, z)) for right, z in zip(y, found, strict=True)]
            )
            max_loss = getattr(own, "max_loss", lambda _: 1.0)
            largest = np.array([float(max_loss(right)) for right in y])
        total = float(np.dot(largest, np.ones(len(largest)) if weights is None else weights))
        lost = float(losses.sum() if weights is None else np.dot(losses, weights))
        return 1.0 - lost / total if total > 0 else 1.0
