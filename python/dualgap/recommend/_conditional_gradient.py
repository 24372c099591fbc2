"""Conditional gradient training of the recommender, with a duality gap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._choices import Penalty, Reoptimize
from dualgap._estimator import storable
from dualgap._validation import FloatArray, check_positive, resolve_seed
from dualgap.polynomial import _base
from dualgap.recommend._rating_model import Machine, Method, RatingModel
from dualgap.recommend._ratings import RatingScale
from dualgap.recommend._training import FitRecord, IndexedRatings, RunOptions, Training

__all__ = ["ConditionalGradient"]

# Radii to try in this order, until two in a row are worse than the best radius.
_RADII = (20.0, 60.0, 200.0, 600.0, 2000.0, 6000.0, 20_000.0)


@storable
@dataclass(kw_only=True, repr=False)
class ConditionalGradient(Method):
    """Grow the basis one vector at a time, with a duality gap after each.

    Parameters
    ----------
    penalty : {"l1/l2", "l1/linf", "l1"}, default="l1/l2"
        Norm of the output layer that `radius` bounds.
    radius : float, optional
        Bound on the norm of the output layer, for basis vectors of unit length (over users and
        items together). None chooses, from a path of radii, the one with the smallest loss on the
        validation ratings. Without validation ratings, a fifth of the ratings is held out for this
        choice; the final fit then uses all ratings.
    reoptimize : {"full", "output"}, default="full"
        Parameters to re-optimise after each new basis vector. "full": the basis and the output
        layer. "output": only the output layer, which is a convex problem.
    alpha : float, default=3.0
        Ridge on the linear weights.
    tol : float, default=1e-4
        Duality gap at which the fit has converged, relative to the objective. The objective is then
        at most ``1 + tol / (1 - tol)`` times its minimum. A gap no larger than rounding error
        counts as 0 for any positive `tol`.
    """

    name = "conditional-gradient"
    validates = True

    penalty: Penalty = "l1/l2"
    radius: float | None = None
    reoptimize: Reoptimize = "full"
    alpha: float = 3.0
    tol: float = 1e-4

    def check(self) -> None:
        """Raise an error for invalid parameters."""
        check_positive("alpha", self.alpha)
        if self.radius is not None:
            check_positive("radius", self.radius)
        check_positive("tol", self.tol, zero=True)

    def run(
        self, training: Training, scale: RatingScale, n_components: int, options: RunOptions
    ) -> tuple[RatingModel, FitRecord]:
        """Fit one factorization machine."""
        fit = partial(self._fit_radius, scale=scale, n_components=n_components, options=options)
        if self.radius is not None:
            return fit(training, self.radius)
        radii = np.array(_RADII) * scale.unit(training.ratings.values)
        if training.held_out is not None:
            radius, fitted = _best_radius(fit, training, radii)
            return fit(training, radius) if fitted is None else fitted
        radius, _ = _best_radius(fit, _hold_out(training, options), radii)
        return fit(training, radius)

    def _fit_radius(
        self,
        training: Training,
        radius: float,
        *,
        scale: RatingScale,
        n_components: int,
        options: RunOptions,
        quiet: bool = False,
    ) -> tuple[RatingModel, FitRecord]:
        machine = _Machine(
            n_components=n_components,
            max_iter=10 * n_components,
            penalty=self.penalty,
            radius=radius,
            reoptimize=self.reoptimize,
            alpha=self.alpha,
            tol=self.tol,
            random_state=options.random_state,
            n_jobs=options.n_jobs,
            # The recommender shows progress itself, through its callback.
            verbose=0,
            callback=options.callback,
        )
        machine._quiet = quiet
        ratings, held_out = training.ratings, training.held_out
        targets, validation, means = _targets(scale, ratings.values), None, None
        if held_out is not None:
            validation = (_rows(held_out, training), _targets(scale, held_out.values))
        if not scale.ordinal:
            targets, validation, means = _base.centred(targets, ratings.weights, validation)
        data = _base.Training(
            X=_rows(ratings, training),
            targets=targets,
            n_outputs=targets.shape[1],
            weights=ratings.weights,
            loss="binary-logistic" if scale.ordinal else "squared",
            validation=validation,
            stratify=False,
            means=means,
        )
        machine._fit(data, (None, None, None))
        model = RatingModel(
            scale, [from_machine(machine._model(), training.features, training.shape)]
        )
        return model, FitRecord(
            history=machine.history_,
            objective=machine.objective_,
            dual_objective=machine.dual_objective_,
            null_objective=machine.null_objective_,
            converged=machine.converged_,
            certificate=machine.certificate_,
        )


class _Machine(_base.FittedPolynomial):
    """A factorization machine on concatenated user and item inputs."""

    _kernel = "anova"
    _remedy = "n_components or tol"


def _hold_out(training: Training, options: RunOptions) -> Training:
    """Hold out a random fifth of the ratings."""
    ratings = training.ratings
    order = np.random.default_rng(resolve_seed(options.random_state)).permutation(
        len(ratings.values)
    )
    rest = len(order) // 5
    return replace(
        training, ratings=ratings.take(order[rest:]), held_out=ratings.take(order[:rest])
    )


def _best_radius(
    fit: Any, training: Training, radii: FloatArray
) -> tuple[float, tuple[RatingModel, FitRecord] | None]:
    """Return the radius with the smallest validation loss, and its fit."""
    assert training.held_out is not None
    if len(training.held_out.values) == 0:
        return float(radii[0]), None
    best: tuple[float, float, Any] = (np.inf, float(radii[0]), None)
    worse = 0
    for radius in radii.tolist():
        # Fits along the path need not converge, so they do not warn.
        fitted = fit(training, radius, quiet=True)
        loss = float(fitted[1].history["validation_loss"].min())
        worse = worse + 1 if loss >= best[0] else 0
        best = min(best, (loss, radius, fitted), key=lambda found: found[0])
        if worse == 2:
            break
    return best[1], best[2]


def _targets(scale: RatingScale, values: FloatArray) -> FloatArray:
    """Return +1 where a rating is at most a threshold, else -1; for a regression, the ratings."""
    if not scale.ordinal:
        return values.reshape(-1, 1)
    return np.where(values[:, np.newaxis] <= scale.levels[:-1], 1.0, -1.0)


def _rows(ratings: IndexedRatings, training: Training) -> sp.csr_array:
    """Return rows of one-hot user, one-hot item, and the features of both."""
    ids = (ratings.users, ratings.items)
    blocks = [_one_hot(*pair) for pair in zip(ids, training.shape, strict=True)]
    blocks += [
        sp.vstack([matrix, sp.csr_array((1, matrix.shape[1]))], format="csr")[rows]
        for matrix, rows in zip(training.features, ids, strict=True)
        if matrix is not None
    ]
    return sp.csr_array(sp.hstack(blocks, format="csr"))


def _one_hot(ids: NDArray[np.intp], n: int) -> sp.csr_array:
    """Return a matrix with one column per id; the rows of unknown ids (`n`) are zero."""
    known = np.flatnonzero(ids < n)
    return sp.csr_array((np.ones(len(known)), (known, ids[known])), (len(ids), n))


def from_machine(
    result: Any,
    features: tuple[sp.csr_array | None, sp.csr_array | None],
    shape: tuple[int, int],
) -> Machine:
    """Convert a factorization machine on [user | item | user features | item features].

    A product of two inputs of a user, or of two inputs of an item, depends only on that user or
    item. It is therefore added to the linear weights of the user or item.
    """
    basis, output = np.ascontiguousarray(result["basis"].T), result["output"]
    linear = result["linear"]
    of_users, of_items = features
    n_user_features = 0 if of_users is None else of_users.shape[1]
    ends = np.cumsum([0, *shape, n_user_features, basis.shape[0]])
    ends[-1] = basis.shape[0]

    def side(own: int, extra: int, features: sp.csr_array | None) -> FloatArray:
        factors, weights = basis[ends[own] : ends[own + 1]], linear[ends[own] : ends[own + 1]]
        if features is not None:
            rest = slice(ends[extra], ends[extra + 1])
            total = factors + features @ basis[rest]
            squares = factors**2 + features.multiply(features) @ basis[rest] ** 2
            inside = 0.5 * (total**2 - squares)
            weights = weights + features @ linear[rest] + inside @ output
            factors = total
        unknown = np.zeros((1, factors.shape[1] + weights.shape[1]))
        return np.vstack([unknown, np.hstack([factors, weights])])

    users, items = side(0, 2, of_users), side(1, 3, of_items)
    return Machine(users, items, np.ascontiguousarray(output), linear[-1].copy())
