"""Cyanure: variance-reduced first-order methods with acceleration."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion
from cyanure.estimators import Classifier


class Solver(BaseSolver):
    name = "cyanure"
    requirements = ["pip::cyanure"]
    parameters = {"solver": ["auto", "qning-miso"]}
    # Several loose tolerances may give the same model.
    stopping_criterion = SufficientProgressCriterion(patience=12, strategy="tolerance")

    def skip(self, X: Any, y: Any, loss: str, C: float) -> tuple[bool, str | None]:
        if loss != "logistic":
            return True, "has no hinge loss that compares all classes"
        return False, None

    def set_objective(self, X: Any, y: Any, loss: str, C: float) -> None:
        self.X, self.y = X, y.astype(np.int64)
        # The objective of cyanure is the mean loss plus lambda_1 / 2 ‖W‖².
        self.model = Classifier(
            loss="multiclass-logistic" if y.max() > 1 else "logistic",
            penalty="l2", lambda_1=1.0 / (C * len(y)),
            solver=self.solver, fit_intercept=False, max_iter=10**5, n_threads=1,
            verbose=False, random_state=0,
        )  # fmt: skip

    def run(self, tolerance: float) -> None:
        self.model.set_params(tol=tolerance).fit(self.X, self.y)

    def get_result(self) -> dict[str, Any]:
        coef = np.atleast_2d(self.model.coef_)
        # The weights of cyanure have a column for each class.
        return {"coef": coef if coef.shape[1] == self.X.shape[1] else coef.T}
