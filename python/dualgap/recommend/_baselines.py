"""Rankings of a catalogue that recommenders are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from dualgap._validation import FloatArray
from dualgap.recommend._evaluation import catalogue_metrics
from dualgap.recommend._interactions import Interactions
from dualgap.recommend._ranking import top_columns
from dualgap.recommend._ratings import Indexed

# The grid that EASE's and ALS's settings are chosen from, by recall@10 on the validation likes.
_EASE_RIDGES = (100.0, 200.0, 400.0, 800.0)
_ALS = ((0.1, 0.2), (0.1, 0.4), (0.3, 0.2), (0.3, 0.4))


@dataclass(frozen=True)
class Likes:
    """Who likes what: users by items, 1 for a like; and all that is rated in training."""

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
        """Ratings in the upper quarter of the levels' range, as `Interactions` has it."""
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
        """Metrics at 10 of users with likes in `truth`, what is rated in training left out."""
        scores = scores.copy()
        scores[self.seen.nonzero()] = -np.inf
        chosen = np.flatnonzero(np.diff(truth.indptr))
        best = top_columns(scores[chosen], 10)
        rows, columns = truth[chosen].nonzero()
        return catalogue_metrics(best, (rows, columns), truth.shape[1], (10,))

    def best_of(self, scores: Callable[..., FloatArray], settings: Sequence[Any]) -> Ranked:
        """The scores of the settings with the highest recall on the validation likes."""
        found = [Ranked(scores(setting), setting) for setting in settings]
        if len(found) == 1:
            return found[0]
        recall = [self.metrics(each.scores, self.validation)["recall@10"] for each in found]
        return found[int(np.argmax(recall))]


@dataclass(frozen=True)
class Ranked:
    """Scores of all users and items, and the setting that was chosen."""

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
    """Alternating least squares on the likes alone [1]_, settings chosen on the validation likes.

    References
    ----------
    .. [1] Y. Hu, Y. Koren and C. Volinsky, Collaborative filtering for implicit feedback datasets,
       ICDM 2008.
    """
    users, items = (ids.astype(np.intp) for ids in likes.train.nonzero())
    ratings = Indexed(users, items, np.ones(len(users)))

    def scores(setting: tuple[float, float]) -> FloatArray:
        unobserved, ridge = setting
        method = Interactions(unobserved=unobserved, ridge=ridge)
        shape: tuple[int, int] = likes.train.shape
        fitted = method.fit(ratings, shape, 1.0, random_state=0, n_jobs=None)
        return np.asarray(fitted.users[:-1] @ fitted.items[:-1].T)

    return likes.best_of(scores, _ALS if setting is None else (setting,))
