"""Random logistic regressions, and their optima with 120 digits or more."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from claims import Claim, Claims
from sklearn.exceptions import ConvergenceWarning

from dualgap import LogisticRegression

# The loss of a separated row is log(1 + e), where e can be as small as 1e-40, or 1e-300 if the row
# has values near 1e150.
DIGITS, MORE_DIGITS = (Context(prec=prec, Emin=-(10**9), Emax=10**9) for prec in (120, 400))
Vector = list[Decimal]


@dataclass
class Problem:
    """A problem in decimal numbers. If there is an intercept, rows end with a constant feature."""

    rows: list[Vector]
    labels: list[int]
    weights: Vector
    n_outputs: int
    intercept: bool

    @property
    def width(self) -> int:
        return len(self.rows[0])

    def is_intercept(self, place: int) -> bool:
        return self.intercept and place % self.width == self.width - 1

    def scores(self, row: Vector, point: Vector) -> Vector:
        lines = (point[k * self.width : (k + 1) * self.width] for k in range(self.n_outputs))
        found = [sum((x * w for x, w in zip(row, line, strict=True)), Decimal(0)) for line in lines]
        return [Decimal(0), *found] if self.n_outputs == 1 else found

    def value(self, point: Vector) -> Decimal:
        """Return the objective times the total weight."""
        sum_of_squares = sum(w * w for at, w in enumerate(point) if not self.is_intercept(at))
        total = sum_of_squares / 2
        for row, label, weight in zip(self.rows, self.labels, self.weights, strict=True):
            scores = self.scores(row, point)
            top = max(scores)
            total += weight * (sum((s - top).exp() for s in scores).ln() + top - scores[label])
        return total

    def expansion(self, point: Vector) -> tuple[Vector, list[Vector]]:
        """Return the gradient and the Hessian.

        The objective does not depend on the mean of the intercepts. An added quadratic term fixes
        this mean.
        """
        n, width = len(point), self.width
        gradient = [Decimal(0) if self.is_intercept(at) else w for at, w in enumerate(point)]
        hessian = [[Decimal(int(a == b and not self.is_intercept(a))) for b in range(n)]
                   for a in range(n)]  # fmt: skip
        if self.intercept and self.n_outputs > 1:
            places = [at for at in range(n) if self.is_intercept(at)]
            mean = sum(point[at] for at in places)
            for a in places:
                gradient[a] += mean
                for b in places:
                    hessian[a][b] += 1
        for row, label, weight in zip(self.rows, self.labels, self.weights, strict=True):
            scores = self.scores(row, point)
            top = max(scores)
            exps = [(s - top).exp() for s in scores]
            p = [value / sum(exps) for value in exps]
            first = len(p) - self.n_outputs
            for k in range(self.n_outputs):
                slope = weight * (p[first + k] - int(label == first + k))
                for j, x in enumerate(row):
                    gradient[k * width + j] += slope * x
                for q in range(self.n_outputs):
                    bend = weight * p[first + k] * (int(k == q) - p[first + q])
                    for j, x in enumerate(row):
                        for i, z in enumerate(row):
                            hessian[k * width + j][q * width + i] += bend * x * z
        return gradient, hessian


def solve(matrix: list[Vector], right: Vector) -> Vector:
    """Solve a positive definite system by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for at, row in enumerate(rows):
        for below in rows[at + 1 :]:
            factor = below[at] / row[at]
            for column in range(at, len(row)):
                below[column] -= factor * row[column]
    found = [Decimal(0)] * len(rows)
    for at in reversed(range(len(rows))):
        row = rows[at]
        known = sum((row[j] * found[j] for j in range(at + 1, len(rows))), Decimal(0))
        found[at] = (row[-1] - known) / row[at]
    return found


def optimum(problem: Problem) -> Decimal:
    """Return the minimum of the objective, computed with 400 digits if 120 do not suffice."""
    found = minimum(problem, 300)
    if found is None:
        with localcontext(MORE_DIGITS):
            found = minimum(problem, 3000)
    assert found is not None
    return found


