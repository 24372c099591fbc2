"""Messages between the coordinator and the partitions of a consensus fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._validation import FloatArray
from dualgap.distributed._scales import penalty

VERSION = _core.__version__


@dataclass(frozen=True)
class Plan:
    """Constants of a fit, shared by all partitions."""

    run: str
    kept: str
    """Name of the run in checkpoints; a resumed run keeps the name of the original run."""
    version: str
    classes: NDArray[Any]
    factors: FloatArray | None
    total: float
    n_features: int
    problem: _core._MarginRecord
    regularization: float
    relaxation: float
    max_passes: int
    solver: str
    seed: int
    folder: str | None
    """Folder for checkpoints, if any."""
    source: str | None
    """Folder with the checkpoints of the resumed run, if any."""
    scales: FloatArray | None
    """Powers of two by which the columns (and the constant column) are divided, if any."""

    @property
    def n_columns(self) -> int:
        """Number of features, including the constant feature."""
        return self.n_features + bool(self.problem["bias"])

    def columns(self, present: NDArray[Any] | None) -> NDArray[Any] | None:
        """Return the columns of a partition's weights: columns with entries, and the constant."""
        if present is None or not self.problem["bias"]:
            return present
        return np.append(present, self.n_features)

    def scales_of(self, columns: NDArray[Any] | None) -> FloatArray | None:
        """Return the scales of the columns of a partition's weights."""
        return self.scales if self.scales is None or columns is None else self.scales[columns]

    def unscaled(self, weights: FloatArray) -> FloatArray:
        """Convert the weights of all columns to weights for unscaled rows."""
        if self.scales is None:
            return weights
        return weights / np.tile(self.scales, len(self.classes))

    def scaled(self, weights: FloatArray) -> FloatArray:
        """Convert the weights of all columns to weights for scaled rows."""
        return weights if self.scales is None else weights * np.tile(self.scales, len(self.classes))

    def penalty(self, rho: float, columns: NDArray[Any] | None = None) -> Any:
        """Return the penalty of the weights of these columns."""
        scales = self.scales_of(columns)
        return penalty(scales, self.regularization, rho, len(self.classes))


@dataclass(frozen=True)
class NewtonOrder:
    """Parameters of a Newton round."""

    width: float
    scale: float | None
    """If given, the dual points of the previous round times this factor become the centre."""


@dataclass(frozen=True)
class LogisticOrder:
    """Parameters of a round of logistic regression, which evaluates a model.

    The weights sent with it have shape (1, n_outputs, n_features + 1), with the intercepts last. If
    the first axis has length 2, the round returns the Hessian at the first entry times the second.
    """

    C: float
    intercept: bool
    tilt: FloatArray | None = None
    """The tilt of the distributions, if any."""
    numbers: NDArray[np.uint32] | None = None
    """The number of each class, if classes without weight are left out (`PresentClasses`)."""


@dataclass(frozen=True)
class Order:
    """Parameters of a round, sent to every partition."""

    round: int
    rho: float
    gap: float
    relative_gap: float
    tol: float
    copy: int | None
    """Copy (0 or 1) of the checkpoint in which to save this round; None to save nothing."""
    newton: NewtonOrder | None = None
    """Parameters of a Newton round; None for a round of the alternating direction method."""
    logistic: LogisticOrder | None = None
    """Parameters of a round of logistic regression."""


@dataclass
class Solution:
    """Result of a round for one partition, or the weighted sum of the results of several.

    The vector and the image (lambda times the weights of the dual point) have one row per class and
    one column per column of the problem or, if `columns` is given, per column listed there.
    `_logistic.evaluate` describes the results of logistic regression.
    """

    vector: FloatArray
    image: FloatArray
    columns: NDArray[Any] | None
    loss: float
    dual_term: float
    image_error: float
    image_norm: float
    square: float
    multiplier_square: float
    passes: int
    seconds: float
    restarted: int
    sums: FloatArray | None = None
    """In a Newton round, the sums that form the Hessian."""
    moved: float = 0.0
    """In a Newton round, the squared distance of the dual points from the centre.

    `square` is their squared norm.
    """
    unit: float = 0.0
    """In a Newton round, the unit of widths for the vertices that attain the losses at W = 0."""
    unkept: str | None = None
    """Error that prevented the checkpoint of this round, if any."""
