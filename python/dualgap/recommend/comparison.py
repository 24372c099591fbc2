"""Side-by-side comparison of recommenders on one split of ratings, with validation curves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from dualgap._choices import Penalty
from dualgap.metrics import ndcg_at_k, rmse
from dualgap.recommend._conditional_gradient import ConditionalGradient
from dualgap.recommend.recommender import OrdinalRecommender

__all__ = ["Comparison", "Row", "compare", "split_ratings"]

# Of the order that validation chose on MovieLens 100k.
_RADII: dict[Penalty, float] = {"l1": 2000.0, "l1/l2": 2000.0, "l1/linf": 1000.0}


@dataclass(frozen=True)
class Row:
    """One recommender's line in the comparison."""

    name: str
    rmse: float
    ndcg1: float
    ndcg5: float
    seconds: float
    n_bases: int | None


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    rows : list of Row
        One per recommender; metrics on the test ratings.
    curves : dict
        Penalty -> (numbers of bases, validation losses).
    """

    rows: list[Row]
    curves: dict[str, tuple[list[int], list[float]]] = field(repr=False)

    def table(self) -> pd.DataFrame:
        """Rows as a DataFrame."""
        return pd.DataFrame([vars(row) for row in self.rows])

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Write the validation curves against the number of bases as a picture."""
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        for penalty, (sizes, losses) in self.curves.items():
            best = int(np.argmin(losses))
            (line,) = axes.plot(sizes, losses, marker="o", markersize=3, label=penalty)
            axes.plot(sizes[best], losses[best], marker="*", markersize=13, color=line.get_color())
        axes.set_xlabel("number of basis vectors")
        axes.set_ylabel("validation loss (sum of the thresholds' logistic losses)")
        axes.set_title("McRank factorization machine, conditional gradient")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(title="penalty (star: chosen)")
        figure.savefig(path, dpi=150)


def split_ratings(
    ratings: pd.DataFrame, seed: int = 0, shares: tuple[float, float] = (0.5, 0.25)
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Split the rows at random into training, validation and test ratings."""
    order = np.random.default_rng(seed).permutation(len(ratings))
    first, second = (round(len(ratings) * share) for share in np.cumsum(shares))
    parts = np.split(order, [first, second])
    train, validation, test = (ratings.iloc[part] for part in parts)
    return train, validation, test


def compare(
    train: pd.DataFrame,
    validation: pd.DataFrame,
    test: pd.DataFrame,
    *,
    n_components: int = 8,
    random_state: int = 0,
    n_jobs: int | None = None,
    report: Callable[[Row], object] = lambda _row: None,
) -> Comparison:
    """Fit baselines and factorization machines on `train` and score them on `test`.

    Parameters
    ----------
    train, validation, test : DataFrame with columns user, item, rating
        `validation` chooses the number of bases of the conditional gradient fits.
    n_components : int, default=8
        Largest number of bases.
    random_state : int, default=0
        Seed.
    n_jobs : int, optional
        Number of threads; all cores by default.
    report : callable, optional
        Called with each row as soon as it is known.

    Returns
    -------
    Comparison
    """
    rows: list[Row] = []
    curves: dict[str, tuple[list[int], list[float]]] = {}

    def add(name: str, predicted: Any, start: float, n_bases: int | None = None) -> None:
        seconds = time.perf_counter() - start
        truth, groups = test["rating"].to_numpy(), test["user"].to_numpy()
        low, high = train["rating"].min(), train["rating"].max()
        predicted = np.clip(predicted, low, high)
        ndcg = [ndcg_at_k(truth, predicted, k, groups=groups) for k in (1, 5)]
        rows.append(Row(name, rmse(truth, predicted), ndcg[0], ndcg[1], seconds, n_bases))
        report(rows[-1])

    start = time.perf_counter()
    add("global mean", np.full(len(test), train["rating"].mean()), start)
    start = time.perf_counter()
    add("biases", _biases(train, test), start)

    def fit(name: str, **parameters: Any) -> OrdinalRecommender:
        start = time.perf_counter()
        model = OrdinalRecommender(random_state=random_state, n_jobs=n_jobs, **parameters)
        on_validation = isinstance(model.method, ConditionalGradient)
        model.fit(train, validation=validation if on_validation else None)
        add(name, model.predict(test["user"], test["item"]), start, model.n_components_)
        return model

    for penalty, radius in _RADII.items():
        model = fit(
            f"McRank FM, conditional gradient, {penalty}",
            method=ConditionalGradient(penalty=penalty, radius=radius, refit="output"),
            n_components=n_components,
        )
        history = model.history_
        sizes, losses = history["n_components"].tolist(), history["validation_loss"].tolist()
        curves[penalty] = (sizes, losses)
    fit("single-output FM, variational", reduction="regression", n_components=n_components)
    fit("McRank FM, variational", n_components=n_components)
    fit(
        "McRank FM, variational, history",
        n_components=n_components,
        history_features=True,
    )
    return Comparison(rows, curves)


def _biases(train: pd.DataFrame, test: pd.DataFrame, shrink: float = 5.0) -> Any:
    """Mean plus user and item offsets, shrunk and fitted in turn."""
    mean = train["rating"].mean()
    offsets = {"user": pd.Series(dtype=float), "item": pd.Series(dtype=float)}

    def offset(table: pd.DataFrame, side: str) -> pd.Series[float]:
        return table[side].map(offsets[side]).fillna(0.0).astype(float)

    for _ in range(10):
        for side, other in (("item", "user"), ("user", "item")):
            rest = train["rating"] - mean - offset(train, other)
            grouped = rest.groupby(train[side])
            offsets[side] = grouped.sum() / (grouped.count() + shrink)
    return (mean + offset(test, "user") + offset(test, "item")).to_numpy()
