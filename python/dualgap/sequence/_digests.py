"""Hashes of the content of sentences, with which a later fit recognises the same sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap.sequence._sentences import Rowed

Numbers = NDArray[np.uint64]


def sentence_digests(
    data: Rowed, vocabulary: _core.Vocabulary | None, labels: NDArray[Any]
) -> Numbers:
    """Return a hash of each sentence: of its labels, and of the names and values of its features.

    Different sentences have equal hashes with a probability of about 2**-64.
    """
    columns = _column_numbers(data, vocabulary)
    if isinstance(data.rows, tuple):
        indptr, indices, values, _ = data.rows
        entries = _mix(columns[indices] ^ _mix(_bits(values)))
        tokens = _sums(entries, np.asarray(indptr))
    else:
        tokens = _mix(columns ^ _mix(_bits(data.rows))).sum(axis=1, dtype=np.uint64)
    classes, codes = np.unique(labels, return_inverse=True)
    names = np.array([hash(label) for label in classes.tolist()], dtype=np.int64).view(np.uint64)
    tokens = _mix(tokens + _mix(names)[codes])
    places = np.arange(len(tokens)) - np.repeat(data.offsets[:-1], np.diff(data.offsets))
    return _sums(_mix(tokens ^ _mix(places.astype(np.uint64))), data.offsets)


def _column_numbers(data: Rowed, vocabulary: _core.Vocabulary | None) -> Numbers:
    """Return a hash of the name of each column, or of its index if columns have no names."""
    names = [] if vocabulary is None else vocabulary.names()
    if names:
        hashes = np.fromiter(map(hash, names), dtype=np.int64, count=len(names))
        return _mix(hashes.view(np.uint64))
    return _mix(np.arange(data.n_features, dtype=np.uint64))


def _bits(values: Any) -> Numbers:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)


def _sums(numbers: Numbers, offsets: NDArray[np.int64]) -> Numbers:
    """Return the sums between consecutive offsets, modulo 2**64."""
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(numbers, dtype=np.uint64)])
    return np.asarray(sums[offsets[1:]] - sums[offsets[:-1]])


def _mix(numbers: Numbers) -> Numbers:
    """Return each number with its bits mixed (SplitMix64's finalizer, Steele et al. 2014)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))
