"""Time and memory of the recommender: threads, phases, growth with the number of ratings.

python benches/recommender_speed.py fit       # chosen settings, 50,000 ratings, 1 and 2 threads
python benches/recommender_speed.py times     # with time_features and without, alternating
python benches/recommender_speed.py grid      # a whole validation grid on one split
python benches/recommender_speed.py growth    # 100k, 1M and 10M synthetic ratings
python benches/recommender_speed.py memory    # increase of the peak memory during a fit

Generated ratings replace MovieLens if it is missing.
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
from _data import ratings_of
from _record import Table, paired

from dualgap.datasets import synthetic_ratings
from dualgap.recommend import OrdinalRecommender, Variational
from dualgap.recommend.comparison import split_ratings


def seconds(ratings: pd.DataFrame, **parameters: Any) -> float:
    start = time.perf_counter()
    OrdinalRecommender(random_state=0, **parameters).fit(ratings)
    return time.perf_counter() - start


def fit() -> None:
    train = split_ratings(ratings_of("movielens_100k"))[0]
    table = Table("recommender-fit", "settings")
    settings: dict[str, dict[str, Any]] = {
        "ids, 3 models": {},
        "ids, 1 model": {"method": Variational(n_models=1)},
        "history, 3 models": {"history_features": True},
        "single output, 3 models": {"task": "regression"},
    }
    for name, parameters in settings.items():
        two, one, ratio = paired(
            lambda parameters=parameters: seconds(train, n_jobs=2, **parameters),
            lambda parameters=parameters: seconds(train, n_jobs=1, **parameters),
        )
        table.add(settings=name, seconds_1=one, seconds_2=two, ratio=ratio)


def times() -> None:
    train = split_ratings(ratings_of("movielens_100k"))[0]
    table = Table("recommender-times", "settings")
    for name, history in (("ids", False), ("history", True)):
        without, timed, ratio = paired(
            lambda history=history: seconds(train, history_features=history),
            lambda history=history: seconds(train, history_features=history, time_features=True),
        )
        table.add(settings=name, seconds_without=without, seconds_with=timed, ratio=ratio)


def grid() -> None:
    train, validation, _ = split_ratings(ratings_of("movielens_100k"))
    start = time.perf_counter()
    best: tuple[float, tuple[Any, ...]] = (np.inf, ())
    for tempering, components, popularity in itertools.product(
        (0.9, 1.0, 1.1), (5, 8, 12), (True, False)
    ):
        method = Variational(n_models=1, tempering=tempering, popularity=popularity)
        model = OrdinalRecommender(components, method=method, random_state=0).fit(train)
        parameters = (tempering, components, popularity)
        best = min(best, (model.evaluate(validation)["rmse"], parameters), key=lambda pair: pair[0])
    print(f"best: {best}")
    Table("recommender-grid").add(settings=18, seconds=time.perf_counter() - start)


def growth() -> None:
    table = Table("recommender-growth", "ratings")
    for n_ratings, n_users, n_items in (
        (100_000, 1_000, 1_700),
        (1_000_000, 6_000, 4_000),
        (10_000_000, 60_000, 10_000),
    ):
        ratings = synthetic_ratings(n_ratings, n_users, n_items, random_state=0)
        spent = seconds(ratings, method=Variational(n_models=1))
        per_rating = 1e6 * spent / n_ratings
        table.add(ratings=n_ratings, seconds=spent, microseconds_per_rating=per_rating)


def memory() -> None:
    if "--child" in sys.argv:
        train = split_ratings(ratings_of("movielens_100k"))[0]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds(train)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print((after - before) // 1024, before // 1024)
        return
    ratings_of("movielens_100k")  # if it is missing, results go elsewhere
    command = [sys.executable, __file__, "memory", "--child"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    over, before = done.stdout.split()
    Table("recommender-memory").add(over_data_mb=over, with_data_mb=before)


if __name__ == "__main__":
    logging.getLogger("dualgap").setLevel(logging.ERROR)
    actions = {"fit": fit, "times": times, "grid": grid, "growth": growth, "memory": memory}
    chosen = [name for name in sys.argv[1:] if name in actions]
    for action in chosen or actions:
        actions[action]()
