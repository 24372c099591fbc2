"""Reading of tables: other libraries, ids, values and times of their columns."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator
from datetime import date
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dualgap._estimator import depth
from dualgap._validation import FloatArray, real_array
from dualgap._validation.arrays import as_numpy

# --- Libraries ---

# Libraries whose tables are read, besides pandas.
_LIBRARIES = ("polars", "pyarrow", "modin")

# Number of rows of a Parquet file that are read at a time.
_BATCH = 1 << 20


def table_kind(table: Any) -> str | None:
    """Return the library of a table or column, None for anything else."""
    library = type(table).__module__.partition(".")[0]
    if isinstance(table, pd.DataFrame | pd.Series | pd.Index):
        return "pandas"
    return library if library in _LIBRARIES else None


def as_pandas(table: Any, columns: Collection[str] | None = None) -> Any:
    """Convert a table of another library to a DataFrame; return anything else unchanged.

    If `columns` is given, only these columns are converted; names that the table lacks are ignored.
    """
    if table_kind(table) in (None, "pandas"):
        return table
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return table
    wanted = [name for name in frame.columns if columns is None or name in columns]
    return pd.DataFrame({name: _pandas_values(frame[name]) for name in wanted}, copy=False)


def column_values(column: Any) -> Any:
    """Convert a column of another library to an array or a Series of pandas."""
    import narwhals as nw

    if type(column).__module__ == "pyarrow.lib" and not hasattr(column, "chunks"):
        import pyarrow as pa

        column = pa.chunked_array([column])
    series = nw.from_native(column, series_only=True, pass_through=True)
    return _pandas_values(series) if isinstance(series, nw.Series) else np.asarray(column)


def _pandas_values(column: Any) -> Any:
    """Convert a column of narwhals; dates stay dates, and times keep their time zone."""
    if str(column.dtype) == "Date":
        return pd.Series(column.to_list(), dtype=object)
    zone = getattr(column.dtype, "time_zone", None)
    values = column.to_numpy()
    if zone is None:
        return values
    return pd.Series(values).dt.tz_localize("UTC").dt.tz_convert(zone)


def like_table(table: pd.DataFrame, kind: str) -> Any:
    """Convert a DataFrame to a table of another library."""
    if kind == "pandas":
        return table
    import narwhals as nw

    columns, zones = {}, []
    for name, column in table.items():
        if column.dtype.kind == "M":
            if column.dt.tz is not None:
                # The time zone "UTC+01:00" of pandas is "+01:00" in Arrow.
                zones.append((str(name), str(column.dt.tz).removeprefix("UTC") or "UTC"))
                column = column.dt.tz_convert("UTC").dt.tz_localize(None)
            # polars has no times in seconds.
            column = column.dt.as_unit("ms") if column.dt.unit == "s" else column
        # Convert strings to lists: a NumPy array of objects would become a column of objects.
        plain = column.dtype.kind in "biufM"
        columns[str(name)] = column.to_numpy() if plain else column.to_list()
    backend: Any = kind
    frame = nw.from_dict(columns, backend=backend)
    local = [
        nw.col(name).dt.replace_time_zone("UTC").dt.convert_time_zone(zone) for name, zone in zones
    ]
    return frame.with_columns(*local).to_native()


def parts_of(table: Any, columns: Collection[str], name: str) -> Iterator[Any] | None:
    """Return the parts of an iterator of tables or of Parquet files; None for other types.

    Only the given columns of Parquet files are read.
    """
    if isinstance(table, str | os.PathLike):
        return _parquet_parts(Path(table), columns, name)
    return _checked_parts(table, name) if isinstance(table, Iterator) else None


def _checked_parts(parts: Iterator[Any], name: str) -> Iterator[Any]:
    for part in parts:
        if table_kind(part) is None or not hasattr(part, "columns"):
            msg = (
                f"{name}: the parts of an iterator must be tables, such as DataFrames, "
                f"got {type(part).__name__}"
            )
            raise TypeError(msg)
        yield part


def _parquet_parts(path: Path, columns: Collection[str], name: str) -> Iterator[Any]:
    """Read a Parquet file, or all Parquet files below a folder, in batches of rows."""
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not path.exists() or not files:
        msg = f"{name}: {path} does not exist or contains no Parquet files (*.parquet)"
        raise FileNotFoundError(msg)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        msg = f"{name}: Parquet files need pyarrow: pip install pyarrow"
        raise ImportError(msg) from error
    for each in files:
        try:
            with pq.ParquetFile(each) as file:
                wanted = [column for column in file.schema_arrow.names if column in columns]
                for batch in file.iter_batches(_BATCH, columns=wanted):
                    yield pa.Table.from_batches([batch])
        except pa.ArrowInvalid as error:
            msg = f"{name}: {each} is not a Parquet file that pyarrow can read ({error})"
            raise ValueError(msg) from error
        finally:
            # By default, Arrow keeps freed memory for later reads.
            pa.default_memory_pool().release_unused()


# --- Ids ---


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


def plain_ids(ids: pd.Index[Any]) -> pd.Index[Any]:
    """Convert categorical ids to the type of their categories."""
    if isinstance(ids, pd.CategoricalIndex):
        return ids.astype(ids.categories.dtype)
    return ids


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

# --- Values ---

_RATINGS = (
    "if the values are ratings, set the smallest rating of a like with "
    "interactions=Interactions(like_threshold=...)"
)


def read_values(values: Any, name: str, first: int, *, counts: bool) -> FloatArray:
    """Read the values of ratings; counts of clicks must not be negative.

    Error messages name the column (or argument) `name`, and number the rows from `first`.
    """

    def row(wrong: NDArray[np.bool_]) -> str:
        return row_name(int(np.argmax(wrong)) + first)

    try:
        found = real_array("values", values)
    except (TypeError, ValueError) as error:
        each = np.asarray(values, dtype=object).reshape(-1)
        strange = np.array([not _is_real(value) for value in each], dtype=bool)
        reason = f"found {each[strange][0]!r} in {row(strange)}" if strange.any() else error
        msg = f"{name} must be real numbers ({reason})"
        raise ValueError(msg) from error
    infinite = ~np.isfinite(found)
    if infinite.any():
        msg = f"{name} must not contain NaN or infinity, found in {row(infinite)}"
        raise ValueError(msg)
    negative = found < 0.0
    if counts and negative.any():
        msg = (
            f"{name} must not be negative, found {found[negative][0]:g} in {row(negative)}, "
            f'because with task="clicks" values count clicks; leave out such rows, or, {_RATINGS}'
        )
        raise ValueError(msg)
    return found


def _is_real(value: Any) -> bool:
    """Whether a value can be read as a real number; None is read as NaN."""
    try:
        float(value)
    except (TypeError, ValueError):
        return value is None
    return True


def warn_of_fractions(values: FloatArray, name: str) -> None:
    """Warn about counts of clicks that are not whole numbers."""
    fractions = values[values != np.rint(values)]
    if len(fractions):
        warn_input(
            f"{name}: {len(fractions)} of {values.size} values are not whole numbers "
            f'({fractions[0]:g}, for example); with task="clicks" they are used as counts of '
            f"clicks, and a count below 1 weighs as much as 1; {_RATINGS}"
        )


# --- Times ---

# Upper limit on seconds since 1970 (year 5138). Times after 1973 in milliseconds exceed it.
_LATEST = 1e11


def comparable_times(times: NDArray[Any], column: Hashable | None) -> NDArray[Any]:
    """Convert times to sortable values: keep NumPy numbers and dates, convert other types.

    Text does not sort by time: "9" comes after "10". Missing times raise an error, because they
    would sort last and so count as the latest.
    """
    _refuse_missing(times, column)
    if times.dtype.kind in "iufbM":
        return times
    try:
        seconds = times.astype(np.float64)
    except (TypeError, ValueError):
        return read_times(times, len(times), column)
    _refuse_missing(seconds, column)
    return seconds


def read_times(times: Any, n: int, column: Hashable | None = None) -> FloatArray:
    """Convert times (numbers of seconds, dates, or ISO 8601 text) to seconds since 1970.

    Error messages name the column of times if there is one.
    """
    values = np.asarray(times)
    if values.shape != (n,):
        msg = f"timestamps: must be {n} times, one for each pair, got shape {values.shape}"
        raise ValueError(msg)
    if values.dtype == object:
        # A column of objects may contain numbers only.
        values = pd.Series(values).infer_objects().to_numpy()
    _refuse_missing(values, column)
    if values.dtype.kind in "iufb":
        seconds: FloatArray = values.astype(np.float64)
    else:
        given = pd.Series(times)
        if given.dtype == object and pd.api.types.infer_dtype(given).startswith("mixed"):
            # pandas would read numbers among text as nanoseconds. Convert them to strings, so that
            # to_datetime raises an error.
            given = given.map(str)
        try:
            dates = pd.to_datetime(given, utc=True, format="ISO8601")
        except (TypeError, ValueError) as error:
            msg = f"timestamps: must be numbers of seconds or dates ({_first_text(given, column)})"
            raise ValueError(msg) from error
        since = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
        seconds = np.asarray(since, dtype=np.float64)
    _refuse_missing(seconds, column)
    late = np.abs(seconds) > _LATEST
    if late.any():
        msg = (
            "timestamps: must be seconds since 1970 or dates; these look like milliseconds "
            f"({seconds[late][0]:g} in {_place(late, column)}, for example)"
        )
        raise ValueError(msg)
    return seconds


def _first_text(times: pd.Series[Any], column: Hashable | None) -> str:
    """Return the first time that is no number and no date, and its row, for an error message."""
    undated = pd.to_datetime(times, utc=True, format="ISO8601", errors="coerce").isna().to_numpy()
    texts = undated & ~np.array([_is_real(time) for time in times.tolist()], dtype=bool)
    strange = texts if texts.any() else undated
    return f"found {times[strange].tolist()[0]!r} in {_place(strange, column)}"


def _refuse_missing(times: NDArray[Any], column: Hashable | None) -> None:
    """Raise an error if a time is NaN, NaT, None or infinite."""
    numbers = times.dtype.kind in "iufbM"
    missing = ~np.isfinite(times) if numbers else pd.isna(times)
    if missing.any():
        msg = (
            f"timestamps: a time is missing (NaN) or infinite, in {_place(missing, column)}; leave "
            "out such pairs, or pass no times"
        )
        raise ValueError(msg)


def _place(wrong: NDArray[np.bool_], column: Hashable | None) -> str:
    """Return the name of the first wrong row, and of its column."""
    row = row_name(int(np.argmax(wrong)))
    return row if column is None else f"{row} of column {column!r}"
