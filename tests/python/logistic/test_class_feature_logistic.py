"""Logistic regression with features of the classes: optimum, certificate, predictions, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import log_softmax

from dualgap import ClassFeatureLogisticRegression, LogisticRegression


@pytest.fixture(scope="module")
def table() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((6, 3))
    X = rng.standard_normal((200, 4))
    y = (X @ rng.standard_normal((4, 3)) @ features.T + rng.gumbel(size=(200, 6))).argmax(axis=1)
    y[:6] = np.arange(6)
    return X, y, features


def best_objective(X: Any, y: Any, features: Any, C: float, weights: Any) -> float:
    """Minimise the estimator's objective, computed from its definition, by L-BFGS."""
    shape = (features.shape[1], X.shape[1])

    def value(flat: Any) -> Any:
        V = flat.reshape(shape)
        logs = log_softmax(X @ V.T @ features.T, axis=1)
        slopes = np.exp(logs)
        slopes[np.arange(len(y)), y] -= 1.0
        gradient = V + C * features.T @ (weights[:, None] * slopes).T @ X
        losses = -logs[np.arange(len(y)), y]
        return 0.5 * (V**2).sum() + C * (weights * losses).sum(), gradient.ravel()

    options = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(value, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
    return float(found.fun / (C * weights.sum()))


@pytest.mark.parametrize("n_classes", [2, 6])
@pytest.mark.parametrize("kind", ["dense", "sparse rows", "sparse features", "concatenate"])
def test_the_certificate_encloses_the_optimum(table: Any, n_classes: int, kind: str) -> None:
    X, y, features = table
    y, features, C = y % n_classes, features[:n_classes], 2.0
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    rows = sp.csr_matrix(X) if kind == "sparse rows" else X
    given = sp.csr_matrix(features) if kind == "sparse features" else features
    combine: Any = "concatenate" if kind == "concatenate" else "kronecker"
    whole = np.hstack([np.eye(n_classes), features]) if kind == "concatenate" else features
    best = best_objective(np.column_stack([X, np.full(len(X), 0.5)]), y, whole, C, weights)
    for tol in (0.1, 1e-4, 1e-8):
        model = ClassFeatureLogisticRegression(
            given, combine=combine, C=C, intercept_scaling=0.5, tol=tol
        )
        model.fit(rows, y, weights)
        assert model.converged_
        assert model.relative_gap_ <= tol
        assert model.dual_objective_ <= best * (1.0 + 1e-9)
        assert model.objective_ >= best * (1.0 - 1e-9)
    assert model.null_objective_ == pytest.approx(np.log(n_classes))
    assert model.coef_.shape == (whole.shape[1], 4)
    probabilities = model.predict_proba(rows)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert (model.predict(rows) == probabilities.argmax(axis=1)).all()
    scores = (X @ model.coef_.T + model.intercept_) @ whole.T
    np.testing.assert_allclose(model.predict_log_proba(rows), log_softmax(scores, axis=1))


def test_indicators_of_the_classes_give_plain_logistic_regression(table: Any) -> None:
    X, y, _ = table
    model = ClassFeatureLogisticRegression(np.eye(6), fit_intercept=False, tol=1e-9).fit(X, y)
    plain = LogisticRegression(fit_intercept=False, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-3)
    assert model.objective_ == pytest.approx(plain.objective_, rel=1e-8)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-3)


def test_classes_without_rows_have_probabilities(table: Any) -> None:
    X, y, features = table
    kept = y < 4
    model = ClassFeatureLogisticRegression(features[:4], C=10.0).fit(X[kept], y[kept])
    probabilities = model.predict_proba(X, features)
    assert probabilities.shape == (200, 6)
    held_out = model.predict(X[~kept], features[4:]) == y[~kept] - 4
    assert held_out.mean() > 0.6


def test_errors_of_bad_input_name_the_argument(table: Any) -> None:
    X, y, features = table
    for given, parameters, message in [
        (lambda rows, classes: rows, {}, "class_features: must be a matrix"),
        (features[:4], {}, "class_features: must have a row for each of the 6 classes"),
        (features, {"C": -1.0}, "C: must be"),
        (features, {"fit_intercept": False, "intercept_scaling": 2.0}, "intercept_scaling: "),
    ]:
        with pytest.raises(ValueError, match=message):
            ClassFeatureLogisticRegression(given, **parameters).fit(X, y)
