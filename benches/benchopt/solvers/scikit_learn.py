"""scikit-learn: LogisticRegression, and LinearSVC (LIBLINEAR) with Crammer and Singer's loss."""

from __future__ import annotations

import warnings
from typing import Any

from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC


class Solver(BaseSolver):
    name = "scikit-learn"
    requirements = ["scikit-learn"]
    parameters = {"solver": ["lbfgs", "newton-cg", "saga", "liblinear"]}
    # Several loose tolerances may give the same model.
    stopping_criterion = SufficientProgressCriterion(patience=12, strategy="tolerance")

    def skip(self, X: Any, y: Any, loss: str, C: float) -> tuple[bool, str | None]:
        if (loss == "max-hinge") != (self.solver == "liblinear"):
            return True, f"{self.solver} does not minimise the loss {loss} for all classes jointly"
        return False, None

    def set_objective(self, X: Any, y: Any, loss: str, C: float) -> None:
        self.X, self.y = X, y
        settings = {"C": C, "fit_intercept": False, "max_iter": 10**5, "random_state": 0}
        if loss == "logistic":
            self.model = LogisticRegression(solver=self.solver, **settings)
        else:
            # With columns of different scales, each further tolerance would take minutes.
            settings["max_iter"] = 5000
            self.model = LinearSVC(multi_class="crammer_singer", **settings)

    def run(self, tolerance: float) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.set_params(tol=tolerance).fit(self.X, self.y)

    def get_result(self) -> dict[str, Any]:
        return {"coef": self.model.coef_}
