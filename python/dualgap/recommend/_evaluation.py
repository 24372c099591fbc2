"""The metrics of held-out ratings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dualgap._validation import FloatArray
from dualgap.metrics import (
    average_precision_at_k,
    coverage_at_k,
    hit_ndcg_at_k,
    ndcg_at_k,
    recall_at_k,
    rmse,
)
from dualgap.recommend._ratings import Triples


def rating_metrics(triples: Triples, predicted: FloatArray, k: Sequence[int]) -> dict[str, float]:
    """RMSE and mean nDCG@k per user."""
    result = {"rmse": rmse(triples.values, predicted)}
    groups = pd.factorize(triples.users)[0]
    for depth in k:
        result[f"ndcg@{depth}"] = ndcg_at_k(triples.values, predicted, depth, groups=groups)
    return result


def catalogue_metrics(
    recommended: NDArray[np.int64],
    relevant: tuple[NDArray[np.intp], NDArray[np.intp]],
    n_items: int,
    k: Sequence[int],
) -> dict[str, float]:
    """How many of the relevant items (rows of `recommended`, positions) the best ones hold."""
    rows, items = relevant
    order = np.argsort(rows, kind="stable")
    ends = np.searchsorted(rows[order], np.arange(1, len(recommended)))
    sets: list[Any] = np.split(items[order], ends) if len(recommended) else []
    result: dict[str, float] = {}
    for depth in k:
        result[f"recall@{depth}"] = recall_at_k(sets, recommended, depth)
        result[f"catalogue_ndcg@{depth}"] = hit_ndcg_at_k(sets, recommended, depth)
        result[f"map@{depth}"] = average_precision_at_k(sets, recommended, depth)
        result[f"coverage@{depth}"] = coverage_at_k(recommended, n_items, depth)
    return result
