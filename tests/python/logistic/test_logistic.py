"""Logistic regression: the optimum equals scikit-learn's, and the certificate holds."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import entr, logsumexp
from sklearn.linear_model import LogisticRegression as Reference

from dualgap import LogisticRegression, _core

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def make_rows(n: int, d: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Generate rows and labels that a linear model partly explains."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = X @ rng.standard_normal((d, n_classes)) + rng.standard_normal(n_classes)
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    y[:n_classes] = np.arange(n_classes)
    return X, y


def accurate_model(*args, **parameters) -> LogisticRegression:
    """An estimator whose fit ends only when rounding prevents further progress."""
    return LogisticRegression(*args, tol=0.0, **parameters)


def objective(model: LogisticRegression, X: np.ndarray, y: np.ndarray, weights=1.0) -> float:
    """Compute the estimator's objective from the definition."""
    scores = X @ model.coef_.T + model.intercept_
    if scores.shape[1] == 1:
        scores = np.hstack([0 * scores, scores])
    codes = np.searchsorted(model.classes_, y)
    losses = logsumexp(scores, axis=1) - scores[np.arange(len(y)), codes]
    weights = np.broadcast_to(weights, len(y))
    total = model.C * weights.sum()
    return 0.5 * (model.coef_**2).sum() / total + (weights * losses).sum() / weights.sum()


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("C", [0.01, 1.0, 30.0])
def test_weights_agree_with_scikit_learn(n_classes, intercept, C):
    X, y = make_rows(300, 6, n_classes)
    model = accurate_model(C, fit_intercept=intercept).fit(X, y)
    other = Reference(C=C, fit_intercept=intercept, solver="newton-cg", tol=1e-11, max_iter=1000)
    other.fit(X, y)
    assert model.coef_.shape == other.coef_.shape
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-6)
    expected = other.intercept_ - (other.intercept_.mean() if n_classes > 2 else 0.0)
    np.testing.assert_allclose(model.intercept_, expected, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(model.decision_function(X), other.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0, 1: 0.5}])
def test_sample_and_class_weights_act_as_in_scikit_learn(n_classes, intercept, class_weight):
    X, y = make_rows(200, 4, n_classes)
    weights = np.random.default_rng(1).integers(0, 4, size=len(y)).astype(float)
    common = {"class_weight": class_weight, "fit_intercept": intercept}
    model = accurate_model(**common).fit(X, y, weights)
    other = Reference(solver="newton-cg", tol=1e-11, max_iter=1000, **common)
    other.fit(X, y, weights)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("tol", [0.5, 1e-2, 1e-4, 1e-8, 1e-9])
def test_the_certificate_encloses_the_optimum(n_classes, intercept, tol):
    X, y = make_rows(500, 8, n_classes, seed=3)
    best = accurate_model(5.0, fit_intercept=intercept).fit(X, y)
    model = LogisticRegression(5.0, fit_intercept=intercept, tol=tol).fit(X, y)
    assert model.converged_
    assert model.relative_gap_ <= tol
    assert model.dual_objective_ <= best.objective_
    assert best.dual_objective_ <= model.objective_
    assert objective(model, X, y) == pytest.approx(model.objective_, rel=1e-12)


