"""skglm: L-BFGS for the logistic loss with two classes; it has no loss for more classes."""

from __future__ import annotations

import warnings
from typing import Any

import scipy.sparse as sp
from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion
from skglm.datafits import Logistic
from skglm.penalties import L2
from skglm.solvers import LBFGS
from sklearn.exceptions import ConvergenceWarning


class Solver(BaseSolver):
    name = "skglm"
    requirements = ["pip::skglm"]
    parameters = {"solver": ["lbfgs"]}
    # Several loose tolerances may give the same model.
    stopping_criterion = SufficientProgressCriterion(patience=12, strategy="tolerance")

    def skip(self, X: Any, y: Any, loss: str, C: float) -> tuple[bool, str | None]:
        if loss != "logistic" or y.max() > 1:
            return True, "supports the logistic loss with two classes only"
        return False, None

    def set_objective(self, X: Any, y: Any, loss: str, C: float) -> None:
        self.X, self.y = sp.csc_array(X) if sp.issparse(X) else X, 2.0 * y - 1.0
        # The objective of skglm is the mean loss plus alpha / 2 ‖w‖².
        self.terms = Logistic(), L2(1.0 / (C * len(y)))

    def warm_up(self) -> None:
        # The first fit compiles the loss.
        self.run(1.0)

    def run(self, tolerance: float) -> None:
        # The tolerance of skglm bounds the gradient of the mean loss.
        solver = LBFGS(max_iter=10**5, tol=1e-2 * tolerance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.weights = solver.solve(self.X, self.y, *self.terms)[0]

    def get_result(self) -> dict[str, Any]:
        return {"coef": self.weights[None, :]}
