"""Copies of objects that a user's function or iterator may fill again for its next answer."""

from __future__ import annotations

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


def listed(values: Iterable[Any]) -> list[Any]:
    """Return the elements as a list, and copies of those of an iterator."""
    return list(map(own_copy, values)) if isinstance(values, Iterator) else list(values)


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
