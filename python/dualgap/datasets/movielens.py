"""Loader of MovieLens ratings from files, the cache or the network."""

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
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import IO, Literal
from urllib.request import urlopen

import pandas as pd

from dualgap._files import replacing
from dualgap.datasets._movielens_files import read_movielens

__all__ = ["Ratings", "fetch_movielens"]

_log = logging.getLogger("dualgap")

_GROUPLENS = "https://files.grouplens.org/datasets/movielens"
_WHEEL = "recbole-1.2.1-py3-none-any.whl"
_ARCHIVES = {
    "100k": {"download": "ml-100k.zip", "recbole": _WHEEL},
    "1m": {"download": "ml-1m.zip"},
    "latest-small": {"download": "ml-latest-small.zip"},
}
# latest-small is updated from time to time, so only the server has its checksum.
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


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings, plus user and item metadata.

    Attributes
    ----------
    ratings : pandas.DataFrame
        Columns ``user``, ``item``, ``rating`` (float) and, if the file has one, ``timestamp``
        (seconds since 1970; dates are converted, and whole numbers are integers). Rows are in the
        order of the file.
    items : pandas.DataFrame or None
        Columns ``item``, ``title`` (without the year), ``year`` (nullable integer) and
        ``genres`` (joined by ``|``).
    users : pandas.DataFrame or None
        Column ``user``, and the columns age, gender, occupation and zip_code if present.
    name : str
        The requested name.
    source : str
        Origin of the data: "path", "cache", "download" or "recbole".
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
    """Load a MovieLens data set from a path, the cache or the network.

    Parameters
    ----------
    name : str or path-like, default="100k"
        "100k", "1m" or "latest-small"; or the path of a folder, a zip archive or a file of
        ratings in a format of GroupLens (``u.data``, ``ratings.dat``, ``ratings.csv``) or RecBole
        (``*.inter``). Titles and users are read from files in the same folder, if present.
    source : {"auto", "cache", "download", "recbole"}, default="auto"
        Source of a named data set. "auto" tries the cache, then GroupLens' server ("download"),
        then, for "100k", the copy inside the PyPI wheel recbole 1.2.1 ("recbole", by
        ``pip download``). "download" and "recbole" look in the cache first, and store the data
        there. "cache" never uses the network.
    data_home : str or path-like, default=None
        Folder of the cache. The default is the environment variable ``DUALGAP_HOME``, or
        ``dualgap`` in ``XDG_CACHE_HOME`` or ``~/.cache``.
    timeout : float, default=5.0
        Seconds to wait for a server before it is skipped, with one warning on the logger
        "dualgap". The package index gets six times as long, because pip needs time to start.

    Returns
    -------
    Ratings
        The tables. Ratings are in the order of the file, so the same seed gives the same split
        on every machine.

    Raises
    ------
    ValueError
        If an argument is out of range, a checksum is wrong, or a file cannot be parsed.
    OSError
        If the path does not exist, or no source is available.

    Notes
    -----
    The ratings belong to GroupLens Research at the University of Minnesota. Their terms allow
    use for research, require acknowledgement [1]_, and allow neither redistribution nor
    commercial use without permission. dualgap does not include the ratings; this function
    downloads them to the user's cache only.

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
            raise ValueError(
                f"name must be one of {sorted(_ARCHIVES)} with source={source!r}, got {name!r}"
            )
        return _read(Path(name).expanduser(), name, "path")

    archives = _ARCHIVES[name]
    if source in ("download", "recbole"):
        if source not in archives:
            raise ValueError(
                f"source={source!r} does not provide {name!r}; use one of {sorted(archives)}"
            )
        archives = {source: archives[source]}
    home = _data_home(data_home)
    for file_name in archives.values():
        path = home / file_name
        if path.is_file():
            _check(path, path.read_bytes())
            return _read(path, name, "cache")
    if source == "cache":
        raise FileNotFoundError(
            f"no copy of MovieLens {name} in {home}; use source='auto' to download it"
        )

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
        f"no source of MovieLens {name} is available ({'; '.join(skipped)}); "
        "pass the path of a copy instead"
    )


def _read(path: Path, name: str, source: str) -> Ratings:
    if not path.exists():
        names = ", ".join(map(repr, _ARCHIVES))
        raise FileNotFoundError(f"{path}: no such file, and not a known data set (known: {names})")
    return Ratings(*read_movielens(path), name, source, path)


# --- Sources ---


def _from_grouplens(timeout: float, path: Path) -> bytes:
    url = f"{_GROUPLENS}/{path.name}"
    data = _download(url, timeout)
    if not zipfile.is_zipfile(io.BytesIO(data)):
        raise OSError(f"{url} did not return a zip file")
    if path.name not in _MD5:
        try:
            published = _download(f"{url}.md5", timeout).decode("ascii", "replace")
        except OSError:
            return data
        # The format is "<md5>  <file>" or "MD5 (<file>) = <md5>".
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

    # The timeout of urlopen does not cover the DNS lookup, which can hang.
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
        raise OSError(f"{url}: the download was interrupted: {error}") from error


def _check(path: Path, data: bytes) -> None:
    """Raise an error if an archive's checksum is known and differs."""
    if path.name in _MD5:
        _verify("md5", data, _MD5[path.name], str(path))
    if path.name == _WHEEL:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as wheel:
                members = {name: wheel.read(_WHEEL_FOLDER + name) for name in _WHEEL_SHA256}
        except (KeyError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is not the expected wheel: {error}") from error
        for name, content in members.items():
            _verify("sha256", content, _WHEEL_SHA256[name], f"{path}: {name}")


def _verify(algorithm: str, data: bytes, expected: str, what: str) -> None:
    found = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ValueError(
            f"{what}: wrong {algorithm} checksum {found}, expected {expected}. If this file is in "
            "the cache, delete it to download it again"
        )


def _data_home(data_home: str | os.PathLike[str] | None) -> Path:
    chosen = data_home or os.environ.get("DUALGAP_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dualgap"


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically, so that an interrupted run leaves no partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(data)
