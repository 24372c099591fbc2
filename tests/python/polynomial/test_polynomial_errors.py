"""Invalid data and parameters raise an error that names them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from dualgap import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
)

# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

CLASSIFIERS = [FactorizationMachineClassifier, PolynomialNetworkClassifier]
REGRESSORS = [FactorizationMachineRegressor, PolynomialNetworkRegressor]
ESTIMATORS = CLASSIFIERS + REGRESSORS

X = np.random.default_rng(0).normal(size=(12, 3))
Y = np.arange(12) % 2


def check_error(estimator: Any, message: str, X: Any = X, y: Any = Y, **arguments: Any) -> None:
    """Check that ``fit`` raises ValueError and leaves no fitted attributes."""
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y, **arguments)
    assert not hasattr(estimator, "components_")


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_must_be_finite(estimator: Any, value: float, sparse: bool) -> None:
    bad = X.copy()
    bad[3, 1] = value
    check_error(estimator(2), "Input X contains", sp.csr_array(bad) if sparse else bad)
    model = estimator(2, n_jobs=1).fit(X, Y)
    with pytest.raises(ValueError, match="Input X contains"):
        model.predict(bad)


@pytest.mark.parametrize("estimator", REGRESSORS)
@pytest.mark.parametrize("kind", [object, str, "string", "category"])
def test_errors_of_targets_that_are_strings_name_them(estimator: Any, kind: Any) -> None:
    y = pd.Series(["low", "high"] * 6, dtype=kind)
    check_error(estimator(2), r"^y: must be numbers, got strings", y=y)
    check_error(estimator(2), r"^y: must be numbers, got strings", y=y.to_numpy())
    check_error(estimator(2), r"^y: must be numbers, got strings", y=y.to_frame())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_rows_of_wrong_shapes_are_rejected(estimator: Any) -> None:
    check_error(estimator(2), "0 sample", X[:0], Y[:0])
    check_error(estimator(2), "0 feature", X[:, :0])
    check_error(estimator(2), "inconsistent numbers of samples", X, Y[:-1])
    check_error(estimator(2), "2D array", X[:, 0])
    check_error(estimator(2), "sample_weight", sample_weight=np.ones(11))
    model = estimator(2, n_jobs=1).fit(X, Y)
    with pytest.raises(ValueError, match="has 2 features, but"):
        model.predict(X[:, :2])
    # Predictions of zero rows raise an error, as in scikit-learn.
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(X[:0])


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("weights", [np.nan, -1.0, np.inf])
def test_invalid_sample_weights_are_rejected(estimator: Any, weights: float) -> None:
    check_error(estimator(2), "sample_weight", sample_weight=np.r_[weights, np.ones(11)])
    check_error(estimator(2), "(?i)sample.weight.*(positive|non-zero)", sample_weight=np.zeros(12))


@pytest.mark.parametrize("estimator", CLASSIFIERS)
def test_invalid_labels_are_rejected(estimator: Any) -> None:
    check_error(estimator(2), "y: .*one class", X, np.zeros(12))
    check_error(estimator(2), "Unknown label type", X, np.linspace(0, 1, 12))
    check_error(estimator(2), "y: a label is missing or infinite", X, np.where(Y == 0, np.nan, 1.0))
    check_error(estimator(2), "validation_data: .*labels", validation_data=(X, Y + 5))


@pytest.mark.parametrize("estimator", REGRESSORS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_targets_must_be_finite(estimator: Any, value: float) -> None:
    bad = np.arange(12.0)
    bad[5] = value
    check_error(estimator(2), "Input y contains", X, bad)
    check_error(estimator(2), "validation_data", X, np.arange(12.0), validation_data=(X, bad))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_invalid_validation_rows_are_rejected(estimator: Any) -> None:
    check_error(estimator(2), "2 features", validation_data=(X[:, :2], Y))
    check_error(estimator(2), "validation_data", validation_data=(X, Y[:-1]))
    check_error(estimator(2), "Input X contains NaN", validation_data=(np.full((12, 3), np.nan), Y))


@pytest.mark.parametrize("estimator", REGRESSORS)
def test_validation_targets_must_match_the_training_targets(estimator: Any) -> None:
    y = np.column_stack([Y, Y])
    check_error(estimator(2), "validation_data", X, y, validation_data=(X, Y))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_components", 0),
        ("n_components", -1),
        ("n_components", 2.5),
        ("n_components", True),
        ("max_iter", 0),
        ("radius", 0.0),
        ("radius", -1.0),
        ("radius", np.nan),
        ("radius", np.inf),
        ("radius", "large"),
        ("alpha", 0.0),
        ("alpha", -1.0),
        ("tol", -1e-3),
        ("tol", np.nan),
        ("selection", "best"),
        ("selection_tol", 0.0),
        ("penalty", "l3"),
        ("penalty", ""),
        ("reoptimize", "both"),
        ("linear", "ridge"),
        ("validation_fraction", 0.0),
        ("validation_fraction", 1.0),
        ("n_jobs", 0),
        ("n_jobs", 1.5),
        ("random_state", "seed"),
    ],
)
def test_errors_name_the_bad_parameter(estimator: Any, name: str, value: Any) -> None:
    # scikit-learn checks `random_state`, and its message does not begin with the name.
    message = "seed" if name == "random_state" else f"^{re.escape(name)}: "
    check_error(estimator().set_params(**{name: value}), message)


def test_exact_selection_rejects_problems_beyond_its_limits() -> None:
    check_error(PolynomialNetworkClassifier(2, selection="exact"), "^selection: .*penalties l1")
    model = PolynomialNetworkClassifier(2, selection="exact", penalty="l1/linf")
    check_error(model, "^selection: .*at most 16 outputs, got 17", np.eye(17), np.arange(17))
    check_error(model, "^selection: .*at most 512 features", np.eye(3, 600), np.arange(3))


def test_losses_of_other_estimators_are_rejected() -> None:
    check_error(FactorizationMachineClassifier(loss="squared"), "^loss: ")
    check_error(FactorizationMachineClassifier(loss="hinge"), "^loss: ")
    assert "loss" not in FactorizationMachineRegressor().get_params()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_values_that_overflow_are_not_certified(estimator: Any) -> None:
    model = estimator(2, n_jobs=1, random_state=0)
    # Products of features overflow here.
    with pytest.raises(ValueError, match="too large for float64"):
        model.fit(X * 1e300, Y)
    # Here only products in the certificate overflow.
    model.fit(X * 1e77, Y)
    assert not model.converged_
    assert np.all(np.isfinite(model.predict(X * 1e77)))
