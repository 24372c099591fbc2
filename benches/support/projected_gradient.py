"""Polynomial networks by accelerated projected gradient from a random basis.

See section 6.4 of Blondel et al. (2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax


def project(values: Any, radius: float) -> Any:
    """Return the nearest matrix whose row norms sum to at most ``radius``."""
    lengths = np.linalg.norm(values, axis=1)
    if lengths.sum() <= radius:
        return values
    sorted_ = np.sort(lengths)[::-1]
    levels = (np.cumsum(sorted_) - radius) / np.arange(1, len(lengths) + 1)
    level = levels[np.flatnonzero(sorted_ > levels)[-1]]
    return values * (np.maximum(lengths - level, 0.0) / np.maximum(lengths, 1e-300))[:, None]


class RandomStart:
    """Fit basis and output layer together: logistic loss, norm l1/l2, augmented rows."""

    def __init__(self, n_components: int, radius: float, iterations: int = 500) -> None:
        self.n_components, self.radius, self.iterations = n_components, radius, iterations

    def fit(self, X: Any, y: Any) -> RandomStart:
        X, k = np.column_stack([X, np.ones(len(X))]), self.n_components
        labels = np.eye(int(y.max()) + 1)[y]
        rng = np.random.default_rng(0)
        basis = rng.normal(size=(k, X.shape[1]))
        basis /= np.linalg.norm(basis, axis=1, keepdims=True)
        # Scale the output layer by the mean norm of its rows; one step length then suits both
        # layers.
        unit = self.radius / k
        point = np.hstack([basis, 0.01 * rng.normal(size=(k, labels.shape[1]))])
        d = X.shape[1]

        def value(point: Any) -> float:
            outputs = (X @ point[:, :d].T) ** 2 @ (unit * point[:, d:])
            return float(-(log_softmax(outputs, axis=1) * labels).sum())

        def gradient(point: Any) -> Any:
            scores, output = X @ point[:, :d].T, unit * point[:, d:]
            residual = softmax(scores**2 @ output, axis=1) - labels
            to_basis = (2.0 * scores * (residual @ output.T)).T @ X
            return np.hstack([to_basis, unit * ((scores**2).T @ residual)])

        def feasible(point: Any) -> Any:
            basis, output = point[:, :d], point[:, d:]
            basis = basis / np.maximum(np.linalg.norm(basis, axis=1, keepdims=True), 1.0)
            return np.hstack([basis, project(output, self.radius / unit)])

        old, momentum, step, best = point, 1.0, 1e-3, value(point)
        ahead = point
        for _ in range(self.iterations):
            slope, start = gradient(ahead), value(ahead)
            step *= 1.5
            while True:
                point = feasible(ahead - step * slope)
                move = point - ahead
                bound = start + (slope * move).sum() + (move**2).sum() / (2.0 * step)
                reached = value(point)
                if reached <= bound or step < 1e-14:
                    break
                step *= 0.5
            if reached > best:  # restart
                ahead, momentum = old, 1.0
                continue
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = point + (momentum - 1.0) / following * (point - old)
            old, momentum, best = point, following, reached
        self.basis, self.output = old[:, :d], unit * old[:, d:]
        return self

    def score(self, X: Any, y: Any) -> float:
        X = np.column_stack([X, np.ones(len(X))])
        outputs = (X @ self.basis.T) ** 2 @ self.output
        return float((outputs.argmax(axis=1) == y).mean())
