"""Parameters and models of a recommender, and conversion of the arguments of its methods."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import Ranking, Task, check_choice
from dualgap._estimator import Estimator
from dualgap._estimator.watch import CallbackSupportMixin
from dualgap._validation import FloatArray
from dualgap.recommend._click_model import ClickModel
from dualgap.recommend._counts import count_clicks
from dualgap.recommend._features import FeatureEncoder
from dualgap.recommend._frames import like_table, table_kind
from dualgap.recommend._growing import Lists, Places
from dualgap.recommend._ids import join_ids, read_id_list
from dualgap.recommend._interactions import Interactions
from dualgap.recommend._ranking import Model
from dualgap.recommend._rating_model import RatingModel
from dualgap.recommend._ratings import (
    Catalogue,
    Columns,
    Pairs,
    RatingTable,
    Unknown,
    last_of_each_pair,
)
from dualgap.recommend._training import Side, TimeFeatures
from dualgap.recommend._values import read_times

Ids = Hashable | Iterable[Hashable]


class RecommenderParts(CallbackSupportMixin, Estimator):  # type: ignore[misc]
    """The parameters and models of a recommender.

    Subclasses have a `fit` that sets the attributes.
    """

    n_components: int | None
    task: Task
    interactions: Interactions | bool
    history_features: bool | Literal["users"]
    time_features: bool | TimeFeatures
    user_column: str
    item_column: str
    rating_column: str
    timestamp_column: str

    user_ids_: pd.Index[Any]
    item_ids_: pd.Index[Any]
    levels_: FloatArray
    like_threshold_: float

    # The model of ratings; None if the task predicts no ratings.
    _rating_model: RatingModel | None
    # The model of clicks; None if the fit had no interactions.
    _click_model: ClickModel | None
    # Matrix of users by items with the ratings of the fit: for ordinal ratings, positions among the
    # levels, counted from 1; for a regression, the ratings; for clicks, ones.
    _seen: Lists
    # Whether `_seen` contains the ratings; models of earlier versions contain ones instead.
    _stores_ratings: bool = False
    # Number of ratings of each item in the fit; None until a method needs it for new users.
    _item_counts: NDArray[np.intp] | None = None
    # Positions of the user ids and of the item ids; None until a method needs them.
    _places: tuple[Places, Places] | None = None
    # Library of the table of ratings in the fit; methods return tables of this library.
    _tables: str = "pandas"
    # Encoders of the features of users and of items; None without features.
    _encoders: tuple[FeatureEncoder | None, FeatureEncoder | None]

    @property
    def _catalogue(self) -> Catalogue:
        if self._places is None:
            self._places = Catalogue.of_ids(self.user_ids_, self.item_ids_).places
        return Catalogue(self.user_ids_, self.item_ids_, self._places)

    def _check_fitted(self) -> None:
        """Raise an error before a fit. After a fit, skip scikit-learn's slower check."""
        if "user_ids_" not in vars(self):
            check_is_fitted(self)

    def _shallow_copy(self) -> Self:
        """Return a copy that shares all attributes; `copy.copy` would drop or convert some."""
        result: Self = object.__new__(type(self))
        result.__dict__.update(vars(self))
        return result

    def _columns(self) -> Columns:
        names = self.user_column, self.item_column, self.rating_column, self.timestamp_column
        return Columns(*names, clicks=self.task == "clicks", counts=self._counts)

    @property
    def _counts(self) -> bool:
        """Whether the values of ratings are counts of clicks."""
        return self.task == "clicks" and getattr(self.interactions, "like_threshold", None) is None

    def _in_library(self, table: pd.DataFrame, given: Any = None) -> pd.DataFrame:
        """Convert a table to the library of the table `given`, or else to that of the fit."""
        converted: pd.DataFrame = like_table(table, table_kind(given) or self._tables)
        return converted

    def _one_of_each_pair(self, table: RatingTable, name: str = "ratings") -> RatingTable:
        return count_clicks(table, name) if self._counts else last_of_each_pair(table, name)

    def _without_users(self, *, clicks: bool) -> Self:
        """Return a copy without known users, and without the click model unless `clicks` is set."""
        light = self._shallow_copy()
        light.user_ids_, light._places = self.user_ids_[:0], None
        light._item_counts = self._rating_counts("users")
        light._seen = self._seen.first(0)
        if self._rating_model is not None:
            light._rating_model = self._rating_model.without_users
        light._click_model = None
        if clicks and self._click_model is not None:
            light._click_model = self._click_model.without_users
        return light

    def _rating_counts(self, side: Side) -> NDArray[np.intp]:
        """Return the number of ratings of each item if `side` is "users", else of each user."""
        if side == "items":
            lengths: NDArray[np.intp] = np.diff(self._seen.offsets).astype(np.intp)
            return lengths
        if self._item_counts is None:
            self._item_counts = np.bincount(self._seen.columns, minlength=len(self.item_ids_))
        return self._item_counts

    def _stored(self, values: FloatArray) -> NDArray[Any]:
        """Return the values of `_seen` for ratings."""
        if self._counts or not self._stores_ratings:
            return np.ones(len(values), np.int8)
        if self.task != "ordinal":
            return values
        return (1 + np.searchsorted(self.levels_, values)).astype(np.int8)

    def _with_earlier_ratings(
        self, new: RatingTable, side: Literal["users", "items"]
    ) -> RatingTable:
        """Prepend to a table the stored ratings of its users (or items)."""
        if not (self._counts or self._stores_ratings):
            msg = (
                "add: the model was saved by an earlier version, which did not store the ratings; "
                "fit again"
            )
            raise ValueError(msg)
        known, seen, ids = self.user_ids_, self._seen, new.users
        if side == "items":
            known, seen, ids = self.item_ids_, self._seen.transposed(), new.items
        rows = self._catalogue.places[side == "items"].find(ids.unique())
        rows = rows[rows < len(known)]
        earlier = seen.take(rows)
        pairs = np.repeat(rows, np.diff(earlier.offsets)), earlier.columns
        users, items = pairs if side == "users" else pairs[::-1]
        values = earlier.values.astype(np.float64)
        if self.task == "ordinal":
            values = self.levels_[earlier.values - 1]
        both = RatingTable(
            join_ids(self.user_ids_[users], new.users),
            join_ids(self.item_ids_[items], new.items),
            np.concatenate([values, new.values]),
        )
        if self._counts:
            return count_clicks(both)
        again = pd.MultiIndex.from_arrays([both.users, both.items]).duplicated(keep="last")
        return both.take(np.flatnonzero(~again))

    def _interaction_settings(self) -> Interactions:
        given = self.interactions if isinstance(self.interactions, Interactions) else Interactions()
        if self.task == "clicks" and given.n_components is None:
            return replace(given, n_components=self.n_components)
        return given

    def _time_settings(self) -> TimeFeatures:
        given = self.time_features
        return given if isinstance(given, TimeFeatures) else TimeFeatures()

    def _default_ranking(self) -> Ranking:
        return "like" if self.task == "clicks" else "rating"

    def _similarity(self) -> Ranking:
        """Return the ranking whose model provides the item vectors for similarities."""
        return self._default_ranking() if self._click_model is None else "like"

    def _ranking(self, rank_by: Ranking | None) -> Ranking:
        if rank_by is None:
            return self._default_ranking()
        check_choice("rank_by", rank_by, Ranking)
        if rank_by == "rating" and self.task == "clicks":
            msg = 'rank_by: a model with task="clicks" predicts no ratings; use "like"'
            raise ValueError(msg)
        if rank_by == "like" and self._click_model is None:
            msg = 'rank_by: "like" needs interactions=True (or Interactions(...)) in the fit'
            raise ValueError(msg)
        return rank_by

    def _model(self, ranking: Ranking) -> Model:
        """Return the model that computes the scores of a ranking."""
        model: Model | None = self._click_model if ranking == "like" else self._rating_model
        assert model is not None
        return model

    def _pairs(self, users: Ids, items: Ids, timestamps: Any, unknown: Unknown) -> Pairs:
        self._check_fitted()
        u = self._catalogue.find_users(read_id_list(users, "users"), unknown)
        i = self._catalogue.find_items(read_id_list(items, "items"), unknown)
        if len(u) != len(i) and 1 not in (len(u), len(i)):
            msg = (
                "users, items: must have the same length (or one of them must be a single id), "
                f"got {len(u)} and {len(i)}"
            )
            raise ValueError(msg)
        u, i = np.broadcast_arrays(u, i)
        if timestamps is not None and np.ndim(timestamps) == 0:
            timestamps = np.repeat(np.asarray(timestamps), len(u))
        if timestamps is None:
            return Pairs(u, i)
        if self._rating_model is None or self._rating_model.times is None:
            msg = "timestamps: this recommender was fitted without time_features"
            raise ValueError(msg)
        return self._timed(u, i, read_times(timestamps, len(u)))

    def _timed(
        self, users: NDArray[np.intp], items: NDArray[np.intp], times: FloatArray | None
    ) -> Pairs:
        """Return pairs, with the periods of their times (in seconds) if these are given."""
        if times is None:
            return Pairs(users, items)
        return Pairs(users, items, self._time_settings().periods(users, items, times))

    def _clicks(self) -> ClickModel:
        self._check_fitted()
        if self._click_model is None:
            msg = (
                "user and item vectors require interactions=True (or Interactions(...)) in the fit"
            )
            raise AttributeError(msg)
        return self._click_model
