"""A fitted recommender: its models, the ids and ratings that they know, and its model file."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dualgap._choices import Ranking, Task, check_choice
from dualgap._sparse import checked_csr
from dualgap._validation import FloatArray
from dualgap.recommend._click_model import ClickModel, Interactions
from dualgap.recommend._features import FeatureEncoder, FeatureTable, TimeFeatures
from dualgap.recommend._growing import Cached, Lists
from dualgap.recommend._ranking import Model
from dualgap.recommend._rating_model import RatingModel
from dualgap.recommend._ratings import RatingScale, RatingTable, count_clicks
from dualgap.recommend._tables import join_ids, read_id_list, read_times
from dualgap.recommend._training import Catalogue, NewRatings, Pairs, Side, Unknown

Ids: TypeAlias = Hashable | Iterable[Hashable]


@dataclass(frozen=True, eq=False)
class Fitted(Cached):
    """The models of a fit, and the ids and ratings that they know."""

    catalogue: Catalogue
    scale: RatingScale
    # Smallest rating that is a like.
    like: float
    # Whether the values of ratings are counts of clicks.
    counts: bool
    # Matrix of users by items with the `stored_values` of the ratings.
    seen: Lists
    # Encoders of the features of users and of items; None without features.
    encoders: tuple[FeatureEncoder | None, FeatureEncoder | None]
    # Library of the table of ratings in the fit; methods return tables of this library.
    tables: str = "pandas"
    # The model of ratings; None if the task predicts no ratings.
    rating_model: RatingModel | None = None
    # The model of clicks; None if the fit had no interactions.
    click_model: ClickModel | None = None
    # Whether `seen` contains the ratings; models of earlier versions contain ones instead.
    stores_ratings: bool = True

    # --- Predictions and rankings ---

    @property
    def task(self) -> Task:
        """The task of the fit."""
        if self.rating_model is None:
            return "clicks"
        return "ordinal" if self.scale.ordinal else "regression"

    @property
    def default_ranking(self) -> Ranking:
        """The ranking of recommendations if the user chooses none."""
        return "like" if self.rating_model is None else "rating"

    @property
    def similarity(self) -> Ranking:
        """The ranking whose model provides the item vectors for similarities."""
        return self.default_ranking if self.click_model is None else "like"

    def ranking(self, rank_by: Ranking | None) -> Ranking:
        """Check the argument `rank_by`, and replace None by the default."""
        if rank_by is None:
            return self.default_ranking
        check_choice("rank_by", rank_by, Ranking)
        if rank_by == "rating" and self.rating_model is None:
            msg = 'rank_by: a model with task="clicks" predicts no ratings; use "like"'
            raise ValueError(msg)
        if rank_by == "like" and self.click_model is None:
            msg = 'rank_by: "like" needs interactions=True (or Interactions(...)) in the fit'
            raise ValueError(msg)
        return rank_by

    def model(self, ranking: Ranking) -> Model:
        """Return the model that computes the scores of a ranking."""
        model: Model | None = self.click_model if ranking == "like" else self.rating_model
        assert model is not None
        return model

    def clicks(self) -> ClickModel:
        """Return the click model, or raise an error if there is none."""
        if self.click_model is None:
            msg = (
                "user and item vectors require interactions=True (or Interactions(...)) in the fit"
            )
            raise AttributeError(msg)
        return self.click_model

    def pairs(
        self, users: Ids, items: Ids, timestamps: Any, unknown: Unknown, settings: TimeFeatures
    ) -> Pairs:
        """Convert the arguments of a prediction to positions and periods."""
        u = self.catalogue.find_users(read_id_list(users, "users"), unknown)
        i = self.catalogue.find_items(read_id_list(items, "items"), unknown)
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
        if not self.has_times:
            msg = "timestamps: this recommender was fitted without time_features"
            raise ValueError(msg)
        return Pairs.at_times(u, i, read_times(timestamps, len(u)), settings)

    @property
    def has_times(self) -> bool:
        """Whether predictions can depend on times."""
        return self.rating_model is not None and self.rating_model.times is not None

    # --- New users and items ---

    @cached_property
    def item_counts(self) -> NDArray[np.intp]:
        """Number of ratings of each item."""
        return np.bincount(self.seen.columns, minlength=len(self.catalogue.items))

    @property
    def user_counts(self) -> NDArray[np.intp]:
        """Number of ratings of each user."""
        return np.diff(self.seen.offsets).astype(np.intp)

    def without_users(self, *, clicks: bool) -> Fitted:
        """Return a copy without known users, and without the click model unless `clicks` is set."""
        # Compute this before copying, so that later copies reuse it.
        counts = self.item_counts
        ratings, liked = self.rating_model, self.click_model if clicks else None
        copied = replace(
            self,
            catalogue=Catalogue.of_ids(self.catalogue.users[:0], self.catalogue.items),
            seen=self.seen.first(0),
            rating_model=ratings and ratings.without_users,
            click_model=liked and liked.without_users,
        )
        vars(copied)["item_counts"] = counts
        return copied

    def fold_in(
        self,
        table: RatingTable | None,
        side: Side,
        described: FeatureTable,
        settings: tuple[Interactions, bool | Literal["users"], int],
    ) -> Fitted:
        """Return a copy that knows the users (or items) of these ratings and features.

        `settings` has the settings of the click model, the parameter `history_features` and the
        number of threads.
        """
        if self.rating_model is not None and not self.rating_model.priors:
            msg = 'fold_in: only method="variational" fits new users without a refit'
            raise ValueError(msg)
        interactions, histories, n_threads = settings
        counts = self.item_counts if side == "users" else self.user_counts
        new = NewRatings.of(table, self.catalogue, counts, side, described, histories)
        # Starting a thread takes as long as fitting a user.
        n_threads = min(n_threads, len(new.ids))
        ratings, clicks = self.rating_model, self.click_model
        if ratings is not None:
            ratings = ratings.fold_in(new, n_threads)
        if clicks is not None:
            like = None if self.counts else self.like
            clicks = clicks.fold_in(new, interactions, like, n_threads)
        folded = replace(
            self,
            catalogue=new.extend(self.catalogue),
            seen=new.replace_histories(self.seen, self._stored(new.values)),
            rating_model=ratings,
            click_model=clicks,
        )
        if side == "users" and new.all_new:
            added = np.bincount(new.other, minlength=len(counts))
            vars(folded)["item_counts"] = counts + added
        return folded

    def _stored(self, values: FloatArray) -> NDArray[Any]:
        return stored_values(values, self.scale, ones=self.counts or not self.stores_ratings)

    def with_earlier_ratings(self, new: RatingTable, side: Side) -> RatingTable:
        """Prepend to a table the stored ratings of its users (or items)."""
        if not (self.counts or self.stores_ratings):
            msg = (
                "add: the model was saved by an earlier version, which did not store the ratings; "
                "fit again"
            )
            raise ValueError(msg)
        all_users, all_items = self.catalogue.users, self.catalogue.items
        known, seen, ids = all_users, self.seen, new.users
        if side == "items":
            known, seen, ids = all_items, self.seen.transposed(), new.items
        rows = self.catalogue.places[side == "items"].find(ids.unique())
        rows = rows[rows < len(known)]
        earlier = seen.take(rows)
        pairs = np.repeat(rows, np.diff(earlier.offsets)), earlier.columns
        users, items = pairs if side == "users" else pairs[::-1]
        values = earlier.values.astype(np.float64)
        if self.scale.ordinal:
            values = self.scale.levels[earlier.values - 1]
        both = RatingTable(
            join_ids(all_users[users], new.users),
            join_ids(all_items[items], new.items),
            np.concatenate([values, new.values]),
        )
        if self.counts:
            return count_clicks(both)
        again = pd.MultiIndex.from_arrays([both.users, both.items]).duplicated(keep="last")
        return both.take(np.flatnonzero(~again))

    # --- Model files ---

    def state(self) -> dict[str, Any]:
        """Return the parts as arrays, numbers and dictionaries for a model file."""
        ratings, clicks, seen = self.rating_model, self.click_model, self.seen.matrix
        return {
            "user_ids": _plain(self.catalogue.users, "user"),
            "item_ids": _plain(self.catalogue.items, "item"),
            "levels": self.scale.levels,
            "ordinal": self.scale.ordinal,
            "like": self.like,
            "counts": self.counts,
            "seen_offsets": seen.indptr,
            "seen_items": seen.indices,
            **({"seen_values": seen.data} if self.stores_ratings else {}),
            "tables": self.tables,
            "n_models": 0 if ratings is None else len(ratings.machines),
            **({} if ratings is None else ratings.arrays()),
            **({} if clicks is None else clicks.arrays()),
            "encoders": [each and each.state() for each in self.encoders],
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any], *, counts: bool) -> Fitted:
        """Return the parts from the result of `state`, after checks that they fit together.

        `counts` is used for files of earlier versions, which did not store it.
        """
        items = state["seen_items"]
        values = state.get("seen_values", np.ones(len(items), np.int8))
        of_users, of_items = state["encoders"]
        catalogue = Catalogue.of_ids(pd.Index(state["user_ids"]), pd.Index(state["item_ids"]))
        scale = RatingScale(state["levels"], state["ordinal"])
        n_models = state["n_models"]
        fitted = cls(
            catalogue=catalogue,
            scale=scale,
            like=float(state["like"]),
            counts=bool(state.get("counts", counts)),
            seen=Lists.of(checked_csr(values, items, state["seen_offsets"], catalogue.shape)),
            encoders=(_encoder(of_users), _encoder(of_items)),
            tables=str(state["tables"]),
            rating_model=RatingModel.read(state, scale, n_models) if n_models else None,
            click_model=ClickModel.read(state) if "interactions.users" in state else None,
            stores_ratings="seen_values" in state,
        )
        fitted._check()
        return fitted

    def _check(self) -> None:
        shape, levels = self.catalogue.shape, self.scale.levels
        models: list[Model] = [
            model for model in (self.rating_model, self.click_model) if model is not None
        ]
        if not (
            models
            and levels.dtype == np.float64
            and bool((np.diff(levels) > 0.0).all())
            and self.catalogue.users.is_unique
            and self.catalogue.items.is_unique
            and all(model.fits(shape) for model in models)
            and self._has_levels()
            and (self.rating_model is not None or not self.scale.ordinal)
            and (self.rating_model is None or not self.counts)
        ):
            msg = "the arrays do not fit together"
            raise ValueError(msg)

    def _has_levels(self) -> bool:
        """Whether the ratings of an ordinal model are positions among the levels."""
        values = self.seen.values
        if not self.scale.ordinal:
            return bool(np.isfinite(values).all())
        positions = values.dtype == np.int8 and values.min(initial=1) >= 1
        return bool(positions and values.max(initial=1) <= len(self.scale.levels))


def stored_values(values: FloatArray, scale: RatingScale, *, ones: bool) -> NDArray[Any]:
    """Return the values that a fitted recommender stores for ratings.

    Ordinal ratings are stored as positions among the levels, counted from 1, and other ratings
    unchanged. With `ones`, for counts of clicks, all values are 1.
    """
    if ones:
        return np.ones(len(values), np.int8)
    if not scale.ordinal:
        return values
    return (1 + np.searchsorted(scale.levels, values)).astype(np.int8)


def _encoder(state: Mapping[str, Any] | None) -> FeatureEncoder | None:
    return None if state is None else FeatureEncoder.of_state(state)


def _plain(ids: pd.Index[Any], what: str) -> NDArray[Any]:
    """Return ids as an array that can be saved without pickle."""
    array = ids.to_numpy()
    if array.dtype.kind in "iufb":
        return array
    if all(isinstance(name, str) for name in array):
        # NumPy strings lose trailing NULs.
        if not any(name.endswith("\0") for name in array):
            return array.astype(np.str_)
    elif all(isinstance(name, int) and not isinstance(name, bool) for name in array):
        with suppress(OverflowError):
            return array.astype(np.int64)
    msg = f"save: the {what} ids must be all strings or all numbers; use pickle for other types"
    raise TypeError(msg)
