"""Ratings by position: the catalogue, the data and record of a fit, and ratings of new ids."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Number
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._choices import check_choice
from dualgap._estimator import Callback, History, RandomState
from dualgap._validation import FloatArray
from dualgap.recommend._features import FeatureTable, Periods, TimeFeatures, history_rows, unit_rows
from dualgap.recommend._growing import Lists, Places, append_ids, append_rows
from dualgap.recommend._ratings import FEW, RatingTable
from dualgap.recommend._tables import check_kind, join_ids, read_id_list, warn_input

Side: TypeAlias = Literal["users", "items"]
Unknown: TypeAlias = Literal["warn", "ignore"]

# Number of pairs for which outputs are computed at a time.
_BATCH = 1 << 14


@dataclass(frozen=True)
class IndexedRatings:
    """Ratings, with users and items given by their positions in the catalogue."""

    users: NDArray[Any]
    items: NDArray[Any]
    values: FloatArray
    weights: FloatArray | None = None
    # Periods of the ratings; None unless time features are used.
    periods: Periods | None = None

    def take(self, rows: NDArray[np.intp]) -> IndexedRatings:
        """Select some of the ratings, without their periods."""
        weights = None if self.weights is None else self.weights[rows]
        return IndexedRatings(self.users[rows], self.items[rows], self.values[rows], weights)


@dataclass(frozen=True)
class Pairs:
    """Users and items to predict, by position, and their periods if time features are used."""

    users: NDArray[np.intp]
    items: NDArray[np.intp]
    periods: Periods | None = None

    @classmethod
    def at_times(
        cls,
        users: NDArray[np.intp],
        items: NDArray[np.intp],
        times: FloatArray | None,
        settings: TimeFeatures,
    ) -> Self:
        """Return pairs, with the periods of their times (in seconds) if these are given."""
        return cls(users, items, None if times is None else settings.periods(users, items, times))

    def batches(self) -> Iterator[tuple[slice, Pairs]]:
        """Yield the pairs in batches, which limits the memory of a prediction."""
        for start in range(0, len(self.users), _BATCH):
            rows = slice(start, start + _BATCH)
            periods = self.periods
            if periods is not None:
                periods = periods[0][rows], periods[1][rows]
            yield rows, Pairs(self.users[rows], self.items[rows], periods)


@dataclass(frozen=True)
class Catalogue:
    """The ids of all known users and items.

    A position is an index into the table of users or of items. The position after the last id
    stands for all unknown ids.
    """

    users: pd.Index[Any]
    items: pd.Index[Any]
    # The positions of users and of items.
    places: tuple[Places, Places]

    @classmethod
    def of_ids(cls, users: pd.Index[Any], items: pd.Index[Any]) -> Self:
        """Return the catalogue of these ids."""
        return cls(users, items, (Places(users, len(users)), Places(items, len(items))))

    @classmethod
    def of(
        cls, table: RatingTable, user_ids: pd.Index[Any] | None, item_ids: pd.Index[Any] | None
    ) -> Catalogue:
        """Collect all ids that have ratings or features, in a fixed order (sorted if possible)."""
        sides = []
        named = (("user", table.users, user_ids), ("item", table.items, item_ids))
        for at, (side, ids, described) in enumerate(named):
            known = _distinct_ids(ids) if table.shape is None else pd.RangeIndex(table.shape[at])
            if described is not None:
                check_kind(known, described, f"{side}_features")
                joined = join_ids(known, described).unique()
                _check_common(known, described, f"{side}_features")
                known = joined
            with suppress(TypeError):
                known = known.sort_values()
            sides.append(known)
        return cls.of_ids(*sides)

    def with_ids(self, side: str, ids: pd.Index[Any]) -> Catalogue:
        """Add ids of users or of items."""
        at = int(side == "items")
        known, places = [self.users, self.items], [*self.places]
        known[at] = append_ids(known[at], ids)
        if known[at].dtype == ids.dtype == places[at].table.dtype:
            places[at] = places[at].with_ids(ids)
        else:
            places[at] = Places(known[at], len(known[at]))
        return Catalogue(known[0], known[1], (places[0], places[1]))

    def __getstate__(self) -> dict[str, Any]:
        # Convert ids to arrays: skops files cannot store a pandas index without executable code.
        return {"users": self.users.to_numpy(), "items": self.items.to_numpy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ids = (pd.Index(state[side], tupleize_cols=False) for side in ("users", "items"))
        vars(self).update(vars(Catalogue.of_ids(*ids)))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of users and number of items."""
        return len(self.users), len(self.items)

    def index(self, table: RatingTable) -> IndexedRatings:
        """Replace the ids of ratings by positions."""
        users, items = (
            places.find(ids).astype(np.int32)
            for places, ids in zip(self.places, (table.users, table.items), strict=True)
        )
        return IndexedRatings(users, items, table.values, table.weights)

    def place_of(self, side: Literal["user", "item"], one: Hashable) -> int:
        """Return the position of a known user or item."""
        known = self.users if side == "user" else self.items
        place = known.get_indexer(read_id_list(one, side))
        if len(place) != 1 or place[0] < 0:
            raise KeyError(f"{side}: {one!r} was not in the ratings")
        return int(place[0])

    def find_users(self, ids: pd.Index[Any], unknown: Unknown) -> NDArray[np.intp]:
        """Return positions of users; `unknown` says whether to warn about unknown ids."""
        return self._find(0, ids, "user", unknown)

    def find_items(self, ids: pd.Index[Any], unknown: Unknown) -> NDArray[np.intp]:
        """Return positions of items; `unknown` says whether to warn about unknown ids."""
        return self._find(1, ids, "item", unknown)

    def _find(self, side: int, ids: pd.Index[Any], what: str, unknown: Unknown) -> NDArray[np.intp]:
        """Return positions; warn about unknown ids, and raise an error if all are unknown."""
        check_choice("unknown", unknown, "warn", "ignore")
        table, places = (self.users, self.items)[side], self.places[side]
        found = places.find(ids)
        strange = found == len(table)
        if unknown == "ignore" or not strange.any():
            return found
        check_kind(table, ids, f"{what}s")
        distinct = ids[strange].unique()
        treated = f"predicted from the {('item', 'user')[side]} alone"
        if side == 1:
            treated += ' (with task="clicks", it scores 0)'
        example = distinct.tolist()[0]
        if strange.all():
            msg = (
                f"{what}s: {example!r} was not in the ratings"
                if len(distinct) == 1
                else f"{what}s: none of the {len(distinct)} ids was in the ratings "
                f"({example!r}, ...)"
            ) + f'; with unknown="ignore", an unknown {what} is {treated}'
            raise ValueError(msg)
        warn_input(
            f"{what}s: {int(strange.sum())} of {len(found)} ids were not in the ratings "
            f"({example!r}, for example); each is {treated}"
        )
        return found


