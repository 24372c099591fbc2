"""Model files of taggers: plain arrays, without the zeros among the weights."""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap._npz import read_meta, read_npz, refused_as, write_npz
from dualgap.sequence._weights import Names, Weights

_FORMAT = "dualgap sequence tagger 1"
_ARRAYS = ("links", "labels", "values", "link_weights", "edge_weights")
# Names are text: deflate makes at most a thousandth of it.
_MAX_RATIO = 1032


def write_tagger(
    path: str | os.PathLike[str], meta: dict[str, Any], weights: Weights, classes: Any
) -> None:
    """Write a tagger in place of what the file held before."""
    arrays: dict[str, NDArray[Any]] = {name: getattr(weights, name) for name in _ARRAYS}
    arrays["counts"] = _narrow(np.diff(weights.offsets))
    arrays["labels"] = _narrow(weights.labels)
    arrays["classes"] = classes
    if weights.on_transitions is not None:
        arrays["on_transitions"] = weights.on_transitions
    names = weights.names
    if names is not None:
        text = zlib.compress(names.text, 6)
        lengths = np.diff(np.asarray(names.ends, dtype=np.int64), prepend=0)
        arrays["names"] = np.frombuffer(text, dtype=np.uint8)
        arrays["name_lengths"] = _narrow(lengths)
    known = {"format": _FORMAT, "named": names is not None, "n_states": weights.n_states}
    known["bits"] = None if names is None else names.bits
    write_npz(path, {**known, **meta}, arrays)


def read_tagger(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Weights, NDArray[Any]]:
    """Read a description, weights and classes."""
    with refused_as(path, "a model of SequenceTagger"):
        arrays = read_npz(path)
        meta = read_meta(arrays, format=_FORMAT)
        counts = _counts(arrays["counts"])
        offsets = np.concatenate([[0], np.cumsum(counts)])
        names = None
        if meta["named"]:
            lengths = _counts(arrays["name_lengths"])
            text = _inflate(arrays["names"].tobytes(), int(lengths.sum()))
            names = Names(text, np.cumsum(lengths).tolist(), meta["bits"])
        marks = arrays.get("on_transitions")
        weights = Weights(
            n_states=int(meta["n_states"]),
            links=arrays["links"].astype(np.uint8),
            offsets=offsets,
            labels=arrays["labels"].astype(np.uint16),
            values=arrays["values"].astype(np.float64),
            link_weights=arrays["link_weights"].astype(np.float64),
            edge_weights=arrays["edge_weights"].astype(np.float64),
            on_transitions=None if marks is None else marks.astype(bool),
            names=names,
        )
        classes = arrays["classes"]
        _check(weights, classes)
    return meta, weights, classes


def _check(weights: Weights, classes: NDArray[Any]) -> None:
    """Refuse what does not fit together; the core checks the weights themselves."""
    _ = weights.tagger
    n_columns = len(weights.offsets) - 1
    marks = weights.on_transitions
    if marks is not None:
        n_columns += int(marks.sum())
        if marks.shape != (n_columns,):
            msg = "the columns do not fit their weights"
            raise ValueError(msg)
    names = weights.names
    if classes.shape != (weights.n_states,):
        msg = "the classes do not fit the weights"
        raise ValueError(msg)
    if names is not None and len(names.vocabulary) != n_columns:
        msg = "the names do not fit the weights"
        raise ValueError(msg)


def _narrow(numbers: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in as few bytes as they need."""
    largest = int(numbers.max()) if len(numbers) else 0
    return numbers.astype(np.min_scalar_type(largest))


def _counts(numbers: NDArray[Any]) -> NDArray[np.int64]:
    if numbers.ndim != 1 or numbers.dtype.kind != "u" or numbers.dtype.itemsize > 4:
        msg = "an array of counts is damaged"
        raise ValueError(msg)
    return numbers.astype(np.int64)


def _inflate(packed: bytes, size: int) -> bytes:
    """Inflate exactly so many bytes."""
    if size > _MAX_RATIO * len(packed):
        msg = "the names are not as long as the file says"
        raise ValueError(msg)
    inflater = zlib.decompressobj()
    text = inflater.decompress(packed, size + 1)
    if len(text) != size:
        msg = "the names are not as long as the file says"
        raise ValueError(msg)
    return text
