"""Conversion of a tagger's nonzero weights to the arrays of a model file, and back."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap._validation import FloatArray
from dualgap.sequence._weights import Names, Weights

_WEIGHTS = ("values", "link_weights", "edge_weights")
# Maximum compression ratio of the deflate format.
_MAX_RATIO = 1032


def packed_weights(weights: Weights) -> dict[str, Any]:
    """Return nonzero weights as arrays and numbers for a model file."""
    found: dict[str, Any] = {name: _single(getattr(weights, name)) for name in _WEIGHTS}
    found["links"] = weights.links
    found["counts"] = _narrow(np.diff(weights.offsets))
    found["labels"] = _narrow(weights.labels)
    found["n_states"] = weights.n_states
    found["on_transitions"] = weights.on_transitions
    found["names"] = None
    if weights.names is not None:
        text, ends = zlib.compress(weights.names.text, 6), weights.names.ends
        found["names"] = {
            "text": np.frombuffer(text, dtype=np.uint8),
            "lengths": _narrow(np.diff(np.asarray(ends, dtype=np.int64), prepend=0)),
            "bits": weights.names.bits,
        }
    return found


def unpacked_weights(packed: Mapping[str, Any], classes: NDArray[Any]) -> Weights:
    """Return the weights from the result of `packed_weights`.

    Raises
    ------
    ValueError or another of `UNREADABLE`
        If the arrays do not describe a tagger with these classes.
    """
    offsets = np.concatenate([[0], np.cumsum(_counts(packed["counts"]))])
    names, marks = packed["names"], packed["on_transitions"]
    if names is not None:
        lengths = _counts(names["lengths"])
        text = _inflate(names["text"].tobytes(), int(lengths.sum()))
        names = Names(text, np.cumsum(lengths).tolist(), names["bits"])
    weights = Weights(
        n_states=int(packed["n_states"]),
        links=packed["links"].astype(np.uint8),
        offsets=offsets,
        labels=packed["labels"].astype(np.uint16),
        values=packed["values"].astype(np.float64),
        link_weights=packed["link_weights"].astype(np.float64),
        edge_weights=packed["edge_weights"].astype(np.float64),
        on_transitions=None if marks is None else marks.astype(bool),
        names=names,
    )
    _check(weights, classes)
    return weights


def _check(weights: Weights, classes: NDArray[Any]) -> None:
    """Check that the parts fit together; the core checks the weights themselves."""
    _ = weights.tagger
    n_columns = len(weights.offsets) - 1
    marks = weights.on_transitions
    if marks is not None:
        n_columns += int(marks.sum())
        if marks.shape != (n_columns,):
            msg = "the number of columns does not match the weights"
            raise ValueError(msg)
    names = weights.names
    if classes.shape != (weights.n_states,):
        msg = "the number of classes does not match the weights"
        raise ValueError(msg)
    if names is not None and len(names.vocabulary) != n_columns:
        msg = "the number of names does not match the weights"
        raise ValueError(msg)


def _narrow(numbers: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers to the smallest unsigned type that can hold them."""
    largest = int(numbers.max()) if len(numbers) else 0
    return numbers.astype(np.min_scalar_type(largest))


def _single(weights: FloatArray) -> NDArray[Any]:
    """Convert weights to single precision if that does not change them."""
    with np.errstate(over="ignore"):
        single = weights.astype(np.float32)
    return single if np.array_equal(single, weights) else weights


def _counts(numbers: NDArray[Any]) -> NDArray[np.int64]:
    if numbers.ndim != 1 or numbers.dtype.kind != "u" or numbers.dtype.itemsize > 4:
        msg = "an array of counts has an invalid shape or type"
        raise ValueError(msg)
    return numbers.astype(np.int64)


def _inflate(packed: bytes, size: int) -> bytes:
    """Decompress bytes; raise an error unless the result has exactly `size` bytes."""
    if size > _MAX_RATIO * len(packed):
        msg = "the table of names does not have the length that the file states"
        raise ValueError(msg)
    inflater = zlib.decompressobj()
    text = inflater.decompress(packed, size + 1)
    if len(text) != size:
        msg = "the table of names does not have the length that the file states"
        raise ValueError(msg)
    return text
