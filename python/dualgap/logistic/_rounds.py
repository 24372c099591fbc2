"""Newton's method for logistic losses, evaluated on partitions or through a linear map.

Conjugate gradients solve the linear systems, with one evaluation per product with the Hessian, so
the number of weights is not limited (docs/mathematics/consensus.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dualgap._estimator import Callback
from dualgap._validation import FloatArray

__all__ = ["COLUMNS", "NewtonRounds", "Problem", "Sums", "class_spreads", "null_objective"]

COLUMNS = ("epoch", "seconds", "objective", "dual_objective", "gap", "rounds")
"""Columns of the history; "rounds" counts the exchanges with the partitions so far."""

_FORCING = 0.1
"""Factor by which conjugate gradients reduce the residual of a system."""
_ACCURATE = 0.3
"""Near the optimum, half the squared residual is reduced to this share of the tolerated gap."""
_NEAR = 40.0
"""Expected decrease, in units of the tolerated gap, below which `_ACCURATE` applies."""
_LONGEST = 200
"""Maximum number of steps of conjugate gradients."""
_DECREASE = 1e-4
"""Share of the expected decrease that a step must reach (Armijo)."""
_ROUNDING = 1e-13
"""Changes of the objective below this share of it are rounding errors."""
_HALVINGS = 30
_GAIN = 0.1
"""The run has stalled if, over `_STALLED` steps, the gap has not fallen by this share, and the
objective only by rounding errors.
"""
_STALLED = 10
_TILTED = 100.0
"""Estimated gap, in units of the tolerated gap, up to which a further round applies the tilt."""


@dataclass(frozen=True)
class Sums:
    """Sums over the rows at a model, each row multiplied by C times its weight.

    For a product with the Hessian, only image and residual are set.
    """

    image: FloatArray
    """The sum of ``(e_y - p) x'``, or of the Hessian times a direction."""
    residual: FloatArray
    """The sum of ``e_y - p``, or the part of the product for the intercepts."""
    loss: float = 0.0
    """The sum of the losses, rounded up."""
    entropy: float = 0.0
    """The sum of the entropies of the distributions, rounded down."""
    distance: float = 0.0
    """The sum of ``1 - p_y``."""
    depth: int = 0
    """Largest number of successive additions behind an entry of the image."""
    moments: FloatArray = field(default_factory=lambda: np.zeros(0))
    """The matrix from which the tilt is computed; empty if there is no tilt."""


Round = Callable[[FloatArray, FloatArray | None], Sums]
"""Evaluates all rows at weights of shape (1, n_outputs, n_features + 1), whose last column has the
intercepts. The second argument tilts the distributions, unless it is None. If the first axis has
length 2, the function returns the Hessian at the first entry times the second entry.
"""


Certificate = Callable[[FloatArray, Sums], tuple[float, float, FloatArray | None]]
"""Returns the objective and the bound, both divided by the total weight, and the tilt that improves
the bound (or None).
"""


@dataclass(frozen=True)
class Problem:
    """Totals of the problem, known before the first round."""

    C: float
    intercept: bool
    class_weights: FloatArray
    """Sum of the weights of each class's rows."""
    squares: FloatArray
    """Sum of the squares of each column."""
    n_rows: int
    n_outputs: int
    """Number of weight vectors."""
    null_objective: float

    @property
    def total(self) -> float:
        """C times the total weight: objectives are divided by it."""
        return self.C * float(self.class_weights.sum())


@dataclass(frozen=True)
class _Point:
    """A model, its objective times `Problem.total`, and the gradient."""

    weights: FloatArray
    objective: float
    gradient: FloatArray
    spreads: FloatArray
    """Mean of p (1 - p) for each output."""


class _EndedError(Exception):
    """Ends the run; its text is the outcome."""


