"""Validation of ratings, and their conversion to ids, positions, values and times."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from numbers import Number
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dualgap._choices import check_choice
from dualgap._estimator import depth
from dualgap._sparse import check_sparse
from dualgap._validation import FloatArray, example_weights, real_array
from dualgap._validation.arrays import as_numpy
from dualgap.recommend._frames import as_pandas, table_kind

_Columns: TypeAlias = "tuple[ArrayLike, ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike]"
_Rows: TypeAlias = "Sequence[tuple[Any, ...]]"
RatingsLike: TypeAlias = "pd.DataFrame | _Columns | _Rows | NDArray[Any] | sp.spmatrix | sp.sparray"
Unknown: TypeAlias = Literal["warn", "ignore"]
Periods: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The numbers of each rating's period of the user and of the item."""

# Limit on seconds since 1970 (the year 5138); times in milliseconds after 1973 exceed it.
_LATEST = 1e11

# Number of pairs whose outputs are computed at a time.
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


@dataclass(frozen=True)
class RatingTable:
    """Ratings, with users and items given by id."""

    users: pd.Index[Any]
    items: pd.Index[Any]
    values: FloatArray
    # None if all ratings have equal weight.
    weights: FloatArray | None = None
    times: NDArray[Any] | None = None
    # Numbers of users and items, if the ratings were a sparse matrix of clicks.
    shape: tuple[int, int] | None = field(default=None, kw_only=True)

    def take(self, rows: NDArray[np.intp]) -> RatingTable:
        """Select some of the ratings."""
        optional = [None if part is None else part[rows] for part in (self.weights, self.times)]
        some = RatingTable(self.users[rows], self.items[rows], self.values[rows], *optional)
        return replace(some, shape=self.shape)


