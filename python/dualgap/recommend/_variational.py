"""The recommender's variational fit: Gaussian blocks for users and items, no certificate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualgap import _core
from dualgap._validation import core_rows
from dualgap.recommend._factors import Fitted, Task, from_variational
from dualgap.recommend._ratings import Indexed, Sides


@dataclass(frozen=True)
class VariationalOptions:
    """What this method alone uses."""

    n_models: int
    n_sweeps: int
    tempering: float
    popularity: bool
    feature_ridge: float


def fit_variational(
    options: VariationalOptions, task: Task, ratings: Indexed, sides: Sides
) -> Fitted:
    """Models from different random starts."""
    generator = np.random.default_rng(task.seed)
    ordinal, levels = task.ordinal, task.levels
    values = ratings.values
    targets = np.searchsorted(levels, values).astype(np.float64) if ordinal else values
    weights = _tempering(len(levels) - 1, options.tempering) if ordinal else None
    radius = np.inf if task.radius is None else task.radius / sum(sides.shape)
    has_features = any(matrix is not None for matrix in sides.features)
    user_rows, item_rows = (
        None if matrix is None else core_rows(matrix) for matrix in sides.features
    )
    models, history = [], []
    for _ in range(options.n_models):
        result = _core.fit_variational(
            ratings.users.astype(np.uint32),
            ratings.items.astype(np.uint32),
            targets,
            n_users=sides.shape[0],
            n_items=sides.shape[1],
            tempering=weights,
            n_components=task.n_components,
            penalty=task.penalty,
            radius=float(radius),
            output_ridge=1.0,
            # Learning earlier prunes bases before they have formed; features help them form.
            hold=3 if has_features or not ordinal else 5,
            feature_ridge=float(options.feature_ridge),
            relaxation=1.5,
            popularity=bool(options.popularity),
            n_sweeps=int(options.n_sweeps),
            seed=int(generator.integers(2**63)),
            n_threads=task.n_threads,
            user_features=user_rows,
            item_features=item_rows,
            callback=task.callback,
        )
        models.append(from_variational(result))
        history.append(result["history"])
        if result["outcome"] == "stopped":
            break
    # No bound is known: the optimum may lie anywhere below.
    return Fitted(models, history, result["primal"], np.inf)


def _tempering(n_thresholds: int, scale: float) -> list[float]:
    """Weights of the thresholds' terms: the curve found on five levels, stretched to any number.

    More thresholds carry no more evidence: their weights shrink so that the sum stays.
    """
    if n_thresholds == 1:
        return [float(scale)]
    curve = np.interp(np.linspace(0.0, 3.0, n_thresholds), range(4), (0.6, 0.7, 0.8, 1.0))
    return list(scale * curve * min(1.0, 4.0 / n_thresholds))
