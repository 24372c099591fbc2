"""Constant Quark Databases, the tables of numbered strings in CRFsuite's model files."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Magic bytes, size, flags, byte order, number of strings, and offset of the table that maps the
# numbers of strings to their offsets.
_HEADER = struct.Struct("<4s5I")
_RECORD = struct.Struct("<2I")
_BYTE_ORDER = 0x62445371
_N_TABLES = 256
_FIRST_RECORD = _HEADER.size + 8 * _N_TABLES

Words = NDArray[np.uint32]


def read(content: bytes, place: int) -> list[bytes]:
    """Return the strings of a database in order of their numbers.

    Raises
    ------
    ValueError or struct.error
        If the database is damaged.
    """
    tag, size, _, order, n, offsets = _HEADER.unpack_from(content, place)
    if tag != b"CQDB" or order != _BYTE_ORDER or offsets + 4 * n > size:
        msg = "the table of strings is missing"
        raise ValueError(msg)
    database = content[place : place + size]
    found = []
    for number, at in enumerate(struct.unpack_from(f"<{n}I", database, offsets)):
        own, length = _RECORD.unpack_from(database, at)
        start = at + _RECORD.size
        if own != number or length == 0 or start + length > size:
            msg = "a table of strings is damaged"
            raise ValueError(msg)
        found.append(database[start : start + length - 1])
    return found


def packed(what: str, strings: Sequence[bytes]) -> bytes:
    """Return a database in which the number of each string is its position.

    Raises
    ------
    ValueError
        If a string contains a zero byte, which terminates strings in the file.
    """
    ended = [string + b"\0" for string in strings]
    if any(b"\0" in string for string in strings):
        msg = f"tagger: names of {what} in a CRFsuite file cannot contain a zero character"
        raise ValueError(msg)
    hashes = hash_all(ended).tolist()
    records, offsets, at = [], [], _FIRST_RECORD
    tables: list[list[tuple[int, int]]] = [[] for _ in range(_N_TABLES)]
    for number, (string, hashed) in enumerate(zip(ended, hashes, strict=True)):
        records.append(_RECORD.pack(number, len(string)) + string)
        offsets.append(at)
        tables[hashed % _N_TABLES].append((hashed, at))
        at += len(records[-1])
    references, buckets = [], []
    for table in tables:
        references.append(_RECORD.pack(at if table else 0, 2 * len(table)))
        buckets.append(_buckets(table))
        at += len(buckets[-1])
    size = at + 4 * len(strings)
    head = _HEADER.pack(b"CQDB", size, 0, _BYTE_ORDER, len(strings), at)
    ends = np.array(offsets, dtype="<u4").tobytes()
    return b"".join([head, *references, *records, *buckets, ends])


def _buckets(table: list[tuple[int, int]]) -> bytes:
    """Return a half-full hash table with open addressing and linear probing."""
    n = 2 * len(table)
    found = [(0, 0)] * n
    for hashed, offset in table:
        at = (hashed >> 8) % n
        while found[at][1]:
            at = (at + 1) % n
        found[at] = (hashed, offset)
    return b"".join(_RECORD.pack(*bucket) for bucket in found)


def hash_all(strings: Sequence[bytes]) -> Words:
    """Return Bob Jenkins' hash of each non-empty string (lookup3, hashlittle, 2006)."""
    lengths = np.array([len(string) for string in strings], dtype=np.int64)
    n_blocks = -(-lengths // 12)
    found = np.zeros(len(strings), dtype=np.uint32)
    for n in np.unique(n_blocks).tolist():
        own = np.flatnonzero(n_blocks == n)
        padded = b"".join(strings[at].ljust(12 * n, b"\0") for at in own.tolist())
        words = np.frombuffer(padded, dtype="<u4").reshape(len(own), n, 3).astype(np.uint32)
        a = np.uint32(0xDEADBEEF) + lengths[own].astype(np.uint32)
        b, c = a.copy(), a.copy()
        for block in range(n):
            a, b, c = (x + words[:, block, at] for at, x in enumerate((a, b, c)))
            if block < n - 1:
                a, b, c = _mixed(a, b, c)
        found[own] = _final(a, b, c)
    return found


def _rotated(x: Words, bits: int) -> Words:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _mixed(a: Words, b: Words, c: Words) -> tuple[Words, Words, Words]:
    for bits in (4, 6, 8, 16, 19, 4):
        # Rotate the names a, b and c, so that every step has the same form.
        a = (a - c) ^ _rotated(c, bits)
        c = c + b
        a, b, c = b, c, a
    return a, b, c


def _final(a: Words, b: Words, c: Words) -> Words:
    """Return the hash, which is the last of the three variables."""
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - _rotated(b, bits)
        a, b, c = b, c, a
    # After the last rotation of the names, the last variable is called b.
    return b
