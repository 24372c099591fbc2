"""Checkpoints of consensus logistic regression: the best model and the history."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualgap._estimator import depth
from dualgap._npz import read_meta, refused_as
from dualgap._validation import FloatArray
from dualgap.distributed._storage import exists, join, read_arrays, write_arrays
from dualgap.logistic._rounds import COLUMNS, NewtonRounds

__all__ = ["Checkpoints", "resume_logistic"]

_FILE = "consensus.npz"


@dataclass
class Checkpoints:
    """Writer of checkpoints; each has the best model and the history."""

    folder: str
    identity: dict[str, Any]
    interval: float
    saved: float = -np.inf
    warned: bool = False

    def __call__(self, run: NewtonRounds) -> None:
        """Write a checkpoint if one is due; only the first failure causes a warning."""
        now = time.monotonic()
        if run.best is None or now - self.saved < self.interval:
            return
        meta = {"identity": self.identity, "rounds": run.rounds}
        try:
            write_arrays(
                join(self.folder, _FILE), meta, {"weights": run.best, "rows": np.array(run.rows)}
            )
        except OSError as error:
            if not self.warned:
                self.warned = True
                msg = (
                    f"checkpoint: iteration {len(run.rows)} could not be written ({error}); the "
                    "fit continues and tries to write later iterations"
                )
                warnings.warn(msg, RuntimeWarning, stacklevel=depth())
        self.saved = now


def resume_logistic(folder: str, identity: dict[str, Any], run: NewtonRounds) -> FloatArray:
    """Load the history of an earlier run into `run`; return the weights to continue from.

    Objective and bound are not read: the first round evaluates the model again.
    """
    path = join(folder, _FILE)
    if not exists(path):
        msg = f"resume: no checkpoint in {folder}"
        raise ValueError(msg)
    shape = (run.problem.n_outputs, len(run.problem.squares) + 1)
    with refused_as(path, "a checkpoint of this fit"):
        arrays = read_arrays(path)
        meta = read_meta(arrays, identity=identity)
        weights = np.asarray(arrays["weights"], dtype=np.float64)
        rows = np.asarray(arrays["rows"], dtype=np.float64)
        if weights.shape != shape or not np.isfinite(weights).all():
            msg = "the weights are not finite, or do not have the shape of this problem"
            raise ValueError(msg)
        if rows.ndim != 2 or rows.shape[1] != len(COLUMNS):
            msg = "the rows of the history have the wrong shape"
            raise ValueError(msg)
        run.rounds, run.rows = int(meta["rounds"]), rows.tolist()
        run.started -= float(rows[-1, 1]) if len(rows) else 0.0
    return weights