@dataclass(frozen=True)
class IndexedRatings:
    """Ratings, with users and items given by their positions in the catalogue."""

    users: NDArray[Any]
    items: NDArray[Any]
    values: FloatArray
    weights: FloatArray | None = None
    # Set only if time features are used.
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
        """Yield the pairs in batches, which bounds the memory."""
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

    @classmethod
    def of(
        cls, table: RatingTable, user_ids: pd.Index[Any] | None, item_ids: pd.Index[Any] | None
    ) -> Catalogue:
        """Collect all ids that have ratings or features, in a fixed order (sorted if possible)."""
        sides = []
        named = (("user", table.users, user_ids), ("item", table.items, item_ids))
        for at, (side, ids, described) in enumerate(named):
            known = ids.unique() if table.shape is None else pd.RangeIndex(table.shape[at])
            if described is not None:
                check_kind(known, described, f"{side}_features")
                known = join_ids(known, described).unique()
            with suppress(TypeError):
                known = known.sort_values()
            sides.append(known)
        return cls(*sides)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of users and number of items."""
        return len(self.users), len(self.items)

    def index(self, table: RatingTable) -> IndexedRatings:
        """Replace the ids of ratings by positions."""
        users = positions(self.users, table.users).astype(np.int32)
        items = positions(self.items, table.items).astype(np.int32)
        return IndexedRatings(users, items, table.values, table.weights)

    def find_users(self, ids: pd.Index[Any], unknown: Unknown) -> NDArray[np.intp]:
        """Return positions of users; `unknown` says whether to warn about unknown ids."""
        return _find(self.users, ids, "user", unknown)

    def find_items(self, ids: pd.Index[Any], unknown: Unknown) -> NDArray[np.intp]:
        """Return positions of items; `unknown` says whether to warn about unknown ids."""
        return _find(self.items, ids, "item", unknown)


def read_ratings(
    ratings: RatingsLike,
    columns: Columns,
    *,
    name: str = "ratings",
    sample_weight: ArrayLike | None = None,
    timestamps: ArrayLike | None = None,
) -> RatingTable:
    """Read ratings of any accepted form.

    A sparse matrix has users as rows and items as columns; its stored entries are the ratings, in
    the order of its `tocoo()`.
    """
    users, items, values, times = _parts(ratings, columns, name)
    times = times if timestamps is None else np.asarray(timestamps)
    users, items = read_ids(users, "users"), read_ids(items, "items")
    values = np.broadcast_to(1.0, len(users)) if values is None else _values(values, name)
    if not len(users) == len(items) == len(values) or values.ndim != 1:
        msg = f"{name}: users, items and values must be one-dimensional and equally long"
        raise ValueError(msg)
    if len(values) == 0:
        msg = f"{name}: there must be at least one rating"
        raise ValueError(msg)
    if not np.isfinite(values).all():
        msg = f"{name}: the rating values must not contain NaN or infinity"
        raise ValueError(msg)
    if times is not None and np.shape(times) != values.shape:
        msg = f"timestamps: must be {len(values)} times, one for each rating"
        raise ValueError(msg)
    weights = None if sample_weight is None else _weights(sample_weight, len(values))
    sparse: Any = ratings if columns.clicks and sp.issparse(ratings) else None
    shape = None if sparse is None else sparse.shape
    return RatingTable(users, items, values, weights, times, shape=shape)


def _values(values: Any, name: str) -> FloatArray:
    """Read the values of ratings."""
    try:
        return real_array(name, values)
    except (TypeError, ValueError) as error:
        msg = f"{name}: the rating values must be real numbers ({error})"
        raise ValueError(msg) from error


def _parts(ratings: Any, columns: Columns, name: str) -> tuple[Any, Any, Any, Any]:
    """Return users, items, values and, if a table has them, times."""
    names = columns.user, columns.item, columns.rating, columns.timestamp
    ratings = as_numpy(name, as_pandas(ratings, names))
    if isinstance(ratings, pd.DataFrame):
        needed = [columns.user, columns.item]
        if not columns.clicks or columns.rating in ratings.columns:
            needed.append(columns.rating)
        missing = [column for column in needed if column not in ratings.columns]
        if missing:
            have = ", ".join(map(str, ratings.columns))
            msg = f"{name}: no column {missing[0]!r}; it has {have} (see the column parameters)"
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
    raise TypeError(msg)


def _triple(columns: Any) -> tuple[Any, Any, Any]:
    """Return users, items and values; without values, None."""
    users, items, *values = columns
    return users, items, values[0] if values else None


def _whole(ids: NDArray[Any]) -> NDArray[Any]:
    """Convert ids to integers if a ratings array stores whole numbers as floating point."""
    if ids.dtype.kind == "f" and (np.abs(ids) < _exact(ids)).all() and (ids == np.rint(ids)).all():
        return ids.astype(np.int64)
    return ids


def _exact(ids: Any) -> float:
    """Return the number above which floating-point numbers of the type of `ids` skip integers."""
    return float(2.0 ** (np.finfo(getattr(ids.dtype, "numpy_dtype", ids.dtype)).nmant + 1))


# With larger weights, the covariances of the variational method lose all precision.
_HEAVIEST = 1e10


def _weights(sample_weight: ArrayLike, n: int) -> FloatArray:
    weights = example_weights(sample_weight, n)
    if weights is None or not (weights > 0.0).all():
        msg = f"sample_weight: must be {n} positive finite numbers, one for each rating"
        raise ValueError(msg)
    if weights.max() > _HEAVIEST:
        msg = f"sample_weight: must be at most {_HEAVIEST:g}, got {weights.max():g}"
        raise ValueError(msg)
    return weights


def last_of_each_pair(table: RatingTable) -> RatingTable:
    """Keep the latest rating of each user and item: the last by time, or in the order given."""
    users, _ = pd.factorize(table.users)
    items, distinct = pd.factorize(table.items)
    pairs = pd.Series(users.astype(np.int64) * len(distinct) + items)
    n_again = int(pairs.duplicated().sum())
    if n_again == 0:
        return table
    if table.times is not None:
        pairs = pairs.iloc[np.argsort(comparable_times(table.times), kind="stable")]
    again = pairs.duplicated(keep="last")
    which = "latest" if table.times is not None else "last"
    warn_input(
        f"ratings: {n_again} of {len(pairs)} are of a pair of user and item that is rated again; "
        f"the {which} rating of each pair is used"
    )
    return table.take(np.sort(pairs.index.to_numpy()[~again.to_numpy()]))


def comparable_times(times: NDArray[Any]) -> NDArray[Any]:
    """Convert times to sortable values: NumPy numbers and dates are kept, others become seconds.

    Text does not sort by time: "9" comes after "10". A missing time would sort last and thus count
    as the latest.
    """
    refuse_missing(times, "timestamps")
    if times.dtype.kind in "iufbM":
        return times
    try:
        seconds = times.astype(np.float64)
    except (TypeError, ValueError):
        return read_times(times, len(times))
    refuse_missing(seconds, "timestamps")
    return seconds


def refuse_missing(times: NDArray[Any], name: str) -> None:
    """Raise an error if a time is NaN, NaT, None or infinite."""
    numbers = times.dtype.kind in "iufbM"
    if (~np.isfinite(times) if numbers else pd.isna(times)).any():
        msg = f"{name}: a time is missing (NaN); leave out these pairs, or all times"
        raise ValueError(msg)


def read_times(times: Any, n: int, name: str = "timestamps") -> FloatArray:
    """Convert times to seconds since 1970: numbers (seconds already), dates, or ISO 8601 text."""
    values = np.asarray(times)
    if values.shape != (n,):
        msg = f"{name}: must be {n} times, one for each pair, got shape {values.shape}"
        raise ValueError(msg)
    refuse_missing(values, name)
    if values.dtype.kind in "iufb":
        seconds: FloatArray = values.astype(np.float64)
    else:
        try:
            dates = pd.to_datetime(pd.Series(times), utc=True, format="ISO8601")
        except (TypeError, ValueError) as error:
            msg = f"{name}: must be numbers of seconds or dates ({error})"
            raise ValueError(msg) from None
        since = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
        seconds = np.asarray(since, dtype=np.float64)
    refuse_missing(seconds, name)
    if (np.abs(seconds) > _LATEST).any():
        msg = f"{name}: must be seconds since 1970 or dates; these look like milliseconds"
        raise ValueError(msg)
    return seconds


def warn_input(text: str) -> None:
    """Warn about the input; the warning points to the line of the user's call."""
    warnings.warn(text, UserWarning, stacklevel=depth())


