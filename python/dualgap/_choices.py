"""Literal types for parameters whose value is a name.

`make fmt` (`scripts/choices.py`) generates the types whose names come from a registry in the core.
A test compares all types with the core.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, TypeAlias, get_args

# Steps and orders of the Frank-Wolfe solvers.
Step: TypeAlias = Literal["frank-wolfe", "scheduled", "away", "pairwise"]
Sampling: TypeAlias = Literal["permutation", "uniform", "gap"]

# Minimisation of any function over any set.
FrankWolfeMethod: TypeAlias = Literal["frank-wolfe", "away", "pairwise", "randomized-away"]
LineSearch: TypeAlias = Literal["auto", "open-loop", "exact", "secant", "backtracking"]

# Linear and structured classifiers.
LinearSolver: TypeAlias = Literal[
    "auto",
    "block-descent",
    "newton",
    "block-frank-wolfe",
    "frank-wolfe",
    "away-frank-wolfe",
    "projected-gradient",
    "subgradient",
]
LogisticSolver: TypeAlias = Literal["auto", "newton", "dual-descent"]
SubproblemSolver: TypeAlias = Literal["block-descent", "sequential-dual"]
LossName: TypeAlias = Literal["max-hinge", "crammer-singer", "weston-watkins"]
StructuredSolver: TypeAlias = Literal[
    "auto",
    "block-frank-wolfe",
    "frank-wolfe",
    "away-frank-wolfe",
    "projected-gradient",
    "subgradient",
    "extragradient",
]
Projection: TypeAlias = Literal["euclidean", "entropic"]
PartLoss: TypeAlias = Literal["hamming", "mean-hamming"]

# Polynomial networks and recommenders.
ClassifierLoss: TypeAlias = Literal[
    "logistic", "smoothed-hinge", "squared-hinge", "binary-logistic"
]
Penalty: TypeAlias = Literal["l1", "l1/l2", "l1/linf"]
Reoptimize: TypeAlias = Literal["full", "output"]
Linear: TypeAlias = Literal["explicit", "augment"]
Selection: TypeAlias = Literal[
    "refined", "power", "initial", "random-refined", "random", "best-row", "exact"
]
Task: TypeAlias = Literal["ordinal", "regression", "clicks"]
Ranking: TypeAlias = Literal["like", "rating"]
MethodName: TypeAlias = Literal["variational", "conditional-gradient"]


def check_choice(name: str, value: Any, *kinds: Any) -> None:
    """Raise a ValueError unless `kinds` allow `value`; each kind is a Literal type or a value."""
    known = _choices(kinds)
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in known):
        options = ", ".join(map(repr, known))
        msg = f"{name}: must be one of {options}, got {value!r}"
        raise ValueError(msg)


@cache
def _choices(kinds: tuple[Any, ...]) -> list[Any]:
    """Return all choices; cached, because `get_args` takes longer than a short request."""
    return [choice for kind in kinds for choice in (get_args(kind) or (kind,))]
