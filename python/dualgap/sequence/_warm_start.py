"""Warm start of a tagger from the point at which the previous fit ended."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._estimator import depth
from dualgap._validation import FloatArray
from dualgap._validation.labels import class_codes
from dualgap.sequence._training import Problem
from dualgap.sequence._transitions import WEIGHTED


def starting_point(tagger: Any, problem: Problem) -> _core.SequencePoint | None:
    """Convert the last point of the previous fit to this problem; warn if nothing can be reused.

    The dual variables of ``loss="hamming"`` are matched by sentences and label names, and the
    weights of ``loss="logistic"`` by feature and label names, because indices may have changed.
    """
    if tagger.loss == "hamming":
        point: _core.SequencePoint | None = tagger._point
        if point is None or _differs(tagger):
            return None
        start = _dual_point(tagger, problem, point)
        if start is None:
            _warn(
                "no sentence can reuse the dual variables of the previous fit: features, labels, "
                "transitions or lengths differ"
            )
        return start
    weights = starting_weights(tagger, problem)
    return None if weights is None else _core.SequencePoint.of_weights(weights)


def starting_weights(tagger: Any, problem: Problem) -> FloatArray | None:
    """Return the weights of the previous fit in the core's order; warn if they cannot be used."""
    if tagger._point is None or _differs(tagger):
        return None
    weights = _weights_by_name(tagger, problem)
    if weights is None:
        _warn("the kind or number of features differs from the previous fit")
    return weights


def _differs(tagger: Any) -> bool:
    """Warn if the previous fit had another loss; return whether it had."""
    differs: bool = tagger._loss != tagger.loss
    if differs:
        _warn(f'the previous fit had loss="{tagger._loss}"')
    return differs


def _dual_point(
    tagger: Any, problem: Problem, point: _core.SequencePoint
) -> _core.SequencePoint | None:
    """Return the dual point of the previous fit, extended with zeros for new sentences.

    The result is None if the point cannot be reused.
    """
    numbers = class_codes(problem.classes, tagger.classes_).tolist()
    n_before = len(tagger._digests)
    if problem.digests is not None:
        place = dict(zip(tagger._digests.tolist(), range(n_before), strict=True))
        places = [place.get(digest, -1) for digest in problem.digests.tolist()]
        moved = point.moved(problem.core, places, numbers)
        if moved is not None and moved[1] > 0:
            return moved[0]
    if n_before != len(problem):
        return None
    moved = point.moved(problem.core, list(range(n_before)), numbers)
    return moved[0] if moved is not None and moved[1] == n_before else None


def _warn(reason: str) -> None:
    text = f"warm_start: the fit starts from zero: {reason}"
    warnings.warn(text, UserWarning, stacklevel=depth())


def _weights_by_name(tagger: Any, problem: Problem) -> FloatArray | None:
    """Return the weights of the previous fit in the core's order; None if features differ."""
    kept = tagger._weights
    columns = _columns(_old_names(tagger), _new_names(problem))
    if columns is None:
        return None
    classes = class_codes(tagger.classes_, problem.classes)
    old_marks = _marks(kept.on_transitions, len(kept.offsets) - 1)
    new_marks = _marks(problem.marks, problem.n_features)
    pick_emission = _selection(columns, new_marks, old_marks, marked=False)
    pick_edges = _selection(columns, new_marks, old_marks, marked=True)
    pick_classes = _pick(classes, kept.n_states)
    emission = sp.coo_array(pick_emission @ kept.emission @ pick_classes.T)
    parts = [_emission_weights(emission, problem)]
    parts.append(_link_weights(kept, classes, problem, boundaries=bool(tagger.boundaries)))
    edges = kept.edge_weights.reshape(pick_edges.shape[1], kept.n_states, kept.n_states)
    if pick_edges.shape[0]:
        both = [pick_classes @ table @ pick_classes.T for table in edges]
        stacked = np.array(both).reshape(pick_edges.shape[1], -1)
        parts.append(np.asarray(pick_edges @ stacked).ravel())
    return np.concatenate(parts)


def _old_names(tagger: Any) -> list[str] | tuple[Any, int]:
    """Return the column names of the previous fit.

    If columns had no names, return the number of hash bits (None without hashing) and of columns.
    """
    names = tagger._weights.names
    if names is None or names.bits is not None:
        return (None if names is None else names.bits), int(tagger.n_features_in_)
    return list(names.vocabulary.names())


def _new_names(problem: Problem) -> list[str] | tuple[Any, int]:
    if problem.vocabulary is None or problem.hash_bits is not None:
        return problem.hash_bits, problem.n_features
    return list(problem.vocabulary.names())


def _columns(old: Any, new: Any) -> NDArray[np.intp] | None:
    """Return the old index of each new column, or -1; None if the kinds of columns differ."""
    if isinstance(old, list) and isinstance(new, list):
        place = {name: at for at, name in enumerate(old)}
        return np.array([place.get(name, -1) for name in new], dtype=np.intp)
    return np.arange(new[1]) if old == new else None


def _marks(marks: NDArray[np.bool_] | None, n_columns: int) -> NDArray[np.bool_]:
    """Return whether each column is a transition feature."""
    return np.zeros(n_columns, dtype=bool) if marks is None else marks


def _selection(
    columns: NDArray[np.intp],
    new_marks: NDArray[np.bool_],
    old_marks: NDArray[np.bool_],
    *,
    marked: bool,
) -> sp.csr_array:
    """Return the matrix that maps old columns to new columns; `marked` selects the kind."""
    rank = np.where(old_marks == marked, np.cumsum(old_marks == marked) - 1, -1)
    chosen = columns[new_marks == marked]
    places = np.where(chosen >= 0, rank[np.maximum(chosen, 0)], -1) if len(rank) else chosen
    return _pick(places, int((old_marks == marked).sum()))


def _pick(places: NDArray[np.intp], n_old: int) -> sp.csr_array:
    """Return a matrix whose row r has a one in column `places[r]`, or only zeros if it is -1."""
    rows = np.flatnonzero(places >= 0)
    return sp.csr_array((np.ones(len(rows)), (rows, places[rows])), shape=(len(places), n_old))


def _emission_weights(emission: sp.coo_array, problem: Problem) -> FloatArray:
    """Return the earlier weights of the (column, label) pairs that this problem uses."""
    n_columns, n_states = emission.shape
    keys = emission.row.astype(np.int64) * n_states + emission.col
    pairs = problem.core.pairs()
    if pairs is None:
        flat = np.zeros(n_columns * n_states)
        flat[keys] = emission.data
        return flat
    ends, labels = pairs
    columns = np.repeat(np.arange(n_columns), np.diff(ends, prepend=0))
    wanted = columns * n_states + labels
    weights = np.zeros(len(wanted))
    _, new, old = np.intersect1d(wanted, keys, assume_unique=True, return_indices=True)
    weights[new] = emission.data[old]
    return weights


def _link_weights(
    kept: Any, classes: NDArray[np.intp], problem: Problem, *, boundaries: bool
) -> FloatArray:
    """Return the transition weights, and the weights of first and last labels if there are any."""
    n, n_old = len(classes), kept.n_states
    old = kept.link_weights.reshape(n_old + 2, n_old)
    rows = np.concatenate([classes, [n_old, n_old + 1]])
    table = np.where((rows[:, None] >= 0) & (classes >= 0), old[np.ix_(rows, classes)], 0.0)
    table[problem.links.reshape(n + 2, n) != WEIGHTED] = 0.0
    return np.asarray(table[: n + 2 if boundaries else n].ravel())
