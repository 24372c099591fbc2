"""Side-by-side comparison of recommenders on one split of ratings, with validation curves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from dualgap._choices import Penalty, Ranking
from dualgap._files import replacing
from dualgap._validation import FloatArray
from dualgap.metrics import ndcg_at_k, rmse
from dualgap.recommend._click_model import Interactions
from dualgap.recommend._click_training import fit_clicks
from dualgap.recommend._conditional_gradient import ConditionalGradient
from dualgap.recommend._ranking import catalogue_metrics, rating_gains, top_columns
from dualgap.recommend._training import IndexedRatings, RunOptions, Training
from dualgap.recommend.recommender import OrdinalRecommender

__all__ = ["Comparison", "Row", "compare", "split_ratings"]

# Radii near the radii that validation chose on MovieLens 100k.
_RADII: dict[Penalty, float] = {"l1": 2000.0, "l1/l2": 2000.0, "l1/linf": 1000.0}

# Candidate settings of EASE (ridge) and of ALS (weight of unobserved pairs, and ridge). The setting
# with the best recall@10 on the validation likes is used.
_EASE_RIDGES = (100.0, 200.0, 400.0, 800.0)
_ALS = ((0.1, 0.2), (0.1, 0.4), (0.3, 0.2), (0.3, 0.4))


@dataclass(frozen=True)
class Row:
    """One recommender's row in the comparison.

    RMSE and nDCG are measured on the test ratings. Recall@10 and catalogue nDCG@10 measure how the
    liked test items rank in the whole catalogue. Metrics that do not apply to a recommender are
    None.
    """

    name: str
    rmse: float | None
    ndcg1: float | None
    ndcg5: float | None
    recall10: float | None
    catalogue_ndcg10: float | None
    seconds: float
    n_bases: int | None


@dataclass(frozen=True)
class Comparison:
    """Result of `compare`.

    Attributes
    ----------
    rows : list of Row
        One per recommender; metrics on the test ratings.
    curves : dict
        Maps each penalty to (numbers of basis vectors, validation losses).
    """

    rows: list[Row]
    curves: dict[str, tuple[list[int], list[float]]] = field(repr=False)

    def table(self) -> pd.DataFrame:
        """Return the rows as a DataFrame."""
        return pd.DataFrame([vars(row) for row in self.rows])

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Plot RMSE and recall@10 of all recommenders, and the validation losses in `curves`."""
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(12.0, 4.4), layout="constrained")
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 0.9))
        for axes, name, title in (
            (left, "rmse", "RMSE of test ratings"),
            (middle, "recall10", "recall@10 of likes in the catalogue"),
        ):
            rows = [row for row in self.rows if getattr(row, name) is not None]
            values = [getattr(row, name) for row in rows]
            places = range(len(rows), 0, -1)
            best = min(values) if name == "rmse" else max(values)
            for place, value in zip(places, values, strict=True):
                axes.plot(value, place, "o", color="tab:orange" if value == best else "tab:blue")
                axes.annotate(f" {value:.3f}", (value, place), va="center", fontsize=8)
            axes.set_yticks(list(places), [row.name for row in rows], fontsize=8)
            axes.margins(x=0.2)
            axes.grid(axis="x", alpha=0.3)
            axes.set_title(title, fontsize=9)
        for penalty, (sizes, losses) in self.curves.items():
            best_size = int(np.argmin(losses))
            (line,) = right.plot(sizes, losses, marker="o", markersize=3, label=penalty)
            star = (sizes[best_size], losses[best_size])
            right.plot(*star, marker="*", markersize=13, color=line.get_color())
        right.set_xlabel("number of basis vectors")
        right.set_title("validation loss", fontsize=9)
        right.xaxis.set_major_locator(MaxNLocator(integer=True))
        right.legend(title="penalty (star: chosen)", fontsize=8)
        with replacing(path) as file:
            figure.savefig(file, format=Path(path).suffix[1:] or None, dpi=150)


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
    n_components: int | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    report: Callable[[Row], object] = lambda _row: None,
) -> Comparison:
    """Fit baselines and factorization machines on `train` and score them on `test`.

    Parameters
    ----------
    train, validation, test : DataFrame with columns user, item, rating
        The conditional gradient fits choose their number of basis vectors on `validation`, and EASE
        and ALS their settings.
    n_components : int, optional
        Largest number of basis vectors; by default it depends on the number of ratings.
    random_state : int, default=0
        Seed.
    n_jobs : int, optional
        Number of threads; all cores by default.
    report : callable, optional
        Called with each row of the comparison as soon as it is computed.

    Returns
    -------
    Comparison
    """
    curves: dict[str, tuple[list[int], list[float]]] = {}
    board = _Board(train, validation, test, report)
    for name, predict in (("global mean", _global_mean), ("biases", _biases)):
        board.add(name, predicted=predict)
    for name, rank in (("popularity", popularity), ("EASE", ease), ("ALS", als)):
        board.add(name, ranked=rank)

    def fit(name: str, **parameters: Any) -> OrdinalRecommender:
        return board.fit(
            name, OrdinalRecommender(random_state=random_state, n_jobs=n_jobs, **parameters)
        )

    for penalty, radius in _RADII.items():
        model = fit(
            f"McRank FM, conditional gradient, {penalty}",
            method=ConditionalGradient(penalty=penalty, radius=radius, reoptimize="output"),
            n_components=n_components,
            interactions=False,
        )
        history = model.history_
        sizes, losses = history["n_components"].tolist(), history["validation_loss"].tolist()
        curves[penalty] = (sizes, losses)
    settings: dict[str, Any] = {"n_components": n_components}
    fit("single-output FM, variational", task="regression", interactions=False, **settings)
    fit("McRank FM, variational", **settings)
    fit("McRank FM, variational, history", history_features=True, **settings)
    return Comparison(board.rows, curves)


