"""Variational training of the recommender, without a certificate."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._choices import Penalty
from dualgap._estimator import Callback, History, announce, refuse_unused, storable
from dualgap._estimator.watch import user_callback
from dualgap._records import VariationalParameters, VariationalRecord
from dualgap._validation import (
    FloatArray,
    check_bool,
    check_positive,
    core_rows,
    resolve_seed,
    resolve_threads,
)
from dualgap.recommend._rating_model import (
    Machine,
    Method,
    PeriodWeights,
    Priors,
    RatingModel,
    SidePrior,
    TimeEffects,
)
from dualgap.recommend._ratings import RatingScale
from dualgap.recommend._training import (
    FitRecord,
    IndexedRatings,
    Pairs,
    RunOptions,
    Training,
)

__all__ = ["Variational"]

_SIDES = ("user", "item")

# Ratio of the successive values of `tempering` that are tried if there are few ratings per id, and
# their largest number. They start at 1, because 0.7 was worse than 1 on all of eight sparse sets.
_STEP, _TRIALS = 1.25, 5
# Mean number of ratings per user or item from which `tempering` is 1 without a trial. The learned
# variances then hardly depend on it. Each rating counts for its user and for its item.
_DENSE = 16
# Number of ratings from which `tempering` is chosen. A tenth of fewer ratings is too noisy.
_ENOUGH = 1000
# Weight of the mean over all ratings, in units of ids with one rating. This is the ratio of the
# variance of a rating of an id with one rating, about 1, to the squared difference between the mean
# of these ratings and the mean over all ratings, about 0.1.
_SINGLES = 10


@storable
@dataclass(kw_only=True, repr=False)
class Variational(Method):
    """Fit a Gaussian with a learned prior to each user and item, and predict with the means.

    Gives the best predictions, but no certificate, because the problem is not convex.

    Parameters
    ----------
    n_models : int, default=3
        Number of models from different random starts, whose expected ratings are averaged.
    max_iter : int, default=40
        Maximum number of sweeps over all users and items for each model.
    tol : float, optional
        A model's fit ends when a sweep lowers the objective by less than this fraction. None means
        1e-3, or 2e-3 with features, because their prior keeps improving the objective after
        predictions no longer change.
    tempering : float, optional
        Weight of the data relative to the prior (only for ``task="ordinal"``). A weight below 1
        makes the model smoother. The thresholds of one rating are not independent evidence, so
        their terms have additional weights from 0.6 (lowest) to 1 (highest). None means 1; with
        fewer than 16 ratings per id, and at least 1,000 ratings, it means a value from 1 to 2.5
        that is chosen by the error on a tenth of the ratings. The choice fits three to five further
        machines.
    popularity : bool, default=True
        Whether the prior of a user or item depends on its number of ratings.
    feature_ridge : float, default=1.0
        Ridge on the feature weights, relative to the prior.
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
    max_iter: int = 40
    tol: float | None = None
    tempering: float | None = None
    popularity: bool = True
    feature_ridge: float = 1.0
    penalty: Penalty = "l1/l2"
    radius: float | None = None

    def check(self) -> None:
        """Raise an error for invalid parameters."""
        for name in ("n_models", "max_iter"):
            check_positive(name, getattr(self, name), integer=True)
        check_positive("feature_ridge", self.feature_ridge)
        if self.tempering is not None:
            check_positive("tempering", self.tempering)
        check_bool("popularity", self.popularity)
        if self.tol is not None:
            check_positive("tol", self.tol, zero=True)
        if self.radius is None:
            refuse_unused(self, ["penalty"], "radius=None")
        else:
            check_positive("radius", self.radius)

    def n_epochs(self) -> int:
        """Return the maximum number of sweeps of all models together."""
        return int(self.n_models) * int(self.max_iter)

    def run(
        self, training: Training, scale: RatingScale, n_components: int, options: RunOptions
    ) -> tuple[RatingModel, FitRecord]:
        """Fit factorization machines, with `tempering` chosen unless it is given."""
        if self.tempering is not None or not scale.ordinal:
            return self._fit(training, scale, n_components, options)
        if not _has_few_ratings_per_id(training.ratings):
            return replace(self, tempering=1.0)._fit(training, scale, n_components, options)
        announce(options.callback, "choosing tempering")
        trials = _TrialCallback(user_callback(options.callback))
        chosen = self._choose_tempering(training, scale, n_components, options.n_jobs, trials)
        if trials.ended:
            options = replace(options, callback=_stopping(options.callback))
        return replace(self, tempering=chosen)._fit(training, scale, n_components, options)

    def _fit(
        self, training: Training, scale: RatingScale, n_components: int, options: RunOptions
    ) -> tuple[RatingModel, FitRecord]:
        """Fit factorization machines from different random starts."""
        ratings = training.ratings
        # The core fits only ids with ratings. The rows of all other ids are computed afterwards.
        ids = zip((ratings.users, ratings.items), training.shape, training.features, strict=True)
        users, items = (_RatedIds.of(*side) for side in ids)
        periods = [_Periods.of(codes) for codes in ratings.periods or ()]
        has_features = users.features is not None or items.features is not None
        # More basis vectors are never useful: `rank` vectors, or one vector per rating, can
        # reproduce any outputs. The time of a sweep grows with the cube of the number of vectors.
        rank = scale.n_outputs * min(len(users.rated), len(items.rated))
        n_components = min(n_components, rank, len(ratings.values))
        settings: VariationalRecord = {
            **self._settings(
                scale, n_components, len(users.rated) + len(items.rated), has_features
            ),
            "n_users": len(users.rated),
            "n_items": len(items.rated),
            "user_features": _core_features(users.features),
            "item_features": _core_features(items.features),
            "weights": ratings.weights,
            "groups": [(own.numbers, len(own.codes)) for own in periods] or None,
            "n_threads": resolve_threads(options.n_jobs),
            "seed": 0,
            "callback": None,
        }
        # The priors of the core suit outputs whose standard deviation is about 1.
        unit = scale.unit(ratings.values)
        settings["radius"] /= unit
        if scale.ordinal:
            targets = np.searchsorted(scale.levels, ratings.values).astype(np.float64)
        else:
            targets = ratings.values / unit
        generator = np.random.default_rng(resolve_seed(options.random_state))
        machines, priors, histories = [], [], []
        done: tuple[int, float] = (0, 0.0)
        for number in range(self.n_models):
            settings["seed"] = int(generator.integers(2**63))
            settings["callback"] = _continued(options.callback, *done)
            result: Any = _core.fit_variational(users.ids, items.ids, targets, settings)
            of_users, of_items = (SidePrior.read(result[f"{side}_prior"]) for side in _SIDES)
            known = users.extend(result["users"], of_users), items.extend(result["items"], of_items)
            machine = Machine(*known, result["output"], result["intercept"])
            machines.append(_machine_in_units(machine, unit))
            of_users, of_items = (_prior_in_units(p, machine, unit) for p in (of_users, of_items))
            precision = np.array([result["precision"] / unit**2])
            tempering = np.array(settings["tempering"] or [])
            priors.append(Priors(of_users, of_items, precision, tempering))
            for own, side in zip(periods, _SIDES, strict=False):
                own.tables.append(unit * result[f"{side}_effects"])
            histories.append(_numbered(result["history"], number, *done))
            done = (int(histories[-1]["epoch"][-1]), float(histories[-1]["seconds"][-1]))
            if result["outcome"] == "stopped":
                break
        times = TimeEffects(*(own.weights() for own in periods)) if periods else None
        history = {name: np.concatenate([own[name] for own in histories]) for name in histories[0]}
        model = RatingModel(scale, machines, priors, times)
        return model, FitRecord(history, result["objective"])

    def _choose_tempering(
        self,
        training: Training,
        scale: RatingScale,
        n_components: int,
        n_jobs: int | None,
        callback: _TrialCallback,
    ) -> float:
        """Return the value that predicts held-out ratings best.

        The learned variances of ids with few ratings depend on the weight of the likelihood.
        """
        ratings = training.ratings
        n_ratings = len(ratings.values)
        # Sort the ratings, so that the choice does not depend on their order.
        order = np.lexsort((ratings.items, ratings.users))
        order = order[np.random.default_rng(0).permutation(n_ratings)]
        held_out, rest = (ratings.take(rows) for rows in np.split(order, [n_ratings // 10]))
        pairs = Pairs(held_out.users, held_out.items)
        # Without features, because histories contain the held-out ratings.
        trial, options = Training(rest, training.shape), RunOptions(0, n_jobs, callback)
        errors: list[float] = []
        while _needs_trial(errors):
            method = replace(self, n_models=1, tempering=_STEP ** len(errors))
            try:
                model, _ = method._fit(trial, scale, n_components, options)
            except RuntimeError:
                if callback.ended:
                    raise
                break
            if callback.ended:
                break
            squares = (held_out.values - model.predict(pairs)) ** 2
            errors.append(float(np.sqrt(np.average(squares, weights=held_out.weights))))
        return float(_STEP ** _best_power(errors))

    def _settings(
        self, scale: RatingScale, n_components: int, n_ids: int, has_features: bool
    ) -> VariationalParameters:
        """Return settings that are computed from the parameters."""
        if scale.ordinal:
            tempering = _tempering(scale.n_outputs, self.tempering or 1.0)
        else:
            refuse_unused(self, ["tempering"], 'task="regression"')
            tempering = None
        return {
            "tempering": tempering,
            "n_components": n_components,
            "penalty": self.penalty,
            # In the core, the mean square of a basis vector is 1, so its norm is sqrt(n_ids).
            "radius": np.inf if self.radius is None else float(self.radius) / n_ids,
            "output_ridge": 1.0,
            # Number of sweeps before the output layer and the priors of sides without features are
            # learned. Earlier learning would prune basis vectors before they have formed. With
            # features, they form earlier.
            "hold": 3 if has_features or not scale.ordinal else 5,
            "feature_ridge": float(self.feature_ridge),
            "relaxation": 1.5,
            "popularity": bool(self.popularity),
            "tol": (2e-3 if has_features else 1e-3) if self.tol is None else float(self.tol),
            "max_iter": int(self.max_iter),
        }


def _has_few_ratings_per_id(ratings: IndexedRatings) -> bool:
    """Whether `tempering` is chosen by trials."""
    n_ids = sum(np.count_nonzero(np.bincount(ids)) for ids in (ratings.users, ratings.items))
    n_ratings = len(ratings.values)
    return bool(n_ratings >= _ENOUGH and 2 * n_ratings < _DENSE * n_ids)


def _needs_trial(errors: list[float]) -> bool:
    """Whether to try the next power of `_STEP`, given the errors of the powers from 0."""
    if len(errors) < 3:
        return True
    return len(errors) < _TRIALS and errors[-1] < min(errors[:-1])


def _best_power(errors: list[float]) -> float:
    """Return the power of `_STEP` with the least error, or 0 if there are no errors."""
    # The last three errors include the least. Take the minimum of the parabola through them.
    if len(errors) >= 3:
        before, middle, after = errors[-3:]
        bend = before - 2.0 * middle + after
        if bend > 0.0:
            shift = min(max(0.5 * (before - after) / bend, -1.0), 1.0)
            return len(errors) - 2 + shift
    # Without a parabola that has a minimum, take the first of the least errors.
    return float(np.argmin(errors)) if errors else 0.0


class _TrialCallback:
    """Callback of trials. It passes on requests to stop of the user's callback."""

    def __init__(self, report: Callback | None) -> None:
        self._report, self._start = report, time.perf_counter()
        # Whether the user's callback has stopped the fit or raised an error.
        self.ended = False

    def __call__(self, *_: object) -> bool:
        """Report an epoch of a trial as epoch 0; return whether the fit stops."""
        if self._report is not None:
            self.ended = True
            seconds = time.perf_counter() - self._start
            self.ended = bool(self._report(0, seconds, np.nan, np.nan))
        return self.ended


def _stopping(report: Callback | None) -> Callback:
    """Return a callback that calls `report` and stops the fit."""

    def stop(*epoch: Any) -> bool:
        if report is not None:
            report(*epoch)
        return True

    return stop


@dataclass(frozen=True)
class _Periods:
    """The periods of users or items, the period of each rating, and the learned weights."""

    codes: NDArray[np.int64]
    numbers: NDArray[np.uint32]
    # Learned weights of the periods, with one table per factorization machine.
    tables: list[FloatArray] = field(default_factory=list)

    @classmethod
    def of(cls, codes: NDArray[np.int64]) -> _Periods:
        """Number the periods of the ratings."""
        distinct, numbers = np.unique(codes, return_inverse=True)
        return cls(distinct, numbers.astype(np.uint32))

    def weights(self) -> PeriodWeights:
        """Return the weights of the periods in all factorization machines."""
        return PeriodWeights.of(self.codes, self.tables)


@dataclass(frozen=True)
class _RatedIds:
    """Users or items that have ratings, numbered from 0, and their features."""

    # Positions of the ids with ratings, and their numbers of ratings.
    rated: NDArray[np.intp]
    counts: NDArray[np.intp]
    # For each rating, the index of its id in `rated`.
    ids: NDArray[np.uint32]
    features: sp.csr_array | None
    # Features of all ids, with and without ratings.
    all_features: sp.csr_array | None
    n: int

    @classmethod
    def of(cls, ids: NDArray[np.intp], n: int, features: sp.csr_array | None) -> _RatedIds:
        """Number the ids of the ratings; `n` is the number of all ids."""
        rated, numbers, counts = np.unique(ids, return_inverse=True, return_counts=True)
        own = features
        if features is not None and len(rated) < n:
            own = sp.csr_array(features[rated])
        return cls(rated, counts, numbers.astype(np.uint32), own, features, n)

    def extend(self, known: FloatArray, prior: SidePrior) -> FloatArray:
        """Return the row for unknown ids, followed by the rows of all ids.

        An id without ratings gets a mean row, adjusted for its features. Ids with one rating
        resemble unknown ids most: without that rating, they would be unknown (Good 1953). If there
        are few of them, the mean over all ratings is added.
        """
        singles = self.counts == 1
        weights = singles + _SINGLES * self.counts / self.counts.sum()
        share = weights / weights.sum()
        unknown = share @ known
        rows = np.tile(unknown, (self.n + 1, 1))
        rows[1 + self.rated] = known
        if self.features is not None and self.all_features is not None and len(self.rated) < self.n:
            unrated = np.ones(self.n, dtype=bool)
            unrated[self.rated] = False
            rest = np.flatnonzero(unrated)
            mean = np.asarray(share @ self.features)
            rows[1 + rest] += (self.all_features[rest] @ prior.weights) - mean @ prior.weights
        return rows


def _core_features(features: sp.csr_array | None) -> Any:
    return None if features is None else core_rows(features)


def _continued(report: Callback | None, epochs: int, before: float) -> Callback | None:
    """Return a callback that continues the epochs and seconds of the earlier models.

    If `report` is None, the result is None.
    """
    if report is None:
        return None

    def shifted(epoch: int, seconds: float, objective: float, dual_objective: float) -> object:
        return report(epoch + epochs, seconds + before, objective, dual_objective)

    return shifted


def _numbered(history: History, number: int, epochs: int, before: float) -> History:
    """Return the history of a factorization machine, continuing the counts of earlier ones."""
    return {
        **history,
        "epoch": history["epoch"] + epochs,
        "seconds": history["seconds"] + before,
        "model": np.full(len(history["epoch"]), number),
    }


def _tempering(n_thresholds: int, scale: float) -> list[float]:
    """Return the weights of the thresholds' terms: a curve tuned for five levels, interpolated.

    More thresholds carry no more evidence, so their weights shrink to keep the sum from growing.
    """
    if n_thresholds == 1:
        return [float(scale)]
    curve = np.interp(np.linspace(0.0, 3.0, n_thresholds), range(4), (0.6, 0.7, 0.8, 1.0))
    return list(scale * curve * min(1.0, 4.0 / n_thresholds))


def _machine_in_units(machine: Machine, unit: float) -> Machine:
    """Multiply all outputs of a machine by `unit`."""
    k = len(machine.output)
    users, items = (_scaled(table, k, unit) for table in (machine.users, machine.items))
    return Machine(users, items, unit * machine.output, unit * machine.intercept)


def _prior_in_units(prior: SidePrior, machine: Machine, unit: float) -> SidePrior:
    """Convert the prior of a machine whose outputs are multiplied by `unit`."""
    k, m = machine.output.shape
    # A row of `spread` begins with the variances of the offsets, and their covariances with the
    # factors.
    spread = prior.spread.copy()
    spread[:, :m] *= unit**2
    spread[:, m : m * (1 + k)] *= unit
    return replace(
        prior,
        base=_scaled(prior.base, k, unit),
        weights=_scaled(prior.weights, k, unit),
        covariance=np.ascontiguousarray(_scaled(_scaled(prior.covariance, k, unit).T, k, unit).T),
        spread=spread,
    )


def _scaled(table: FloatArray, first: int, unit: float) -> FloatArray:
    """Multiply the columns from `first` on, which belong to the offsets, by `unit`."""
    table = table.copy()
    table[:, first:] *= unit
    return table
