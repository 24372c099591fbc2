"""RMSE and nDCG by number of bases (Figure 4 of Blondel et al. 2017), with certificates.

python benches/recommender_bases.py [METHOD]...          # MovieLens 100k
python benches/recommender_bases.py ML-1M [METHOD]...    # movielens_1m.npz in DUALGAP_DATA

Generated ratings replace a set that is missing.

Ratings are split 50/25/25 % with the seeds 0, 1 and 2 (MovieLens 1M with seed 0, because its fits
take minutes), and the test ratings are scored. For the
conditional gradient methods, the radius is chosen on the validation part with eight bases, and used
for all numbers of bases. After each new basis, they refit only the output layer, which is a convex
problem. In the last row of each method, the validation part chooses the number of bases.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _data import ratings_of
from _record import Table

from dualgap import PolynomialNetworkRegressor
from dualgap.metrics import ndcg_at_k, rmse
from dualgap.recommend import ConditionalGradient, OrdinalRecommender
from dualgap.recommend.comparison import split_ratings

BASES = (1, 2, 4, 8, 16)
RADII = (200.0, 600.0, 2000.0)
# Radii for the larger set.
LARGE_RADII = (2000.0, 6000.0, 20000.0)
SEEDS = (0, 1, 2)
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


def measured(
    fit: Fit, radii: tuple[float, ...], held: list[pd.DataFrame]
) -> list[dict[str, float]]:
    """Fit with each number of bases, and return the measurements."""
    validation, test = held

    def predicted(predict: Callable[[pd.DataFrame], np.ndarray], rows: pd.DataFrame) -> np.ndarray:
        return np.clip(predict(rows), 1.0, 5.0)

    def error(predict: Callable[[pd.DataFrame], np.ndarray]) -> float:
        return rmse(validation["rating"], predicted(predict, validation))

    radius = min(radii, key=lambda radius: error(fit(8, radius)[1])) if radii else np.inf
    truth, users = test["rating"].to_numpy(), test["user"].to_numpy()
    found = []
    for n_bases in BASES:
        start = time.perf_counter()
        model, predict = fit(n_bases, radius)
        seconds = time.perf_counter() - start
        scores = predicted(predict, test)
        ndcg1, ndcg5 = (
            ndcg_at_k(truth, scores, k, groups=users, ties="random", random_state=0) for k in (1, 5)
        )
        gap = model.duality_gap_
        found.append(
            {
                "bases": n_bases,
                "radius": radius,
                "validation_rmse": error(predict),
                "rmse": rmse(truth, scores),
                "ndcg1": ndcg1,
                "ndcg5": ndcg5,
                "relative_gap": np.nan if gap is None else gap / abs(model.objective_),
                "seconds": seconds,
            }
        )
        print(found[-1], flush=True)
    return found


def record(table: Table, name: str, runs: list[list[dict[str, float]]]) -> None:
    """Record the means over the runs, and the standard errors of the RMSE and of nDCG@1."""
    chosen = [min(run, key=lambda row: row["validation_rmse"]) for run in runs]
    columns = [*zip(*runs, strict=True), chosen]
    for number, rows in zip([*BASES, "chosen"], columns, strict=True):
        means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
        errors = {
            f"{key}_error": np.std([row[key] for row in rows], ddof=1) / len(rows) ** 0.5
            for key in ("rmse", "ndcg1")
        }
        certified = np.isfinite(means["relative_gap"])
        radii = "/".join(dict.fromkeys(f"{row['radius']:g}" for row in rows))
        cells: dict[str, Any] = means | errors | {"mean_bases": means["bases"], "bases": number}
        cells["relative_gap"] = means["relative_gap"] if certified else None
        cells["radius"] = radii if np.isfinite(means["radius"]) else None
        table.add(method=name, splits=len(rows), **cells)


def main(*only: str) -> None:
    table, radii, seeds = Table("recommender-bases", "method", "bases"), RADII, SEEDS
    is_large = only[:1] == ("ML-1M",)
    ratings = ratings_of("movielens_1m" if is_large else "movielens_100k")
    if is_large:
        table, only = Table("recommender-bases-1m", "method", "bases"), only[1:]
        radii, seeds = LARGE_RADII, SEEDS[:1]
    methods: dict[str, tuple[Callable[[pd.DataFrame], Fit], tuple[float, ...]]] = {
        "variational": (lambda train: recommender(train, greedy=False), ()),
        "fm-mcrank": (recommender, radii),
        "fm-single": (lambda train: recommender(train, task="regression"), radii),
        "pn-single": (network, radii),
    }
    for name, (make, own_radii) in methods.items():
        if not only or name in only:
            splits = [split_ratings(ratings, seed) for seed in seeds]
            runs = [measured(make(train), own_radii, held) for train, *held in splits]
            record(table, name, runs)


if __name__ == "__main__":
    logging.getLogger("dualgap").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
