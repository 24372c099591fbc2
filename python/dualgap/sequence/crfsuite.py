"""Reading and writing of CRFsuite's model files."""

from __future__ import annotations

import os
import struct
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import check_choice
from dualgap._files import replacing
from dualgap._npz import refused_as
from dualgap.sequence import _quark
from dualgap.sequence._transitions import FORBIDDEN, FREE, WEIGHTED
from dualgap.sequence._weights import Names, Weights
from dualgap.sequence.tagger import SequenceTagger

__all__ = ["read_crfsuite", "write_crfsuite"]

# Magic bytes, size, type, version; numbers of features (CRFsuite writes 0), labels and attributes;
# then the offsets of the features, the labels, the attributes, the feature lists of the labels, and
# the feature lists of the attributes.
_HEADER = struct.Struct("<4sI4s9I")
_CHUNK = struct.Struct("<4sII")
_FEATURE = np.dtype([("kind", "<u4"), ("source", "<u4"), ("label", "<u4"), ("weight", "<f8")])
_VERSION = 100
_STATE, _TRANSITION = 0, 1


def read_crfsuite(
    path: str | os.PathLike[str], loss: Literal["logistic", "hamming"] = "logistic"
) -> SequenceTagger:
    """Read a model of CRFsuite (python-crfsuite, sklearn-crfsuite) as a fitted tagger.

    The predictions are the same as CRFsuite's. The tagger reads dictionaries of features as
    python-crfsuite does (``features="crfsuite"``).

    Parameters
    ----------
    path : str or path
        The model file.
    loss : {"logistic", "hamming"}, default="logistic"
        "logistic" for models of CRFsuite's ``lbfgs`` and ``l2sgd``, whose scores are probabilities;
        "hamming" for models of ``ap``, ``pa`` and ``arow``.

    Returns
    -------
    SequenceTagger
        A fitted tagger without attributes that describe a fit, such as `history_`.

    Raises
    ------
    ValueError
        If the file is not a first-order model of CRFsuite, or is damaged.
    OSError
        If the file cannot be read.
    """
    check_choice("loss", loss, "logistic", "hamming")
    with refused_as(path, "a model of CRFsuite"):
        content = Path(path).read_bytes()
        magic, size, kind, version, *numbers = _HEADER.unpack_from(content)
        if (magic, kind, version) != (b"lCRF", b"FOMC", _VERSION) or size != len(content):
            msg = "the header does not describe a first-order model"
            raise ValueError(msg)
        places = numbers[3:]
        labels = _quark.read(content, places[1])
        attributes = _quark.read(content, places[2])
        tag, _, n_features = _CHUNK.unpack_from(content, places[0])
        if tag != b"FEAT" or places[0] + _CHUNK.size + 20 * n_features > len(content):
            msg = "the table of features is missing"
            raise ValueError(msg)
        features = np.frombuffer(content, _FEATURE, n_features, places[0] + _CHUNK.size)
        names = [label.decode() for label in labels]
        classes, code = np.unique(np.array(names, dtype=str), return_inverse=True)
        if len(classes) != len(names):
            msg = "a label occurs twice"
            raise ValueError(msg)
        weights = _weights(features, code, len(attributes))
        weights.names = Names(b"".join(attributes), list(accumulate(map(len, attributes))))
        _ = weights.tagger, [name.decode() for name in attributes]
    tagger = SequenceTagger(
        loss, pairs="seen", transitions="seen", boundaries=False, features="crfsuite"
    )
    tagger.classes_, tagger.n_features_in_ = classes, len(attributes)
    tagger._weights, tagger._loss, tagger._features = weights, loss, "crfsuite"
    tagger.notes_ = {}
    return tagger


