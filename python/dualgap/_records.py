"""Types of the records that Python and the core exchange; `_core.pyi` has further records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray


class Subsolution(TypedDict):
    """Solution of the subproblem of one partition."""

    loss: float
    dual_term: float
    image: NDArray[np.float64]
    image_error: float
    gap: float
    n_epochs: int
    weights: NDArray[np.float64]
    beta: NDArray[np.float64]


class RoundRecord(TypedDict):
    """Settings of one partition in a round of consensus training."""

    consensus: NDArray[np.float64]
    multiplier: NDArray[np.float64]
    rho: float
    beta: NDArray[np.float64] | None
    check_beta: bool
    gap: float
    relative_gap: float
    tol: float
    max_iter: int
    solver: str
    seed: int
    n_threads: int
    callback: Callable[..., Any] | None


class ExpansionRecord(TypedDict):
    """Settings of one partition in a Newton round of consensus training."""

    consensus: NDArray[np.float64]
    beta: NDArray[np.float64]
    width: float
    n_threads: int
    callback: Callable[..., Any] | None


class Expansion(TypedDict):
    """Loss, dual point and curvature of one partition at given weights."""

    loss: float
    dual_term: float
    image: NDArray[np.float64]
    image_error: float
    beta: NDArray[np.float64]
    sums: NDArray[np.float64]
    unit: float


class VariationalParameters(TypedDict):
    """Parameters of a variational fit, in the core's format."""

    tempering: list[float] | None  # one weight per threshold; None for a Gaussian likelihood
    n_components: int
    penalty: str
    radius: float
    output_ridge: float
    hold: int
    feature_ridge: float
    relaxation: float
    popularity: bool
    tol: float
    max_iter: int


class VariationalRecord(VariationalParameters):
    """Settings and side data of a variational fit."""

    n_users: int
    n_items: int
    seed: int
    n_threads: int
    user_features: Any | None  # a matrix in the core's form
    item_features: Any | None
    weights: NDArray[np.float64] | None
    groups: list[tuple[NDArray[np.uint32], int]] | None  # of users, then of items
    callback: Callable[..., Any] | None


class InteractionParameters(TypedDict):
    """Parameters of a fit to likes, and the numbers of users and items, in the core's format."""

    n_users: int
    n_items: int
    n_components: int
    unobserved: float
    ridge: float
    tol: float
    max_iter: int
    n_threads: int


class InteractionRecord(InteractionParameters):
    """Observed pairs and settings of a fit to likes."""

    users: NDArray[np.uint32]
    items: NDArray[np.uint32]
    targets: NDArray[np.float64] | None  # None if all are 1
    weights: NDArray[np.float64] | None
    seed: int
    start: tuple[NDArray[np.float64], NDArray[np.float64]] | None  # factors of all users and items
    user_features: Any | None  # a CSR matrix of float64
    item_features: Any | None
    feature_ridge: float
    callback: Callable[..., Any] | None


class FittedFactors(TypedDict):
    """Result of a fit to likes."""

    outcome: str
    objective: float
    dual_objective: None  # no bound is known
    history: dict[str, NDArray[Any]]
    users: NDArray[np.float64]
    items: NDArray[np.float64]


class FittedInteractions(FittedFactors):
    """Result of a fit to likes, with the weights of features."""

    user_weights: NDArray[np.float64] | None
    item_weights: NDArray[np.float64] | None


class FittedBlocks(FittedFactors):
    """Result of a variational fit; `users` and `items` hold the factors of each side."""

    output: NDArray[np.float64]
    intercept: NDArray[np.float64]
    precision: float
    user_prior: dict[str, Any]
    item_prior: dict[str, Any]
    user_effects: NDArray[np.float64] | None
    item_effects: NDArray[np.float64] | None


class ClicksRecord(TypedDict):
    """Clicks for training item-item models."""

    users: NDArray[np.uint32]
    items: NDArray[np.uint32]
    values: NDArray[np.float32]
    n_users: int
    n_items: int
    n_kept: int
    n_threads: int


class ListsRecord(TypedDict):
    """A matrix in compressed sparse row format."""

    offsets: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[np.float32]


class FoldInRecord(TypedDict):
    """A fitted machine, used to compute vectors of new users or items."""

    means: NDArray[np.float64]
    spread: NDArray[np.float64]
    output: NDArray[np.float64]
    intercept: NDArray[np.float64]
    precision: float
    tempering: NDArray[np.float64]  # empty for a Gaussian likelihood
    prior_mean: NDArray[np.float64]
    covariance: NDArray[np.float64]


class PartRecord(TypedDict):
    """One additive term of the scores."""

    users: NDArray[np.float32]
    items: Any  # NDArray[np.float32] or PackedItems
    gaps: list[float] | None  # between the levels; None for an output that is the score itself
    weight: float


