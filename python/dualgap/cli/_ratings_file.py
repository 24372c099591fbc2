"""Reading of rating tables with arbitrary column names, in CSV, TSV or Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dualgap.datasets import Ratings
from dualgap.datasets._movielens_files import rating_numbers, seconds, with_integer_ids


@dataclass(frozen=True)
class FileColumns:
    """Columns of users, items, ratings and times.

    Each is a name, or a number from 1 if the file has no header.
    """

    user: str | None = None
    item: str | None = None
    rating: str | None = None
    timestamp: str | None = None
    header: bool = True

    @property
    def given(self) -> bool:
        """Whether any column option was given."""
        return not self.header or any((self.user, self.item, self.rating, self.timestamp))


_KNOWN = {
    "user": ("user", "userId", "user_id", "userid", "USER"),
    "item": ("item", "itemId", "item_id", "movieId", "movie_id", "product_id"),
    "rating": ("rating", "Rating", "stars", "score"),
    "timestamp": ("timestamp", "time", "date"),
}


def read_ratings_file(path: Path, columns: FileColumns, *, likes: bool) -> Ratings:
    """Read users, items, ratings and, if present, times; likes without ratings get rating 1."""
    table = _read(path, columns)
    found: dict[str, Any] = {}
    for number, role in enumerate(_KNOWN):
        name = _find(table, role, number, columns)
        if name is not None:
            found[role] = table[name]
        elif role == "rating" and likes:
            found[role] = np.ones(len(table))
        elif role != "timestamp":
            have = ", ".join(map(str, table.columns))
            msg = f"{path}: no {role} column found; name it with --{role}-column (columns: {have})"
            raise ValueError(msg)
    ratings = pd.DataFrame(found)
    if ratings.empty:
        msg = f"{path}: the file contains no ratings"
        raise ValueError(msg)
    empty = ratings.isna()
    if empty.to_numpy().any():
        column = empty.columns[int(empty.any(axis=0).to_numpy().argmax())]
        row = int(empty[column].to_numpy().argmax()) + 1
        msg = f"{path}: row {row}: missing {column}"
        raise ValueError(msg)
    ratings["rating"] = rating_numbers(ratings["rating"], path)
    if "timestamp" in ratings:
        ratings["timestamp"] = seconds(ratings["timestamp"], path)
    return Ratings(ratings, None, None, str(path), "path", path)


def _read(path: Path, columns: FileColumns) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    separator = "\t" if path.suffix in (".tsv", ".tab", ".data") else ","
    header = 0 if columns.header else None
    # pandas would read the ids 07 and 7 as the same number.
    names: set[Any] = {columns.user, columns.item, *_KNOWN["user"], *_KNOWN["item"]}
    if not columns.header:
        given = (columns.user or "1", columns.item or "2")
        names = {int(each) - 1 for each in given if each.isdecimal()}
    kinds: Any = dict.fromkeys(names - {None}, str)
    try:
        table = pd.read_csv(path, sep=separator, header=header, dtype=kinds)
    except (UnicodeDecodeError, ValueError) as error:
        msg = f"{path}: {error}"
        raise ValueError(msg) from error
    return with_integer_ids(table, names)


def _find(table: pd.DataFrame, role: str, number: int, columns: FileColumns) -> Any:
    """Return the name of the column for a role, or None if it is missing."""
    given = getattr(columns, role)
    if not columns.header:
        place = number if given is None else int(given) - 1 if given.isdecimal() else -1
        return table.columns[place] if 0 <= place < table.shape[1] else None
    if given is not None:
        return given if given in table else None
    return next((name for name in _KNOWN[role] if name in table), None)
