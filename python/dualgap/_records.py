"""The records that the core reads for recommenders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray


class VariationalParameters(TypedDict):
    """Parameters of a variational fit, as the core takes them."""

    tempering: list[float] | None  # a weight per threshold; None for a Gaussian likelihood
    n_components: int
    penalty: str
    radius: float
    output_ridge: float
    hold: int
    feature_ridge: float
    relaxation: float
    popularity: bool
    tol: float
    n_sweeps: int


class VariationalRecord(VariationalParameters):
    """Settings and side data of a variational fit."""

    n_users: int
    n_items: int
    seed: int
    n_threads: int
    user_features: Any | None  # a matrix as the core takes it
    item_features: Any | None
    weights: NDArray[np.float64] | None
    groups: list[tuple[NDArray[np.uint32], int]] | None  # of users, then of items
    callback: Callable[..., Any] | None


class InteractionParameters(TypedDict):
    """Numbers of ids and parameters of a fit to likes, as the core takes them."""

    n_users: int
    n_items: int
    n_factors: int
    unobserved: float
    ridge: float
    tol: float
    n_sweeps: int
    n_threads: int


class InteractionRecord(InteractionParameters):
    """Observed pairs and settings of a fit to likes."""

    users: NDArray[np.uint32]
    items: NDArray[np.uint32]
    targets: NDArray[np.float64]
    weights: NDArray[np.float64]
    seed: int
    callback: Callable[..., Any] | None


class FoldInRecord(TypedDict):
    """A fitted model, for the vectors of new users or items."""

    means: NDArray[np.float64]
    counts: NDArray[np.uint32]
    spread: NDArray[np.float64]
    output: NDArray[np.float64]
    intercept: list[float]
    precision: float
    tempering: list[float] | None
    prior_mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    n_threads: int


class PartRecord(TypedDict):
    """One term of the scores."""

    users: NDArray[np.float32]
    items: NDArray[np.float32]
    gaps: list[float] | None  # between the levels; None for an output that is the score itself
    weight: float


class ExclusionRecord(TypedDict):
    """Items that are not to be recommended."""

    offsets: NDArray[np.int64]
    items: NDArray[np.int32]
    allowed: NDArray[np.bool_]
    n_items: int
    n_threads: int
