"""Certificates of every kind of fit hold in exact arithmetic, also for extreme numbers."""

from __future__ import annotations

import sys
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from claims import check_claims, claim, find_wrong_claims
from kinds import KINDS
from quadratic import Quadratic, root_above
from repeats import trials

from dualgap import MulticlassSVC
from dualgap.polynomial import (
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
)

# Kinds of fits that take seconds.
SLOW = ("linear: own loss", "linear: consensus", "logistic regression")


@pytest.mark.parametrize("name", KINDS)
def test_every_claim_of_a_kind_of_fit_holds(name: str) -> None:
    n_trials = trials(6 if name in SLOW else 12)
    holds = 0
    for seed in range(n_trials):
        counts, wrong = check_claims(KINDS[name](np.random.default_rng(seed)))
        assert not wrong, (seed, wrong)
        holds += counts["holds"]
    assert holds > n_trials


def test_false_claims_are_detected() -> None:
    X, y = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) % 3
    model = MulticlassSVC(tol=1e-9, max_iter=500, random_state=0).fit(X, y)
    true = Fraction(model.objective_) - Fraction(1e-15)
    assert not find_wrong_claims([claim("as it is", model, true)])
    model.dual_objective_ *= 1 + 1e-8
    assert "above a model" in find_wrong_claims([claim("dual", model, true)])[0]
    model.dual_objective_, model.objective_ = 0.0, float(true) * (1 - 1e-12)
    model.history_["dual_objective"][:] = 0.0
    assert "larger than" in find_wrong_claims([claim("primal", model, true)])[0]


def test_square_roots_are_rounded_up() -> None:
    for square in (Fraction(2), Fraction(1, 3), Fraction(1e-300) ** 2 / 7, Fraction(1e300) ** 3):
        root = root_above(square)
        assert square <= root**2 <= square * (1 + Fraction(1, 10**50))
    assert root_above(Fraction(0)) == 0


@pytest.mark.parametrize("linear", ["explicit", None])
@pytest.mark.parametrize("refit", ["full", "output"])
@pytest.mark.parametrize("scale", [1e8, 1e20, 1e77])
def test_polynomial_models_of_large_rows_beat_the_null_model(
    scale: float, refit: Any, linear: Any
) -> None:
    """A past bug replaced small weights by 0, so the fit returned the null model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    y = X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FactorizationMachineRegressor(
            6, radius=1.0, reoptimize=refit, linear=linear, random_state=0, max_iter=20
        ).fit(X * scale, y)
    objective = model.history_["objective"]
    assert (np.diff(objective) <= 1e-9 * objective[:-1]).all()
    # A past bug multiplied the intercepts by the size of the rows in the bound on rounding errors.
    problem = Quadratic(X * scale, y[:, None], "anova", "l1/l2", 1.0, linear, 1.0, "squared")
    exact = problem.objective(model)[0]
    assert exact <= Fraction(model.objective_) <= exact * Fraction(1 + 1e-9)
    assert model.objective_ < 0.1 * model.null_objective_


def test_no_bound_of_a_polynomial_model_is_negative() -> None:
    X = np.random.default_rng(0).normal(size=(12, 3)) * 1e77
    with pytest.warns(UserWarning, match="of the objective"):
        model = PolynomialNetworkClassifier(3, radius=1e12, max_iter=3, random_state=0).fit(
            X, np.arange(12) % 3
        )
    assert model.dual_objective_ == 0.0
    assert model.duality_gap_ == model.objective_
    assert (model.history_["dual_objective"] >= 0.0).all()


@pytest.mark.parametrize("size", [1e-155, 1e-163, 1e-310])
def test_objectives_of_tiny_targets_are_not_rounded_down(size: float) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), size * rng.normal(size=20)
    model = PolynomialNetworkRegressor(2, random_state=0).fit(X, y)
    problem = Quadratic(X, y[:, None], "square", "l1/l2", 100.0, "explicit", 1.0, "squared")
    assert Fraction(model.dual_objective_) <= problem.objective(model)[0]
    assert problem.objective(model)[0] <= Fraction(model.objective_)
    assert model.converged_
