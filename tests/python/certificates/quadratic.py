"""Exact objectives of polynomial models, and of their projections into the ball."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
from choices import Bounds, bounds, exact, log_sum

from dualgap.polynomial._base import weighted_means

Vector = list[Fraction]

STEP = 1 << 400
"""Reciprocal of the precision of square roots."""


def root_above(square: Fraction) -> Fraction:
    """Return the square root, rounded up by less than 1e-60 of its value."""
    if square == 0:
        return Fraction(0)
    # Multiplication by powers of four brings all numbers, small and large, to at least 400 bits.
    size = square.numerator.bit_length() - square.denominator.bit_length()
    shift = Fraction(4) ** (200 - size // 2)
    return Fraction(isqrt(int(square * shift)) + 1) / Fraction(2) ** (200 - size // 2)


def norm_above(penalty: str, row: Vector) -> Fraction:
    """Return the norm of a row of the output layer, rounded up."""
    if penalty == "l1":
        return sum((abs(u) for u in row), Fraction(0))
    if penalty == "l1/linf":
        return max((abs(u) for u in row), default=Fraction(0))
    return root_above(sum((u * u for u in row), Fraction(0)))


def fractions(matrix: Any) -> list[Vector]:
    """Return a matrix of floating-point numbers as exact fractions."""
    return [exact(row) for row in matrix]


def dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    """Return an inner product."""
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


@dataclass(frozen=True)
class Quadratic:
    """A problem: rows, targets (classes, or rows of values), and the objective.

    Explicit linear terms of a regressor refer to targets minus their means.
    """

    X: Any
    y: Any
    kernel: str
    penalty: str
    radius: float
    linear: str | None
    alpha: float
    loss: str
    weights: Any = None

    def centred(self) -> tuple[Any, list[Fraction]]:
        """Return the targets of the fit, and what it subtracted from them."""
        if self.loss != "squared":
            return self.y, []
        means = np.zeros(self.y.shape[1])
        if self.linear == "explicit":
            means = weighted_means(self.y, self.weights)
        return self.y - means, exact(means)

    def norm(self, model: Any) -> Fraction:
        """Return Omega(U): exact for "l1" and "l1/linf", rounded up for "l1/l2"."""
        rows = fractions(model.output_)
        return sum((norm_above(self.penalty, row) for row in rows), Fraction(0))

    def inside(self, model: Any) -> Fraction:
        """Return the factor by which U must be multiplied so that the model is feasible."""
        norms = [max(dot(h, h), Fraction(1)) for h in fractions(model.components_)]
        rows = fractions(model.output_)
        size = sum(
            (
                square * norm_above(self.penalty, row)
                for square, row in zip(norms, rows, strict=True)
            ),
            Fraction(0),
        )
        return Fraction(1) if size == 0 else min(Fraction(1), Fraction(self.radius) / size)

    def objective(self, model: Any, factor: Fraction = Fraction(1)) -> Bounds:
        """Return bounds on the objective after the output layer is multiplied by `factor`."""
        basis, output = fractions(model.components_), fractions(model.output_)
        targets, means = self.centred()
        coef, intercept = fractions(model.coef_), exact(model.intercept_)
        if means:
            intercept = [b - mean for b, mean in zip(intercept, means, strict=True)]
        total = Fraction(0)
        weights = exact([1.0] * len(self.X) if self.weights is None else self.weights)
        for row, target, weight in zip(fractions(self.X), targets, weights, strict=True):
            x = [*row, Fraction(1)] if self.linear == "augment" else row
            activations = [factor * self._kernel(h, x) for h in basis]
            found = []
            for c, (w, b) in enumerate(zip(coef, intercept, strict=True)):
                quadratic = [z * u[c] for z, u in zip(activations, output, strict=True)]
                found.append(sum(quadratic, Fraction(0)) + dot(w, row) + b)
            total += weight * self._loss(found, target)
        linear = sum((dot(w, w) for w in coef), Fraction(0)) + dot(intercept, intercept)
        value = total + Fraction(self.alpha) / 2 * linear
        return (value, value) if self.loss in ("squared", "squared-hinge") else bounds(value)

    def _kernel(self, h: Vector, x: Vector) -> Fraction:
        square = dot(h, x) ** 2
        if self.kernel == "square":
            return square
        return (square - sum((a * a * b * b for a, b in zip(h, x, strict=True)), Fraction(0))) / 2

    def _loss(self, outputs: Vector, target: Any) -> Fraction:
        if self.loss == "squared":
            errors = [y - o for y, o in zip(exact(target), outputs, strict=True)]
            return dot(errors, errors) / 2
        if self.loss == "binary-logistic":
            signs = [1 if c == int(target) else -1 for c in range(len(outputs))]
            terms = (log_sum([Fraction(0), -s * o]) for s, o in zip(signs, outputs, strict=True))
            return sum(terms, Fraction(0))
        own = outputs[int(target)]
        others = [o - own for c, o in enumerate(outputs) if c != int(target)]
        if self.loss == "squared-hinge":
            return sum((max(1 + o, Fraction(0)) ** 2 for o in others), Fraction(0))
        margin = 1 if self.loss == "smoothed-hinge" else 0
        return log_sum([Fraction(0), *(margin + o for o in others)])
