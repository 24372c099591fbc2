"""Multi-category losses: the support functions of polytopes (Tajima et al., arXiv:2008.08894).

For scores ``s`` and the label ``y`` let ``v_j = cost_j + s_j - s_y`` (cost 1 off the label unless
said otherwise) and ``v_(1) >= v_(2) >= ...`` its sorted entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dualgap import _core

__all__ = [
    "Loss",
    "MaxHinge",
    "StructuredHinge",
    "TopK",
    "Usunier",
    "WeightedTopK",
    "WeightedUsunier",
    "WestonWatkins",
]


@dataclass(frozen=True)
class Loss:
    """A loss as the core knows it: a name and what it is built from."""

    name: ClassVar[str]

    def _parameters(self) -> dict[str, Any]:
        return {"k": None, "weights": None, "costs": None, "costs_per_row": False}


@dataclass(frozen=True)
class MaxHinge(Loss):
    """Crammer and Singer's hinge, ``max(0, v_(1))`` (paper, eq. 2.2)."""

    name: ClassVar[str] = "max-hinge"


@dataclass(frozen=True, eq=False)
class StructuredHinge(Loss):
    """Max hinge with costs of one's own, ``max_j cost_j + s_j - s_y`` (paper, eq. 2.4).

    Parameters
    ----------
    costs : array-like of shape (n_classes, n_classes) or (n_samples, n_classes)
        Non-negative costs of predicting each class (column) where another is right: a row for
        each label in the order of ``classes_``, or for each training row. The cost of the right
        class is 0.
    per_row : bool, default=False
        Whether ``costs`` has a row for each training row.
    """

    name: ClassVar[str] = "max-hinge"
    costs: ArrayLike
    per_row: bool = False

    def _parameters(self) -> dict[str, Any]:
        costs = np.ascontiguousarray(self.costs, dtype=np.float64)
        if costs.ndim != 2:
            msg = f"costs: must be two-dimensional, got shape {costs.shape}"
            raise ValueError(msg)
        return {**super()._parameters(), "costs": costs, "costs_per_row": bool(self.per_row)}


@dataclass(frozen=True)
class _Counted(Loss):
    k: int

    def _parameters(self) -> dict[str, Any]:
        is_count = isinstance(self.k, int | np.integer) and not isinstance(self.k, bool)
        if not is_count or self.k < 1:
            msg = f"k: must be a positive integer, got {self.k!r}"
            raise ValueError(msg)
        return {**super()._parameters(), "k": int(self.k)}


@dataclass(frozen=True)
class TopK(_Counted):
    """Top-k hinge, ``max(0, mean of v_(1), ..., v_(k))`` (paper, eq. 2.5).

    Parameters
    ----------
    k : int
        Number of classes, below ``n_classes``.
    """

    name: ClassVar[str] = "top-k"


@dataclass(frozen=True)
class Usunier(_Counted):
    """Usunier's loss, the mean of ``max(0, v_(1)), ..., max(0, v_(k))`` (paper, eq. 2.6).

    Parameters
    ----------
    k : int
        Number of classes, below ``n_classes``.
    """

    name: ClassVar[str] = "usunier"


@dataclass(frozen=True)
class _Weighted(Loss):
    weights: Sequence[float]

    def __post_init__(self) -> None:
        # A tuple compares and hashes by value.
        object.__setattr__(self, "weights", tuple(np.asarray(self.weights, dtype=float).tolist()))

    def _parameters(self) -> dict[str, Any]:
        return {**super()._parameters(), "weights": list(self.weights)}


@dataclass(frozen=True)
class WeightedTopK(_Weighted):
    """Weighted top-k hinge, ``max(0, sum_j weights_j v_(j))`` (paper, eq. 2.7).

    Parameters
    ----------
    weights : sequence of float
        A weight for each class: non-negative, non-increasing, the last one 0.
    """

    name: ClassVar[str] = "weighted-top-k"


@dataclass(frozen=True)
class WeightedUsunier(_Weighted):
    """Weighted Usunier loss, ``sum_j weights_j max(0, v_(j))`` (paper, eq. 2.8).

    Parameters
    ----------
    weights : sequence of float
        A weight for each class: non-negative, non-increasing, the last one 0.
    """

    name: ClassVar[str] = "weighted-usunier"


@dataclass(frozen=True)
class WestonWatkins(Loss):
    """Weston and Watkins' sum of hinges, ``sum_{j != y} max(0, v_j)``."""

    name: ClassVar[str] = "weston-watkins"


def core_loss(loss: str | Loss) -> dict[str, Any]:
    """Return the core's arguments for a loss given by name or as an object."""
    if isinstance(loss, Loss):
        return {"loss": loss.name, **loss._parameters()}
    if not isinstance(loss, str) or loss not in _core.LOSSES:
        names = ", ".join(repr(name) for name in _core.LOSSES)
        msg = f"loss: must be one of {names} or an object from dualgap.losses, got {loss!r}"
        raise ValueError(msg)
    needs = {kind.name: kind.__name__ for kind in (TopK, Usunier, WeightedTopK, WeightedUsunier)}
    if loss in needs:
        msg = f"loss: {loss!r} has a parameter; pass dualgap.losses.{needs[loss]}(...)"
        raise ValueError(msg)
    return {"loss": loss, **MaxHinge()._parameters()}
