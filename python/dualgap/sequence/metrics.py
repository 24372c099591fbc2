"""Chunk-level and token-level metrics for taggers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["chunk_f1"]


def chunk_f1(
    y_true: Iterable[Sequence[str]], y_pred: Iterable[Sequence[str]], **options: Any
) -> float:
    """Return seqeval's F1 of the chunks that labels such as "B-NP", "I-NP" and "O" mark.

    Parameters
    ----------
    y_true, y_pred : iterables of sequences of str
        True and predicted labels of each sentence.
    **options
        Passed on to `seqeval.metrics.f1_score`: ``average``, ``mode="strict"``, ``scheme``.

    Returns
    -------
    float
        Between 0 and 1; a chunk is correct if its kind, its start and its end are correct.

    Raises
    ------
    ImportError
        If seqeval is not installed (``pip install seqeval``).
    """
    try:
        from seqeval.metrics import f1_score
    except ImportError as error:
        msg = "chunk_f1 needs the package seqeval (pip install seqeval)"
        raise ImportError(msg) from error
    return float(f1_score([list(y) for y in y_true], [list(y) for y in y_pred], **options))


def label_score(y_true: Sequence[Sequence[Any]], y_pred: Sequence[Sequence[Any]]) -> float:
    """Return the chunk F1 if labels follow a chunk scheme, else the token accuracy."""
    if _are_chunks({label for labels in y_true for label in labels}):
        pairs = [(chunks_of(a), chunks_of(b)) for a, b in zip(y_true, y_pred, strict=True)]
        size = sum(len(a) + len(b) for a, b in pairs)
        return 2 * sum(len(a & b) for a, b in pairs) / size if size else 1.0
    tokens = [a == b for pair in zip(y_true, y_pred, strict=True) for a, b in zip(*pair)]  # noqa: B905
    return sum(tokens) / len(tokens) if tokens else 1.0


def _are_chunks(labels: set[Any]) -> bool:
    """Return whether each label is "O" or a BIO(ES) prefix with a kind, and some label has one."""
    parts = [str(label).partition("-") for label in labels]
    return any(kind for _, _, kind in parts) and all(
        prefix == "O" if not kind else prefix in {"B", "I", "E", "L", "S", "U"}
        for prefix, _, kind in parts
    )


def chunks_of(labels: Sequence[Any]) -> set[tuple[int, int, str]]:
    """Return the start, end and kind of each chunk, as the script conlleval finds them."""
    found, start, kind, is_open = set(), 0, "", False
    for t, label in enumerate([*labels, "O"]):
        prefix, _, own = str(label).partition("-")
        goes_on = is_open and own == kind and prefix in {"I", "E", "L"}
        if kind and not goes_on:
            found.add((start, t, kind))
        if not goes_on:
            start, kind = t, own
        is_open = prefix in {"B", "I"}
    return found
