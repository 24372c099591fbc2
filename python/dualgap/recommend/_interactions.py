"""The learned model of clicks: factors fitted to all pairs of users and items, rated or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualgap import _core
from dualgap._estimator import storable
from dualgap._records import InteractionParameters, InteractionRecord, PartRecord
from dualgap._validation import FloatArray, check_positive, resolve_seed, resolve_threads
from dualgap.recommend._ranking import Candidates, best_items
from dualgap.recommend._ratings import Pairs
from dualgap.recommend._training import FitRecord, NewRatings, RunOptions, Training

__all__ = ["Interactions"]


# Not an estimator, but its parameters are to be read, set, cloned and searched like one's.
@storable
@dataclass(kw_only=True, repr=False)
class Interactions(BaseEstimator):  # type: ignore[misc]
    """How `OrdinalRecommender` learns what users take up, by least squares over all pairs [1]_.

    A rating that is a like has the target 1, another rating `other`, and every pair that was not
    rated the target 0 with the weight `unobserved`. The products of the factors rank the whole
    catalogue (``rank_by="like"``).

    Parameters
    ----------
    n_components : int, default=64
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
    max_iter : int, default=15
        Largest number of sweeps over both sides.
    tol : float, default=1e-3
        Share of the objective below which a sweep's gain ends the fit.

    References
    ----------
    .. [1] S. Rendle, W. Krichene, L. Zhang and Y. Koren, Revisiting the performance of iALS on item
       recommendation benchmarks, RecSys 2022; Y. Hu, Y. Koren and C. Volinsky, Collaborative
       filtering for implicit feedback datasets, ICDM 2008.
    """

    n_components: int = 64
    like: float | None = None
    other: float = 0.6
    unobserved: float = 0.15
    ridge: float = 0.3
    max_iter: int = 15
    tol: float = 1e-3

    def check(self) -> None:
        """Refuse parameters that cannot be used."""
        for name in ("n_components", "max_iter"):
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


@dataclass(frozen=True)
class ClickModel:
    """Vectors of users and items; the last row of either table is for unknown ids."""

    users: FloatArray
    items: FloatArray

    def predict(self, pairs: Pairs) -> FloatArray:
        """Scores of pairs: about 1 for a like, 0 for an item that the user does not take up."""
        result = np.empty(len(pairs.users))
        for rows, some in pairs.batches():
            result[rows] = np.einsum("nr,nr->n", self.users[some.users], self.items[some.items])
        return result

    def best_items(
        self, users: NDArray[np.intp], n: int, candidates: Candidates
    ) -> tuple[NDArray[np.int64], FloatArray]:
        """Positions (-1 where there are no more) and scores of each user's best items."""
        width = self.users.shape[1]
        items = np.zeros((len(self.items) - 1, width + 1), dtype=np.float32)
        items[:, :width] = self.items[:-1]

        def parts(chosen: NDArray[np.intp]) -> list[PartRecord]:
            rows = np.zeros((len(chosen), 1, width + 1), dtype=np.float32)
            rows[:, 0, :width] = self.users[chosen]
            return [{"users": rows, "items": items, "gaps": None, "weight": 1.0}]

        return best_items(parts, users, n, candidates)

    def item_vectors(self) -> FloatArray:
        """Vectors of all items, whose cosines compare items."""
        return self.items[:-1]

    def fits(self, shape: tuple[int, int]) -> bool:
        """Whether these are finite vectors for catalogues of this shape, with one width for all."""
        tables = (self.users, self.items)
        return (
            all(table.dtype == np.float64 and table.ndim == 2 for table in tables)
            and (len(self.users) - 1, len(self.items) - 1) == shape
            and self.users.shape[1] == self.items.shape[1] > 0
            and all(bool(np.isfinite(table).all()) for table in tables)
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of a file."""
        return {"interactions.users": self.users, "interactions.items": self.items}

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]]) -> ClickModel:
        """Read `arrays`; `fits` has yet to be called."""
        return cls(arrays["interactions.users"], arrays["interactions.items"])


def fit_clicks(
    method: Interactions, training: Training, like: float, options: RunOptions
) -> tuple[ClickModel, FitRecord]:
    """Fit the vectors of all users and items."""
    ratings = training.ratings
    weights = np.ones(len(ratings.values)) if ratings.weights is None else ratings.weights
    settings = _settings(method, training.shape, resolve_threads(options.n_jobs))
    result = _core.fit_interactions(
        {
            **settings,
            "users": ratings.users.astype(np.uint32),
            "items": ratings.items.astype(np.uint32),
            "targets": _targets(method, ratings.values, like),
            "weights": weights,
            "seed": resolve_seed(options.random_state),
            "callback": options.callback,
        }
    )
    users, items = result["users"], result["items"]
    # An unknown user gets the mean vector, which ranks popular items first. An unknown item gets 0.
    users = np.vstack([users, users.mean(axis=0)])
    items = np.vstack([items, np.zeros((1, method.n_components))])
    return ClickModel(users, items), FitRecord(result["history"], result["objective"])


def fold_in_clicks(
    method: Interactions, model: ClickModel, new: NewRatings, like: float, n_threads: int
) -> ClickModel:
    """Add vectors of new ids to a model."""
    others = (model.items if new.side == "users" else model.users)[:-1]
    record: InteractionRecord = {
        **_settings(method, (len(new.ids), len(others)), n_threads),
        "users": new.own.astype(np.uint32),
        "items": new.other.astype(np.uint32),
        "targets": _targets(method, new.values, like),
        "weights": np.ones(len(new.values)),
        "seed": 0,
        "callback": None,
    }
    vectors = _core.fold_in_interactions(record, np.ascontiguousarray(others))
    changed: Any = {new.side: new.insert_rows(getattr(model, new.side), vectors)}
    return replace(model, **changed)


def _targets(method: Interactions, values: FloatArray, like: float) -> FloatArray:
    return np.where(values >= like, 1.0, float(method.other))


def _settings(
    method: Interactions, shape: tuple[int, int], n_threads: int
) -> InteractionParameters:
    return {
        "n_users": shape[0],
        "n_items": shape[1],
        "n_components": int(method.n_components),
        "unobserved": float(method.unobserved),
        "ridge": float(method.ridge),
        "tol": float(method.tol),
        "max_iter": int(method.max_iter),
        "n_threads": n_threads,
    }
