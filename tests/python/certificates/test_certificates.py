"""Certificates hold in rational arithmetic, on random problems and on problems of past bugs."""

from __future__ import annotations

import sys
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).parent))

from exact import fractions, objective
from repeats import trials
from trials import LOSSES, SOLVERS, Trial, accept_error_with_remedy, check, draw

from dualgap import MulticlassSVC
from dualgap.distributed import ConsensusSVC
from dualgap.structured import MulticlassModel, StructuredSVM


def _digits(scale: float) -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return X * scale, y


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: "-".join(filter(None, solver)))
@pytest.mark.parametrize(
    "loss", LOSSES, ids=lambda loss: loss.name + "*" * (loss.costs is not None)
)
def test_certificates_hold_for_every_loss_and_solver(loss: Any, solver: Any) -> None:
    for smoothing in (0.0, 1e-12, 0.1):
        if smoothing > 0.0 and solver[0] == "away-frank-wolfe":
            continue
        for single, sparse in ((False, False), (True, False), (False, True), (True, True)):
            for C in (1.0, 1e-12, 1e6)[: trials(3)]:
                trial = Trial(loss, *solver, smoothing, single, sparse, 1.0, C, 3)
                assert check(trial) == "holds"


@pytest.mark.parametrize("seed", range(5))
def test_certificates_hold_at_random_scales_and_parameters(seed: int) -> None:
    random = np.random.default_rng(seed)
    results = [check(draw(random)) for _ in range(trials(300))]
    assert results.count("holds") > trials(200)


def test_a_fit_to_rows_of_tiny_values_converges() -> None:
    X, y = _digits(1e-9)
    model = MulticlassSVC(fit_intercept=False, random_state=0).fit(X, y)
    assert model.converged_
    assert model.dual_objective_ <= model.objective_
    assert model.objective_ <= 1.0 + 1e-12


@pytest.mark.parametrize(
    "parameters", [{}, {"C": 1e-12}, {"smoothing": 1e-12}, {"C": 1e-12, "smoothing": 1e-12}]
)
def test_a_fit_to_tiny_rows_with_tol_0_reaches_a_small_gap(parameters: Any) -> None:
    X, y = _digits(1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MulticlassSVC(
            fit_intercept=False, random_state=0, tol=0, max_iter=30, **parameters
        ).fit(X[:300], y[:300])
    assert model.dual_objective_ <= model.objective_
    assert model.null_objective_ == pytest.approx(1.0, abs=1e-9)
    assert model.duality_gap_ <= 1e-6 * model.objective_


def test_bounds_of_a_single_precision_fit_enclose_the_exact_objective() -> None:
    X, y = _digits(1 / 16)
    model = MulticlassSVC(fit_intercept=False, random_state=0, tol=1e-5)
    model.fit(X[:60].astype(np.float32), y[:60])
    exact = objective(
        LOSSES[0], fractions(X[:60]), y[:60].tolist(), fractions(model.coef_), 1.0, 0.0
    )
    assert Fraction(model.dual_objective_) <= exact <= Fraction(model.objective_)


def test_consensus_bounds_hold_while_the_penalty_grows() -> None:
    random = np.random.default_rng(0)
    # Too many weights for Newton rounds, in which the penalty does not change.
    X = random.normal(size=(2000, 60))
    y = (X @ random.normal(size=(60, 34)) + 30 * random.normal(size=(2000, 34))).argmax(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ConsensusSVC(C=0.3, tol=3e-5, n_partitions=4, random_state=0, max_iter=150).fit(
            X, y
        )
        optimum = MulticlassSVC(C=0.3, tol=1e-4, random_state=0).fit(X, y)
    assert model.dual_objective_ <= optimum.objective_
    assert optimum.dual_objective_ <= model.objective_
    rho = model.history_["rho"]
    assert rho.max() <= 2.0**13 * rho[0]


@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1.0, 1e150])
@pytest.mark.parametrize("C", [1e-12, 1.0, 1e12])
def test_consensus_bounds_hold_at_any_scale_and_c(scale: float, C: float) -> None:
    random = np.random.default_rng(1)
    X, y = random.normal(size=(40, 3)) * scale, np.arange(40) % 3
    model = ConsensusSVC(C=C, n_partitions=3, random_state=0, max_iter=20, fit_intercept=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
    except RuntimeError as error:
        accept_error_with_remedy(error)
        return
    exact = objective(LOSSES[0], fractions(X), y.tolist(), fractions(model.coef_), C, 0.0)
    assert Fraction(model.dual_objective_) <= exact <= Fraction(model.objective_)


@pytest.mark.parametrize(
    "solver",
    ["block-frank-wolfe", "frank-wolfe", "away-frank-wolfe", "projected-gradient", "subgradient"],
)
@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1.0, 1e9, 1e150])
def test_certificates_of_structured_fits_hold_at_any_scale(solver: str, scale: float) -> None:
    random = np.random.default_rng(2)
    X, y = random.normal(size=(12, 3)) * scale, np.arange(12) % 4
    for C in (1e-12, 1.0, 1e12):
        model = StructuredSVM(MulticlassModel(), C=C, solver=solver, max_iter=20, random_state=0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, y)
        except RuntimeError as error:
            accept_error_with_remedy(error)
            continue
        W = fractions(model.coef_.reshape(3, 4).T)
        exact = objective(LOSSES[0], fractions(X), y.tolist(), W, C, 0.0)
        assert Fraction(model.dual_objective_) <= exact <= Fraction(model.objective_)
        assert model.certificate_ == "convex optimum"


def test_the_tolerance_is_relative_to_the_objective() -> None:
    X, y = _digits(1 / 16)
    model = MulticlassSVC(C=100.0, tol=0.05, random_state=0).fit(X, y)
    assert model.objective_ < 0.1 * model.null_objective_
    assert model.converged_
    assert model.relative_gap_ == model.duality_gap_ / model.objective_
    assert model.relative_gap_ <= 0.05
    assert model.certificate_ == "convex optimum"
    with pytest.warns(ConvergenceWarning, match="of the objective"):
        MulticlassSVC(C=100.0, tol=1e-9, max_iter=2, random_state=0).fit(X, y)