def _distinct_ids(ids: pd.Index[Any]) -> pd.Index[Any]:
    """Return the distinct ids; every category of categorical ids occurs (see `GrowingIds`)."""
    return ids.categories if isinstance(ids, pd.CategoricalIndex) else ids.unique()


def _check_common(known: pd.Index[Any], ids: pd.Index[Any], name: str) -> None:
    """Raise an error if no id is known, because the features would then describe nothing.

    Raises
    ------
    ValueError
        If there are ids but none is known; the message names the argument.
    """
    if len(ids) and not ids.isin(known).any():
        msg = (
            f"{name}: none of the {len(ids)} ids ({ids.tolist()[0]!r}, for example) occurs in the "
            f"ratings, whose ids are different ({known[:1].tolist()[0]!r}, for example)"
        )
        raise ValueError(msg)


def check_new(known: pd.Index[Any], ids: pd.Index[Any], name: str) -> None:
    """Raise an error if new ids are strings like "7" while known ids are numbers, or vice versa.

    Other new ids may differ in type from the known ids.

    Raises
    ------
    TypeError
        If there are such ids; the message names the argument.
    """
    if known.dtype == ids.dtype != object or not len(known):
        return
    example: Any = known[:1].tolist()[0]
    if not isinstance(example, str | Number):
        return
    of_texts = isinstance(example, str)
    if of_texts and not _NUMBER.fullmatch(str(example)):
        return
    for one in ids.tolist():
        if isinstance(one, Number) if of_texts else isinstance(one, str) and _NUMBER.fullmatch(one):
            msg = (
                f"{name}: the id {one!r} is {'a number' if of_texts else 'a string'}, but the "
                f"known ids are {'strings' if of_texts else 'numbers'} ({example!r}, for example)"
            )
            raise TypeError(msg)


_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")


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
