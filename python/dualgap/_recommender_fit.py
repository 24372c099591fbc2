"""The two ways in which the recommender fits its machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._base import FloatArray, History, core_rows, progress, resolve_seed, resolve_threads
from dualgap._blocks import Blocks, from_machine, from_variational

if TYPE_CHECKING:
    from dualgap.recommend import OrdinalRecommender


@dataclass(frozen=True)
class Indexed:
    """Ratings by the positions of their users and items."""

    users: NDArray[np.intp]
    items: NDArray[np.intp]
    values: FloatArray


@dataclass(frozen=True)
class Sides:
    """What is known of the users and items, a row for each."""

    shape: tuple[int, int]
    features: tuple[sp.csr_array | None, sp.csr_array | None]


@dataclass(frozen=True)
class Fitted:
    """Models, their histories, and objective and gap of the last."""

    models: list[Blocks]
    history: list[History]
    objective: float
    gap: float


def fit_variational(recommender: OrdinalRecommender, ratings: Indexed, sides: Sides) -> Fitted:
    """Models from different random starts."""
    generator = np.random.default_rng(resolve_seed(recommender.random_state))
    ordinal, levels = recommender.reduction == "mcrank", recommender.levels_
    values = ratings.values
    targets = np.searchsorted(levels, values).astype(np.float64) if ordinal else values
    weights = _tempering(len(levels) - 1, recommender.tempering) if ordinal else None
    radius = np.inf if recommender.radius is None else recommender.radius / sum(sides.shape)
    has_features = any(matrix is not None for matrix in sides.features)
    user_rows, item_rows = (
        None if matrix is None else core_rows(matrix) for matrix in sides.features
    )
    models, history = [], []
    for _ in range(recommender.n_models):
        result = _core.fit_variational(
            ratings.users.astype(np.uint32),
            ratings.items.astype(np.uint32),
            targets,
            n_users=sides.shape[0],
            n_items=sides.shape[1],
            tempering=weights,
            n_components=int(recommender.n_components),
            penalty=recommender.penalty,
            radius=float(radius),
            output_ridge=1.0,
            # Learning earlier prunes bases before they have formed; features help them form.
            hold=3 if has_features or not ordinal else 5,
            feature_ridge=float(recommender.feature_ridge),
            relaxation=1.5,
            popularity=bool(recommender.popularity),
            n_sweeps=int(recommender.n_sweeps),
            seed=int(generator.integers(2**63)),
            n_threads=resolve_threads(recommender.n_jobs),
            user_features=user_rows,
            item_features=item_rows,
            callback=progress(recommender.verbose, recommender.callback),
        )
        models.append(from_variational(result))
        history.append(result["history"])
        if result["outcome"] == "stopped":
            break
    # No bound is known: the optimum may lie anywhere below.
    return Fitted(models, history, result["primal"], np.inf)


def fit_machine(
    recommender: OrdinalRecommender, ratings: Indexed, sides: Sides, held_out: Indexed | None
) -> Fitted:
    """One machine by conditional gradient."""
    targets = _targets(recommender, ratings.values)
    validation = None
    if held_out is not None:
        validation = (core_rows(_rows(held_out, sides)), _targets(recommender, held_out.values))
    result = _core.fit_polynomial(
        [core_rows(_rows(ratings, sides))],
        targets,
        n_outputs=targets.shape[1],
        kernel="anova",
        augmented=False,
        alpha=float(recommender.alpha),
        loss="binary_logistic" if recommender.reduction == "mcrank" else "squared",
        penalty=recommender.penalty,
        radius=20000.0 if recommender.radius is None else float(recommender.radius),
        n_components=int(recommender.n_components),
        refit=recommender.refit,
        selection_tol=1e-2,
        tol=float(recommender.tol),
        max_iter=10 * int(recommender.n_components),
        seed=resolve_seed(recommender.random_state),
        n_threads=resolve_threads(recommender.n_jobs),
        validation=validation,
        callback=progress(recommender.verbose, recommender.callback),
    )
    models = [from_machine(result, *sides.features, *sides.shape)]
    history = [{**result["history"], **result["path"]}]
    return Fitted(models, history, result["primal"], result["primal"] - result["dual"])


def _targets(recommender: OrdinalRecommender, values: FloatArray) -> FloatArray:
    """+1 where the rating is at most the threshold (SPEC 8), or the values themselves."""
    if recommender.reduction == "regression":
        return values.reshape(-1, 1)
    return np.where(values[:, np.newaxis] <= recommender.levels_[:-1], 1.0, -1.0)


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


def _tempering(n_thresholds: int, scale: float) -> list[float]:
    """Weights of the thresholds' terms: the curve found on five levels, stretched to any number.

    More thresholds carry no more evidence: their weights shrink so that the sum stays.
    """
    if n_thresholds == 1:
        return [float(scale)]
    curve = np.interp(np.linspace(0.0, 3.0, n_thresholds), range(4), (0.6, 0.7, 0.8, 1.0))
    return list(scale * curve * min(1.0, 4.0 / n_thresholds))
