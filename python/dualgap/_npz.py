"""Model files: plain arrays (npz) with metadata in JSON; loading a file executes no code.

Files are not trusted: an archive member is read only after a check that its size matches its header
and the size of the file.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import stat
import struct
import threading
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dualgap._files import replacing

_MAGIC = b"\x93NUMPY"
# The headers of our files have 118 bytes; Python's parser is known to handle 10,000.
_MAX_HEADER = 10_000
# Byte order, kind (booleans, integers, floating-point numbers, strings or bytes) and item size.
_KIND = re.compile("[<>|=][biufUS][1-9][0-9]{0,4}")
# Python before 3.11.8 and 3.12.2 may raise a SystemError if two threads parse headers at the same
# time (CPython issue 106905).
_PARSING = threading.RLock()
# Largest compression ratio of deflate, reached by zeros (RFC 1951: 258 bytes in two bits).
_MAX_RATIO = 1032

UNREADABLE = (
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions of the readers of NumPy, SciPy, pandas and Python for damaged or foreign files."""


def write_npz(
    path: str | os.PathLike[str], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write metadata and arrays, replacing the file atomically (see `replacing`)."""
    with replacing(path) as file:
        dump_npz(file, meta, arrays)


def dump_npz(file: IO[bytes], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write metadata and arrays to an open file."""
    # Parameters may be NumPy scalars, which json cannot serialise.
    text = json.dumps(meta, default=_python).encode()
    np.savez(file, allow_pickle=False, meta=np.frombuffer(text, dtype=np.uint8), **arrays)


def read_npz(
    source: str | os.PathLike[str] | IO[bytes], *, compressed: bool = False
) -> dict[str, NDArray[Any]]:
    """Read the arrays of an npz file, which must be numbers or strings.

    Parameters
    ----------
    source : path or binary file
        The file; an open file must be seekable.
    compressed : bool, default=False
        Whether compressed members are accepted. Files that this package writes have none.

    Raises
    ------
    ValueError or another exception of `UNREADABLE`
        If the file is incomplete, or contains anything other than arrays of numbers or strings.
    """
    if isinstance(source, str | os.PathLike):
        kind = os.stat(source).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            # Opening a pipe without a writer would block forever.
            msg = "a pipe or device, not a regular file"
            raise ValueError(msg)
        with open(source, "rb") as file:
            return read_npz(file, compressed=compressed)
    # Checked first, since zipfile's own error is unclear for a file of another format.
    if not zipfile.is_zipfile(source):
        msg = "not an npz file"
        raise ValueError(msg)
    size = source.seek(0, os.SEEK_END)
    with zipfile.ZipFile(source) as archive:
        members = archive.infolist()
        _check_members(members, size, compressed=compressed)
        return {member.filename[:-4]: _read_member(archive, member) for member in members}


def _check_members(members: list[zipfile.ZipInfo], size: int, *, compressed: bool) -> None:
    """Raise an error if a member is unsupported, misnamed or larger than the file allows."""
    kinds = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} if compressed else {zipfile.ZIP_STORED}
    for member in members:
        ratio = 1 if member.compress_type == zipfile.ZIP_STORED else _MAX_RATIO
        fits = member.file_size <= ratio * member.compress_size
        if member.compress_type not in kinds or member.flag_bits & 1 or not fits:
            msg = f"{member.filename}: unsupported compression, encryption or wrong size"
            raise ValueError(msg)
    names = {member.filename for member in members}
    if len(names) < len(members) or not all(name.endswith(".npy") for name in names):
        msg = "member names must be distinct and end in .npy"
        raise ValueError(msg)
    # In a zip bomb, members overlap.
    if sum(member.compress_size for member in members) > size:
        msg = "members are larger than the file"
        raise ValueError(msg)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file:
        check_header(file, member.file_size)
    # Reopened, since zipfile does not verify the checksum of a member after a seek.
    with archive.open(member) as file, _PARSING:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def check_header(file: IO[bytes], size: int) -> None:
    """Raise an error unless an npy file of `size` bytes is an array of numbers or strings.

    The header is checked before NumPy reads it, because NumPy's reader allocates whatever size the
    header claims, and can execute pickles.
    """
    start = file.read(8)
    width = {b"\x01\x00": 2, b"\x02\x00": 4}.get(start[6:])
    if start[:6] != _MAGIC or width is None:
        msg = "not an array of numbers or strings"
        raise ValueError(msg)
    length = int.from_bytes(file.read(width), "little")
    if length > _MAX_HEADER:
        msg = f"the header has {length} bytes, more than {_MAX_HEADER}"
        raise ValueError(msg)
    text = file.read(length).decode("latin-1")
    with _PARSING:
        header = ast.literal_eval(text)
    kind, shape = header["descr"], header["shape"]
    is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or _KIND.fullmatch(kind) is None:
        msg = f"unsupported array of type {kind} and shape {shape}"
        raise ValueError(msg)
    if 8 + width + length + math.prod(shape) * np.dtype(kind).itemsize != size:
        msg = f"{size} bytes do not match an array of type {kind} and shape {shape}"
        raise ValueError(msg)


def read_meta(arrays: Mapping[str, NDArray[Any]], **expected: object) -> dict[str, Any]:
    """Return the metadata after checking that it has the expected entries."""
    meta: dict[str, Any] = json.loads(arrays["meta"].tobytes())
    for name, value in expected.items():
        found = meta[name]
        if found == value:
            continue
        msg = f"{name} is {found!r}, expected {value!r}"
        if isinstance(found, dict) and isinstance(value, dict):
            differ = [key for key in value if key not in found or found[key] != value[key]]
            msg = f"{name}: different {', '.join(differ)}"
        raise ValueError(msg)
    return meta


@contextmanager
def refused_as(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn the errors of a damaged or foreign file into one ValueError that names the file.

    An OSError that already names a file (missing, unreadable) is passed on unchanged.
    """
    try:
        yield
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        reason = isinstance(error, ValueError) and str(error)
        msg = f"{os.fspath(path)}: not {what} ({reason or repr(error)})"
        raise ValueError(msg) from error


def _python(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    msg = f"save: cannot write the parameter value {value!r}; use plain Python or NumPy values"
    raise TypeError(msg)
