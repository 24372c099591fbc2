"""Newton's method: columns of any scale, any loss, and invariances."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from dualgap import MulticlassSVC
from dualgap.losses import StructuredHinge, TopK, WeightedTopK


def newton(loss: Any = "max-hinge", **parameters: Any) -> MulticlassSVC:
    return MulticlassSVC(loss, **{"solver": "newton", "n_jobs": 1, "max_iter": 200, **parameters})


def make_scaled_columns(
    low: float, high: float, n: int = 600, d: int = 20, m: int = 5
) -> tuple[Any, Any]:
    """Overlapping classes in columns of scales from 10**low to 10**high."""
    rng = np.random.default_rng(0)
    scales = rng.permutation(np.logspace(low, high, d))
    rows = rng.normal(size=(n, d))
    scores = rows @ rng.normal(size=(d, m)) + 0.5 * rng.normal(size=(n, m))
    return rows * scales, scores.argmax(axis=1)


def wine_with_salaries() -> tuple[Any, Any]:
    X, y = load_wine(return_X_y=True)
    return np.c_[X, np.random.default_rng(0).normal(5e4, 2e4, len(y))], y


def random_labels() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 4)) * 1e5, rng.integers(0, 3, 300)


def changed_iris(change: Any) -> tuple[Any, Any]:
    X, y = load_iris(return_X_y=True)
    return change(X), y


# Objectives to six digits by an independent implementation in NumPy, relative to P(0).
TABLES: dict[str, tuple[Any, float]] = {
    "wine": (lambda: load_wine(return_X_y=True), 0.0523416),
    "wine and a salary": (wine_with_salaries, 0.0479678),
    "breast cancer": (lambda: load_breast_cancer(return_X_y=True), 0.0822001),
    "iris + 1e6": (lambda: changed_iris(lambda X: X + 1e6), 0.1845984),
    "iris x 1e4": (lambda: changed_iris(lambda X: X * 1e4), 0.0677474),
    "noise x 1e5": (random_labels, 1.0),
}


@pytest.mark.parametrize("name", TABLES)
def test_typical_tables_are_solved_in_few_steps(name: str) -> None:
    table, optimum = TABLES[name]
    X, y = table()
    model = newton(tol=1e-5).fit(X, y)
    assert model.converged_
    assert model.n_iter_ <= 60
    assert model.objective_ == pytest.approx(optimum, rel=2e-5)
    assert model.dual_objective_ <= optimum * (1 + 1e-5)


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-3, 5), (-6, 6)])
def test_scales_of_columns_do_not_matter(low: float, high: float) -> None:
    X, y = make_scaled_columns(low, high)
    model = newton(tol=1e-4).fit(X, y)
    assert model.converged_
    assert model.n_iter_ <= 60
    # The same problem, rescaled exactly by powers of two.
    options: dict[str, Any] = {"tol": 1e-4, "fit_intercept": False}
    model, larger = newton(**options).fit(X, y), newton(**options, C=2.0**-20).fit(X * 2.0**10, y)
    assert larger.objective_ == pytest.approx(model.objective_, rel=1e-9)
    assert larger.n_iter_ == model.n_iter_


@pytest.mark.parametrize("smoothing", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("name", ["max-hinge", "weston-watkins"])
def test_smoothed_losses_converge_on_badly_scaled_columns(name: str, smoothing: float) -> None:
    # At W = 0 the smoothed losses have no curvature, so the first direction is the gradient.
    X, y = make_scaled_columns(-3, 5, n=400, m=4)
    model = newton(name, smoothing=smoothing, tol=1e-6).fit(X, y)
    assert model.converged_
    assert model.n_iter_ <= 60


@pytest.mark.parametrize("smoothing", [0.0, 1e-3, 0.5])
def test_the_optimum_agrees_with_block_descent(loss: Any, smoothing: float) -> None:
    X, y = make_scaled_columns(0, 0, n=150, d=6)
    weights = np.random.default_rng(1).integers(0, 3, size=len(y))
    common: dict[str, Any] = {"smoothing": smoothing, "C": 0.1, "class_weight": {1: 2.0}}
    common |= {"tol": 1e-8, "intercept_scaling": 3.0}
    model = newton(loss, **common).fit(X, y, weights)
    assert model.converged_
    other = newton(loss, **common, solver="block-descent", random_state=0, max_iter=20_000)
    other.fit(X, y, weights)
    assert model.dual_objective_ <= other.objective_
    assert other.dual_objective_ <= model.objective_
    assert np.allclose(model.coef_, other.coef_, atol=1e-3 * np.abs(other.coef_).max())


def test_the_curvature_of_the_active_face_saves_steps(loss: Any) -> None:
    # The curvature depends on the face of the polytope of the loss that contains the projection. If
    # the largest possible face were used for every loss, some of these fits would take hundreds of
    # steps.
    X, y = make_scaled_columns(-2, 2, n=300, d=8)
    if isinstance(loss, str) or hasattr(loss, "name"):
        assert newton(loss, tol=1e-6).fit(X, y).n_iter_ <= 80


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_layout_and_precision_of_rows_do_not_change_the_optimum(form: Any, dtype: Any) -> None:
    if form is sp.csr_array and dtype == np.float16:
        pytest.skip("scipy has no sparse float16")
    X, y = make_scaled_columns(0, 0, n=200, d=6)
    X[np.abs(X) < 0.5] = 0.0
    X = X.astype(np.float16).astype(dtype)
    expected = newton(tol=1e-7).fit(X.astype(np.float64), y)
    model = newton(tol=1e-7).fit(form(X), y)
    assert model.converged_
    assert model.objective_ == pytest.approx(expected.objective_, rel=2e-7)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("n_features", [20, 700])
def test_the_model_does_not_depend_on_threads(form: Any, n_features: int) -> None:
    # With 700 features, there are too many unknowns for a factorisation.
    X, y = make_scaled_columns(-1, 1, n=500, d=n_features, m=4)
    X = form(X.astype(np.float32))
    models = [newton(n_jobs=n_jobs, max_iter=2, tol=0).fit(X, y) for n_jobs in (1, 2, 3)]
    for model in models[1:]:
        assert np.array_equal(model.coef_, models[0].coef_)
        assert model.objective_ == models[0].objective_


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_conjugate_gradients_solve_large_systems(form: Any) -> None:
    X, y = make_scaled_columns(0, 0, n=150, d=450)
    assert X.shape[1] * 5 > 2000
    model = newton(tol=1e-4, C=0.01).fit(form(X), y)
    assert model.converged_
    assert model.n_iter_ <= 60


def test_costs_give_the_optimum_of_block_descent() -> None:
    X, y = make_scaled_columns(-2, 2, n=200, d=5, m=4)
    costs = np.array([[0, 1, 2, 30], [10, 0, 1, 2], [2, 1, 0, 1], [0.3, 2, 1, 0]])
    model = newton(StructuredHinge(costs), tol=1e-6).fit(X, y)
    other = newton(StructuredHinge(costs), tol=1e-3, solver="block-descent", max_iter=5000)
    other.fit(X, y)
    assert model.converged_
    assert model.dual_objective_ <= other.objective_
    assert other.dual_objective_ <= model.objective_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_step_is_worse_than_the_null_model() -> None:
    X, y = make_scaled_columns(-6, 6)
    for max_iter in (1, 2, 3, 5):
        model = newton(tol=1e-12, max_iter=max_iter).fit(X, y)
        assert model.objective_ <= model.null_objective_ * (1 + 1e-12)
        assert model.dual_objective_ >= 0.0
        assert (np.diff(model.history_["objective"]) <= 0.0).all()


def test_a_warm_start_continues_the_fit() -> None:
    X, y = make_scaled_columns(-2, 2)
    model = newton(TopK(2), tol=1e-4, warm_start=True).fit(X, y)
    model.set_params(tol=1e-7).fit(X, y)
    fresh = newton(TopK(2), tol=1e-7).fit(X, y)
    assert model.converged_
    assert model.n_iter_ < fresh.n_iter_
    assert model.objective_ == pytest.approx(fresh.objective_, rel=2e-7)
    # Start from the point of another C, whose weights may be worse than zero weights.
    model.set_params(C=1e-6).fit(X, y)
    assert model.objective_ <= model.null_objective_ * (1 + 1e-12)


@pytest.mark.parametrize("wide", [False, True])
def test_an_interrupt_ends_a_step(wide: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 1500 if wide else 190))
    y = rng.integers(0, 10, len(X))
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        newton(WeightedTopK([0.5, 0.3, 0.2] + [0.0] * 7), tol=0, C=10.0).fit(X, y)
    assert time.monotonic() - start < 4.0


def test_unused_parameters_are_rejected() -> None:
    X, y = make_scaled_columns(0, 0, n=50, d=3)
    with pytest.raises(ValueError, match='step: solver="newton" does not use it'):
        newton(step="pairwise").fit(X, y)


def test_newton_is_the_default_for_columns_of_different_scales(capsys: Any) -> None:
    X, y = load_wine(return_X_y=True)
    model = MulticlassSVC(verbose=1, n_jobs=1).fit(X, y)
    assert "newton (chosen for the scales of the columns)" in capsys.readouterr().err
    assert model.converged_
    assert np.array_equal(model.coef_, newton().fit(X, y).coef_)
    MulticlassSVC(verbose=1, n_jobs=1, random_state=0).fit(X / X.max(axis=0), y)
    assert "block-descent, then newton if that is slow: " in capsys.readouterr().err


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_newton_takes_over_when_block_descent_stalls(dtype: Any) -> None:
    X, y = load_iris(return_X_y=True)
    X = (20.0 + X).astype(dtype)
    seen: list[tuple[float, float]] = []
    model = MulticlassSVC(tol=1e-6, n_jobs=1, random_state=0, warm_start=True)
    model.set_params(callback=lambda epoch, seconds, *values: seen.append(values)).fit(X, y)
    solvers = model.history_["solver"]
    assert model.converged_
    assert solvers[0] == "block-descent"
    assert solvers[-1] == "newton"
    assert len(solvers) < 60
    alone = MulticlassSVC(tol=1e-6, solver="block-descent", random_state=0, max_iter=15)
    with pytest.warns(ConvergenceWarning):
        alone.fit(X, y)
    # The history covers both methods, and the switch keeps the best model and bound.
    assert [objective for objective, _ in seen] == model.history_["objective"].tolist()
    known = np.isfinite(model.history_["gap"])
    assert (np.diff(model.history_["gap"][known]) <= 0.0).all()
    # Its result is a valid warm start for both methods.
    again = model.fit(X, y)
    assert again.n_iter_ < len(solvers)
    assert again.converged_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_newton_takes_over_with_many_weights() -> None:
    X, y = make_scaled_columns(0, 0, n=300, d=500, m=12)
    X += 100.0
    assert (X.shape[1] + 1) * 12 > 2000, "few enough weights to factorise the system"
    model = MulticlassSVC(C=0.1, n_jobs=1, random_state=0, max_iter=18).fit(X, y)
    solvers, objectives = model.history_["solver"], model.history_["objective"]
    assert solvers[0] == "block-descent"
    assert solvers[-1] == "newton"
    assert model.objective_ < 0.5 * objectives[solvers == "block-descent"][-1]


def test_fits_of_few_rows_with_too_many_weights_to_factorise_converge() -> None:
    X, y = make_scaled_columns(-1.0, 1.0, n=80, d=450)
    model = newton(tol=1e-6, C=0.01).fit(X, y)
    assert model.converged_
    assert model.n_iter_ < 60
    other = newton(tol=1e-6, C=0.01, solver="block-descent", random_state=0, max_iter=1000)
    other.fit(X, y)
    assert model.dual_objective_ <= other.objective_
    assert model.objective_ <= other.objective_ * (1.0 + 1e-5)


def test_large_columns_do_not_make_the_certificate_less_accurate() -> None:
    X, y = wine_with_salaries()
    assert newton(tol=1e-8).fit(X, y).converged_
    X, y = load_iris(return_X_y=True)
    assert newton(tol=1e-8).fit(1e4 * X, y).converged_


def test_the_default_solver_depends_on_the_regulariser_and_the_number_of_weights(
    capsys: Any,
) -> None:
    X, y = load_iris(return_X_y=True)

    def chosen(X: Any, **parameters: Any) -> str:
        MulticlassSVC(verbose=1, n_jobs=1, random_state=0, **parameters).fit(X, y)
        return str(capsys.readouterr().err)

    assert "newton (chosen" in chosen(50.0 * X)
    # The regulariser dominates a column of small values unless C is large.
    small = X * [1.0, 1.0, 1.0, 1e-3]
    assert "block-descent, then newton" in chosen(small, C=0.1)
    assert "newton (chosen" in chosen(small, C=1e4)
    # With many weights, block descent is faster.
    wide = np.c_[X, np.random.default_rng(0).normal(size=(150, 200))]
    assert "block-descent, then newton" in chosen(wide * np.r_[10.0, np.ones(203)])
