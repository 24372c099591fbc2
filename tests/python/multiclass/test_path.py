"""Paths over C of linear classifiers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from dualgap import MulticlassSVC
from dualgap.losses import TopK, Usunier, WestonWatkins


@pytest.fixture(scope="module")
def iris() -> tuple[Any, Any]:
    X, y = load_iris(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.array(["a", "b", "c"])[y]


@pytest.mark.parametrize("loss", ["max-hinge", WestonWatkins(), TopK(2), Usunier(2)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_pieces_cover_the_interval_and_their_bounds_hold(
    iris: Any, loss: Any, smoothing: float
) -> None:
    X, y = iris
    tol = 0.05
    svm = MulticlassSVC(loss, smoothing=smoothing, tol=tol, max_iter=5000, random_state=0)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    pieces = svm.path(X, y, 0.01, 2.0, weights)
    assert pieces[0].C_min == 0.01
    assert pieces[-1].C_max == 2.0
    assert all(one.C_max == two.C_min for one, two in itertools.pairwise(pieces))
    assert not hasattr(svm, "coef_")
    assert not hasattr(svm, "n_features_in_")
    rng = np.random.default_rng(1)
    for piece in pieces[:: max(1, len(pieces) // 6)]:
        assert piece.relative_gap <= tol
        if smoothing > 0.0:
            continue
        for C in (piece.C_min, piece.C_max, rng.uniform(piece.C_min, piece.C_max)):
            exact = MulticlassSVC(
                loss, C=C, smoothing=smoothing, tol=1e-7, max_iter=20_000, random_state=0
            ).fit(X, y, weights)
            objective = value(exact, piece.coef_at(C), piece.intercept * (C / piece.C_min), X, y,
                              weights)  # fmt: skip
            assert objective <= exact.objective_ / (1 - tol) * (1 + 1e-9)
    np.testing.assert_array_equal(
        piece.predict(X), np.array(["a", "b", "c"])[(X @ piece.coef.T + piece.intercept).argmax(1)]
    )
    assert piece.score(X, y) > 0.9


def value(model: MulticlassSVC, coef: Any, intercept: Any, X: Any, y: Any, weights: Any) -> float:
    """Compute the objective of weights."""
    codes = np.searchsorted(model.classes_, y)
    lam = 1.0 / (model.C * weights.sum())
    scores = X @ coef.T + intercept
    losses = [row_loss(model, s, code) for s, code in zip(scores, codes, strict=True)]
    norm = float((coef**2).sum() + (intercept**2).sum())
    return 0.5 * lam * norm + float(np.average(losses, weights=weights))


def row_loss(model: MulticlassSVC, scores: Any, label: int) -> float:
    """The loss of a row with three classes, as the maximum over the vertices of its set."""
    v = np.delete(1.0 + scores - scores[label], label)
    a, b = np.sort(v)[::-1]
    name = getattr(model.loss, "name", model.loss)
    vertices = {
        "max-hinge": [[0, 0], [1, 0]],
        "weston-watkins": [[0, 0], [1, 0], [1, 1]],
        "top-k": [[0, 0], [0.5, 0.5]],
        "usunier": [[0, 0], [0.5, 0], [0.5, 0.5]],
    }[str(name)]
    return float(max(p * a + q * b for p, q in vertices))


def test_invalid_intervals_are_rejected_and_short_fits_warn(iris: Any) -> None:
    X, y = iris
    with pytest.raises(ValueError, match="C_max: must be at least"):
        MulticlassSVC().path(X, y, 1.0, 0.5)
    with pytest.raises(ValueError, match="C_min: must be a positive"):
        MulticlassSVC().path(X, y, 0.0, 0.5)
    with pytest.raises(ValueError, match="tol: must be a positive"):
        MulticlassSVC(tol=0.0).path(X, y, 0.1, 0.5)
    with pytest.warns(ConvergenceWarning, match="a piece of the path"):
        pieces = MulticlassSVC(tol=1e-6, max_iter=2).path(X, y, 0.1, 0.11)
    assert pieces[-1].C_max == 0.11
    piece = pieces[0]
    with pytest.raises(ValueError, match="C: must be between"):
        piece.coef_at(2 * piece.C_max)


SCALED = {
    "1e-3 to 1e5": np.logspace(-3, 5, 8),
    "1e-6 to 1e6": np.logspace(-6, 6, 8),
    "one column of 5e4": np.array([1.0] * 7 + [5e4]),
}


@pytest.mark.parametrize("scales", SCALED)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_paths_converge_on_columns_of_different_scales(scales: str, smoothing: float) -> None:
    rng = np.random.default_rng(0)
    X, tol = rng.normal(size=(300, 8)), 0.01
    y = (X @ rng.normal(size=(8, 3)) + 0.5 * rng.normal(size=(300, 3))).argmax(axis=1)
    X *= rng.permutation(SCALED[scales])
    svm = MulticlassSVC(smoothing=smoothing, tol=tol, random_state=0)
    pieces = svm.path(X, y, 0.1, 10.0)
    assert max(piece.relative_gap for piece in pieces) <= tol
    for piece in pieces[:: max(1, len(pieces) // 4)]:
        C = rng.uniform(piece.C_min, piece.C_max)
        exact = MulticlassSVC(C=C, smoothing=smoothing, tol=1e-6, random_state=0).fit(X, y)
        if smoothing == 0.0:
            weights = np.ones(len(y))
            intercept = piece.intercept * (C / piece.C_min)
            objective = value(exact, piece.coef_at(C), intercept, X, y, weights)
            assert objective <= exact.objective_ / (1 - tol) * (1 + 1e-9)
            assert exact.dual_objective_ <= objective * (1 + 1e-9)


@pytest.mark.parametrize("solver", ["auto", "newton", "block-frank-wolfe"])
def test_paths_reach_the_tolerance_with_every_solver(iris: Any, solver: Any) -> None:
    X, y = iris
    svm = MulticlassSVC(solver=solver, tol=0.02, max_iter=5000, random_state=0)
    pieces = svm.path(X, y, 0.1, 1.0)
    assert max(piece.relative_gap for piece in pieces) <= 0.02
