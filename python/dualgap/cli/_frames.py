"""Tables whose columns have names: CSV and Parquet."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

# Imported where a table is read: LIBSVM and NumPy files do without pandas.
if TYPE_CHECKING:
    import pandas as pd

_LABEL_NAMES = ("label", "target", "class", "y")


class RefusedError(ValueError):
    """Data that were read and cannot be used; the message is complete."""


@dataclass
class Frame:
    """A table from the file `path`."""

    path: Path
    data: pd.DataFrame

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [str(name) for name in self.data.columns]

    def labels_column(
        self, wanted: str | None, trained: str | None, known: Sequence[str] | None, *, need: bool
    ) -> str | None:
        """Name the labels' column: as asked for, as in the training file, or by its usual names.

        Where the names of the model's features are known, none of them is taken for a label.
        """
        names, path = self.names, self.path
        if wanted is not None and wanted not in names:
            raise RefusedError(f"{path}: has no column {wanted!r}, only {', '.join(names)}")
        usual = (name for name in _LABEL_NAMES if name in names and name not in (known or ()))
        name = wanted or (trained if trained in names else None) or next(usual, None)
        if name is None and need:
            msg = f"{path}: name the labels' column with --label (columns: {', '.join(names)})"
            raise RefusedError(msg)
        return name

    def take_labels(self, name: str) -> NDArray[Any]:
        """Remove a column and return it."""
        labels = self.data.pop(name)
        missing = np.flatnonzero(labels.isna())
        if len(missing):
            msg = f"{self.path}: column {name!r} has missing labels, the first in row "
            raise RefusedError(f"{msg}{missing[0] + 1}")
        return tidy(labels.to_numpy())

    def arrange(self, known: Sequence[str] | None) -> tuple[str, ...]:
        """Put the columns into the order of the model's features; notes of those left out."""
        if known is None:
            return ()
        missing = [name for name in known if name not in self.data.columns]
        if missing:
            msg = f"{self.path}: has no column {missing[0]!r}, which the model was fitted with"
            raise RefusedError(msg)
        others = [name for name in self.names if name not in set(known)]
        self.data = self.data[list(known)]
        if not others:
            return ()
        names = ", ".join(map(repr, others))
        return (f"{self.path}: left out, since the model was fitted without: {names}",)

    def numbers(self) -> NDArray[np.float64]:
        """All columns as numbers."""
        import pandas as pd

        for name, column in self.data.items():
            if column.dtype.kind in "iufb":
                continue
            wrong = pd.to_numeric(column, errors="coerce").isna() & column.notna()
            rows = np.flatnonzero(wrong)
            where = f", row {rows[0] + 1}" if len(rows) else ""
            msg = f"{self.path}: not a number in column {name!r}{where}; encode it or leave it out"
            raise RefusedError(msg)
        return self.data.to_numpy(dtype=np.float64, na_value=np.nan)


def read_frame(file: IO[bytes], path: Path, kind: str, separator: str) -> Frame:
    """Read a table that has rows, and columns with distinct names."""
    if find_spec("pandas") is None:
        msg = f"{path}: reading CSV and Parquet needs pandas: pip install 'dualgap[recommend]'"
        raise RefusedError(msg)
    import pandas as pd

    if kind == "csv":
        data = _read_csv(file, path, separator)
    else:
        try:
            data = pd.read_parquet(file)
        except ImportError as error:
            msg = f"{path}: reading Parquet needs pyarrow: pip install pyarrow"
            raise RefusedError(msg) from error
    data.columns = _distinct(path, data.columns)
    if len(data) == 0:
        raise RefusedError(f"{path}: has no rows")
    return Frame(path, data)


def _read_csv(file: IO[bytes], path: Path, separator: str) -> pd.DataFrame:
    import pandas as pd

    start = file.tell()
    # Read apart, since pandas gives columns of the same name other names.
    header = pd.read_csv(file, sep=separator, header=None, nrows=1, dtype=str, na_filter=False)
    _distinct(path, header.iloc[0])
    file.seek(start)
    with warnings.catch_warnings():
        # pandas would leave the last fields out.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            return pd.read_csv(file, sep=separator, index_col=False, low_memory=False)
        except pd.errors.ParserWarning as warning:
            msg = f"{path}: a row has more fields than the {header.shape[1]} of the header"
            raise RefusedError(msg) from warning


def _distinct(path: Path, names: Iterable[Any]) -> pd.Index[Any]:
    import pandas as pd

    columns = pd.Index([str(name) for name in names])
    if not columns.is_unique:
        name = columns[columns.duplicated()][0]
        raise RefusedError(f"{path}: has two columns {name!r}")
    return columns


def tidy(y: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers as integers, anything but numbers as text."""
    if y.dtype.kind == "f" and np.array_equal(y, np.trunc(y)) and np.abs(y).max(initial=0) < 2**53:
        return y.astype(np.int64)
    return y if y.dtype.kind in "iufb" else y.astype(np.str_)
