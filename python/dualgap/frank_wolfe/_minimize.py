"""Minimisation of a smooth convex function over a set with a linear oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dualgap import _core, _records
from dualgap._choices import FrankWolfeMethod, LineSearch, check_choice
from dualgap._estimator import Callback, RandomState, warn_user
from dualgap._estimator.display import Forecast, display
from dualgap._validation import (
    FloatArray,
    check_positive,
    real_array,
    resolve_seed,
    resolve_threads,
)
from dualgap.frank_wolfe._functions import BuiltinFunction, core_function
from dualgap.frank_wolfe._result import LowRankMatrix, Minimum, dense_vertex
from dualgap.frank_wolfe._sets import BuiltinSet, NuclearNormBall, Product, core_set

_ADVICE = {
    "frank-wolfe": "raise max_iter or tol, or use method='pairwise', which converges linearly on "
    "polytopes",
    "away": "raise max_iter or tol",
    "pairwise": "raise max_iter or tol",
    "randomized-away": "raise max_iter, tol or subsample",
}


def minimize(
    f: Any,
    oracle: Any,
    x0: ArrayLike | None = None,
    *,
    method: FrankWolfeMethod = "pairwise",
    line_search: LineSearch = "auto",
    subsample: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    callback: Callback | None = None,
    verbose: int | bool | None = None,
) -> Minimum:
    """Minimise a smooth convex function over a compact convex set.

    Each step moves towards the vertex of the set that minimises the linear approximation of `f` at
    the current point, or away from a vertex found earlier. The same approximation bounds the
    minimum from below (Frank and Wolfe 1956; Jaggi 2013), so the result reports by how much its
    value can exceed the minimum. The bound accounts for rounding errors in the sums that this
    package computes.

    Parameters
    ----------
    f : object or callable
        A function of this module (`LeastSquares`, `Logistic`, `MatrixCompletion`); a callable that
        returns ``(value, gradient)``; or an object with the methods ``value(x)`` and
        ``gradient(x)``, and optionally ``line_search(x, direction, longest)``, which returns the
        best step. It must be convex and smooth on the set.
    oracle : object
        A set of this module, or an object with the method ``vertex(gradient)``, which returns a
        point v of the set that minimises the inner product of v and `gradient`. Optional
        attributes: `shape`, the shape of the points, and `radius`, the largest sum of the absolute
        values of a point's entries. With `radius`, the bound also accounts for rounding errors of a
        built-in `f`.
    x0 : array-like, optional
        Starting point in the set. If None, a vertex.
    method : {"pairwise", "away", "frank-wolfe", "randomized-away"}, default="pairwise"
        "frank-wolfe" moves only towards vertices, stores none of them, and converges at the rate
        1/iterations. "away" and "pairwise" also move weight off earlier vertices, and converge
        linearly for strongly convex functions on polytopes (Lacoste-Julien and Jaggi 2015).
        "randomized-away" makes away steps, and searches only the earlier vertices and a random
        fraction of all vertices (Kerdreux, Pedregosa and d'Aspremont 2018). It supports `Simplex`,
        `L1Ball`, `ConvexHull` and products of these.
    line_search : {"auto", "open-loop", "exact", "secant", "backtracking"}, default="auto"
        "exact" minimises a quadratic function along the step, or calls the line search of `f`.
        "secant" finds the zero of the derivative; "backtracking" compares only values. "open-loop"
        takes steps of ``2 / (t + 2)`` in iteration t; only for method "frank-wolfe". "auto" is
        "exact" if possible, and otherwise "secant".
    subsample : float, optional
        Fraction of the vertices that a step of "randomized-away" searches, more than 0 and at most
        1. If None, 0.1.
    tol : float, default=1e-6
        The run ends when the gap is at most ``tol * max(1, abs(f(x)))``.
    max_iter : int, default=10000
        Largest number of iterations.
    random_state : int, RandomState or None, default=None
        Seed of the sampled vertices; only "randomized-away" uses it.
    n_jobs : int, optional
        Number of threads of built-in functions; None and -1 mean all cores. The result does not
        depend on it.
    callback : callable, optional
        Called as ``callback(iteration, seconds, objective, lower_bound)`` after each iteration,
        with NaN for values that were not evaluated. A true return value ends the run.
    verbose : int, bool or None, default=None
        Progress on standard error: 1 shows it, 0 does not. None shows a bar in a terminal after two
        seconds.

    Returns
    -------
    Minimum
        The point, its objective and gap, and the record of the run.

    Raises
    ------
    ValueError
        For invalid arguments, and for a function or an oracle whose results contradict convexity or
        each other.
    TypeError
        If `f` or `oracle` lacks a method.
    RuntimeError
        If numbers overflow.

    Warns
    -----
    ConvergenceWarning
        If the gap is above the tolerance when the run ends.

    Examples
    --------
    >>> from dualgap.frank_wolfe import Simplex, minimize
    >>> found = minimize(lambda x: (((x - 0.1) ** 2).sum(), 2 * (x - 0.1)), Simplex(4))
    >>> found.x
    array([0.25, 0.25, 0.25, 0.25])
    """
    check_choice("method", method, FrankWolfeMethod)
    check_choice("line_search", line_search, LineSearch)
    _check_numbers(method, subsample, tol, max_iter)
    if callback is not None and not callable(callback):
        msg = f"callback: must be callable, got {callback!r}"
        raise TypeError(msg)
    start, shape = _start(f, oracle, x0)
    settings: _records.FrankWolfeRecord = {
        "method": method,
        "line_search": line_search,
        "subsample": 0.1 if subsample is None else float(subsample),
        "tol": float(tol),
        "max_iter": int(max_iter),
        "seed": resolve_seed(random_state),
        "n_threads": resolve_threads(n_jobs),
        "callback": callback,
    }
    function, domain = core_function(f, shape), core_set(oracle, shape)
    shown = display(verbose, "minimize", "iteration", Forecast(max_iter, tol))
    if shown is None:
        result = _core.minimize_frank_wolfe(function, domain, start, settings)
    else:
        with shown:

            def both(*iteration: Any) -> bool:
                shown(*iteration)
                return callback is not None and bool(callback(*iteration))

            result = _core.minimize_frank_wolfe(
                function, domain, start, {**settings, "callback": both}
            )
    found = _minimum(result, f, oracle, method, shape)
    if ", if " in found.certificate:
        _check_signs(function, domain, np.asarray(found.x, dtype=float).ravel())
    if not found.converged and result["outcome"] != "stopped":
        reason = ""
        if result["outcome"] == "exhausted":
            reason = ": further steps do not lower the value or the gap in floating point"
        tolerance = f"objective {found.objective:.6g}, tol={tol:.2g}"
        warn_user(
            f"method={method!r} stopped after {found.n_iter} iterations at a gap of "
            f"{found.gap:.3g} ({tolerance}){reason}; {_ADVICE[method]}"
        )
    return found


def _check_numbers(method: str, subsample: float | None, tol: float, max_iter: int) -> None:
    check_positive("tol", tol, zero=True)
    check_positive("max_iter", max_iter, integer=True, zero=True)
    if subsample is None:
        return
    if method != "randomized-away":
        msg = f"subsample: method={method!r} does not use it, got {subsample!r}"
        raise ValueError(msg)
    check_positive("subsample", subsample)
    if subsample > 1.0:
        msg = f"subsample: must be at most 1, got {subsample}"
        raise ValueError(msg)


def _start(f: Any, oracle: Any, x0: ArrayLike | None) -> tuple[Any, tuple[int, ...]]:
    """Return the starting point for the core, and the shape of the points."""
    if isinstance(oracle, type) or not callable(getattr(oracle, "vertex", None)):
        core_set(oracle, (1,))  # raises the error for an invalid oracle
    known = getattr(oracle, "shape", None)
    of_function = f.shape if isinstance(f, BuiltinFunction) else None
    shape = known if known is not None else of_function
    start = None
    if x0 is not None:
        start = real_array("x0", x0)
        if shape is None:
            shape = start.shape
        if start.shape != tuple(shape):
            msg = f"x0: must have shape {tuple(shape)}, the shape of the points, got {start.shape}"
            raise ValueError(msg)
        if not np.isfinite(start).all():
            msg = "x0: must be finite"
            raise ValueError(msg)
        outside = oracle._excess(start) if isinstance(oracle, BuiltinSet) else 0.0
        if outside > 0.0:
            msg = f"x0: must be in the set, but violates a constraint by {outside:.3g}"
            raise ValueError(msg)
        start = start.ravel()
    if shape is None:
        msg = (
            "x0: is required, because neither f nor oracle has a `shape` attribute (the shape "
            "of the points)"
        )
        raise ValueError(msg)
    shape = tuple(int(size) for size in shape)
    if of_function is not None and int(np.prod(of_function)) != int(np.prod(shape)):
        msg = f"oracle: its points have shape {shape}, but f has points of shape {of_function}"
        raise ValueError(msg)
    if 0 in shape:
        msg = f"x0: must have at least one entry, got shape {shape}"
        raise ValueError(msg)
    return start, shape


def _minimum(
    result: dict[str, Any], f: Any, oracle: Any, method: str, shape: tuple[int, ...]
) -> Minimum:
    objective, bound = result["objective"], result["dual_objective"]
    vertices = []
    if "left" in result:
        x: Any = LowRankMatrix(result["left"], result["right"])
    else:
        x = result["x"].reshape(shape)
        vertices = [dense_vertex(vertex, shape) for vertex in result["vertices"]]
    # The gap is rounded up, so that objective - gap is not above the bound.
    gap = objective - bound
    if objective - gap > bound:
        gap = float(np.nextafter(gap, np.inf))
    return Minimum(
        x=x,
        objective=objective,
        gap=gap,
        lower_bound=bound,
        converged=result["outcome"] == "converged",
        certificate=f"f(x) is at most {gap:.3g} above its minimum over the set"
        + _conditions(f, oracle),
        n_iter=len(result["history"]["epoch"]),
        history=result["history"],
        weights=result["weights"],
        vertices=vertices,
        method=method,
    )


def _check_signs(function: Any, domain: Any, x: FloatArray) -> None:
    """Check a user's gradient and vertices at the result, using the worst vertex.

    With a wrong sign, a run can end at its first point with a gap of 0 and no contradiction.
    """
    value, gradient = _core.smooth_value(function, x)
    if not gradient.any():
        return
    best, worst = (_core.linear_vertex(domain, sign * gradient) for sign in (1.0, -1.0))
    slack = 1e-6 * float(np.abs(gradient) @ (np.abs(best) + np.abs(worst)))
    if gradient @ best > gradient @ worst + slack:
        msg = (
            f"oracle: vertex(g) has the inner product {gradient @ best:.6g} with g, and vertex(-g) "
            f"has {gradient @ worst:.6g}; vertex must minimise the inner product"
        )
        raise ValueError(msg)
    middle = 0.5 * (x + worst)
    reached, _ = _core.smooth_value(function, middle)
    bound = value + float(gradient @ (middle - x))
    slack = 1e-6 * (abs(value) + float(np.abs(gradient) @ np.abs(middle - x)))
    if reached < bound - slack:
        msg = (
            f"f: the value {reached:.6g} at a point is below {bound:.6g}, a bound from the value "
            "and the gradient at another point: f must be convex, and its gradient correct, as "
            "scipy.optimize.check_grad can test"
        )
        raise ValueError(msg)


def _conditions(f: Any, oracle: Any) -> str:
    """Describe the conditions under which a certificate holds."""
    conditions = []
    if not isinstance(f, BuiltinFunction):
        conditions.append("f is convex and its values and gradients are exact")
    if any(not isinstance(factor, BuiltinSet) for factor in _factors(oracle)):
        conditions.append("the oracle's vertices minimise")
    large = [
        factor
        for factor in _factors(oracle)
        if isinstance(factor, NuclearNormBall) and min(factor.shape) > _core.MAX_FACTORISED
    ]
    chance = ", with probability 1 - 1e-9" if large else ""
    return chance + (f", if {' and '.join(conditions)}" if conditions else "")


def _factors(oracle: Any) -> list[Any]:
    if not isinstance(oracle, Product):
        return [oracle]
    return [each for factor in oracle.factors for each in _factors(factor)]
