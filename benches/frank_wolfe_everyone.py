"""`dualgap.frank_wolfe.minimize` compared with plain NumPy loops of the same method.

    python benches/frank_wolfe_everyone.py [--data FOLDER]

Lasso problems (dense and sparse) by batch and pairwise steps, matrix completion by batch steps, and
distances ||x - p||^2 to a random p by pairwise steps, with exact line searches. The distances are
those of the examples of FrankWolfe.jl: away_step_cg.jl (k-sparse with k = 40, or the simplex, n =
100; also n = 10,000 as in lazy_away_step_cg.jl) and birkhoff_polytope.jl (n = 100, divided by n^2).
"randomized-away" searches a tenth of the atoms in each step, and has no NumPy loop.

Both programs use one thread and end at the same gap. The NumPy loop for the lasso updates the
residuals, so that a step costs one product with A.T. The loop for matrix completion updates the
observed entries and calls `svds` on a sparse matrix. Ratings are those of MovieLens 1M
(`movielens_1m.npz` in the folder of `--data` or DUALGAP_DATA); without the file, a generated matrix
of 1,000 rows is used instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from _data import path_of
from _record import Table, data_folder
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import svds
from threadpoolctl import threadpool_limits

from dualgap.frank_wolfe import (
    Birkhoff,
    KSparse,
    L1Ball,
    LeastSquares,
    MatrixCompletion,
    NuclearNormBall,
    Simplex,
    minimize,
)

MAX_ITER = 20_000


class Distance:
    """The function scale * ||x - p||^2, as a user of `minimize` would write it."""

    def __init__(self, p: Any, scale: float = 1.0) -> None:
        self.p, self.scale = p, scale

    def value(self, x: Any) -> float:
        return self.scale * float(((x - self.p) ** 2).sum())

    def gradient(self, x: Any) -> Any:
        return 2.0 * self.scale * (x - self.p)

    def line_search(self, x: Any, direction: Any, longest: float) -> float:
        slope = -float(((x - self.p) * direction).sum())
        return min(longest, max(0.0, slope / float((direction * direction).sum())))


def numpy_pairwise(f: Distance, vertex: Callable[[Any], Any], tol: float) -> tuple[float, int]:
    """Run pairwise Frank-Wolfe with stored vertices; return the gap and the number of steps."""
    x = vertex(np.zeros(f.p.shape))
    atoms, weights = {x.tobytes(): x}, {x.tobytes(): 1.0}
    for iteration in range(MAX_ITER):
        gradient = f.gradient(x)
        to = vertex(gradient)
        gap = float((gradient * (x - to)).sum())
        if gap <= tol * max(1.0, f.value(x)):
            return gap, iteration
        away = max(atoms, key=lambda key: float((gradient * atoms[key]).sum()))
        direction, name = to - atoms[away], to.tobytes()
        step = f.line_search(x, direction, weights[away])
        x = x + step * direction
        atoms[name], weights[name] = to, weights.get(name, 0.0) + step
        weights[away] -= step
        if weights[away] <= 0.0:
            del atoms[away], weights[away]
    return gap, MAX_ITER


def simplex_vertex(gradient: Any) -> Any:
    x = np.zeros(len(gradient))
    x[gradient.argmin()] = 1.0
    return x


def sparse_vertex(gradient: Any, k: int = 40) -> Any:
    x, chosen = np.zeros(len(gradient)), np.argpartition(-np.abs(gradient), k)[:k]
    x[chosen] = np.where(gradient[chosen] > 0.0, -1.0, 1.0)
    return x


def permutation_vertex(gradient: Any) -> Any:
    x = np.zeros(gradient.shape)
    x[linear_sum_assignment(gradient)] = 1.0
    return x


def distances(table: Table) -> None:
    rng = np.random.default_rng(0)
    for n in (100, 10_000):
        f = Distance(rng.random(n))
        for name, oracle, vertex in (
            ("simplex", Simplex(n), simplex_vertex),
            ("k-sparse", KSparse(n, 40), sparse_vertex),
        ):
            distance(table, f"{name}, n = {n}", f, oracle, vertex)
    n = 100
    distance(
        table,
        f"Birkhoff, {n} x {n}",
        Distance(rng.random((n, n)), 1.0 / n**2),
        Birkhoff(n),
        permutation_vertex,
    )


def distance(table: Table, name: str, f: Distance, oracle: Any, vertex: Any) -> None:
    tol = 1e-5
    cells = {"problem": "distance", "data": name, "method": "pairwise", "tol": tol}
    ours = partial(minimize, f, oracle, method="pairwise", tol=tol, max_iter=MAX_ITER, n_jobs=1)
    compare(table, cells, ours, partial(numpy_pairwise, f, vertex, tol))


def numpy_lasso(A: Any, b: Any, radius: float, method: str, tol: float) -> tuple[float, int]:
    """Run batch or pairwise Frank-Wolfe on the l1 ball; return the gap and the number of steps."""
    n = A.shape[1]
    by_column: Any = A.T.tocsr().T if sp.issparse(A) else np.asfortranarray(A)
    transposed = A.T.tocsr() if sp.issparse(A) else A.T

    def column(j: int) -> Any:
        return by_column[:, [j]].toarray().ravel() if sp.issparse(A) else by_column[:, j]

    x, weights = np.zeros(n), {(0, 1.0): 1.0}
    x[0] = radius
    residual = radius * column(0) - b
    for iteration in range(MAX_ITER):
        gradient = transposed @ residual
        to = int(np.abs(gradient).argmax())
        sign = -1.0 if gradient[to] > 0 else 1.0
        gap = float(gradient @ x - sign * radius * gradient[to])
        if gap <= tol * max(1.0, 0.5 * residual @ residual):
            return gap, iteration
        if method == "frank-wolfe":
            image = sign * radius * column(to) - (residual + b)
            slope, longest = gap, 1.0
        else:
            away = max(weights, key=lambda atom: atom[1] * gradient[atom[0]])
            j, s = away
            image = radius * (sign * column(to) - s * column(j))
            slope = radius * (s * gradient[j] - sign * gradient[to])
            longest = weights[away]
        step = min(longest, slope / float(image @ image))
        residual = residual + step * image
        if method == "frank-wolfe":
            x *= 1.0 - step
            x[to] += step * sign * radius
        else:
            x[to] += step * sign * radius
            x[j] -= step * s * radius
            weights[to, sign] = weights.get((to, sign), 0.0) + step
            weights[away] -= step
            if step == longest:
                del weights[away]
    return gap, MAX_ITER


def numpy_completion(
    rows: Any, columns: Any, values: Any, shape: tuple[int, int], radius: float, tol: float
) -> tuple[float, int]:
    """Run batch Frank-Wolfe on the nuclear norm ball; return the gap and the number of steps."""
    pattern = sp.csr_array((np.arange(1, len(rows) + 1), (rows, columns)), shape=shape)
    order, columns = pattern.data - 1, pattern.indices
    rows = np.repeat(np.arange(shape[0]), np.diff(pattern.indptr))
    values = values[order]
    gradient = sp.csr_array((-values, columns, pattern.indptr), shape=shape)
    u, _, v = svds(gradient, k=1, tol=1e-4, rng=0)
    entries = -radius * u[rows, 0] * v[0, columns]
    for iteration in range(MAX_ITER):
        residual = entries - values
        gradient.data[:] = residual
        u, _, v = svds(gradient, k=1, tol=1e-4, v0=v[0] if shape[1] < shape[0] else u[:, 0])
        direction = -radius * u[rows, 0] * v[0, columns] - entries
        gap = float(-residual @ direction)
        if gap <= tol * max(1.0, 0.5 * residual @ residual):
            return gap, iteration
        entries = entries + min(1.0, gap / float(direction @ direction)) * direction
    return gap, MAX_ITER


def compare(
    table: Table,
    cells: dict[str, Any],
    ours: Callable[[], Any],
    loop: Callable[[], Any] = lambda: (None, None),
) -> None:
    """Measure the processor times of both programs alternately, and store the medians.

    There are three measurements, or fewer if the first ones take more than ten seconds. Without a
    loop, only the times of dualgap are stored.
    """
    times: list[tuple[float, float]] = []
    found = []
    while len(times) < 3 and sum(map(sum, times)) < 10.0:
        start = time.process_time()
        result = ours()
        middle = time.process_time()
        found.append((result.gap, result.n_iter, *loop()))
        times.append((middle - start, time.process_time() - middle))
    seconds, plain = np.median(times, axis=0)
    gap, steps, other_gap, other_steps = found[0]
    table.add(
        **cells,
        seconds=seconds,
        steps=steps,
        gap=gap,
        numpy_seconds=None if other_steps is None else plain,
        numpy_steps=other_steps,
        numpy_gap=other_gap,
        ratio=None if other_steps is None else plain / seconds,
    )


def lasso(table: Table) -> None:
    rng = np.random.default_rng(0)
    cases: dict[str, tuple[Any, int]] = {
        "dense, 1000 x 5000": (rng.normal(size=(1000, 5000)), 50),
        "dense, 5000 x 1000": (rng.normal(size=(5000, 1000)), 50),
        "correlated, 1000 x 2000": (rng.normal(size=(1000, 2000)) + rng.normal(size=(1000, 1)), 20),
        "sparse, 20000 x 10000": (
            sp.random_array((20_000, 10_000), density=0.005, format="csr", rng=rng),
            50,
        ),
    }
    for name, (A, k) in cases.items():
        x = np.zeros(A.shape[1])
        x[:k] = rng.normal(size=k)
        b = A @ x + 0.1 * rng.normal(size=A.shape[0])
        radius = 0.9 * float(np.abs(x).sum())
        f, ball = LeastSquares(A, b), L1Ball(A.shape[1], radius)
        for method, tol in (("frank-wolfe", 0.5), ("pairwise", 1e-6)):
            cells = {"problem": "lasso", "data": name, "method": method, "tol": tol}
            options: Any = {"method": method, "tol": tol, "max_iter": MAX_ITER, "n_jobs": 1}
            compare(
                table,
                cells,
                partial(minimize, f, ball, **options),
                partial(numpy_lasso, A, b, radius, method, tol),
            )
        cells["method"] = options["method"] = "randomized-away"
        compare(table, cells, partial(minimize, f, ball, random_state=0, **options))


def completion(table: Table, folder: Path | None) -> None:
    path = path_of("movielens_1m", folder)
    if path is not None:
        with np.load(path) as ratings:
            rows, columns = ratings["user"], ratings["item"]
            values, name, radius = ratings["rating"].astype(float), "MovieLens 1M", 5000.0
    else:
        rng = np.random.default_rng(0)
        truth = rng.normal(size=(1000, 5)) @ rng.normal(size=(5, 700))
        rows, columns = np.nonzero(rng.random(truth.shape) < 0.1)
        values, name, radius = truth[rows, columns], "generated, 1000 x 700", 2000.0
    values = values - values.mean()
    shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    f = MatrixCompletion(rows, columns, values, shape)
    for tol in (0.5, 0.2):
        cells = {
            "problem": "matrix completion",
            "data": name,
            "method": "frank-wolfe",
            "tol": tol,
        }
        options: Any = {"method": "frank-wolfe", "tol": tol, "n_jobs": 1}
        compare(
            table,
            cells,
            partial(minimize, f, NuclearNormBall(shape, radius), **options),
            partial(numpy_completion, rows, columns, values, shape, radius, tol),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--problem", choices=("lasso", "completion", "distance"))
    arguments = parser.parse_args()
    table = Table("frank-wolfe-everyone", "problem", "data", "method", "tol")
    with threadpool_limits(1):
        if arguments.problem in (None, "lasso"):
            lasso(table)
        if arguments.problem in (None, "distance"):
            distances(table)
        # After a missing file, all results go elsewhere, so this problem comes last.
        if arguments.problem in (None, "completion"):
            completion(table, arguments.data)


if __name__ == "__main__":
    main()
