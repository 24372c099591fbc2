"""Latency of single requests to a recommender, compared with implicit if it is installed.

python benches/recommender_requests.py

Fits one model to the ratings of MovieLens 1M, and another model to its ratings of at least 4, as
clicks. The file is movielens_1m.npz in the folder DUALGAP_DATA; generated ratings replace a missing
file. A request is for one user: a known user, a new user with 20 ratings, or a new user whom
fold_in adds to the model (implicit: partial_fit_users). Requests of all models alternate.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _data import ratings_of
from _record import Table, seconds

from dualgap import OrdinalRecommender

REQUESTS = ("known user", "new user", "fold_in")
REPEATS = 300
N_RATINGS = 20


class Ours:
    """Requests to a model of dualgap."""

    def __init__(self, table: pd.DataFrame, **parameters: Any) -> None:
        self.model = OrdinalRecommender(random_state=0, **parameters).fit(table)
        self.columns = list(table.columns)
        self.first = self.model

    def request(self, kind: str, number: int, new: pd.DataFrame) -> float:
        if kind == "known user":
            user = self.first.user_ids_[number % len(self.first.user_ids_)]
            return seconds(lambda: self.first.recommend(user))
        given = new[self.columns]
        if kind == "new user":
            return seconds(lambda: self.first.recommend(ratings=given))

        def fold_in() -> None:
            self.model = self.model.fold_in(given)

        return seconds(fold_in)


class Implicit:
    """Requests to implicit's least squares with the same number of factors."""

    def __init__(self, clicks: pd.DataFrame, n_factors: int) -> None:
        from implicit.cpu.als import AlternatingLeastSquares

        users, items = (pd.factorize(clicks[name], sort=True) for name in ("user", "item"))
        self.matrix = sp.csr_matrix((np.ones(len(clicks), np.float32), (users[0], items[0])))
        self.items = items[1]
        self.model = AlternatingLeastSquares(factors=n_factors, random_state=0, num_threads=0)
        self.model.fit(self.matrix, show_progress=False)

    def request(self, kind: str, number: int, new: pd.DataFrame) -> float:
        if kind == "known user":
            user = number % self.matrix.shape[0]
            return seconds(lambda: self.model.recommend(user, self.matrix[user], N=10))

        def row() -> sp.csr_matrix:
            places = self.items.get_indexer(new["item"])
            ones = np.ones(len(places), np.float32)
            return sp.csr_matrix(
                (ones, (np.zeros(len(places), int), places)), shape=(1, self.matrix.shape[1])
            )

        if kind == "new user":
            return seconds(lambda: self.model.recommend(0, row(), N=10, recalculate_user=True))
        user = self.matrix.shape[0] + number
        return seconds(lambda: self.model.partial_fit_users([user], row()))


def main() -> None:
    types = {"user": np.int64, "item": np.int64, "rating": np.float64}
    table = ratings_of("movielens_1m").astype(types)
    clicks = table.loc[table["rating"] >= 4.0, ["user", "item"]]
    likes = Ours(clicks, task="clicks")
    models: dict[str, Any] = {"ratings": Ours(table[["user", "item", "rating"]]), "clicks": likes}
    if find_spec("implicit") is not None:
        models["implicit"] = Implicit(clicks, likes.model.item_vectors_.shape[1])
    rng = np.random.default_rng(0)
    popular = clicks["item"].value_counts().index[:1000].to_numpy()
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(REPEATS):
        items = rng.choice(popular, min(N_RATINGS, len(popular)), replace=False)
        values = rng.choice([2.0, 3.0, 4.0, 5.0], len(items))
        new = pd.DataFrame({"user": 10**6 + number, "item": items, "rating": values})
        for kind in REQUESTS:
            for name, model in models.items():
                times.setdefault((name, kind), []).append(model.request(kind, number, new))
    rows = Table("recommender-requests", "request", "model")
    for (name, kind), each in times.items():
        rows.add(request=kind, model=name, milliseconds=1e3 * float(np.median(each)))


if __name__ == "__main__":
    logging.getLogger("dualgap").setLevel(logging.ERROR)
    main()
