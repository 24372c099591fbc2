"""Recall of held-out clicks with default settings, compared with reference methods.

python benches/recommender_clicks.py [NAME ...]
python benches/recommender_clicks.py {own,unobserved,tuned} [NAME ...]

The sets "gowalla" and "citeulike" are files clicks_NAME.npz in the folder DUALGAP_DATA. From the
set "movielens" (movielens_1m.npz), ratings of at least 4 are clicks, and a fifth of the users are
new: four fifths of their clicks are given after the fit, the remaining clicks are held out.
Generated clicks replace missing files. The sets "sparse" and "dense" are always generated from
topics, because settings chosen on the real sets might suit only the real sets.

The reference methods are GF-CF (Shen et al., CIKM 2021), item kNN with cosines, RP3beta (Paudel et
al., TiiS 2016), EASE (Steck, WWW 2019), EDLAE (Steck, NeurIPS 2020) and iALS (Hu et al., ICDM
2008). This script implements each in about ten lines. RP3beta uses the best of nine settings on
validation clicks, a fifth of the clicks of the fit; its seconds include this choice. EASE and EDLAE
use the best of four ridges on the test clicks, which favours them. Recall@20 is the share of a
user's held-out items among 20 recommended items, averaged over at most 6,000 users.

With `own`, only dualgap is measured, for another instruction set or version.

With `unobserved`, only the factors are fitted, for a grid of weights of the pairs without a click,
and recall is measured on the validation clicks.

With `tuned`, the factors of dualgap with their default settings are compared with packages whose
settings are chosen on the validation clicks (pip install irspack fastslim): iALS++ of irspack, with
the same numbers of factors and settings chosen with 64 factors, and the item-item weights of
fastslim (SLIM). Seconds are those of one fit, without the choice of settings. Packages that are not
installed are left out.
"""

from __future__ import annotations

import itertools
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _data import path_of, ratings_of
from _record import Table, installed
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import svds

from dualgap.recommend import Interactions, OrdinalRecommender

K = 20
USERS = 6000
RIDGES = (30.0, 100.0, 300.0, 1000.0)
UNOBSERVED = (0.5, 0.15, 0.05, 0.03, 0.015, 0.01, 0.005, 0.003, 0.0015, 0.001, 0.0005)
# Maximum number of items for which the matrix of their products is inverted.
DENSE_ITEMS = 10_000
# Numbers of factors that are compared with other packages.
WIDTHS = (64, 128, 256)

Scores = Callable[[Any], np.ndarray]
"""A function that scores all items for users, given their clicks."""


@dataclass(frozen=True)
class Split:
    """Clicks for the fit, and the given and held-out clicks of test users."""

    name: str
    train: Any
    given: Any
    test: Any
    # The rows of the test users in `train`, or None if they are new.
    users: np.ndarray | None


def gf_cf(clicks: Any, rank: int = 256, alpha: float = 0.3) -> Scores:
    """Score by the item graph and by its smoothest signals."""
    of_users = np.maximum(np.asarray(clicks.sum(axis=1)).ravel(), 1.0)
    of_items = np.maximum(np.asarray(clicks.sum(axis=0)).ravel(), 1.0)
    walk = sp.diags_array(of_users**-0.5) @ clicks @ sp.diags_array(of_items**-0.5)
    start = np.random.default_rng(0).standard_normal(min(walk.shape))
    smooth = svds(walk, k=min(rank, min(walk.shape) - 2), v0=start)[2].T
    graph, roots = (walk.T @ walk).tocsr(), of_items**0.5

    def scores(rows: Any) -> np.ndarray:
        signal = (rows @ sp.diags_array(1.0 / roots)) @ smooth
        return np.asarray((rows @ graph).toarray() + alpha * (signal @ smooth.T) * roots)

    return scores


def item_knn(clicks: Any) -> Scores:
    """Score by the cosines between the columns of items."""
    lengths = np.maximum(np.sqrt(np.asarray(clicks.sum(axis=0)).ravel()), 1.0)
    columns = clicks @ sp.diags_array(1.0 / lengths)
    graph = sp.csr_array(columns.T @ columns)
    graph.setdiag(0.0)
    return lambda rows: np.asarray((rows @ graph).toarray())


