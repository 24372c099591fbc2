"""MovieLens ratings, from wherever they can be had, and synthetic ratings of any size."""

import csv
import hashlib
import io
import logging
import os
import queue
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import compress
from pathlib import Path
from typing import IO, Literal
from urllib.request import urlopen

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["Ratings", "fetch_movielens", "synthetic_ratings"]

_log = logging.getLogger("dualgap")

_GROUPLENS = "https://files.grouplens.org/datasets/movielens"
_WHEEL = "recbole-1.2.1-py3-none-any.whl"
_ARCHIVES = {
    "100k": {"download": "ml-100k.zip", "recbole": _WHEEL},
    "1m": {"download": "ml-1m.zip"},
    "latest-small": {"download": "ml-latest-small.zip"},
}
# latest-small changes from time to time, so only the server knows its checksum.
_MD5 = {
    "ml-100k.zip": "0e33842e24a9c977be4e0107933c0723",
    "ml-1m.zip": "c4d9eecfca2ab87c1945afe126590906",
}
_WHEEL_FOLDER = "recbole/dataset_example/ml-100k/"
_WHEEL_SHA256 = {
    "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
    "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
    "ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
}

_RATINGS = ["user", "item", "rating", "timestamp"]
# The last columns of u.item, 0 or 1, in their order.
_GENRES = ["unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime"]
_GENRES += ["Documentary", "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery"]
_GENRES += ["Romance", "Sci-Fi", "Thriller", "War", "Western"]
_ITEMS = ["item", "title", "year", "genres"]
_RELEASE = ["date", "video_date", "url"]
_WORK = ["occupation", "zip_code"]
# "(1995)", "(2006-2007)", "(1995) (V)" at the end of a title.
_YEAR = r"\s*\((\d{4})(?:[-\u2013]\d{0,4})?\)(?: \(V\))?\s*$"
# What GroupLens' and RecBole's headers call our columns.
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


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings and what is known of the users and items.

    Attributes
    ----------
    ratings : pandas.DataFrame
        Columns ``user``, ``item``, ``rating`` (float) and ``timestamp`` (seconds, integer), the
        rows in their stored order.
    items : pandas.DataFrame or None
        Columns ``item``, ``title`` (without the year), ``year`` (nullable integer) and
        ``genres`` (joined by ``|``).
    users : pandas.DataFrame or None
        Column ``user`` and what the files hold besides: age, gender, occupation, zip_code.
    name : str
        The name that was asked for.
    source : str
        What answered: "path", "cache", "download" or "recbole".
    path : pathlib.Path
        The file or folder that was read.
    """

    ratings: pd.DataFrame = field(repr=False)
    items: pd.DataFrame | None = field(repr=False)
    users: pd.DataFrame | None = field(repr=False)
    name: str
    source: str
    path: Path


def fetch_movielens(
    name: str | os.PathLike[str] = "100k",
    *,
    source: Literal["auto", "cache", "download", "recbole"] = "auto",
    data_home: str | os.PathLike[str] | None = None,
    timeout: float = 5.0,
) -> Ratings:
    """Load a MovieLens data set, from a path, the cache, or over the network.

    Parameters
    ----------
    name : str or path-like, default="100k"
        "100k", "1m" or "latest-small"; or the path of a folder, a zip archive or a file of
        ratings in GroupLens' formats (``u.data``, ``ratings.dat``, ``ratings.csv``) or RecBole's
        (``*.inter``). Titles and users are read from the files beside it, where there are any.
    source : {"auto", "cache", "download", "recbole"}, default="auto"
        Where a named data set may come from. "auto" tries, in this order, the cache, GroupLens'
        server ("download") and, for "100k", the copy inside the PyPI wheel recbole 1.2.1
        ("recbole", by ``pip download``). The last two keep what they get in the cache and look
        there first. "cache" never uses the network.
    data_home : str or path-like, default=None
        Folder of the cache. By default the environment variable ``DUALGAP_HOME``, or else
        ``dualgap`` in ``XDG_CACHE_HOME`` or ``~/.cache``.
    timeout : float, default=5.0
        Seconds after which a server that does not answer is skipped, with one warning on the
        logger "dualgap". The package index gets six times as long, for pip to start.

    Returns
    -------
    Ratings
        The tables; ratings in the order of the file, so that a seed gives the same split
        everywhere.

    Raises
    ------
    ValueError
        If an argument is out of its range, a checksum is wrong, or a file cannot be parsed.
    OSError
        If the path does not exist or no source answers.

    Notes
    -----
    The ratings belong to GroupLens Research at the University of Minnesota. Their terms allow
    use for research, ask for acknowledgement [1]_, and allow neither redistribution nor
    commercial use without permission. dualgap contains none of them; what this function fetches
    stays in the cache of whoever called it.

    References
    ----------
    .. [1] F. M. Harper and J. A. Konstan, The MovieLens Datasets: History and Context,
       ACM Transactions on Interactive Intelligent Systems 5, 4 (2015).
    """
    name = os.fspath(name)
    if not timeout > 0:
        raise ValueError(f"timeout must be positive, got {timeout!r}")
    if source not in ("auto", "cache", "download", "recbole"):
        raise ValueError(f"source must be 'auto', 'cache', 'download' or 'recbole', got {source!r}")
    if name not in _ARCHIVES:
        if source != "auto":
            raise ValueError(f"source={source!r} needs one of the names {sorted(_ARCHIVES)}")
        return _read(Path(name).expanduser(), name, "path")

    archives = _ARCHIVES[name]
    if source in ("download", "recbole"):
        if source not in archives:
            raise ValueError(f"source={source!r} does not hold the data set {name!r}")
        archives = {source: archives[source]}
    home = _data_home(data_home)
    for file_name in archives.values():
        path = home / file_name
        if path.is_file():
            _check(path, path.read_bytes())
            return _read(path, name, "cache")
    if source == "cache":
        raise FileNotFoundError(f"no copy of MovieLens {name} in {home}")

    skipped = []
    for origin, file_name in archives.items():
        path = home / file_name
        try:
            data = _from_grouplens(timeout, path) if origin == "download" else _from_pip(timeout)
        except OSError as error:
            skipped.append(f"{origin}: {' '.join(str(error).split())}")
            _log.warning("MovieLens %s: skipped %s", name, skipped[-1])
            continue
        _check(path, data)
        _write(path, data)
        return _read(path, name, origin)
    raise OSError(
        f"no source of MovieLens {name} answered ({'; '.join(skipped)}); "
        "give the path of a copy instead"
    )


def synthetic_ratings(
    n_ratings: int,
    n_users: int,
    n_items: int,
    rank: int = 5,
    random_state: int | np.random.Generator | None = 0,
) -> pd.DataFrame:
    """Draw ratings from 1 to 5 from a low-rank model with biases and noise.

    Items and users have long-tailed popularity, and no user rates an item twice:

        rating = round(3.5 + b_user + b_item + <p_user, q_item> + noise), clipped to 1..5.

    Parameters
    ----------
    n_ratings : int
        Number of rows, at most ``n_users * n_items``.
    n_users : int
        Users are numbered from 0; some may have no rating.
    n_items : int
        Items are numbered from 0; some may have no rating.
    rank : int, default=5
        Length of the vectors p and q; 0 leaves the biases alone.
    random_state : int, numpy.random.Generator or None, default=0
        Seed.

    Returns
    -------
    pandas.DataFrame
        Columns ``user``, ``item``, ``rating`` and ``timestamp``, in random order.
    """
    for argument, value, least in (
        ("n_users", n_users, 1),
        ("n_items", n_items, 1),
        ("n_ratings", n_ratings, 1),
        ("rank", rank, 0),
    ):
        if value < least:
            raise ValueError(f"{argument} must be at least {least}, got {value!r}")
    if n_ratings > n_users * n_items:
        raise ValueError(
            f"n_ratings must be at most n_users * n_items = {n_users * n_items}, got {n_ratings}"
        )
    rng = np.random.default_rng(random_state)
    # The head of these power laws is about as heavy as MovieLens 100k's and 1M's.
    user_weight = (10.0 + rng.permutation(n_users)) ** -0.5
    item_weight = (10.0 + rng.permutation(n_items)) ** -0.6
    pairs = np.empty(0, dtype=np.int64)
    flatness = 1.0
    while len(pairs) < n_ratings:
        users = _draw(rng, user_weight**flatness, n_ratings)
        items = _draw(rng, item_weight**flatness, n_ratings)
        pairs = np.sort(np.concatenate((pairs, users * n_items + items)))
        # np.unique hashes integers since NumPy 2.3, five times slower on these.
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        # Popular pairs run out when the table is dense; flatter weights reach the rest.
        flatness *= 0.8
    user, item = np.divmod(rng.permutation(pairs)[:n_ratings], n_items)

    latent = 3.5 + rng.normal(0.0, 0.4, n_users)[user] + rng.normal(0.0, 0.5, n_items)[item]
    for _ in range(rank):
        p, q = rng.normal(0.0, 1.0, n_users), rng.normal(0.0, 0.5 / np.sqrt(rank), n_items)
        latent += p[user] * q[item]
    latent += rng.normal(0.0, 0.8, n_ratings)
    return pd.DataFrame(
        {
            "user": user,
            "item": item,
            "rating": np.clip(np.rint(latent), 1.0, 5.0),
            "timestamp": rng.integers(850_000_000, 900_000_000, n_ratings),
        }
    )


def _draw(
    rng: np.random.Generator, weight: NDArray[np.floating], n: int
) -> NDArray[np.signedinteger]:
    return rng.choice(len(weight), n, p=weight / weight.sum())


# --- Sources ---


def _from_grouplens(timeout: float, path: Path) -> bytes:
    url = f"{_GROUPLENS}/{path.name}"
    data = _download(url, timeout)
    if not zipfile.is_zipfile(io.BytesIO(data)):
        raise OSError(f"{url} answered something that is not a zip file")
    if path.name not in _MD5:
        try:
            published = _download(f"{url}.md5", timeout).decode("ascii", "replace")
        except OSError:
            return data
        # Either "<md5>  <file>" or "MD5 (<file>) = <md5>".
        for word in published.lower().split():
            if len(word) == 32:
                _verify("md5", data, word, url)
    return data


def _from_pip(timeout: float) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "recbole==1.2.1", "--no-deps"]
        command += ["--only-binary=:all:", "--quiet", "--no-input", "--retries=0"]
        command += ["--disable-pip-version-check", f"--timeout={timeout:g}", f"--dest={folder}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=6 * timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"pip did not finish in {6 * timeout:g} s") from None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise OSError(f"pip download recbole==1.2.1: {lines[-1]}")
        return (Path(folder) / _WHEEL).read_bytes()


def _download(url: str, timeout: float) -> bytes:
    answer: queue.SimpleQueue[IO[bytes] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answer.put(urlopen(url, timeout=timeout))
        except Exception as error:
            answer.put(error)

    # The timeout of urlopen does not cover looking up the host's name, which can hang.
    threading.Thread(target=ask, daemon=True).start()
    try:
        response = answer.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError(f"{url} did not answer in {timeout:g} s") from None
    if isinstance(response, Exception):
        raise OSError(f"{url}: {response}") from response
    try:
        with response:
            return response.read()
    except HTTPException as error:
        raise OSError(f"{url} broke off: {error}") from error


def _check(path: Path, data: bytes) -> None:
    """Refuse an archive whose checksum is known and is another one."""
    if path.name in _MD5:
        _verify("md5", data, _MD5[path.name], str(path))
    if path.name == _WHEEL:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as wheel:
                members = {name: wheel.read(_WHEEL_FOLDER + name) for name in _WHEEL_SHA256}
        except (KeyError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is not the wheel it should be: {error}") from error
        for name, content in members.items():
            _verify("sha256", content, _WHEEL_SHA256[name], f"{path}: {name}")


def _verify(algorithm: str, data: bytes, expected: str, what: str) -> None:
    found = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ValueError(
            f"{what}: wrong checksum, {algorithm} is {found}, expected {expected}; the data are "
            "not used. If this file is in the cache, delete it to fetch it again"
        )


def _data_home(data_home: str | os.PathLike[str] | None) -> Path:
    chosen = data_home or os.environ.get("DUALGAP_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dualgap"


def _write(path: Path, data: bytes) -> None:
    """Write all or nothing: an interrupted run leaves no half file in the cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)


