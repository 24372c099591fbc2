"""Multi-category losses: the support functions of polytopes (Tajima et al., arXiv:2008.08894).

For scores ``s`` and the label ``y``, let ``v_j = cost_j + s_j - s_y`` be the margins, with ``v_y =
0``, and let ``v_(1) >= v_(2) >= ...`` be the sorted margins. The cost is 1 for every class other
than the label, unless other costs are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualgap import _core
from dualgap._estimator.saving import storable
from dualgap._validation import real_array

__all__ = [
    "LOSSES",
    "Loss",
    "MarginLoss",
    "MaxHinge",
    "StructuredHinge",
    "TopK",
    "Usunier",
    "WeightedTopK",
    "WeightedUsunier",
    "WestonWatkins",
]

LOSSES = _core.LOSSES
"""A dictionary from the name of each loss to the names of its parameters."""


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Loss:
    """A loss given by its name and its parameters (see `LOSSES`).

    Parameters
    ----------
    name : str
        One of `LOSSES`.
    k : int, optional
        Number of largest margins that the loss averages, less than ``n_classes``.
    weights : sequence of float, optional
        One weight per sorted margin: non-negative and non-increasing, with a last weight of 0.
    costs : array-like of shape (n_classes, n_classes) or (n_samples, n_classes), optional
        Non-negative costs of predicting a class (column) instead of the true class; by default 1.
        There is one row per label, in the order of ``classes_``, or one row per training row. The
        cost of the true class is 0.
    per_row : bool, default=False
        Whether ``costs`` has one row per training row.

    Examples
    --------
    >>> from dualgap.losses import Loss, TopK
    >>> Loss("top-k", k=3) == TopK(3)
    True
    """

    name: str
    k: int | None = None
    weights: Sequence[float] | None = None
    costs: ArrayLike | None = None
    per_row: bool = False

    def __post_init__(self) -> None:
        if self.weights is not None:
            # Stored as a tuple, because tuples compare and hash by value.
            weights = tuple(real_array("weights", self.weights).tolist())
            object.__setattr__(self, "weights", weights)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Loss):
            return NotImplemented
        same = (getattr(self, name) == getattr(other, name) for name in _COMPARED)
        return all(same) and np.array_equal(np.asarray(self.costs), np.asarray(other.costs))

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in _COMPARED))

    def __repr__(self) -> str:
        given = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        own = {
            name: value for name, value in given.items() if value is not None and value is not False
        }
        # A loss from a model file has the class Loss, but must have the repr of the original loss.
        usual = set(own) - {"costs", "per_row"} == set(LOSSES.get(self.name, ()))
        kind = _CLASSES.get((self.name, self.costs is not None), "Loss") if usual else "Loss"
        shown = [repr(self.name)] if kind == "Loss" else []
        shown += [f"{name}={_short(value)}" for name, value in own.items()]
        return f"{kind}({', '.join(shown)})"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the loss as a dict, without the costs.

        Raises
        ------
        ValueError
            If the loss is unknown, or a parameter is missing, invalid, or unknown to this loss.
        """
        is_count = isinstance(self.k, int | np.integer) and not isinstance(self.k, bool)
        if self.k is not None and (not is_count or self.k < 1):
            msg = f"k: must be a positive integer, got {self.k!r}"
            raise ValueError(msg)
        k = None if self.k is None else int(self.k)
        weights = None if self.weights is None else list(self.weights)
        _core.check_loss(self.name, k, weights)
        given = {"k": k, "weights": weights}
        return {name: given[name] for name in LOSSES[self.name]}


def _short(value: Any) -> str:
    """Return the repr of a value, or the shape of a large matrix."""
    shape = np.shape(value)
    return f"<array of shape {shape}>" if np.prod(shape) > 16 else repr(value)


# The class of each loss, by the loss's name and whether it has costs.
_CLASSES = {
    ("max-hinge", False): "MaxHinge",
    ("max-hinge", True): "StructuredHinge",
    ("top-k", False): "TopK",
    ("usunier", False): "Usunier",
    ("weighted-top-k", False): "WeightedTopK",
    ("weighted-usunier", False): "WeightedUsunier",
    ("weston-watkins", False): "WestonWatkins",
}

_COMPARED = ("name", "k", "weights", "per_row")


class MaxHinge(Loss):
    """Crammer and Singer's hinge, ``max(0, v_(1))`` (Tajima et al. 2020, 2.2)."""

    def __init__(self) -> None:
        super().__init__("max-hinge")


class StructuredHinge(Loss):
    """Max hinge with given costs, ``max_j cost_j + s_j - s_y`` (Tajima et al. 2020, 2.4).

    Parameters
    ----------
    costs : array-like of shape (n_classes, n_classes) or (n_samples, n_classes)
        As in `Loss`.
    per_row : bool, default=False
        Whether ``costs`` has one row per training row.
    """

    def __init__(self, costs: ArrayLike, per_row: bool = False) -> None:
        super().__init__("max-hinge", costs=costs, per_row=per_row)


