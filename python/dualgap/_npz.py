"""Model files: plain arrays (npz) with a description in JSON, which execute nothing when loaded."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_npz(
    path: str | os.PathLike[str], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write a description and arrays."""
    # Parameters may be NumPy's numbers, which json does not know.
    text = json.dumps(meta, default=_python).encode()
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, meta=np.frombuffer(text, dtype=np.uint8), **arrays)


def read_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read an npz file's arrays; none may need a pickle."""
    with open(path, "rb") as file:
        # np.load takes anything else for a pickle, and advises to trust it.
        if not zipfile.is_zipfile(file):
            msg = "no npz file"
            raise ValueError(msg)
        file.seek(0)
        with np.load(file, allow_pickle=False) as members:
            return dict(members)


def read_meta(arrays: Mapping[str, NDArray[Any]], **expected: object) -> dict[str, Any]:
    """Return the description, checked to have these entries."""
    meta: dict[str, Any] = json.loads(arrays["meta"].tobytes())
    for name, value in expected.items():
        if meta[name] != value:
            msg = f"{name} {meta[name]!r} is not {value!r}"
            raise ValueError(msg)
    return meta


@contextmanager
def refused_as(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn whatever a damaged or foreign file leads to into one ValueError that names it."""
    try:
        yield
    except (
        AttributeError,
        EOFError,
        LookupError,
        OverflowError,
        RuntimeError,
        TypeError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        msg = f"{os.fspath(path)}: not {what} ({error!r})"
        raise ValueError(msg) from error


def _python(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    msg = f"save: {value!r} is not a parameter that can be written"
    raise TypeError(msg)
