"""Newton rounds, for problems with few weights: steps on weights that all partitions share.

With columns of very different scales, the consensus is near the optimum long before the dual points
of the partitions are consistent with each other, so the lower bound stays at 0. Each Newton round
evaluates all partitions at the same weights, and solves one linear system with the sum of their
Hessians. Newton steps do not depend on the scales of the columns (`docs/mathematics/newton.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dualgap import _core
from dualgap._validation import FloatArray
from dualgap.distributed._plan import Plan, Solution
from dualgap.distributed._worker import inner

__all__ = ["MAX_WEIGHTS", "Newton"]

MAX_WEIGHTS = 2000
"""Maximum number of weights for Newton rounds, in which each partition sends a Hessian."""

_FIRST_WIDTH = 0.06
"""First width of the proximal term, in units of `Solution.unit`."""
_SMALLEST_WIDTH = 0.02
_NARROWER = 0.3
_WIDER = 4.0
_SHORT_STEP = 1e-2
_SOLVED_SHARE = 0.05
"""An inner problem counts as solved if its gap is at most this fraction of the overall gap."""
_FLAT = (-0.3, 0.05)
"""Range of slopes at which a line search ends, relative to the size of the first slope."""
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
    """Proximal Newton method on the dual points of the partitions, with the core's constants."""

    plan: Plan
    evaluate: Callable[[FloatArray, float, bool], Solution]
    """Runs a round at the given weights and width.

    The flag says whether the last points of the partitions become the new centre.
    """
    gap: Callable[[], float]
    """Returns the larger of the current gap and the tolerated gap."""
    null_objective: float
    width: float = 0.0
    exhausted: bool = False

    def run(self, weights: FloatArray) -> None:
        """Make Newton steps until `evaluate` raises an exception, which ends the fit."""
        self.width = _SMALLEST_WIDTH * self.null_objective
        at = self._at(weights)
        unit = at.solution.unit
        self.width = _FIRST_WIDTH * unit
        at = self._at(weights)
        while True:
            at = self._step(at)
            inner_gap = 0.5 * self.plan.regularization * inner(at.residual, at.residual)
            if self.exhausted or inner_gap <= _SOLVED_SHARE * self.gap():
                self.width = max(_NARROWER * self.width, _SMALLEST_WIDTH * unit)
                at = self._at(at.weights, moves=True)

    def _at(self, weights: FloatArray, moves: bool = False) -> _Point:
        solution = self.evaluate(weights, self.width, moves)
        residual = weights - solution.image.ravel() / self.plan.regularization
        return _Point(weights, solution, residual)

    def _step(self, at: _Point) -> _Point:
        """Take one Newton step on the inner problem."""
        lam, smoothing = self.plan.regularization, self.plan.problem["smoothing"]
        assert at.solution.sums is not None
        sums = at.solution.sums / (lam * (self.width + smoothing))
        direction = _core.newton_direction(sums, len(self.plan.classes), at.residual, 1)
        slope = inner(at.residual, direction)
        self.exhausted = -slope * lam < _ROUNDING * self.null_objective
        if not slope < 0.0:
            return at
        step, found = self._search(at, direction, slope)
        if step < _SHORT_STEP:
            self.width *= _WIDER
            found = self._at(found.weights)
        return found

    def _search(self, at: _Point, direction: FloatArray, slope: float) -> tuple[float, _Point]:
        """Find a step at which the slope is close to 0, as in the core's line search."""
        low, high = (0.0, slope), None
        step, best = 1.0, at
        for _ in range(_MAX_TRIALS):
            found = self._at(at.weights + step * direction)
            value = inner(found.residual, direction)
            if _FLAT[0] * -slope <= value <= _FLAT[1] * -slope:
                return step, found
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
        return low[0], best