def rp3(clicks: Any, alpha: float, beta: float) -> Scores:
    """Score by random walks of three steps, with lower weights for popular items."""
    of_users = np.maximum(np.asarray(clicks.sum(axis=1)).ravel(), 1.0)
    of_items = np.maximum(np.asarray(clicks.sum(axis=0)).ravel(), 1.0)
    to_items = sp.diags_array(of_users**-alpha) @ clicks @ sp.diags_array(of_items**-beta)
    graph = sp.csr_array(sp.diags_array(of_items**-alpha) @ clicks.T @ to_items)
    graph.setdiag(0.0)
    return lambda rows: np.asarray((rows @ graph).toarray())


def ease(clicks: Any, ridge: float, dropout: float = 0.0) -> Scores:
    """Regress each item on all others (EASE); with dropout, EDLAE."""
    gram = (clicks.T @ clicks).toarray()
    diagonal = np.diag_indices(len(gram))
    gram[diagonal] += ridge + dropout / (1.0 - dropout) * gram[diagonal]
    inverse = np.linalg.inv(gram)
    weights = -inverse / np.diag(inverse)
    weights[diagonal] = 0.0
    return lambda rows: np.asarray(rows @ weights)


def ials(clicks: Any, width: int = 64, n_sweeps: int = 8, ridge: float = 0.1) -> Scores:
    """Fit factors by alternating least squares over all pairs."""
    weight = min(0.5, 3.0 * clicks.nnz / clicks.shape[0] / clicks.shape[1])
    items = np.random.default_rng(0).standard_normal((clicks.shape[1], width)) / width

    def solved(rows: Any, others: np.ndarray) -> np.ndarray:
        gram, found = weight * others.T @ others, np.zeros((rows.shape[0], width))
        for row in np.flatnonzero(np.diff(rows.indptr)):
            own = others[rows.indices[rows.indptr[row] : rows.indptr[row + 1]]]
            matrix = gram + own.T @ own
            matrix.flat[:: width + 1] += ridge * np.sqrt(len(own) + weight * len(others))
            found[row] = cho_solve(cho_factor(matrix, check_finite=False), own.sum(axis=0))
        return found

    by_item = sp.csr_array(clicks.T)
    for _ in range(n_sweeps):
        items = solved(by_item, solved(clicks, items))
    return lambda rows: solved(rows, items) @ items.T


def irspack(clicks: Any, weight: float, ridge: float, width: int = 64) -> Scores:
    from irspack import IALSRecommender

    weight *= clicks.nnz / clicks.shape[0] / clicks.shape[1]
    model = IALSRecommender(
        sp.csr_matrix(clicks), width, weight, ridge, solver_type="IALSPP", train_epochs=15
    ).learn()
    return lambda rows: np.asarray(model.get_score_cold_user(sp.csr_matrix(rows)))


def fastslim(clicks: Any, l1: float, ridge: float) -> Scores:
    from fastslim import SLIM

    model = SLIM(lambd=l1, beta=ridge).fit(sp.csr_matrix(clicks))
    return lambda rows: np.array(model.predict(sp.csr_matrix(rows), exclude_seen=False))


def tuned(fit: Callable[..., Scores], clicks: Any, *values: tuple[float, ...]) -> tuple[Any, ...]:
    """Return the settings, from the product of some values, that rank validation clicks best."""
    split = validation("", clicks)
    return max(
        itertools.product(*values),
        key=lambda each: recall(best(fit(split.train, *each), split.given), split.test),
    )


REFERENCES: dict[str, Callable[[Any], list[Scores]]] = {
    "GF-CF": lambda clicks: [gf_cf(clicks)],
    "item kNN": lambda clicks: [item_knn(clicks)],
    "RP3beta": lambda clicks: [rp3(clicks, *tuned(rp3, clicks, (0.5, 0.75, 1.0), (0.2, 0.5, 0.8)))],
    "EASE": lambda clicks: [ease(clicks, ridge) for ridge in RIDGES],
    "EDLAE": lambda clicks: [ease(clicks, ridge, 0.33) for ridge in RIDGES],
    "iALS, 64 factors": lambda clicks: [ials(clicks)],
}


