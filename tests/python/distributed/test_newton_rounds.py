"""Newton rounds of consensus training, which take over if the gap hardly falls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris

from dualgap import MulticlassSVC
from dualgap.distributed import ConsensusSVC
from dualgap.distributed._newton import dual_scale, rounds_left


def make_digits(large: bool) -> tuple[Any, Any]:
    """Nearly separable classes; `large` adds a column of large values."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))[:900]
    column = rng.normal(5e4, 2e4, size=(len(y), 1))
    return (np.hstack([X, column]) if large else X)[order], y[order]


@pytest.mark.parametrize("n_partitions", [2, 8])
@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("large", [False, True])
def test_separable_classes_converge(n_partitions: int, C: float, large: bool) -> None:
    X, y = make_digits(large)
    model = ConsensusSVC(C=C, n_partitions=n_partitions, random_state=0).fit(X, y)
    assert model.converged_
    assert model.n_iter_ < 250
    scores = model.decision_function(X)
    losses = (scores + 1.0 - np.eye(10)[y]).max(axis=1) - scores[np.arange(len(y)), y]
    weights = (model.coef_**2).sum() + (model.intercept_**2).sum()
    objective = losses.mean() + 0.5 * weights / (C * len(y))
    assert objective == pytest.approx(model.objective_, rel=1e-3)
    if not large:
        plain = MulticlassSVC(C=C, tol=1e-5, random_state=0).fit(X, y)
        assert model.dual_objective_ <= plain.objective_
        assert plain.dual_objective_ <= model.objective_ <= 1.0011 * plain.objective_


@pytest.mark.parametrize("loss", ["max-hinge", "weston-watkins"])
@pytest.mark.parametrize("smoothing", [0.0, 0.01])
def test_losses_and_sample_weights_agree_with_one_fit(loss: Any, smoothing: float) -> None:
    X, y = load_iris(return_X_y=True)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(y))
    settings: dict[str, Any] = {"C": 100.0, "smoothing": smoothing, "random_state": 0}
    plain = MulticlassSVC(loss, tol=1e-6, **settings).fit(X, y, weights)
    model = ConsensusSVC(loss, n_partitions=4, **settings).fit(X, y, sample_weight=weights)
    assert model.converged_
    assert model.n_iter_ < 100
    assert np.isnan(model.history_["rho"]).any()
    assert model.dual_objective_ <= plain.objective_
    assert plain.dual_objective_ <= model.objective_ <= 1.0011 * plain.objective_


def test_converging_rounds_are_not_handed_over() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 20))
    y = (X @ rng.normal(size=(20, 5)) + 2.0 * rng.normal(size=(2000, 5))).argmax(axis=1)
    model = ConsensusSVC(n_partitions=4, random_state=0).fit(X, y)
    assert model.converged_
    assert model.n_iter_ > 20
    assert np.isfinite(model.history_["rho"]).all()


def test_models_depend_only_on_the_data(tmp_path: Any) -> None:
    X, y = make_digits(False)
    fit = ConsensusSVC(n_partitions=3, random_state=0)
    plain = clone(fit).fit(X, y)
    assert np.isnan(plain.history_["rho"]).any()
    other = clone(fit).set_params(n_jobs=1).fit(X, y)
    np.testing.assert_array_equal(other.coef_, plain.coef_)
    stopped = clone(fit).set_params(
        checkpoint=str(tmp_path), checkpoint_interval=0.0, callback=lambda epoch, *_: epoch > 29
    )
    assert stopped.fit(X, y).n_iter_ == 30
    resumed = clone(fit).set_params(resume=str(tmp_path)).fit(X, y)
    assert resumed.converged_
    assert resumed.objective_ == pytest.approx(plain.objective_, rel=2e-3)


def test_expected_rounds_follow_the_pace_of_the_gap() -> None:
    halving = [0.5**t for t in range(8)]
    assert rounds_left(halving, halving[-1] / 8.0, 1.0) == pytest.approx(3.0)
    assert rounds_left(halving, 1.0, 1.0) == 0.0
    assert rounds_left([1.0] * 8, 1e-3, 1.0) == np.inf
    # The first gap after a resume is larger than the gap before.
    assert rounds_left([*halving, 1.0], halving[-1] / 8.0, 1.0) < 10.0
    # Rounding hides gaps below 1e-10 of the objective.
    assert rounds_left(halving, 0.0, 1.0) == pytest.approx(np.log2(halving[-1] / 1e-10))


def test_dual_points_are_scaled_to_the_largest_bound() -> None:
    scales = np.linspace(0.0, 1.0, 1001)
    for term, force in [(1.0, 0.1), (1.0, 0.5), (1.0, 4.0), (0.0, 1.0), (-1.0, 0.0), (0.0, 0.0)]:
        best = (scales * term - scales**2 * force).max()
        scale = dual_scale(term, force)
        assert scale * term - scale**2 * force == pytest.approx(best, abs=1e-6)
