"""Consensus training on columns of very different scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualgap import MulticlassSVC
from dualgap.distributed import ConsensusSVC, _rounds


def made(low: float, high: float, n: int = 400, d: int = 10, m: int = 4) -> tuple[Any, Any]:
    """Overlapping classes in columns of scales from 10**low to 10**high."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = (X @ rng.normal(size=(d, m)) + rng.normal(size=(n, m))).argmax(axis=1)
    return X * rng.permutation(np.logspace(low, high, d)), y


@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (-1.0, 3.0)])
def test_columns_of_different_scales_converge(low: float, high: float) -> None:
    X, y = made(low, high)
    plain = MulticlassSVC(tol=1e-6).fit(X, y)
    for form in (X, X.astype(np.float32), sp.csr_matrix(X)):
        model = ConsensusSVC(n_partitions=3, tol=5e-3, random_state=0).fit(form, y)
        assert model.converged_
        assert model.dual_objective_ <= plain.objective_ * (1.0 + 1e-6)
        assert plain.dual_objective_ * (1.0 - 1e-6) <= model.objective_
        assert model.objective_ <= plain.objective_ * 1.006


@pytest.mark.parametrize("scales", [(-3.0, 5.0), (-6.0, 6.0), (6.0, 6.0)])
def test_the_objective_is_near_the_optimum_even_without_a_bound(scales: Any) -> None:
    X, y = made(*scales)
    plain = MulticlassSVC(tol=1e-4).fit(X, y)
    fit = ConsensusSVC(n_partitions=3, random_state=0, max_iter=60)
    with pytest.warns(ConvergenceWarning):
        model = fit.fit(X, y)
    assert model.objective_ <= 1.01 * plain.objective_
    assert 0.0 <= model.dual_objective_ <= plain.objective_
    scores = model.decision_function(X)
    own = scores[np.arange(len(y)), y]
    losses = (scores + 1.0 - np.eye(4)[y]).max(axis=1) - own
    weights = (model.coef_**2).sum() + (model.intercept_**2).sum()
    assert losses.mean() + 0.5 * weights / len(y) == pytest.approx(model.objective_, rel=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_columns_without_entries_change_nothing(intercept: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(_rounds, "_INNER", 1e-8)  # sub-problems solved almost exactly
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 30)) * np.logspace(-1, 3, 30), rng.integers(3, size=120)
    X[rng.random(X.shape) < 0.96] = 0.0
    settings: dict[str, Any] = {"tol": 0.0, "max_iter": 25, "n_partitions": 4, "max_passes": 2000}
    fits = []
    for form in (X, sp.csr_matrix(X)):
        model = ConsensusSVC(C=0.5, fit_intercept=intercept, **settings)
        with pytest.warns(ConvergenceWarning):
            fits.append(model.fit(form, y))
    dense, sparse = fits
    for name in ("objective", "primal_residual", "dual_residual", "rho"):
        np.testing.assert_allclose(sparse.history_[name], dense.history_[name], rtol=1e-3)
