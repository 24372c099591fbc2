"""Conversion of labels to arrays that keep different labels distinct, and to class indices."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap._validation.arrays import as_numpy

# Integers are counted instead of sorted if the range of their values is at most this multiple of
# the number of integers.
_SPREAD = 4
# Largest integer up to which float64 represents all integers.
_EXACT = 2**53


def read_labels(name: str, labels: Any) -> NDArray[Any]:
    """Return labels as an array without changing or merging any of them.

    `numpy.asarray` alone merges labels: it drops NUL characters at the end of strings, converts
    ``[1, "a"]`` to strings, and converts integers that need both int64 and uint64 to float64.

    Parameters
    ----------
    name : str
        The argument that holds the labels, for error messages.
    labels : array-like
        Labels of one type (numbers, strings or booleans), in any shape.

    Returns
    -------
    ndarray
        An array with the shape of `labels`.

    Raises
    ------
    ValueError
        If a label is missing or infinite, or if NumPy would merge two labels.
    """
    labels = as_numpy(name, labels)
    is_array = hasattr(labels, "__array__")
    array = np.asarray(labels) if is_array else np.asarray(labels, dtype=object)
    if array.dtype.kind in "OT":
        return _read_objects(name, array, keep=is_array)
    if array.dtype.kind == "c":
        msg = f"{name}: Complex data not supported; pass {name}.real"
        raise ValueError(msg)
    if array.dtype.kind == "S":
        _refuse_bytes(name)
    if array.dtype.kind in "fmM" and not np.isfinite(array).all():
        _refuse_missing(name, array[~np.isfinite(array)].tolist()[0])
    return array


def read_sequences(name: str, sequences: list[Any]) -> NDArray[Any]:
    """Return the labels of all sequences, one sequence after the other, as `read_labels` does."""
    arrays = [y for y in sequences if isinstance(y, np.ndarray) and y.dtype.kind != "O"]
    if len(arrays) == len(sequences) and len({y.dtype for y in arrays}) == 1:
        flat = read_labels(name, np.concatenate(arrays))
    else:
        entries = (y.tolist() if isinstance(y, np.ndarray) else y for y in sequences)
        flat = read_labels(name, list(chain.from_iterable(entries)))
    if flat.ndim != 1:
        msg = f"{name}: each label must be a one-dimensional sequence of classes"
        raise ValueError(msg)
    return flat


def sorted_classes(name: str, labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the sorted classes of labels from `read_labels`, and the class index of each label."""
    if labels.dtype.kind in "iub" and labels.dtype != np.uint64 and labels.size:
        low, high = int(labels.min()), int(labels.max())
        if high - low <= _SPREAD * labels.size:
            return _counted_classes(labels, low)
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        msg = f"{name}: labels must be comparable with each other ({error})"
        raise ValueError(msg) from error
    return classes, codes.reshape(labels.shape)


def _counted_classes(labels: NDArray[Any], low: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the result of `sorted_classes`, by counting integers or booleans in a short range."""
    shifted = labels.astype(np.int64) - low
    present = np.bincount(shifted.ravel()) > 0
    classes = (np.flatnonzero(present) + low).astype(labels.dtype)
    if len(classes) < len(present):
        shifted = (np.cumsum(present) - 1)[shifted]
    return classes, shifted.astype(np.intp, copy=False)


def class_codes(classes: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.intp]:
    """Return the index of each label among classes in any order; -1 for unknown labels.

    The labels are looked up in a dictionary, because NumPy would convert labels and classes of
    different types before it compares them.
    """
    place = {label: at for at, label in enumerate(classes.tolist())}
    found, codes = sorted_classes("y", labels)
    places = np.array([place.get(label, -1) for label in found.tolist()], dtype=np.intp)
    return places[codes] if len(places) else np.zeros(labels.shape, dtype=np.intp)


def _read_objects(name: str, array: NDArray[Any], *, keep: bool) -> NDArray[Any]:
    """Return labels from an array of Python objects; with `keep`, strings stay Python objects."""
    values = array.ravel().tolist()
    kinds = {_kind(kind): kind for kind in dict.fromkeys(map(type, values))}
    numbers = kinds.keys() <= {"integer", "real"}
    if "missing" in kinds:
        _refuse_missing(name, next(v for v in values if type(v) is kinds["missing"]))
    if "real" in kinds:
        # pandas uses NaN for a missing string.
        missing = [v for v in values if isinstance(v, float | np.floating) and not np.isfinite(v)]
        if missing:
            _refuse_missing(name, missing[0])
    if len(kinds) > 1 and not numbers:
        first, second = list(kinds.values())[:2]
        examples = [next(v for v in values if type(v) is kind) for kind in (first, second)]
        msg = (
            f"{name}: labels must be all of one kind, got {examples[0]!r} ({first.__name__}) and "
            f"{examples[1]!r} ({second.__name__}); convert them, for example with str"
        )
        raise ValueError(msg)
    if not values:
        return np.zeros(array.shape)
    if numbers:
        return _read_numbers(name, values, whole="real" not in kinds).reshape(array.shape)
    if "bytes" in kinds:
        _refuse_bytes(name)
    if "string" in kinds:
        _refuse_nul(name, set(values))
        return array if keep and array.dtype.kind == "O" else np.array(values).reshape(array.shape)
    if kinds.keys() == {"boolean"}:
        return np.array(values, dtype=np.bool_).reshape(array.shape)
    return array


def _kind(kind: type) -> str:
    """Return the name of the kind of labels to which a type belongs."""
    if kind.__name__ in ("NoneType", "NAType", "NaTType"):
        return "missing"
    for name, types in _KINDS.items():
        if issubclass(kind, types):
            return name
    return f"{kind.__module__}.{kind.__qualname__}"


# Booleans come first, because Python's booleans are integers.
_KINDS: dict[str, Any] = {
    "boolean": (bool, np.bool_),
    "integer": (int, np.integer),
    "real": (float, np.floating),
    "string": str,
    "bytes": bytes,
}


def _read_numbers(name: str, values: list[Any], *, whole: bool) -> NDArray[Any]:
    """Return integers (if `whole`) or float64; raise a ValueError if a label would be rounded."""
    integers = [int(value) for value in values if not isinstance(value, float | np.floating)]
    low, high = min(integers, default=0), max(integers, default=0)
    if whole and low >= -(2**63) and high < 2**63:
        return np.array(integers, dtype=np.int64)
    if whole and low >= 0 and high < 2**64:
        return np.array(integers, dtype=np.uint64)
    if whole or max(-low, high) > _EXACT:
        kinds = "neither int64 nor uint64" if whole else "float64, the type of other labels, cannot"
        msg = (
            f"{name}: {kinds} can represent all labels from {low} to {high}; convert them, for "
            "example with str"
        )
        raise ValueError(msg)
    return np.array(values, dtype=np.float64)


def _refuse_nul(name: str, values: set[Any]) -> None:
    """Raise a ValueError for strings that NumPy's string arrays would truncate."""
    for value in values:
        if value.endswith("\0"):
            msg = (
                f"{name}: the label {value!r} ends with a NUL character, which NumPy drops; strip "
                "or replace it"
            )
            raise ValueError(msg)


def _refuse_bytes(name: str) -> None:
    msg = f"{name}: labels must not be bytes; decode them to strings"
    raise ValueError(msg)


def _refuse_missing(name: str, value: Any) -> None:
    msg = f"{name}: a label is missing or infinite ({value!r}); remove its row, or set the label"
    raise ValueError(msg)
