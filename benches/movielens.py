"""Accuracy of the recommender on MovieLens 100k: choice of settings, tests over ten seeds.

python benches/movielens.py grid        # validation metrics of the whole grid, seeds 0-2
python benches/movielens.py test [NAME] # test metrics of the chosen settings, seeds 0-9
python benches/movielens.py baselines   # conditional gradient, seeds 0-2

Generated ratings replace MovieLens if it is missing.
"""

from __future__ import annotations

import itertools
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from _data import ratings_of
from _record import Table

from dualgap.metrics import ndcg_at_k, rmse
from dualgap.recommend import ConditionalGradient, OrdinalRecommender, TimeFeatures, Variational
from dualgap.recommend.comparison import split_ratings

CHOSEN: dict[str, dict[str, Any]] = {
    "ids": {},
    "history": {"history_features": True},
    "history of users only": {"history_features": "users"},
    "single output": {"task": "regression"},
    "ids and times": {"time_features": True},
    "history and times": {"history_features": True, "time_features": True},
}


def score(model: OrdinalRecommender, held_out: pd.DataFrame) -> np.ndarray:
    """Compute RMSE, nDCG@1 and nDCG@5 with ties broken at random."""
    timed = {} if model.time_features is False else {"timestamps": held_out["timestamp"]}
    predicted = model.predict(held_out["user"], held_out["item"], unknown="ignore", **timed)
    truth, users = held_out["rating"].to_numpy(), held_out["user"].to_numpy()
    ndcg = [
        ndcg_at_k(truth, predicted, k, groups=users, ties="random", random_state=0) for k in (1, 5)
    ]
    return np.array([rmse(truth, np.clip(predicted, 1.0, 5.0)), *ndcg])


def record(table: Table, scores: list[np.ndarray], seconds: list[float], **row: Any) -> None:
    """Store means over seeds, their standard errors, and the median seconds of a fit."""
    mean, error = np.mean(scores, axis=0), np.std(scores, axis=0) / max(1, len(scores) - 1) ** 0.5
    cells: dict[str, float] = {}
    for metric, m, e in zip(("rmse", "ndcg1", "ndcg5"), mean, error, strict=True):
        cells |= {metric: m, f"{metric}_error": e}
    table.add(**row, **cells, seconds=np.median(seconds) if seconds else None)


def run(
    ratings: pd.DataFrame, n_seeds: int, part: int, **parameters: Any
) -> tuple[list[np.ndarray], list[float]]:
    """Return the scores on one part (1: validation, 2: test) and the seconds for each seed."""
    scores, seconds = [], []
    for seed in range(n_seeds):
        parts = split_ratings(ratings, seed)
        start = time.perf_counter()
        model = OrdinalRecommender(random_state=seed, **parameters)
        on_validation = isinstance(model.method, ConditionalGradient)
        model.fit(parts[0], validation=parts[1] if on_validation else None)
        seconds.append(time.perf_counter() - start)
        scores.append(score(model, parts[part]))
    return scores, seconds


def grid(ratings: pd.DataFrame) -> None:
    table = Table("movielens-grid", "settings")
    tempering = (0.9, 1.0, 1.1)
    settings: list[tuple[bool | str, dict[str, Any]]] = [
        (False, {"tempering": t, "popularity": popularity, "n_models": models})
        for t, popularity, models in itertools.product(tempering, (True, False), (1, 3))
    ]
    settings += [
        (history, {"tempering": t, "feature_ridge": ridge})
        for history, t, ridge in itertools.product(("users", True), tempering, (2.0, 4.0))
    ]
    for history, options in settings:
        shown = {**({"history_features": history} if history else {}), **options}
        name = ", ".join(f"{key}={value}" for key, value in shown.items())
        parameters = {"history_features": history, "method": Variational(**options)}
        record(table, *run(ratings, 3, 1, **parameters), settings=name)
    for history, minutes in itertools.product((False, True), (5, 15, 60, 1440)):
        name = f"history_features={history}, user_days={minutes}/1440"
        features = TimeFeatures(user_days=minutes / 1440)
        parameters = {"history_features": history, "time_features": features}
        record(table, *run(ratings, 3, 1, **parameters), settings=name)


def on_test(ratings: pd.DataFrame, only: str | None = None) -> None:
    table = Table("movielens-test", "seeds", "settings")
    for n_seeds in (3, 10):
        seeds = f"0-{n_seeds - 1}"
        results = {}
        for name, parameters in CHOSEN.items():
            if only is not None and name != only:
                continue
            results[name] = run(ratings, n_seeds, 2, **parameters)
            record(table, *results[name], seeds=seeds, settings=name)
        if only is not None:
            continue
        paired = np.array(results["ids"][0]) - np.array(results["single output"][0])
        name = "ids minus single output, paired"
        record(table, list(paired), [], seeds=seeds, settings=name)


def baselines(ratings: pd.DataFrame) -> None:
    table = Table("movielens-baselines", "penalty", "refit")
    radii = {"l1": 2000.0, "l1/l2": 2000.0, "l1/linf": 1000.0}
    for (penalty, radius), refit in itertools.product(radii.items(), ("output", "full")):
        method = ConditionalGradient(penalty=penalty, radius=radius, reoptimize=refit)
        n_components = 8 if refit == "output" else 4
        results = run(ratings, 3, 2, method=method, n_components=n_components)
        record(table, *results, seeds="0-2", penalty=penalty, refit=refit)


if __name__ == "__main__":
    logging.getLogger("dualgap").setLevel(logging.ERROR)
    table = ratings_of("movielens_100k")
    actions: dict[str, Callable[..., None]] = {"grid": grid, "test": on_test}
    actions["baselines"] = baselines
    if len(sys.argv) > 1:
        actions[sys.argv[1]](table, *sys.argv[2:])
    else:
        for action in actions.values():
            action(table)
