"""What a fitted recommender predicts of pairs of users and items."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import Reduction
from dualgap._estimator import Estimator
from dualgap._validation import FloatArray
from dualgap.recommend._factors import Blocks, expected_level, level_probabilities
from dualgap.recommend._interactions import InteractionFactors, Interactions
from dualgap.recommend._learned import Learned
from dualgap.recommend._ratings import Columns, Unknown, known_codes, list_ids, read_ids
from dualgap.recommend._times import FittedTimes, TimeFeatures, read_times

__all__ = ["Ids", "PredictingRecommender"]

Ids = Hashable | Iterable[Hashable]

# Pairs whose outputs are computed at a time.
_PAIRS = 1 << 14


@dataclass(frozen=True)
class Pairs:
    """Users and items by their positions and, for a model with time features, their periods."""

    users: NDArray[np.intp]
    items: NDArray[np.intp]
    periods: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def batches(self) -> Iterator[tuple[slice, Pairs]]:
        """A few at a time, so that memory does not grow with them."""
        for start in range(0, len(self.users), _PAIRS):
            rows = slice(start, start + _PAIRS)
            periods = self.periods
            if periods is not None:
                periods = periods[0][rows], periods[1][rows]
            yield rows, Pairs(self.users[rows], self.items[rows], periods)


@dataclass(kw_only=True, eq=False, repr=False)
class PredictingRecommender(Estimator):
    """What a fitted recommender says of pairs of users and items."""

    reduction: Reduction = "mcrank"
    interactions: Interactions | bool = True
    history_features: bool | Literal["users"] = False
    time_features: bool | TimeFeatures = False
    user_column: str = "user"
    item_column: str = "item"
    rating_column: str = "rating"
    timestamp_column: str = "timestamp"

    user_ids_: pd.Index[Any] = field(init=False)
    item_ids_: pd.Index[Any] = field(init=False)
    levels_: FloatArray = field(init=False)
    like_: float = field(init=False)

    _models: list[Blocks] = field(init=False)
    _learned: list[Learned] = field(init=False)
    _interactions: InteractionFactors | None = field(init=False)
    _times: FittedTimes | None = field(init=False)
    _seen: sp.csr_array = field(init=False)

    def predict(
        self,
        users: Ids,
        items: Ids,
        *,
        timestamps: ArrayLike | None = None,
        unknown: Unknown = "warn",
    ) -> FloatArray:
        """Expected ratings of (user, item) pairs.

        Parameters
        ----------
        users, items : id or iterable of ids
            Equally many, or one of them a single id.
        timestamps : array-like of shape (n_pairs,) or a single time, optional
            When the ratings are given, for a model with `time_features`: seconds since 1970, or
            dates. Without them nothing is known of the time.
        unknown : {"warn", "ignore"}, default="warn"
            What to do about ids that were not in the ratings. They count as an average user or
            item; "warn" says how many there are, and refuses them where there are no others.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Within the range of the levels; for ``reduction="interactions"`` scores, about 1 for
            what the user takes up and 0 for the rest.

        Raises
        ------
        ValueError
            If none of the users or items was in the ratings, or the model has no time features.
        TypeError
            If ids are strings where those of the ratings are numbers, or the other way around.
        """
        return self._predict(self._pairs(users, items, timestamps, unknown))

    def predict_proba(
        self,
        users: Ids,
        items: Ids,
        *,
        timestamps: ArrayLike | None = None,
        unknown: Unknown = "warn",
    ) -> FloatArray:
        """Probability of each level of ``levels_`` for (user, item) pairs.

        Parameters
        ----------
        users, items, timestamps, unknown
            As for `predict`.

        Returns
        -------
        ndarray of shape (n_pairs, n_levels)

        Raises
        ------
        AttributeError
            For another reduction than "mcrank", which has no level probabilities.
        """
        check_is_fitted(self)
        if self.reduction != "mcrank":
            msg = (
                f'predict_proba: reduction="{self.reduction}" gives no level probabilities; '
                'use "mcrank"'
            )
            raise AttributeError(msg)
        pairs = self._pairs(users, items, timestamps, unknown)
        result = np.empty((len(pairs.users), len(self.levels_)))
        for rows, some in pairs.batches():
            each = [level_probabilities(outputs, self.levels_) for outputs in self._outputs(some)]
            result[rows] = np.mean(each, axis=0)
        return result

    def _columns(self) -> Columns:
        return Columns(
            self.user_column, self.item_column, self.rating_column, self.timestamp_column
        )

    def _interaction_settings(self) -> Interactions:
        return self.interactions if isinstance(self.interactions, Interactions) else Interactions()

    def _time_settings(self) -> TimeFeatures:
        return (
            self.time_features if isinstance(self.time_features, TimeFeatures) else TimeFeatures()
        )

    def _pairs(self, users: Ids, items: Ids, timestamps: Any, unknown: Unknown) -> Pairs:
        check_is_fitted(self)
        u = known_codes(self.user_ids_, read_ids(list_ids(users), "user"), "user", unknown)
        i = known_codes(self.item_ids_, read_ids(list_ids(items), "item"), "item", unknown)
        if len(u) != len(i) and 1 not in (len(u), len(i)):
            msg = (
                "users, items: must be equally many (or one of them a single id), "
                f"got {len(u)} and {len(i)}"
            )
            raise ValueError(msg)
        u, i = np.broadcast_arrays(u, i)
        if timestamps is not None and np.ndim(timestamps) == 0:
            timestamps = np.repeat(np.asarray(timestamps), len(u))
        return self._timed(u, i, timestamps)

    def _timed(self, users: NDArray[np.intp], items: NDArray[np.intp], timestamps: Any) -> Pairs:
        """Pairs with the periods of their times, if these are given."""
        if timestamps is None:
            return Pairs(users, items)
        if self._times is None:
            msg = "timestamps: this recommender was fitted without time_features"
            raise ValueError(msg)
        times = read_times(timestamps, len(users))
        return Pairs(users, items, self._time_settings().periods(users, items, times))

    def _expected(self, outputs: FloatArray) -> FloatArray:
        if self.reduction == "mcrank":
            return expected_level(outputs, self.levels_)
        return np.clip(outputs[..., 0], self.levels_[0], self.levels_[-1])

    def _outputs(self, pairs: Pairs) -> Iterator[FloatArray]:
        """The outputs of each model."""
        for number, model in enumerate(self._models):
            outputs = model.pairs(pairs.users, pairs.items)
            if self._times is not None and pairs.periods is not None:
                outputs = outputs + self._times.outputs(pairs.periods, number)
            yield outputs

    def _predict(self, pairs: Pairs) -> FloatArray:
        """Expected ratings, in memory that does not grow with the pairs."""
        check_is_fitted(self)
        result = np.empty(len(pairs.users))
        for rows, some in pairs.batches():
            if self.reduction == "interactions":
                assert self._interactions is not None
                result[rows] = self._interactions.scores(some.users, some.items)
            else:
                result[rows] = np.mean([self._expected(o) for o in self._outputs(some)], axis=0)
        return result
