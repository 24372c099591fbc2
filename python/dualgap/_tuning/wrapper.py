"""Base class of searches that wrap an estimator."""

from __future__ import annotations

from typing import Any

from sklearn.base import MetaEstimatorMixin
from sklearn.metrics import check_scoring
from sklearn.utils.validation import check_is_fitted

from dualgap._estimator import require

__all__ = ["FIT_COLUMNS", "EstimatorSearch"]

FIT_COLUMNS = ("objective", "dual_objective", "relative_gap", "n_iter", "converged")
"""Names of the attributes, without the final underscore, that `cv_results_` has for each fit."""


class EstimatorSearch(MetaEstimatorMixin):  # type: ignore[misc]
    """Predictions by the model that the search chose."""

    estimator: Any
    scoring: Any
    best_estimator_: Any

    def _check_restored(self) -> None:
        best = getattr(self, "best_estimator_", None)
        require(best is None or type(best) is type(self.estimator))

    def predict(self, X: Any) -> Any:
        """Return the predictions of the model with the chosen C."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    def score(self, X: Any, y: Any) -> float:
        """Return the score of the model with the chosen C."""
        check_is_fitted(self, "best_estimator_")
        return float(check_scoring(self.best_estimator_, self.scoring)(self.best_estimator_, X, y))
