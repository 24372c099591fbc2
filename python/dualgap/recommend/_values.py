"""Validation of the values of ratings, and of counts of clicks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap._validation import FloatArray, real_array
from dualgap.recommend._ids import warn_input

_RATINGS = (
    "if the values are ratings, set the smallest rating of a like with "
    "interactions=Interactions(like_threshold=...)"
)


def read_values(values: Any, name: str, first: int, *, counts: bool) -> FloatArray:
    """Read the values of ratings; counts of clicks must not be negative.

    Error messages name the column (or argument) `name`, and number the rows from `first`.
    """

    def row(wrong: NDArray[np.bool_]) -> str:
        return f"row {int(np.argmax(wrong)) + first} (counted from 0)"

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
