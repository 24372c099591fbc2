"""Model files: plain arrays (npz) with a description in JSON, which execute nothing when loaded.

A file is not believed: no member is read before its size is known to be the one that its header
promises and its file holds.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import stat
import struct
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
# Ours have 118; 10,000 is what Python's parser is known to survive.
_MAX_HEADER = 10_000
# Byte order, then truth values, integers, floating-point numbers, strings or bytes of a size.
_KIND = re.compile("[<>|=][biufUS][1-9][0-9]{0,4}")
# What deflate can at best make of zeros (RFC 1951: 258 bytes in two bits).
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
"""What a damaged or foreign file may lead to in the readers of NumPy, SciPy, pandas and Python."""


def write_npz(
    path: str | os.PathLike[str], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write a description and arrays, in place of what the file held before (see `replacing`)."""
    with replacing(path) as file:
        dump_npz(file, meta, arrays)


def dump_npz(file: IO[bytes], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a description and arrays to an open file."""
    # Parameters may be NumPy's numbers, which json does not know.
    text = json.dumps(meta, default=_python).encode()
    np.savez(file, allow_pickle=False, meta=np.frombuffer(text, dtype=np.uint8), **arrays)


def read_npz(
    source: str | os.PathLike[str] | IO[bytes], *, compressed: bool = False
) -> dict[str, NDArray[Any]]:
    """Read an npz file's arrays of numbers and strings.

    Parameters
    ----------
    source : path or binary file
        The file; an open one must be able to seek.
    compressed : bool, default=False
        Whether compressed members are read as well. Ours never are.

    Raises
    ------
    ValueError or another of `UNREADABLE`
        For anything else than complete arrays of numbers or strings.
    """
    if isinstance(source, str | os.PathLike):
        kind = os.stat(source).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            # Opening a pipe that nobody writes to would wait for ever.
            msg = "a pipe or a device, not a file on a disk"
            raise ValueError(msg)
        with open(source, "rb") as file:
            return read_npz(file, compressed=compressed)
    # Asked first: the error for any other file should not be one of zipfile's.
    if not zipfile.is_zipfile(source):
        msg = "no npz file"
        raise ValueError(msg)
    size = source.seek(0, os.SEEK_END)
    with zipfile.ZipFile(source) as archive:
        members = archive.infolist()
        _check_members(members, size, compressed=compressed)
        return {member.filename[:-4]: _read_member(archive, member) for member in members}


def _check_members(members: list[zipfile.ZipInfo], size: int, *, compressed: bool) -> None:
    """Refuse members that the file cannot hold."""
    kinds = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} if compressed else {zipfile.ZIP_STORED}
    for member in members:
        ratio = 1 if member.compress_type == zipfile.ZIP_STORED else _MAX_RATIO
        fits = member.file_size <= ratio * member.compress_size
        if member.compress_type not in kinds or member.flag_bits & 1 or not fits:
            msg = f"{member.filename}: compressed, encrypted or of a wrong size"
            raise ValueError(msg)
    names = {member.filename for member in members}
    if len(names) < len(members) or not all(name.endswith(".npy") for name in names):
        msg = "the members' names are not those of distinct arrays"
        raise ValueError(msg)
    # Members may overlap in a file that was made to grow when read.
    if sum(member.compress_size for member in members) > size:
        msg = "the members are larger than the file"
        raise ValueError(msg)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file:
        check_header(file, member.file_size)
    # Opened anew, since zipfile does not check the sum of a member in which one has moved.
    with archive.open(member) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def check_header(file: IO[bytes], size: int) -> None:
    """Refuse an npy file of `size` bytes unless it is an array of numbers or strings of that size.

    Read with care before NumPy reads it: its own reader allocates what the header claims, and
    executes pickles if it is allowed to.
    """
    start = file.read(8)
    width = {b"\x01\x00": 2, b"\x02\x00": 4}.get(start[6:])
    if start[:6] != _MAGIC or width is None:
        msg = "no array of numbers or strings"
        raise ValueError(msg)
    length = int.from_bytes(file.read(width), "little")
    if length > _MAX_HEADER:
        msg = f"a header of {length} bytes"
        raise ValueError(msg)
    header = ast.literal_eval(file.read(length).decode("latin-1"))
    kind, shape = header["descr"], header["shape"]
    is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or _KIND.fullmatch(kind) is None:
        msg = f"an array of {kind} and shape {shape}"
        raise ValueError(msg)
    if 8 + width + length + math.prod(shape) * np.dtype(kind).itemsize != size:
        msg = f"{size} bytes are not an array of {kind} and shape {shape}"
        raise ValueError(msg)


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
    """Turn whatever a damaged or foreign file leads to into one ValueError that names it.

    An OSError that names a file (missing, not to be read) says enough and is left alone.
    """
    try:
        yield
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        msg = f"{os.fspath(path)}: not {what} ({error!r})"
        raise ValueError(msg) from error


def _python(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    msg = f"save: {value!r} is not a parameter that can be written"
    raise TypeError(msg)
