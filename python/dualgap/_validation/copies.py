"""Copies of objects that a user's function or iterator may fill again for its next answer."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp


def own_copy(value: Any) -> Any:
    """Copy an array, a sparse matrix or a container of Python, with the containers in it.

    Objects of other types are returned as they are: a model may compare its labels by identity.
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
    """Return the elements as a list, and copies of those of an iterator; `name` is the argument."""
    return collect(values, name) if isinstance(values, Iterator) else list(values)


def collect(values: Iterable[Any], source: str) -> list[Any]:
    """Return copies of objects that arrive one after the other from `source`.

    Raises
    ------
    ValueError
        If an object that `own_copy` does not copy arrives again with other contents: the earlier
        answers have changed with it.
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
                f"{source}: the {type(value).__name__} number {number} is an earlier object with "
                "other contents; make a new object each time"
            )
            raise ValueError(msg)
    return found


def _state(value: Any) -> bytes | None:
    """Return the contents of an object, None for one that cannot be pickled."""
    try:
        return pickle.dumps(value)
    except Exception:
        return None


def refuse_refilled(name: str, pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield arrays and sparse matrices; refuse one in the memory of an earlier one.

    The caller keeps the pieces, so that the memory of each is taken. Pieces of a list are there
    all at once and may repeat.

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
                    f"{name}: piece {number} is in the memory of piece {seen[address]}, and may "
                    "have overwritten it; yield an array of its own for each piece"
                )
                raise ValueError(msg)
            seen[address] = number
        yield piece