def best(scores: Scores, given: Any) -> np.ndarray:
    lists = []
    for start in range(0, given.shape[0], 500):
        some = given[start : start + 500]
        found = scores(some)
        found[some.nonzero()] = -np.inf
        lists.append(np.argpartition(-found, K, axis=1)[:, :K])
    return np.concatenate(lists)


def recall(lists: np.ndarray, test: Any) -> float:
    """Return the mean share of a user's held-out items that is found."""
    held_out = np.split(test.indices, test.indptr[1:-1])
    pairs = zip(lists, held_out, strict=True)
    return float(np.mean([np.isin(wanted, found).mean() for found, wanted in pairs]))


def ours(split: Split, **settings: Any) -> tuple[np.ndarray, float]:
    """Return the lists for the test users, and the seconds of the fit."""
    table = pd.DataFrame(dict(zip(("user", "item"), split.train.nonzero(), strict=True)))
    start = time.perf_counter()
    model = OrdinalRecommender(
        task="clicks", interactions=Interactions(**settings), random_state=0
    ).fit(table)
    seconds = time.perf_counter() - start
    if split.users is not None:
        found = model.recommend(split.users, K)
    else:
        rows, items = split.given.nonzero()
        new = range(-1, -1 - split.given.shape[0], -1)
        found = model.recommend(new, K, ratings=(-1 - rows, items))
    return found["item"].to_numpy().reshape(-1, K), seconds


