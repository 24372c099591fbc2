"""Solver of polynomial models: selection by the power method, refits in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dualgap import FactorizationMachineClassifier, PolynomialNetworkClassifier, _core

# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_the_power_method_and_lanczos_select_equally_good_bases() -> None:
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(80, 6)), rng.normal(size=(80, 4))
    for kernel in ("square", "anova"):
        found = {}
        for method in ("initial", "power"):
            settings = {"kernel": kernel, "penalty": "l1", "selection": method, "tol": 1e-9}
            _, gradient, bound = _core.select_basis(
                X, weights, {**settings, "seed": 3, "n_threads": 1}
            )
            found[method] = np.abs(gradient).max()
            assert found[method] <= bound
        assert found["power"] == pytest.approx(found["initial"], rel=1e-8)


@pytest.mark.parametrize("estimator", [FactorizationMachineClassifier, PolynomialNetworkClassifier])
def test_many_rows_sorted_by_class_are_fitted_in_batches(estimator: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6))
    y = np.digitize(X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3], [-0.5, 0.5])
    order = np.argsort(y, kind="stable")
    parameters = {"n_components": 4, "radius": 1e4, "random_state": 0}
    fits = [estimator(**parameters, n_jobs=n).fit(X[order], y[order]) for n in (1, 2)]
    shuffled = estimator(**parameters).fit(X, y)
    convex = estimator(**parameters, reoptimize="output").fit(X, y)
    assert np.array_equal(fits[0].components_, fits[1].components_)
    assert fits[0].score(X, y) > 0.95
    # Rows sorted by class give about the same objective as shuffled rows.
    assert fits[0].objective_ == pytest.approx(shuffled.objective_, rel=0.2)
    assert fits[0].objective_ < convex.objective_
    for model in (*fits, convex):
        assert model.dual_objective_ <= model.objective_
        assert np.linalg.norm(model.output_, axis=1).sum() <= 1e4
        np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1.0)
