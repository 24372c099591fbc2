"""Top-10 of the whole catalogue, larger data, new users, calibration, and recommendations a second.

python benches/recommender_ranking.py ranking      # recall@10 beside popularity, EASE and ALS
python benches/recommender_ranking.py million      # RMSE and nDCG on MovieLens 1M, 90/10
python benches/recommender_ranking.py new-users    # fold_in beside a refit
python benches/recommender_ranking.py calibration  # error of the level probabilities
python benches/recommender_ranking.py serving      # users a second; beside implicit if installed

MovieLens 1M is movielens_1m.npz (users, items, ratings) in the folder DUALGAP_DATA; what needs it
is left out without it.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _record import Table, paired

from dualgap.datasets import fetch_movielens
from dualgap.metrics import calibration_error, rmse
from dualgap.recommend import Interactions, OrdinalRecommender, Variational
from dualgap.recommend._baselines import Likes, als, ease, popularity
from dualgap.recommend.comparison import split_ratings


def data_sets() -> dict[str, pd.DataFrame]:
    found = {"ML-100k": fetch_movielens("100k").ratings[["user", "item", "rating"]]}
    path = Path(os.environ.get("DUALGAP_DATA") or ".") / "movielens_1m.npz"
    if path.exists():
        arrays = np.load(path)
        columns = zip(("user", "item", "rating"), arrays.files, strict=False)
        found["ML-1M"] = pd.DataFrame({name: arrays[key] for name, key in columns})
    return found


def ranking() -> None:
    """80/20; the baselines' settings are chosen on a tenth of the training part."""
    table = Table("recommender-ranking", "data", "method")
    for data, ratings in data_sets().items():
        train, _, test = split_ratings(ratings, 0, (0.8, 0.0))
        rest, validation, _ = split_ratings(train, 1, (0.9, 0.1))
        chosen = Likes.of(rest, validation, test)
        whole = Likes.of(train, validation, test)
        for name, rank in (("popularity", popularity), ("EASE", ease), ("ALS", als)):
            start = time.perf_counter()
            # Settings from the validation likes, then a fit to all of the training part.
            scores = rank(whole, rank(chosen).setting)
            seconds = time.perf_counter() - start
            found = whole.metrics(scores.scores, whole.test)
            add_ranking(table, data, name, found, seconds)
        for name, settings in (("ours", {}), ("ours, history", {"history_features": True})):
            start = time.perf_counter()
            model = OrdinalRecommender(random_state=0, **settings).fit(train)
            seconds = time.perf_counter() - start
            both: dict[str, float] = {}
            for rank_by in ("like", "rating"):
                found = model.evaluate(
                    test, k=(10,), catalogue=True, rank_by=rank_by, unknown="ignore"
                )
                both = both or {"rmse": found["rmse"]}
                label = f'{name}, rank_by="{rank_by}"'
                add_ranking(table, data, label, found, seconds, **both)


def add_ranking(
    table: Table, data: str, method: str, found: dict[str, float], seconds: float, **more: float
) -> None:
    table.add(
        data=data,
        method=method,
        recall10=found["recall@10"],
        ndcg10=found["catalogue_ndcg@10"],
        map10=found["map@10"],
        coverage10=found["coverage@10"],
        rmse=more.get("rmse"),
        seconds=seconds,
    )


def million(only: str | None = None) -> None:
    table = Table("recommender-million", "settings")
    ratings = data_sets().get("ML-1M")
    if ratings is None:
        return
    train, _, test = split_ratings(ratings, 0, (0.9, 0.0))
    cases: dict[str, dict[str, Any]] = {
        "as it comes": {},
        "history": {"history_features": True},
        "history, 40 bases, 40 sweeps": {
            "history_features": True,
            "n_components": 40,
            "method": Variational(tol=0.0),
        },
    }
    for name, settings in cases.items():
        if only is not None and name != only:
            continue
        start = time.perf_counter()
        model = OrdinalRecommender(random_state=0, interactions=False, **settings).fit(train)
        seconds = time.perf_counter() - start
        found = model.evaluate(test, unknown="ignore")
        table.add(
            settings=name,
            n_bases=model.n_components_,
            sweeps=model.n_iter_,
            rmse=found["rmse"],
            ndcg5=found["ndcg@5"],
            seconds=seconds,
        )


