"""Ids of users and items: validation, kinds, and their positions in a catalogue."""

from __future__ import annotations

import re
import warnings
from collections import deque
from collections.abc import Hashable, Iterable
from datetime import date
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dualgap._estimator import depth
from dualgap._validation.arrays import as_numpy
from dualgap.recommend._frames import column_values, table_kind


def warn_input(text: str) -> None:
    """Warn about the input; the warning points to the line of the user's call."""
    warnings.warn(text, UserWarning, stacklevel=depth())


def row_name(row: int) -> str:
    """Return the name of a row in error messages."""
    return f"row {row} (counted from 0)"


def read_ids(ids: Any, name: str, first: int = 0) -> pd.Index[Any]:
    """Read hashable ids without missing values; `name` is the argument that holds them.

    Error messages number the rows from `first`.
    """
    if isinstance(ids, pd.MultiIndex):
        ids = ids.to_flat_index()
    foreign = table_kind(ids) not in (None, "pandas")
    ids = column_values(ids) if foreign else as_numpy(name, ids)
    values = ids if isinstance(ids, pd.Series | pd.Index | np.ndarray) else list(ids)
    if isinstance(values, np.ndarray) and values.ndim != 1:
        msg = f"{name}: the ids must be one-dimensional"
        raise ValueError(msg)
    if isinstance(values, np.ndarray) and not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if isinstance(values, list) and any(isinstance(value, bool | np.bool_) for value in values):
        # If booleans and numbers are mixed, pandas would convert the booleans to numbers.
        values = np.fromiter(values, dtype=object, count=len(values))
    # A MultiIndex would pad tuples of different lengths with NaN.
    index = plain_ids(pd.Index(values, copy=False, tupleize_cols=False))
    if isinstance(index.dtype, np.dtype) and index.dtype.kind in "iu":
        return index  # integers can be hashed, are never missing, and are exact
    try:
        # Hashing raises an error for an unhashable id. Only ids of dtype object can be unhashable.
        # `index.is_unique` would test the same, but pandas would keep a hash table of all ids.
        deque(map(hash, index if index.dtype == object else index[:1]), maxlen=0)
    except TypeError as error:
        row = next(row for row, one in enumerate(index) if not pd.api.types.is_hashable(one))
        msg = f"{name}: the ids must be hashable ({error}, in {row_name(row + first)})"
        raise TypeError(msg) from None
    if index.hasnans:
        row = int(np.argmax(index.isna())) + first
        msg = f"{name}: an id is missing (NaN or None), in {row_name(row)}"
        raise ValueError(msg)
    _refuse_merged(index, name, first)
    return index


def _refuse_merged(ids: pd.Index[Any], name: str, first: int) -> None:
    """Raise an error for numbers that rounding may have merged, or equal ids of different types."""
    if ids.dtype.kind == "f":
        reals = ids.to_numpy()
    elif ids.dtype.kind == "O" and pd.api.types.infer_dtype(ids) not in ("string", "integer"):
        kinds = set(map(type, ids))
        reals = np.array([i for i in ids if isinstance(i, float | np.floating)], dtype=np.float64)
        truth = {kind for kind in kinds if issubclass(kind, bool | np.bool_)}
        numbers = {kind for kind in kinds - truth if issubclass(kind, Number)}
        if truth and numbers:
            types = list(map(type, ids))
            rows = [first + min(map(types.index, some)) for some in (truth, numbers)]
            msg = (
                f"{name}: these ids mix booleans and numbers (a boolean in row {rows[0]}, a number "
                f"in row {rows[1]}, counted from 0), but True equals 1 and False equals 0; give "
                "ids of one kind, for example strings"
            )
            raise ValueError(msg)
    else:
        return
    limit = exact(reals)
    if (np.abs(reals) >= limit).any():
        row, strange = next(
            (row, float(one))
            for row, one in enumerate(ids)
            if isinstance(one, float | np.floating) and abs(float(one)) >= limit
        )
        msg = (
            f"{name}: the id {strange!r} in {row_name(row + first)} is a floating-point number of "
            f"2**{int(np.log2(limit))} or more, and not every such integer can be represented; "
            "give ids as integers or strings, in an array without the ratings"
        )
        raise ValueError(msg)


