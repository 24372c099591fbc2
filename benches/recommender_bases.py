"""RMSE and nDCG by number of bases (Figure 4 of Blondel et al. 2017), with certificates.

python benches/recommender_bases.py [METHOD]...          # MovieLens 100k
python benches/recommender_bases.py ML-1M [METHOD]...    # movielens_1m.npz in DUALGAP_DATA

Ratings are split 50/25/25 % with seed 0, and the test ratings are scored. For the conditional
gradient methods, the radius is chosen on the validation part with eight bases, and used for all
numbers of bases. They refit only the output layer after each new basis (convex).
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _record import Table

from dualgap import PolynomialNetworkRegressor
from dualgap.datasets import fetch_movielens
from dualgap.metrics import ndcg_at_k, rmse
from dualgap.recommend import ConditionalGradient, OrdinalRecommender
from dualgap.recommend.comparison import split_ratings

BASES = (1, 2, 4, 8, 16)
RADII = (200.0, 600.0, 2000.0)
Fit = Callable[[int, float], tuple[Any, Callable[[pd.DataFrame], np.ndarray]]]


def recommender(train: pd.DataFrame, **settings: Any) -> Fit:
    def fit(n_bases: int, radius: float) -> Any:
        # The variational fit has no radius by default.
        method: Any = "variational"
        if settings.get("greedy", True):
            method = ConditionalGradient(radius=radius, reoptimize="output")
        task = settings.get("task", "ordinal")
        model = OrdinalRecommender(
            n_bases, method=method, task=task, interactions=False, random_state=0
        ).fit(train)
        return model, lambda rows: model.predict(rows["user"], rows["item"], unknown="ignore")

    return fit


def network(train: pd.DataFrame) -> Fit:
    """Fit a single-output polynomial network on one-hot users and items."""
    ids = [pd.Index(train[name].unique()) for name in ("user", "item")]

    def one_hot(rows: pd.DataFrame) -> sp.csr_array:
        blocks = []
        for name, known in zip(("user", "item"), ids, strict=True):
            at = known.get_indexer(rows[name])
            here = np.flatnonzero(at >= 0)
            place = (here, at[here])
            blocks.append(sp.csr_array((np.ones(len(here)), place), (len(at), len(known))))
        return sp.csr_array(sp.hstack(blocks, format="csr"))

    X, y = one_hot(train), train["rating"].to_numpy()

    def fit(n_bases: int, radius: float) -> Any:
        model = PolynomialNetworkRegressor(
            n_components=n_bases, radius=radius, reoptimize="output", alpha=3.0, random_state=0
        ).fit(X, y)
        return model, lambda rows: model.predict(one_hot(rows))

    return fit


def run(
    table: Table, name: str, fit: Fit, radii: tuple[float, ...], held: list[pd.DataFrame]
) -> None:
    validation, test = held

    def error(radius: float) -> float:
        return rmse(validation["rating"], np.clip(fit(8, radius)[1](validation), 1.0, 5.0))

    radius = min(radii, key=error) if len(radii) > 1 else radii[0]
    truth, users = test["rating"].to_numpy(), test["user"].to_numpy()
    for n_bases in BASES:
        start = time.perf_counter()
        model, predict = fit(n_bases, radius)
        seconds = time.perf_counter() - start
        predicted = np.clip(predict(test), 1.0, 5.0)
        ndcg1, ndcg5 = (
            ndcg_at_k(truth, predicted, k, groups=users, ties="random", random_state=0)
            for k in (1, 5)
        )
        gap = model.duality_gap_
        certified = gap is not None and np.isfinite(gap)
        table.add(
            method=name,
            bases=n_bases,
            radius=radius if np.isfinite(radius) else None,
            rmse=rmse(truth, predicted),
            ndcg1=ndcg1,
            ndcg5=ndcg5,
            objective=model.objective_,
            relative_gap=gap / abs(model.objective_) if certified else None,
            certificate="global optimum" if certified else "none",
            seconds=seconds,
        )


def main(*only: str) -> None:
    table = Table("recommender-bases", "method", "bases")
    if only[:1] == ("ML-1M",):
        arrays = np.load(Path(os.environ.get("DUALGAP_DATA") or ".") / "movielens_1m.npz")
        ratings = pd.DataFrame({key: arrays[key] for key in ("user", "item", "rating")})
        table, only = Table("recommender-bases-1m", "method", "bases"), only[1:]
    else:
        ratings = fetch_movielens("100k").ratings
    train, *held = split_ratings(ratings, 0)
    single = "regression"
    methods: dict[str, tuple[Fit, tuple[float, ...]]] = {
        "variational": (recommender(train, greedy=False), (np.inf,)),
        "fm-mcrank": (recommender(train), RADII),
        "fm-single": (recommender(train, task=single), RADII),
        "pn-single": (network(train), RADII),
    }
    for name, (fit, radii) in methods.items():
        if not only or name in only:
            run(table, name, fit, radii, held)


if __name__ == "__main__":
    logging.getLogger("dualgap").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
