"""Ratios of the errors of plain implementations to the bounds that the papers prove.

    python benches/theorems.py [gap] [blocks] [extragradient] [away] [cyclic] [polynomial]

Each row has the ratios of measured value to bound at three numbers of steps, and the largest ratio
of all steps. The runs agree with a theorem if no ratio exceeds 1; a bound is tight if a ratio is
near 1. The methods are the papers' listings in NumPy, without the package's accelerations; the data
sets come from scikit-learn.

gap: the smallest gap so far of batch Frank-Wolfe with steps 2/(t + 2). The bound is
    (27/4) C_f/(t + 2), where C_f <= 4 R^2/lambda (Boileau et al. 2019).
blocks: the mean error of block Frank-Wolfe over five seeds. The bound is 2n/(k + 2n) (C + h_0),
    where C <= 4 R^2/(lambda n) (Lacoste-Julien et al. 2013; Boileau et al. 2019).
extragradient: the restricted gap of the averages. The bound is (D_w + D_z) L/(tau + 1), with
    squared Euclidean distances (Boileau et al. 2019, 22).
away: the factor of the error for two steps of randomised away-step Frank-Wolfe over the simplex.
    The bound is 1 - eta^2 rho_f. The ratio compares decreases: (1 - bound) / (1 - measured).
cyclic: the factor of the dual error for an outer iteration of Algorithm 1 of Wang and Scott (2021).
    Theorem 3.6 only states that it is below 1, so the columns are the factors.
polynomial: the error of Algorithm 1 of Blondel et al. (2017). The bound is 8 beta tau^2/(t + 2),
    for a radius tau at which the bound is below the objective of the null model.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from _record import Table
from randomized_away import Quadratic, run, summary
from sklearn.datasets import load_digits, load_iris, load_wine

from dualgap import MulticlassSVC, PolynomialNetworkClassifier

SETS: dict[str, Any] = {"iris": load_iris, "wine": load_wine, "digits": load_digits}
LAMBDA = 0.01


def load(name: str) -> tuple[Any, Any]:
    """Return rows with centred columns and a mean squared norm of at most 1, and their classes."""
    X, y = SETS[name](return_X_y=True)
    X = X - X.mean(axis=0)
    deviations = X.std(axis=0)
    X = X / np.where(deviations > 0, deviations, 1.0) / np.sqrt(X.shape[1])
    return X, y


def store(table: Table, theorem: str, data: str, ratios: Any, at: tuple[int, int, int]) -> None:
    """Add the ratios after three numbers of steps; `ratios` begins at the first step."""
    early, middle, late = (ratios[step - 1] for step in at)
    steps = ", ".join(map(str, at))
    cells = {"early": early, "middle": middle, "late": late, "largest": float(np.max(ratios))}
    table.add(theorem=theorem, data=data, steps=steps, **cells)


class Hinge:
    """The dual of the Crammer and Singer loss: vertices are (-psi_i(y), L_i(y))."""

    def __init__(self, name: str) -> None:
        self.X, self.y = load(name)
        self.n, self.m = len(self.y), int(self.y.max()) + 1
        # ||psi_i(y)||^2 is twice the squared norm of the row.
        self.radius = float(np.sqrt(2.0) * np.linalg.norm(self.X, axis=1).max())

    def decode(self, W: Any, rows: Any) -> Any:
        """Return the labels with the largest loss-augmented scores."""
        scores = self.X[rows] @ W.T + 1.0
        scores[np.arange(len(scores)), self.y[rows]] -= 1.0
        return scores.argmax(axis=1)

    def vertex(self, labels: Any, rows: Any) -> tuple[Any, float]:
        """Return w_s and l_s for the given labels of some rows."""
        W, wrong = np.zeros((self.m, self.X.shape[1])), labels != self.y[rows]
        scale = 1.0 / (self.n * LAMBDA)
        np.add.at(W, self.y[rows], scale * self.X[rows])
        np.add.at(W, labels, -scale * self.X[rows])
        return W, float(wrong.sum()) / self.n


def gap(table: Table, name: str, steps: int = 1000) -> None:
    problem = Hinge(name)
    rows = np.arange(problem.n)
    W, loss = problem.vertex(problem.y, rows)
    smallest, ratios = np.inf, []
    for k in range(steps):
        W_s, l_s = problem.vertex(problem.decode(W, rows), rows)
        found = LAMBDA * float(((W - W_s) * W).sum()) - loss + l_s
        smallest = min(smallest, found)
        ratios.append(smallest / (27 / 4 * 4 * problem.radius**2 / LAMBDA / (k + 2)))
        step = 2.0 / (k + 2)
        W, loss = (1 - step) * W + step * W_s, (1 - step) * loss + step * l_s
    # The first iterate is the start, to which the theorem does not apply.
    store(table, "gap", name, np.array(ratios[1:]), (10, 100, steps - 1))


def blocks(table: Table, name: str, seeds: int = 5) -> None:
    problem = Hinge(name)
    n = problem.n
    passes = 30 if n < 500 else 10
    settings: Any = {"C": 1.0 / (LAMBDA * n), "fit_intercept": False, "tol": 1e-9, "max_iter": 5000}
    optimum = -MulticlassSVC(**settings).fit(problem.X, problem.y).dual_objective_
    errors = np.zeros((seeds, passes + 1))
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        W, loss = np.zeros((problem.m, problem.X.shape[1])), 0.0
        own, own_loss = np.zeros((n, *W.shape)), np.zeros(n)
        for k in range(passes * n + 1):
            if k % n == 0:
                errors[seed, k // n] = 0.5 * LAMBDA * (W * W).sum() - loss - optimum
            i = np.array([rng.integers(n)])
            W_s, l_s = problem.vertex(problem.decode(W, i), i)
            change = own[i[0]] - W_s
            slope = LAMBDA * float((change * W).sum()) - own_loss[i[0]] + l_s
            square = LAMBDA * float((change * change).sum())
            step = min(max(slope / square, 0.0), 1.0) if square > 0.0 else 0.0
            new = own[i[0]] - step * change
            W, loss = W + new - own[i[0]], loss + step * (l_s - own_loss[i[0]])
            own[i[0]], own_loss[i[0]] = new, own_loss[i[0]] + step * (l_s - own_loss[i[0]])
    curvature = 4 * problem.radius**2 / (LAMBDA * n)
    k = n * np.arange(passes + 1)
    bound = 2 * n / (k + 2 * n) * (curvature + errors[0, 0])
    ratios = (errors.mean(axis=0) / bound)[1:]
    store(table, "blocks", name, ratios, (1, 5, passes))


def onto_simplex(Z: Any) -> Any:
    """Project rows onto the simplex."""
    ordered = -np.sort(-Z, axis=1)
    sums = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, Z.shape[1] + 1)
    count = (ordered > sums).sum(axis=1)
    return np.maximum(Z - sums[np.arange(len(Z)), count - 1][:, None], 0.0)


def extragradient(table: Table, name: str, steps: int = 1000, norm: float = 10.0) -> None:
    X, y = load(name)
    n, m = len(y), int(y.max()) + 1
    costs, truth = 1.0 - np.eye(m)[y], np.eye(m)[y]
    # The saddle function L(W, z) = sum_i <z_i - e_{y_i}, W x_i> + <z_i, c_i> is bilinear in W and
    # z.
    Lipschitz = float(np.linalg.norm(X, 2))
    distances = 0.5 * norm**2, 0.5 * n * (1.0 - 1.0 / m)
    start = np.zeros((m, X.shape[1])), np.full((n, m), 1.0 / m)

    def operator(W: Any, Z: Any) -> tuple[Any, Any]:
        return (Z - truth).T @ X, -(X @ W.T + costs)

    def projected(W: Any, Z: Any) -> tuple[Any, Any]:
        length = float(np.linalg.norm(W))
        return W * min(1.0, norm / max(length, 1e-300)), onto_simplex(Z)

    sums, averages = [np.zeros_like(each) for each in start], [0.0 * each for each in start]
    ratios = []
    for t in range(steps):
        u = projected(*(s0 + s / Lipschitz for s0, s in zip(start, sums, strict=True)))
        g = operator(*u)
        v = projected(*(at - slope / Lipschitz for at, slope in zip(u, g, strict=True)))
        for total, slope in zip(sums, operator(*v), strict=True):
            total -= slope
        averages = [(t * a + b) / (t + 1) for a, b in zip(averages, v, strict=True)]
        W, Z = averages
        scores = X @ W.T
        largest = (scores + costs).max(axis=1).sum() - scores[np.arange(n), y].sum()
        smallest = (Z * costs).sum() - norm * np.linalg.norm((Z - truth).T @ X)
        ratios.append((largest - smallest) / (sum(distances) * Lipschitz / (t + 1)))
    store(table, "extragradient", name, np.array(ratios), (10, 100, steps))


def away(table: Table) -> None:
    f = Quadratic("simplex")
    values = np.linalg.svd(f.B, compute_uv=False)
    d = len(f.atoms)
    # Pyramidal width of the simplex and its diameter (Lacoste-Julien and Jaggi 2015, lemma 5).
    rho = values[-1] ** 2 * (4.0 / d) / (4.0 * values[0] ** 2 * 2.0)
    for share in (1.0, 0.5, 0.2, 0.05):
        objective, seen = run(f, share, 400)
        errors = (objective - objective.min()) / (objective[0] - objective.min())
        rate = summary(errors, seen)["rate"]
        measured, proven = 1.0 - rate**2, share**2 * rho
        name = f"simplex, share {share:g}"
        cells = {"early": None, "middle": None, "late": None, "largest": proven / measured}
        table.add(theorem="away", data=name, steps="2", **cells)


def exact_block(b: Any, v: Any, C: float) -> Any:
    """Maximise <v, b> - 1/2 b'(I + 11')b over [0, C]^(k-1) by exact coordinate steps."""
    for _ in range(1000):
        before = b.copy()
        for j in range(len(b)):
            rest = b.sum() - b[j]
            b[j] = min(max(0.5 * (v[j] - rest), 0.0), C)
        if np.abs(b - before).max() <= 1e-15 * C:
            break
    return b


def cyclic(table: Table, name: str, C: float, steps: int = 200) -> None:
    X, y = load(name)
    n, m = len(y), int(y.max()) + 1
    squares = (X * X).sum(axis=1)
    W, beta = np.zeros((m, X.shape[1])), np.zeros((n, m))
    values = []
    for _ in range(steps):
        for i in range(n):
            others = np.arange(m) != y[i]
            margins = (W[y[i]] - W[others]) @ X[i]
            b = beta[i, others]
            # In units of the squared norm, v is the gradient at b plus (I + 11') b.
            v = (1.0 - margins) / squares[i] + b + b.sum()
            new = exact_block(b.copy(), v, C)
            W[others] -= np.outer(new - b, X[i])
            W[y[i]] += (new - b).sum() * X[i]
            beta[i, others] = new
        values.append(0.5 * (W * W).sum() - beta.sum())
    errors = np.array(values) - values[-1]
    good = errors > 1e-9 * abs(values[-1])
    factors = (errors[1:] / errors[:-1])[good[1:]]
    last = len(factors)
    at = (min(3, last), max(last // 2, 1), last)
    store(table, "cyclic", f"{name}, C = {C:g}", factors, at)


def polynomial(table: Table, name: str, bases: int = 40) -> None:
    X, y = load(name)
    m = int(y.max()) + 1
    smoothness = 0.5 * (np.linalg.norm(X, axis=1) ** 4).sum()
    null = len(y) * np.log(m)
    # At t = 1 the bound is a half of the null model's objective.
    radius = float(np.sqrt(0.5 * null * 3.0 / (8.0 * smoothness)))
    settings: Any = {"linear": None, "random_state": 0, "n_jobs": 1}
    # For the l1 norm, basis selection finds the best vector: the factor nu of the theorem is 1.
    best = PolynomialNetworkClassifier(80, radius=radius, penalty="l1", tol=1e-5, **settings)
    model = PolynomialNetworkClassifier(
        bases, radius=radius, penalty="l1", tol=0.0, reoptimize="output", **settings
    ).fit(X, y)
    errors = model.history_["objective"] - best.fit(X, y).dual_objective_
    bound = 8.0 * smoothness * radius**2 / (np.arange(len(errors)) + 2)
    ratios = (errors / bound)[1:]
    last = len(ratios)
    store(table, "polynomial", name, ratios, (1, min(5, last), last))


def main() -> None:
    warnings.simplefilter("ignore")
    chosen = sys.argv[1:] or ["gap", "blocks", "extragradient", "away", "cyclic", "polynomial"]
    table = Table("theorems", "theorem", "data")
    if "away" in chosen:
        away(table)
    for name in SETS:
        for measure in (gap, blocks, extragradient, polynomial):
            if measure.__name__ in chosen:
                measure(table, name)
    if "cyclic" in chosen:
        for name in ("iris", "wine"):
            for C in (0.01, 0.1, 1.0):
                cyclic(table, name, C)


if __name__ == "__main__":
    main()
