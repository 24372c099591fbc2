"""Reading of tables with named columns: CSV and Parquet."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

# Imported only to read a table, since LIBSVM and NumPy files do not need pandas.
if TYPE_CHECKING:
    import pandas as pd

_LABEL_NAMES = ("label", "target", "class", "y")


class RefusedError(ValueError):
    """Error for data that can be read but not used. The message already names the file."""


@dataclass
class Frame:
    """A table read from the file `path`."""

    path: Path
    data: pd.DataFrame

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [str(name) for name in self.data.columns]

    def labels_column(
        self, wanted: str | None, trained: str | None, known: Sequence[str] | None, *, need: bool
    ) -> str | None:
        """Find the label column: `wanted`, else `trained`, else a column with a usual name.

        The usual names are tried in a fixed order. Features of the model are skipped.
        """
        names, path = self.names, self.path
        if wanted is not None and wanted not in names:
            raise RefusedError(f"{path}: no column {wanted!r}; the columns are {', '.join(names)}")
        usual = (name for name in _LABEL_NAMES if name in names and name not in (known or ()))
        name = wanted or (trained if trained in names else None) or next(usual, None)
        if name is None and need:
            msg = f"{path}: no label column; name it with --label (columns: {', '.join(names)})"
            raise RefusedError(msg)
        return name

    def take_labels(self, name: str) -> NDArray[Any]:
        """Remove a column and return it."""
        labels = self.data.pop(name)
        missing = np.flatnonzero(labels.isna())
        if len(missing):
            msg = f"{self.path}: the label column {name!r} has missing values, the first in row "
            raise RefusedError(f"{msg}{missing[0] + 1}")
        return tidy(labels.to_numpy())

    def arrange(self, known: Sequence[str] | None) -> tuple[str, ...]:
        """Put columns into the order of the model's features; return notes on dropped columns."""
        if known is None:
            return ()
        missing = [name for name in known if name not in self.data.columns]
        if missing:
            msg = f"{self.path}: no column {missing[0]!r}, which is a feature of the model"
            raise RefusedError(msg)
        others = [name for name in self.names if name not in set(known)]
        self.data = self.data[list(known)]
        if not others:
            return ()
        names = ", ".join(map(repr, others))
        return (f"{self.path}: ignored columns that are not features of the model: {names}",)

    def numbers(self) -> NDArray[np.float64]:
        """Return all columns as a matrix of numbers."""
        import pandas as pd

        for name, column in self.data.items():
            if column.dtype.kind in "iufb":
                continue
            wrong = pd.to_numeric(column, errors="coerce").isna() & column.notna()
            rows = np.flatnonzero(wrong)
            where = f", row {rows[0] + 1}" if len(rows) else ""
            msg = (
                f"{self.path}: column {name!r}{where}: not a number; encode the column as numbers "
                "or remove it"
            )
            raise RefusedError(msg)
        return self.data.to_numpy(dtype=np.float64, na_value=np.nan)


def read_frame(file: IO[bytes], path: Path, kind: str, separator: str) -> Frame:
    """Read a table; raise an error if it has no rows or repeats a column name."""
    if find_spec("pandas") is None:
        msg = f"{path}: CSV and Parquet files require pandas: pip install 'dualgap[recommend]'"
        raise RefusedError(msg)
    import pandas as pd

    if kind == "csv":
        data = _read_csv(file, path, separator)
    else:
        try:
            data = pd.read_parquet(file)
        except ImportError as error:
            msg = f"{path}: reading Parquet requires pyarrow: pip install pyarrow"
            raise RefusedError(msg) from error
    data.columns = _distinct(path, data.columns)
    if len(data) == 0:
        raise RefusedError(f"{path}: the table has no rows")
    return Frame(path, data)


def _read_csv(file: IO[bytes], path: Path, separator: str) -> pd.DataFrame:
    import pandas as pd

    start = file.tell()
    # Read the header separately, since pandas renames repeated columns.
    header = pd.read_csv(file, sep=separator, header=None, nrows=1, dtype=str, na_filter=False)
    _distinct(path, header.iloc[0])
    file.seek(start)
    with warnings.catch_warnings():
        # For a row with too many fields, pandas only warns, and drops the extra fields.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            return pd.read_csv(file, sep=separator, index_col=False, low_memory=False)
        except pd.errors.ParserWarning as warning:
            msg = f"{path}: a row has more fields than the header, which has {header.shape[1]}"
            raise RefusedError(msg) from warning


def _distinct(path: Path, names: Iterable[Any]) -> pd.Index[Any]:
    import pandas as pd

    columns = pd.Index([str(name) for name in names])
    if not columns.is_unique:
        name = columns[columns.duplicated()][0]
        raise RefusedError(f"{path}: two columns have the name {name!r}; rename one")
    return columns


def tidy(y: NDArray[Any]) -> NDArray[Any]:
    """Convert whole numbers to integers, and all values that are not numbers to strings."""
    if y.dtype.kind == "f" and np.array_equal(y, np.trunc(y)) and np.abs(y).max(initial=0) < 2**53:
        return y.astype(np.int64)
    return y if y.dtype.kind in "iufb" else y.astype(np.str_)
