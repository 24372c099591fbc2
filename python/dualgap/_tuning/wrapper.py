"""Base class of searches that wrap an estimator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import MetaEstimatorMixin
from sklearn.metrics import check_scoring
from sklearn.utils.validation import check_is_fitted

from dualgap._estimator import Callback, Estimator, RandomState, require
from dualgap._tuning.search import SearchForC

__all__ = ["FIT_COLUMNS", "EstimatorSearch"]

FIT_COLUMNS = ("objective", "dual_objective", "relative_gap", "n_iter", "converged")
"""Names of the attributes, without the final underscore, that `cv_results_` has for each fit."""


@dataclass(kw_only=True, eq=False, repr=False)
class EstimatorSearch(SearchForC, MetaEstimatorMixin, Estimator):  # type: ignore[misc]
    """A search for the C of an estimator, with predictions by the model that it chose."""

    estimator: Any = field(kw_only=False)
    Cs: int | ArrayLike = field(default=13, kw_only=False)
    random_state: RandomState = None
    verbose: int | bool | None = None
    callback: Callback | None = None

    best_estimator_: Any = field(init=False)

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
