"""`minimize`: certificates compared with independent optima, for all methods and all sets."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment, nnls
from sklearn.exceptions import ConvergenceWarning

from dualgap.frank_wolfe import (
    Birkhoff,
    ConvexHull,
    KSparse,
    L1Ball,
    LeastSquares,
    Logistic,
    MatrixCompletion,
    NuclearNormBall,
    Product,
    Simplex,
    minimize,
)

METHODS = ["frank-wolfe", "away", "pairwise", "randomized-away"]


class Distance:
    """Half the squared distance from a point, written in Python."""

    def __init__(self, center: Any) -> None:
        self.center = center

    def value(self, x: Any) -> Any:
        return 0.5 * ((x - self.center) ** 2).sum()

    def gradient(self, x: Any) -> Any:
        return x - self.center


class Corners:
    """The simplex, written in Python as a user would."""

    def __init__(self, n: int) -> None:
        self.shape = (n,)

    def vertex(self, gradient: Any) -> Any:
        return np.eye(len(gradient))[gradient.argmin()]


def vertices_of(oracle: Any) -> Any:
    """All vertices of a set, as rows."""
    if isinstance(oracle, ConvexHull):
        return oracle.points
    if isinstance(oracle, Product):
        parts = itertools.product(*map(vertices_of, oracle.factors))
        return np.array([np.concatenate([row.ravel() for row in part]) for part in parts])
    if isinstance(oracle, Birkhoff):
        eye = np.eye(oracle.n)
        orders = itertools.permutations(range(oracle.n))
        return np.array([eye[list(order)].ravel() for order in orders])
    if isinstance(oracle, Simplex | Corners):
        return getattr(oracle, "radius", 1.0) * np.eye(oracle.shape[0])
    k = oracle.k if isinstance(oracle, KSparse) else 1
    found = []
    for chosen in itertools.combinations(range(oracle.n), k):
        for signs in itertools.product((-1.0, 1.0), repeat=k):
            row = np.zeros(oracle.n)
            row[list(chosen)] = np.multiply(oracle.radius, signs)
            found.append(row)
    return np.array(found)


def make_sets(rng: np.random.Generator) -> list[Any]:
    return [
        Simplex(4, rng.uniform(0.1, 3.0)),
        L1Ball(4, rng.uniform(0.1, 3.0)),
        KSparse(4, 2, rng.uniform(0.1, 2.0)),
        Birkhoff(3),
        ConvexHull(rng.normal(size=(7, 4))),
        Product(Simplex(2), L1Ball(3, 0.5)),
        Product(ConvexHull(rng.normal(size=(3, 2))), Simplex(3, 2.0)),
        Corners(5),
    ]


def nearest_point_of_hull(A: Any, b: Any, vertices: Any) -> Any:
    """Return the point of the hull with the smallest residual, by non-negative least squares."""
    heavy = 1e4 * np.ones((1, len(vertices)))
    weights, _ = nnls(np.vstack([A @ vertices.T, heavy]), np.r_[b, 1e4], maxiter=10_000)
    return (weights / weights.sum()) @ vertices


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_below_every_point_and_close_to_the_best(method: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for oracle in make_sets(rng):
        if method == "randomized-away" and isinstance(oracle, KSparse | Birkhoff | Corners):
            continue
        n = int(np.prod(oracle.shape))
        A, b = rng.normal(size=(9, n)), 2.0 * rng.normal(size=9)
        best = nearest_point_of_hull(A, b, vertices_of(oracle))
        optimum = 0.5 * float(((A @ best - b) ** 2).sum())
        for f in (LeastSquares(A, b), LeastSquares(sp.csr_array(A), b), Squares(A, b)):
            found = minimize(f, oracle, method=method, tol=1e-7, random_state=seed, max_iter=3000)
            assert found.lower_bound <= optimum + 1e-12 * (1.0 + optimum), (oracle, f)
            assert found.objective >= optimum - 1e-5 * (1.0 + optimum), (oracle, f)
            assert found.objective - found.gap <= found.lower_bound
            assert found.objective == pytest.approx(0.5 * ((A @ found.x.ravel() - b) ** 2).sum())
            if method != "frank-wolfe":
                assert found.converged
                assert found.gap <= 1e-7 * max(1.0, found.objective)
                total = sum(w * v for w, v in zip(found.weights, found.vertices, strict=True))
                np.testing.assert_allclose(total, found.x, atol=1e-9)
                assert found.weights.sum() == pytest.approx(1.0)


class Squares:
    """Least squares over points of any shape, as a callable without a line search."""

    def __init__(self, A: Any, b: Any) -> None:
        self.A, self.b = A, b

    def __call__(self, x: Any) -> Any:
        residual = self.A @ x.ravel() - self.b
        return 0.5 * residual @ residual, (self.A.T @ residual).reshape(x.shape)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", METHODS)
def test_bounds_hold_in_exact_arithmetic_when_rounding_ends_a_run(method: Any) -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        A, b = rng.integers(-9, 9, size=(4, 3)).astype(float), rng.normal(size=4)
        found = minimize(
            LeastSquares(A, b), Simplex(3), method=method, tol=0.0, max_iter=500, random_state=0
        )
        # A rational point of the simplex, close to x.
        x = [max(Fraction(value), Fraction(0)) for value in found.x.tolist()]
        x = [value / sum(x) for value in x]
        rows = zip(A.tolist(), b.tolist(), strict=True)
        residuals = [
            sum(Fraction(a) * v for a, v in zip(row, x, strict=True)) - Fraction(t)
            for row, t in rows
        ]
        value = sum(r * r for r in residuals) / 2
        assert Fraction(found.lower_bound) <= value
        if method != "frank-wolfe":
            assert value - Fraction(found.lower_bound) < Fraction(1, 10**9)


def small_gap_problems() -> dict[str, Any]:
    """Least squares problems, each with a matrix, targets and a set."""
    rng = np.random.default_rng(0)
    A, dense = rng.normal(size=(200, 1000)), rng.normal(size=(300, 100))
    B, C = rng.normal(size=(60, 30)), rng.normal(size=(50, 30))
    noise = rng.normal(size=300)
    return {
        # The residuals are 20 times smaller than the targets.
        "lasso": (A, A[:, :5].sum(axis=1) + 0.1 * noise[:200], L1Ball(1000, 4.5)),
        # Many steps lower the value by less than its last digit.
        "active-lasso": (dense, dense[:, :5].sum(axis=1) + noise, L1Ball(100, 20.0)),
        "simplex": (np.eye(500), rng.random(500), Simplex(500)),
        "product": (B, rng.normal(size=60), Product(Simplex(10), L1Ball(20, 1.5))),
        "hull": (C, 3.0 * rng.normal(size=50), ConvexHull(rng.normal(size=(200, 30)))),
    }


@pytest.mark.parametrize("method", ["away", "pairwise"])
@pytest.mark.parametrize("name", ["lasso", "active-lasso", "simplex", "product", "hull"])
def test_gaps_of_1e_11_are_reached_and_are_bounds(name: str, method: Any) -> None:
    A, b, oracle = small_gap_problems()[name]
    for f in (LeastSquares(A, b), Squares(A, b)):
        found = minimize(f, oracle, method=method, tol=1e-11, max_iter=30_000)
        assert found.converged
        assert found.gap <= 1e-11 * found.objective
        # The objective and the gap in extended precision.
        x, wide = np.asarray(found.x, np.longdouble), A.astype(np.longdouble)
        residual = wide @ x - b
        gradient = wide.T @ residual
        objective = 0.5 * residual @ residual
        vertex = np.asarray(oracle.vertex(gradient.astype(float)), np.longdouble)
        assert abs(found.objective - objective) <= 1e-13 * objective
        gap = gradient @ (x - vertex)
        assert gap <= 1e-11 * objective
        if isinstance(f, LeastSquares):
            assert gap <= found.gap


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", ["away", "pairwise"])
def test_bounds_hold_in_extended_precision_when_rounding_ends_a_run(method: Any) -> None:
    rng = np.random.default_rng(1)
    A, y = rng.normal(size=(700, 20)), np.where(rng.random(700) < 0.5, -1.0, 1.0)
    wide = A.astype(np.longdouble)
    problems = [
        (LeastSquares(A, y), lambda x: 0.5 * ((wide @ x - y) ** 2).sum()),
        (LeastSquares(sp.csr_array(A), y), lambda x: 0.5 * ((wide @ x - y) ** 2).sum()),
        (Logistic(A, y), lambda x: np.log1p(np.exp(-y * (wide @ x))).sum()),
    ]
    for f, value in problems:
        found = minimize(f, L1Ball(20, 0.2), method=method, tol=0.0, max_iter=2000)
        x = found.x.astype(np.longdouble)
        x *= min(1.0, 0.2 / abs(x).sum())
        # The error of the value at the minimum is far below the error of the bound.
        assert found.lower_bound <= value(x)
        assert found.gap <= 1e-11 * found.objective


@pytest.mark.parametrize("method", ["frank-wolfe", "away", "pairwise"])
def test_the_nuclear_norm_finds_the_projection_of_a_matrix(method: Any) -> None:
    rng = np.random.default_rng(0)
    for shape in [(5, 3), (3, 6), (1, 4), (4, 1), (1, 1)]:
        M = rng.normal(size=shape)
        radius = float(0.5 * np.linalg.norm(M, "nuc"))
        left, values, right = np.linalg.svd(M, full_matrices=False)
        kept = np.arange(1, len(values) + 1)
        shifts = (np.cumsum(values) - radius) / kept
        shift = shifts[values > shifts][-1]
        nearest = left @ np.diag(np.maximum(values - shift, 0.0)) @ right
        optimum = 0.5 * ((nearest - M) ** 2).sum()
        rows, columns = np.indices(shape).reshape(2, -1)
        completion = MatrixCompletion(rows, columns, M.ravel(), shape)
        for f in (Distance(M), completion):
            found = minimize(f, NuclearNormBall(shape, radius), method=method, tol=1e-3)
            assert found.converged
            assert found.lower_bound <= optimum * (1.0 + 1e-12)
            assert found.objective >= optimum * (1.0 - 1e-12)
            x = np.asarray(found.x)
            assert x.shape == shape
            assert np.linalg.norm(x, "nuc") <= radius * (1.0 + 1e-12)
            assert found.objective == pytest.approx(0.5 * ((x - M) ** 2).sum())


def test_factored_and_dense_solutions_have_the_same_objective() -> None:
    rng = np.random.default_rng(0)
    M = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))
    rows, columns = np.nonzero(rng.random(M.shape) < 0.5)
    f = MatrixCompletion(rows, columns, M[rows, columns], M.shape)
    ball = NuclearNormBall(M.shape, 20.0)
    low_rank = minimize(f, ball, tol=1e-2, max_iter=2000)
    dense = minimize(f, ball, np.zeros(M.shape), tol=1e-2, max_iter=2000)
    assert low_rank.converged
    assert dense.converged
    assert abs(low_rank.objective - dense.objective) <= max(low_rank.gap, dense.gap)
    np.testing.assert_allclose(
        low_rank.x.entries(rows, columns), np.asarray(low_rank.x)[rows, columns]
    )
    error = np.asarray(low_rank.x)[rows, columns] - M[rows, columns]
    assert low_rank.objective == pytest.approx(0.5 * (error**2).sum())
    assert low_rank.x.shape == M.shape


@pytest.mark.parametrize("line_search", ["auto", "open-loop", "exact", "secant", "backtracking"])
def test_every_line_search_reaches_the_minimum(line_search: Any) -> None:
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(8, 3)), rng.normal(size=8)
    # The minimum is inside the set, where the batch method converges linearly with a line search.
    f = LeastSquares(A, A @ np.full(3, 0.1) + 0.01 * b)
    tol = 1e-2 if line_search == "open-loop" else 1e-5
    found = minimize(f, L1Ball(3, 5.0), method="frank-wolfe", line_search=line_search, tol=tol)
    assert found.converged
    inside = 0.5 * np.linalg.lstsq(A, f.b, rcond=None)[1][0]
    assert found.lower_bound <= inside <= found.objective
    if line_search == "open-loop":
        with pytest.raises(ValueError, match=r"line_search: .* require method="):
            minimize(f, L1Ball(3), line_search=line_search)


def test_a_line_search_method_of_the_function_is_used() -> None:
    steps = []

    class WithSearch(Distance):
        def line_search(self, x: Any, direction: Any, longest: float) -> float:
            step = float(
                np.clip(-(x - self.center) @ direction / (direction @ direction), 0, longest)
            )
            steps.append(step)
            return step

    found = minimize(WithSearch(np.array([0.2, 0.5, 0.1])), Simplex(3), line_search="exact")
    assert found.converged
    assert len(steps) >= found.n_iter - 1 > 0
    with pytest.raises(ValueError, match='line_search: "exact" requires a quadratic function'):
        minimize(Distance(np.ones(3)), Simplex(3), line_search="exact")


def test_logistic_has_the_value_and_gradient_of_its_formula() -> None:
    rng = np.random.default_rng(0)
    A, y = rng.normal(size=(40, 5)), np.where(rng.random(40) < 0.5, -1.0, 1.0)
    f = Logistic(A, y)
    x = rng.normal(size=5)
    assert f.value(x) == pytest.approx(np.logaddexp(0.0, -y * (A @ x)).sum())
    step = 1e-6 * np.eye(5)
    slopes = [(f.value(x + e) - f.value(x - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(f.gradient(x), slopes, rtol=1e-6)
    pairwise = minimize(f, L1Ball(5, 1.0), tol=1e-9)
    sparse = minimize(Logistic(sp.csr_array(A), y), L1Ball(5, 1.0), tol=1e-9)
    assert pairwise.converged
    assert abs(pairwise.objective - sparse.objective) <= 2 * pairwise.gap


def test_vertices_minimise_linear_functions() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        for oracle in make_sets(rng)[:-1]:
            gradient = np.round(rng.normal(size=oracle.shape), 1)
            vertex = oracle.vertex(gradient)
            assert vertex.shape == oracle.shape
            best = (vertices_of(oracle) @ gradient.ravel()).min()
            assert (vertex * gradient).sum() == pytest.approx(best, abs=1e-12)
    costs = rng.normal(size=(30, 30))
    found = (Birkhoff(30).vertex(costs) * costs).sum()
    assert found == pytest.approx(costs[linear_sum_assignment(costs)].sum())
    M = rng.normal(size=(7, 9))
    vertex = NuclearNormBall((7, 9), 2.0).vertex(M)
    assert (vertex * M).sum() == pytest.approx(-2.0 * np.linalg.norm(M, 2))


@pytest.mark.parametrize("method", METHODS)
def test_results_do_not_depend_on_the_number_of_threads(method: Any) -> None:
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(300, 800)), rng.normal(size=300)
    options: Any = {"method": method, "max_iter": 60, "tol": 1e-12, "random_state": 3}
    with pytest.warns(ConvergenceWarning, match=f"method='{method}' stopped after 60 iterations"):
        runs = [minimize(LeastSquares(A, b), L1Ball(800, 3.0), n_jobs=k, **options) for k in (1, 4)]
    assert runs[0].x.tobytes() == runs[1].x.tobytes()
    assert runs[0].lower_bound == runs[1].lower_bound
    rows, columns = np.nonzero(rng.random((200, 300)) < 0.3)
    f = MatrixCompletion(rows, columns, rng.normal(size=len(rows)), (200, 300))
    if method != "randomized-away":
        with pytest.warns(ConvergenceWarning):
            maps = [
                minimize(f, NuclearNormBall(f.shape, 50.0), n_jobs=k, **options) for k in (1, 4)
            ]
        assert maps[0].x.left.tobytes() == maps[1].x.left.tobytes()
        assert maps[0].lower_bound == maps[1].lower_bound


def test_a_seed_fixes_the_sampled_vertices() -> None:
    rng = np.random.default_rng(0)
    f = LeastSquares(rng.normal(size=(30, 60)), rng.normal(size=30))

    def run(seed: int) -> Any:
        return minimize(
            f, L1Ball(60), method="randomized-away", subsample=0.05, random_state=seed, tol=1e-4
        )

    assert run(0).x.tobytes() == run(0).x.tobytes()
    assert run(0).n_iter != run(1).n_iter or run(0).x.tobytes() != run(1).x.tobytes()
    with pytest.raises(ValueError, match="requires a set with a list of its vertices"):
        minimize(Distance(np.eye(3)), Birkhoff(3), method="randomized-away")
