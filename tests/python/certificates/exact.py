"""Objectives and dual values in rational arithmetic, for problems of a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dualgap.losses import Loss

Vector = list[Fraction]
Matrix = list[Vector]


def fractions(matrix: Any) -> Matrix:
    """Return a matrix of floating-point numbers as exact fractions."""
    dense = matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)
    return [[Fraction(float(value)) for value in row] for row in dense]


def dot(a: Vector, b: Vector) -> Fraction:
    """Return an inner product."""
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def weights_of(loss: Loss, n_classes: int) -> Vector:
    """Return the weight of each sorted margin, largest margin first.

    These are the loss's own weights, or else 1/k for the k largest margins (k = 1 by default).
    """
    if loss.weights is not None:
        return [Fraction(weight) for weight in loss.weights]
    k = 1 if loss.k is None else loss.k
    return [Fraction(1, k)] * k + [Fraction(0)] * (n_classes - k)


def plain_loss(loss: Loss, margins: Vector) -> Fraction:
    """Return the loss at the margins, where the margin of the label is 0."""
    if loss.name == "weston-watkins":
        return sum((max(v, Fraction(0)) for v in margins), Fraction(0))
    ordered = sorted(margins, reverse=True)
    rho = weights_of(loss, len(margins))
    if loss.name in ("usunier", "weighted-usunier"):
        return dot(rho, [max(v, Fraction(0)) for v in ordered])
    return max(dot(rho, ordered), Fraction(0))


def box_of(loss: Loss) -> tuple[Fraction, Fraction | None] | None:
    """Return upper bounds on each coordinate and on the sum, or None.

    None means that such bounds do not define the polytope.
    """
    if loss.name == "weston-watkins":
        return Fraction(1), None
    if loss.name in ("max-hinge", "crammer-singer"):
        return Fraction(1), Fraction(1)
    return (Fraction(1, loss.k or 1), Fraction(1)) if loss.name == "usunier" else None


def smoothed_loss(loss: Loss, margins: Vector, label: int, smoothing: Fraction) -> Fraction:
    """Return the Moreau envelope, or a lower bound on it if `box_of` returns None."""
    others = [v for j, v in enumerate(margins) if j != label]
    box = box_of(loss)
    if box is None:
        # The best multiple of the vertex that attains the loss gives a lower bound.
        value = plain_loss(loss, margins)
        beta = _vertex(loss, margins, label)
        square = sum((b * b for b in beta), Fraction(0)) + sum(beta, Fraction(0)) ** 2
        if value <= 0 or square == 0:
            return Fraction(0)
        size = min(Fraction(1), value / (smoothing * square))
        return size * value - smoothing / 2 * size * size * square
    upper, cap = box
    best = Fraction(0)
    # The maximiser is clip(v / smoothing - tau, 0, upper). Try all sets of free coordinates and of
    # coordinates at the upper bound.
    order = sorted(range(len(others)), key=lambda j: -others[j])
    for first in range(len(order) + 1):
        for end in range(first, len(order) + 1):
            high, free = order[:first], order[first:end]
            for capped in (False, True):
                beta = _stationary(others, high, free, upper, cap if capped else None, smoothing)
                if beta is None or any(not 0 <= b <= upper for b in beta):
                    continue
                total = sum(beta, Fraction(0))
                if cap is not None and total > cap:
                    continue
                square = sum((b * b for b in beta), Fraction(0)) + total * total
                best = max(best, dot(beta, others) - smoothing / 2 * square)
    return best


def _stationary(
    v: Vector,
    high: Sequence[int],
    free: Sequence[int],
    upper: Fraction,
    cap: Fraction | None,
    smoothing: Fraction,
) -> Vector | None:
    """Return the point whose free coordinates are stationary.

    If `cap` is given, the coordinates sum to it.
    """
    beta = [Fraction(0)] * len(v)
    for j in high:
        beta[j] = upper
    fixed = upper * len(high)
    if free:
        # Free coordinates are v / smoothing minus a shift. Without a cap, the shift is the sum of
        # all coordinates; with a cap, it makes this sum equal to the cap.
        pull = sum((v[j] for j in free), Fraction(0)) / smoothing
        total = (pull + fixed) / (1 + len(free)) if cap is None else cap
        shift = (pull + fixed - total) / len(free)
        for j in free:
            beta[j] = v[j] / smoothing - shift
    return beta


def _vertex(loss: Loss, margins: Vector, label: int) -> Vector:
    rho = weights_of(loss, len(margins))
    order = sorted(range(len(margins)), key=lambda j: -margins[j])
    beta = [Fraction(0)] * len(margins)
    for j, weight in zip(order, rho, strict=True):
        if loss.name != "weighted-usunier" or margins[j] > 0:
            beta[j] = weight
    beta[label] = Fraction(0)
    return beta


def costs_of(loss: Loss, label: int, n_classes: int) -> Vector:
    """Return the costs of predicting each class."""
    if loss.costs is None:
        return [Fraction(int(j != label)) for j in range(n_classes)]
    return [Fraction(float(cost)) for cost in np.asarray(loss.costs)[label]]


def objective(
    loss: Loss, X: Matrix, labels: Sequence[int], W: Matrix, C: float, smoothing: float
) -> Fraction:
    """Return the objective of W. With smoothing, it is only a lower bound for some losses."""
    scores = [[dot(w, x) for w in W] for x in X]
    square = sum((dot(w, w) for w in W), Fraction(0))
    return objective_of_scores(loss, scores, labels, square, C, smoothing)


def objective_of_scores(
    loss: Loss,
    scores: Matrix,
    labels: Sequence[int],
    square: Fraction,
    C: float,
    smoothing: float,
    sample_weight: Any = None,
) -> Fraction:
    """Return the objective of weights with these scores and this squared norm."""
    weights = [Fraction(1)] * len(scores)
    if sample_weight is not None:
        weights = [Fraction(float(weight)) for weight in sample_weight]
    n, total = sum(weights, Fraction(0)), Fraction(0)
    for row, label, weight in zip(scores, labels, weights, strict=True):
        costs = costs_of(loss, label, len(row))
        margins = [cost + s - row[label] for cost, s in zip(costs, row, strict=True)]
        if smoothing == 0.0:
            total += weight * plain_loss(loss, margins)
        else:
            total += weight * smoothed_loss(loss, margins, label, Fraction(smoothing))
    return square / (2 * Fraction(C) * n) + total / n


def gauge(loss: Loss, beta: Vector) -> Fraction:
    """Return the smallest t for which t times the polytope contains the point (not for top-k)."""
    box = box_of(loss)
    if box is not None:
        upper, cap = box
        ratios = [max(beta) / upper]
        if cap is not None:
            ratios.append(sum(beta, Fraction(0)) / cap)
        return max(ratios)
    assert loss.name == "weighted-usunier"
    rho = weights_of(loss, len(beta))
    ordered = sorted(beta, reverse=True)
    return max(
        sum(ordered[:j], Fraction(0)) / sum(rho[:j], Fraction(0)) for j in range(1, len(beta) + 1)
    )


def dual_value(
    loss: Loss, X: Matrix, labels: Sequence[int], betas: Matrix, C: float, smoothing: float
) -> Fraction:
    """Scale the dual point into the feasible set, and return its dual value."""
    n, m, d = len(X), len(betas[0]), len(X[0])
    lam = 1 / (Fraction(C) * n)
    image = [[Fraction(0)] * d for _ in range(m)]
    total = Fraction(0)
    for x, label, row in zip(X, labels, betas, strict=True):
        size = max(gauge(loss, row), Fraction(1))
        beta = [max(b, Fraction(0)) / size for b in row]
        alpha = [-b for b in beta]
        alpha[label] = sum(beta, Fraction(0))
        total += dot(costs_of(loss, label, m), beta)
        total -= Fraction(smoothing) / 2 * dot(alpha, alpha)
        for class_, a in enumerate(alpha):
            for feature, value in enumerate(x):
                image[class_][feature] += a * value / (lam * n)
    return total / n - lam / 2 * sum((dot(w, w) for w in image), Fraction(0))
