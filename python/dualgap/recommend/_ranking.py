"""Rankings of the catalogue: candidates, best items, neighbours, and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import norm

from dualgap._records import ExclusionRecord
from dualgap._validation import FloatArray, check_positive
from dualgap._validation.arrays import as_numpy
from dualgap.metrics import (
    LARGEST_EXPONENT,
    average_precision_at_k,
    coverage_at_k,
    hit_ndcg_at_k,
    ndcg_at_k,
    recall_at_k,
    rmse,
)
from dualgap.recommend._growing import Lists
from dualgap.recommend._ratings import RatingTable
from dualgap.recommend._tables import check_kind, read_id_list, read_ids, warn_input
from dualgap.recommend._training import Pairs

# Number of users whose rankings are computed at a time.
_BATCH = 1 << 14


@dataclass(frozen=True)
class Candidates:
    """The items that may be recommended to a user."""

    # Whether each item may be recommended to any user.
    allowed: NDArray[np.bool_]
    # Items to leave out for each known user; None to leave out none.
    seen: Lists | None
    n_threads: int
    # Further items to leave out, with a row for each user of the call; None to leave out none.
    excluded: sp.csr_array | None = None


class Model(Protocol):
    """A learned model of users and items, by their positions in the catalogue."""

    def predict(self, pairs: Pairs) -> FloatArray:
        """Return the scores of pairs."""

    def best_items(
        self, users: NDArray[np.intp], n: int, candidates: Candidates
    ) -> tuple[NDArray[np.int64], FloatArray]:
        """Return the positions and the scores of each user's best items.

        If fewer than `n` items are available, the remaining positions are -1.
        """

    def item_vectors(self) -> FloatArray:
        """Return vectors of all items, whose cosines are item similarities."""

    def fits(self, shape: tuple[int, int]) -> bool:
        """Whether arrays from a file match this number of users and items."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save in a file."""


def allowed_items(
    table: pd.Index[Any],
    items: Iterable[Any] | None,
    exclude: Iterable[Any] | Mapping[Any, Any] | None = None,
    mask: Any = None,
    name: str = "items",
) -> NDArray[np.bool_]:
    """Return whether each item of `table` may be recommended; errors call `items` by `name`."""
    allowed = np.ones(len(table), dtype=bool)
    if items is not None:
        found = _find_items(table, items, name)
        allowed[:] = False
        allowed[found[found >= 0]] = True
        if not allowed.any():
            msg = f"{name}: none of the candidates was in the ratings"
            raise ValueError(msg)
        _warn_unknown(items, found, name)
    if exclude is not None and not isinstance(exclude, Mapping):
        found = _find_items(table, exclude, "exclude")
        allowed[found[found >= 0]] = False
        _warn_unknown(exclude, found, "exclude")
    if mask is not None:
        given = np.asarray(as_numpy("mask", mask))
        if given.dtype != np.bool_ or given.shape != allowed.shape:
            msg = (
                f"mask: must have a bool for each of the {len(table)} ids of item_ids_, "
                f"got {given.dtype} of shape {given.shape}"
            )
            raise ValueError(msg)
        allowed &= given
    return allowed


def excluded_items(
    users: pd.Index[Any],
    known: Sequence[pd.Index[Any]],
    table: pd.Index[Any],
    exclude: Mapping[Any, Any],
) -> sp.csr_array:
    """Return a matrix with a 1 for each item of `table` to leave out for each of `users`.

    `exclude` maps users to lists of item ids. Its keys may be any users in `users` or `known`.
    """
    keys = read_ids(list(exclude), "exclude")
    check_kind(users, keys, "exclude (its keys are users)")
    strange = keys[~np.any([keys.isin(ids) for ids in (users, *known)], axis=0)]
    if len(strange):
        warn_input(
            f"exclude: {len(strange)} of {len(keys)} users were not in the ratings "
            f"({strange.tolist()[0]!r}, for example); the keys of the dictionary must be users"
        )
    lists = [exclude.get(user) for user in users.tolist()]
    found = [
        np.zeros(0, np.intp) if items is None else _find_items(table, items, f"exclude[{user!r}]")
        for user, items in zip(users.tolist(), lists, strict=True)
    ]
    unknown = [
        item
        for items, where in zip(lists, found, strict=True)
        if (where < 0).any()
        for item in read_id_list(items, "exclude")[where < 0].tolist()
    ]
    if unknown:
        warn_input(
            f"exclude: {len(unknown)} items were not in the ratings ({unknown[0]!r}, for example)"
        )
    offsets = np.cumsum([0, *map(len, found)])
    places = np.concatenate([np.zeros(0, np.intp), *found])
    rows = np.repeat(np.arange(len(found)), np.diff(offsets))
    rows, places = rows[places >= 0], places[places >= 0]
    return sp.csr_array((np.ones(len(rows)), (rows, places)), shape=(len(users), len(table)))


