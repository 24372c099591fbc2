"""Recall of items without any clicks in training, for which only the genres are known.

python benches/recommender_cold.py

Ratings of MovieLens 100k of at least 4 count as clicks. 30 % of the items (cold) have no clicks in
training; a fifth of the clicks on all other items (warm) is also held out. Recall@20 is the share
of a user's held-out clicks among 20 recommended items, for lists of cold items and for lists of
warm items. The method "profile" ranks items by their similarity to the mean genres of a user's
items. LightFM (if installed: pip install rectools-lightfm) uses the WARP loss and 30 epochs. In
each column, its number of factors is the best of three on the test clicks, which favours it. Its
seconds are those of the slowest of the three fits. Generated tables replace MovieLens if it is
missing.
"""

from __future__ import annotations

import time
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _data import movielens
from _record import Table

from dualgap.recommend import OrdinalRecommender

K = 20
SEEDS = range(3)


def genres(items: pd.DataFrame) -> pd.DataFrame:
    """Return a column of zeros and ones for each genre."""
    return items.set_index("item")["genres"].fillna("").str.get_dummies("|").astype(float)


def recall(found: pd.DataFrame, test: pd.DataFrame) -> float:
    """Return the share of held-out clicks that is found, averaged over users."""
    hits = test.merge(found, on=["user", "item"])
    of_users = hits.groupby("user").size() / test.groupby("user").size()
    return float(of_users.fillna(0.0).mean())


def profile(train: pd.DataFrame, table: pd.DataFrame, users: Any, cold: Any) -> pd.DataFrame:
    """Recommend the cold items with the largest cosine to the mean genres of a user's items."""
    lengths = np.maximum(np.linalg.norm(table, axis=1), 1e-9)
    unit = table.div(lengths, axis=0)
    tastes = train.join(unit, on="item").groupby("user")[list(table.columns)].mean()
    scores = tastes.reindex(users, fill_value=0.0).to_numpy() @ unit.loc[cold].to_numpy().T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    return pd.DataFrame({"user": np.repeat(users, K), "item": cold[best].ravel()})


def lightfm(train: pd.DataFrame, table: pd.DataFrame, tests: dict[str, Any]) -> dict[str, float]:
    """Return the recall of LightFM with one feature per item and one per genre."""
    from lightfm import LightFM

    users = np.unique(train["user"])
    # LightFM reads 32-bit indices.
    places = np.searchsorted(users, train["user"]), table.index.get_indexer(train["item"])
    places = tuple(each.astype(np.int32) for each in places)
    ones, shape = np.ones(len(train), np.float32), (len(users), len(table))
    clicks = sp.coo_matrix((ones, places), shape)
    features = sp.hstack([sp.eye(len(table)), sp.csr_matrix(table.to_numpy())], format="csr")
    lists = features.indices.astype(np.int32), features.indptr.astype(np.int32)
    features = sp.csr_matrix((features.data, *lists), features.shape, dtype=np.float32)
    found = dict.fromkeys([*tests, "seconds"], 0.0)
    for width in (16, 32, 64):
        model = LightFM(no_components=width, loss="warp", random_state=0)
        start = time.perf_counter()
        model.fit(clicks, item_features=features, epochs=30)
        found["seconds"] = max(found["seconds"], time.perf_counter() - start)
        user_biases, user_vectors = model.get_user_representations()
        biases, vectors = model.get_item_representations(features)
        scores = user_vectors @ vectors.T + biases + user_biases[:, None]
        scores[places] = -np.inf
        for name, (test, allowed) in tests.items():
            known = test[test["user"].isin(users)]
            some = np.unique(known["user"])
            columns = table.index.get_indexer(allowed)
            best = np.argsort(-scores[np.searchsorted(users, some)][:, columns], axis=1)[:, :K]
            best_items = pd.DataFrame({"user": np.repeat(some, K), "item": allowed[best].ravel()})
            found[name] = max(found[name], recall(best_items, test))
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    data = movielens()
    clicks = data.ratings.loc[data.ratings["rating"] >= 4.0, ["user", "item"]]
    assert data.items is not None
    table = genres(data.items)
    results = Table("recommender-cold", "method", "seed")
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        cold = np.sort(rng.choice(table.index.to_numpy(), round(0.3 * len(table)), replace=False))
        is_cold = clicks["item"].isin(cold)
        held = rng.random(len(clicks)) < 0.2
        train = clicks[~is_cold & ~held]
        tests = {"cold": clicks[is_cold], "warm": clicks[~is_cold & held]}
        warm = np.setdiff1d(table.index, cold)
        for method, features in (("clicks and genres", table), ("clicks", None)):
            model = OrdinalRecommender(task="clicks", random_state=0)
            start = time.perf_counter()
            model.fit(train, item_features=features)
            row: dict[str, Any] = {"seconds": time.perf_counter() - start}
            for name, items in (("cold", cold), ("warm", warm)):
                if name == "warm" or features is not None:
                    users = tests[name]["user"].unique()
                    found = model.recommend(users, K, items=items, unknown="ignore")
                    row[name] = recall(found, tests[name])
            results.add(method=method, seed=seed, **row)
        found = profile(train, table, tests["cold"]["user"].unique(), cold)
        results.add(method="profile of genres", seed=seed, cold=recall(found, tests["cold"]))
        if find_spec("lightfm") is not None:
            both = {"cold": (tests["cold"], cold), "warm": (tests["warm"], warm)}
            results.add(method="LightFM", seed=seed, **lightfm(train, table, both))


if __name__ == "__main__":
    main()