def read_ids(ids: Any, name: str) -> pd.Index[Any]:
    """Read hashable ids without missing values; `name` is the argument that holds them."""
    if isinstance(ids, pd.MultiIndex):
        ids = ids.to_flat_index()
    ids = np.asarray(ids) if table_kind(ids) not in (None, "pandas") else as_numpy(name, ids)
    values = ids if isinstance(ids, pd.Series | pd.Index | np.ndarray) else list(ids)
    if isinstance(values, np.ndarray) and values.ndim != 1:
        msg = f"{name}: the ids must be one-dimensional"
        raise ValueError(msg)
    if isinstance(values, np.ndarray) and not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if isinstance(values, list) and any(isinstance(value, bool | np.bool_) for value in values):
        # pandas would convert booleans among numbers to numbers.
        values = np.fromiter(values, dtype=object, count=len(values))
    # A MultiIndex would pad tuples of different lengths with NaN.
    index = pd.Index(values, copy=False, tupleize_cols=False)
    if isinstance(index.dtype, pd.CategoricalDtype):
        # Ids that are categorical have the type of their categories.
        index = index.astype(index.dtype.categories.dtype)
    try:
        # Only objects can fail; `is_unique` would store a table of all hashes.
        deque(map(hash, index if index.dtype == object else index[:1]), maxlen=0)
    except TypeError as error:
        msg = f"{name}: the ids must be hashable ({error})"
        raise TypeError(msg) from None
    if index.hasnans:
        msg = f"{name}: an id is missing (NaN or None)"
        raise ValueError(msg)
    _refuse_merged(index, name)
    return index


def _refuse_merged(ids: pd.Index[Any], name: str) -> None:
    """Raise an error for ids that may be merged with others, or equal ids of different types."""
    if ids.dtype.kind == "f":
        reals = ids.to_numpy()
    elif ids.dtype.kind == "O" and pd.api.types.infer_dtype(ids) not in ("string", "integer"):
        kinds = set(map(type, ids))
        reals = np.array([i for i in ids if isinstance(i, float | np.floating)], dtype=np.float64)
        truth = {kind for kind in kinds if issubclass(kind, bool | np.bool_)}
        if truth and any(issubclass(kind, Number) for kind in kinds - truth):
            msg = (
                f"{name}: True and False count as the numbers 1 and 0, and these ids are both "
                "truth values and numbers; give ids of one kind, for example strings"
            )
            raise ValueError(msg)
    else:
        return
    exact = _exact(reals)
    if (strange := reals[np.abs(reals) >= exact]).size:
        msg = (
            f"{name}: the id {strange.tolist()[0]!r} is a floating-point number of "
            f"2**{int(np.log2(exact))} or more, where these skip integers; give ids as "
            "integers or strings, each column by itself"
        )
        raise ValueError(msg)


