"""The recommender's fit by conditional gradient, with a duality gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._choices import Penalty, Refit
from dualgap._validation import FloatArray, check_positive
from dualgap.polynomial._base import FittedPolynomial, Training
from dualgap.recommend._factors import from_machine
from dualgap.recommend._features import Sides
from dualgap.recommend._method import Fitted, Method, Task
from dualgap.recommend._ratings import Indexed

__all__ = ["ConditionalGradient"]


@dataclass(kw_only=True, repr=False)
class ConditionalGradient(Method):
    """Grow the basis one vector at a time, with a duality gap after each.

    Parameters
    ----------
    penalty : {"l1/l2", "l1/linf", "l1"}, default="l1/l2"
        Norm of the output layer that `radius` bounds.
    radius : float, default=20000.0
        Bound on the norm of the output layer, for basis vectors of unit length (over users and
        items together).
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
    radius: float = 20000.0
    refit: Refit = "full"
    alpha: float = 3.0
    tol: float = 1e-4

    def check(self) -> None:
        """Refuse parameters that cannot be used."""
        for name in ("radius", "alpha"):
            check_positive(name, getattr(self, name))
        check_positive("tol", self.tol, zero=True)

    def run(self, task: Task, ratings: Indexed, sides: Sides, held_out: Indexed | None) -> Fitted:
        """Fit one machine."""
        machine = _Machine(
            n_components=task.n_components,
            max_iter=10 * task.n_components,
            penalty=self.penalty,
            radius=self.radius,
            refit=self.refit,
            alpha=self.alpha,
            tol=self.tol,
            random_state=task.random_state,
            n_jobs=task.n_jobs,
            verbose=task.verbose,
            callback=task.callback,
        )
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
        machine._fit(data)
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
