"""Metrics of predicted ratings, rankings, recommendations and probabilities.

`rmse` and `ndcg_at_k` score predictions of held-out ratings; `recall_at_k`, `hit_ndcg_at_k`,
`average_precision_at_k` and `coverage_at_k` score lists of recommended items; `calibration_error`
scores probabilities of rating levels.
"""

from collections.abc import Collection, Sequence
from numbers import Integral
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "average_precision_at_k",
    "calibration_error",
    "coverage_at_k",
    "hit_ndcg_at_k",
    "ndcg_at_k",
    "recall_at_k",
    "rmse",
]

_Floats = NDArray[np.float64]
_Scalar = TypeVar("_Scalar", bound=np.generic)

_GAINS = ("exponential", "linear")
_TIES = ("average", "random", "stable")
# Sums of gains of up to 2 ** 1000 do not exceed the largest double, about 2 ** 1024.
LARGEST_EXPONENT = 1000.0


def rmse(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Root mean squared error, sqrt(mean((y_true - y_pred)²)).

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Observed ratings.
    y_pred : array-like of shape (n_samples,)
        Predicted ratings.

    Returns
    -------
    float
        The error, in the unit of the ratings; 0 is best.

    Raises
    ------
    ValueError
        If an array is empty, not one-dimensional or not finite, or if the lengths differ.

    Examples
    --------
    >>> rmse([3.0, 4.5], [3.0, 3.5])
    0.7071067811865476
    """
    truth = _finite("y_true", y_true)
    error = truth - _same_length("y_pred", _finite("y_pred", y_pred), truth)
    return float(np.sqrt(np.mean(error * error)))


def ndcg_at_k(
    y_true: ArrayLike,
    y_score: ArrayLike,
    k: int,
    *,
    groups: ArrayLike,
    gain: Literal["exponential", "linear"] = "exponential",
    ties: Literal["average", "random", "stable"] = "average",
    random_state: int | np.random.Generator | None = None,
) -> float:
    """Normalised discounted cumulative gain of the first `k` rows, averaged over groups.

    Within a group (a user), rows are ranked by decreasing score, and

        DCG@k = sum over ranks i = 1..k of gain(rel_i) / log2(i + 1),

    which is divided by its maximum, the DCG@k of the ranking by relevance [1]_.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Relevance of each row: any finite non-negative number, not necessarily an integer.
    y_score : array-like of shape (n_samples,)
        Score of each row. Only the order within a group matters. Infinite scores are allowed.
    k : int
        Number of ranks that count. In a smaller group, all rows count.
    groups : array-like of shape (n_samples,)
        Group (user) of each row, in any order; integers, strings or other hashable objects.
    gain : {"exponential", "linear"}, default="exponential"
        Gain of a row: ``2 ** rel - 1`` or ``rel``.
    ties : {"average", "random", "stable"}, default="average"
        Treatment of equal scores: the mean of DCG over all their orders, as in
        ``sklearn.metrics.ndcg_score(ignore_ties=False)`` [2]_; a random order; or the order of the
        input.
    random_state : int, numpy.random.Generator or None, default=None
        Seed of the random order; used only by ``ties="random"``.

    Returns
    -------
    float
        Mean nDCG, from 0 to 1; 1 is best.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.

    Notes
    -----
    A group in which all relevances are 0 counts as 0, as in scikit-learn. The mean is therefore
    defined for any input and always covers the same groups, whatever the model, `k` and `gain`.
    Such groups do not affect the difference between two models. They do not occur if all ratings
    are positive.

    References
    ----------
    .. [1] K. Järvelin and J. Kekäläinen, Cumulated gain-based evaluation of IR techniques,
       ACM Transactions on Information Systems 20 (2002); exponential gain: C. Burges et al.,
       Learning to rank using gradient descent, ICML 2005.
    .. [2] F. McSherry and M. Najork, Computing information retrieval performance measures
       efficiently in the presence of tied scores, ECIR 2008.

    Examples
    --------
    >>> ndcg_at_k([5, 3, 4, 1], [0.9, 0.2, 0.1, 0.8], k=1, groups=["ann", "ann", "bob", "bob"])
    0.5333333333333333
    """
    _check_depth(k)
    if gain not in _GAINS:
        raise ValueError(f"gain must be one of {_GAINS}, got {gain!r}")
    if ties not in _TIES:
        raise ValueError(f"ties must be one of {_TIES}, got {ties!r}")
    relevance = _finite("y_true", y_true)
    score = _same_length("y_score", _floats("y_score", y_score), relevance)
    if np.isnan(score).any():
        raise ValueError("y_score contains NaN")
    group = _same_length("groups", _codes(groups), relevance)

    gains = _gains(relevance, gain)
    n = len(gains)
    starts = np.concatenate(([0], np.cumsum(np.bincount(group))[:-1]))
    # Ranks from 0 within each group, for rows sorted by group.
    rank = np.arange(n) - starts[np.sort(group)]
    discount = np.where(rank < k, 1.0 / np.log2(rank + 2.0), 0.0)

    if ties == "random":
        tiebreak = np.random.default_rng(random_state).permutation(n)
    else:
        tiebreak = np.arange(n)
    by_score = np.lexsort((tiebreak, -score, group))
    ranked = gains[by_score]
    if ties == "average":
        ranked = _mean_of_runs(ranked, score[by_score], rank == 0)
    dcg = np.add.reduceat(ranked * discount, starts)
    ideal = np.add.reduceat(gains[np.lexsort((-gains, group))] * discount, starts)
    ndcg = np.divide(dcg, ideal, out=np.zeros_like(dcg), where=ideal > 0)
    return float(ndcg.mean())


def recall_at_k(relevant: Sequence[Collection[Any]], recommended: Any, k: int) -> float:
    """Mean share of a user's relevant items that are among the first `k` recommended items.

    Recall is relative to the maximum number of hits at `k` ranks: ``hits / min(k, number of
    relevant items)`` [1]_. Users without relevant items are skipped.

    Parameters
    ----------
    relevant : sequence of collections
        Distinct relevant items of each user.
    recommended : array-like of shape (n_users, n)
        Items for each user, best first. A value that is not an item, such as -1, marks an empty
        place.
    k : int
        Number of places that count, from the top of each list.

    Returns
    -------
    float
        Recall from 0 to 1; 0 if no user has a relevant item.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.

    References
    ----------
    .. [1] D. Liang, R. G. Krishnan, M. D. Hoffman and T. Jebara, Variational autoencoders for
       collaborative filtering, WWW 2018.

    Examples
    --------
    >>> recall_at_k([{1, 2}, {3}], [[2, 9, 8], [4, 5, 3]], k=2)
    0.25
    """
    hits, sizes = _hits(relevant, recommended, k)
    return _mean_over_users(hits.sum(axis=1) / np.minimum(np.maximum(sizes, 1), k), sizes)


def hit_ndcg_at_k(relevant: Sequence[Collection[Any]], recommended: Any, k: int) -> float:
    """Mean nDCG@k with gain 1 for relevant items: a hit counts 1 / log2(rank + 1).

    Unlike `ndcg_at_k`, it scores recommendations from a whole catalogue. It raises the same errors
    as `recall_at_k`.

    Parameters
    ----------
    relevant : sequence of collections
        Distinct relevant items of each user.
    recommended : array-like of shape (n_users, n)
        Items for each user, best first. A value that is not an item, such as -1, marks an empty
        place.
    k : int
        Number of places that count, from the top of each list.

    Returns
    -------
    float
        From 0 to 1.
    """
    hits, sizes = _hits(relevant, recommended, k)
    discount = 1.0 / np.log2(np.arange(hits.shape[1]) + 2.0)
    ideal = np.cumsum(1.0 / np.log2(np.arange(k) + 2.0))
    return _mean_over_users(hits @ discount / ideal[np.clip(sizes, 1, k) - 1], sizes)


def average_precision_at_k(relevant: Sequence[Collection[Any]], recommended: Any, k: int) -> float:
    """Mean average precision (MAP@k) of recommended items.

    A user's average precision is the sum of the precisions at the ranks of the user's hits, divided
    by ``min(k, number of relevant items)``. The result is the mean over users. The function raises
    the same errors as `recall_at_k`.

    Parameters
    ----------
    relevant : sequence of collections
        Distinct relevant items of each user.
    recommended : array-like of shape (n_users, n)
        Items for each user, best first. A value that is not an item, such as -1, marks an empty
        place.
    k : int
        Number of places that count, from the top of each list.

    Returns
    -------
    float
        From 0 to 1.
    """
    hits, sizes = _hits(relevant, recommended, k)
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    found = (precision * hits).sum(axis=1)
    return _mean_over_users(found / np.minimum(np.maximum(sizes, 1), k), sizes)


def coverage_at_k(recommended: Any, n_items: int, k: int) -> float:
    """Share of the catalogue that appears among the first `k` items of at least one user.

    Parameters
    ----------
    recommended : array-like of shape (n_users, n)
        Items for each user, best first; negative numbers mark empty places.
    n_items : int
        Size of the catalogue.
    k : int
        Number of places that count, from the top of each list.

    Returns
    -------
    float
        From 0 to 1.
    """
    _check_depth(k)
    if isinstance(n_items, bool) or not isinstance(n_items, Integral) or n_items < 1:
        raise ValueError(f"n_items must be an integer of at least 1, got {n_items!r}")
    items = np.unique(_lists(recommended)[:, :k])
    if items.dtype.kind in "if":
        items = items[items >= 0]
    return float(len(items) / n_items)


def calibration_error(
    y_true: ArrayLike, probabilities: ArrayLike, levels: ArrayLike, n_bins: int = 10
) -> float:
    """Expected calibration error of predicted probabilities of rating levels.

    For each level except the highest, rows are binned by the predicted probability that the rating
    is at most this level, in bins of equal width. The error of a bin is the absolute difference
    between its mean prediction and the observed share of such ratings. The result is the mean error
    over bins, weighted by their size [1]_, averaged over levels.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Observed ratings, each one of `levels`.
    probabilities : array-like of shape (n_samples, n_levels)
        Probability of each level, as returned by `OrdinalRecommender.predict_proba`.
    levels : array-like of shape (n_levels,)
        Rating levels in increasing order.
    n_bins : int, default=10
        Number of bins.

    Returns
    -------
    float
        Error from 0 to 1; 0 is best.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.

    References
    ----------
    .. [1] M. P. Naeini, G. F. Cooper and M. Hauskrecht, Obtaining well calibrated probabilities
       using Bayesian binning, AAAI 2015.
    """
    truth, steps = _finite("y_true", y_true), _finite("levels", levels)
    chances = np.asarray(probabilities, dtype=np.float64)
    if chances.shape != (len(truth), len(steps)) or len(steps) < 2:
        raise ValueError(
            f"probabilities must be of shape ({len(truth)}, {len(steps)}) with at least 2 levels, "
            f"got {chances.shape}"
        )
    if isinstance(n_bins, bool) or not isinstance(n_bins, Integral) or n_bins < 1:
        raise ValueError(f"n_bins must be an integer of at least 1, got {n_bins!r}")
    below = np.clip(np.cumsum(chances, axis=1)[:, :-1], 0.0, 1.0)
    errors = []
    for c in range(len(steps) - 1):
        bins = np.minimum((below[:, c] * n_bins).astype(np.intp), int(n_bins) - 1)
        rest = np.bincount(bins, (truth <= steps[c]) - below[:, c], int(n_bins))
        errors.append(np.abs(rest).sum() / len(truth))
    return float(np.mean(errors))


def _check_depth(k: Any) -> None:
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise ValueError(f"k must be an integer of at least 1, got {k!r}")


def _lists(recommended: Any) -> NDArray[Any]:
    lists = np.asarray(recommended)
    if lists.ndim != 2:
        raise ValueError(
            f"recommended must be two-dimensional, with one row per user; got shape {lists.shape}"
        )
    return lists


def _hits(
    relevant: Sequence[Collection[Any]], recommended: Any, k: int
) -> tuple[_Floats, NDArray[np.intp]]:
    """Return the hits among the first `k` places, and the number of each user's relevant items."""
    _check_depth(k)
    lists = _lists(recommended)[:, :k]
    if len(relevant) != len(lists):
        raise ValueError(
            "relevant and recommended must have the same number of users, "
            f"got {len(relevant)} and {len(lists)}"
        )
    hits = np.zeros(lists.shape)
    for row, (items, found) in enumerate(zip(relevant, lists.tolist(), strict=True)):
        wanted = set(items.tolist() if isinstance(items, np.ndarray) else items)
        hits[row] = [item in wanted for item in found]
    sizes = np.array([len(items) for items in relevant], dtype=np.intp)
    return hits, sizes


def _mean_over_users(values: _Floats, sizes: NDArray[np.intp]) -> float:
    counted = values[sizes > 0]
    return float(counted.mean()) if len(counted) else 0.0


def _gains(relevance: _Floats, gain: str) -> _Floats:
    if relevance.min() < 0:
        raise ValueError(f"y_true must be non-negative, got {relevance.min():g}")
    if gain == "linear":
        return relevance
    if relevance.max() > LARGEST_EXPONENT:
        raise ValueError(
            f"y_true contains {relevance.max():g}, but gain='exponential' supports at most "
            f"{LARGEST_EXPONENT:g}; use gain='linear'"
        )
    return np.exp2(relevance) - 1.0


def _mean_of_runs(values: _Floats, score: _Floats, first: NDArray[np.bool_]) -> _Floats:
    """Replace each value by the mean over rows with equal scores; `first` marks group starts."""
    first = first.copy()
    first[1:] |= score[1:] != score[:-1]
    starts = np.flatnonzero(first)
    lengths = np.diff(starts, append=len(values))
    return np.repeat(np.add.reduceat(values, starts) / lengths, lengths)


def _codes(groups: ArrayLike) -> NDArray[np.intp]:
    """Replace the distinct labels by the numbers 0, 1, ..., in arbitrary order."""
    # In an array made from a list, NumPy would strip trailing NULs from strings, and turn numbers
    # among strings into strings.
    labels = np.asarray(groups, dtype=None if hasattr(groups, "__array__") else object)
    if labels.ndim != 1:
        raise ValueError(f"groups must be one-dimensional, got shape {labels.shape}")
    if labels.dtype != object:
        if labels.dtype.kind in "fc" and np.isnan(labels).any():
            raise ValueError("groups contains NaN")
        return np.unique(labels, return_inverse=True)[1].astype(np.intp, copy=False)
    # Objects of different types cannot be sorted.
    seen: dict[object, int] = {}
    for label in labels:
        if label is None or (isinstance(label, float | np.floating) and label != label):
            raise ValueError(f"groups contains {label if label is None else 'NaN'}")
        seen.setdefault(label, len(seen))
    return np.fromiter((seen[label] for label in labels), np.intp, len(labels))


def _floats(name: str, values: ArrayLike) -> _Floats:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from error
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if len(array) == 0:
        raise ValueError(f"{name} is empty")
    return array


def _finite(name: str, values: ArrayLike) -> _Floats:
    array = _floats(name, values)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity")
    return array


def _same_length(name: str, array: NDArray[_Scalar], truth: _Floats) -> NDArray[_Scalar]:
    if len(array) != len(truth):
        raise ValueError(
            f"{name} and y_true must have the same length, got {len(array)} and {len(truth)}"
        )
    return array
