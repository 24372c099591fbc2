"""Linear classifiers: C Σ_i loss(y_i, W x_i) + ½‖W‖², without an intercept.

For two classes, W has one row, and the score of the first class is 0, as in scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from benchopt import BaseObjective
from scipy.special import logsumexp


class Objective(BaseObjective):
    name = "Linear classification"
    min_benchopt_version = "1.6"
    requirements = ["scipy"]
    sampling_strategy = "tolerance"
    parameters = {"loss": ["logistic", "max-hinge"], "C": [0.01, 1.0]}

    def skip(self, X: Any, y: Any) -> tuple[bool, str | None]:
        if len(np.unique(y)) < 3 and self.loss != "logistic":
            # For two classes, the solvers define the regulariser of this loss in different ways.
            return True, f"{self.loss} needs at least three classes"
        return False, None

    def set_data(self, X: Any, y: Any) -> None:
        self.X = X
        self.y = np.unique(y, return_inverse=True)[1]

    def get_one_result(self) -> dict[str, Any]:
        n_classes = self.y.max() + 1
        return {"coef": np.zeros((n_classes if n_classes > 2 else 1, self.X.shape[1]))}

    def evaluate_result(self, coef: Any) -> dict[str, float]:
        rows, scores = np.arange(len(self.y)), np.asarray(self.X @ coef.T)
        if scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        margins = scores - scores[rows, self.y][:, None]
        if self.loss == "logistic":
            losses = logsumexp(margins, axis=1)
        else:
            margins += 1.0
            margins[rows, self.y] = 0.0
            losses = margins.max(axis=1)
        value = self.C * losses.sum() + 0.5 * (coef**2).sum()
        accuracy = float((scores.argmax(axis=1) == self.y).mean())
        return {"value": float(value), "training_accuracy": accuracy}

    def get_objective(self) -> dict[str, Any]:
        return {"X": self.X, "y": self.y, "loss": self.loss, "C": self.C}