def from_pairs(name: str, train: np.ndarray, test: np.ndarray) -> Split:
    """Make a split of pairs (user, item) whose test users also have clicks in the fit."""
    shape = tuple(np.maximum(train.max(axis=0), test.max(axis=0)) + 1)
    clicks, held_out = (
        sp.csr_array((np.ones(len(pairs)), tuple(pairs.T)), shape) for pairs in (train, test)
    )
    users = np.flatnonzero(np.diff(held_out.indptr) * np.diff(clicks.indptr))
    users = users[:: max(1, len(users) // USERS)]
    return Split(name, clicks, clicks[users], held_out[users], users)


def validation(name: str, clicks: Any) -> Split:
    """Hold out a fifth of the clicks of a fit."""
    pairs = np.column_stack(clicks.nonzero())
    held = np.random.default_rng(0).random(len(pairs)) < 0.2
    return from_pairs(name, pairs[~held], pairs[held])


def new_users(ratings: pd.DataFrame) -> Split:
    """Hold out a fifth of the users of the likes of MovieLens."""
    users, items = (
        ratings.loc[ratings["rating"] >= 4, each].to_numpy() for each in ("user", "item")
    )
    items = np.unique(items, return_inverse=True)[1]
    rng = np.random.default_rng(0)
    new = rng.permutation(users.max() + 1)[: (users.max() + 1) // 5]
    is_new, held = np.isin(users, new), rng.random(len(users)) < 0.2
    shape = (int(users.max()) + 1, int(items.max()) + 1)

    def matrix(chosen: np.ndarray) -> Any:
        ones = np.ones(int(chosen.sum()))
        return sp.csr_array((ones, (users[chosen], items[chosen])), shape)

    train = matrix(~is_new)
    known = np.diff(sp.csc_array(train).indptr)[items] > 0
    given, test = matrix(is_new & ~held & known), matrix(is_new & held & known)
    rows = np.flatnonzero(np.diff(given.indptr) * np.diff(test.indptr))
    return Split("MovieLens 1M, new users", train, given[rows], test[rows], None)


def from_topics(name: str, n_users: int, n_items: int, n_clicks: int, seed: int) -> Split:
    """Generate clicks from topics, each of which prefers different items."""
    rng = np.random.default_rng(seed)
    n_topics = 40
    popularity = 1.0 / np.arange(1, n_items + 1)
    topics = np.stack([rng.permutation(popularity) for _ in range(n_topics)])
    topics = 0.8 * topics / topics.sum(axis=1, keepdims=True) + 0.2 * popularity / popularity.sum()
    tastes = rng.dirichlet(np.full(n_topics, 0.1), n_users) @ topics
    order = np.argsort(-np.log(tastes) - rng.gumbel(size=tastes.shape), axis=1)
    sizes = np.clip(rng.lognormal(np.log(n_clicks), 0.7, n_users).astype(int), 5, n_items // 2)
    pairs = np.array([(u, i) for u in range(n_users) for i in order[u, : sizes[u]]])
    held = rng.random(len(pairs)) < 0.2
    return from_pairs(name, pairs[~held], pairs[held])


def from_file(name: str) -> Split:
    """Read a split, or generate a small one if its file is missing."""
    path = path_of(name)
    if path is None:
        return from_topics(name, 300, 200, 15, 0)
    with np.load(path) as arrays:
        return from_pairs(name, arrays["train"], arrays["test"])


def splits() -> Iterator[tuple[str, Callable[[], Split]]]:
    """Yield the names of the splits, with functions that read or generate them."""
    # After a missing file, all results go elsewhere, so the sets without a file come first.
    yield "sparse", lambda: from_topics("made, sparse", 4000, 6000, 15, 1)
    yield "dense", lambda: from_topics("made, dense", 1500, 800, 60, 2)
    for name in ("citeulike", "gowalla"):
        yield name, lambda name=name: from_file(name)
    yield "movielens", lambda: new_users(ratings_of("movielens_1m"))


def measure_own(table: Table, split: Split) -> None:
    for method, settings in (("dualgap", {}), ("dualgap, factors alone", {"blend": False})):
        lists, seconds = ours(split, **settings)
        found = recall(lists, split.test)
        table.add(data=split.name, method=method, recall=found, seconds=seconds)


def measure(table: Table, split: Split) -> None:
    measure_own(table, split)
    for method, fit in REFERENCES.items():
        if method in ("EASE", "EDLAE") and split.train.shape[1] > DENSE_ITEMS:
            continue
        start = time.perf_counter()
        fitted = fit(split.train)
        seconds = (time.perf_counter() - start) / len(fitted)
        found = max(recall(best(scores, split.given), split.test) for scores in fitted)
        table.add(data=split.name, method=method, recall=found, seconds=seconds, simd="")


def measure_tuned(table: Table, split: Split) -> None:
    """Compare factors with their default settings with packages that are tuned."""
    for width in WIDTHS:
        lists, seconds = ours(split, blend=False, n_components=width)
        found = recall(lists, split.test)
        table.add(data=split.name, method=f"dualgap, {width}", recall=found, seconds=seconds)
    fits: list[tuple[str, Callable[..., Scores], tuple[Any, ...]]] = []
    if find_spec("irspack") is not None:
        settings = tuned(irspack, split.train, (1.0, 3.0, 10.0, 30.0), (0.003, 0.01, 0.03))
        fits += [(f"irspack, {width}", irspack, (*settings, width)) for width in WIDTHS]
    if find_spec("fastslim") is not None:
        settings = tuned(fastslim, split.train, (0.5, 2.0), (0.5, 5.0, 50.0))
        fits.append(("fastslim", fastslim, settings))
    for method, fit, settings in fits:
        start = time.perf_counter()
        scores = fit(split.train, *settings)
        seconds = time.perf_counter() - start
        found, package = recall(best(scores, split.given), split.test), method.split(",")[0]
        table.add(
            data=split.name,
            method=method,
            recall=found,
            seconds=seconds,
            settings=" ".join(map(str, settings[:2])),
            simd="",
            programs=installed(package),
        )


def measure_unobserved(table: Table, split: Split) -> None:
    """Fit factors with the default weight of pairs without a click, and with a grid of weights."""
    tried = validation(split.name, split.train)
    for weight in (None, *UNOBSERVED):
        settings = {"blend": False, "n_components": 64, "unobserved_weight": weight}
        lists, _ = ours(tried, **settings)
        label = "default" if weight is None else f"{weight:g}"
        table.add(data=split.name, weight=label, recall=recall(lists, tried.test))


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    clicks = Table("recommender-clicks", "data", "method")
    commands = {
        "own": (measure_own, clicks),
        "unobserved": (measure_unobserved, Table("recommender-unobserved", "data", "weight")),
        "tuned": (measure_tuned, Table("recommender-tuned", "data", "method")),
    }
    given = next((name for name in names if name in commands), "")
    command, table = commands.get(given, (measure, clicks))
    names = [name for name in names if name not in commands]
    for name, make in splits():
        if not names or name in names:
            command(table, make())


if __name__ == "__main__":
    main(sys.argv[1:])
