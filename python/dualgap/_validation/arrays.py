"""Conversion of arrays from other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np


def as_numpy(name: str, values: Any) -> Any:
    """Convert an array of another library to NumPy; return anything else unchanged.

    scikit-learn does not convert such arrays while ``array_api_dispatch`` is on. The core reads
    only NumPy arrays, so every array argument passes through this function.

    Raises
    ------
    TypeError
        If the array cannot be converted, for example from a GPU. The message names the argument.
    ValueError
        If entries are masked, because NumPy and scikit-learn would use the numbers under the mask.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        msg = f"{name}: has masked entries; leave out their rows, or fill them (a.filled(...))"
        raise ValueError(msg)
    # Looked up in the type, because pandas would search the columns of a table.
    kind = type(values)
    foreign = hasattr(kind, "__array_namespace__") or hasattr(kind, "__dlpack__")
    if not foreign or isinstance(values, np.ndarray | np.generic):
        return values
    try:
        array = np.asarray(values)
    except Exception as error:
        msg = (
            f"{name}: an array of {type(values).__module__.partition('.')[0]} could not be "
            f"converted to NumPy ({error}); convert it on the CPU and pass the result"
        )
        raise TypeError(msg) from error
    # Strings and dictionaries of Arrow correctly become object arrays.
    if array.dtype.kind == "O" and not hasattr(values, "__arrow_c_array__"):
        msg = f"{name}: {type(values).__name__} does not convert to NumPy; pass a NumPy array"
        raise TypeError(msg)
    return array


def real_numbers(name: str, values: Any) -> Any:
    """Return the result of `as_numpy`, which must be convertible to an array of numbers.

    Raises
    ------
    TypeError
        For dates, which scikit-learn treats as numbers, and for anything that is not an array, such
        as a dictionary or a generator. The message names the argument.
    ValueError
        For strings, even if they spell numbers.
    """
    values = as_numpy(name, values)
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    is_text = isinstance(values, str | bytes)
    if kind is None and (is_text or not hasattr(values, "__array__")):
        # For None, scikit-learn has a better message.
        if values is not None and (is_text or not isinstance(values, Sequence | Real)):
            lazy = "; call its method collect()" if hasattr(values, "collect") else ""
            msg = f"{name}: must be an array, got {type(values).__name__}{lazy}"
            raise TypeError(msg)
    elif kind in ("m", "M"):
        msg = f"{name}: must be numbers, got {values.dtype}; convert it, for example to days"
        raise TypeError(msg)
    if kind in ("S", "U") or (kind is None and _has_text(values)):
        raise text_error(name)
    return values


def text_error(name: str) -> ValueError:
    """Return the error for strings in place of numbers."""
    return ValueError(
        f"{name}: must be numbers, got strings; convert them, for example with astype(float)"
    )


def _has_text(values: Any) -> bool:
    """Return whether the first element of a list, or of a list of rows, is text."""
    for _ in range(2):
        values = values[0] if isinstance(values, list | tuple) and values else values
    return isinstance(values, str | bytes)