def new_users() -> None:
    """Every twentieth user is new: their training ratings come after the fit."""
    table = Table("recommender-new-users", "settings")
    train, _, test = split_ratings(data_sets()["ML-100k"], 0, (0.8, 0.0))
    users = np.unique(train["user"])[::20]
    is_new = train["user"].isin(users)
    held = test[test["user"].isin(users)]
    for name, settings in (("ids", {}), ("history", {"history_features": True})):
        make = OrdinalRecommender(random_state=0, **settings)
        before = make.fit(train[~is_new])
        start = time.perf_counter()
        folded = before.fold_in(train[is_new])
        seconds = time.perf_counter() - start
        errors = {"average": error(before, held), "folded": error(folded, held)}
        refit = OrdinalRecommender(random_state=0, **settings).fit(train)
        table.add(
            settings=name,
            **errors,
            refit=error(refit, held),
            milliseconds=1e3 * seconds / len(users),
        )


def error(model: OrdinalRecommender, test: pd.DataFrame) -> float:
    return rmse(test["rating"], model.predict(test["user"], test["item"], unknown="ignore"))


def calibration() -> None:
    table = Table("recommender-calibration", "settings")
    train, _, test = split_ratings(data_sets()["ML-100k"], 0)
    for name, settings in (("ids", {}), ("history", {"history_features": True})):
        model = OrdinalRecommender(random_state=0, interactions=False, **settings).fit(train)
        chances = model.predict_proba(test["user"], test["item"], unknown="ignore")
        shares = train["rating"].value_counts(normalize=True).reindex(model.levels_).to_numpy()
        table.add(
            settings=name,
            error=calibration_error(test["rating"], chances, model.levels_),
            log_loss=log_loss(model.levels_, chances, test),
            shares_log_loss=log_loss(model.levels_, np.tile(shares, (len(test), 1)), test),
        )


def log_loss(levels: np.ndarray, chances: np.ndarray, test: pd.DataFrame) -> float:
    level = np.searchsorted(levels, test["rating"])
    return float(-np.log(np.maximum(chances[np.arange(len(test)), level], 1e-12)).mean())


def serving() -> None:
    table = Table("recommender-serving", "what")
    ratings = data_sets().get("ML-1M")
    if ratings is None:
        return
    # A short fit: its scores are as costly as those of a long one.
    short = Variational(n_sweeps=3)
    model = OrdinalRecommender(24, method=short, random_state=0, interactions=False).fit(ratings)
    likes = OrdinalRecommender(
        reduction="interactions", interactions=Interactions(n_factors=24), random_state=0
    ).fit(ratings)
    users = model.user_ids_

    def seconds(call: Any) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    other = None
    if find_spec("implicit") is not None:
        other = implicit_recommender(likes)
    for name, ours in (
        ("expected ratings, 24 bases, 4 outputs, 3 models", lambda: model.recommend(users)),
        ("likes", lambda: likes.recommend(users)),
    ):
        if other is not None:
            mine, theirs, ratio = paired(lambda ours=ours: seconds(ours), lambda: seconds(other))
            table.add(what=name, ours=len(users) / mine, implicit=len(users) / theirs, ratio=ratio)
        else:
            mine = np.median([seconds(ours) for _ in range(5)])
            table.add(what=name, ours=len(users) / mine, implicit=None, ratio=None)


def implicit_recommender(model: OrdinalRecommender) -> Any:
    """The same factors in implicit's class, so that both sort the same scores."""
    from implicit.cpu.als import AlternatingLeastSquares

    factors = model._interactions
    assert factors is not None
    als_model = AlternatingLeastSquares(factors=factors.users.shape[1])
    als_model.user_factors = factors.users[:-1].astype(np.float32)
    als_model.item_factors = factors.items[:-1].astype(np.float32)
    seen = sp.csr_matrix(model._seen, dtype=np.float32)
    ids = np.arange(len(model.user_ids_))
    return lambda: als_model.recommend(ids, seen, N=10)


if __name__ == "__main__":
    logging.getLogger("dualgap").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    actions = {
        "ranking": ranking,
        "million": million,
        "new-users": new_users,
        "calibration": calibration,
        "serving": serving,
    }
    for action in sys.argv[1:] or actions:
        actions[action]()
