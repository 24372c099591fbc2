"""Error messages that name the column of a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def column_names(X: Any) -> list[Any] | None:
    """Return the column names of a table of pandas, polars or Arrow; None for other data."""
    # The attribute `columns` of an Arrow table holds the values.
    names = getattr(X, "column_names", getattr(X, "columns", None))
    return None if names is None or callable(names) else list(names)


@contextmanager
def naming_columns(name: str, X: Any) -> Iterator[None]:
    """Name the column in the error message if a conversion to numbers fails on a string.

    Raises
    ------
    ValueError
        If the block raises one because of a string, or if a column of the table cannot be
        converted.
    """
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("could not convert string to float"):
            raise
        msg = (
            f"{name}: {error}{_place(X)}; convert strings to numbers, for example with "
            "OneHotEncoder in a ColumnTransformer"
        )
        raise ValueError(msg) from error


def with_missing_column(error: ValueError, X: Any) -> ValueError | None:
    """Return the core's error about NaN with column name and remedy, or None for other errors."""
    found = re.fullmatch(r"(X: contains [^,]*NaN[^,]*,.*) column (\d+)", str(error))
    if found is None:
        return None
    number, columns = int(found[2]), column_names(X)
    known = columns is not None and number < len(columns)
    column = repr(columns[number]) if columns is not None and known else number
    remedy = "fill missing values, for example with SimpleImputer in a pipeline"
    return ValueError(f"{found[1]} column {column}; {remedy}")


def _place(X: Any) -> str:
    """Return the first column that cannot be converted, as the end of a message."""
    columns = column_names(X)
    table = np.asarray(X, dtype=object)
    if table.ndim != 2:
        return ""
    for number, column in enumerate(table.T):
        try:
            column.astype(np.float64)
        except (TypeError, ValueError):
            return f", in column {number if columns is None else columns[number]!r}"
    return ""
