"""The best items of users: candidates, scores in blocks, tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._validation import FloatArray
from dualgap.recommend._factors import Blocks
from dualgap.recommend._interactions import InteractionFactors
from dualgap.recommend._ratings import read_ids

# Users whose rows are made at a time.
_BATCH = 1 << 14


def allowed_items(
    table: pd.Index[Any],
    items: Iterable[Any] | None,
    exclude: Iterable[Any] | None,
    mask: Any,
) -> NDArray[np.bool_]:
    """Which items may be recommended at all."""
    allowed = np.ones(len(table), dtype=bool)
    if items is not None:
        found = table.get_indexer(read_ids(items, "item"))
        allowed[:] = False
        allowed[found[found >= 0]] = True
        if not allowed.any():
            msg = "items: none of the candidates was in the ratings"
            raise ValueError(msg)
    if exclude is not None:
        found = table.get_indexer(read_ids(exclude, "item"))
        allowed[found[found >= 0]] = False
    if mask is not None:
        given = np.asarray(mask)
        if given.dtype != np.bool_ or given.shape != allowed.shape:
            msg = (
                f"mask: must have a bool for each of the {len(table)} ids of item_ids_, "
                f"got {given.dtype} of shape {given.shape}"
            )
            raise ValueError(msg)
        allowed &= given
    return allowed


def rating_parts(
    models: list[Blocks], gaps: list[float] | None, users: NDArray[np.intp]
) -> list[dict[str, Any]]:
    """The expected rating above the lowest level, averaged over the models."""
    return [
        {
            "users": blocks.user_rows(users),
            "items": blocks.item_rows(),
            "gaps": gaps,
            "weight": 1.0 / len(models),
        }
        for blocks in models
    ]


def like_parts(factors: InteractionFactors, users: NDArray[np.intp]) -> list[dict[str, Any]]:
    """The interactions' scores."""
    width = factors.users.shape[1]
    rows = np.zeros((len(users), 1, width + 1), dtype=np.float32)
    rows[:, 0, :width] = factors.users[users]
    items = np.zeros((len(factors.items) - 1, width + 1), dtype=np.float32)
    items[:, :width] = factors.items[:-1]
    return [{"users": rows, "items": items, "gaps": None, "weight": 1.0}]


def best_items(
    parts: Any,
    users: NDArray[np.intp],
    seen: sp.csr_array,
    allowed: NDArray[np.bool_],
    n: int,
    *,
    exclude_seen: bool,
    n_threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Positions (-1 where there are no more) and scores of each user's best items."""
    found: list[tuple[Any, Any]] = []
    for start in range(0, len(users), _BATCH):
        chosen = users[start : start + _BATCH]
        offsets, items = np.zeros(len(chosen) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32)
        if exclude_seen:
            known = np.flatnonzero(chosen < seen.shape[0])
            rows = seen[chosen[known]]
            offsets[known + 1] = np.diff(rows.indptr)
            offsets, items = np.cumsum(offsets), rows.indices.astype(np.int32)
        excluded = {
            "offsets": offsets,
            "items": items,
            "allowed": np.zeros(0, dtype=bool) if allowed.all() else allowed,
            "n_items": len(allowed),
            "n_threads": n_threads,
        }
        found.append(_core.best_items(parts(chosen), excluded, n))
    if not found:
        return np.zeros((0, n), dtype=np.int64), np.zeros((0, n), dtype=np.float32)
    positions, scores = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return positions, scores


def ranked_table(
    users: pd.Index[Any], items: pd.Index[Any], best: tuple[Any, Any], lowest: float
) -> pd.DataFrame:
    """Recommendations as a table."""
    positions, scores = best
    row, column = np.nonzero(positions >= 0)
    return pd.DataFrame(
        {
            "user": users[row],
            "rank": column + 1,
            "item": items[positions[row, column]],
            "score": lowest + scores[row, column].astype(np.float64),
        }
    )


def nearest(vectors: FloatArray, positions: NDArray[np.intp], n: int) -> tuple[Any, Any]:
    """The other vectors of the largest cosines, and these."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(lengths > 0.0, lengths, 1.0)
    scores = vectors[positions] @ vectors.T
    scores[np.arange(len(positions)), positions] = -np.inf
    top = top_columns(scores, n)
    return top, np.take_along_axis(scores, top, axis=1)


def top_columns(scores: FloatArray, n: int) -> NDArray[np.intp]:
    """Columns of the `n` largest scores of each row, best first, ties in column order."""
    if n >= scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")[:, :n]
    threshold = -np.partition(-scores, n - 1, axis=1)[:, n - 1]
    top = np.empty((len(scores), n), dtype=np.intp)
    for row, (values, limit) in enumerate(zip(scores, threshold, strict=True)):
        candidates = np.flatnonzero(values >= limit)
        top[row] = candidates[np.argsort(-values[candidates], kind="stable")[:n]]
    return top
