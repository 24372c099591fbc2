"""The recommender: ranking a catalogue, larger data, new users, calibration, serving.

    python benches/recommender_ranking.py ranking [DATA]  # recall@10, compared with EASE,
                                                          # ALS, BPR
    python benches/recommender_ranking.py million [ROW]   # RMSE and nDCG on MovieLens 1M, 90/10
    python benches/recommender_ranking.py choice [NAME]...  # settings of "million", chosen on
                                                            # validation ratings
    python benches/recommender_ranking.py new-users       # fold_in compared with a refit
    python benches/recommender_ranking.py calibration     # error of the level probabilities
    python benches/recommender_ranking.py serving         # users per second, compared with the
                                                          # package implicit

MovieLens 1M is movielens_1m.npz (users, items, ratings) in the folder DUALGAP_DATA. Generated
ratings replace a missing set. Without the package implicit (pip install implicit), measurements
that need it are skipped.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _data import ratings_of
from _record import Table, paired
from sklearn.base import clone

from dualgap.metrics import calibration_error, rmse
from dualgap.recommend import Interactions, OrdinalRecommender, Variational
from dualgap.recommend.comparison import (
    Likes,
    Ranked,
    als,
    ease,
    popularity,
    split_ratings,
)

SETS = {"ML-100k": "movielens_100k", "ML-1M": "movielens_1m"}


def read(data: str) -> pd.DataFrame:
    return ratings_of(SETS[data])[["user", "item", "rating"]]


def implicit_als(likes: Likes, setting: tuple[float, float] | None = None) -> Ranked:
    """Fit implicit's least squares on the likes, with alpha and regularization from a grid."""
    from implicit.cpu.als import AlternatingLeastSquares

    def scores(setting: tuple[float, float]) -> np.ndarray:
        alpha, ridge = setting
        options = {"alpha": alpha, "regularization": ridge, "iterations": 15, "random_state": 0}
        return implicit_scores(AlternatingLeastSquares(factors=64, **options), likes)

    grid = [(alpha, ridge) for alpha in (2.0, 5.0, 10.0) for ridge in (1.0, 5.0, 20.0)]
    return likes.best_of(scores, grid if setting is None else (setting,))


