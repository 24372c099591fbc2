"""The recommender's fit by conditional gradient, with a duality gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._validation import FloatArray, core_rows
from dualgap.recommend._factors import Fitted, Task, from_machine
from dualgap.recommend._ratings import Indexed, Sides


@dataclass(frozen=True)
class MachineOptions:
    """What this method alone uses."""

    refit: str
    alpha: float
    tol: float


def fit_machine(
    options: MachineOptions,
    task: Task,
    ratings: Indexed,
    sides: Sides,
    held_out: Indexed | None,
) -> Fitted:
    """One machine by conditional gradient."""
    targets = _targets(task, ratings.values)
    validation = None
    if held_out is not None:
        validation = (core_rows(_rows(held_out, sides)), _targets(task, held_out.values))
    result = _core.fit_polynomial(
        [core_rows(_rows(ratings, sides))],
        targets,
        n_outputs=targets.shape[1],
        kernel="anova",
        augmented=False,
        alpha=float(options.alpha),
        loss="binary-logistic" if task.ordinal else "squared",
        penalty=task.penalty,
        radius=20000.0 if task.radius is None else float(task.radius),
        n_components=task.n_components,
        refit=options.refit,
        selection_tol=1e-2,
        tol=float(options.tol),
        max_iter=10 * task.n_components,
        seed=task.seed,
        n_threads=task.n_threads,
        validation=validation,
        callback=task.callback,
    )
    models = [from_machine(result, *sides.features, *sides.shape)]
    history = [{**result["history"], **result["path"]}]
    return Fitted(models, history, result["primal"], result["primal"] - result["dual"])


def _targets(task: Task, values: FloatArray) -> FloatArray:
    """+1 where the rating is at most the threshold (SPEC 8), or the values themselves."""
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
