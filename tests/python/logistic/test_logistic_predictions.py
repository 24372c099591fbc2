"""Predictions that a logistic regression declares settled are those of the exact optimum."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.datasets import load_digits

from dualgap import LogisticRegression, LogisticRegressionCV
from dualgap.distributed import ConsensusLogisticRegression
from dualgap.logistic._bounds import OptimumBall

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

COUNT = int(os.environ.get("DUALGAP_TRIALS", "60"))


def draw_problem(seed: int) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Draw rows, labels, weights and parameters of a random problem."""
    rng = np.random.default_rng(seed)
    n, d, m = int(rng.integers(20, 300)), int(rng.integers(1, 12)), int(rng.integers(2, 7))
    X: Any = rng.standard_normal((n, d))
    scores = rng.uniform(0.3, 10.0) * X @ rng.standard_normal((d, m)) + rng.standard_normal(m)
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    y[:m] = np.arange(m)
    kind = seed % 6
    if kind == 1:
        X = X * 10.0 ** rng.uniform(-4.0, 4.0, d)
    if kind == 2:
        X = X + 10.0 ** rng.uniform(-1.0, 3.0, d)
    if kind == 3:
        X = X * (rng.random((n, d)) < 0.3)
    if kind == 4:
        X = X.astype(np.float32)
    weights = rng.uniform(0.1, 3.0, n) if seed % 3 == 0 else None
    parameters: dict[str, Any] = {
        "C": 10.0 ** rng.uniform(-2.0, 2.0),
        "fit_intercept": bool(seed % 7),
        "class_weight": [None, "balanced", {0: 0.3, 1: 2.0}][rng.integers(3)],
        "solver": "auto",
    }
    if kind in (3, 5):
        X = sp.csr_matrix(X)
        parameters["solver"] = str(rng.choice(["auto", "dual-descent", "newton"]))
    return X, y, weights, parameters


@pytest.mark.parametrize("seed", range(COUNT))
def test_settled_predictions_are_those_of_the_optimum(seed: int) -> None:
    X, y, weights, parameters = draw_problem(seed)
    best = LogisticRegression(tol=1e-12, **parameters).fit(X, y, weights)
    # Rows outside the training data, and rows near the decision boundary.
    rng = np.random.default_rng(seed)
    rows: Any = X.toarray() if sp.issparse(X) else X
    rows = np.vstack([rows, 3.0 * rows, rng.permuted(rows, axis=0)])
    for tol in (0.1, 1e-2, 1e-3, 1e-5):
        rough = LogisticRegression(tol=tol, max_iter=[1000, 3][seed % 2], **parameters)
        rough.fit(X, y, weights)
        same = rough.predict(rows) == best.predict(rows)
        # The model that stands for the optimum has a small error, too.
        for given in (rows, sp.csr_matrix(rows)):
            decided = ~rough.prediction_may_change(given)
            open_at_best = best.prediction_may_change(given)
            assert (same | open_at_best)[decided].all()
            assert decided.sum() <= (~open_at_best).sum()


