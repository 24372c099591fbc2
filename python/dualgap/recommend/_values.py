"""Validation of the values of ratings, of counts of clicks, and of times."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dualgap._validation import FloatArray, real_array
from dualgap.recommend._ids import row_name, warn_input

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
