"""The recommender's fit by conditional gradient, with a duality gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._choices import Penalty, Refit
from dualgap._validation import FloatArray, check_positive, resolve_seed
from dualgap.polynomial._base import FittedPolynomial, Training
from dualgap.recommend._factors import from_machine
from dualgap.recommend._features import Sides
from dualgap.recommend._method import Fitted, Method, Task
from dualgap.recommend._ratings import Indexed

__all__ = ["ConditionalGradient"]

# The path of radii, until two in turn are worse than the best.
_RADII = (20.0, 60.0, 200.0, 600.0, 2000.0, 6000.0, 20_000.0)


@dataclass(kw_only=True, repr=False)
class ConditionalGradient(Method):
    """Grow the basis one vector at a time, with a duality gap after each.

    Parameters
    ----------
    penalty : {"l1/l2", "l1/linf", "l1"}, default="l1/l2"
        Norm of the output layer that `radius` bounds.
    radius : float, optional
        Bound on the norm of the output layer, for basis vectors of unit length (over users and
        items together). None means the best of a path of radii on the validation ratings, or,
        without any, on a fifth of the ratings, after which all of them are fitted.
    refit : {"full", "output"}, default="full"
        What is re-optimised after each new basis vector: basis and output layer, or the output
        layer alone (convex).
    alpha : float, default=3.0
        Ridge on the linear weights.
    tol : float, default=1e-4
        Duality gap at which the fit has converged, in units of the objective: the model's is then
        at most ``1 + tol / (1 - tol)`` times the smallest possible one. Gaps of the size of
        rounding are 0 to any positive `tol`.
    """

    name = "conditional-gradient"
    validates = True

    penalty: Penalty = "l1/l2"
    radius: float | None = None
    refit: Refit = "full"
    alpha: float = 3.0
    tol: float = 1e-4

    def check(self) -> None:
        """Refuse parameters that cannot be used."""
        check_positive("alpha", self.alpha)
        if self.radius is not None:
            check_positive("radius", self.radius)
        check_positive("tol", self.tol, zero=True)

    def run(self, task: Task, ratings: Indexed, sides: Sides, held_out: Indexed | None) -> Fitted:
        """Fit one machine."""
        radius = self.radius
        if radius is None:
            radius, fitted = self._path(task, ratings, sides, held_out)
            if fitted is not None:
                return fitted
        return self._fit(task, ratings, sides, held_out, radius)

    def _path(
        self, task: Task, ratings: Indexed, sides: Sides, held_out: Indexed | None
    ) -> tuple[float, Fitted | None]:
        """The radius of the least validation loss, and its fit if it is to all ratings."""
        train, validation = ratings, held_out
        if validation is None:
            generator = np.random.default_rng(resolve_seed(task.random_state))
            order = generator.permutation(len(ratings.values))
            rest = len(order) // 5
            train, validation = ratings.take(order[rest:]), ratings.take(order[:rest])
        if len(validation.values) == 0:
            return _RADII[0], None
        best: tuple[float, float, Fitted | None] = (np.inf, _RADII[0], None)
        worse = 0
        for radius in _RADII:
            # A radius that is passed over need not have converged.
            fitted = self._fit(task, train, sides, validation, radius, quiet=True)
            loss = float(fitted.history["validation_loss"].min())
            worse = worse + 1 if loss >= best[0] else 0
            best = min(best, (loss, radius, fitted), key=lambda found: found[0])
            if worse == 2:
                break
        return best[1], best[2] if held_out is not None else None

    def _fit(
        self,
        task: Task,
        ratings: Indexed,
        sides: Sides,
        held_out: Indexed | None,
        radius: float,
        *,
        quiet: bool = False,
    ) -> Fitted:
        machine = _Machine(
            n_components=task.n_components,
            max_iter=10 * task.n_components,
            penalty=self.penalty,
            radius=radius,
            refit=self.refit,
            alpha=self.alpha,
            tol=self.tol,
            random_state=task.random_state,
            n_jobs=task.n_jobs,
            # The recommender shows what its callback is told of.
            verbose=0,
            callback=task.callback,
        )
        machine._quiet = quiet
        targets = _targets(task, ratings.values)
        validation = None
        if held_out is not None:
            validation = (_rows(held_out, sides), _targets(task, held_out.values))
        data = Training(
            X=_rows(ratings, sides),
            targets=targets,
            n_outputs=targets.shape[1],
            weights=ratings.weights,
            loss="binary-logistic" if task.ordinal else "squared",
            validation=validation,
            stratify=False,
        )
        machine._fit(data, (None, None, None))
        return Fitted(
            models=[from_machine(machine._model(), *sides.features, *sides.shape)],
            history=machine.history_,
            objective=machine.objective_,
            dual_objective=machine.dual_objective_,
            null_objective=machine.null_objective_,
            converged=machine.converged_,
            certificate=machine.certificate_,
        )


class _Machine(FittedPolynomial):
    """A factorization machine on the inputs of users and items."""

    _kernel = "anova"
    _remedy = "n_components or tol"


def _targets(task: Task, values: FloatArray) -> FloatArray:
    """+1 where the rating is at most the threshold, or the values themselves."""
    if not task.ordinal:
        return values.reshape(-1, 1)
    return np.where(values[:, np.newaxis] <= task.levels[:-1], 1.0, -1.0)


def _rows(ratings: Indexed, sides: Sides) -> sp.csr_array:
    """One-hot user, one-hot item, and the features of both."""
    ids = (ratings.users, ratings.items)
    blocks = [_one_hot(*pair) for pair in zip(ids, sides.shape, strict=True)]
    blocks += [
        sp.vstack([matrix, sp.csr_array((1, matrix.shape[1]))], format="csr")[rows]
        for matrix, rows in zip(sides.features, ids, strict=True)
        if matrix is not None
    ]
    return sp.csr_array(sp.hstack(blocks, format="csr"))


def _one_hot(ids: NDArray[np.intp], n: int) -> sp.csr_array:
    """One column per id; a row of zeros for the unknown one, `n`."""
    known = np.flatnonzero(ids < n)
    return sp.csr_array((np.ones(len(known)), (known, ids[known])), (len(ids), n))
