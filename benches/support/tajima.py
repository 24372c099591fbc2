"""The batch methods of Tajima et al. (2020) in NumPy, with the objective of every iterate.

A fit of dualgap records the best model so far. This loop takes the same steps and records the
objective of each iterate, as the paper's figures do. The loss is weighted Usunier. The points of
its polytope are the vectors b >= 0 whose k largest entries add up to at most the sum of the first k
weights, for every k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Problem:
    """min lambda/2 ||W||^2 + mean_i loss_i(W x_i), with margins in columns of length n.

    Row j of the margins and of a dual point `b` belongs to class j. The entry of the label in `b`
    is 0.
    """

    def __init__(self, X: Array, y: NDArray[Any], weights: Any, smoothing: float, C: float) -> None:
        self.X, self.smoothing = X, smoothing
        self.n, self.m = len(y), int(y.max()) + 1
        self.label = (y, np.arange(self.n))
        self.costs = np.ones((self.m, self.n))
        self.costs[self.label] = 0.0
        self.weights = np.zeros((self.m, 1))
        self.weights[: self.m - 1, 0] = weights[: self.m - 1]
        self.lam = 1.0 / (C * self.n)

    def scores_of(self, b: Array) -> Array:
        """Return alpha(b): -b_j for the other classes, and the sum of b for the label."""
        alpha = -b
        alpha[self.label] = b.sum(axis=0)
        return alpha

    def image(self, alpha: Array) -> Array:
        """Return the weights w(alpha)."""
        return alpha @ self.X / (self.lam * self.n)

    def margins(self, scores: Array) -> Array:
        return self.costs + scores - scores[self.label]

    def vertex(self, v: Array) -> tuple[Array, float]:
        """Return a vertex that maximises <b, v>, and the mean of the maxima."""
        # The label's margin is 0, so it may only precede margins that are not positive.
        order = np.argsort(-v, axis=0, kind="stable")
        ordered = np.take_along_axis(v, order, axis=0)
        b = np.zeros_like(v)
        np.put_along_axis(b, order, np.where(ordered > 0.0, self.weights, 0.0), axis=0)
        b[self.label] = 0.0
        return b, float((self.weights * np.maximum(ordered, 0.0)).sum()) / self.n

    def maximiser(self, v: Array) -> tuple[Array, float]:
        """Return the b that attains the smoothed losses at margins v, and the mean loss.

        It maximises <b, v> - g/2 (||b||^2 + s^2) with s = sum(b), where g is the smoothing. For a
        given s, it is the projection of v/g - s, whose coordinates are those of v/g - s clipped to
        [0, u]; u is v/g minus the isotonic regression of the sorted v/g - weights. Bisection
        finds s.
        """
        g = self.smoothing
        if g == 0.0:
            return self.vertex(v)
        z = v / g
        z[self.label] = -np.inf
        order = np.argsort(-z, axis=0, kind="stable")[:-1]
        ordered = np.take_along_axis(z, order, axis=0)
        upper = ordered - decreasing(ordered - self.weights[:-1])
        low, high = np.zeros(self.n), np.full(self.n, float(self.weights.sum()))
        for _ in range(50):
            middle = 0.5 * (low + high)
            more = np.clip(ordered - middle, 0.0, upper).sum(axis=0) > middle
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        sorted_b = np.clip(ordered - high, 0.0, upper)
        sums = sorted_b.sum(axis=0)
        value = (sorted_b * ordered).sum() - 0.5 * ((sorted_b**2).sum() + (sums**2).sum())
        b = np.zeros_like(v)
        np.put_along_axis(b, order, sorted_b, axis=0)
        return b, g * float(value) / self.n

    def null_objective(self) -> float:
        """Return the objective at W = 0."""
        return self.maximiser(self.costs.copy())[1]

    def objective(self, W: Array, loss: float) -> float:
        return 0.5 * self.lam * float((W * W).sum()) + loss


def decreasing(z: Array) -> Array:
    """Return the isotonic regression of each column: its closest decreasing sequence."""
    found = np.full_like(z, np.inf)
    for first in range(len(z)):
        means = np.cumsum(z[first:], axis=0) / np.arange(1, len(z) - first + 1)[:, None]
        largest = np.maximum.accumulate(means[::-1], axis=0)[::-1]
        np.minimum(found[first:], largest, out=found[first:])
    return found


def frank_wolfe(problem: Problem, steps: int, is_searched: bool) -> Array:
    """Return the objectives of the iterates of LSFW, or of StdFW with steps 2/(t + 2)."""
    W, alpha = np.zeros((problem.m, problem.X.shape[1])), np.zeros((problem.m, problem.n))
    linear, g, lam, found = 0.0, problem.smoothing, problem.lam, []
    scores = np.zeros_like(alpha)
    for t in range(steps):
        # Theorem 2.3, with the sign of (2.24) corrected.
        b, _ = problem.vertex(problem.margins(scores + g * alpha))
        target = problem.scores_of(b)
        image, mean = problem.image(target), float((problem.costs * b).sum()) / problem.n
        slope = mean - linear + lam * float((W * (W - image)).sum())
        curvature = lam * float(((image - W) ** 2).sum())
        if g > 0.0:
            slope += g * float((alpha * (alpha - target)).sum()) / problem.n
            curvature += g * float(((alpha - target) ** 2).sum()) / problem.n
        step = min(max(slope / curvature, 0.0), 1.0) if is_searched else 2.0 / (t + 2)
        W, linear = W + step * (image - W), linear + step * (mean - linear)
        if g > 0.0:
            alpha += step * (target - alpha)
        scores = W @ problem.X.T
        found.append(problem.objective(W, problem.maximiser(problem.margins(scores))[1]))
    return np.array(found)


def projected_gradient(problem: Problem, steps: int) -> Array:
    """Return the objectives of the iterates of PG, with steps 1/(lambda t)."""
    W = np.zeros((problem.m, problem.X.shape[1]))
    b, largest = problem.maximiser(problem.costs.copy())
    found = []
    for t in range(steps):
        W += (problem.image(problem.scores_of(b)) - W) / (t + 1)
        # The optimum lies in this ball.
        W *= min(1.0, np.sqrt(largest / problem.lam / max(float((W * W).sum()), 1e-300)))
        b, loss = problem.maximiser(problem.margins(W @ problem.X.T))
        found.append(problem.objective(W, loss))
    return np.array(found)