@dataclass(frozen=True)
class _Board:
    """The rows of the comparison so far, and the data on which recommenders are measured."""

    train: pd.DataFrame
    validation: pd.DataFrame
    test: pd.DataFrame
    report: Callable[[Row], object]
    rows: list[Row] = field(default_factory=list)

    def add(self, name: str, predicted: Any = None, ranked: Any = None) -> None:
        """Measure predictions of the test ratings, or a ranking of the catalogue."""
        start = time.perf_counter()
        if predicted is not None:
            self._add(name, start, self._rated(predicted(self.train, self.test)))
        if ranked is not None:
            likes = Likes.of(self.train, self.validation, self.test)
            found = likes.metrics(ranked(likes).scores, likes.test)
            self._add(name, start, {}, found)

    def fit(self, name: str, model: OrdinalRecommender) -> OrdinalRecommender:
        """Fit a recommender and measure it."""
        start = time.perf_counter()
        on_validation = isinstance(model.method, ConditionalGradient)
        model.fit(self.train, validation=self.validation if on_validation else None)
        seconds = time.perf_counter() - start
        pairs = self.test["user"], self.test["item"]
        rated = self._rated(model.predict(*pairs, unknown="ignore"))
        ranking: Ranking = "rating" if model.interactions is False else "like"
        found = model.evaluate(
            self.test, k=(10,), catalogue=True, rank_by=ranking, unknown="ignore"
        )
        self._add(name, time.perf_counter() - seconds, rated, found, model.n_components_)
        return model

    def _rated(self, predicted: Any) -> dict[str, float]:
        truth, groups = self.test["rating"].to_numpy(), self.test["user"].to_numpy()
        low, high = self.train["rating"].min(), self.train["rating"].max()
        predicted = np.clip(predicted, low, high)
        relevance, gain = rating_gains(truth, np.array([low]))
        found = {
            f"ndcg{k}": ndcg_at_k(relevance, predicted, k, groups=groups, gain=gain) for k in (1, 5)
        }
        return {"rmse": rmse(truth, predicted), **found}

    def _add(
        self,
        name: str,
        start: float,
        rated: dict[str, float],
        found: dict[str, float] | None = None,
        n_bases: int | None = None,
    ) -> None:
        seconds = time.perf_counter() - start
        found = found or {}
        self.rows.append(
            Row(
                name,
                rmse=rated.get("rmse"),
                ndcg1=rated.get("ndcg1"),
                ndcg5=rated.get("ndcg5"),
                recall10=found.get("recall@10"),
                catalogue_ndcg10=found.get("catalogue_ndcg@10"),
                seconds=seconds,
                n_bases=n_bases,
            )
        )
        self.report(self.rows[-1])


# --- Baselines ---


def _global_mean(train: pd.DataFrame, test: pd.DataFrame) -> Any:
    return np.full(len(test), train["rating"].mean())


