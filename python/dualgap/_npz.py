"""Model files: plain arrays (npz) with metadata in JSON; loading a file executes no code.

Files are not trusted: an archive member is read only after a check that its size matches its header
and the size of the file.
"""

from __future__ import annotations

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
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualgap._files import replacing

_MAGIC = b"\x93NUMPY"
# The headers of our files have 118 bytes.
_MAX_HEADER = 10_000
# The entries of a header. A type has a byte order, a kind (booleans, integers, floating-point
# numbers, strings or bytes) and an item size. Python's parser is not used: before 3.11.8 and 3.12.2
# it may raise a SystemError if two threads parse at the same time (CPython issue 106905).
_ENTRIES = [
    re.compile(rf"""['"]{name}['"]\s*:\s*{value}\s*[,}}]""")
    for name, value in {
        "descr": """['"]([<>|=][biufUS][1-9][0-9]{0,4})['"]""",
        "fortran_order": "(False|True)",
        "shape": r"\(([0-9,\s]*)\)",
    }.items()
]
# Number of bytes that are read at a time.
_PIECE = 1 << 20
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
"""Exceptions that readers of NumPy, SciPy, pandas and Python raise for damaged or foreign files."""


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
        kind, shape, order = check_header(file, member.file_size)
        values = np.empty(math.prod(shape), kind)
        content, place = values.view(np.uint8), 0
        # At the end, zipfile verifies the checksum.
        while piece := file.read(_PIECE):
            content[place : place + len(piece)] = np.frombuffer(piece, np.uint8)
            place += len(piece)
    if place < len(content):
        msg = f"{member.filename}: {len(content) - place} bytes are missing"
        raise ValueError(msg)
    return values.reshape(shape, order=order)


def check_header(
    file: IO[bytes], size: int
) -> tuple[np.dtype[Any], tuple[int, ...], Literal["C", "F"]]:
    """Return the type, shape and order of the array in an npy file of `size` bytes.

    The header is checked before any memory is allocated, because it can claim any size.

    Raises
    ------
    ValueError
        Unless the file is an array of numbers or strings that has this size.
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
    found = [entry.findall(text) for entry in _ENTRIES]
    if any(len(values) != 1 for values in found):
        msg = f"unsupported header {text.strip()[:200]!r}"
        raise ValueError(msg)
    [kind], [fortran], [numbers] = found
    shape = tuple(int(number) for number in numbers.split(",") if number.strip())
    if 8 + width + length + math.prod(shape) * np.dtype(kind).itemsize != size:
        msg = f"{size} bytes do not match an array of type {kind} and shape {shape}"
        raise ValueError(msg)
    return np.dtype(kind), shape, "F" if fortran == "True" else "C"


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
