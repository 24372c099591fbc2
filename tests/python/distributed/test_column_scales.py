"""Consensus training on columns of very different scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from dualgap import MulticlassSVC
from dualgap.distributed import ConsensusSVC, _rounds


def make_scaled_columns(
    low: float, high: float, n: int = 400, d: int = 10, m: int = 4
) -> tuple[Any, Any]:
    """Overlapping classes in columns of scales from 10**low to 10**high."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = (X @ rng.normal(size=(d, m)) + rng.normal(size=(n, m))).argmax(axis=1)
    return X * rng.permutation(np.logspace(low, high, d)), y


@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (-1.0, 3.0)])
def test_columns_of_different_scales_converge(low: float, high: float) -> None:
    X, y = make_scaled_columns(low, high)
    plain = MulticlassSVC(tol=1e-6).fit(X, y)
    for form in (X, X.astype(np.float32), sp.csr_matrix(X)):
        model = ConsensusSVC(n_partitions=3, tol=5e-3, random_state=0).fit(form, y)
        assert model.converged_
        assert model.dual_objective_ <= plain.objective_ * (1.0 + 1e-6)
        assert plain.dual_objective_ * (1.0 - 1e-6) <= model.objective_
        assert model.objective_ <= plain.objective_ * 1.006


@pytest.mark.parametrize("scales", [(-3.0, 5.0), (-6.0, 6.0), (6.0, 6.0)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("loss", ["max-hinge", "weston-watkins"])
def test_newton_rounds_converge_at_any_column_scale(
    scales: Any, loss: Any, smoothing: float
) -> None:
    X, y = make_scaled_columns(*scales)
    plain = MulticlassSVC(loss, smoothing=smoothing, tol=1e-5).fit(X, y)
    for form in (X, X.astype(np.float32), sp.csr_matrix(X)):
        model = ConsensusSVC(loss, smoothing=smoothing, n_partitions=3, random_state=0)
        model.fit(form, y)
        assert model.converged_
        assert model.n_iter_ < 200
        assert 0.999 * plain.dual_objective_ <= model.objective_ <= 1.002 * plain.objective_
        assert model.dual_objective_ <= 1.0001 * plain.objective_
    if loss == "max-hinge" and not smoothing:
        scores = model.decision_function(X)
        losses = (scores + 1.0 - np.eye(4)[y]).max(axis=1) - scores[np.arange(len(y)), y]
        weights = (model.coef_**2).sum() + (model.intercept_**2).sum()
        # The objective is rounded up, by a bound that grows with the scales.
        assert losses.mean() + 0.5 * weights / len(y) == pytest.approx(model.objective_, rel=1e-7)


@pytest.mark.parametrize(("m", "d"), [(10, 20), (20, 13)])
def test_newton_rounds_support_many_classes(m: int, d: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, d))
    y = (X @ rng.normal(size=(d, m)) + 3.0 * rng.normal(size=(800, m))).argmax(axis=1)
    X *= np.logspace(-2.0, 2.0, d)
    plain = MulticlassSVC(tol=1e-5).fit(X, y)
    model = ConsensusSVC(n_partitions=2, random_state=0).fit(X, y)
    assert model.converged_
    assert plain.dual_objective_ <= model.objective_ <= 1.002 * plain.objective_
    assert model.dual_objective_ <= plain.objective_


def test_newton_rounds_depend_only_on_the_data(tmp_path: Any) -> None:
    X, y = make_scaled_columns(-3.0, 5.0)
    fit = ConsensusSVC(n_partitions=3, random_state=0)
    plain = clone(fit).fit(X, y)
    for jobs in (1, 3):
        other = clone(fit).set_params(n_jobs=jobs).fit(X, y)
        np.testing.assert_array_equal(other.coef_, plain.coef_)
        np.testing.assert_array_equal(other.history_["gap"], plain.history_["gap"])
    seen: list[int] = []
    stopped = clone(fit).set_params(
        callback=lambda epoch, *_: bool(seen.append(epoch)) or epoch > 24
    )
    assert stopped.fit(X, y).n_iter_ == 25 == len(seen)
    short = clone(fit).set_params(max_iter=26, checkpoint=str(tmp_path), checkpoint_interval=0.0)
    with pytest.warns(ConvergenceWarning):
        assert short.fit(X, y).n_iter_ == 26
    resumed = clone(fit).set_params(resume=str(tmp_path)).fit(X, y)
    assert resumed.converged_
    assert resumed.objective_ == pytest.approx(plain.objective_, rel=2e-3)


def test_fits_with_the_sequential_dual_method_run_no_newton_rounds() -> None:
    X, y = make_scaled_columns(-3.0, 5.0)
    sequential = ConsensusSVC(n_partitions=3, solver="sequential-dual", max_iter=30)
    with pytest.warns(ConvergenceWarning):
        assert np.isfinite(sequential.fit(X, y).history_["rho"]).all()


@pytest.mark.parametrize("intercept", [True, False])
def test_newton_rounds_support_partitions_without_some_columns(intercept: bool) -> None:
    X, y = make_scaled_columns(-3.0, 5.0)
    X[:, [0, 4]] = 0.0
    X[0, 0] = X[-1, 4] = 1.0
    fit = ConsensusSVC(n_partitions=3, fit_intercept=intercept, random_state=0)
    dense, sparse = clone(fit).fit(X, y), clone(fit).fit(sp.csr_matrix(X), y)
    assert dense.converged_
    assert sparse.converged_
    assert np.isnan(sparse.history_["rho"]).any()
    assert sparse.objective_ == pytest.approx(dense.objective_, rel=1e-3)
    objective = min(sparse.objective_, dense.objective_)
    assert max(sparse.dual_objective_, dense.dual_objective_) <= objective


@pytest.mark.parametrize("intercept", [True, False])
def test_columns_without_entries_do_not_change_the_model(intercept: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(_rounds, "_INNER", 1e-8)  # subproblems solved almost exactly
    monkeypatch.setattr(_rounds, "_NEWTON_AFTER", 100)
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
