"""Base classes of all estimators: shared parameters, record of a fit, model files and HTML."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning

from dualgap._estimator.display import relative_gap
from dualgap._estimator.saving import Estimator, require, storable
from dualgap._estimator.scales import scale_cause
from dualgap._estimator.settings import check_numbers
from dualgap._estimator.signature import ordered
from dualgap._estimator.watch import (
    Callback,
    CallbackSupportMixin,
    EpochModels,
    History,
    Stopper,
    announce,
    restores_on_error,
    watch,
)
from dualgap._validation import FloatArray, MatrixLike, check_positive, check_targets

__all__ = [
    "Callback",
    "CertifiedEstimator",
    "EpochModels",
    "Estimator",
    "History",
    "RandomState",
    "ScoringClassifier",
    "Stopper",
    "announce",
    "best_classes",
    "depth",
    "ordered",
    "refuse_unused",
    "relative_gap",
    "require",
    "restores_on_error",
    "storable",
    "warn_of_gap",
    "warn_user",
    "watch",
]

RandomState: TypeAlias = int | np.random.RandomState | None


# Estimators are dataclasses, so that the name, type and default of each parameter are given in one
# place. scikit-learn reads them from the signature of the generated `__init__`.
@dataclass(kw_only=True, eq=False, repr=False)
class CertifiedEstimator(CallbackSupportMixin, Estimator):  # type: ignore[misc]
    """An estimator whose fit ends at a given duality gap."""

    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int | bool | None = None
    callback: Callback | None = None
    tol: float = 1e-3
    max_iter: int = 1000

    n_iter_: int = field(init=False)
    objective_: float = field(init=False)
    history_: History = field(init=False)
    dual_objective_: float = field(init=False)
    duality_gap_: float = field(init=False)
    relative_gap_: float = field(init=False)
    null_objective_: float = field(init=False)
    converged_: bool = field(init=False)
    certificate_: str = field(init=False)

    # The value of `certificate_` after a fit with a valid certificate.
    _certificate: ClassVar[str] = "convex optimum"

    # Parameters to increase if a fit did not converge.
    _remedy: ClassVar[str] = "max_iter or tol"

    # The solver with which solver="auto" begins.
    _first_solver: ClassVar[str] = "block-descent"

    # True for a fit inside another fit: only the outer fit warns. (A filter of `warnings` would
    # affect all threads.)
    _quiet = False

    def _check_parameters(self) -> None:
        """Raise a ValueError for an invalid parameter, before data are read."""
        check_numbers(self)

    def _store_run(self, result: Mapping[str, Any], X: Any = None, *, warns: bool = True) -> None:
        """Store the record of a certified fit; with `warns`, warn if it did not reach `tol`.

        The warning mentions the scales of the columns of `X` if they explain the slow convergence.
        """
        self.history_ = result["history"]
        self.n_iter_ = len(self.history_["epoch"])
        if "solver" in result:
            first, n_first = result["solver"]
            first = self._first_solver if first == "auto" else first
            solvers = np.where(np.arange(self.n_iter_) < n_first, first, "newton")
            self.history_["solver"] = solvers
        self.objective_ = result["objective"]
        self.dual_objective_ = result["dual_objective"]
        self.duality_gap_ = self.objective_ - self.dual_objective_
        self.relative_gap_ = relative_gap(self.duality_gap_, self.objective_)
        self.certificate_ = self._certificate
        self.null_objective_ = result["null_objective"]
        self.converged_ = result["outcome"] == "converged"
        if warns:
            self._warn_unless_converged(result["outcome"], X)

    def _warn_unless_converged(self, outcome: str, X: Any) -> None:
        """Warn if the outcome of a fit is neither convergence nor a stop that the user wants."""
        if not self._quiet and outcome not in ("converged", "stopped"):
            gap = (self.duality_gap_, self.relative_gap_)
            advice = self._advice(X, _REMEDIES.get(outcome, self._remedy))
            warn_of_gap(self.n_iter_, gap, self._tolerance(), advice, reason=outcome)

    def _tolerance(self) -> float:
        """Return the relative gap at which a fit ends."""
        return self.tol

    def _advice(self, X: Any, remedy: str) -> str:
        """Return the advice in the warning of a fit that did not converge."""
        parameters = type(self).__dataclass_fields__
        lower = [f", or lower {name}" for name in ("C", "Cs", "radius") if name in parameters]
        advice = f"raise {remedy}{''.join(lower)}"
        cause = self._scale_cause(X)
        return advice if cause is None else f"{cause}, or {advice}"

    def _scale_cause(self, X: Any) -> str | None:
        """Describe a problem with the scales of the columns, and name the remedy."""
        parameters = type(self).__dataclass_fields__
        constant = getattr(self, "intercept_scaling", 1.0) if "fit_intercept" in parameters else 0.0
        constant = constant if getattr(self, "fit_intercept", False) else 0.0
        return scale_cause(X, constant, getattr(self, "feature_names_in_", None))


@dataclass(kw_only=True, eq=False, repr=False)
class ScoringClassifier(ClassifierMixin, CertifiedEstimator):  # type: ignore[misc]
    """A classifier that predicts the class with the largest score."""

    classes_: NDArray[Any] = field(init=False)
    n_features_in_: int = field(init=False)

    def _scores(self, X: Any) -> FloatArray:
        """Return the score of each row and class, of shape (n_samples, n_classes)."""
        raise NotImplementedError

    def decision_function(self, X: MatrixLike) -> FloatArray:
        """Return the score of each class, or for two classes a single score per row.

        For two classes, the single score is the second class's score minus the first class's score.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Return the class with the largest score; in a tie, the first class.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy of the predictions.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            True classes.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row.

        Returns
        -------
        float
            Weighted share of correctly predicted rows.

        Raises
        ------
        ValueError
            For labels that NumPy cannot compare, as in `fit`.
        """
        return float(super().score(X, check_targets(y, numeric=False), sample_weight))

    def predict_top_k(self, X: MatrixLike, k: int) -> NDArray[Any]:
        """Return the `k` classes with the largest scores, best first; ties keep the class order.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.
        k : int
            Number of classes, at most ``n_classes``.

        Returns
        -------
        ndarray of shape (n_samples, k)
        """
        return best_classes(self._scores(X), self.classes_, k)


def best_classes(scores: FloatArray, classes: NDArray[Any], k: int) -> NDArray[Any]:
    """Return the `k` best classes of each row, best first; ties keep the class order."""
    check_positive("k", k, integer=True)
    if k > len(classes):
        msg = f"k: must be at most the number of classes, {len(classes)}, got {k}"
        raise ValueError(msg)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.asarray(classes[best])


def refuse_unused(estimator: Any, names: Sequence[str], choice: str) -> None:
    """Raise a ValueError for a parameter that is set although `choice` does not use it."""
    for name in names:
        value = getattr(estimator, name)
        default = type(estimator).__dataclass_fields__[name].default
        if value is not default and value != default:
            msg = f"{name}: {choice} does not use it, got {value!r}"
            raise ValueError(msg)


_REASONS = {
    "exhausted": " (no further progress is possible in floating point)",
    "full": " (the model has n_components basis vectors)",
    "idle": " (the last basis vectors hardly lowered the objective)",
    "stalled": " (the last iterations made no progress)",
}
"""Text for each outcome of a fit that ended before `max_iter`."""

_REMEDIES = {"exhausted": "tol", "idle": "tol", "stalled": "tol", "full": "n_components or tol"}
"""Parameters to raise after an outcome that more iterations cannot improve."""


def warn_of_gap(
    n_iter: int,
    gap: tuple[float, float],
    tol: float,
    advice: str,
    what: str = "",
    reason: str = "",
) -> None:
    """Warn, at the line of the user's call, that a fit did not converge."""
    warn_user(
        f"{what}stopped after {n_iter} iterations{_REASONS.get(reason, '')} at a duality gap of "
        f"{gap[0]:.3g}, {gap[1]:.2g} of the objective (tol={tol:.2g}); {advice}"
    )


def warn_user(text: str) -> None:
    """Issue a ConvergenceWarning at the line of the user's call."""
    warnings.warn(text, ConvergenceWarning, stacklevel=depth())


# Prefixes of the modules whose frames lie between a user's call and a warning.
_OURS = ("dualgap.", "sklearn.callback.")


def depth() -> int:
    """Return the number of frames between `warnings.warn` and the user's call."""
    depth, frame = 1, sys._getframe(1)
    # Code run by `exec` may have no module name.
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith(_OURS):
        depth, frame = depth + 1, frame.f_back
    return depth