def join_ids(first: pd.Index[Any], second: pd.Index[Any]) -> pd.Index[Any]:
    """Concatenate the ids of two tables without converting them."""
    if {first.dtype.kind, second.dtype.kind} == {"i", "u"}:
        # pandas would convert both to floating point.
        first, second = first.astype(object), second.astype(object)
    return first.append(second)


def check_kind(table: pd.Index[Any], ids: pd.Index[Any], name: str) -> None:
    """Raise an error if the type of ids differs from the ratings', such as strings for numbers.

    Raises
    ------
    TypeError
        If the types differ; the message names the argument.
    """
    known = _kinds(table)
    for kind in _kinds(ids):
        if known and kind not in known:
            first, other = next(iter(known.items()))
            msg = (
                f"{name}: the ids are {kind}, those of the ratings are {first} "
                f"({other!r}, for example)"
            )
            raise TypeError(msg)


def read_id_list(ids: Hashable | Iterable[Hashable], name: str) -> pd.Index[Any]:
    """Read one id or several; a string or a tuple counts as one id."""
    if isinstance(ids, dict) or hasattr(ids, "columns"):
        msg = f"{name}: must be one id or a list of ids, got {type(ids).__name__}; pass one column"
        raise TypeError(msg)
    if isinstance(ids, str | bytes | tuple) or not isinstance(ids, Iterable):
        return read_ids([ids], name)
    if table_kind(ids) not in (None, "pandas"):
        return read_ids(ids, name)
    return read_ids(list(as_numpy(name, ids)), name)


def positions(table: pd.Index[Any], ids: pd.Index[Any]) -> NDArray[np.intp]:
    """Return the position of each id in `table`; unknown ids get the length of `table`."""
    found = table.get_indexer(ids)
    missing = found < 0
    return np.where(missing, len(table), found) if missing.any() else found


def _find(
    table: pd.Index[Any], ids: pd.Index[Any], what: str, unknown: Unknown
) -> NDArray[np.intp]:
    """Find `positions`; warn of unknown ids; raise an error if all are unknown."""
    check_choice("unknown", unknown, Unknown)
    found = positions(table, ids)
    strange = found == len(table)
    if unknown == "ignore" or not strange.any():
        return found
    check_kind(table, ids, f"{what}s")
    distinct = ids[strange].unique()
    example = distinct.tolist()[0]
    if strange.all():
        msg = (
            f"{what}s: {example!r} was not in the ratings"
            if len(distinct) == 1
            else f"{what}s: none of the {len(distinct)} ids was in the ratings ({example!r}, ...)"
        ) + f'; with unknown="ignore" it counts as an average {what}'
        raise ValueError(msg)
    warn_input(
        f"{what}s: {int(strange.sum())} of {len(found)} ids were not in the ratings ({example!r}, "
        f"for example) and count as an average {what}"
    )
    return found


def _kinds(ids: pd.Index[Any]) -> dict[str, Any]:
    """Return the kinds of ids, each with its first id; an unlisted type is its own kind."""
    if ids.dtype.kind != "O" or not len(ids):
        return {_KINDS.get(ids.dtype.kind, str(ids.dtype)): first for first in ids[:1].tolist()}
    found: dict[str, Any] = {}
    for kind, first in {type(i): i for i in reversed(ids.tolist())}.items():
        names = (name for types, name in _TYPES if issubclass(kind, types))
        found[next(names, f"of type {kind.__name__}")] = first
    return found


_KINDS = {"b": "truth values", "i": "numbers", "u": "numbers", "f": "numbers", "M": "dates"}
_TYPES: list[tuple[Any, str]] = [
    ((bool, np.bool_), "truth values"),
    (Number, "numbers"),
    (str, "strings"),
    ((date, np.datetime64), "dates"),
]
