"""Conversion between tables of pandas, polars, Arrow and modin, and reading of tables in parts."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

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
