"""dualgap: block descent and Newton's method, with a duality gap."""

from __future__ import annotations

from typing import Any

from benchopt import BaseSolver
from benchopt.stopping_criterion import SufficientProgressCriterion

from dualgap import LogisticRegression, MulticlassSVC


class Solver(BaseSolver):
    name = "dualgap"
    requirements = ["pip::dualgap"]
    parameters = {"solver": ["auto"]}
    # Several loose tolerances may give the same model.
    stopping_criterion = SufficientProgressCriterion(patience=12, strategy="tolerance")

    def set_objective(self, X: Any, y: Any, loss: str, C: float) -> None:
        self.X, self.y = X, y
        kind = LogisticRegression if loss == "logistic" else MulticlassSVC
        settings = {"fit_intercept": False, "max_iter": 10**6, "random_state": 0, "verbose": 0}
        self.model = kind(C=C, solver=self.solver, n_jobs=1, **settings)

    def run(self, tolerance: float) -> None:
        # The gap is relative to the objective.
        self.model.set_params(tol=tolerance).fit(self.X, self.y)

    def get_result(self) -> dict[str, Any]:
        return {"coef": self.model.coef_}
