"""Scores of taggers that count whole chunks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["chunk_f1"]


def chunk_f1(
    y_true: Iterable[Sequence[str]], y_pred: Iterable[Sequence[str]], **options: Any
) -> float:
    """F1 of the chunks that labels like "B-NP", "I-NP" and "O" delimit, by the package seqeval.

    Parameters
    ----------
    y_true, y_pred : iterables of sequences of str
        Right and predicted labels of each sentence.
    **options
        Passed on to `seqeval.metrics.f1_score`: ``average``, ``mode="strict"``, ``scheme``.

    Returns
    -------
    float
        Between 0 and 1; a chunk counts if its kind, its beginning and its end are right.

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
