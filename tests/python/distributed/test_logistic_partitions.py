"""Logistic regression on partitions: it reaches the single-machine optimum, and its bounds hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from dualgap import LogisticRegression
from dualgap.distributed import ConsensusLogisticRegression
from dualgap.logistic._rounds import NewtonRounds


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return X[:600] / 16.0, y[:600]


@pytest.mark.parametrize("n_classes", [2, 10])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("n_partitions", [1, 4])
def test_partitions_reach_the_optimum(
    digits: Any, n_classes: int, intercept: bool, n_partitions: int
) -> None:
    X, y = digits
    y = y % n_classes
    weights = np.random.default_rng(0).uniform(0.0, 2.0, len(y))
    common: dict[str, Any] = {"C": 3.0, "fit_intercept": intercept, "class_weight": "balanced"}
    best = LogisticRegression(tol=1e-9, **common).fit(X, y, weights)
    for tol in (0.1, 1e-3, 1e-7):
        model = ConsensusLogisticRegression(n_partitions=n_partitions, tol=tol, **common)
        model.fit(X, y, weights)
        assert model.converged_
        assert model.relative_gap_ <= tol
        assert model.dual_objective_ <= best.objective_
        assert best.dual_objective_ <= model.objective_
        assert model.n_partitions_ == n_partitions
        assert model.null_objective_ == pytest.approx(np.log(n_classes), rel=1e-12)
    assert model.coef_.shape == best.coef_.shape
    np.testing.assert_allclose(model.predict_proba(X), best.predict_proba(X), atol=1e-3)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=0.02)


def test_the_model_does_not_depend_on_the_threads(digits: Any) -> None:
    fits = [ConsensusLogisticRegression(n_partitions=5, n_jobs=n).fit(*digits) for n in (1, 3)]
    assert (fits[0].coef_ == fits[1].coef_).all()
    assert fits[0].dual_objective_ == fits[1].dual_objective_


@pytest.mark.parametrize("intercept", [False, True])
def test_a_fit_without_tolerance_ends_at_rounding_errors(digits: Any, intercept: bool) -> None:
    model = ConsensusLogisticRegression(tol=0.0, fit_intercept=intercept, n_partitions=2)
    with pytest.warns(ConvergenceWarning, match="the last iterations made no progress"):
        model.fit(digits[0][:, ::4], digits[1])
    assert model.n_iter_ < 60
    assert model.relative_gap_ < 1e-8


def test_sparse_partitions_that_lack_columns_have_the_optimum_of_dense_rows() -> None:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((300, 40)) < 0.1, rng.standard_normal((300, 40)), 0.0)
    # Some columns have entries in one partition only.
    X[10:, :5] = 0.0
    y = (X @ rng.standard_normal((40, 3)) + rng.gumbel(size=(300, 3))).argmax(axis=1)
    best = LogisticRegression(tol=1e-9).fit(X, y)
    for form in (X, sp.csr_matrix(X), sp.csr_matrix(X.astype(np.float32))):
        model = ConsensusLogisticRegression(n_partitions=4, tol=1e-6).fit(form, y)
        assert model.converged_
        np.testing.assert_allclose(model.coef_, best.coef_, atol=5e-3)


def test_columns_of_very_different_scales_converge() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((400, 8))
    y = (X @ rng.standard_normal((8, 3)) + rng.gumbel(size=(400, 3))).argmax(axis=1)
    X *= 10.0 ** np.linspace(-4.0, 4.0, 8)
    model = ConsensusLogisticRegression(n_partitions=3, tol=1e-4).fit(X, y)
    assert model.converged_
    assert model.n_iter_ < 40
    best = LogisticRegression(tol=1e-6).fit(X, y)
    assert model.dual_objective_ <= best.objective_
    assert best.dual_objective_ <= model.objective_


def test_dask_collections_are_fitted_and_predicted_lazily(digits: Any) -> None:
    distributed = pytest.importorskip("distributed")
    da = pytest.importorskip("dask.array")
    X, y = digits
    with distributed.Client(n_workers=1, processes=False, dashboard_address=None) as client:
        rows, labels = da.from_array(X, chunks=(200, 64)), da.from_array(y, chunks=200)
        model = ConsensusLogisticRegression(client=client, tol=1e-4).fit(rows, labels)
        assert model.n_partitions_ == 3
        lazy = model.predict_proba(rows)
        assert isinstance(lazy, da.Array)
        np.testing.assert_allclose(lazy.compute(), model.predict_proba(X))
        assert model.score(rows, labels) > 0.97
    best = LogisticRegression(tol=1e-6).fit(X, y)
    assert model.dual_objective_ <= best.objective_
    assert best.dual_objective_ <= model.objective_


def test_a_resumed_fit_gives_the_model_of_an_uninterrupted_fit(digits: Any, tmp_path: Any) -> None:
    common: dict[str, Any] = {"n_partitions": 3, "tol": 1e-7, "checkpoint_interval": 0.0}
    plain = clone(ConsensusLogisticRegression(n_partitions=3, tol=1e-7)).fit(*digits)
    first = ConsensusLogisticRegression(
        checkpoint=tmp_path, callback=lambda n, *_: n == 4, **common
    )
    first.fit(*digits)
    assert first.n_iter_ == 4
    assert not first.converged_
    second = ConsensusLogisticRegression(resume=tmp_path, **common).fit(*digits)
    assert second.converged_
    # The resumed fit evaluates the last model again.
    assert second.n_iter_ <= plain.n_iter_ + 1
    assert list(second.history_["epoch"]) == list(range(1, second.n_iter_ + 1))
    np.testing.assert_allclose(second.coef_, plain.coef_, atol=1e-4)
    with pytest.raises(ValueError, match="resume"):
        ConsensusLogisticRegression(C=2.0, resume=tmp_path, **common).fit(*digits)
    with pytest.raises(ValueError, match=r"checkpoint: .* has files of another fit"):
        ConsensusLogisticRegression(checkpoint=tmp_path, **common).fit(*digits)
    with pytest.raises(ValueError, match="resume: no checkpoint"):
        ConsensusLogisticRegression(resume=tmp_path / "nothing", **common).fit(*digits)


def test_the_bounds_of_every_round_hold(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    best = LogisticRegression(tol=1e-9).fit(*digits)
    bounds: list[tuple[float, float]] = []
    record = NewtonRounds._record

    def record_bounds(self: NewtonRounds, primal: float, dual: float) -> None:
        bounds.append((primal, dual))
        record(self, primal, dual)

    monkeypatch.setattr(NewtonRounds, "_record", record_bounds)
    ConsensusLogisticRegression(n_partitions=2, tol=1e-8).fit(*digits)
    assert len(bounds) > 4
    assert all(dual <= best.objective_ for _, dual in bounds)
    assert all(primal >= best.dual_objective_ for primal, _ in bounds)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("n_kept", [1, 2, 3])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_classes_without_weight_are_fitted_as_on_one_machine(
    digits: Any, kind: Any, n_kept: int, intercept: bool
) -> None:
    X, y = digits
    y = y % 4
    weights = np.where((y < n_kept) | (y == 3), 1.0 + np.arange(len(y)) % 3, 0.0)
    common: dict[str, Any] = {"fit_intercept": intercept, "class_weight": {3: 0.0}, "tol": 1e-8}
    one = LogisticRegression(**common).fit(X, y, weights)
    model = ConsensusLogisticRegression(n_partitions=3, **common).fit(kind(X), y, weights)
    assert model.converged_
    assert model.coef_.shape == (4, 64)
    assert model.null_objective_ == pytest.approx(one.null_objective_, rel=1e-12)
    assert model.dual_objective_ <= one.objective_
    assert one.dual_objective_ <= model.objective_
    np.testing.assert_allclose(model.coef_, one.coef_, atol=1e-3)
    np.testing.assert_allclose(model.predict_proba(X), one.predict_proba(X), atol=1e-3)
    assert not intercept or (model.predict(X) < n_kept).all()


def test_errors_of_bad_input_name_the_argument(digits: Any) -> None:
    X, y = digits
    for parameters, weights, message in [
        ({"C": 0.0}, None, "C: must be"),
        ({"n_partitions": 0}, None, "n_partitions: must be"),
        ({"checkpoint_interval": 1.0}, None, "checkpoint_interval: "),
        ({}, np.zeros(len(y)), "at least one non-zero"),
    ]:
        with pytest.raises(ValueError, match=message):
            ConsensusLogisticRegression(**parameters).fit(X, y, weights)
    with pytest.raises(TypeError):
        ConsensusLogisticRegression(solver="newton")
