"""Work of one partition in logistic regression: sums for the certificate, Hessian products."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core, _records
from dualgap._validation import FloatArray, core_rows
from dualgap.distributed._partition import Part
from dualgap.distributed._plan import LogisticOrder, Solution

__all__ = ["evaluate"]


def evaluate(
    part: Part,
    targets: tuple[NDArray[np.uint32], FloatArray | None],
    n_classes: int,
    given: tuple[LogisticOrder, FloatArray],
) -> Solution:
    """Evaluate a partition at a model; no state is kept between rounds.

    The solution contains sums over the rows, each row multiplied by C times its weight. `image` and
    `vector` are both the sum of ``(e_y - p) x'``. `loss` is the sum of the losses, `dual_term` that
    of the entropies, and `image_error` that of the distances ``1 - p_y``. `sums` contains the sum
    of ``e_y - p``, followed by the matrix of the tilt. `image_norm` is the largest number of
    successive additions behind an entry of the image. For a product with the Hessian, only `image`,
    `vector` and `sums` are set.
    """
    started = time.perf_counter()
    labels, weights = targets
    order, models = given
    if order.numbers is not None:
        labels, n_classes = order.numbers[labels], int(order.numbers.max()) + 1

    def own(model: FloatArray) -> tuple[FloatArray, FloatArray]:
        columns = slice(-1) if part.columns is None else part.columns
        return np.ascontiguousarray(model[:, columns]), np.ascontiguousarray(model[:, -1])

    settings: _records.PartitionRecord = {
        "n_classes": n_classes,
        "C": order.C,
        "sample_weight": weights,
        "intercept": order.intercept,
        "model": own(models[0]),
        "tilt": order.tilt,
        "direction": own(models[1]) if len(models) > 1 else None,
    }
    result: dict[str, Any] = _core.logistic_sums(_aligned(core_rows(part.X)), labels, settings)
    image = result["image"]
    return Solution(
        vector=image,
        image=image,
        columns=part.columns,
        loss=result.get("loss", 0.0),
        dual_term=result.get("entropy", 0.0),
        image_error=result.get("distance", 0.0),
        image_norm=float(result.get("depth", 0)),
        square=0.0,
        multiplier_square=0.0,
        passes=1,
        seconds=time.perf_counter() - started,
        restarted=0,
        sums=np.concatenate([result["residual"], result.get("moments", np.zeros(0))]),
    )


def _aligned(rows: Any) -> Any:
    """Return aligned arrays; arrays from the network may be unaligned."""
    if isinstance(rows, tuple):
        return (*(np.require(part, requirements=("C", "A")) for part in rows[:3]), rows[3])
    return np.require(rows, requirements=("C", "A"))