class TopK(Loss):
    """Top-k hinge, ``max(0, mean of v_(1), ..., v_(k))`` (Tajima et al. 2020, 2.5).

    Parameters
    ----------
    k : int
        Number of largest margins that the loss averages; less than ``n_classes``.
    """

    def __init__(self, k: int) -> None:
        super().__init__("top-k", k=k)


class Usunier(Loss):
    """Usunier's loss, the mean of ``max(0, v_(1)), ..., max(0, v_(k))`` (Tajima et al. 2020, 2.6).

    Parameters
    ----------
    k : int
        Number of largest margins that the loss averages; less than ``n_classes``.
    """

    def __init__(self, k: int) -> None:
        super().__init__("usunier", k=k)


class WeightedTopK(Loss):
    """Weighted top-k hinge, ``max(0, sum_j weights_j v_(j))`` (Tajima et al. 2020, 2.7).

    Parameters
    ----------
    weights : sequence of float
        One weight per sorted margin: non-negative and non-increasing, with a last weight of 0.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        super().__init__("weighted-top-k", weights=weights)


class WeightedUsunier(Loss):
    """Weighted Usunier loss, ``sum_j weights_j max(0, v_(j))`` (Tajima et al. 2020, 2.8).

    Parameters
    ----------
    weights : sequence of float
        One weight per sorted margin: non-negative and non-increasing, with a last weight of 0.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        super().__init__("weighted-usunier", weights=weights)


class WestonWatkins(Loss):
    """Weston and Watkins' sum of hinges, ``sum_{j != y} max(0, v_j)``."""

    def __init__(self) -> None:
        super().__init__("weston-watkins")


@runtime_checkable
class MarginLoss(Protocol):
    """Protocol of a custom loss for `MulticlassSVC`: any object with these two methods.

    The loss of a row with the label ``y`` is the support function of a polytope B_y at the margins,
    ``max over b in B_y of b @ margins``, with ``margins[j] = cost_j + s_j - s_y`` and
    ``margins[y] = 0``. B_y must contain 0. The coordinates of its points must be non-negative, and
    0 at ``y``. The loss is therefore non-negative, and non-decreasing in each margin.

    The methods must be deterministic and must not modify ``margins``. ``label`` is an index into
    ``classes_``. Each pass calls them at least once per row, and holds Python's global interpreter
    lock during the call.

    ``solver="block-descent"`` and smoothing need a third method, ``project(point, label)``, which
    returns the point of B_y closest to ``point`` in the Euclidean norm. ``point[label]`` is 0; the
    other coordinates can have any value. An attribute ``costs`` of shape (n_classes, n_classes)
    replaces the default costs, as in `Loss`.

    See Also
    --------
    MulticlassSVC : Checks that the methods agree with each other; ``certificate_`` states the
        assumptions on which the bound depends.
    """

    def support(self, margins: NDArray[np.float64], label: int) -> float:
        """Return the loss, the maximum of ``b @ margins`` over B_y."""
        ...

    def vertex(self, margins: NDArray[np.float64], label: int) -> ArrayLike:
        """Return a point of B_y that attains this maximum, of shape (n_classes,)."""
        ...


def core_loss(loss: object) -> _core._Loss:
    """Convert a loss, given as a name or an object, to the arguments of the core."""
    if isinstance(loss, str):
        if LOSSES.get(loss):
            given = ", ".join(f"{name}=..." for name in LOSSES[loss])
            msg = f"loss: {loss!r} needs a parameter; pass dualgap.losses.Loss({loss!r}, {given})"
            raise ValueError(msg)
        if loss in ("log", "log_loss", "logistic"):
            msg = (
                f"loss: for {loss!r}, use LogisticRegression, LogisticRegressionCV, or for "
                "partitions ConsensusLogisticRegression"
            )
            raise ValueError(msg)
        loss = Loss(loss)
    if not isinstance(loss, Loss):
        msg = f"loss: must be a name or an object from dualgap.losses, got {loss!r}"
        raise ValueError(msg)
    own = loss.parameters()
    return {
        "loss": loss.name,
        "k": own.get("k"),
        "weights": own.get("weights"),
        "costs": core_costs(loss.costs),
        "costs_per_row": bool(loss.per_row),
    }


def core_costs(costs: ArrayLike | None) -> NDArray[np.float64] | None:
    """Convert costs to the array that the core expects."""
    if costs is None:
        return None
    found = real_array("costs", costs)
    if found.ndim != 2:
        msg = f"costs: must be two-dimensional, got shape {found.shape}"
        raise ValueError(msg)
    return found