def join_ids(first: pd.Index[Any], second: pd.Index[Any]) -> pd.Index[Any]:
    """Concatenate the ids of two tables without rounding them.

    Raises
    ------
    ValueError
        If one table contains fractions, and the other integers that would be rounded.
    """
    first, second = unrounded(first, second), unrounded(second, first)
    kinds = {first.dtype.kind, second.dtype.kind}
    if kinds == {"i", "u"}:
        # pandas would convert both to floating point.
        first, second = first.astype(object), second.astype(object)
    elif "f" in kinds and kinds & {"i", "u"}:
        fractions, whole = (first, second) if first.dtype.kind == "f" else (second, first)
        large = whole[(whole >= 2**53) | (whole <= -(2**53))]
        if len(large):
            strange = fractions[fractions % 1 != 0].tolist()[0]
            msg = (
                f"ids: {strange!r} is no whole number, but there are integers of 2**53 or more "
                f"({large.tolist()[0]!r}, for example), which would be rounded; give all ids as "
                "integers or strings"
            )
            raise ValueError(msg)
    return first.append(second)


def unrounded(ids: pd.Index[Any], others: pd.Index[Any]) -> pd.Index[Any]:
    """Return floating-point ids as integers if all are whole and `others` are integers.

    The conversion is exact, because `read_ids` rejects floating-point ids that are too large.
    """
    if ids.dtype.kind == "f" and others.dtype.kind in "iu":
        whole = ids.astype(np.int64)
        return whole if (whole == ids).all() else ids
    return ids


def check_kind(table: pd.Index[Any], ids: pd.Index[Any], name: str) -> None:
    """Raise an error if ids and the ids of the ratings differ in type, such as strings and numbers.

    Raises
    ------
    TypeError
        If the types differ; the message names the argument.
    """
    if table.dtype == ids.dtype != object:
        return
    # Look at all known ids only if necessary, because there may be many.
    known = _kinds(table[:1])
    for kind in _kinds(ids):
        if known and kind not in known:
            known = _kinds(table)
        if known and kind not in known:
            first, other = next(iter(known.items()))
            msg = (
                f"{name}: the ids are {kind}, but the ids of the ratings are {first} "
                f"({other!r}, for example)"
            )
            raise TypeError(msg)


def check_common(known: pd.Index[Any], ids: pd.Index[Any], name: str) -> None:
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


def read_id_list(ids: Hashable | Iterable[Hashable], name: str) -> pd.Index[Any]:
    """Read one id or several; a string or a tuple counts as one id."""
    if isinstance(ids, dict) or hasattr(ids, "columns"):
        msg = f"{name}: must be one id or a list of ids, got {type(ids).__name__}; pass one column"
        raise TypeError(msg)
    if type(ids) in (int, np.int64):
        # Faster than a list, for which pandas would look for a common type.
        one: pd.Index[Any] = pd.Index(np.array([ids]), copy=False)
        return one
    if isinstance(ids, str | bytes | tuple) or not isinstance(ids, Iterable):
        return read_ids([ids], name)
    if table_kind(ids) not in (None, "pandas"):
        return read_ids(ids, name)
    return read_ids(list(as_numpy(name, ids)), name)


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


def plain_ids(ids: pd.Index[Any]) -> pd.Index[Any]:
    """Convert categorical ids to the type of their categories."""
    if isinstance(ids, pd.CategoricalIndex):
        return ids.astype(ids.categories.dtype)
    return ids


def distinct_ids(ids: pd.Index[Any]) -> pd.Index[Any]:
    """Return the distinct ids; every category of categorical ids occurs (see `GrowingIds`)."""
    return ids.categories if isinstance(ids, pd.CategoricalIndex) else ids.unique()


def exact(ids: Any) -> float:
    """Return the number above which the floating-point type of `ids` cannot hold every integer."""
    return float(2.0 ** (np.finfo(getattr(ids.dtype, "numpy_dtype", ids.dtype)).nmant + 1))


def _kinds(ids: pd.Index[Any]) -> dict[str, Any]:
    """Map each kind of id (such as numbers or strings) to the first id of this kind."""
    if ids.dtype.kind != "O" or not len(ids):
        return {_KINDS.get(ids.dtype.kind, str(ids.dtype)): first for first in ids[:1].tolist()}
    found: dict[str, Any] = {}
    for kind, first in {type(i): i for i in reversed(ids.tolist())}.items():
        names = (name for types, name in _TYPES if issubclass(kind, types))
        found[next(names, f"of type {kind.__name__}")] = first
    return found


_KINDS = {"b": "booleans", "i": "numbers", "u": "numbers", "f": "numbers", "M": "dates"}
_TYPES: list[tuple[Any, str]] = [
    ((bool, np.bool_), "booleans"),
    (Number, "numbers"),
    (str, "strings"),
    ((date, np.datetime64), "dates"),
]
