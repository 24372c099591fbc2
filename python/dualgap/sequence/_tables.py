"""Tables with named rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap._validation import FloatArray

__all__ = ["LabelledTable"]


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """Numbers with named rows and columns.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns)
        The numbers.
    rows, columns : list
        Names of the rows and of the columns.

    Examples
    --------
    >>> table = LabelledTable(np.array([[1.0, -2.5]]), ["B"], ["B", "I"])
    >>> table["B", "I"]
    -2.5
    >>> print(table)
           B       I
    B  1.000  -2.500
    """

    values: FloatArray
    rows: list[Any]
    columns: list[Any]

    def __getitem__(self, names: tuple[Any, Any]) -> float:
        row, column = names
        return float(self.values[self.rows.index(row), self.columns.index(column)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __str__(self) -> str:
        cells = [["", *map(str, self.columns)]]
        for name, values in zip(self.rows, self.values, strict=True):
            cells.append([str(name), *(f"{value:.3f}" for value in values)])
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        lines = []
        for name, *numbers in cells:
            padded = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
            lines.append("  ".join([name.ljust(widths[0]), *padded]))
        return "\n".join(lines)

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame (requires pandas)."""
        import pandas as pd

        return pd.DataFrame(self.values, index=self.rows, columns=self.columns)