class BlendRecord(TypedDict):
    """Scorers for some users, and the weights of the scorers."""

    factors: PartRecord
    models: list[Any]  # ListsRecord or DenseItems
    history: ListsRecord
    weights: list[float]
    n_items: int
    n_threads: int


ItemWeights: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]
"""An item-item model: offsets, columns, values."""

Ranked: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float32]]
"""The best items of each user, and their scores."""


class ExclusionRecord(TypedDict):
    """Items excluded from recommendations."""

    offsets: NDArray[np.int64]
    items: NDArray[np.int32]
    allowed: NDArray[np.bool_]
    n_items: int
    n_threads: int


class LogisticParameters(TypedDict):
    """Settings of a logistic regression that do not depend on C."""

    n_classes: int
    sample_weight: NDArray[np.float64] | None
    intercept: bool
    solver: str
    seed: int


class LogisticRecord(LogisticParameters):
    """Settings of a logistic regression."""

    C: float
    start: tuple[NDArray[np.float64], NDArray[np.float64]] | None  # weights and intercepts


class LogisticPathRecord(LogisticParameters):
    """Settings of logistic regressions with several values of C."""

    Cs: list[float]


class PartitionRecord(TypedDict):
    """Settings of one partition in a round of consensus logistic regression."""

    n_classes: int
    C: float
    sample_weight: NDArray[np.float64] | None
    intercept: bool
    model: tuple[NDArray[np.float64], NDArray[np.float64]]  # weights and intercepts
    tilt: NDArray[np.float64] | None
    direction: tuple[NDArray[np.float64], NDArray[np.float64]] | None


class SumsRecord(TypedDict):
    """Sums over all partitions at a model, and the totals of the problem."""

    loss: float
    entropy: float
    distance: float
    depth: int
    moments: NDArray[np.float64]
    residual: NDArray[np.float64]
    image: NDArray[np.float64]
    sizes: NDArray[np.float64]
    n_examples: int
    intercept: bool
    class_totals: NDArray[np.float64]
    model: tuple[NDArray[np.float64], NDArray[np.float64]]


class LinearResult(TypedDict):
    """A fitted linear model, and the record of its run."""

    outcome: str
    objective: float
    dual_objective: float
    null_objective: float
    weights: NDArray[np.float64]
    history: dict[str, NDArray[Any]]


class ClassFeatureResult(LinearResult):
    """A fitted model with class features, its first solver, and that solver's number of epochs."""

    solver: tuple[str, int]


class InterceptCurvature(TypedDict):
    """The curvature of the mean loss in the intercepts, and the distances of rows from a centre."""

    matrix: NDArray[np.float64]
    """Matrix of shape (n_outputs, n_outputs), or (0, 0) if it is not known."""
    centre: NDArray[np.float64]
    mean_square: float
    largest_square: float


class LogisticResult(LinearResult):
    """A fitted logistic regression."""

    intercepts: NDArray[np.float64]
    solver: tuple[str, int]
    curvature: InterceptCurvature | None


Ended: TypeAlias = Callable[[LogisticResult], bool]
"""Called after each fit of a path; returns whether to end the path."""

ReadRows: TypeAlias = tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]
]
"""Rows of sentences: offsets of the sentences, offsets of the rows, columns, values."""

MappedRows: TypeAlias = tuple[
    NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float64] | None, int
]
"""Rows in a memory-mapped file: offsets, columns, values (None if all are 1), number of columns."""


class ChainRecord(TypedDict):
    """Rules for adjacent labels, costs of errors, and flags for tokens with a known label."""

    n_states: int
    loss: str
    links: NDArray[np.uint8]
    seen_pairs: bool
    token_weight: NDArray[np.float64] | None
    known: NDArray[np.uint8] | None
    edges: Any | None  # a matrix in the core's form


class TaggerRecord(TypedDict):
    """Weights of a tagger."""

    n_states: int
    links: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    labels: NDArray[np.uint16]
    values: NDArray[np.float64]
    link_weights: NDArray[np.float64]
    edge_weights: NDArray[np.float64]


class FrankWolfeRecord(TypedDict):
    """Settings of a minimisation."""

    method: str
    line_search: str
    subsample: float
    tol: float
    max_iter: int
    seed: int
    n_threads: int
    callback: Callable[..., object] | None


class SearchResult(TypedDict):
    """Scores and bounds of a search for C: one row per fold, one column per C."""

    score: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    n_undecided: NDArray[np.float64]
    objective: NDArray[np.float64]
    dual_objective: NDArray[np.float64]
    n_iter: NDArray[np.float64]
    seconds: NDArray[np.float64]
    outcome: list[str]