@pytest.mark.parametrize("kind", ["float16", "float32", "csr", "csr32"])
def test_rows_of_any_kind_give_the_same_model(kind):
    X, y = make_rows(400, 5, 3)
    X = X.astype(np.float16).astype(float)
    X[np.abs(X) < 0.3] = 0.0
    expected = accurate_model().fit(X, y)
    if kind.startswith("csr"):
        given = sp.csr_matrix(X.astype(np.float32) if kind == "csr32" else X)
    else:
        given = X.astype(kind)
    model = accurate_model().fit(given, y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
    assert (model.predict(given) == expected.predict(X)).all()


def test_the_model_does_not_depend_on_the_threads():
    X, y = make_rows(6000, 20, 6)
    models = [LogisticRegression(tol=1e-8, n_jobs=n).fit(X, y) for n in (1, 2, 5)]
    for model in models[1:]:
        assert (model.coef_ == models[0].coef_).all()
        assert (model.intercept_ == models[0].intercept_).all()
        assert model.dual_objective_ == models[0].dual_objective_


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_columns_of_very_different_scales_converge(n_classes, intercept):
    X, y = make_rows(1000, 12, n_classes)
    X *= 10.0 ** np.linspace(-6, 6, 12)
    model = LogisticRegression(fit_intercept=intercept, tol=1e-6).fit(X, y)
    assert model.converged_
    assert model.n_iter_ < 60


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_dual_value_that_violates_the_intercepts_constraint_can_exceed_the_optimum(n_classes):
    X, y = make_rows(300, 6, n_classes)
    X += 1.0
    optimum = accurate_model().fit(X, y)
    found = []
    for max_iter in range(1, 7):
        model = LogisticRegression(tol=1e-12, solver="newton", max_iter=max_iter).fit(X, y)
        p = model.predict_proba(X)
        # The gradient's dual point: its residuals sum to 0 only at the optimum.
        residuals = (np.eye(n_classes)[y] - p)[:, 1 if n_classes == 2 else 0 :]
        norm = 0.5 * ((model.C * residuals.T @ X) ** 2).sum()
        naive = (model.C * entr(p).sum() - norm) / (model.C * len(y))
        found.append((model.objective_ - naive, naive, np.abs(residuals.sum(axis=0)).max()))
        assert model.duality_gap_ >= 0.0
        assert model.dual_objective_ <= optimum.objective_
        assert optimum.dual_objective_ <= model.objective_
    naive_gap, naive, violation = min(found)
    assert naive_gap < -1e-5
    assert naive > optimum.objective_
    assert violation > 1e-3


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("shift", [1e2, 1e4, 1e6])
def test_columns_far_from_zero_converge(n_classes, shift):
    X, y = make_rows(400, 6, n_classes)
    far = X + shift * np.array([1, -1, 1, 0, 2, 1])
    model = LogisticRegression(tol=1e-4).fit(far, y)
    optimum = accurate_model().fit(X, y)
    assert model.relative_gap_ <= 1e-4
    assert model.dual_objective_ <= optimum.objective_
    assert optimum.dual_objective_ <= model.objective_ <= (1 + 1e-4) * optimum.objective_
    np.testing.assert_allclose(objective(model, far, y), model.objective_, rtol=1e-7)
    np.testing.assert_allclose(model.predict_proba(far), optimum.predict_proba(X), atol=0.02)


@pytest.mark.parametrize("n_kept", [1, 2, 3])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_classes_without_weight_have_a_certificate(n_kept, kind):
    X, y = make_rows(300, 4, 4)
    weights = (y < n_kept) * (1.0 + np.arange(len(y)) % 3)
    model = LogisticRegression(2.0, tol=1e-8).fit(kind(X), y, weights)
    assert model.converged_
    assert model.coef_.shape == (4, 4)
    assert objective(model, X, y, weights) == pytest.approx(model.objective_, rel=1e-12)
    assert (model.predict(X) < n_kept).all()
    if n_kept > 1:
        assert model.relative_gap_ <= 1e-8
    if n_kept == 3:
        kept = y < n_kept
        other = accurate_model(2.0).fit(X[kept], y[kept], weights[kept])
        np.testing.assert_allclose(model.coef_[:3], other.coef_, atol=1e-3)
        assert other.dual_objective_ <= model.objective_
        assert model.dual_objective_ <= other.objective_


def test_the_objective_is_0_if_only_one_of_two_classes_has_weight():
    X, y = make_rows(100, 3, 2)
    model = LogisticRegression(tol=1e-6).fit(X, y, (y == 1).astype(float))
    assert model.converged_
    assert model.objective_ < 1e-12
    assert (model.predict(X) == 1).all()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_sparse_columns_of_very_different_scales_converge(n_classes, intercept):
    rng = np.random.default_rng(5)
    d = 2400 if n_classes == 2 else 600
    X = sp.random(3000, d, density=0.02, format="csr", random_state=5)
    scores = X @ rng.standard_normal((d, n_classes)) * 3.0
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    X = sp.csr_matrix(X @ sp.diags(10.0 ** rng.uniform(-4.0, 4.0, d)))
    for solver in ("auto", "newton"):
        for seed in range(5):
            model = LogisticRegression(
                0.1, fit_intercept=intercept, solver=solver, random_state=seed
            ).fit(X, y)
            assert model.converged_, solver
            # At most 100 passes of dual descent, and then Newton steps.
            assert model.n_iter_ < 120


@pytest.mark.parametrize("C", [1e-12, 1e-3, 1e6, 1e12])
@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1e20, 1e150])
def test_fits_at_extreme_scales_and_c_have_a_certificate(C, scale):
    X, y = make_rows(60, 3, 3)
    model = LogisticRegression(C, tol=1e-6, max_iter=300).fit(X * scale, y)
    assert np.isfinite(model.coef_).all()
    assert 0.0 <= model.dual_objective_ <= model.objective_ <= model.null_objective_