@dataclass
class NewtonRounds:
    """A run: the best model, the bounds, and the record."""

    problem: Problem
    evaluate: Round
    certificate: Certificate
    spreads: Callable[[Sums], FloatArray]
    """Estimates the mean of p (1 - p) for each output."""
    tol: float
    max_iter: int
    callback: Callback | None
    save: Callable[[NewtonRounds], None] | None = None
    """Writes a checkpoint, if it is time for one."""
    best: FloatArray | None = None
    moments: FloatArray = field(default_factory=lambda: np.zeros(0))
    """The moments at the best model."""
    primal: float = np.inf
    dual: float = 0.0
    rows: list[list[float]] = field(default_factory=list)
    rounds: int = 0
    started: float = field(default_factory=time.monotonic)
    outcome: str = "epoch_limit"
    mark: tuple[float, float] = (np.inf, np.inf)
    """The best objective and the gap when the run last made progress."""
    idle_steps: int = 0
    """Number of steps since then."""

    def run(self, weights: FloatArray) -> None:
        """Minimise, starting at the given weights."""
        # A resumed run evaluates its checkpoint again, if necessary in an extra iteration.
        self.max_iter = max(self.max_iter, len(self.rows) + 1)
        try:
            point = self._evaluate(weights)
            while True:
                point = self._step(point)
                self._check_progress()
        except _EndedError as ended:
            self.outcome = str(ended)

    @property
    def _allowed(self) -> float:
        floor = 1e-15 * self.problem.null_objective if self.tol > 0.0 else 0.0
        return max(self.tol * self.primal, floor)

    def _round(self, weights: FloatArray, tilt: FloatArray | None = None) -> Sums:
        self.rounds += 1
        return self.evaluate(weights, tilt)

    def _evaluate(self, weights: FloatArray) -> _Point:
        """Evaluate a model and record it; end the run at the tolerance or a limit."""
        if len(self.rows) >= self.max_iter:
            raise _EndedError("epoch_limit")
        sums = self._round(weights[None])
        primal, dual, tilt = self.certificate(weights, sums)
        if not np.isfinite(primal):
            msg = f"the objective is {primal!r}, which is not finite; scale the data or decrease C"
            raise RuntimeError(msg)
        if not weights.any():
            # The evaluation adds a bound on its rounding errors to this objective, which is known.
            primal = min(primal, self.problem.null_objective)
        residual = -sums.residual if self.problem.intercept else np.zeros(len(weights))
        gradient = np.column_stack([weights[:, :-1] - sums.image, residual])
        near = 0.5 * _inner(gradient[:, :-1], gradient[:, :-1]) / self.problem.total
        if tilt is not None and near <= _TILTED * max(self._allowed, self.tol * primal):
            dual = max(dual, self.certificate(weights, self._round(weights[None], tilt))[1])
        if primal < self.primal:
            self.best, self.primal, self.moments = weights, primal, sums.moments
        self.dual = max(self.dual, dual)
        self._record(primal, dual)
        return _Point(weights, primal * self.problem.total, gradient, self.spreads(sums))

    def _record(self, primal: float, dual: float) -> None:
        """Add a row to the history, and end the run if there is a reason."""
        seconds = time.monotonic() - self.started
        gap = self.primal - self.dual
        self.rows.append([len(self.rows) + 1, seconds, primal, dual, gap, self.rounds])
        if self.save is not None:
            self.save(self)
        stop = self.callback is not None and bool(
            self.callback(len(self.rows), seconds, primal, dual)
        )
        if gap <= self._allowed:
            raise _EndedError("converged")
        if stop:
            raise _EndedError("stopped")

    def _check_progress(self) -> None:
        """End the run if its last steps improved neither the objective nor the gap."""
        (objective, last_gap), gap = self.mark, self.primal - self.dual
        self.idle_steps += 1
        if self.primal < (1.0 - _ROUNDING) * objective or gap < (1.0 - _GAIN) * last_gap:
            self.mark, self.idle_steps = (self.primal, gap), 0
        if self.idle_steps >= _STALLED:
            raise _EndedError("stalled")

    def _step(self, point: _Point) -> _Point:
        """Take a Newton step with a line search by halving."""
        direction = self._direction(point)
        slope = _inner(point.gradient, direction)
        slack, step = _ROUNDING * point.objective, 1.0
        for _ in range(_HALVINGS):
            found = self._evaluate(point.weights + step * direction)
            if found.objective <= point.objective + _DECREASE * step * slope + slack:
                return found
            step *= 0.5
        raise _EndedError("stalled")

    def _direction(self, point: _Point) -> FloatArray:
        """Solve the Newton system by conjugate gradients."""
        problem = self.problem
        mean = problem.total / max(problem.n_rows, 1)
        diagonal = np.empty_like(point.weights)
        diagonal[:, :-1] = 1.0 + mean * np.outer(point.spreads, problem.squares)
        diagonal[:, -1] = problem.total * np.maximum(point.spreads, 1e-12)
        goal = self._allowed * problem.total
        solution, residual = np.zeros_like(point.weights), -point.gradient
        direction, before, start = np.zeros_like(residual), 0.0, 0.0
        for step in range(_LONGEST):
            steepest = residual / diagonal
            if not problem.intercept:
                steepest[:, -1] = 0.0
            size = _inner(residual, steepest)
            start = start or size
            accurate = 0.5 * _inner(residual[:, :-1], residual[:, :-1]) <= _ACCURATE * goal
            small = size <= _FORCING**2 * start and (accurate or 0.5 * start > _NEAR * goal)
            if (small and step) or not size > 0.0:
                break
            direction = steepest + (size / before if before else 0.0) * direction
            before = size
            product = self._product(point.weights, direction)
            curvature = _inner(direction, product)
            if not curvature > 0.0:
                break
            solution += (size / curvature) * direction
            residual -= (size / curvature) * product
        if problem.intercept and len(solution) > 1:
            solution[:, -1] -= solution[:, -1].mean()
        return solution

    def _product(self, weights: FloatArray, direction: FloatArray) -> FloatArray:
        """Return the Hessian of the objective times a direction."""
        sums = self._round(np.stack([weights, direction]))
        residual = sums.residual if self.problem.intercept else np.zeros(len(weights))
        return np.column_stack([direction[:, :-1] + sums.image, residual])


def null_objective(n_classes: int) -> float:
    """Return an upper bound on the mean loss of zero weights."""
    return math.nextafter(math.log(n_classes), math.inf)


def class_spreads(problem: Problem, sums: Sums) -> FloatArray:
    """Return the mean of p (1 - p) of each class; if p is unknown, the class shares replace it."""
    if len(sums.moments):
        n_outputs = problem.n_outputs
        return np.asarray(sums.moments.reshape(n_outputs, -1).diagonal() / problem.total)
    shares = problem.class_weights / problem.class_weights.sum()
    return np.asarray((shares * (1.0 - shares))[-problem.n_outputs :])


def _inner(a: FloatArray, b: FloatArray) -> float:
    """Return an inner product computed on this thread only."""
    return float(np.einsum("ij,ij->", a, b))
