"""Structured fits finished by Newton's method, with features of any scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualgap.sequence import SequenceTagger
from dualgap.structured import (
    ChainModel,
    MatchingModel,
    MulticlassModel,
    MultilabelModel,
    StructuredSVM,
)

SCALES = [(0, 0), (-1, 1), (-3, 5), (-6, 6)]


def chains(scales: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    words = [(np.arange(5) + rng.integers(6)) % 4 for _ in range(40)]
    means = rng.normal(size=(4, 6))
    return [(means[word] + 0.6 * rng.normal(size=(5, 6))) * scales for word in words], words


def label_sets(scales: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 6))
    Y = X @ rng.normal(size=(6, 4)) + 0.3 * rng.normal(size=(100, 4)) > 0
    return X * scales, Y.astype(int)


def classes(scales: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 6))
    scores = X @ rng.normal(size=(6, 4)) + 0.3 * rng.normal(size=(200, 4))
    return X * scales, scores.argmax(axis=1)


def matchings(scales: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    truths = [rng.permutation(4) for _ in range(40)]
    features = [rng.normal(size=(4, 4, 6)) for _ in truths]
    for truth, own in zip(truths, features, strict=True):
        own[np.arange(4), truth] += [1.5, 1.0, 0.5, 0.5, 1.0, 1.5]
    pairs = [np.c_[np.arange(4), truth] for truth in truths]
    return [own * scales for own in features], pairs


class OwnClasses:
    """The multi-class model as a custom model with four methods."""

    def joint_features(self, x: Any, y: Any) -> Any:
        features = np.zeros((4, len(x)))
        features[y] = x
        return features.ravel()

    def loss(self, truth: Any, y: Any) -> float:
        return float(truth != y)

    def decode(self, x: Any, weights: Any) -> Any:
        return int(np.argmax(weights.reshape(4, -1) @ x))

    def loss_augmented_decode(self, x: Any, truth: Any, weights: Any) -> Any:
        return int(np.argmax(weights.reshape(4, -1) @ x + (np.arange(4) != truth)))


PROBLEMS = {
    "chain": (ChainModel, chains),
    "label sets": (MultilabelModel, label_sets),
    "classes": (MulticlassModel, classes),
    "matching": (MatchingModel, matchings),
    "own": (OwnClasses, classes),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(("low", "high"), SCALES)
def test_the_epochs_do_not_depend_on_the_scales_of_the_features(
    name: str, low: int, high: int
) -> None:
    model, make = PROBLEMS[name]
    X, y = make(np.logspace(low, high, 6))
    fitted = StructuredSVM(model(), tol=1e-4, max_iter=60, random_state=0).fit(X, y)
    assert fitted.duality_gap_ <= 1e-4 * fitted.objective_
    assert fitted.objective_ < 0.99 * fitted.null_objective_
    solvers = list(fitted.history_["solver"])
    n_first = solvers.count("block-frank-wolfe")
    assert solvers == ["block-frank-wolfe"] * n_first + ["newton"] * (fitted.n_iter_ - n_first)
    assert n_first > 0
    # Columns of very different scales make block Frank-Wolfe stall.
    assert "newton" in solvers or high - low < 8


@pytest.mark.parametrize("name", PROBLEMS)
def test_block_frank_wolfe_without_newton_does_not_converge(name: str) -> None:
    model, make = PROBLEMS[name]
    X, y = make(np.logspace(-3, 5, 6))
    alone = StructuredSVM(model(), solver="block-frank-wolfe", tol=1e-4, max_iter=60)
    with pytest.warns(ConvergenceWarning, match="tol=0.0001"):
        alone.fit(X, y)
    assert set(alone.history_["solver"]) == {"block-frank-wolfe"}


@pytest.mark.parametrize("name", PROBLEMS)
def test_newton_and_block_frank_wolfe_reach_the_same_optimum(name: str) -> None:
    model, make = PROBLEMS[name]
    X, y = make(np.ones(6))
    ends = StructuredSVM(model(), tol=1e-5, random_state=0).fit(X, y)
    alone = StructuredSVM(
        model(),
        solver="block-frank-wolfe",
        step="pairwise",
        tol=3e-3,
        random_state=0,
        max_iter=5000,
    ).fit(X, y)
    assert ends.dual_objective_ <= alone.objective_
    assert alone.dual_objective_ <= ends.objective_


@pytest.mark.parametrize("name", ["chain", "classes"])
def test_the_model_does_not_depend_on_the_number_of_threads(name: str) -> None:
    model, make = PROBLEMS[name]
    X, y = make(np.logspace(-2, 3, 6))
    one, four = (
        StructuredSVM(model(), tol=1e-4, random_state=0, n_jobs=n_jobs).fit(X, y)
        for n_jobs in (1, 4)
    )
    np.testing.assert_array_equal(one.coef_, four.coef_)


def test_a_fit_continues_from_the_vertices_of_newton() -> None:
    X, y = chains(np.logspace(-3, 5, 6))
    svm = StructuredSVM(ChainModel(), tol=1e-2, warm_start=True, random_state=0).fit(X, y)
    again = svm.set_params(tol=1e-5).fit(X, y)
    assert again.duality_gap_ <= 1e-5 * again.objective_


@pytest.mark.parametrize(("low", "high"), SCALES)
def test_taggers_with_numeric_features_converge_at_any_scale(low: int, high: int) -> None:
    X, y = chains(np.logspace(low, high, 6))
    sentences = [[{f"x{j}": v for j, v in enumerate(row)} for row in x] for x in X]
    labels = [[str(state) for state in word] for word in y]
    tagger = SequenceTagger("hamming", C=1.0, tol=1e-4, max_iter=60, random_state=0)
    tagger.fit(sentences, labels)
    assert tagger.duality_gap_ <= 1e-4 * tagger.objective_
    assert tagger.score(sentences, labels) > 0.9
