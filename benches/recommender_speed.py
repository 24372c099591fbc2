"""Time and memory of the recommender: threads, phases, growth with the number of ratings.

    python benches/recommender_speed.py fit       # chosen settings, 50,000 ratings, 1 and 2 threads
python benches/recommender_speed.py grid      # a whole validation grid on one split
python benches/recommender_speed.py growth    # 100k, 1M and 10M synthetic ratings
python benches/recommender_speed.py memory    # peak resident memory of one fit over the interpreter
"""

from __future__ import annotations

import itertools
import logging
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pandas as pd

from dualgap.datasets import fetch_movielens, synthetic_ratings
from dualgap.recommend import OrdinalRecommender
from dualgap.recommend.comparison import split_ratings

REPEATS = 5


def seconds(ratings: pd.DataFrame, **parameters: Any) -> float:
    start = time.perf_counter()
    OrdinalRecommender(random_state=0, **parameters).fit(ratings)
    return time.perf_counter() - start


def fit() -> None:
    train = split_ratings(fetch_movielens("100k").ratings)[0]
    for name, parameters in (
        ("ids", {}),
        ("ids, 1 model", {"n_models": 1}),
        ("history", {"history_features": True}),
        ("single output", {"reduction": "regression"}),
    ):
        # In turn, so that a slow moment of the machine hits both.
        pairs = [[seconds(train, n_jobs=n, **parameters) for n in (1, 2)] for _ in range(REPEATS)]
        one, two = np.median(pairs, axis=0)
        ratio = np.median([a / b for a, b in pairs])
        print(f"{name:16s} 1 thread {one:6.2f} s   2 threads {two:6.2f} s   ratio {ratio:.2f}")


def grid() -> None:
    train, validation, _ = split_ratings(fetch_movielens("100k").ratings)
    start = time.perf_counter()
    best: tuple[float, dict[str, Any]] = (np.inf, {})
    for tempering, components, popularity in itertools.product(
        (0.9, 1.0, 1.1), (5, 8, 12), (True, False)
    ):
        parameters = {
            "tempering": tempering,
            "n_components": components,
            "popularity": popularity,
        }
        model = OrdinalRecommender(random_state=0, n_models=1, **parameters).fit(train)
        best = min(best, (model.evaluate(validation)["rmse"], parameters), key=lambda pair: pair[0])
    print(f"grid of 18: {time.perf_counter() - start:.1f} s; best {best}")


def growth() -> None:
    for n_ratings, n_users, n_items in (
        (100_000, 1_000, 1_700),
        (1_000_000, 6_000, 4_000),
        (10_000_000, 60_000, 10_000),
    ):
        ratings = synthetic_ratings(n_ratings, n_users, n_items, random_state=0)
        spent = seconds(ratings, n_models=1)
        print(
            f"{n_ratings:9d} ratings: {spent:7.2f} s, {1e6 * spent / n_ratings:.2f} µs per rating"
        )


def memory() -> None:
    if "--child" in sys.argv:
        train = split_ratings(fetch_movielens("100k").ratings)[0]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds(train)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{(after - before) / 1024:.0f} MB over {before / 1024:.0f} MB with the data loaded")
        return
    command = [sys.executable, __file__, "memory", "--child"]
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


if __name__ == "__main__":
    logging.getLogger("dualgap").setLevel(logging.ERROR)
    actions = {"fit": fit, "grid": grid, "growth": growth, "memory": memory}
    chosen = [name for name in sys.argv[1:] if name in actions]
    for action in chosen or actions:
        actions[action]()
