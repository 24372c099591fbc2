"""Regressors subtract the means of their targets, so that outputs are not pulled towards zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_polynomial import make, problem

from dualgap import FactorizationMachineRegressor, PolynomialNetworkRegressor

# Fits with few basis vectors do not converge.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("estimator", [PolynomialNetworkRegressor, FactorizationMachineRegressor])
def test_regressors_do_not_depend_on_the_mean_of_the_targets(estimator: Any) -> None:
    X, y = problem(estimator)
    held_out = X[:20], y[:20]
    weights = np.random.default_rng(0).uniform(0.1, 3.0, len(y))
    shift = np.array([1e6, -3e6, 0.0])[: y.shape[1]]
    common = {"tol": 0.01, "n_components": 8}
    for own in ({}, {"sample_weight": weights}, {"validation_data": held_out}):
        near = make(estimator, **common).fit(X, y, **own)
        if "validation_data" in own:
            own = {"validation_data": (X[:20], y[:20] + shift)}
        far = make(estimator, **common).fit(X, y + shift, **own)
        # Rounding errors of the targets lead full refits to slightly different points.
        assert far.score(X, y + shift) == pytest.approx(near.score(X, y), abs=0.01)
        assert far.objective_ == pytest.approx(near.objective_, rel=2e-2)
        assert far.null_objective_ == pytest.approx(near.null_objective_, rel=1e-5)
        again = far.set_params(warm_start=True).fit(X, y + shift, **own)
        assert again.n_iter_ <= near.n_iter_
        assert again.objective_ == pytest.approx(near.objective_, rel=1e-2)


def test_a_constant_target_is_predicted_exactly() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = PolynomialNetworkRegressor(random_state=0).fit(X, np.full(50, 0.1))
    assert model.predict(X).tolist() == [0.1] * 50
