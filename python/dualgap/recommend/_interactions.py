"""Who takes up what: factors fitted to all pairs of users and items, rated or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualgap import _core
from dualgap._estimator import Callback, History, RandomState
from dualgap._validation import FloatArray, check_positive, resolve_seed, resolve_threads
from dualgap.recommend._ratings import Indexed

__all__ = ["Interactions"]


# Not an estimator, but its parameters are to be read, set, cloned and searched like one's.
@dataclass(kw_only=True, repr=False)
class Interactions(BaseEstimator):  # type: ignore[misc]
    """How `OrdinalRecommender` learns what users take up, by least squares over all pairs [1]_.

    A rating that is a like has the target 1, another rating `other`, and every pair that was not
    rated the target 0 with the weight `unobserved`. The products of the factors rank the whole
    catalogue (``rank_by="like"``).

    Parameters
    ----------
    n_factors : int, default=64
        Length of the vectors of users and items.
    like : float, optional
        Smallest rating that is a like. None means the upper quarter of the levels' range: 4 of 1
        to 5, and all ratings where they are all the same.
    other : float, default=0.6
        Target of ratings below `like`: less than a like, but more than a pair not rated, since
        users rate what is made for them.
    unobserved : float, default=0.15
        Weight of a pair that was not rated, against 1 for one that was.
    ridge : float, default=0.3
        Ridge on the vectors, in units of the root of the weights of a user's or an item's pairs.
    n_sweeps : int, default=15
        Largest number of sweeps over both sides.
    tol : float, default=1e-3
        Share of the objective below which a sweep's gain ends the fit.

    References
    ----------
    .. [1] S. Rendle, W. Krichene, L. Zhang and Y. Koren, Revisiting the performance of iALS on item
       recommendation benchmarks, RecSys 2022; Y. Hu, Y. Koren and C. Volinsky, Collaborative
       filtering for implicit feedback datasets, ICDM 2008.
    """

    n_factors: int = 64
    like: float | None = None
    other: float = 0.6
    unobserved: float = 0.15
    ridge: float = 0.3
    n_sweeps: int = 15
    tol: float = 1e-3

    def check(self) -> None:
        """Refuse parameters that cannot be used."""
        for name in ("n_factors", "n_sweeps"):
            check_positive(name, getattr(self, name), integer=True)
        for name in ("unobserved", "ridge"):
            check_positive(name, getattr(self, name))
        for name in ("other", "tol"):
            check_positive(name, getattr(self, name), zero=True)
        if self.like is not None and not np.isfinite(self.like):
            msg = f"like: must be a finite number, got {self.like!r}"
            raise ValueError(msg)

    def threshold(self, levels: FloatArray) -> float:
        """The smallest rating that is a like."""
        if self.like is not None:
            return float(self.like)
        return float(levels[0] + 0.75 * (levels[-1] - levels[0]))

    def fit(
        self,
        ratings: Indexed,
        shape: tuple[int, int],
        like: float,
        *,
        random_state: RandomState,
        n_jobs: int | None,
        callback: Callback | None = None,
    ) -> InteractionFactors:
        """Fit the vectors of all users and items."""
        record = self._record(ratings, shape, like, resolve_threads(n_jobs))
        record |= {"seed": resolve_seed(random_state), "callback": callback}
        result = _core.fit_interactions(record)
        users, items = result["users"], result["items"]
        # An average user takes up what is popular; of an unknown item nothing is known.
        users = np.vstack([users, users.mean(axis=0)])
        items = np.vstack([items, np.zeros((1, self.n_factors))])
        return InteractionFactors(users, items, like, result["history"], result["objective"])

    def fold_in(
        self,
        ratings: Indexed,
        n_new: int,
        others: FloatArray,
        like: float,
        *,
        n_jobs: int | None,
    ) -> FloatArray:
        """The vectors of new ids (`ratings.users`), given those that they are combined with."""
        record = self._record(ratings, (n_new, len(others)), like, resolve_threads(n_jobs))
        return _core.fold_in_interactions(record, np.ascontiguousarray(others))

    def _record(
        self, ratings: Indexed, shape: tuple[int, int], like: float, n_threads: int
    ) -> dict[str, Any]:
        weights = np.ones(len(ratings.values)) if ratings.weights is None else ratings.weights
        return {
            "users": ratings.users.astype(np.uint32),
            "items": ratings.items.astype(np.uint32),
            "targets": np.where(ratings.values >= like, 1.0, float(self.other)),
            "weights": weights,
            "n_users": shape[0],
            "n_items": shape[1],
            "n_factors": int(self.n_factors),
            "unobserved": float(self.unobserved),
            "ridge": float(self.ridge),
            "tol": float(self.tol),
            "seed": 0,
            "n_sweeps": int(self.n_sweeps),
            "n_threads": n_threads,
            "callback": None,
        }


@dataclass(frozen=True)
class InteractionFactors:
    """Vectors of users and items; the last row of either stands for unknown ids."""

    users: FloatArray
    items: FloatArray
    like: float
    history: History
    objective: float

    def scores(self, users: NDArray[np.intp], items: NDArray[np.intp]) -> FloatArray:
        """Scores of (user, item) pairs: about 1 for a like, 0 for what is not taken up."""
        return np.asarray(np.einsum("nr,nr->n", self.users[users], self.items[items]))

    def fits(self, n_users: int, n_items: int) -> bool:
        """Whether these are vectors of so many users and items, one width for all."""
        tables = (self.users, self.items)
        good = all(table.dtype == np.float64 and table.ndim == 2 for table in tables)
        return (
            good
            and [len(table) for table in tables] == [n_users + 1, n_items + 1]
            and self.users.shape[1] == self.items.shape[1] > 0
            and all(bool(np.isfinite(table).all()) for table in tables)
        )