def _weights(features: NDArray[Any], code: NDArray[np.intp], n_columns: int) -> Weights:
    """Return the weights of a file; `code` maps its label numbers to sorted class indices."""
    n = len(code)
    state = features[features["kind"] == _STATE]
    links = features[features["kind"] == _TRANSITION]
    for part, n_sources in ((state, n_columns), (links, n)):
        if len(part) and (part["source"].max() >= n_sources or part["label"].max() >= n):
            msg = "a feature has an unknown attribute or label"
            raise ValueError(msg)
    table = np.zeros((n + 2, n))
    np.add.at(table, (code[links["source"]], code[links["label"]]), links["weight"])
    codes = np.full((n + 2, n), FREE, dtype=np.uint8)
    codes[:n] = WEIGHTED
    keys = state["source"].astype(np.int64) * n + code[state["label"]]
    keys, place = np.unique(keys, return_inverse=True)
    values = np.bincount(place, state["weight"], minlength=len(keys))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(keys // n, minlength=n_columns))])
    return Weights(
        n_states=n,
        links=codes.ravel(),
        offsets=offsets.astype(np.int64),
        labels=(keys % n).astype(np.uint16),
        values=values.astype(np.float64),
        link_weights=table.ravel(),
        edge_weights=np.zeros(0),
    )


def write_crfsuite(tagger: SequenceTagger, path: str | os.PathLike[str]) -> None:
    """Write a fitted tagger as a model file that CRFsuite reads.

    Parameters
    ----------
    tagger : SequenceTagger
        A tagger that was fitted to named features, with ``boundaries=False`` and
        ``transitions="all"`` or "seen": CRFsuite has no boundary weights, no forbidden transitions
        and no transition features.
    path : str or path
        File to write. An existing file is replaced atomically.

    Raises
    ------
    ValueError
        If CRFsuite cannot represent the tagger; the message names the parameter.
    OSError
        If the file cannot be written.
    """
    check_is_fitted(tagger)
    weights, n = tagger._weights, len(tagger.classes_)
    _check_exportable(tagger)
    table = weights.link_weights.reshape(n + 2, n)[:n]
    counts = np.diff(weights.offsets)
    used = np.flatnonzero(counts)
    source, label = np.nonzero(table)
    features = np.zeros(len(weights.values) + len(source), dtype=_FEATURE)
    state, links = features[: len(weights.values)], features[len(weights.values) :]
    state["source"] = np.repeat(np.arange(len(used)), counts[used])
    state["label"], state["weight"] = weights.labels, weights.values
    links["kind"], links["source"], links["label"] = _TRANSITION, source, label
    links["weight"] = table[source, label]
    assert weights.names is not None
    known = weights.names.vocabulary.names()
    attributes = [known[column].encode() for column in used.tolist()]
    labels = [name.encode() for name in tagger.classes_.tolist()]
    by_label = np.bincount(source, minlength=n)
    parts = [
        _CHUNK.pack(b"FEAT", _CHUNK.size + features.nbytes, len(features)) + features.tobytes(),
        _quark.packed("labels", labels),
        _quark.packed("features", attributes),
    ]
    places = list(accumulate((len(_padded(part)) for part in parts), initial=_HEADER.size))
    numbers = np.arange(len(features), dtype="<u4")
    parts.append(_lists(b"LFRF", places[3], by_label, numbers[len(state) :], n_empty=2))
    places.append(places[3] + len(parts[3]))
    parts.append(_lists(b"AFRF", places[4], counts[used], numbers[: len(state)]))
    size = places[4] + len(parts[4])
    if size >= 1 << 32:
        msg = f"tagger: a CRFsuite model file has at most 4 GiB, this file would have {size} bytes"
        raise ValueError(msg)
    head = (b"lCRF", size, b"FOMC", _VERSION, 0, n, len(used), *places)
    with replacing(path) as file:
        file.write(_HEADER.pack(*head))
        for part in parts:
            file.write(_padded(part))


def _check_exportable(tagger: SequenceTagger) -> None:
    weights, n = tagger._weights, len(tagger.classes_)
    if weights.names is None or weights.names.bits is not None:
        msg = "tagger: CRFsuite needs feature names; this tagger has a matrix or hashed names"
        raise ValueError(msg)
    if weights.on_transitions is not None:
        msg = "transition_features: CRFsuite has no transition features"
        raise ValueError(msg)
    if weights.link_weights[n * n :].any():
        msg = "boundaries: CRFsuite has no boundary weights; fit with boundaries=False"
        raise ValueError(msg)
    if (weights.links == FORBIDDEN).any():
        msg = 'transitions: CRFsuite cannot forbid any; fit with transitions="all" or "seen"'
        raise ValueError(msg)
    for label in tagger.classes_.tolist():
        if not isinstance(label, str):
            msg = f"tagger: CRFsuite labels must be strings, got {label!r}"
            raise ValueError(msg)


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)


def _lists(
    tag: bytes, place: int, counts: NDArray[np.int64], numbers: NDArray[Any], n_empty: int = 0
) -> bytes:
    """Return the feature lists of all labels or attributes, in order of their numbers.

    CRFsuite reserves two more labels, for the beginning and the end, which have no list.
    """
    head = _CHUNK.size + 4 * (len(counts) + n_empty)
    # Each list begins with an element that holds its length.
    at = np.cumsum(counts) - counts + np.arange(len(counts))
    body = np.zeros(len(numbers) + len(counts), dtype="<u4")
    is_number = np.ones(len(body), dtype=bool)
    is_number[at] = False
    body[at], body[is_number] = counts, numbers
    starts = np.zeros(len(counts) + n_empty, dtype="<u4")
    starts[: len(counts)] = place + head + 4 * at
    size = head + body.nbytes
    return _CHUNK.pack(tag, size, len(starts)) + starts.tobytes() + body.tobytes()