def _warn_unknown(ids: Any, found: NDArray[np.intp], name: str) -> None:
    """Warn about ids that were not found."""
    unknown = found < 0
    if unknown.any():
        example = read_id_list(ids, name)[unknown].tolist()[0]
        warn_input(
            f"{name}: {int(unknown.sum())} of {len(found)} ids were not in the ratings "
            f"({example!r}, for example)"
        )


def _find_items(table: pd.Index[Any], items: Iterable[Any], name: str) -> NDArray[np.intp]:
    """Return the positions of items in `table`, -1 for unknown items."""
    ids = read_id_list(items, name)
    check_kind(table, ids, name)
    return table.get_indexer(ids)


def best_items(
    search: Callable[[NDArray[np.intp], ExclusionRecord], tuple[Any, Any]],
    users: NDArray[np.intp],
    n: int,
    candidates: Candidates,
) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the positions and the scores of each user's best items.

    If fewer than `n` items are available, the remaining positions are -1. `search` finds the best
    items for a batch of users, given the items to leave out.
    """
    seen, allowed = candidates.seen, candidates.allowed
    found: list[tuple[Any, Any]] = []
    for start in range(0, len(users), _BATCH):
        chosen = users[start : start + _BATCH]
        offsets, items = np.zeros(len(chosen) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32)
        if seen is not None:
            rows = seen.take(chosen)
            offsets, items = rows.offsets, rows.columns
        if candidates.excluded is not None:
            lists = (np.ones(len(items)), items, offsets)
            both: Any = sp.csr_array(lists, shape=(len(chosen), len(allowed)))
            both = both + candidates.excluded[start : start + _BATCH]
            offsets, items = both.indptr.astype(np.int64), both.indices.astype(np.int32)
        excluded: ExclusionRecord = {
            "offsets": offsets,
            "items": items,
            "allowed": np.zeros(0, dtype=bool) if allowed.all() else allowed,
            "n_items": len(allowed),
            "n_threads": candidates.n_threads,
        }
        found.append(search(chosen, excluded))
    if not found:
        return np.zeros((0, n), dtype=np.int64), np.zeros((0, n))
    positions, scores = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return positions, scores.astype(np.float64)


def ranked_table(
    users: pd.Index[Any],
    items: pd.Index[Any],
    best: tuple[NDArray[np.int64], FloatArray],
    columns: tuple[str, str],
) -> pd.DataFrame:
    """Return recommendations as a table with the given names of the user and item columns."""
    positions, scores = best
    row, column = np.nonzero(positions >= 0)
    parts = users[row], column + 1, items[positions[row, column]], scores[row, column]
    table = pd.DataFrame(dict(enumerate(parts)), copy=False)
    table.columns = _names(columns[0], "rank", columns[1], "score").view()
    return table


@cache
def _names(*names: str) -> pd.Index[Any]:
    """Return names of columns, cached: converting them takes as long as building a table."""
    return pd.Index(names)


# Maximum number of entries of candidate vectors that are in memory at a time.
_ENTRIES = 1 << 22


def diversified(
    best: tuple[NDArray[np.int64], FloatArray], vectors: FloatArray, n: int, diversity: float
) -> tuple[NDArray[np.int64], FloatArray]:
    """Choose `n` of each user's best items by score and dissimilarity to the earlier choices."""
    positions, scores = best
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(lengths > 0.0, lengths, 1.0)
    width = positions.shape[1]
    order = np.zeros((len(positions), min(n, width)), dtype=np.intp)
    step = max(1, _ENTRIES // max(1, width * vectors.shape[1]))
    for start in range(0, len(positions), step):
        some = slice(start, start + step)
        found = positions[some], scores[some]
        order[some] = _dissimilar(found, vectors, order.shape[1], diversity)
    return tuple(np.take_along_axis(each, order, axis=1) for each in best)  # type: ignore[return-value]


def _dissimilar(
    best: tuple[NDArray[np.int64], FloatArray], units: FloatArray, n: int, diversity: float
) -> NDArray[np.intp]:
    """Return the indices of the chosen items in `best`; `units` has each item's unit vector."""
    positions, scores = best
    missing, rows = positions < 0, np.arange(len(positions))
    low = np.where(missing, np.inf, scores).min(axis=1, keepdims=True)
    high = np.where(missing, -np.inf, scores).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        relevance = (scores - low) / np.where(high > low, high - low, 1.0)
    # The very low value puts missing ranks last.
    value = np.where(missing, -1e9, (1.0 - diversity) * relevance)
    candidates, nearest = units[positions], np.full(positions.shape, -np.inf)
    order = np.empty((len(positions), n), dtype=np.intp)
    for place in range(n):
        penalty = 0.0 if place == 0 else diversity * nearest
        order[:, place] = chosen = np.argmax(value - penalty, axis=1)
        similar = np.einsum("bwd,bd->bw", candidates, candidates[rows, chosen])
        nearest = np.maximum(nearest, similar)
        value[rows, chosen] = -np.inf
    return order


# Shrinkage of cosines: an id with this number of ratings has its cosines halved.
_SHRINKAGE = 10.0


@dataclass(frozen=True)
class Neighbours:
    """Vectors of all users or all items, and which ids may be neighbours."""

    ids: pd.Index[Any]
    vectors: FloatArray
    # Number of ratings of each id.
    counts: NDArray[Any]
    allowed: NDArray[np.bool_]

    def table(self, names: pd.Index[Any], n: int, what: str, column: str) -> pd.DataFrame:
        """Return the neighbours of each of `names`: the ids with the largest shrunk cosines."""
        check_positive("n", n, integer=True)
        rows = self.ids.get_indexer(names)
        if (rows < 0).any():
            raise KeyError(f"{what}: {names[rows < 0].tolist()[0]!r} was not in the ratings")
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        vectors = self.vectors / np.where(lengths > 0.0, lengths, 1.0)
        # Ids with features but no ratings are shrunk like ids with one rating.
        counts = np.maximum(self.counts, 1)
        shares = counts / (counts + _SHRINKAGE)
        scores = vectors[rows] @ vectors.T * shares[rows, None] * shares
        known = lengths[:, 0] > 0.0
        scores[~known[rows]] = -np.inf
        scores[:, ~(self.allowed & known)] = -np.inf
        scores[np.arange(len(rows)), rows] = -np.inf
        top = top_columns(scores, min(n, len(self.ids) - 1))
        best = np.take_along_axis(scores, top, axis=1)
        row, place = np.nonzero(best > -np.inf)
        return pd.DataFrame(
            {
                column: names[row],
                "rank": place + 1,
                "similar": self.ids[top[row, place]],
                "score": best[row, place],
            }
        )


def top_columns(scores: FloatArray, n: int) -> NDArray[np.intp]:
    """Return the columns of each row's `n` largest scores; ties keep the column order."""
    if n >= scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")[:, :n]
    threshold = -np.partition(-scores, n - 1, axis=1)[:, n - 1]
    top = np.empty((len(scores), n), dtype=np.intp)
    for row, (values, limit) in enumerate(zip(scores, threshold, strict=True)):
        candidates = np.flatnonzero(values >= limit)
        top[row] = candidates[np.argsort(-values[candidates], kind="stable")[:n]]
    return top


def warn_of_seen(
    seen: Lists, users: NDArray[np.intp], items: NDArray[np.intp], name: str = "test"
) -> None:
    """Warn about test pairs that a fit has seen, and that are therefore never recommended."""
    shape = seen.matrix.shape
    known = np.flatnonzero((users < shape[0]) & (items < shape[1]))
    pairs = sp.csr_array((np.ones(len(known)), (users[known], items[known])), shape=shape)
    # A stored rating may be 0.
    ones = replace(seen, values=np.ones(len(seen.values), np.int8))
    n_seen = (pairs * ones.matrix).nnz
    if n_seen:
        warn_input(
            f"{name}: {n_seen} of {len(users)} relevant pairs were in the ratings of the fit; they "
            "are never recommended again, so they count as missed; test on held-out pairs"
        )


def rating_metrics(
    table: RatingTable, predicted: FloatArray, k: Sequence[int], levels: FloatArray
) -> dict[str, float]:
    """Return RMSE and the mean nDCG@k over users; `levels` are the rating levels of the fit."""
    values = table.values
    result = {"rmse": rmse(values, predicted)}
    groups = pd.factorize(table.users)[0]
    relevance, gain = rating_gains(values, levels)
    for depth in k:
        result[f"ndcg@{depth}"] = ndcg_at_k(relevance, predicted, depth, groups=groups, gain=gain)
    return result


def rating_gains(values: FloatArray, levels: FloatArray) -> tuple[FloatArray, Any]:
    """Return non-negative relevances of ratings, and a gain that does not overflow."""
    relevance = values - min(0.0, float(levels.min()), float(values.min()))
    return relevance, "exponential" if relevance.max() <= LARGEST_EXPONENT else "linear"


def evaluate_catalogue(
    model: Model,
    candidates: Candidates,
    relevant: tuple[NDArray[np.intp], NDArray[np.intp], pd.Index[Any]],
    k: Sequence[int],
    confidence: float | None,
) -> dict[str, float]:
    """Return metrics of the best items; `relevant` has user and item positions and user ids."""
    users, items, names = relevant
    n_items = len(candidates.allowed)
    # Users are grouped by id, because all unknown users have the same position. An unknown item is
    # never recommended, so it counts as missed.
    who, distinct = pd.factorize(names)
    first = np.zeros(len(distinct), dtype=np.intp)
    first[who] = users
    best, _ = model.best_items(first, min(max(k), n_items), candidates)
    return catalogue_metrics(best, (who, items), n_items, k, confidence)


def catalogue_metrics(
    recommended: NDArray[np.int64],
    relevant: tuple[NDArray[np.intp], NDArray[np.intp]],
    n_items: int,
    k: Sequence[int],
    confidence: float | None = None,
) -> dict[str, float]:
    """Return metrics of `recommended`, which has a row of ranked item positions per user."""
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
        of_users = _of_users(sets, recommended, depth)
        for name in ("precision", "hit_rate", "mrr"):
            result[f"{name}@{depth}"] = float(of_users[name].mean()) if sets else 0.0
        if confidence is None or len(sets) < 2:
            continue
        for name, values in of_users.items():
            far = norm.ppf(0.5 + confidence / 2) * values.std(ddof=1) / len(sets) ** 0.5
            result[f"{name}@{depth}_low"] = float(values.mean() - far)
            result[f"{name}@{depth}_high"] = float(values.mean() + far)
    return result


def check_ranks(k: Any) -> list[int]:
    """Read the argument `k`: one number of ranks, or several."""
    if isinstance(k, Integral) and not isinstance(k, bool):
        k = [int(k)]
    if isinstance(k, str) or not isinstance(k, Sequence | np.ndarray) or not len(k):
        msg = f"k: must be a number of ranks or a list of them, got {k!r}"
        raise ValueError(msg)
    for rank in k:
        check_positive("k", rank, integer=True)
    return [int(rank) for rank in k]


def check_confidence(confidence: float | None) -> None:
    """Raise an error if the confidence level is not between 0 and 1."""
    if confidence is not None:
        check_positive("confidence", confidence)
        if confidence >= 1.0:
            msg = f"confidence: must be below 1, got {confidence!r}"
            raise ValueError(msg)


def _of_users(
    sets: Sequence[NDArray[np.intp]], recommended: NDArray[np.int64], k: int
) -> dict[str, FloatArray]:
    """Return the metrics of each user; their means are the metrics of the catalogue."""
    lists = recommended[:, :k]
    hits = np.array(
        [np.isin(found, wanted) for found, wanted in zip(lists, sets, strict=True)], dtype=bool
    ).reshape(lists.shape)
    sizes = np.array([len(wanted) for wanted in sets])
    first = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1.0, np.inf)
    ranks = np.arange(1, k + 1)
    discounts = 1.0 / np.log2(ranks + 1.0)
    width, most = lists.shape[1], np.minimum(sizes, k)
    precisions = hits.cumsum(axis=1) / ranks[:width]
    return {
        "recall": hits.sum(axis=1) / most,
        "catalogue_ndcg": hits @ discounts[:width] / discounts.cumsum()[most - 1],
        "map": (precisions * hits).sum(axis=1) / most,
        "precision": hits.sum(axis=1) / k,
        "hit_rate": hits.any(axis=1).astype(np.float64),
        "mrr": 1.0 / first,
    }