def _biases(train: pd.DataFrame, test: pd.DataFrame, shrink: float = 5.0) -> Any:
    """Predict the mean plus a user and an item offset, both shrunk and fitted alternately."""
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


@dataclass(frozen=True)
class Likes:
    """Likes as matrices of users by items, and all pairs that have ratings in training."""

    train: sp.csr_array
    seen: sp.csr_array
    validation: sp.csr_array
    test: sp.csr_array

    @classmethod
    def of(
        cls,
        train: pd.DataFrame,
        validation: pd.DataFrame,
        test: pd.DataFrame,
        columns: tuple[str, str, str] = ("user", "item", "rating"),
    ) -> Likes:
        """Select ratings in the upper quarter of the range of levels, as `Interactions` does."""
        user, item, rating = columns
        like = Interactions().threshold(np.unique(train[rating]))
        tables = pd.concat([train, validation, test])
        users, items = (pd.Index(tables[name].unique()) for name in (user, item))

        def matrix(table: pd.DataFrame, least: float) -> sp.csr_array:
            rows = table[table[rating] >= least]
            place = (users.get_indexer(rows[user]), items.get_indexer(rows[item]))
            return sp.csr_array((np.ones(len(rows)), place), (len(users), len(items)))

        return cls(
            matrix(train, like),
            matrix(train, -np.inf),
            matrix(validation, like),
            matrix(test, like),
        )

    def metrics(self, scores: FloatArray, truth: sp.csr_array) -> dict[str, float]:
        """Return metrics at rank 10 for users with likes in `truth`; omit training items."""
        scores = scores.copy()
        scores[self.seen.nonzero()] = -np.inf
        chosen = np.flatnonzero(np.diff(truth.indptr))
        best = top_columns(scores[chosen], 10)
        rows, columns = truth[chosen].nonzero()
        return catalogue_metrics(best, (rows, columns), truth.shape[1], (10,))

    def best_of(self, scores: Callable[..., FloatArray], settings: Sequence[Any]) -> Ranked:
        """Return the scores of the setting with the highest recall on the validation likes."""
        found = [Ranked(scores(setting), setting) for setting in settings]
        if len(found) == 1:
            return found[0]
        recall = [self.metrics(each.scores, self.validation)["recall@10"] for each in found]
        return found[int(np.argmax(recall))]


@dataclass(frozen=True)
class Ranked:
    """Scores of all items for each user, and the setting that was chosen."""

    scores: FloatArray
    setting: Any = None


def popularity(likes: Likes, setting: None = None) -> Ranked:
    """Rank by the number of likes."""
    counts = np.asarray(likes.train.sum(axis=0), dtype=np.float64).ravel()
    return Ranked(np.tile(counts, (likes.train.shape[0], 1)), setting)


def ease(likes: Likes, setting: float | None = None) -> Ranked:
    """Regress each item on all others, with a ridge chosen on the validation likes [1]_.

    References
    ----------
    .. [1] H. Steck, Embarrassingly shallow autoencoders for sparse data, WWW 2019.
    """
    gram = (likes.train.T @ likes.train).toarray()

    def scores(ridge: float) -> FloatArray:
        inverse = np.linalg.inv(gram + ridge * np.eye(len(gram)))
        weights = -inverse / np.diag(inverse)
        np.fill_diagonal(weights, 0.0)
        return np.asarray(likes.train @ weights)

    return likes.best_of(scores, _EASE_RIDGES if setting is None else (setting,))


def als(likes: Likes, setting: tuple[float, float] | None = None) -> Ranked:
    """Fit factors to the likes by alternating least squares; validation chooses the settings [1]_.

    References
    ----------
    .. [1] Y. Hu, Y. Koren and C. Volinsky, Collaborative filtering for implicit feedback datasets,
       ICDM 2008.
    """
    users, items = (ids.astype(np.intp) for ids in likes.train.nonzero())
    training = Training(IndexedRatings(users, items, np.ones(len(users))), likes.train.shape)

    def scores(setting: tuple[float, float]) -> FloatArray:
        unobserved, ridge = setting
        method = Interactions(
            n_components=64, unobserved_weight=unobserved, ridge=ridge, blend=False
        )
        model, _ = fit_clicks(method, training, 1.0, RunOptions(random_state=0))
        return np.asarray(model.users[1:] @ model.items[1:].T)

    return likes.best_of(scores, _ALS if setting is None else (setting,))
