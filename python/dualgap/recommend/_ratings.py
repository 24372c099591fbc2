"""Ratings as recommenders read them: id tables, indices, features."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dualgap._validation import FloatArray

RatingsLike: TypeAlias = (
    "pd.DataFrame | tuple[ArrayLike, ArrayLike, ArrayLike] | sp.spmatrix | sp.sparray"
)
FeaturesLike: TypeAlias = "pd.DataFrame | sp.spmatrix | sp.sparray"

_MAX_LEVELS = 64


@dataclass(frozen=True)
class Triples:
    """Users, items and values of ratings, as given."""

    users: pd.Index[Any]
    items: pd.Index[Any]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Indexed:
    """Ratings by the positions of their users and items."""

    users: NDArray[np.intp]
    items: NDArray[np.intp]
    values: FloatArray


@dataclass(frozen=True)
class Sides:
    """What is known of the users and items, a row for each."""

    shape: tuple[int, int]
    features: tuple[sp.csr_array | None, sp.csr_array | None]


def read_ratings(
    ratings: RatingsLike, columns: tuple[str, str, str], *, name: str = "ratings"
) -> Triples:
    """Read ratings of any accepted form.

    A sparse matrix has users as rows and items as columns; its stored entries are the ratings.
    """
    users: Any
    items: Any
    values: Any
    if isinstance(ratings, pd.DataFrame):
        missing = [column for column in columns if column not in ratings.columns]
        if missing:
            have = ", ".join(map(str, ratings.columns))
            msg = f"{name}: no column {missing[0]!r}; it has {have} (see the column parameters)"
            raise ValueError(msg)
        users, items, values = (ratings[column] for column in columns)
    elif sp.issparse(ratings):
        matrix = sp.coo_array(ratings)
        users, items, values = matrix.row, matrix.col, matrix.data
    elif isinstance(ratings, tuple) and len(ratings) == 3:
        users, items, values = ratings
    else:
        msg = (
            f"{name}: must be a DataFrame, a tuple (users, items, values) or a sparse matrix, "
            f"got {type(ratings).__name__}"
        )
        raise TypeError(msg)
    try:
        numbers = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        msg = f"{name}: the rating values must be numbers"
        raise ValueError(msg) from None
    user_index, item_index = read_ids(users, "user"), read_ids(items, "item")
    if not len(user_index) == len(item_index) == len(numbers) or numbers.ndim != 1:
        msg = f"{name}: users, items and values must be one-dimensional and equally long"
        raise ValueError(msg)
    if len(numbers) == 0:
        msg = f"{name}: there must be at least one rating"
        raise ValueError(msg)
    if not np.isfinite(numbers).all():
        msg = f"{name}: the rating values must not contain NaN or infinity"
        raise ValueError(msg)
    return Triples(user_index, item_index, numbers)


def read_ids(ids: Any, what: str) -> pd.Index[Any]:
    """Ids of any hashable type, none of them missing."""
    if isinstance(ids, pd.MultiIndex):
        ids = ids.to_flat_index()
    values = ids if isinstance(ids, pd.Series | pd.Index | np.ndarray) else list(ids)
    if isinstance(values, np.ndarray) and values.ndim != 1:
        msg = f"{what}s: the ids must be one-dimensional"
        raise ValueError(msg)
    # As a MultiIndex, tuples of different lengths would be filled up with NaN.
    index = pd.Index(values, tupleize_cols=False)
    try:
        index.is_unique  # noqa: B018
    except TypeError as error:
        msg = f"{what}s: the ids must be hashable ({error})"
        raise TypeError(msg) from None
    if index.hasnans:
        msg = f"{what}s: an id is missing (NaN or None)"
        raise ValueError(msg)
    return index


def list_ids(ids: Hashable | Iterable[Hashable]) -> list[Hashable]:
    """One id or several, as a list; a string or a tuple is one id."""
    if isinstance(ids, str | bytes | tuple) or not isinstance(ids, Iterable):
        return [ids]
    return list(ids)


def unique_ids(rated: pd.Index[Any], features: pd.Index[Any] | None) -> pd.Index[Any]:
    """All ids, rated or with features, in a fixed order (sorted where they compare)."""
    ids = rated.unique()
    if features is not None:
        ids = ids.append(features).unique()
    try:
        return ids.sort_values()
    except TypeError:
        return ids


def codes(table: pd.Index[Any], ids: pd.Index[Any]) -> NDArray[np.intp]:
    """Position of each id in `table`; the length of `table` for unknown ones."""
    found = table.get_indexer(ids)
    return np.where(found < 0, len(table), found)


@dataclass(frozen=True)
class Features:
    """Ids and numbers of a feature table, if there is one."""

    ids: pd.Index[Any] | None = None
    matrix: sp.csr_array | None = None

    def rows(self, table: pd.Index[Any]) -> list[sp.csr_array]:
        """Rows in the order of `table`, empty for ids without features."""
        if self.ids is None or self.matrix is None:
            return []
        position = self.ids.get_indexer(table)
        known = np.flatnonzero(position >= 0)
        ones = np.ones(len(known))
        pick = sp.csr_array((ones, (known, position[known])), (len(table), self.matrix.shape[0]))
        return [sp.csr_array(pick @ self.matrix)]


def read_features(features: FeaturesLike | None, name: str) -> Features:
    """Read the numbers of a feature table.

    A DataFrame is indexed by id; columns that are not numbers become one column per value, numbers
    are standardised. Row r of a sparse matrix belongs to the id r.
    """
    if features is None:
        return Features()
    if isinstance(features, pd.DataFrame):
        if not features.index.is_unique:
            msg = f"{name}: an id occurs in more than one row of the index"
            raise ValueError(msg)
        numeric = features.select_dtypes(include="number").astype(np.float64)
        numeric = (numeric - numeric.mean()) / numeric.std(ddof=0).replace(0.0, 1.0)
        others = features.drop(columns=numeric.columns)
        tables = [numeric]
        if others.shape[1]:
            tables.append(pd.get_dummies(others.astype("category"), dtype=np.float64))
        matrix = sp.csr_array(np.hstack([table.to_numpy(dtype=np.float64) for table in tables]))
        ids = read_ids(features.index, name.removesuffix("_features"))
    elif sp.issparse(features):
        given: Any = features
        matrix = sp.csr_array(given, dtype=np.float64)
        ids = pd.RangeIndex(matrix.shape[0])
    else:
        msg = f"{name}: must be a DataFrame or a sparse matrix, got {type(features).__name__}"
        raise TypeError(msg)
    if not np.isfinite(matrix.data).all():
        msg = f"{name}: must not contain NaN or infinity"
        raise ValueError(msg)
    return Features(ids, matrix)


def history_rows(
    rows: NDArray[np.intp], columns: NDArray[np.intp], shape: tuple[int, int]
) -> sp.csr_array:
    """The set of columns that each row has rated."""
    matrix = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def unit_rows(blocks: list[sp.csr_array]) -> sp.csr_array | None:
    """Feature blocks side by side, each row of each block scaled to unit length."""
    scaled = []
    for block in blocks:
        lengths = np.sqrt(np.asarray(block.multiply(block).sum(axis=1)).ravel())
        scaled.append(sp.diags_array(1.0 / np.where(lengths > 0.0, lengths, 1.0)) @ block)
    if not scaled:
        return None
    result = sp.csr_array(sp.hstack(scaled, format="csr"))
    result.sum_duplicates()
    return result


def find_levels(values: FloatArray, given: Sequence[float] | None, ordinal: bool) -> FloatArray:
    """The rating levels in increasing order: those given, or those that occur."""
    found = np.unique(values)
    if given is None:
        levels = found
    else:
        try:
            levels = np.unique(np.asarray(given, dtype=np.float64))
        except (TypeError, ValueError):
            levels = np.array([])
        if len(levels) == 0 or not np.isfinite(levels).all():
            msg = f"levels: must be finite numbers, got {given!r}"
            raise ValueError(msg)
        if not np.isin(found, levels).all():
            strange = found[~np.isin(found, levels)][0]
            msg = f"ratings: the rating {strange} is not one of the levels {levels.tolist()}"
            raise ValueError(msg)
    if ordinal:
        if len(levels) < 2:
            msg = f"ratings: all ratings are {levels[0]}; one level teaches nothing"
            raise ValueError(msg)
        if len(levels) > _MAX_LEVELS:
            msg = (
                f"ratings: {len(levels)} different values are too many levels "
                f'(at most {_MAX_LEVELS}); round them, or use reduction="regression"'
            )
            raise ValueError(msg)
    return np.asarray(levels)
