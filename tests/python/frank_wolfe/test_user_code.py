"""`minimize` with user-defined functions, oracles and callbacks, correct and incorrect."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from typing import Any, cast

import numpy as np
import pytest
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

CENTER = np.array([0.7, 0.2, -0.1])


def distance(x: Any) -> Any:
    return 0.5 * ((x - CENTER) ** 2).sum(), x - CENTER


class Ball:
    """The Euclidean ball."""

    def vertex(self, gradient: Any) -> Any:
        return -gradient / max(np.linalg.norm(gradient), 1e-300)


def test_an_oracle_without_a_list_of_vertices_reaches_the_optimum() -> None:
    center = np.array([3.0, 4.0])
    f = lambda x: (0.5 * ((x - center) ** 2).sum(), x - center)  # noqa: E731
    found = minimize(f, Ball(), [0.0, 0.0], method="frank-wolfe", tol=1e-8)
    assert found.converged
    np.testing.assert_allclose(found.x, [0.6, 0.8], atol=1e-4)
    assert found.lower_bound <= 8.0 <= found.objective + 1e-12
    assert "the oracle's vertices minimise" in found.certificate
    assert "f is convex" in found.certificate
    with pytest.raises(ValueError, match="x0: is required"):
        minimize(f, Ball())


def test_an_oracle_that_maximises_is_an_error() -> None:
    class Maximises:
        shape = (3,)

        def vertex(self, gradient: Any) -> Any:
            return np.eye(3)[np.argmax(gradient)]

    for oracle in (Maximises(), Product(Maximises())):
        with pytest.raises(ValueError, match=r"^oracle: .*must minimise the inner product"):
            minimize(distance, oracle)


@pytest.mark.parametrize("domain", [Simplex(3), Ball()], ids=["simplex", "ball"])
@pytest.mark.parametrize("method", ["pairwise", "frank-wolfe"])
def test_a_gradient_with_the_wrong_sign_is_an_error(domain: Any, method: Any) -> None:
    f = lambda x: (x @ x, -2 * x)  # noqa: E731
    with pytest.raises(ValueError, match=r"^f: .*check_grad|f must be convex"):
        minimize(f, domain, [1.0, 0.0, 0.0], method=method)


def test_points_have_the_shape_of_the_set() -> None:
    shapes = []

    def f(x: Any) -> Any:
        shapes.append(x.shape)
        return (x**2).sum(), 2 * x

    found = minimize(f, Birkhoff(3), tol=1e-9)
    assert set(shapes) == {(3, 3)}
    np.testing.assert_allclose(found.x, np.full((3, 3), 1 / 3), atol=1e-4)
    assert all(vertex.shape == (3, 3) for vertex in found.vertices)


def test_problems_in_one_dimension_or_with_one_point_are_solved() -> None:
    f = LeastSquares([[2.0]], [3.0])
    found = minimize(f, L1Ball(1, 10.0))
    assert found.x[0] == pytest.approx(1.5)
    assert minimize(f, Simplex(1)).objective == 0.5
    assert minimize(f, ConvexHull([[1.0]])).gap <= 1e-12
    assert minimize(f, L1Ball(1, 1.0), max_iter=0, tol=10.0).n_iter == 0
    empty = np.empty((0, 2))
    assert minimize(LeastSquares(np.zeros((1, 2)), [0.0]), Simplex(2)).objective == 0.0
    with pytest.raises(ValueError, match="0 sample"):
        LeastSquares(empty, [])
    with pytest.raises(ValueError, match="x0: must have at least one entry"):
        minimize(distance, Ball(), [])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((np.nan, np.zeros(3)), "f: the value must return a finite number, got nan"),
        (("a", np.zeros(3)), "f: the value must return a finite number"),
        (
            (0.0, np.array([0.0, np.nan, 0.0])),
            "f: the gradient must return finite numbers, got nan",
        ),
        ((0.0, np.zeros(4)), r"f: the gradient must return an array of shape \(3,\), got .*\(4,\)"),
        ((0.0, np.zeros((3, 1))), r"f: the gradient must return an array of shape \(3,\)"),
        ((0.0, None), "f: the gradient must return an array"),
        ((0.0, 1j * np.ones(3)), "f: the gradient must return an array"),
        (0.0, r"f: must return \(value, gradient\), got float"),
    ],
)
def test_errors_describe_wrong_results_of_a_function(returned: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        minimize(lambda _: returned, Simplex(3))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.full(3, np.inf), "oracle: vertex must return finite numbers, got inf"),
        (np.zeros(2), r"oracle: vertex must return an array of shape \(3,\), got .*\(2,\)"),
        (None, "oracle: vertex must return an array"),
    ],
)
def test_errors_describe_wrong_results_of_an_oracle(returned: Any, message: str) -> None:
    class Wrong:
        def vertex(self, gradient: Any) -> Any:
            return returned

    with pytest.raises(ValueError, match=message):
        minimize(distance, Wrong(), np.zeros(3))


class UnrelatedError(Exception):
    """An exception class that the package does not know."""


@pytest.mark.parametrize("place", ["f", "oracle", "callback"])
@pytest.mark.parametrize("error", [UnrelatedError("a"), KeyboardInterrupt("b"), SystemExit(3)])
def test_exceptions_of_user_code_propagate(place: str, error: BaseException) -> None:
    calls = 0

    def fail(at: str) -> None:
        nonlocal calls
        calls += 1
        if at == place and calls > 2:
            raise error

    def f(x: Any) -> Any:
        fail("f")
        return distance(x)

    class Failing(Ball):
        def vertex(self, gradient: Any) -> Any:
            fail("oracle")
            return super().vertex(gradient)

    with pytest.raises(type(error)) as caught:
        minimize(
            f, Failing(), np.zeros(3), method="frank-wolfe", callback=lambda *_: fail("callback")
        )
    assert caught.value is error


def test_user_code_may_reuse_buffers_and_change_its_arguments() -> None:
    buffer, vertex = np.zeros(3), np.zeros(3)

    def f(x: Any) -> Any:
        buffer[:] = x - CENTER
        value = 0.5 * (buffer**2).sum()
        x[:] = np.nan
        return value, buffer

    class Reusing:
        def vertex(self, gradient: Any) -> Any:
            vertex[:] = np.eye(3)[gradient.argmin()]
            gradient[:] = np.nan
            return vertex

    plain = minimize(distance, Simplex(3))
    found = minimize(f, Reusing(), np.eye(3)[0])
    np.testing.assert_allclose(found.x, plain.x, atol=1e-3)
    assert found.converged
    start = np.eye(3)[1]
    minimize(f, Reusing(), start)
    assert start.tolist() == [0.0, 1.0, 0.0]


def test_infeasible_starts_and_inconsistent_functions_are_errors() -> None:
    for oracle, outside in [
        (Simplex(3), [0.7, 0.4, -0.1]),
        (L1Ball(3), [0.6, -0.5, 0.0]),
        (KSparse(3, 2, 0.5), [0.6, 0.0, 0.0]),
        (Product(Simplex(2), L1Ball(1)), [0.5, 0.5, 1.1]),
    ]:
        with pytest.raises(ValueError, match=r"x0: .* but violates a constraint by 0"):
            minimize(distance, oracle, outside)
    f = lambda x: ((x**2).sum(), 2 * x)  # noqa: E731
    for matrices in (Birkhoff(2), NuclearNormBall((2, 2), 1.0)):
        with pytest.raises(ValueError, match="x0: must be in the set"):
            minimize(f, matrices, np.ones((2, 2)))

    class Maximising:
        def vertex(self, gradient: Any) -> Any:
            return np.eye(3)[gradient.argmax()]

    with pytest.raises(ValueError, match="oracle: its vertex has the slope"):
        minimize(distance, Maximising(), np.full(3, 1 / 3))
    mismatched = lambda x: (100 * distance(x)[0], 0.01 * distance(x)[1])  # noqa: E731
    with pytest.raises(ValueError, match=r"f: the value .* f must be convex"):
        minimize(mismatched, Simplex(3), [0.1, 0.1, 0.8], line_search="secant")


@pytest.mark.parametrize("method", ["frank-wolfe", "away", "pairwise"])
def test_the_warning_of_a_stalled_run_names_the_method(method: Any) -> None:
    def rounded(x: Any) -> Any:
        # Values in single precision lack the last digits.
        value, gradient = distance(x.astype(np.float32))
        return float(np.float32(value)), gradient.astype(np.float32)

    with pytest.warns(
        ConvergenceWarning, match=f"method='{method}' stopped after .*floating point"
    ):
        found = minimize(rounded, Simplex(3), method=method, tol=0.0, line_search="backtracking")
    assert not found.converged
    assert found.n_iter < 10_000


def test_a_callback_sees_all_iterations_and_ends_the_run() -> None:
    seen: list[Any] = []
    f = LeastSquares(np.random.default_rng(0).normal(size=(20, 30)), np.ones(20))
    found = minimize(f, L1Ball(30), callback=lambda *values: seen.append(values))
    assert [values[0] for values in seen] == list(range(1, found.n_iter + 1))
    assert seen[-1][2] == found.objective
    assert seen[-1][3] == found.lower_bound
    stopped = minimize(f, L1Ball(30), callback=lambda iteration, *_: iteration == 3)
    assert stopped.n_iter == 3
    assert stopped.gap == stopped.history["gap"][-1] or np.isnan(stopped.history["gap"][-1])


def test_verbose_prints_iterations(capsys: Any) -> None:
    minimize(distance, Simplex(3), verbose=1)
    assert "iteration     1" in capsys.readouterr().err
    minimize(distance, Simplex(3), verbose=0)
    assert capsys.readouterr().err == ""


RUNS = {
    "python": "minimize(lambda x: (((x - b) ** 2).sum(), 2 * (x - b)), Simplex(2000), "
    "method='frank-wolfe', tol=0, max_iter=10**9)",
    "lasso": "minimize(LeastSquares(A, A @ b), L1Ball(2000, 0.5), "
    "method='frank-wolfe', tol=0, max_iter=10**9)",
    "assignment": "minimize(lambda x: (((x - B) ** 2).sum(), 2 * (x - B)), Birkhoff(1500), tol=0)",
    "matrices": "minimize(MatrixCompletion(*np.indices((400, 400)).reshape(2, -1), "
    "rng.normal(size=400**2), (400, 400)), NuclearNormBall((400, 400), 1e4), tol=0, "
    "max_iter=10**9)",
}


def test_ctrl_c_ends_a_run_within_a_second() -> None:
    program = f"""
        import time
        import numpy as np
        from dualgap.frank_wolfe import *
        rng = np.random.default_rng(0)
        b = 1e-3 * rng.random(2000)
        A, B = rng.normal(size=(1000, 2000)), rng.normal(size=(1500, 1500))
        for run in {list(RUNS.values())}:
            print("ready", flush=True)
            try:
                eval(run)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
    """
    code = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seconds = {}
        for run in RUNS:
            ready = process.stdout.readline()
            time.sleep(0.5)
            start = time.perf_counter()
            process.send_signal(signal.SIGINT)
            if (ready, process.stdout.readline()) == ("ready\n", "interrupted\n"):
                seconds[run] = time.perf_counter() - start
        process.kill()
    # The limit is one second, plus a margin for a busy machine.
    assert {run for run, ended in seconds.items() if ended < 3.0} == set(RUNS), seconds


F = LeastSquares(np.eye(3), np.ones(3))
WRONG: Any = minimize  # Calls `minimize` with arguments that type checkers reject.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: minimize(F, Simplex(4)), r"oracle: its points have shape \(4,\), but f has"),
        (lambda: minimize(F, Simplex(3), [1.0, 0.0]), r"x0: must have shape \(3,\)"),
        (lambda: minimize(F, Simplex(3), [1.0, np.nan, 0.0]), "x0: must be finite"),
        (lambda: WRONG(F, Simplex(3), method="newton"), "method: "),
        (lambda: WRONG(F, Simplex(3), line_search="exactly"), "line_search: "),
        (lambda: minimize(F, Simplex(3), tol=-1.0), "tol: "),
        (lambda: WRONG(F, Simplex(3), max_iter=1.5), "max_iter: "),
        (
            lambda: minimize(F, Simplex(3), subsample=0.5),
            "subsample: method='pairwise' does not use",
        ),
        (
            lambda: minimize(F, Simplex(3), method="randomized-away", subsample=1.5),
            "subsample: must be at most 1, got 1.5",
        ),
        (lambda: Simplex(0), "n: "),
        (lambda: L1Ball(3, -1.0), "radius: "),
        (lambda: KSparse(3, 4), "k: must be at most n=3, got 4"),
        (lambda: NuclearNormBall(cast("Any", (3,)), 1.0), "matrix_shape: "),
        (lambda: ConvexHull([[np.nan]]), "points: must be finite"),
        (lambda: ConvexHull([1.0]), "points: must have shape"),
        (Product, "factors: must contain at least one oracle"),
        (lambda: Product(Ball()), "factors: oracle 0 .Ball. must have an attribute shape"),
        (lambda: LeastSquares(np.eye(3), np.ones(2)), r"b: must have shape \(3,\)"),
        (lambda: LeastSquares(np.eye(3), [1.0, np.inf, 0.0]), "b: must be finite"),
        (lambda: Logistic(np.eye(2), [0.0, 1.0]), "y: must be -1 or 1, got 0"),
        (lambda: MatrixCompletion([0], [2], [1.0], (2, 2)), "columns: must be from 0 to 1"),
        (lambda: MatrixCompletion([0.5], [1], [1.0], (2, 2)), "rows: must be integers"),
        (
            lambda: minimize(
                MatrixCompletion([0, 0], [1, 1], [1.0, 2.0], (2, 2)), NuclearNormBall((2, 2), 1.0)
            ),
            r"rows: the entry \(0, 1\) occurs twice",
        ),
        (lambda: Simplex(3).vertex([1.0, 2.0]), r"gradient: must have shape \(3,\)"),
        (lambda: F.value([1.0]), r"x: must have shape \(3,\)"),
    ],
)
def test_errors_name_the_bad_argument(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: minimize(3, Simplex(3)), "f: must be an object with the methods value"),
        (lambda: minimize(F, 3), "oracle: must be a set of dualgap.frank_wolfe"),
        (lambda: minimize(F, Simplex), "oracle: "),
        (lambda: WRONG(F, Simplex(3), callback=3), "callback: must be callable"),
    ],
)
def test_errors_name_the_argument_of_a_wrong_type(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()
