"""Copies of objects that a user's function or iterator may reuse for its next result."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp


def own_copy(value: Any) -> Any:
    """Copy an array, a sparse matrix or a Python container, including nested containers.

    Objects of other types are not copied, because a model may compare its labels by identity.
    """
    if isinstance(value, np.ndarray) or sp.issparse(value):
        return value.copy()
    kind = type(value)
    if kind in (list, tuple):
        return kind(map(own_copy, value))
    if kind is dict:
        return {key: own_copy(entry) for key, entry in value.items()}
    return value.copy() if kind in (set, bytearray) else value


def listed(values: Iterable[Any], name: str) -> list[Any]:
    """Return the elements as a list; copy the elements of an iterator. `name` is the argument."""
    return collect(values, name) if isinstance(values, Iterator) else list(values)


def collect(values: Iterable[Any], source: str) -> list[Any]:
    """Return copies of the objects that `values` yields; `source` names their origin in errors.

    Raises
    ------
    ValueError
        If an object is yielded again after a change, and `own_copy` does not copy objects of this
        type.
    """
    states: dict[int, bytes | None] = {}
    found = []
    for number, value in enumerate(values):
        found.append(own_copy(value))
        if found[-1] is not value or type(value).__module__ == "builtins":
            continue
        state = _state(value)
        if states.setdefault(id(value), state) != state:
            msg = (
                f"{source}: item {number} is an earlier {type(value).__name__} whose contents have "
                "changed; make a new object each time"
            )
            raise ValueError(msg)
    return found


def _state(value: Any) -> bytes | None:
    """Return the pickled contents of an object, or None if it cannot be pickled."""
    try:
        return pickle.dumps(value)
    except Exception:
        return None


def refuse_refilled(name: str, pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield arrays and sparse matrices; raise an error if one reuses the memory of another.

    The caller must keep the pieces alive, so that no later piece can take their memory. Elements of
    a list exist at the same time and may repeat.

    Raises
    ------
    ValueError
        If an iterator yields the same memory twice.
    """
    seen: dict[int, int] = {}
    for number, piece in enumerate(pieces):
        values = piece.data if sp.issparse(piece) else piece
        if isinstance(pieces, Iterator) and isinstance(values, np.ndarray) and values.size:
            address = values.__array_interface__["data"][0]
            if address in seen:
                msg = (
                    f"{name}: piece {number} reuses the memory of piece {seen[address]} and may "
                    "have overwritten that piece; yield a new array for each piece"
                )
                raise ValueError(msg)
            seen[address] = number
        yield piece
