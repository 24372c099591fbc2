"""Nonzero weights of a trained tagger, and their conversion to objects of the core."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._validation import FloatArray

Bools = NDArray[np.bool_]


@dataclass
class Names:
    """Column names as concatenated bytes with their end offsets, or the number of hash bits."""

    text: bytes
    ends: list[int]
    bits: int | None = None

    @classmethod
    def of(cls, vocabulary: _core.Vocabulary, bits: int | None) -> Names:
        """Copy the names from the core's vocabulary."""
        return cls(*vocabulary.text(), bits)

    @cached_property
    def vocabulary(self) -> _core.Vocabulary:
        """Return the core's vocabulary."""
        if self.bits is not None:
            return _core.Vocabulary(self.bits)
        return _core.Vocabulary.from_names(self.text, self.ends)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("text", "ends", "bits")}


@dataclass
class Weights:
    """Nonzero weights of a chain: of (column, label) pairs, transitions, and boundaries.

    `on_transitions` marks columns that are transition features; it is None if there are none.
    """

    n_states: int
    links: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    labels: NDArray[np.uint16]
    values: FloatArray
    link_weights: FloatArray
    edge_weights: FloatArray
    on_transitions: Bools | None = None
    names: Names | None = field(default=None)

    @cached_property
    def tagger(self) -> _core.Tagger:
        """Return the core's tagger with these weights."""
        return _core.Tagger(
            {
                "n_states": self.n_states,
                "links": self.links,
                "offsets": self.offsets,
                "labels": self.labels,
                "values": self.values,
                "link_weights": self.link_weights,
                "edge_weights": self.edge_weights,
            }
        )

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("tagger", None)
        return state

    def scaled(self, factor: float) -> Weights:
        """Return the weights multiplied by a number."""
        scored = ("values", "link_weights", "edge_weights")
        changed = {name: getattr(self, name) * factor for name in scored}
        return replace(self, **changed)

    @property
    def emission(self) -> sp.csr_array:
        """Return the weights of (column, label) pairs, of shape (n_columns, n_states)."""
        shape = (len(self.offsets) - 1, self.n_states)
        return sp.csr_array((self.values, self.labels.astype(np.int32), self.offsets), shape=shape)


def weights_of(
    flat: FloatArray, pairs: Any, links: NDArray[np.uint8], sizes: tuple[int, int, int]
) -> Weights:
    """Split the core's vector of weights into parts, and leave out zeros.

    `pairs` contains the pairs of column and label that have a weight; None means all pairs.
    `sizes` contains the numbers of labels, of columns, and of transition feature columns.
    """
    n_states, n_columns, n_edge_columns = sizes
    if pairs is None:
        n_emissions = n_columns * n_states
        table = flat[:n_emissions].reshape(n_columns, n_states)
        kept = table != 0
        every = np.broadcast_to(np.arange(n_states, dtype=np.uint16), table.shape)
        values, labels, counts = table[kept], every[kept], kept.sum(axis=1)
    else:
        ends, all_labels = pairs
        n_emissions = len(all_labels)
        kept = np.flatnonzero(flat[:n_emissions])
        values, labels = flat[kept], all_labels[kept]
        columns = np.repeat(np.arange(n_columns), np.diff(ends, prepend=0))
        counts = np.bincount(columns[kept], minlength=n_columns)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    n_edges = n_edge_columns * n_states * n_states
    given = flat[n_emissions : len(flat) - n_edges]
    link_weights = np.zeros(n_states * (n_states + 2))
    link_weights[: len(given)] = given
    edges = np.ascontiguousarray(flat[len(flat) - n_edges :])
    return Weights(n_states, links, offsets, labels, values, link_weights, edges)


def drop_unused(weights: Weights, vocabulary: _core.Vocabulary) -> Weights:
    """Remove columns whose weights are all zero, and their names."""
    marks = weights.on_transitions
    counts = np.diff(weights.offsets)
    if marks is None:
        used = np.flatnonzero(counts)
    else:
        used = np.sort(np.concatenate([np.flatnonzero(~marks)[counts > 0], np.flatnonzero(marks)]))
        marks = marks[used]
    names = Names.of(vocabulary.keep(used.astype(np.uint32).tolist()), None)
    offsets = np.concatenate([[0], np.cumsum(counts[counts > 0])]).astype(np.int64)
    fields = {**weights.__dict__, "offsets": offsets, "on_transitions": marks, "names": names}
    fields.pop("tagger", None)
    return Weights(**fields)
