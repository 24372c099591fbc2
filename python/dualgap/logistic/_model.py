"""A linear classifier with class probabilities: parameters, scores and certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.utils.validation import check_is_fitted

from dualgap._estimator import ScoringClassifier, require
from dualgap._records import InterceptCurvature
from dualgap._validation import FloatArray, MatrixLike, check_rows
from dualgap.logistic._bounds import OptimumBall
from dualgap.multiclass._rows import linear_scores

__all__ = ["LogisticClassifier"]


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticClassifier(ScoringClassifier):
    """A fitted logistic regression, with a given or a cross-validated C."""

    fit_intercept: bool = True
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None

    coef_: FloatArray = field(init=False)
    intercept_: FloatArray = field(init=False)

    # Weight of the regulariser; None without a certificate.
    _lambda: float | None = field(init=False, default=None)
    # Curvature of the loss in the intercepts; None without them, or if the fit did not compute it.
    _curvature: InterceptCurvature | None = field(init=False, default=None)
    _saved: ClassVar[tuple[str, ...]] = ("_lambda", "_curvature")
    _first_solver: ClassVar[str] = "dual-descent"

    def _check_restored(self) -> None:
        if not hasattr(self, "coef_"):
            return
        n_outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        require(self.coef_.shape == (n_outputs, self.n_features_in_))
        require(self.intercept_.shape == (n_outputs,))
        require(self.coef_.dtype == self.intercept_.dtype == np.float64)
        finite = np.isfinite(self.coef_).all() and np.isfinite(self.intercept_).all()
        require(finite, "a weight is not finite")
        if self._curvature is not None:
            _check_curvature(self._curvature, self.coef_.shape)

    def _scores(self, X: Any) -> FloatArray:
        check_is_fitted(self, "coef_")
        X = check_rows(self, X, reset=False, half=True)
        outputs = linear_scores(X, self.coef_, self.intercept_)
        # With two classes, the score of the first is 0.
        return outputs if len(self.coef_) > 1 else np.pad(outputs, ((0, 0), (1, 0)))

    def _both(self) -> tuple[FloatArray, FloatArray]:
        """Return weights and intercepts of all classes, also of the first of two classes."""
        if len(self.coef_) > 1:
            return self.coef_, self.intercept_
        return np.pad(self.coef_, ((1, 0), (0, 0))), np.pad(self.intercept_, (1, 0))

    def predict_proba(self, X: MatrixLike) -> FloatArray:
        """Return the probability of each class: the softmax of the scores.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.asarray(softmax(self._scores(X), axis=1))

    def predict_log_proba(self, X: MatrixLike) -> FloatArray:
        """Return the logarithms of the probabilities, finite where `predict_proba` rounds to 0.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.asarray(log_softmax(self._scores(X), axis=1))

    def prediction_may_change(self, X: MatrixLike) -> NDArray[np.bool_]:
        """Return a mask of the predictions that further training might change.

        The duality gap bounds the distance of the model from the exact optimum, and therefore the
        change of each score. A row is decided if its best score leads by more than this change: the
        optimum then predicts the same class. The bound accounts for rounding errors. With
        intercepts, no bound is known if the gap is too large, if there are more than 256 classes,
        or if a class has no weight. All rows are then undecided.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of bool of shape (n_samples,)
            True for rows whose class may differ at the optimum, and for rows whose scores overflow.

        Raises
        ------
        ValueError
            If the model has no certificate; or if it has intercepts whose curvature was not stored,
            as in files of earlier versions or of the Rust interface.
        """
        check_is_fitted(self, "coef_")
        X = check_rows(self, X, reset=False, half=True)
        if self._lambda is None or not np.isfinite(self.dual_objective_):
            msg = "prediction_may_change: the model has no certificate; fit it here"
            raise ValueError(msg)
        if self.fit_intercept and self._curvature is None:
            msg = (
                "prediction_may_change: the model does not have the curvature of the loss in the "
                "intercepts; fit it with this version of dualgap"
            )
            raise ValueError(msg)
        predicted = self._scores(X).argmax(axis=1)
        return OptimumBall.of(self).prediction_may_change(self, X, predicted)


def _check_curvature(curvature: Any, shape: tuple[int, int]) -> None:
    """Check the curvature from a file."""
    n_outputs, n_features = shape
    require(
        isinstance(curvature, dict) and set(curvature) == set(InterceptCurvature.__annotations__)
    )
    matrix, centre = curvature["matrix"], curvature["centre"]
    require(all(isinstance(each, np.ndarray) for each in (matrix, centre)))
    require(matrix.shape in ((0, 0), (n_outputs, n_outputs)) and centre.shape == (n_features,))
    require(matrix.dtype == centre.dtype == np.float64)
    numbers = [curvature["mean_square"], curvature["largest_square"]]
    require(all(isinstance(number, float) and number >= 0.0 for number in numbers))
    require(np.isfinite(matrix).all() and np.isfinite(centre).all())
