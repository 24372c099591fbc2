"""Ratings: their forms as arguments, one rating for each pair of user and item, their levels."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit

from dualgap._choices import Task
from dualgap._sparse import check_sparse
from dualgap._validation import FloatArray, real_array
from dualgap._validation.arrays import as_numpy
from dualgap.recommend._tables import (
    as_pandas,
    check_kind,
    comparable_times,
    exact,
    join_ids,
    parts_of,
    plain_ids,
    read_ids,
    read_times,
    read_values,
    row_name,
    table_kind,
    unrounded,
    warn_input,
    warn_of_fractions,
)

_Columns: TypeAlias = "tuple[ArrayLike, ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike]"
_Rows: TypeAlias = "Sequence[tuple[Any, ...]]"
_Parts: TypeAlias = "str | os.PathLike[str] | Iterator[Any]"
RatingsLike: TypeAlias = (
    "pd.DataFrame | _Columns | _Rows | NDArray[Any] | sp.spmatrix | sp.sparray | _Parts"
)


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


def read_ratings(
    ratings: RatingsLike,
    columns: Columns,
    *,
    name: str = "ratings",
    sample_weight: ArrayLike | None = None,
    timestamps: ArrayLike | None = None,
    coded: bool = False,
    seconds: bool = False,
    repeats: bool = False,
) -> RatingTable:
    """Read ratings of any accepted form; with `seconds`, times are converted to seconds since 1970.

    Keeps the latest of several ratings of a pair, or adds up its counts of clicks, unless `repeats`
    is set. With `coded`, the ids of a table in parts are returned as categories, which take less
    memory. A sparse matrix has users as rows and items as columns; its stored entries are the
    ratings, in the order of its `tocoo()`.
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
    table = RatingTable(users, items, values, weights, times, shape=shape, **names)
    if repeats:
        return table
    return count_clicks(table, name) if columns.counts else _last_of_each_pair(table, name)


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


class GrowingIds:
    """The ids of several parts of a table, as positions among all distinct ids."""

    def __init__(self, side: str) -> None:
        self._side = side
        self._known: pd.Index[Any] | None = None
        self._codes: list[NDArray[np.int32]] = []

    def add(self, ids: pd.Index[Any], name: str) -> None:
        """Append the ids of a part."""
        codes, distinct = pd.factorize(ids)
        if self._known is None or not len(self._known):
            self._known = distinct
        else:
            check_kind(self._known, distinct, f"{name}: a later part ({self._side}s)")
            known, distinct = unrounded(self._known, distinct), unrounded(distinct, self._known)
            places = known.get_indexer(distinct)
            new = places < 0
            places[new] = len(self._known) + np.arange(new.sum())
            self._known = join_ids(self._known, distinct[new])
            codes = places[codes]
        self._codes.append(codes.astype(np.int32))

    def index(self) -> pd.CategoricalIndex[Any]:
        """Return all ids."""
        codes = np.concatenate(self._codes)
        self._codes = []
        return pd.CategoricalIndex(pd.Categorical.from_codes(codes, self._known))


def _parts(ratings: Any, columns: Columns, name: str) -> tuple[Any, Any, Any, Any]:
    """Return users, items, values and, if a table has them, times."""
    ratings = as_numpy(name, as_pandas(ratings, columns.names))
    if isinstance(ratings, pd.DataFrame):
        needed = [columns.user, columns.item]
        if not columns.clicks or columns.rating in ratings.columns:
            needed.append(columns.rating)
        repeated = [column for column in columns.names if list(ratings.columns).count(column) > 1]
        if repeated:
            msg = f"{name}: the column {repeated[0]!r} occurs more than once"
            raise ValueError(msg)
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


def _has_repeats(table: RatingTable) -> bool:
    """Whether a pair of user and item may occur more than once."""
    n = len(table.values)
    return n > FEW or len(set(zip(table.users.tolist(), table.items.tolist(), strict=True))) < n


def _last_of_each_pair(table: RatingTable, name: str = "ratings") -> RatingTable:
    """Keep the latest rating of each user and item: the last by time, or in the order given."""
    if not _has_repeats(table):
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


def count_clicks(table: RatingTable, name: str = "ratings") -> RatingTable:
    """Add up the counts of each pair of user and item; leave out counts of 0, with a warning."""
    clicked = np.flatnonzero(table.values > 0.0)
    if len(clicked) < len(table.values):
        if not len(clicked):
            msg = f"{name}: all values are 0, so no user clicked an item"
            raise ValueError(msg)
        warn_input(
            f"{name}: {len(table.values) - len(clicked)} of {len(table.values)} values are 0; "
            "these pairs count as not clicked"
        )
        table = table.take(clicked)
    if not _has_repeats(table):
        return table
    items, distinct = pd.factorize(table.items)
    pairs = pd.factorize(table.users)[0].astype(np.int64) * len(distinct)
    pairs += items
    del items
    ordered = np.sort(pairs)
    if not (ordered[1:] == ordered[:-1]).any():
        return table
    pairs, _ = pd.factorize(pairs)
    n_pairs = int(pairs.max()) + 1
    first = np.full(n_pairs, len(pairs), dtype=np.intp)
    np.minimum.at(first, pairs, np.arange(len(pairs)))
    weights = table.weights
    if weights is not None:
        # A given weight applies to each click of its row. The weight of a pair is the mean over all
        # clicks of the pair.
        weights = np.bincount(pairs, weights * table.values) / np.bincount(pairs, table.values)
    values: FloatArray = np.bincount(pairs, table.values).astype(np.float64)
    return replace(table.take(first), values=values, weights=weights)


# --- Levels ---

_MAX_LEVELS = 64

# Values with a larger maximum than this are probably counts rather than ratings.
_LONGEST_SCALE = 10.0


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

    @property
    def span(self) -> float:
        """The highest level minus the lowest one; infinite if that overflows."""
        return float(self.levels[-1]) - float(self.levels[0])

    @property
    def ranking_unit(self) -> float:
        """The unit of outputs in rankings: the span for a regression, 1 for ordinal levels."""
        return 1.0 if self.ordinal else self.span

    def unit(self, values: FloatArray) -> float:
        """Return the unit of a fit: the standard deviation of ratings for a regression, else 1."""
        return 1.0 if self.ordinal else _deviation(values)

    def expected(self, outputs: FloatArray) -> FloatArray:
        """Return the expected ratings."""
        if self.ordinal:
            return expected_level(outputs, self.levels)
        return np.clip(outputs[..., 0], self.levels[0], self.levels[-1])


def _deviation(values: FloatArray) -> float:
    """Return the standard deviation; infinite or NaN if differences overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        span = np.ptp(values)
        return float(span * np.std((values - values.min()) / span))


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
    deviation = _deviation(values)
    if not 1e-100 <= deviation <= 1e100:
        msg = f"ratings: their standard deviation is {deviation:.3g}; multiply them by a constant"
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