@pytest.mark.parametrize("intercept", [False, True])
def test_separable_rows_converge(intercept):
    X, y = make_rows(200, 3, 3)
    X = np.eye(3)[y] * 3 + 0.1 * X
    for C in (1.0, 1e6, 1e12):
        model = LogisticRegression(C, fit_intercept=intercept, tol=1e-4).fit(X, y)
        assert model.converged_, C
        assert (model.predict(X) == y).all()


def test_a_warm_start_saves_steps():
    X, y = make_rows(3000, 15, 5)
    model = LogisticRegression(tol=1e-6, warm_start=True).fit(X, y)
    first = model.n_iter_
    model.set_params(C=1.1).fit(X, y)
    assert model.converged_
    assert model.n_iter_ < first
    cold = LogisticRegression(1.1, tol=1e-6).fit(X, y)
    assert model.objective_ == pytest.approx(cold.objective_, rel=1e-6)


def test_labels_may_be_strings():
    X, y = make_rows(100, 3, 3)
    names = np.array(["ham", "spam", "eggs"])
    model = LogisticRegression().fit(X, names[y])
    assert set(model.predict(X)) <= set(names)
    assert model.score(X, names[y]) > 0.5


def test_probabilities_sum_to_one_and_logs_are_finite():
    X, y = make_rows(100, 3, 4)
    model = LogisticRegression(100.0).fit(X, y)
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)
    far = model.predict_log_proba(1e6 * X)
    assert np.isfinite(far).all()


def test_a_callback_stops_the_fit_and_sees_its_objectives():
    X, y = make_rows(500, 5, 3)
    seen = []

    def stop(epoch, seconds, primal, dual):
        seen.append((epoch, primal, dual))
        return epoch == 2

    model = LogisticRegression(tol=1e-12, callback=stop).fit(X, y)
    assert model.n_iter_ == 2
    assert [epoch for epoch, *_ in seen] == [1, 2]
    assert 0.0 <= model.dual_objective_ <= model.objective_ < model.null_objective_


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, "C: must be"),
        ({"solver": "sag"}, "solver: must be one of"),
        ({"fit_intercept": "yes"}, "fit_intercept: must be"),
        ({"tol": -1.0}, "tol: must be"),
        ({"class_weight": {0: -1.0}}, "class_weight: must be"),
    ],
)
def test_errors_name_the_bad_parameter(parameters, message):
    X, y = make_rows(20, 2, 2)
    with pytest.raises(ValueError, match=message):
        LogisticRegression(**parameters).fit(X, y)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_rejected(bad):
    X, y = make_rows(20, 2, 2)
    X[3, 1] = bad
    for given in (X, sp.csr_matrix(X)):
        what = "NaN" if np.isnan(bad) else "infinity"
        with pytest.raises(ValueError, match=f"X: contains {what}, at row 3 and column 1;"):
            LogisticRegression().fit(given, y)


def test_history_names_the_solver_that_took_over():
    rng = np.random.default_rng(0)
    columns = rng.integers(8, size=(2000, 5)) + 8 * np.arange(5)
    X = sp.csr_array((np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 5)))
    scores = X @ rng.normal(size=(40, 3)) + rng.gumbel(size=(2000, 3))
    y = scores.argmax(axis=1)
    for C, last in [(0.001, "dual-descent"), (10.0, "newton")]:
        model = LogisticRegression(C=C, random_state=0).fit(X, y)
        solvers = list(model.history_["solver"])
        assert solvers[0] == "dual-descent"
        assert solvers[-1] == last
        assert len(solvers) == model.n_iter_
        assert model.relative_gap_ <= model.tol


def test_the_first_solver_of_the_core_is_auto():
    assert _core.LOGISTIC_SOLVERS[0] == "auto"