def test_most_predictions_are_settled_at_a_small_gap() -> None:
    X, y = load_digits(return_X_y=True)
    # At 1e-4, a bound that is not relative to the centre of the rows decides no row.
    for tol, fraction in [(1e-4, 0.4), (1e-6, 0.95)]:
        model = LogisticRegression(tol=tol).fit(X / 16, y)
        assert 1.0 - model.prediction_may_change(X / 16).mean() > fraction


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_bound_holds_for_the_change_of_intercepts(n_classes: int, sparse: bool) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[::2] / 16, y[::2] % n_classes
    X = sp.csr_matrix(X) if sparse else X
    best = LogisticRegression(tol=1e-13).fit(X, y)
    for tol in (1e-2, 1e-3, 1e-4):
        model = LogisticRegression(tol=tol).fit(X, y)
        ball = OptimumBall.of(model)
        (W, b), (W_best, b_best) = model._both(), best._both()
        moved = b_best - b + (W_best - W) @ ball.centre
        changes = np.abs(np.subtract.outer(moved, moved))
        assert np.isfinite(ball.offsets).all()
        assert (changes <= ball.offsets).all()
        assert np.linalg.norm(best.coef_ - model.coef_) <= ball.radius


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_curvature_of_a_fit_is_that_of_its_model(
    n_classes: int, sparse: bool, dtype: Any
) -> None:
    rng = np.random.default_rng(n_classes)
    X = rng.standard_normal((300, 12)) * (rng.random((300, 12)) < (0.15 if sparse else 1.0))
    X = (X + (0.0 if sparse else 3.0)).astype(dtype)
    y = (X @ rng.standard_normal((12, n_classes)) + rng.gumbel(size=(300, n_classes))).argmax(1)
    weights = rng.uniform(0.0, 2.0, 300) * (rng.random(300) < 0.9)
    given = sp.csr_matrix(X.astype(np.float32)) if sparse else X
    model = LogisticRegression(tol=1e-6, class_weight={0: 2.0}).fit(given, y, weights)
    shares = weights * np.where(y == 0, 2.0, 1.0)
    shares /= shares.sum()
    exact = (given.toarray() if sparse else given).astype(np.float64)
    p = softmax(model._scores(exact), axis=1)[:, 1 if n_classes == 2 else 0 :]
    found = model._curvature
    assert found is not None
    expected = np.diag(shares @ p) - np.einsum("i,ij,ik->jk", shares, p, p)
    np.testing.assert_allclose(found["matrix"], expected, rtol=1e-3, atol=1e-9)
    squares = ((exact - found["centre"]) ** 2).sum(axis=1)
    assert found["mean_square"] == pytest.approx(shares @ squares, rel=1e-12)
    assert found["largest_square"] == pytest.approx(squares[shares > 0].max(), rel=1e-12)
    if not sparse:
        np.testing.assert_allclose(found["centre"], exact.mean(axis=0), atol=0.2)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_partitions_have_the_curvature_of_all_rows(n_classes: int, sparse: bool) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X / 16, y % n_classes
    weights = np.random.default_rng(0).uniform(0.0, 2.0, len(y))
    given = sp.csr_matrix(X.astype(np.float32)) if sparse else X
    best = LogisticRegression(tol=1e-13).fit(X, y, weights)
    for tol in (1e-2, 1e-4, 1e-7):
        model = ConsensusLogisticRegression(n_partitions=3, tol=tol).fit(given, y, weights)
        p = model.predict_proba(X)[:, 1 if n_classes == 2 else 0 :]
        shares, found = weights / weights.sum(), model._curvature
        assert found is not None
        expected = np.diag(shares @ p) - np.einsum("i,ij,ik->jk", shares, p, p)
        np.testing.assert_allclose(found["matrix"], expected, rtol=1e-9, atol=1e-12)
        assert found["largest_square"] == pytest.approx((X**2).sum(axis=1).max(), rel=1e-12)
        decided = ~model.prediction_may_change(X)
        assert (model.predict(X) == best.predict(X))[decided].all()
    assert decided.mean() > 0.9


def test_a_search_keeps_the_curvature_of_its_final_model() -> None:
    X, y = load_digits(return_X_y=True)
    search = LogisticRegressionCV(Cs=[0.1], cv=3, tol=1e-5).fit(X / 16, y)
    model = LogisticRegression(C=0.1, tol=1e-5).fit(X / 16, y)
    expected = model.prediction_may_change(X / 16)
    assert not expected.all()
    np.testing.assert_array_equal(search.prediction_may_change(X / 16), expected)


def test_all_rows_are_undecided_if_no_bound_is_known() -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16
    assert LogisticRegression(tol=0.5).fit(X, y).prediction_may_change(X).all()
    without_a_class = LogisticRegression(tol=1e-9).fit(X, y, (y > 0).astype(float))
    assert without_a_class.prediction_may_change(X).all()
    many = LogisticRegression(tol=1e-9).fit(X, np.arange(len(y)) % 300)
    assert many.prediction_may_change(X).all()


def test_a_model_without_curvature_is_refused() -> None:
    X, y = load_digits(return_X_y=True)
    model = LogisticRegression().fit(X / 16, y)
    model._curvature = None
    with pytest.raises(
        ValueError, match=r"^prediction_may_change: the model does not have the cur"
    ):
        model.prediction_may_change(X / 16)
    model.set_params(fit_intercept=False).fit(X / 16, y)
    assert model.prediction_may_change(X / 16).shape == y.shape
