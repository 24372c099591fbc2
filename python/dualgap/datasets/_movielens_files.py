"""Readers of MovieLens files in the formats of GroupLens (u.data, ratings.*) and RecBole."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

_RATINGS = ["user", "item", "rating", "timestamp"]
_IDS = _RATINGS[:2]
# A field that begins with a superfluous zero.
_PADDED = re.compile(rb'(?m)(?:^|[\t,"])0\d')
# The last columns of u.item, in order; their values are 0 or 1.
_GENRES = ["unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime"]
_GENRES += ["Documentary", "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery"]
_GENRES += ["Romance", "Sci-Fi", "Thriller", "War", "Western"]
_ITEMS = ["item", "title", "year", "genres"]
_RELEASE = ["date", "video_date", "url"]
_WORK = ["occupation", "zip_code"]
# Matches "(1995)", "(2006-2007)" or "(1995) (V)" at the end of a title.
_YEAR = r"\s*\((\d{4})(?:[-\u2013]\d{0,4})?\)(?: \(V\))?\s*$"
# Maps the column names of GroupLens and RecBole to ours.
_COLUMN_NAMES = {
    "userId": "user",
    "user_id": "user",
    "movieId": "item",
    "item_id": "item",
    "movie_title": "title",
    "release_year": "year",
    "class": "genres",
    "genre": "genres",
}

_File = Path | zipfile.Path
Tables = tuple[pd.DataFrame, pd.DataFrame | None, pd.DataFrame | None]


def read_movielens(path: Path) -> Tables:
    """Read ratings, items and users from a folder, a zip archive, or a file of ratings."""
    if path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = [zipfile.Path(archive, member) for member in archive.namelist()]
            return _parse(_find(members, path), members)
    files = list((path if path.is_dir() else path.parent).iterdir())
    file = _find(files, path) if path.is_dir() else path
    return _parse(file, files)


def _find(files: Sequence[_File], where: Path) -> _File:
    """Find the file of ratings."""
    for ending in ("u.data", "ratings.dat", "ratings.csv", ".inter"):
        found = [file for file in files if file.name.endswith(ending)]
        if len(found) > 1:
            raise ValueError(f"{where} contains several *{ending} files; pass the path of one")
        if found:
            return found[0]
    raise FileNotFoundError(
        f"{where}: none of the files u.data, ratings.dat, ratings.csv, *.inter found"
    )


def _parse(file: _File, neighbours: Sequence[_File]) -> Tables:
    stem, _, kind = file.name.rpartition(".")
    items = users = None
    named = {other.name: other for other in neighbours}
    if kind in ("data", "base", "test"):
        ratings = _table(file, "\t", _RATINGS)
        items = _texts(named.get("u.item"), "|", ["item", "title", *_RELEASE, *_GENRES])
        users = _texts(named.get("u.user"), "|", ["user", "age", "gender", *_WORK])
        if items is not None:
            flags = items[_GENRES].to_numpy() == 1
            items["genres"] = ["|".join(compress(_GENRES, row)) for row in flags]
    elif kind == "dat":
        ratings = _table(file, "::", _RATINGS)
        items = _texts(named.get("movies.dat"), "::", ["item", "title", "genres"])
        users = _texts(named.get("users.dat"), "::", ["user", "gender", "age", *_WORK])
    elif kind == "csv":
        ratings = _table(file, ",")
        items = _texts(named.get("movies.csv"), ",")
    elif kind == "inter":
        ratings = _table(file, "\t")
        items = _texts(named.get(f"{stem}.item"), "\t")
        users = _texts(named.get(f"{stem}.user"), "\t")
        if items is not None and "genres" in items:
            items["genres"] = items["genres"].str.replace(" ", "|")
    else:
        raise ValueError(f"{file} must end in .data, .dat, .csv or .inter")
    return _ratings(ratings, file), None if items is None else _items(items), users


def _texts(
    file: _File | None, separator: str, columns: list[str] | None = None
) -> pd.DataFrame | None:
    """Read an optional file of items or users; purely numeric columns become numbers."""
    if file is None:
        return None
    table = _table(file, separator, columns, dtype=str)
    # All titles or zip codes of a small file may look like numbers, but they are text.
    for name in table.columns.difference(["title", "genres", "zip_code"]):
        if name in _IDS and table[name].str.match(r"0\d").eq(True).any():
            continue
        with suppress(ValueError):
            table[name] = pd.to_numeric(table[name])
    return table


def _table(
    file: _File, separator: str, columns: list[str] | None = None, dtype: Any = None
) -> pd.DataFrame:
    """Read a file; it has a header unless `columns` are given."""
    data = file.read_bytes()
    is_padded = dtype is None and _PADDED.search(data) is not None
    if is_padded:
        # pandas would read the ids 07 and 7 as the same number.
        raw = [*_IDS, *(raw for raw, name in _COLUMN_NAMES.items() if name in _IDS)]
        dtype = dict.fromkeys([*raw, *(f"{name}:token" for name in raw)], str)
        if columns:
            dtype = {at: str for at, name in enumerate(columns) if name in _IDS}
    if separator == "::":  # pandas is slow on separators of two characters
        data, separator = data.replace(b"::", b"\t"), "\t"
    encoding = "utf-8"
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        encoding = "latin-1"
    try:
        table = pd.read_csv(
            io.BytesIO(data),
            sep=separator,
            header=None if columns else 0,
            dtype=dtype,
            encoding=encoding,
            keep_default_na=False,
            na_values=[""],
            quoting=csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE,
        )
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    if columns and len(columns) != table.shape[1]:
        raise ValueError(f"{file} has {table.shape[1]} columns, expected {columns}")
    names = columns or [str(column).partition(":")[0] for column in table.columns]
    table.columns = pd.Index([_COLUMN_NAMES.get(name, name) for name in names])
    return with_integer_ids(table, _IDS) if is_padded else table


def with_integer_ids(table: pd.DataFrame, names: Iterable[Any]) -> pd.DataFrame:
    """Convert columns of text to integers if that keeps all values distinct ("07" stays text)."""
    for name in table.columns.intersection(list(names)):
        distinct = pd.Series(table[name].unique())
        if distinct.str.fullmatch(r"0|-?[1-9]\d{0,17}").eq(True).all():
            table[name] = table[name].astype(np.int64)
    return table


def _ratings(table: pd.DataFrame, file: _File) -> pd.DataFrame:
    missing = [name for name in _RATINGS[:3] if name not in table]
    if missing:
        raise ValueError(f"{file}: missing columns {missing}")
    table = table[[name for name in _RATINGS if name in table]]
    if table.empty:
        raise ValueError(f"{file}: the file contains no ratings")
    if table.isna().to_numpy().any():
        raise ValueError(f"{file}: the file has empty fields")
    found = {"rating": rating_numbers(table["rating"], file)}
    if "timestamp" in table:
        found["timestamp"] = seconds(table["timestamp"], file)
    return table.assign(**found)


def rating_numbers(ratings: pd.Series[Any], file: object) -> pd.Series[Any]:
    """Convert ratings to numbers; an error names the file and the row."""
    numbers = _numbers(ratings).astype(np.float64)
    _refuse(~np.isfinite(numbers), ratings, file, "is not a finite number")
    return numbers


def seconds(times: pd.Series[Any], file: object) -> pd.Series[Any]:
    """Convert dates (in ISO 8601 and other formats) to seconds since 1970; keep numbers."""
    numbers = _numbers(times)
    if numbers.notna().any():
        _refuse(~np.isfinite(numbers), times, file, "is not a finite number, unlike others")
        is_whole = bool(((numbers % 1 == 0) & (numbers.abs() < 2**53)).all())
        return numbers.astype(np.int64) if is_whole else numbers
    dates = pd.to_datetime(times, utc=True, format="mixed", errors="coerce")
    _refuse(dates.isna(), times, file, "is neither a number nor a date")
    return (dates - pd.Timestamp(0, unit="s", tz="UTC")).dt.total_seconds()


def _numbers(values: pd.Series[Any]) -> pd.Series[Any]:
    """Return numbers, and NaN for text and dates that spell no number."""
    if pd.api.types.is_numeric_dtype(values):
        return values
    # pandas would convert dates to integers, but not their text.
    return pd.to_numeric(values.astype(str), errors="coerce")


def _refuse(wrong: Any, given: pd.Series[Any], file: object, problem: str) -> None:
    """Raise an error for the first wrong value."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        value = given.iloc[rows[:1]].tolist()[0]
        raise ValueError(f"{file}: row {rows[0] + 1}: the {given.name} {value!r} {problem}")


def _items(table: pd.DataFrame) -> pd.DataFrame:
    table = table.reindex(columns=_ITEMS)
    title = table["title"].astype("string")
    in_title = pd.to_numeric(title.str.extract(_YEAR)[0]).astype("Int64")
    year = pd.to_numeric(table["year"], errors="coerce").astype("Int64")
    return table.assign(
        title=title.str.replace(_YEAR, "", regex=True), year=year.where(year.notna(), in_title)
    )
