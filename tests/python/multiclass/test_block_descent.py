"""Block descent: the same optimum as LIBLINEAR and other solvers, and invariances."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from dualgap import MulticlassSVC
from dualgap.losses import Usunier


def problem(n: int = 150, d: int = 6, m: int = 5) -> tuple[Any, Any]:
    """Overlapping classes, with zeros in the rows and a few rows of zeros."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % m
    X = rng.normal(size=(m, d))[y] + rng.normal(size=(n, d))
    X *= rng.random((n, d)) < 0.7
    X[:3] = 0.0
    return X, y


def svm(loss: Any = "max-hinge", **parameters: Any) -> MulticlassSVC:
    defaults = {"solver": "block-descent", "random_state": 0, "n_jobs": 1, "max_iter": 20_000}
    return MulticlassSVC(loss, **{**defaults, **parameters})


def primal(X: Any, y: Any, coef: Any, C: float, loss: str) -> float:
    """Compute 1/2 ||W||^2 + C sum of losses, the objective of LIBLINEAR and Walrus."""
    scores = X @ coef.T
    margins = 1 + scores - scores[np.arange(len(y)), y][:, None]
    margins[np.arange(len(y)), y] = 0
    positive = np.maximum(margins, 0)
    losses = positive.sum(axis=1) if loss == "weston-watkins" else positive.max(axis=1)
    return float(0.5 * (coef**2).sum() + C * losses.sum())


