"""Data and record of a fit: ratings and their scale, time features, and ratings of new ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit
from sklearn.base import BaseEstimator

from dualgap._choices import Task
from dualgap._estimator import Callback, History, RandomState, storable
from dualgap._validation import FloatArray, check_positive, real_array
from dualgap.recommend._features import FeatureTable, history_rows, unit_rows
from dualgap.recommend._growing import Lists, append_rows
from dualgap.recommend._ids import check_kind, check_new, join_ids, warn_input
from dualgap.recommend._ratings import FEW, Catalogue, IndexedRatings, Periods, RatingTable

__all__ = ["TimeFeatures"]

Side: TypeAlias = Literal["users", "items"]

_DAY = 86_400.0
_MAX_LEVELS = 64
# Values with a larger maximum than this are probably counts rather than ratings.
_LONGEST_SCALE = 10.0


@dataclass(frozen=True)
class Training:
    """The data of a fit: ratings, and features of all users and items.

    A feature table has one row per id of the catalogue.
    """

    ratings: IndexedRatings
    # Number of users and number of items.
    shape: tuple[int, int]
    features: tuple[sp.csr_array | None, sp.csr_array | None] = (None, None)
    # Held-out ratings, on which parameters are chosen.
    held_out: IndexedRatings | None = None


@dataclass(frozen=True)
class RunOptions:
    """Seed, threads and callback of a fit."""

    random_state: RandomState = None
    n_jobs: int | None = None
    callback: Callback | None = None


@dataclass(frozen=True)
class FitRecord:
    """Progress and result of a fit; bounds are None if the method does not compute them."""

    history: History
    objective: float
    dual_objective: float | None = None
    null_objective: float | None = None
    converged: bool | None = None
    certificate: str = "none"


@dataclass(frozen=True)
class RatingScale:
    """The levels of ratings, as ordered categories or as numbers for a regression."""

    levels: FloatArray
    # Whether there is one output per threshold between two levels, instead of a single output.
    ordinal: bool

    @property
    def n_outputs(self) -> int:
        """Number of outputs of a factorization machine."""
        return len(self.levels) - 1 if self.ordinal else 1

    def unit(self, values: FloatArray) -> float:
        """Return the output unit: the standard deviation of ratings for a regression, else 1."""
        if self.ordinal:
            return 1.0
        lowest, spread = self.levels[0], self.levels[-1] - self.levels[0]
        unit = float(spread * np.std((values - lowest) / spread))
        if not 1e-100 <= unit <= 1e100:
            msg = f"ratings: their standard deviation is {unit:.3g}; multiply them by a constant"
            raise ValueError(msg)
        return unit

    def expected(self, outputs: FloatArray) -> FloatArray:
        """Return the expected ratings."""
        if self.ordinal:
            return expected_level(outputs, self.levels)
        return np.clip(outputs[..., 0], self.levels[0], self.levels[-1])


def find_levels(table: RatingTable, given: Sequence[float] | None, task: Task) -> FloatArray:
    """Return the rating levels in increasing order: `given`, or the distinct values."""
    values = table.values
    found = np.unique(values)
    if given is None:
        levels = found
    else:
        try:
            levels = np.unique(real_array("levels", given))
        except (TypeError, ValueError):
            levels = np.array([])
        if len(levels) == 0 or not np.isfinite(levels).all():
            msg = f"levels: must be finite numbers, got {given!r}"
            raise ValueError(msg)
        if not np.isin(found, levels).all():
            at = int(np.argmax(~np.isin(values, levels)))
            user, item = (ids[at : at + 1].tolist()[0] for ids in (table.users, table.items))
            owner = f"user {user!r} and item {item!r}"
            if table.value_column is not None:
                owner += f", in column {table.value_column!r}"
            refuse_level(values[at], owner, levels)
    if task == "clicks":
        return np.asarray(levels)
    if len(found) < 2:
        msg = (
            f"ratings: all ratings are {found[0]}, which says nothing about preferences; for "
            'clicks or purchases, use task="clicks"'
        )
        raise ValueError(msg)
    if task == "ordinal" and len(levels) > _MAX_LEVELS:
        msg = (
            f"ratings: {len(levels)} different values are too many levels "
            f'(at most {_MAX_LEVELS}); round them, or use task="regression"; for counts of clicks, '
            'use task="clicks"'
        )
        raise ValueError(msg)
    if given is None and _look_like_counts(values, found):
        warn_input(
            f"ratings: the values look like counts (whole numbers from 1 to {found[-1]:g}, most "
            'often 1) but are treated as ratings; for counts of clicks, use task="clicks"; if they '
            "are ratings, pass levels=..."
        )
    return np.asarray(levels)


def refuse_level(rating: float, owner: str, levels: FloatArray) -> NoReturn:
    """Raise an error for a rating that is not a level; `owner` names its user or item."""
    msg = f"ratings: the rating {rating} is not one of the levels {levels.tolist()}, for {owner}"
    raise ValueError(msg)


def _look_like_counts(values: FloatArray, found: FloatArray) -> bool:
    """Whether values are whole numbers from 1 to more than ten, and 1 is the most frequent."""
    if found[0] != 1.0 or found[-1] <= _LONGEST_SCALE or not (found == np.floor(found)).all():
        return False
    return bool(np.bincount(np.searchsorted(found, values)).argmax() == 0)


def expected_level(outputs: FloatArray, levels: FloatArray) -> FloatArray:
    """Return E[y] = top level - sum_c (gap between levels c and c + 1) P(y <= level c)."""
    return np.asarray(levels[-1] - expit(outputs) @ np.diff(levels))


def level_probabilities(outputs: FloatArray, levels: FloatArray) -> FloatArray:
    """Return P(y = level), shape (n, n_levels), after making P(y <= level) monotone.

    Isotonic regression, weighted by the gaps between levels, preserves the expected rating.
    """
    below = expit(outputs)
    gaps = np.diff(levels)
    for row in np.flatnonzero((np.diff(below, axis=1) < 0.0).any(axis=1)):
        below[row] = isotonic_regression(below[row], weights=gaps).x
    edges = [np.zeros((*below.shape[:-1], 1)), below, np.ones((*below.shape[:-1], 1))]
    return np.diff(np.concatenate(edges, axis=-1), axis=-1)


# Not an estimator, but scikit-learn can read, set, clone and search its parameters.
@storable
@dataclass(kw_only=True, repr=False)
class TimeFeatures(BaseEstimator):  # type: ignore[misc]
    """Settings for the effect of a rating's time in `OrdinalRecommender`.

    Every output gets a weight for each user and sitting (or day), and a weight for each item and
    month [1]_, with Gaussian priors whose covariances are learned:

    ``o_c = b_c + l_uc + l_ic + d_c(u, day) + s_c(i, month) + sum_r U_rc p_ur q_ir``.

    A period without training ratings has no weight. User periods as short as the default therefore
    help only if other ratings of the same sitting are known, as in random splits. For a future
    rating, the user has no such weight, and the item has a weight only until its period ends.

    Parameters
    ----------
    user_days : float, default=1/96
        Length of a user's periods in days. The default, a quarter of an hour, was chosen on
        validation ratings of MovieLens 100k.
    item_days : float, default=30.0
        Length of an item's periods in days.

    References
    ----------
    .. [1] Y. Koren, Collaborative filtering with temporal dynamics, KDD 2009, equation 9.
    """

    user_days: float = 1 / 96
    item_days: float = 30.0

    def check(self) -> None:
        """Raise an error for invalid parameters."""
        check_positive("user_days", self.user_days)
        check_positive("item_days", self.item_days)

    def periods(
        self, users: NDArray[np.intp], items: NDArray[np.intp], times: FloatArray
    ) -> Periods:
        """Return the codes of the user period and of the item period of each rating."""
        user_periods = _period_codes(users, times, self.user_days)
        return user_periods, _period_codes(items, times, self.item_days)


def _period_codes(rows: NDArray[np.intp], times: FloatArray, days: float) -> NDArray[np.int64]:
    period = np.floor(times / (days * _DAY))
    if np.abs(period).max(initial=0.0) >= 2.0**30:
        msg = "timestamps: must be dates or seconds since 1970; some are too far from the present"
        raise ValueError(msg)
    return rows.astype(np.int64) * 2**31 + period.astype(np.int64) + 2**30


@dataclass(frozen=True)
class NewRatings:
    """Ratings of new users (or items), or new ratings that replace those of known users (items)."""

    side: Side
    ids: pd.Index[Any]
    # Positions of the ids; new ids follow the `n_known` known ones.
    rows: NDArray[np.intp]
    n_known: int
    # For each rating: the index into `ids`, the position of the other id, and the value.
    own: NDArray[np.intp]
    other: NDArray[np.intp]
    values: FloatArray
    # For each id of the other side, its number of ratings in the fit.
    counts: NDArray[np.intp]
    # The features of each id; None if the fit or the call had none.
    features: sp.csr_array | None
    # History features: for each of these users (or items), the items (or users) of its ratings;
    # None if the fit had no such features.
    histories: sp.csr_array | None
    # Whether these ids are history features of the other side.
    of_other: bool

    @classmethod
    def of(
        cls,
        table: RatingTable | None,
        catalogue: Catalogue,
        counts: NDArray[np.intp],
        side: Side,
        features: FeatureTable,
        histories: bool | Literal["users"],
    ) -> NewRatings:
        """Match ratings with the catalogue; warn about ratings of unknown items (or users).

        `counts` has the number of ratings of each id of the other side in the fit. `histories`
        is the parameter `history_features`. New ids with features need no ratings.
        """
        of_users = side == "users"
        both = catalogue.users, catalogue.items
        own_ids, other_ids = both if of_users else both[::-1]
        mine = others = own_ids[:0]
        values = np.zeros(0)
        if table is not None:
            mine, others, values = table.users, table.items, table.values
            if not of_users:
                mine, others = others, mine
        own_places, other_places = catalogue.places if of_users else catalogue.places[::-1]
        other = other_places.find(others)
        known = np.flatnonzero(other < len(other_ids))
        if len(known) < len(other):
            check_kind(other_ids, others, f"ratings ({'items' if of_users else 'users'})")
        if len(known) == 0 and table is not None:
            msg = f"ratings: no {'item' if of_users else 'user'} of these ratings was in the fit"
            raise ValueError(msg)
        if len(known) < len(other):
            warn_input(
                f"ratings: {len(other) - len(known)} of {len(other)} are of "
                f"{'item' if of_users else 'user'}s that were not in the fit, and are left out"
            )
            mine, other, values = mine[known], other[known], values[known]
        own, ids = distinct(mine)
        check_new(own_ids, ids[own_places.find(ids) == len(own_ids)], f"ratings ({side})")
        if features.ids is not None:
            check_kind(own_ids, features.ids, "features")
            described = features.ids[~features.ids.isin(own_ids) & ~features.ids.isin(ids)]
            ids = described if table is None else join_ids(ids, described)
            if not len(ids):
                msg = "features: all ids are known; to fit known ids again, pass their ratings"
                raise ValueError(msg)
        rows = own_places.find(ids)
        fresh = rows == len(own_ids)
        rows[fresh] = len(own_ids) + np.arange(fresh.sum())
        blocks = []
        if histories in (True, side):
            blocks.append(history_rows(own, other, (len(ids), len(other_ids))))
        return cls(
            side=side,
            ids=ids,
            rows=rows,
            n_known=len(own_ids),
            own=own,
            other=other,
            values=values,
            counts=counts,
            features=unit_rows(features.rows(ids)),
            histories=unit_rows(blocks),
            of_other=histories is True or (histories == "users" and not of_users),
        )

    @cached_property
    def all_new(self) -> bool:
        """Whether no id was known."""
        return bool((self.rows >= self.n_known).all())

    def insert_rows(self, table: FloatArray, new: FloatArray) -> FloatArray:
        """Insert rows of these ids into a table whose first row is for unknown ids."""
        if self.all_new:
            return append_rows(table, new)
        result: FloatArray = np.concatenate([table, new[self.rows >= self.n_known]])
        result[1 + self.rows] = new
        return result

    def extend(self, catalogue: Catalogue) -> Catalogue:
        """Return the catalogue with the new ids."""
        ids = self.ids if self.all_new else self.ids[self.rows >= self.n_known]
        return catalogue.with_ids(self.side, ids)

    @cached_property
    def order(self) -> Lists:
        """The index of each rating, in a matrix with a row for each of these ids."""
        numbers = np.arange(len(self.own))
        return Lists.of_pairs((self.own, self.other), numbers, (len(self.ids), len(self.counts)))

    def lists(self, values: NDArray[Any]) -> Lists:
        """Return `values`, one per rating, as a matrix with a row for each of these ids."""
        return replace(self.order, values=values[self.order.values])

    def replace_histories(self, seen: Lists, values: NDArray[Any]) -> Lists:
        """Return `seen`, a matrix of users by items, with these ratings and their `values`."""
        new = self.lists(values)
        if self.side == "users":
            return seen.with_rows(self.rows, new)
        return seen.transposed().with_rows(self.rows, new).transposed()


def distinct(ids: pd.Index[Any]) -> tuple[NDArray[np.intp], pd.Index[Any]]:
    """Return the index of each id among the distinct ids, and the distinct ids."""
    if len(ids) <= FEW and len(set(ids.tolist())) == 1:
        return np.zeros(len(ids), np.intp), ids[:1]
    return pd.factorize(ids)
