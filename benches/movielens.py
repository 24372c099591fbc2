"""Accuracy of the recommender on MovieLens 100k: choice on validation, test over ten seeds.

python benches/movielens.py grid        # validation metrics of the whole grid, seeds 0-2
python benches/movielens.py test        # test metrics of the chosen settings, seeds 0-9
python benches/movielens.py baselines   # conditional gradient and single-output twins, seeds 0-2
"""

from __future__ import annotations

import itertools
import logging
import sys
import time
from typing import Any

import numpy as np
import pandas as pd

from dualgap.datasets import fetch_movielens
from dualgap.metrics import ndcg_at_k, rmse
from dualgap.recommend import OrdinalRecommender
from dualgap.recommend.comparison import split_ratings

CHOSEN: dict[str, dict[str, Any]] = {
    "ids": {},
    "history": {"history_features": True},
    "history of users only": {"history_features": "users"},
}


def score(model: OrdinalRecommender, held_out: pd.DataFrame) -> np.ndarray:
    """RMSE, nDCG@1, nDCG@5 with ties broken at random."""
    predicted = model.predict(held_out["user"], held_out["item"])
    truth, users = held_out["rating"].to_numpy(), held_out["user"].to_numpy()
    ndcg = [
        ndcg_at_k(truth, predicted, k, groups=users, ties="random", random_state=0) for k in (1, 5)
    ]
    return np.array([rmse(truth, np.clip(predicted, 1.0, 5.0)), *ndcg])


def show(name: str, scores: list[np.ndarray], seconds: list[float]) -> None:
    mean, error = np.mean(scores, axis=0), np.std(scores, axis=0) / max(1, len(scores) - 1) ** 0.5
    numbers = "  ".join(f"{m:.4f} ±{e:.4f}" for m, e in zip(mean, error, strict=True))
    print(f"{name:70s} {numbers}  {np.median(seconds):6.2f} s", flush=True)


def run(
    name: str, seeds: range, ratings: pd.DataFrame, part: int, **parameters: Any
) -> list[np.ndarray]:
    scores, seconds = [], []
    for seed in seeds:
        parts = split_ratings(ratings, seed)
        start = time.perf_counter()
        model = OrdinalRecommender(random_state=seed, **parameters)
        on_validation = model.method == "conditional-gradient"
        model.fit(parts[0], validation=parts[1] if on_validation else None)
        seconds.append(time.perf_counter() - start)
        scores.append(score(model, parts[part]))
    show(name, scores, seconds)
    return scores


def grid(ratings: pd.DataFrame) -> None:
    print("validation, seeds 0-2: RMSE, nDCG@1, nDCG@5, seconds per fit")
    tempering = (0.9, 1.0, 1.1)
    for name, popularity, models in itertools.product(tempering, (True, False), (1, 3)):
        run(
            f"ids: tempering {name}, popularity {popularity}, {models} models",
            range(3),
            ratings,
            1,
            tempering=name,
            popularity=popularity,
            n_models=models,
        )
    for history, name, ridge in itertools.product(("users", True), tempering, (2.0, 4.0)):
        run(
            f"history {history}: tempering {name}, feature_ridge {ridge}",
            range(3),
            ratings,
            1,
            history_features=history,
            tempering=name,
            feature_ridge=ridge,
        )


def test(ratings: pd.DataFrame) -> None:
    for seeds in (range(3), range(10)):
        print(f"test, seeds 0-{seeds[-1]}: RMSE, nDCG@1, nDCG@5, seconds per fit")
        results = {
            name: run(name, seeds, ratings, 2, **parameters) for name, parameters in CHOSEN.items()
        }
        twin = run("ids, single output", seeds, ratings, 2, reduction="regression")
        paired = np.array(results["ids"]) - np.array(twin)
        show("ids minus its single-output twin, paired", list(paired), [0.0])


def baselines(ratings: pd.DataFrame) -> None:
    print("test, seeds 0-2: RMSE, nDCG@1, nDCG@5, seconds per fit")
    radii = {"l1": 2000.0, "l1/l2": 2000.0, "l1/linf": 1000.0}
    for (penalty, radius), refit in itertools.product(radii.items(), ("output", "full")):
        run(
            f"conditional gradient, {penalty}, refit {refit}",
            range(3),
            ratings,
            2,
            method="conditional-gradient",
            penalty=penalty,
            radius=radius,
            refit=refit,
            n_components=8 if refit == "output" else 4,
        )


if __name__ == "__main__":
    logging.getLogger("dualgap").setLevel(logging.ERROR)
    table = fetch_movielens("100k").ratings
    actions = {"grid": grid, "test": test, "baselines": baselines}
    for action in sys.argv[1:] or actions:
        actions[action](table)
