"""Validation of ratings, and their conversion to ids, positions, values and times."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dualgap._choices import check_choice
from dualgap._sparse import check_sparse
from dualgap._validation import FloatArray
from dualgap._validation.arrays import as_numpy
from dualgap.recommend._frames import as_pandas, parts_of, table_kind
from dualgap.recommend._growing import Places, append_ids
from dualgap.recommend._ids import (
    GrowingIds,
    check_common,
    check_kind,
    distinct_ids,
    exact,
    join_ids,
    plain_ids,
    read_ids,
    row_name,
    warn_input,
)
from dualgap.recommend._values import comparable_times, read_times, read_values, warn_of_fractions

_Columns: TypeAlias = "tuple[ArrayLike, ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike]"
_Rows: TypeAlias = "Sequence[tuple[Any, ...]]"
_Parts: TypeAlias = "str | os.PathLike[str] | Iterator[Any]"
RatingsLike: TypeAlias = (
    "pd.DataFrame | _Columns | _Rows | NDArray[Any] | sp.spmatrix | sp.sparray | _Parts"
)
Unknown: TypeAlias = Literal["warn", "ignore"]
Periods: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Codes of the user period and of the item period of each rating."""

# Number of pairs for which outputs are computed at a time.
_BATCH = 1 << 14


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table of ratings."""

    user: str
    item: str
    rating: str
    timestamp: str
    # Whether the rating column may be missing; each row is then a click.
    clicks: bool = False
    # Whether values are counts of clicks.
    counts: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return self.user, self.item, self.rating, self.timestamp


# Parts of a table of ratings that have an entry per rating.
_PARTS = ("users", "items", "values", "weights", "times")


@dataclass(frozen=True)
class RatingTable:
    """Ratings, with users and items given by id."""

    users: pd.Index[Any]
    items: pd.Index[Any]
    values: FloatArray
    # Weight of each rating; None if all weights are equal.
    weights: FloatArray | None = None
    times: NDArray[Any] | None = None
    # Names of the columns of values and times; None for arrays.
    value_column: Hashable | None = field(default=None, kw_only=True)
    time_column: Hashable | None = field(default=None, kw_only=True)
    # Numbers of users and items, if the ratings were a sparse matrix of clicks.
    shape: tuple[int, int] | None = field(default=None, kw_only=True)

    def take(self, rows: NDArray[np.intp]) -> RatingTable:
        """Select some of the ratings."""
        parts = {name: getattr(self, name) for name in _PARTS}
        some: Any = {name: part[rows] for name, part in parts.items() if part is not None}
        return replace(self, **some)


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
            known = distinct_ids(ids) if table.shape is None else pd.RangeIndex(table.shape[at])
            if described is not None:
                check_kind(known, described, f"{side}_features")
                joined = join_ids(known, described).unique()
                check_common(known, described, f"{side}_features")
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
        treated = f"treated as an average {what}"
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


def read_ratings(
    ratings: RatingsLike,
    columns: Columns,
    *,
    name: str = "ratings",
    sample_weight: ArrayLike | None = None,
    timestamps: ArrayLike | None = None,
    coded: bool = False,
    seconds: bool = False,
) -> RatingTable:
    """Read ratings of any accepted form; with `seconds`, times are converted to seconds since 1970.

    With `coded`, the ids of a table in parts are returned as categories, which take less memory. A
    sparse matrix has users as rows and items as columns; its stored entries are the ratings, in
    the order of its `tocoo()`.
    """
    parts = parts_of(ratings, columns.names, name)
    if parts is None:
        users, items, values, times = _read(ratings, columns, name)
    else:
        users, items, values, times = _joined(parts, columns, name)
        if not coded:
            users, items = plain_ids(users), plain_ids(items)
    is_table = parts is not None or table_kind(ratings) is not None
    names: Any = {
        "value_column": columns.rating if is_table and values is not None else None,
        "time_column": columns.timestamp if timestamps is None else None,
    }
    times = times if timestamps is None else np.asarray(timestamps)
    if values is None:
        values = np.broadcast_to(1.0, len(users))
    elif columns.counts:
        warn_of_fractions(values, name)
    if not len(users) == len(items) == len(values) or values.ndim != 1:
        msg = f"{name}: users, items and values must be one-dimensional and equally long"
        raise ValueError(msg)
    if len(values) == 0:
        msg = f"{name}: there must be at least one rating"
        raise ValueError(msg)
    if times is not None and np.shape(times) != values.shape:
        msg = f"timestamps: must be {len(values)} times, one for each rating"
        raise ValueError(msg)
    if seconds and times is not None:
        times = read_times(times, len(values), names["time_column"])
    weights = None if sample_weight is None else _weights(sample_weight, len(values))
    sparse: Any = ratings if columns.clicks and sp.issparse(ratings) else None
    shape = None if sparse is None else sparse.shape
    return RatingTable(users, items, values, weights, times, shape=shape, **names)


def _read(ratings: Any, columns: Columns, name: str, first: int = 0) -> tuple[Any, ...]:
    """Return the ids, values (None if all are 1) and times (None if not given) of ratings.

    Error messages number the rows from `first`.
    """
    users, items, values, times = _parts(ratings, columns, name)
    places = ["users", "items", f"{name}: the rating values"]
    for at, part in enumerate((users, items, values)):
        if isinstance(part, pd.Series) and part.name is not None:
            places[at] = f"{name}: column {part.name!r}"
    users, items = (
        read_ids(ids, place, first) for ids, place in zip((users, items), places, strict=False)
    )
    if values is not None:
        values = read_values(values, places[2], first, counts=columns.counts)
    return users, items, values, times


def _joined(parts: Iterator[Any], columns: Columns, name: str) -> tuple[Any, ...]:
    """Return the ids, values and times of all parts of a table, with ids as categories."""
    sides = GrowingIds("user"), GrowingIds("item")
    rest: list[tuple[Any, Any]] = []
    n = 0
    for part in parts:
        users, items, *others = _read(part, columns, name, n)
        n += len(users)
        for side, ids in zip(sides, (users, items), strict=True):
            side.add(ids, name)
        rest.append((others[0], others[1]))
    if not n:
        msg = f"{name}: there must be at least one rating"
        raise ValueError(msg)
    found = []
    for column in zip(*rest, strict=True):
        given = [part is not None for part in column]
        if any(given) and not all(given):
            msg = f"{name}: a column of some parts is missing in others"
            raise ValueError(msg)
        found.append(np.concatenate(column) if all(given) else None)
    return sides[0].index(), sides[1].index(), *found


def _parts(ratings: Any, columns: Columns, name: str) -> tuple[Any, Any, Any, Any]:
    """Return users, items, values and, if a table has them, times."""
    ratings = as_numpy(name, as_pandas(ratings, columns.names))
    if isinstance(ratings, pd.DataFrame):
        needed = [columns.user, columns.item]
        if not columns.clicks or columns.rating in ratings.columns:
            needed.append(columns.rating)
        missing = [column for column in needed if column not in ratings.columns]
        if missing:
            have = ", ".join(map(str, ratings.columns[:10]))
            have += ", ..." if len(ratings.columns) > 10 else ""
            msg = (
                f"{name}: no column {missing[0]!r}; the columns are {have}; set the *_column names"
            )
            if missing == needed:
                msg += (
                    "; to convert a table of users by items, "
                    "use table.stack().dropna().rename('rating').reset_index()"
                )
            if missing == [columns.rating] and not columns.clicks:
                msg += '; for clicks without ratings, use task="clicks"'
            raise ValueError(msg)
        times = ratings[columns.timestamp].to_numpy() if columns.timestamp in ratings else None
        return *_triple([ratings[column] for column in needed]), times
    if sp.issparse(ratings):
        matrix = sp.coo_array(check_sparse(ratings, name))
        return matrix.row, matrix.col, matrix.data, None
    widths = (2, 3) if columns.clicks else (3,)
    if isinstance(ratings, tuple) and len(ratings) in widths:
        return *_triple(ratings), None
    if isinstance(ratings, list) and {len(r) for r in ratings if isinstance(r, tuple)} <= {*widths}:
        rows = [row for row in ratings if isinstance(row, tuple)]
        if len(rows) == len(ratings) and len({len(row) for row in rows}) == 1:
            return *_triple([list(column) for column in zip(*rows, strict=True)]), None
    if isinstance(ratings, np.ndarray) and ratings.ndim == 2 and ratings.shape[1] in widths:
        users, items, values = _triple(ratings.T)
        return _whole(users), _whole(items), values, None
    shape = f" of shape {ratings.shape}" if isinstance(ratings, np.ndarray) else ""
    pairs = " (or without values)" if columns.clicks else ""
    msg = (
        f"{name}: must be a DataFrame, a tuple (users, items, values), an array of shape (n, 3)"
        f"{pairs} or a sparse matrix, got {type(ratings).__name__}{shape}"
    )
    if hasattr(ratings, "collect"):
        msg += "; call its method collect()"
    elif not columns.clicks:
        msg += '; for clicks without values, use task="clicks"'
    raise TypeError(msg)


def _triple(columns: Any) -> tuple[Any, Any, Any]:
    """Return users, items and values; the values are None if there are only two columns."""
    users, items, *values = columns
    return users, items, values[0] if values else None


def _whole(ids: NDArray[Any]) -> NDArray[Any]:
    """Convert ids to integers if a ratings array stores whole numbers as floating point."""
    if ids.dtype.kind == "f" and (np.abs(ids) < exact(ids)).all() and (ids == np.rint(ids)).all():
        return ids.astype(np.int64)
    return ids


# With larger weights, the covariances of the variational method lose all precision.
_HEAVIEST = 1e10


def _weights(sample_weight: ArrayLike, n: int) -> FloatArray:
    weights = read_values(sample_weight, "sample_weight:", 0, counts=False)
    if weights.shape != (n,):
        msg = f"sample_weight: must be {n} numbers, one for each rating, got shape {weights.shape}"
        raise ValueError(msg)
    for wrong, needed in (
        (~(weights > 0.0), "positive"),
        (weights > _HEAVIEST, f"at most {_HEAVIEST:g}"),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            msg = f"sample_weight: must be {needed}, got {weights[row]:g} in {row_name(row)}"
            raise ValueError(msg)
    return weights


# Up to this number of ratings, Python sets find equal ids faster than pandas does.
FEW = 1000


def has_repeats(table: RatingTable) -> bool:
    """Whether a pair of user and item may occur more than once."""
    n = len(table.values)
    return n > FEW or len(set(zip(table.users.tolist(), table.items.tolist(), strict=True))) < n


def last_of_each_pair(table: RatingTable, name: str = "ratings") -> RatingTable:
    """Keep the latest rating of each user and item: the last by time, or in the order given."""
    if not has_repeats(table):
        return table
    users, _ = pd.factorize(table.users)
    items, distinct = pd.factorize(table.items)
    pairs = pd.Series(users.astype(np.int64) * len(distinct) + items)
    n_again = int(pairs.duplicated().sum())
    if n_again == 0:
        return table
    if table.times is not None:
        times = comparable_times(table.times, table.time_column)
        pairs = pairs.iloc[np.argsort(times, kind="stable")]
    again = pairs.duplicated(keep="last")
    which = "latest" if table.times is not None else "last"
    warn_input(
        f"{name}: {n_again} of {len(pairs)} ratings repeat a pair of user and item; "
        f"the {which} rating of each pair is used"
    )
    return table.take(np.sort(pairs.index.to_numpy()[~again.to_numpy()]))
