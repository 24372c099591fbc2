"""The default radius of polynomial models."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_wine, make_regression
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import scale

from dualgap import (
    Chunks,
    FactorizationMachineClassifier,
    PolynomialNetworkClassifier,
    PolynomialNetworkClassifierCV,
    PolynomialNetworkRegressor,
)
from dualgap.polynomial._radius import default_radius

RANDOM = np.random.default_rng(0)
X = scale(RANDOM.normal(size=(400, 5)))


def test_the_radius_grows_with_rows_per_pair_of_features() -> None:
    assert default_radius(X, None, None) == pytest.approx(3.0 * 400 / 25)
    assert default_radius(scale(X[:10]), None, None) == pytest.approx(3.0 * 10 / 25)
    wide = scale(RANDOM.normal(size=(10, 40)))
    assert default_radius(wide, None, None) == pytest.approx(1.0)
    wide = scale(RANDOM.normal(size=(10, 400)))
    assert default_radius(wide, None, None) == pytest.approx(100 / 400)
    assert default_radius(np.tile(X, (100, 1)), None, None) == pytest.approx(100.0)
    assert default_radius(X, None, 10.0) == pytest.approx(0.05 * 10.0 * 3.0 * 400 / 25)


def test_the_radius_follows_units_layouts_and_weights() -> None:
    expected = default_radius(X, None, None)
    assert default_radius(1e-3 * X, None, None) == pytest.approx(1e6 * expected)
    weights = RANDOM.integers(0, 3, size=400)
    repeated = default_radius(np.repeat(X, weights, axis=0), None, None)
    for rows in (X, sp.csr_array(X), Chunks([X[:150], sp.csr_array(X[150:])])):
        assert default_radius(rows, None, None) == pytest.approx(expected)
        assert default_radius(rows, weights.astype(float), None) == pytest.approx(repeated)


@pytest.mark.parametrize("unit", [0.0, 1e-200, 1e200])
def test_the_radius_is_a_positive_number_for_any_rows(unit: float) -> None:
    assert 0.0 < default_radius(unit * X, None, None) < np.inf
    assert 0.0 < default_radius(sp.csr_array(unit * X), np.zeros(400), 0.0) < np.inf


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_reports_its_radius_and_a_search_its_radii() -> None:
    y = np.arange(400) % 2
    settings = {"n_components": 1, "tol": 0.9, "random_state": 0}
    model = PolynomialNetworkClassifier(**settings).fit(X, y)
    assert model.radius_ == default_radius(X, None, None)
    assert PolynomialNetworkClassifier(radius=2.0, **settings).fit(X, y).radius_ == 2.0
    search = PolynomialNetworkClassifierCV(cv=2, **settings).fit(X, y)
    assert search.radii_ == pytest.approx(model.radius_ * np.array([0.1, 1.0, 10.0]))
    assert search.radius_ in search.radii_


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
@pytest.mark.parametrize("kind", [PolynomialNetworkClassifier, FactorizationMachineClassifier])
def test_default_classifiers_predict_small_tables(kind: type, load: object) -> None:
    rows, y = load(return_X_y=True)  # type: ignore[operator]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # With a radius of 100, the accuracies are .83 to .89.
        assert cross_val_score(kind(random_state=0), scale(rows), y, cv=2).mean() > 0.93


def test_a_default_regressor_does_not_follow_the_noise() -> None:
    rows, y = make_regression(200, 20, noise=20.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = cross_val_score(PolynomialNetworkRegressor(random_state=0), rows, y, cv=2)
    # With a radius of 100, the score is .77.
    assert scores.mean() > 0.9
