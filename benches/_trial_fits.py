"""Fits of every kind of model on generated data, with tens of megabytes of buffers each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualgap import MulticlassSVC, MulticlassSVCCV
from dualgap.distributed import ConsensusSVC
from dualgap.losses import Loss, TopK
from dualgap.polynomial import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifierCV,
    PolynomialNetworkRegressor,
)
from dualgap.recommend import (
    ConditionalGradient,
    Interactions,
    OrdinalRecommender,
    Variational,
)
from dualgap.sequence import SequenceTagger
from dualgap.structured import (
    ChainModel,
    MatchingModel,
    MulticlassModel,
    MultilabelModel,
    StructuredSVM,
)

Fit = Callable[[], Any]
RANDOM = np.random.default_rng(0)
SHORT: dict[str, Any] = {"max_iter": 2}
LONG: dict[str, Any] = {"max_iter": 10**6, "tol": 0.0}
"""Parameters of a fit that takes minutes."""


def classes(n: int, d: int, m: int) -> tuple[Any, Any]:
    """Generate dense rows with many classes."""
    return RANDOM.normal(size=(n, d)), np.arange(n) % m


def wide(n: int, d: int, m: int) -> tuple[Any, Any]:
    """Generate sparse rows with ten entries among many features."""
    columns = RANDOM.integers(0, d, 10 * n)
    offsets = np.arange(0, 10 * n + 1, 10)
    X = sp.csr_matrix((np.ones(10 * n), columns, offsets), shape=(n, d))
    X.sum_duplicates()
    return X, np.arange(n) % m


def words(n: int, d: int, m: int) -> tuple[Any, Any]:
    """Generate chains of three positions."""
    X, y = wide(3 * n, d, m)
    return [X[3 * i : 3 * i + 3] for i in range(n)], [y[3 * i : 3 * i + 3] for i in range(n)]


def pairs(n: int) -> tuple[Any, Any]:
    """Generate matchings of twenty rows with twenty columns."""
    links = [np.stack([np.arange(20), np.arange(20)], axis=1)] * n
    return [RANDOM.normal(size=(20, 20, 100)) for _ in range(n)], links


class Classes:
    """A structured model written in Python, whose labels are four classes."""

    def joint_features(self, x: Any, y: int) -> Any:
        """Return a vector with the row's features in the block of the class."""
        found = np.zeros((4, len(x)))
        found[y] = x
        return found.ravel()

    def loss(self, y_true: int, y: int) -> float:
        """Return 1 for a wrong class, else 0."""
        return float(y_true != y)

    def loss_augmented_decode(self, x: Any, y_true: int, w: Any) -> int:
        """Return the class that violates its margin most."""
        return int(np.argmax(w.reshape(4, -1) @ x + (np.arange(4) != y_true)))

    def decode(self, x: Any, w: Any) -> int:
        """Return the highest-scoring class."""
        return int(np.argmax(w.reshape(4, -1) @ x))


def linear(given: dict[str, Any]) -> Iterator[tuple[str, Fit]]:
    """List linear models on dense and sparse rows."""
    rows, features = classes(20000, 50, 100), wide(2000, 50000, 50)
    kinds: dict[str, Any] = {
        "block-descent": {},
        "block-frank-wolfe": {"solver": "block-frank-wolfe"},
        "block-frank-wolfe, pairwise": {"solver": "block-frank-wolfe", "step": "pairwise"},
        "frank-wolfe": {"solver": "frank-wolfe"},
        "frank-wolfe, smoothed": {"solver": "frank-wolfe", "smoothing": 0.1},
        "subgradient": {"solver": "subgradient"},
        "away-frank-wolfe": {"solver": "away-frank-wolfe"},
        "Weston-Watkins": {"loss": Loss("weston-watkins")},
        "top-k": {"loss": TopK(3)},
    }
    for data, name in ((rows, "rows"), (features, "features")):
        for kind, options in kinds.items():
            yield f"linear, {name}, {kind}", fit(MulticlassSVC(**options, **given), *data)
    X, y = rows[0].astype(np.float32), rows[1]
    yield "linear, rows, float32", fit(MulticlassSVC(**given), X, y)
    path = MulticlassSVC(**{**given, "tol": 1e-9})
    yield "linear, path", lambda: path.path(*rows, 1.0, 100.0)
    short = {name: value for name, value in given.items() if name != "tol"}
    search = MulticlassSVCCV(Cs=[0.01, 1.0], cv=2, bounds=1e-9, cv_tol=1e-12, **short)
    yield "linear, cross-validation", fit(search, X[:5000], y[:5000])
    yield "consensus, rows", fit(ConsensusSVC(n_partitions=2, **given), *rows)
    yield "consensus, features", fit(ConsensusSVC(n_partitions=2, **given), *features)


