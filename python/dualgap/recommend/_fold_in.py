"""New users or items of a fitted recommender, without fitting it anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._validation import FloatArray, resolve_threads
from dualgap.recommend._factors import Blocks
from dualgap.recommend._features import unit_rows
from dualgap.recommend._interactions import InteractionFactors, Interactions
from dualgap.recommend._learned import Learned
from dualgap.recommend._ratings import Indexed, Triples, codes, warn_input


def new_ids(
    triples: Triples, table: pd.Index[Any], levels: FloatArray | None, *, of_users: bool
) -> tuple[pd.Index[Any], NDArray[np.intp], Triples]:
    """New ids, positions of the known ones of `table` that they belong with, and the ratings."""
    what = "item" if of_users else "user"
    other = codes(table, triples.items if of_users else triples.users)
    known = np.flatnonzero(other < len(table))
    if len(known) == 0:
        msg = f"ratings: none is of {'an item' if of_users else 'a user'} that was in the fit"
        raise ValueError(msg)
    if len(known) < len(other):
        warn_input(
            f"ratings: {len(other) - len(known)} of {len(other)} are of {what}s that were not "
            "in the fit, and are left out"
        )
    triples = triples.take(known)
    if levels is not None and not np.isin(triples.values, levels).all():
        strange = triples.values[~np.isin(triples.values, levels)][0]
        msg = f"ratings: the rating {strange} is not one of the levels {levels.tolist()}"
        raise ValueError(msg)
    return triples.users if of_users else triples.items, other[known], triples


def folded_blocks(
    models: list[Blocks],
    learned: list[Learned],
    ratings: Indexed,
    target: NDArray[np.intp],
    counts: NDArray[np.intp],
    *,
    of_users: bool,
    history: bool,
    n_jobs: int | None,
) -> list[Blocks]:
    """Models with the blocks of `target` rows fitted to `ratings`, whose ids are 0, 1, ... of them.

    `target` may go on beyond the known rows; `counts` are the ratings of the other side's ids.
    """
    n_new = len(target)
    features = None
    if history:
        # The history is the last part of the features; nothing else is known of a new id.
        ones = (np.ones(len(ratings.users)), (ratings.users, ratings.items))
        rows = unit_rows([sp.csr_array(ones, (n_new, len(counts)))])
        prior = learned[0].users if of_users else learned[0].items
        before = prior.weights.shape[0] - len(counts)
        features = sp.csr_array(sp.hstack([sp.csr_array((n_new, before)), rows], format="csr"))
    result = []
    for blocks, each in zip(models, learned, strict=True):
        new = each.fold_in(
            blocks,
            ratings,
            n_new,
            counts,
            features,
            of_users=of_users,
            n_threads=resolve_threads(n_jobs),
        )
        side = "users" if of_users else "items"
        changed: Any = {side: inserted(getattr(blocks, side), target, new)}
        result.append(replace(blocks, **changed))
    return result


def folded_interactions(
    settings: Interactions,
    factors: InteractionFactors,
    ratings: Indexed,
    target: NDArray[np.intp],
    *,
    of_users: bool,
    n_jobs: int | None,
) -> InteractionFactors:
    """The interactions' vectors with those of `target` rows fitted to `ratings`."""
    others = (factors.items if of_users else factors.users)[:-1]
    new = settings.fold_in(ratings, len(target), others, factors.like, n_jobs=n_jobs)
    side = "users" if of_users else "items"
    changed: Any = {side: inserted(getattr(factors, side), target, new)}
    return replace(factors, **changed)


def inserted(table: FloatArray, target: NDArray[np.intp], new: FloatArray) -> FloatArray:
    """The table with new rows, before its last one where they are beyond it."""
    n = max(len(table) - 1, int(target.max(initial=-1)) + 1)
    result = np.empty((n + 1, table.shape[1]))
    result[: len(table) - 1] = table[:-1]
    result[-1] = table[-1]
    result[target] = new
    return result


def with_history(
    seen: sp.csr_array, rows: NDArray[np.intp], columns: NDArray[np.intp], n_rows: int
) -> sp.csr_array:
    """The sets of rated columns, those of `rows` replaced."""
    kept = seen.tocoo()
    keep = ~np.isin(kept.row, rows)
    row = np.concatenate([kept.row[keep], rows])
    column = np.concatenate([kept.col[keep], columns])
    matrix = sp.csr_array((np.ones(len(row)), (row, column)), (n_rows, seen.shape[1]))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix
