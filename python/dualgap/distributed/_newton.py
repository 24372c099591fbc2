"""Newton rounds, for problems with few weights: steps on weights that all partitions share.

If columns have very different scales, or if the classes are almost separable, the consensus or the
dual points of the partitions are still far from optimal after many rounds of the alternating
direction method. Each Newton round evaluates all partitions at the same weights. Each Newton step
solves one linear system with the sum of their Hessians. The steps do not depend on the scales of
the columns (`docs/mathematics/newton.md`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dualgap import _core
from dualgap._validation import FloatArray
from dualgap.distributed._plan import Plan, Solution
from dualgap.distributed._worker import inner

__all__ = ["MAX_WEIGHTS", "Newton", "dual_scale", "rounds_left"]

MAX_WEIGHTS = 2000
"""Maximum number of weights for Newton rounds, in which each partition sends a Hessian."""

_START_WIDTH = 1e9
"""Width that keeps the dual points at the centre, in units of the objective at zero weights."""
_FIRST_WIDTH = 2.0
"""First width of the proximal term, in the unit that `Newton._unit` returns."""
_SMALLEST_WIDTH = 0.02
_NARROWER = 0.5
_SOLVED_SHARE = 0.05
"""An inner problem is solved if its gap is at most this share of a reference value.

The reference is the tolerated gap or, if larger, the smaller one of proximal term and whole gap.
"""
_FLAT = 0.5
"""A line search ends if the slope is at most this fraction of the first slope."""
_MAX_TRIALS = 20
_ROUNDING = 1e-15
"""Slopes below this fraction of the objective at zero weights are rounding errors."""


@dataclass(frozen=True)
class _Point:
    """Weights, and the sum of the partitions' results at these weights."""

    weights: FloatArray
    solution: Solution
    residual: FloatArray
    """The gradient of the inner problem, divided by lambda."""


@dataclass
class Newton:
    """Proximal Newton method on the dual points of the partitions."""

    plan: Plan
    evaluate: Callable[[FloatArray, float, float | None], Solution]
    """Runs a round at the given weights and width.

    If the last argument is a number, the last dual points times this number become the new centre.
    """
    values: Callable[[], tuple[float, float, float]]
    """Returns the smallest objective, the gap, and the tolerated gap."""
    null_objective: float
    width: float = 0.0
    exhausted: bool = False

    def run(self, weights: FloatArray) -> None:
        """Take Newton steps until `evaluate` raises an exception, which ends the fit."""
        lam = self.plan.regularization
        self.width = _START_WIDTH * self.null_objective
        start = self._at(weights).solution
        image = start.image.ravel()
        # The best multiple of inconsistent dual points is near 0.
        scale = dual_scale(start.dual_term, 0.5 * inner(image, image) / lam)
        self.width = _FIRST_WIDTH * self._unit(start, scale)
        at = self._at(weights, scale)
        while True:
            at = self._step(at)
            _, gap, allowed = self.values()
            proximal = min(gap, 0.5 * self.width * at.solution.moved)
            inner_gap = 0.5 * lam * inner(at.residual, at.residual)
            if self.exhausted or inner_gap <= _SOLVED_SHARE * max(proximal, allowed):
                smallest = _SMALLEST_WIDTH * self._unit(at.solution)
                self.width = max(_NARROWER * self.width, smallest)
                at = self._at(at.weights, 1.0)

    def _unit(self, solution: Solution, scale: float = 1.0) -> float:
        """Return the unit of the widths for these dual points times `scale`.

        With this width, a proximal term around 0 is half the linear term of the dual. The dual
        points of almost separable classes are small, so their unit is large.
        """
        linear = solution.dual_term + 0.5 * self.plan.problem["smoothing"] * solution.square
        # The unit of optimal points whose rows have equal shares of the objective.
        largest = solution.unit * self.null_objective / self.values()[0]
        square = scale * solution.square
        return min(linear / square, largest) if linear > 0.0 and square > 0.0 else largest

    def _at(self, weights: FloatArray, scale: float | None = None) -> _Point:
        solution = self.evaluate(weights, self.width, scale)
        residual = weights - solution.image.ravel() / self.plan.regularization
        return _Point(weights, solution, residual)

    def _step(self, at: _Point) -> _Point:
        """Take one Newton step on the inner problem."""
        lam, smoothing = self.plan.regularization, self.plan.problem["smoothing"]
        assert at.solution.sums is not None
        sums = at.solution.sums / (lam * (self.width + smoothing))
        direction = _core.newton_direction(sums, len(self.plan.classes), at.residual, 1)
        slope = inner(at.residual, direction)
        self.exhausted = not -slope * lam >= _ROUNDING * self.null_objective
        return self._search(at, direction, slope) if slope < 0.0 else at

    def _search(self, at: _Point, direction: FloatArray, slope: float) -> _Point:
        """Find a step with a smaller slope. Each trial is a round, so the search is inexact."""
        low, high = (0.0, slope), None
        step, best = 1.0, at
        for _ in range(_MAX_TRIALS):
            found = self._at(at.weights + step * direction)
            value = inner(found.residual, direction)
            if abs(value) <= _FLAT * -slope:
                return found
            if value < 0.0:
                low, best = (step, value), found
                high = None if high is None else (high[0], 0.5 * high[1])
            else:
                low = (low[0], low[1] * (1.0 if high is None else 0.5))
                high = (step, value)
            if high is None:
                step *= 2.0
                continue
            width = high[0] - low[0]
            secant = low[0] - low[1] * width / (high[1] - low[1])
            step = float(np.clip(secant, low[0] + 0.1 * width, high[0] - 0.1 * width))
        self.exhausted = self.exhausted or best is at
        return best


def dual_scale(term: float, force: float) -> float:
    """Return the factor t in [0, 1] that maximises ``t * term - t**2 * force``.

    Dual points times t are feasible, and their dual terms are at least t times as large.
    """
    return 0.5 * term / force if 0.0 < term < 2.0 * force else float(term > 0.0)


_WINDOW = 5
"""Number of rounds over which the pace of the gap is measured."""
_FINEST = 1e-10
"""Relative gap below which a change of the method saves no time."""


def rounds_left(gaps: list[float], allowed: float, objective: float) -> float:
    """Return the number of further rounds until the allowed gap, at the pace of the last rounds."""
    # The gap after a resume may be larger than the gap before.
    before, now = min(gaps[:-_WINDOW]), min(gaps)
    wanted = max(now / max(allowed, _FINEST * objective), 1.0)
    return _WINDOW * math.log(wanted) / math.log(before / now) if now < before else math.inf
