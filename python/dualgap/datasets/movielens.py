"""MovieLens ratings, from wherever they can be had."""

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


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings and what is known of the users and items.

    Attributes
    ----------
    ratings : pandas.DataFrame
        Columns ``user``, ``item``, ``rating`` (float) and, unless a file has none, ``timestamp``
        (seconds, integer), the rows in their stored order.
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


def _read(path: Path, name: str, source: str) -> Ratings:
    if not path.exists():
        names = ", ".join(map(repr, _ARCHIVES))
        raise FileNotFoundError(f"{path} does not exist, and is none of the names {names}")
    return Ratings(*read_movielens(path), name, source, path)


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
    with replacing(path) as file:
        file.write(data)