# --- Formats ---


def _read(path: Path, name: str, source: str) -> Ratings:
    if not path.exists():
        names = ", ".join(map(repr, _ARCHIVES))
        raise FileNotFoundError(f"{path} does not exist, and is none of the names {names}")
    if path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = [zipfile.Path(archive, member) for member in archive.namelist()]
            return Ratings(*_parse(_find(members, path), members), name, source, path)
    files = list((path if path.is_dir() else path.parent).iterdir())
    file = _find(files, path) if path.is_dir() else path
    return Ratings(*_parse(file, files), name, source, path)


def _find(files: Sequence[_File], where: Path) -> _File:
    """Pick the file of ratings."""
    for ending in ("u.data", "ratings.dat", "ratings.csv", ".inter"):
        found = [file for file in files if file.name.endswith(ending)]
        if len(found) > 1:
            raise ValueError(f"{where} holds several files *{ending}; give the path of one")
        if found:
            return found[0]
    raise FileNotFoundError(f"{where} holds no u.data, ratings.dat, ratings.csv or *.inter")


def _parse(
    file: _File, beside: Sequence[_File]
) -> tuple[pd.DataFrame, pd.DataFrame | None, pd.DataFrame | None]:
    stem, _, kind = file.name.rpartition(".")
    items = users = None
    named = {other.name: other for other in beside}
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
    """Read what may stand beside the ratings; columns of numbers alone become numbers."""
    if file is None:
        return None
    table = _table(file, separator, columns, dtype=str)
    # A small file's titles and zip codes may happen to be numbers, but are not meant as such.
    for name in table.columns.difference(["title", "genres", "zip_code"]):
        with suppress(ValueError):
            table[name] = pd.to_numeric(table[name])
    return table


def _table(
    file: _File, separator: str, columns: list[str] | None = None, dtype: type[str] | None = None
) -> pd.DataFrame:
    """Read a file; without `columns` it has a header."""
    data = file.read_bytes()
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
    return table


def _ratings(table: pd.DataFrame, file: _File) -> pd.DataFrame:
    missing = [name for name in _RATINGS if name not in table]
    if missing:
        raise ValueError(f"{file} lacks the columns {missing}")
    table = table[_RATINGS]
    if table.empty:
        raise ValueError(f"{file} holds no rating")
    if table.isna().to_numpy().any():
        raise ValueError(f"{file} has empty fields")
    try:
        return table.astype({"rating": np.float64, "timestamp": np.int64})
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _items(table: pd.DataFrame) -> pd.DataFrame:
    table = table.reindex(columns=_ITEMS)
    title = table["title"].astype("string")
    in_title = pd.to_numeric(title.str.extract(_YEAR)[0]).astype("Int64")
    year = pd.to_numeric(table["year"], errors="coerce").astype("Int64")
    return table.assign(
        title=title.str.replace(_YEAR, "", regex=True), year=year.where(year.notna(), in_title)
    )