def minimum(problem: Problem, n_steps: int) -> Decimal | None:
    """Return the minimum of the objective, by Newton's method from 0 with halved steps.

    Return None if the steps do not converge, or a pivot of the Hessian rounds to 0.
    """
    point = [Decimal(0)] * (problem.n_outputs * problem.width)
    value = problem.value(point)
    for _ in range(n_steps):
        gradient, hessian = problem.expansion(point)
        try:
            step = solve(hessian, gradient)
        except (DivisionByZero, InvalidOperation):
            return None
        decrease = sum(g * s for g, s in zip(gradient, step, strict=True))
        if decrease <= value * Decimal("1e-40"):
            return value
        size = Decimal(1)
        while True:
            moved = [w - size * s for w, s in zip(point, step, strict=True)]
            found = problem.value(moved)
            if found <= value - size * decrease / 4:
                break
            if size < Decimal("1e-30"):
                return None
            size /= 2
        point, value = moved, found
    return None


def draw_problem(seed: int) -> tuple[Any, np.ndarray, np.ndarray, dict[str, Any]]:
    """Draw rows, labels, weights and parameters of a random problem."""
    rng = np.random.default_rng(seed)
    n, d, m = rng.integers(6, 14), rng.integers(1, 4), rng.integers(2, 5)
    X = rng.standard_normal((n, d))
    y = rng.integers(m, size=n)
    y[:m] = np.arange(m)
    kind = seed % 4
    if kind == 1:
        # Separable: each class has its own corner.
        X = rng.standard_normal((m, d))[y] * 5.0 + 0.1 * X
    if kind == 2:
        X *= 10.0 ** rng.uniform(-6.0, 6.0, d)
    if kind == 3:
        X *= 10.0 ** rng.choice([-150.0, -20.0, 20.0, 150.0])
    weights = rng.uniform(0.1, 3.0, n)
    parameters: dict[str, Any] = {
        "C": 10.0 ** rng.uniform(*((-3.0, 4.0) if seed % 3 else (-12.0, 12.0))),
        "fit_intercept": bool(rng.integers(2)),
        "tol": 10.0 ** rng.integers(-9, 0),
        "max_iter": int(rng.choice([2, 1000])),
        "random_state": 0,
    }
    if seed % 5 < 2:
        # CSR rows: all entries, or a fifth of them.
        X = sp.csr_matrix(X * (rng.random((n, d)) < 0.2) if seed % 5 else X)
    return X, y, weights, parameters


def claims_of_seed(seed: int) -> Claims:
    """Fit a random problem with each solver; None for values that the solver does not support."""
    X, y, weights, parameters = draw_problem(seed)
    problem = None
    for solver in ("auto", "newton", "dual-descent") if sp.issparse(X) else ("auto", "newton"):
        model = LogisticRegression(**{**parameters, "solver": solver})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(X, y, weights)
        except ValueError as error:
            if '"dual-descent" does not support such large values' not in str(error):
                raise
            yield None
            continue
        with localcontext(DIGITS):
            if problem is None:
                problem = problem_of(model, X, y, weights)
                total = sum(problem.weights)
                best = optimum(problem) / total * (1 + Decimal("1e-35"))
            columns = [model.coef_, *([model.intercept_] if problem.intercept else [])]
            point = [Decimal(value) for value in np.column_stack(columns).ravel().tolist()]
            own = problem.value(point) / total
            # The reported objective is the objective of the model, up to rounding.
            excess = Decimal(model.objective_) - own
            right = excess <= own * Decimal("1e-9") + Decimal("1e-300")
        yield Claim(
            what=f"logistic regression {seed}, {solver}",
            objective=model.objective_,
            dual=model.dual_objective_,
            exact=(Fraction(own), Fraction(own)),
            optimum_below=Fraction(best),
            wrong="" if right else f"the objective is too large by {excess}",
        )


def problem_of(model: LogisticRegression, X: Any, y: np.ndarray, weights: np.ndarray) -> Problem:
    """Return the problem of a fit in decimal numbers."""
    constant = [Decimal(1)] if model.fit_intercept else []
    rows = (X.toarray() if sp.issparse(X) else X).tolist()
    return Problem(
        rows=[[*map(Decimal, row), *constant] for row in rows],
        labels=y.tolist(),
        # The core multiplies C and the weights in double precision.
        weights=[Decimal(model.C * weight) for weight in weights.tolist()],
        n_outputs=len(model.coef_),
        intercept=model.fit_intercept,
    )


def logistic(random: np.random.Generator) -> Claims:
    """Fit a random problem."""
    yield from claims_of_seed(int(random.integers(2**31)))


KINDS: dict[str, Callable[[np.random.Generator], Claims]] = {"logistic regression": logistic}
