"""The recommender's variational fit: Gaussian blocks for users and items, no certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._choices import Penalty
from dualgap._estimator import Callback, History, refuse_unused
from dualgap._validation import (
    FloatArray,
    check_positive,
    core_rows,
    resolve_seed,
    resolve_threads,
)
from dualgap.recommend._factors import Blocks
from dualgap.recommend._features import Sides
from dualgap.recommend._learned import Learned, SidePrior
from dualgap.recommend._method import Fitted, Method, Task
from dualgap.recommend._ratings import Indexed
from dualgap.recommend._times import FittedTimes, TimeWeights

__all__ = ["Variational"]

_SIDES = ("user", "item")


@dataclass(kw_only=True, repr=False)
class Variational(Method):
    """Give each user and item a Gaussian with a learned prior, and keep the means.

    The best predictions, but no certificate: the problem is not convex.

    Parameters
    ----------
    n_models : int, default=3
        Models from different random starts whose expected ratings are averaged.
    n_sweeps : int, default=40
        Largest number of sweeps over all users and items for each model.
    tol : float, optional
        Share of the objective below which a sweep's gain ends a model's fit. None means 1e-3, and
        2e-3 with features, whose prior goes on gaining after predictions have settled.
    tempering : float, default=1.0
        Weight of the data against the prior (of ``reduction="mcrank"``). Below 1 the model is
        smoother. The thresholds of one rating are not independent evidence: their terms are further
        weighted from 0.6 (lowest) to 1 (highest).
    popularity : bool, default=True
        Let the prior of a user or item depend on its number of ratings.
    feature_ridge : float, default=1.0
        Ridge on the weights of the features, in units of the prior.
    penalty : {"l1/l2", "l1/linf", "l1"}, default="l1/l2"
        Norm of the output layer that `radius` bounds.
    radius : float, optional
        Bound on the norm of the output layer, for basis vectors of unit length (over users and
        items together); None means no bound.
    """

    name = "variational"
    validates = False
    has_times = True

    n_models: int = 3
    n_sweeps: int = 40
    tol: float | None = None
    tempering: float = 1.0
    popularity: bool = True
    feature_ridge: float = 1.0
    penalty: Penalty = "l1/l2"
    radius: float | None = None

    def check(self) -> None:
        """Refuse parameters that cannot be used."""
        for name in ("n_models", "n_sweeps"):
            check_positive(name, getattr(self, name), integer=True)
        for name in ("tempering", "feature_ridge"):
            check_positive(name, getattr(self, name))
        if self.tol is not None:
            check_positive("tol", self.tol, zero=True)
        if self.radius is None:
            refuse_unused(self, ["penalty"], "radius=None")
        else:
            check_positive("radius", self.radius)

    def n_epochs(self) -> int:
        """The sweeps of all models."""
        return int(self.n_models) * int(self.n_sweeps)

    def run(self, task: Task, ratings: Indexed, sides: Sides, held_out: Indexed | None) -> Fitted:
        """Fit models from different random starts."""
        # Ids without ratings teach nothing: the fit is over the others, and theirs follow from it.
        parts = [
            _Part.of(ids, n, features)
            for ids, n, features in zip(
                (ratings.users, ratings.items), sides.shape, sides.features, strict=True
            )
        ]
        settings = self._settings(task, parts)
        targets, generator = ratings.values, np.random.default_rng(resolve_seed(task.random_state))
        if task.ordinal:
            targets = np.searchsorted(task.levels, targets).astype(np.float64)
        models, learned, histories = [], [], []
        periods = (
            [] if ratings.periods is None else [_Periods.read(each) for each in ratings.periods]
        )
        done: tuple[int, float] = (0, 0.0)
        for number in range(self.n_models):
            users, items = parts
            result: Any = _core.fit_variational(
                users.ids,
                items.ids,
                targets,
                {
                    **settings,
                    "weights": ratings.weights,
                    "groups": [(own.of, len(own.codes)) for own in periods] or None,
                    "seed": int(generator.integers(2**63)),
                    "callback": _going_on(task.callback, *done),
                },
            )
            of_users, of_items = (SidePrior.read(result[f"{side}_prior"]) for side in _SIDES)
            models.append(
                Blocks(
                    users.spread_out(result["users"], of_users),
                    items.spread_out(result["items"], of_items),
                    result["output"],
                    result["intercept"],
                )
            )
            for own, side in zip(periods, _SIDES, strict=False):
                own.tables.append(result[f"{side}_effects"])
            tempering = np.array(settings["tempering"] or [])
            precision = np.array([result["precision"]])
            learned.append(Learned(of_users, of_items, precision, tempering))
            histories.append(_numbered(result["history"], number, *done))
            done = (int(histories[-1]["epoch"][-1]), float(histories[-1]["seconds"][-1]))
            if result["outcome"] == "stopped":
                break
        history = {
            name: np.concatenate([each[name] for each in histories]) for name in histories[0]
        }
        return Fitted(
            models, history, result["objective"], learned=learned, times=_Periods.times(periods)
        )

    def _settings(self, task: Task, parts: list[_Part]) -> dict[str, Any]:
        """What the models have in common."""
        if task.ordinal:
            tempering = _tempering(len(task.levels) - 1, self.tempering)
        else:
            refuse_unused(self, ["tempering"], f'reduction="{task.reduction}"')
            tempering = None
        shape = [len(part.rated) for part in parts]
        rows = [part.features for part in parts]
        has_features = any(matrix is not None for matrix in rows)
        user_rows, item_rows = (None if each is None else core_rows(each) for each in rows)
        return {
            "n_users": shape[0],
            "n_items": shape[1],
            "tempering": tempering,
            "n_components": task.n_components,
            "penalty": self.penalty,
            # The core's basis vectors have a mean square of 1.
            "radius": np.inf if self.radius is None else float(self.radius) / sum(shape),
            "output_ridge": 1.0,
            # Learning earlier prunes bases before they have formed; features help them form.
            "hold": 3 if has_features or not task.ordinal else 5,
            "feature_ridge": float(self.feature_ridge),
            "relaxation": 1.5,
            "popularity": bool(self.popularity),
            "tol": (2e-3 if has_features else 1e-3) if self.tol is None else float(self.tol),
            "n_sweeps": int(self.n_sweeps),
            "n_threads": resolve_threads(task.n_jobs),
            "user_features": user_rows,
            "item_features": item_rows,
        }


@dataclass(frozen=True)
class _Periods:
    """The periods of one side by their codes, that of each rating, and their weights."""

    codes: NDArray[np.int64]
    of: NDArray[np.uint32]
    # A table for each model.
    tables: list[FloatArray] = field(default_factory=list)

    @classmethod
    def read(cls, codes: NDArray[np.int64]) -> _Periods:
        distinct, numbered = np.unique(codes, return_inverse=True)
        return cls(distinct, numbered.astype(np.uint32))

    @staticmethod
    def times(periods: list[_Periods]) -> FittedTimes | None:
        """What was learned of the periods of users and items, if there are any."""
        if not periods:
            return None
        users, items = (TimeWeights.of(side.codes, side.tables) for side in periods)
        return FittedTimes(users, items)


@dataclass(frozen=True)
class _Part:
    """The rated ids of one side, and all others."""

    # Which ids are rated, and how often.
    rated: NDArray[np.intp]
    counts: NDArray[np.intp]
    # The ratings' ids, numbered among the rated ones.
    ids: NDArray[np.uint32]
    features: sp.csr_array | None
    all_features: sp.csr_array | None
    n: int

    @classmethod
    def of(cls, ids: NDArray[np.intp], n: int, features: sp.csr_array | None) -> _Part:
        rated, numbered, counts = np.unique(ids, return_inverse=True, return_counts=True)
        mine = features
        if features is not None and len(rated) < n:
            mine = sp.csr_array(features[rated])
        return cls(rated, counts, numbered.astype(np.uint32), mine, features, n)

    def spread_out(self, known: FloatArray, prior: SidePrior) -> FloatArray:
        """Blocks of all ids and, last, of an unknown one.

        An id without ratings is what its features make of the mean block. That is weighted by the
        numbers of ratings: a plain mean would be dominated by ids that few ratings are about.
        """
        share = self.counts / self.counts.sum()
        unknown = share @ known
        blocks = np.tile(unknown, (self.n + 1, 1))
        blocks[self.rated] = known
        if self.features is not None and self.all_features is not None and len(self.rated) < self.n:
            rest = np.setdiff1d(np.arange(self.n), self.rated)
            mean = np.asarray(share @ self.features)
            blocks[rest] += (self.all_features[rest] @ prior.weights) - mean @ prior.weights
        return blocks


def _going_on(report: Callback | None, epochs: int, before: float) -> Callback | None:
    """Count epochs and seconds on from the previous model."""
    if report is None:
        return None

    def shifted(epoch: int, seconds: float, objective: float, dual_objective: float) -> object:
        return report(epoch + epochs, seconds + before, objective, dual_objective)

    return shifted


def _numbered(history: History, number: int, epochs: int, before: float) -> History:
    """The history of one of several models, as its callback was called."""
    return {
        **history,
        "epoch": history["epoch"] + epochs,
        "seconds": history["seconds"] + before,
        "model": np.full(len(history["epoch"]), number),
    }


def _tempering(n_thresholds: int, scale: float) -> list[float]:
    """Weights of the thresholds' terms: the curve found on five levels, stretched to any number.

    More thresholds carry no more evidence: their weights shrink so that the sum stays.
    """
    if n_thresholds == 1:
        return [float(scale)]
    curve = np.interp(np.linspace(0.0, 3.0, n_thresholds), range(4), (0.6, 0.7, 0.8, 1.0))
    return list(scale * curve * min(1.0, 4.0 / n_thresholds))
