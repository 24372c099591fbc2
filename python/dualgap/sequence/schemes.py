"""Chunk schemes (BIO, BIOES): detection and repair of labels that violate them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, pairwise, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap._choices import check_choice
from dualgap._validation.copies import listed
from dualgap.sequence._sentences import (
    check_count,
    check_iterable,
    checked_matrix,
    peek,
    read_lengths,
)
from dualgap.sequence.metrics import chunks_of

__all__ = ["repair_labels"]

PREFIXES = {"bio": "BIO", "bioes": "BIOESLU"}


def label_parts(label: Any, scheme: str) -> tuple[str, str]:
    """Return the prefix and the kind of a label.

    Raises
    ------
    ValueError
        If the label does not belong to the scheme.
    """
    prefix, _, kind = str(label).partition("-")
    if len(prefix) != 1 or prefix not in PREFIXES[scheme] or (prefix == "O") != (kind == ""):
        msg = f'transitions: {label!r} is not a label of "{scheme}" (such as "B-X" or "O")'
        raise ValueError(msg)
    return prefix, kind


def repair_labels(y: Iterable[Sequence[str]], scheme: str = "bio") -> list[list[str]]:
    """Rewrite the labels of sentences in a scheme's notation; the chunks do not change.

    Chunks are found as in the script conlleval: an I that does not continue a chunk begins a new
    chunk. IOB1, in which B occurs only between adjacent chunks of one kind, therefore becomes BIO.
    Labels that obey the scheme do not change.

    Parameters
    ----------
    y : iterable of sequences of str
        The labels of each sentence.
    scheme : {"bio", "bioes"}, default="bio"
        The notation. With "bioes", labels "L" and "U" (for "E" and "S") are kept.

    Returns
    -------
    list of lists of str

    Raises
    ------
    ValueError
        If a label does not belong to the scheme.

    Examples
    --------
    >>> repair_labels([["I-PER", "I-PER", "O", "I-LOC", "B-LOC"]])
    [['B-PER', 'I-PER', 'O', 'B-LOC', 'B-LOC']]
    """
    check_choice("scheme", scheme, *PREFIXES)
    sentences = [list(labels) for labels in y]
    known = {label for labels in sentences for label in labels if label is not None}
    prefixes = {label_parts(label, scheme)[0] for label in known}
    ends = "LU" if prefixes & {"L", "U"} and not prefixes & {"E", "S"} else "ES"
    return [_repaired(labels, scheme, ends) for labels in sentences]


def _repaired(labels: list[Any], scheme: str, ends: str) -> list[Any]:
    if None in labels:
        # An unknown label (None) may belong to any chunk.
        return labels
    found = ["O"] * len(labels)
    for start, end, kind in chunks_of(labels):
        prefixes = "B" + "I" * (end - start - 1)
        if scheme == "bioes":
            prefixes = prefixes[:-1] + ends[0] if end - start > 1 else ends[1]
        found[start:end] = [f"{prefix}-{kind}" for prefix in prefixes]
    same = {"L": "E", "U": "S"}
    both = zip(labels, found, strict=True)
    # Labels with the same meaning keep their spelling.
    return [
        a if same.get(a[0], a[0]) + a[1:] == same.get(b[0], b[0]) + b[1:] else b for a, b in both
    ]


def is_iob1(y: Iterable[Sequence[Any]]) -> bool:
    """Return whether each B follows a chunk of the same kind, as in IOB1."""
    for labels in y:
        for before, label in pairwise(["O", *map(str, labels)]):
            if label[:2] == "B-" and before[2:] != label[2:]:
                return False
    return True


Given = tuple[Any, Any, Any, Any, Any]
"""Sentences, labels, weights of sentences, weights of tokens, and lengths."""


def apply_rule(rule: str, scheme: str, given: Given) -> Given:
    """Repair labels that the scheme forbids, or drop their sentences."""
    X, y, sample_weight, token_weight, lengths = given
    check_iterable(y)
    streams = lengths is None and isinstance(X, Iterator)
    if streams and (rule == "repair" or sample_weight is token_weight is None):
        return *_streamed(rule, scheme, X, y), sample_weight, token_weight, None
    labels: Any = _split(y, lengths)
    if streams and not labels:
        msg = 'y: with weights and invalid="drop", must contain all labels before X is read'
        raise ValueError(msg)
    repaired = repair_labels(labels, scheme)
    if rule == "repair":
        y = repaired if lengths is None else list(chain.from_iterable(repaired))
        return X, y, sample_weight, token_weight, lengths
    keep = np.array([a == b for a, b in zip(labels, repaired, strict=True)], dtype=bool)
    rows = keep if lengths is None else np.repeat(keep, lengths)
    if streams:
        X, labels = _streamed(rule, scheme, X, labels)
    else:
        X = _sized(X, lengths)
        if (X.shape[0] if hasattr(X, "shape") else len(X)) != len(rows):
            # Later checks report both numbers.
            return X, labels if lengths is None else y, sample_weight, token_weight, lengths
        if len(keep) and not keep.any():
            raise _all_forbidden(len(keep))
        X = X[rows] if hasattr(X, "shape") else list(compress(X, rows))
        labels = list(compress(labels, keep))
    sample_weight, token_weight = _part(sample_weight, keep), _part(token_weight, rows)
    if lengths is None:
        return X, labels, sample_weight, token_weight, None
    flat = list(chain.from_iterable(labels))
    return X, flat, sample_weight, token_weight, np.asarray(lengths)[keep]


def _streamed(
    rule: str, scheme: str, X: Iterator[Any], y: Iterable[Any]
) -> tuple[Iterator[Any], Iterator[Any]]:
    """Apply a rule to sentences as they are read; read the returned sentences before the labels.

    The labels of a sentence may become available only when the sentence is read.
    """
    kept: list[Any] = []

    def sentences() -> Iterator[Any]:
        missing, n_sentences, n_labels = object(), 0, 0
        for sentence, given in zip_longest(X, y, fillvalue=missing):
            n_sentences += sentence is not missing
            n_labels += given is not missing
            if n_sentences == n_labels:
                labels = _plain(given)
                if rule == "repair" or [labels] == repair_labels([labels], scheme):
                    kept.append(labels)
                    yield sentence
        check_count(n_sentences, n_labels)
        if n_sentences and not kept:
            raise _all_forbidden(n_sentences)

    def labels() -> Iterator[Any]:
        yield from kept if rule == "drop" else repair_labels(kept, scheme)

    return sentences(), labels()


def _all_forbidden(n_sentences: int) -> ValueError:
    return ValueError(
        f'y: `transitions` forbids the labels of all {n_sentences} sentences; use "repair"'
    )


def _plain(labels: Any) -> Any:
    return np.asarray(labels, dtype=object).tolist()


def _split(y: Any, lengths: Any) -> list[list[Any]]:
    """Return the labels of each sentence."""
    if lengths is None:
        return [_plain(labels) for labels in listed(y, "y")]
    flat = _plain(y)
    if not isinstance(flat, list):
        msg = f"y: must have one label for each row, got {type(y).__name__}"
        raise ValueError(msg)
    ends = read_lengths(lengths, len(flat)).tolist()
    return [flat[start:end] for start, end in pairwise(ends)]


def _sized(X: Any, lengths: Any) -> Any:
    """Return a matrix of all rows, or sentences that have a number."""
    if hasattr(X, "shape"):
        return X
    if lengths is not None:
        return checked_matrix(X)
    return list(peek(X)[1])


def _part(values: Any, keep: NDArray[np.bool_]) -> Any:
    """Drop the entries for which `keep` is False; a later check reports a wrong length."""
    if values is None:
        return None
    entries = listed(values, "weights")
    return list(compress(entries, keep)) if len(entries) == len(keep) else entries
