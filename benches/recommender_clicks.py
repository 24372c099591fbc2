"""Recall of clicks with default settings, compared with three reference methods.

DUALGAP_DATA=folder python benches/recommender_clicks.py [NAME ...]

Each file clicks_NAME.npz of the folder has arrays train and test of pairs (user, item). The default
model and the factors alone are compared with GF-CF (Shen et al., CIKM 2021) and with item kNN by
cosine, both written here. Recall@20 is a user's share of held-out items among 20 recommended ones,
as a mean over at most 6,000 users.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _record import Table, data_folder
from scipy.sparse.linalg import svds

from dualgap.recommend import Interactions, OrdinalRecommender

K = 20
USERS = 6000

Scores = Callable[[np.ndarray], np.ndarray]


def gf_cf(clicks: Any, rank: int = 256, alpha: float = 0.3) -> Scores:
    """Score by the graph of items and its smoothest signals."""
    of_users = np.maximum(np.asarray(clicks.sum(axis=1)).ravel(), 1.0)
    of_items = np.maximum(np.asarray(clicks.sum(axis=0)).ravel(), 1.0)
    walk = sp.diags_array(of_users**-0.5) @ clicks @ sp.diags_array(of_items**-0.5)
    start = np.random.default_rng(0).standard_normal(min(walk.shape))
    smooth = svds(walk, k=min(rank, min(walk.shape) - 2), v0=start)[2].T
    graph, roots = (walk.T @ walk).tocsr(), of_items**0.5

    def scores(users: np.ndarray) -> np.ndarray:
        rows = clicks[users]
        signal = (rows @ sp.diags_array(1.0 / roots)) @ smooth
        return np.asarray((rows @ graph).toarray() + alpha * (signal @ smooth.T) * roots)

    return scores


def item_knn(clicks: Any) -> Scores:
    """Score by cosines between the columns of items."""
    lengths = np.maximum(np.sqrt(np.asarray(clicks.sum(axis=0)).ravel()), 1.0)
    columns = clicks @ sp.diags_array(1.0 / lengths)
    graph = sp.csr_array(columns.T @ columns)
    graph.setdiag(0.0)
    return lambda users: np.asarray((clicks[users] @ graph).toarray())


def best(scores: Scores, train: Any, users: np.ndarray) -> np.ndarray:
    lists = []
    for start in range(0, len(users), 500):
        some = users[start : start + 500]
        found = scores(some)
        found[train[some].nonzero()] = -np.inf
        lists.append(np.argpartition(-found, K, axis=1)[:, :K])
    return np.concatenate(lists)


def recall(lists: np.ndarray, test: Any, users: np.ndarray) -> float:
    """Return the mean share of a user's held-out items that are recommended."""
    held_out = [test.indices[test.indptr[user] : test.indptr[user + 1]] for user in users]
    pairs = zip(lists, held_out, strict=True)
    return float(np.mean([np.isin(wanted, found).mean() for found, wanted in pairs]))


def ours(train: Any, users: np.ndarray, **settings: Any) -> np.ndarray:
    table = pd.DataFrame(dict(zip(("user", "item"), train.nonzero(), strict=True)))
    model = OrdinalRecommender(
        reduction="interactions", interactions=Interactions(**settings), random_state=0
    ).fit(table)
    return model.recommend(users, K)["item"].to_numpy().reshape(len(users), K)


def main(names: list[str]) -> None:
    folder = data_folder()
    if folder is None:
        sys.exit("set DUALGAP_DATA to the folder of clicks_NAME.npz")
    warnings.simplefilter("ignore")
    table = Table("recommender-clicks", "data", "method")
    for path in sorted(folder.glob("clicks_*.npz")):
        name = path.stem.removeprefix("clicks_")
        if names and name not in names:
            continue
        arrays = np.load(path)
        shape = tuple(np.maximum(arrays["train"].max(axis=0), arrays["test"].max(axis=0)) + 1)
        train, test = (
            sp.csr_array((np.ones(len(pairs)), tuple(pairs.T)), shape)
            for pairs in (arrays["train"], arrays["test"])
        )
        users = np.flatnonzero(np.diff(test.indptr) * np.diff(train.indptr))
        users = users[:: max(1, len(users) // USERS)]
        for method, settings in (("dualgap", {}), ("dualgap, factors alone", {"blend": False})):
            lists = ours(train, users, **settings)
            table.add(data=name, method=method, recall=recall(lists, test, users))
        for method, fit in (("GF-CF", gf_cf), ("item kNN", item_knn)):
            found = recall(best(fit(train), train, users), test, users)
            table.add(data=name, method=method, recall=found)


if __name__ == "__main__":
    main(sys.argv[1:])
