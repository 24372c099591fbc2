"""Error messages that name the column of a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_feature_names


def column_names(X: Any) -> list[Any] | None:
    """Return the column names of a table of pandas, polars or Arrow; None for other data."""
    # The attribute `columns` of an Arrow table holds the values.
    names = getattr(X, "column_names", getattr(X, "columns", None))
    return None if names is None or callable(names) else list(names)


def _refuse_dates(name: str, X: Any) -> None:
    """Raise a TypeError that names the first column of dates or durations in a table.

    NumPy would take dates for numbers, or find no common type with the other columns.
    """
    names = column_names(X)
    types = getattr(getattr(X, "schema", None), "types", getattr(X, "dtypes", None))
    if names is None or types is None:
        return
    for column, kind in zip(names, types, strict=True):
        if re.match("date|time|duration|period", str(kind), re.IGNORECASE):
            msg = (
                f"{name}: column {column!r} has the type {kind}; convert dates to numbers, for "
                "example to days since the first date"
            )
            raise TypeError(msg)


def feature_names(X: Any) -> Any:
    """Return the column names of a table, or of all tables in a list; None if there are no names.

    Raises
    ------
    ValueError
        If the tables of a list differ in their columns.
    """
    found = SimpleNamespace()
    _check_feature_names(found, _common_table(X), reset=True)
    return getattr(found, "feature_names_in_", None)


def check_columns(estimator: Any, X: Any) -> None:
    """Raise a ValueError if a table, or a table in a list, differs from training in its columns."""
    _check_feature_names(estimator, _common_table(X), reset=False)


def set_feature_names(estimator: Any, names: Any) -> None:
    """Store the result of `feature_names`."""
    estimator.__dict__.pop("feature_names_in_", None)
    if names is not None:
        estimator.feature_names_in_ = names


def _common_table(X: Any) -> Any:
    """Return the first table of a list of tables with equal columns; other data unchanged."""
    if not isinstance(X, list | tuple) or not X or column_names(X[0]) is None:
        return X
    names = column_names(X[0])
    for index, table in enumerate(X):
        if column_names(table) != names:
            msg = (
                f"X: example {index} has the columns {column_names(table)}, and example 0 has "
                f"{names}; give all tables the same columns in the same order"
            )
            raise ValueError(msg)
    return X[0]


@contextmanager
def naming_columns(name: str, X: Any) -> Iterator[None]:
    """Name the column in the error message if a conversion to numbers fails on a string or date.

    Raises
    ------
    TypeError
        If a column of the table contains dates.
    ValueError
        If the block raises a ValueError because of a string, or if a column of the table cannot be
        converted.
    """
    _refuse_dates(name, X)
    try:
        yield
    except ValueError as error:
        # pandas words the error in the second way for a category next to a nullable column.
        if not str(error).startswith(("could not convert string to float", "Cannot cast str")):
            raise
        msg = (
            f"{name}: {error}{_place(X)}; convert strings to numbers, for example with "
            "OneHotEncoder in a ColumnTransformer"
        )
        raise ValueError(msg) from error


def with_missing_column(error: ValueError, X: Any) -> ValueError | None:
    """Return the core's error about NaN or infinity with column name and a remedy, or None."""
    found = re.fullmatch(r"(X: contains (?:NaN|infinity)[^,]*,.*) column (\d+)", str(error))
    if found is None:
        return None
    number, columns = int(found[2]), column_names(X)
    known = columns is not None and number < len(columns)
    column = repr(columns[number]) if columns is not None and known else number
    remedy = "fill missing values, for example with SimpleImputer in a pipeline"
    if "NaN" not in found[1]:
        remedy = "replace it by a finite number, or by NaN and fill missing values"
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
