"""Files of partitions and checkpoints: on a file system, or in an object store (``s3://...``).

A path that contains ``://`` is a URL, which fsspec opens. fsspec is imported only for URLs.
Credentials and endpoints come from the environment or from fsspec's configuration.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from numpy.typing import NDArray

from dualgap._files import check_writable
from dualgap._npz import dump_npz, read_npz, write_npz


def absolute(folder: str | os.PathLike[str]) -> str:
    """Return an absolute path, which all processes of a machine can use; URLs do not change."""
    name = os.fspath(folder)
    return name if _is_url(name) else os.path.realpath(name)


def join(folder: str, name: str) -> str:
    """Return the path of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}" if _is_url(folder) else os.path.join(folder, name)


def open_binary(path: str) -> IO[bytes]:
    """Open a file for reading."""
    if not _is_url(path):
        return open(path, "rb")
    store, name = _store(path)
    file: IO[bytes] = store.open(name, "rb")
    return file


def parquet_source(path: str) -> str | IO[bytes]:
    """Return the path or the open file from which PyArrow reads a Parquet file."""
    return open_binary(path) if _is_url(path) else path


def exists(path: str) -> bool:
    """Return whether the file exists."""
    if not _is_url(path):
        return Path(path).exists()
    store, name = _store(path)
    # Other processes write to the store, so a cached listing may be out of date.
    store.invalidate_cache()
    return bool(store.exists(name))


def read_arrays(path: str) -> dict[str, NDArray[Any]]:
    """Read a file of arrays (`read_npz`)."""
    if not _is_url(path):
        return read_npz(path)
    store, name = _store(path)
    return read_npz(io.BytesIO(store.cat_file(name)))


def write_arrays(path: str, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file of arrays; readers see either the old or the new file."""
    if not _is_url(path):
        write_npz(path, meta, arrays)
        return
    store, name = _store(path)
    content = io.BytesIO()
    dump_npz(content, meta, arrays)
    # Upload the content in one call, because object stores replace an object as a whole.
    store.pipe_file(name, content.getvalue())


def remove_all(folder: str, prefix: str) -> None:
    """Remove the files of a folder whose names begin with `prefix`."""
    if not _is_url(folder):
        for path in Path(folder).glob(f"{prefix}*"):
            path.unlink()
        return
    store, pattern = _store(join(folder, f"{prefix}*"))
    for found in store.glob(pattern):
        store.rm_file(found)


def check_folder(folder: str, name: str) -> None:
    """Create a folder, and check that a file of this name can be written to it."""
    if not _is_url(folder):
        check_writable(join(folder, name))
        return
    store, at = _store(join(folder, f".{name}.trial"))
    store.pipe_file(at, b"")
    store.rm_file(at)


def _is_url(path: str) -> bool:
    return "://" in path


def _store(path: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the name of the file in it."""
    try:
        from fsspec.core import url_to_fs

        store, name = url_to_fs(path)
    except ImportError as error:
        msg = f"{path}: {error}; install fsspec and the package of this store (s3fs, gcsfs, adlfs)"
        raise ImportError(msg) from error
    return store, name