def structured(given: dict[str, Any]) -> Iterator[tuple[str, Fit]]:
    """List structured models with each solver, and taggers."""
    features = wide(2000, 50000, 50)
    kinds: dict[str, Any] = {
        "classes": (MulticlassModel(), *features),
        "chain": (ChainModel(), *words(500, 50000, 30)),
        "labels": (MultilabelModel("tree"), features[0], np.eye(50, dtype=int)[features[1]]),
        "matching": (MatchingModel(), *pairs(100)),
    }
    solvers = ("block-frank-wolfe", "frank-wolfe", "away-frank-wolfe", "subgradient")
    for kind, (model, *data) in kinds.items():
        for solver in (*solvers, "extragradient"):
            svm = StructuredSVM(model, solver=solver, **given)
            yield f"structured, {kind}, {solver}", fit(svm, *data)
        svm = StructuredSVM(model, step="pairwise", sampling="gap", **given)
        yield f"structured, {kind}, pairwise", fit(svm, *data)
    own = StructuredSVM(Classes(), **given)
    yield "structured, written in Python", fit(own, *classes(1000, 2000, 4))
    sentences, labels = words(500, 50000, 30)
    named = [[[f"f{i}" for i in row.indices] for row in sentence] for sentence in sentences[:200]]
    for loss in ("hamming", "logistic"):
        yield f"tagger, {loss}, rows", fit(SequenceTagger(loss, **given), sentences, labels)
        tagger = SequenceTagger(loss, **given)
        yield f"tagger, {loss}, names", fit(tagger, named, labels[: len(named)])


def polynomial(given: dict[str, Any]) -> Iterator[tuple[str, Fit]]:
    """List polynomial networks and factorization machines."""
    rows, features = classes(5000, 20, 10), wide(1000, 1000, 50)[0]
    values = RANDOM.normal(size=(1000, 5))
    bases = 2 if given["max_iter"] == 2 else 300
    for refit in ("full", "output"):
        machine = FactorizationMachineClassifier(bases, reoptimize=refit, **given)
        yield f"factorization machine, rows, {refit}", fit(machine, *rows)
        network = PolynomialNetworkRegressor(bases, reoptimize=refit, **given)
        yield f"network, features, {refit}", fit(network, features, values)
    machine = FactorizationMachineRegressor(bases, **given)
    yield "factorization machine, features", fit(machine, features, values)
    search = PolynomialNetworkClassifierCV([1.0, 100.0], n_components=bases, cv=2, **given)
    yield "network, cross-validation", fit(search, *rows)


def recommenders(given: dict[str, Any]) -> Iterator[tuple[str, Fit]]:
    """List recommenders on ratings of many users, with and without histories, and on clicks."""
    short = given["max_iter"] == 2
    bases, method = (2, Variational(max_iter=2)) if short else (300, Variational(max_iter=10**5))
    own = {name: given[name] for name in ("n_jobs", "random_state")}
    users, items = RANDOM.integers(0, 20000, (2, 50000))
    _, kept = np.unique(users * 20000 + items, return_index=True)
    ratings = (users[kept], items[kept], RANDOM.integers(1, 6, len(kept)).astype(float))
    model = OrdinalRecommender(method=method, **own)
    yield "recommender, ids", fit(model, ratings)
    history = OrdinalRecommender(method=method, history_features=True, **own)
    yield "recommender, history", fit(history, ratings)
    who = Interactions(max_iter=method.max_iter, tol=0.0)
    clicks = OrdinalRecommender(task="clicks", interactions=who, **own)
    yield "recommender, clicks", fit(clicks, (*ratings[:2], np.ones(len(kept))))
    gradient = OrdinalRecommender(bases, method=ConditionalGradient(radius=2000.0), **own)
    few = ratings[0] < 400
    yield "recommender, conditional gradient", fit(gradient, tuple(part[few] for part in ratings))


def fitted(model: Any, data: tuple[Any, ...]) -> Any:
    """Fit the model to the data."""
    return model.fit(*data)


def fit(model: Any, *data: Any) -> Fit:
    """Return a fit as a function without arguments."""
    return partial(fitted, model=model, data=data)


def fits(length: dict[str, Any]) -> dict[str, Fit]:
    """Return all fits by name; `length` is SHORT or LONG."""
    given = {**length, "n_jobs": 2, "random_state": 0}
    parts = (linear, structured, polynomial, recommenders)
    return {name: call for part in parts for name, call in part(given)}
