"""Paths of logistic regression over C: adjacent intervals, each certified for every C in it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from dualgap import LogisticRegression


@pytest.fixture(scope="module")
def iris() -> tuple[Any, Any]:
    X, y = load_iris(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.array(["a", "b", "c"])[y]


def value(piece: Any, C: float, rows: tuple[Any, Any, Any]) -> float:
    """Return the objective of a piece's model at C, from the definition."""
    X, codes, weights = rows
    scores = X @ piece.coef.T + piece.intercept
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    losses = logsumexp(scores, axis=1) - scores[np.arange(len(codes)), codes]
    norm = float((piece.coef**2).sum()) / (2.0 * C * weights.sum())
    return norm + float(np.average(losses, weights=weights))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_every_model_of_a_path_is_within_its_gap_of_the_optimum(
    iris: Any, n_classes: int, intercept: bool, kind: Any
) -> None:
    X, y = iris
    names, codes = np.unique(
        np.where(y == "c", y, "a") if n_classes == 2 else y, return_inverse=True
    )
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    tol, rows = 0.02, kind(X)
    model = LogisticRegression(fit_intercept=intercept, tol=tol, random_state=0)
    pieces = model.path(rows, names[codes], 0.01, 20.0, weights)
    assert not hasattr(model, "coef_")
    assert pieces[0].C_min == 0.01
    assert pieces[-1].C_max == 20.0
    assert all(one.C_max == two.C_min for one, two in itertools.pairwise(pieces))
    assert 10 < len(pieces) < 100
    rng = np.random.default_rng(1)
    for piece in pieces[::4]:
        assert piece.relative_gap <= tol
        for C in (piece.C_min, piece.C_max, rng.uniform(piece.C_min, piece.C_max)):
            best = LogisticRegression(C, fit_intercept=intercept, tol=1e-9)
            best.fit(X, names[codes], weights)
            found = value(piece, C, (X, codes, weights))
            assert found <= best.objective_ / (1.0 - piece.relative_gap) * (1.0 + 1e-9)
            assert found - best.objective_ <= piece.duality_gap * (1.0 + 1e-9)
    probabilities = pieces[-1].predict_proba(rows)
    assert (names[probabilities.argmax(axis=1)] == pieces[-1].predict(rows)).all()
    assert pieces[-1].score(rows, names[codes]) > 0.8


def test_a_smaller_tolerance_takes_more_pieces(iris: Any) -> None:
    X, y = iris
    few, many = (len(LogisticRegression(tol=tol).path(X, y, 0.1, 1.0)) for tol in (1e-1, 1e-3))
    assert many > 2 * few


def test_invalid_intervals_are_rejected_and_short_fits_warn(iris: Any) -> None:
    X, y = iris
    for model, interval, message in [
        (LogisticRegression(), (1.0, 0.5), "C_max: must be at least"),
        (LogisticRegression(), (0.0, 0.5), "C_min: must be a positive"),
        (LogisticRegression(), (0.1, 1e299), "C_max: "),
        (LogisticRegression(tol=0.0), (0.1, 0.5), "tol: must be a positive"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.path(X, y, *interval)
    with pytest.warns(ConvergenceWarning, match="a piece of the path"):
        pieces = LogisticRegression(tol=1e-6, max_iter=1).path(X, y, 0.1, 0.2)
    assert pieces[-1].C_max == 0.2
    assert max(piece.relative_gap for piece in pieces) > 1e-6


def test_a_callback_ends_the_path(iris: Any) -> None:
    X, y = iris
    calls: list[int] = []

    def stop_at_call_40(*_: Any) -> bool:
        calls.append(1)
        return len(calls) == 40

    pieces = LogisticRegression(tol=1e-3, callback=stop_at_call_40).path(X, y, 0.1, 100.0)
    assert len(calls) == 40
    assert pieces
    assert pieces[-1].C_max < 100.0
    assert all(piece.relative_gap <= 1e-3 for piece in pieces)
