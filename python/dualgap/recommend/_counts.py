"""Sums of click counts per pair of user and item, and weights computed from counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from dualgap._validation import FloatArray
from dualgap.recommend._ids import warn_input
from dualgap.recommend._ratings import IndexedRatings, RatingTable, has_repeats


def count_clicks(table: RatingTable, name: str = "ratings") -> RatingTable:
    """Add up the counts of each pair of user and item; leave out counts of 0, with a warning."""
    clicked = np.flatnonzero(table.values > 0.0)
    if len(clicked) < len(table.values):
        if not len(clicked):
            msg = f"{name}: all values are 0, so no user clicked an item"
            raise ValueError(msg)
        warn_input(
            f"{name}: {len(table.values) - len(clicked)} of {len(table.values)} values are 0; "
            "these pairs count as not clicked"
        )
        table = table.take(clicked)
    if not has_repeats(table):
        return table
    items, distinct = pd.factorize(table.items)
    pairs = pd.factorize(table.users)[0].astype(np.int64) * len(distinct)
    pairs += items
    del items
    ordered = np.sort(pairs)
    if not (ordered[1:] == ordered[:-1]).any():
        return table
    pairs, _ = pd.factorize(pairs)
    n_pairs = int(pairs.max()) + 1
    first = np.full(n_pairs, len(pairs), dtype=np.intp)
    np.minimum.at(first, pairs, np.arange(len(pairs)))
    weights = table.weights
    if weights is not None:
        # A given weight applies to each click of its row. The weight of a pair is the mean over all
        # clicks of the pair.
        weights = np.bincount(pairs, weights * table.values) / np.bincount(pairs, table.values)
    values: FloatArray = np.bincount(pairs, table.values).astype(np.float64)
    return replace(table.take(first), values=values, weights=weights)


def count_weights(counts: FloatArray) -> FloatArray | None:
    """Return the weights of pairs with these counts, 1 + log10(count); None if all are 1."""
    if counts.max(initial=1.0) <= 1.0:
        return None
    weights: FloatArray = 1.0 + np.log10(np.maximum(counts, 1.0))
    return None if bool((weights == 1.0).all()) else weights


def weigh_counts(ratings: IndexedRatings) -> IndexedRatings:
    """Multiply the weights of ratings by the weights of their counts."""
    weights = count_weights(ratings.values)
    if weights is None:
        return ratings
    return replace(
        ratings, weights=weights if ratings.weights is None else weights * ratings.weights
    )
