"""Tables of pandas, polars, Arrow and modin."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd

# Libraries whose tables are read, besides pandas.
_LIBRARIES = ("polars", "pyarrow", "modin")


def table_kind(table: Any) -> str | None:
    """Return the library of a table or column, None for anything else."""
    library = type(table).__module__.partition(".")[0]
    if isinstance(table, pd.DataFrame | pd.Series | pd.Index):
        return "pandas"
    return library if library in _LIBRARIES else None


def as_pandas(table: Any, columns: Collection[str] | None = None) -> Any:
    """Convert a table of another library to a DataFrame; return anything else unchanged.

    Only the given columns are converted, those that the table has.
    """
    if table_kind(table) in (None, "pandas"):
        return table
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return table
    wanted = [name for name in frame.columns if columns is None or name in columns]
    return pd.DataFrame({name: frame[name].to_numpy() for name in wanted}, copy=False)


def like_table(table: pd.DataFrame, kind: str) -> Any:
    """Convert a DataFrame to a table of another library."""
    if kind == "pandas":
        return table
    import narwhals as nw

    # A NumPy array of objects would become a column of objects, not of strings.
    columns = {
        str(name): column.to_numpy() if column.dtype.kind in "biufM" else column.to_list()
        for name, column in table.items()
    }
    backend: Any = kind
    return nw.from_dict(columns, backend=backend).to_native()