def implicit_bpr(likes: Likes, setting: tuple[float, float] | None = None) -> Ranked:
    """Fit implicit's pairwise ranking on the likes, with rate and regularization from a grid."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    def scores(setting: tuple[float, float]) -> np.ndarray:
        rate, ridge = setting
        options = {"learning_rate": rate, "regularization": ridge, "iterations": 150}
        model = BayesianPersonalizedRanking(factors=64, random_state=0, **options)
        return implicit_scores(model, likes)

    grid = [(rate, ridge) for rate in (0.005, 0.01, 0.02) for ridge in (0.003, 0.01, 0.03)]
    return likes.best_of(scores, grid if setting is None else (setting,))


def implicit_scores(model: Any, likes: Likes) -> np.ndarray:
    model.fit(sp.csr_matrix(likes.train, dtype=np.float32), show_progress=False)
    return np.asarray(model.user_factors @ model.item_factors.T, dtype=np.float64)


def ranking(only: str | None = None) -> None:
    """Compare rankings on an 80/20 split; baselines are tuned on a tenth of the training part."""
    table = Table("recommender-ranking", "data", "method")
    others = {"popularity": popularity, "EASE": ease, "ALS": als}
    if find_spec("implicit") is not None:
        others |= {"implicit, ALS": implicit_als, "implicit, BPR": implicit_bpr}
    for data in SETS:
        if only is not None and data != only:
            continue
        train, _, test = split_ratings(read(data), 0, (0.8, 0.0))
        rest, validation, _ = split_ratings(train, 1, (0.9, 0.1))
        chosen = Likes.of(rest, validation, test)
        whole = Likes.of(train, validation, test)
        for name, rank in others.items():
            start = time.perf_counter()
            # Choose settings on validation likes, then fit to the whole training part.
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
    train, _, test = split_ratings(read("ML-1M"), 0, (0.9, 0.0))
    cases: dict[str, dict[str, Any]] = {
        "as it comes": {},
        "history": {"history_features": True},
        "history, 8 models": {"history_features": True, "method": Variational(n_models=8)},
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


def choice(*names: str) -> None:
    """Score the settings tried for `million` on a tenth of its training ratings; all if unnamed."""
    table = Table("recommender-choice", "settings")
    train, _, _ = split_ratings(read("ML-1M"), 0, (0.9, 0.0))
    rest, _, validation = split_ratings(train, 1, (0.9, 0.0))
    tried = {
        "24 bases": (24, {}),
        "32 bases": (32, {}),
        "40 bases": (40, {}),
        "64 bases": (64, {}),
        "24 bases, 8 models": (24, {"n_models": 8}),
        "24 bases, tol=1e-3": (24, {"tol": 1e-3}),
        "24 bases, tempering=0.85": (24, {"tempering": 0.85}),
        "24 bases, tempering=1.2": (24, {"tempering": 1.2}),
        "24 bases, feature_ridge=0.3": (24, {"feature_ridge": 0.3}),
        "24 bases, feature_ridge=3": (24, {"feature_ridge": 3.0}),
    }
    cases: dict[str, dict[str, Any]] = {
        f"history, {name}": {
            "history_features": True, "n_components": n, "method": Variational(**parameters)
        }
        for name, (n, parameters) in tried.items()
    }  # fmt: skip
    cases |= {f"ids, {n} bases": {"n_components": n} for n in (24, 40)}
    for name in names or cases:
        model = OrdinalRecommender(random_state=0, interactions=False, **cases[name]).fit(rest)
        found = model.evaluate(validation, unknown="ignore")
        table.add(settings=name, sweeps=model.n_iter_, rmse=found["rmse"])


def new_users() -> None:
    """Add the training ratings of every twentieth user only after the fit, for ten offsets."""
    table = Table("recommender-new-users", "settings")
    train, _, test = split_ratings(read("ML-100k"), 0, (0.8, 0.0))
    users = np.unique(train["user"])
    for name, settings in (("ids", {}), ("history", {"history_features": True})):
        make = OrdinalRecommender(random_state=0, **settings)
        refit = clone(make).fit(train)
        squares: dict[str, float] = {"average": 0.0, "folded": 0.0, "refit": 0.0}
        count, times = 0, []
        for group in range(0, 20, 2):
            new = users[group::20]
            is_new = train["user"].isin(new)
            held = test[test["user"].isin(new)]
            before = clone(make).fit(train[~is_new])
            start = time.perf_counter()
            folded = before.fold_in(train[is_new])
            times.append((time.perf_counter() - start) / len(new))
            for what, model in zip(squares, (before, folded, refit), strict=True):
                squares[what] += len(held) * error(model, held) ** 2
            count += len(held)
        errors = {what: (total / count) ** 0.5 for what, total in squares.items()}
        table.add(settings=name, **errors, milliseconds=1e3 * np.median(times))


def error(model: OrdinalRecommender, test: pd.DataFrame) -> float:
    return rmse(test["rating"], model.predict(test["user"], test["item"], unknown="ignore"))


def calibration() -> None:
    table = Table("recommender-calibration", "settings")
    train, _, test = split_ratings(read("ML-100k"), 0)
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
    ratings = read("ML-1M")
    # A short fit suffices: its scores take as long to compute as a long fit's scores.
    short = Variational(max_iter=3)
    model = OrdinalRecommender(24, method=short, random_state=0, interactions=False).fit(ratings)
    likes = OrdinalRecommender(
        task="clicks", interactions=Interactions(n_components=24), random_state=0
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
    """Put the factors into implicit's class, so that both packages rank the same scores."""
    from implicit.cpu.als import AlternatingLeastSquares

    factors = model._fitted.click_model
    assert factors is not None
    als_model = AlternatingLeastSquares(factors=factors.users.shape[1])
    als_model.user_factors = factors.users[1:].astype(np.float32)
    als_model.item_factors = factors.items[1:].astype(np.float32)
    seen = sp.csr_matrix(model._fitted.seen.matrix, dtype=np.float32)
    ids = np.arange(len(model.user_ids_))
    return lambda: als_model.recommend(ids, seen, N=10)


if __name__ == "__main__":
    logging.getLogger("dualgap").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    actions: dict[str, Callable[..., None]] = {
        "new-users": new_users,
        "calibration": calibration,
        # After a missing file, all results go elsewhere, so commands with MovieLens 1M come last.
        "ranking": ranking,
        "million": million,
        "choice": choice,
        "serving": serving,
    }
    if len(sys.argv) > 1:
        actions[sys.argv[1]](*sys.argv[2:])
    else:
        for action in actions.values():
            action()