@pytest.mark.parametrize("C", [0.01, 1.0])
def test_the_optimum_agrees_with_liblinear(C: float) -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16
    model = svm("crammer-singer", C=C, fit_intercept=False, tol=1e-6).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = LinearSVC(
            multi_class="crammer_singer", C=C, fit_intercept=False, tol=1e-6, max_iter=100_000
        ).fit(X, y)
    ours, theirs = (primal(X, y, m.coef_, C, "crammer-singer") for m in (model, peer))
    assert ours == pytest.approx(theirs, rel=1e-4)
    # C is the same, but the reported objective is divided by C times the number of rows.
    scale = C * len(y)
    assert scale * model.objective_ == pytest.approx(ours, rel=1e-9)
    assert scale * model.dual_objective_ <= theirs * (1 + 1e-9)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_all_solvers_reach_the_same_optimum(loss: Any, smoothing: float) -> None:
    X, y = problem()
    weights = np.random.default_rng(1).integers(0, 3, size=len(y))
    common: dict[str, Any] = {"smoothing": smoothing, "C": 0.1, "class_weight": {1: 2.0}}
    exact = svm(loss, tol=1e-8, **common).fit(X, y, weights)
    assert exact.duality_gap_ <= 1e-8 * exact.null_objective_
    for solver in ("block-frank-wolfe", "frank-wolfe"):
        other = svm(loss, solver=solver, tol=1e-3, **common).fit(X, y, weights)
        assert other.dual_objective_ <= exact.objective_
        assert exact.dual_objective_ <= other.objective_
    # "auto" begins with this solver, and may end with Newton's method.
    auto = svm(loss, solver="auto", tol=1e-8, **common).fit(X, y, weights)
    assert auto.dual_objective_ <= exact.objective_
    assert exact.dual_objective_ <= auto.objective_


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("loss", ["max-hinge", "weston-watkins"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_certificate_is_as_accurate_as_double_precision(
    form: Any, loss: str, smoothing: float
) -> None:
    X, y = problem(n=400)
    # Far from the origin, single precision is least accurate.
    X = (X + 10).astype(np.float32)
    common: dict[str, Any] = {"C": 1e-3, "smoothing": smoothing, "fit_intercept": False}
    model = svm(loss, tol=1e-4, **common).fit(form(X), y)
    assert model.converged_
    X = X.astype(np.float64)
    if smoothing == 0:
        scale = 1e-3 * len(y)
        value = primal(X, y, model.coef_, 1e-3, loss)
        assert scale * model.objective_ == pytest.approx(value, rel=1e-12)
    double = svm(loss, tol=1e-5, **common).fit(X, y)
    # β is in single precision, but the objective of W(β) is as accurate as double precision.
    assert model.dual_objective_ <= double.objective_ * (1 + 1e-7)
    assert double.dual_objective_ <= model.objective_


def test_weston_watkins_does_not_depend_on_the_order() -> None:
    X, y = problem()
    models = [svm("weston-watkins", tol=1e-10, random_state=seed).fit(X, y) for seed in range(3)]
    turned = np.random.default_rng(2).permutation(len(y))
    models.append(svm("weston-watkins", tol=1e-10).fit(X[turned], y[turned]))
    assert not np.array_equal(models[0].coef_, models[1].coef_)
    for model in models[1:]:
        assert model.objective_ == pytest.approx(models[0].objective_, rel=1e-9)
        assert np.allclose(model.coef_, models[0].coef_, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_model_does_not_depend_on_threads_or_on_being_watched(dtype: Any) -> None:
    # The problem is large enough for several threads.
    rng = np.random.default_rng(0)
    y = np.arange(1500) % 150
    X = (rng.normal(size=(150, 60))[y] + rng.normal(size=(1500, 60))).astype(dtype)
    options: dict[str, Any] = {"tol": 0.05, "C": 0.01}
    one = svm("weston-watkins", **options).fit(X, y)
    seen: list[Any] = []
    two = svm("weston-watkins", n_jobs=2, callback=lambda *at: seen.append(at), **options)
    two.fit(X, y)
    assert np.array_equal(one.coef_, two.coef_)
    assert one.duality_gap_ == two.duality_gap_
    assert len(seen) == two.n_iter_ > 1


def test_zero_rows_have_the_loss_of_the_null_model() -> None:
    X, y = problem()
    for form in (np.asarray, sp.csr_array):
        model = svm("weston-watkins", fit_intercept=False, tol=1e-6).fit(form(X), y)
        # Three rows of zeros, each with a loss of 4 for the four wrong classes.
        assert model.dual_objective_ >= 12 / len(y)
        without = svm("weston-watkins", fit_intercept=False, tol=1e-6).fit(form(X)[3:], y[3:])
        assert np.allclose(model.coef_, without.coef_, atol=5e-3)
        nothing = svm("weston-watkins", fit_intercept=False).fit(form(0 * X), y)
        assert nothing.duality_gap_ == pytest.approx(0.0, abs=1e-12)
        assert not nothing.coef_.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["max-hinge", Usunier(2)])
def test_a_warm_start_begins_at_the_end_of_the_last_fit(dtype: Any, loss: Any) -> None:
    X, y = problem()
    X = X.astype(dtype)
    model = svm(loss, tol=1e-5, warm_start=True).fit(X, y)
    cold = model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ <= max(2, cold // 4)
    assert model.duality_gap_ <= 1e-5 * model.null_objective_
    model.set_params(C=1.5).fit(X, y)
    fresh = svm(loss, tol=1e-5, C=1.5).fit(X, y)
    assert model.objective_ == pytest.approx(fresh.objective_, rel=1e-4)


def nearly_separable(n: int, d: int, m: int) -> tuple[Any, Any]:
    """Rows of zeros and ones with classes from noisy linear scores."""
    rng = np.random.default_rng(0)
    X = (rng.random((n, d)) < 0.25).astype(np.float64)
    scores = X @ rng.normal(size=(m, d)).T
    return X, (scores + 0.5 * rng.normal(size=(n, m))).argmax(axis=1)


@pytest.mark.parametrize(("n", "d", "m"), [(1000, 180, 3), (600, 120, 4)])
def test_single_precision_takes_about_as_many_epochs_as_double(n: int, d: int, m: int) -> None:
    # Passes must also visit blocks that are optimal up to rounding.
    X, y = nearly_separable(n, d, m)
    options: dict[str, Any] = {"C": 10.0, "tol": 1e-4, "max_iter": 300, "fit_intercept": False}
    double = svm("crammer-singer", **options).fit(X, y)
    single = svm("crammer-singer", **options).fit(X.astype(np.float32), y)
    assert single.n_iter_ <= 3 * double.n_iter_


def test_conjugate_gradients_finish_fits_with_slow_passes() -> None:
    # The fit takes 9 or 10 epochs, and 29 without conjugate gradients.
    X, y = nearly_separable(1000, 180, 3)
    model = svm("crammer-singer", C=100.0, tol=1e-4, fit_intercept=False).fit(X, y)
    assert model.n_iter_ <= 18


def test_every_epoch_is_certified() -> None:
    X, y = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        every = svm(tol=0.0, max_iter=12).fit(X, y).history_
    assert np.isfinite(every["gap"]).all()
    assert (np.diff(every["dual_objective"]) >= -1e-14).all()
    model = svm(tol=1e-4).fit(X, y)
    assert np.isfinite(model.history_["gap"]).all()
    assert model.history_["gap"][-1] == model.duality_gap_


def test_a_fit_can_be_stopped_before_its_first_certificate() -> None:
    X, y = problem()
    model = svm(tol=1e-6, callback=lambda epoch, *_: epoch == 2).fit(X, y)
    assert model.n_iter_ == 2
    assert not model.converged_
    assert 0 < model.duality_gap_ < model.null_objective_


def test_progress_lines_omit_unknown_quantities(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = problem()
    svm(verbose=1).fit(X, y)
    # The first line states the plan of the fit, and the second is about the first epoch.
    line = capsys.readouterr().err.splitlines()[1]
    assert line.startswith("epoch     1")
    assert "nan" not in line


@pytest.mark.parametrize("seed", range(4))
def test_fits_of_few_weights_with_a_large_c_converge_quickly(seed: int) -> None:
    # Passes alone would take up to thousands of epochs, depending on the order of the rows.
    X, y = load_iris(return_X_y=True)
    model = svm(C=10.0, tol=1e-3, random_state=seed).fit(X[y > 0], y[y > 0])
    assert model.converged_
    assert model.n_iter_ < 600


def test_single_precision_stops_at_its_rounding_errors() -> None:
    rng = np.random.default_rng(0)
    (n, d, length, m), y = (2500, 3000, 80, 90), np.arange(2500) % 90
    own = rng.integers(d, size=(m, 100))[y[:, None], rng.integers(100, size=(n, length))]
    columns = np.where(rng.random((n, length)) < 0.3, own, rng.integers(d, size=(n, length)))
    indptr = length * np.arange(n + 1)
    X = sp.csr_array((rng.random(n * length), columns.ravel(), indptr), shape=(n, d))
    X.sum_duplicates()
    model = MulticlassSVC("weston-watkins", tol=1e-7, max_iter=1000, random_state=0)
    with pytest.warns(
        ConvergenceWarning, match=r"possible in floating point\).*; raise tol, or lower C$"
    ):
        model.fit(X.astype(np.float32), y)
    assert model.n_iter_ < 20
    assert model.relative_gap_ < 1e-4
    assert model.fit(X, y).converged_
