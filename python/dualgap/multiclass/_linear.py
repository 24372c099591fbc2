"""Parameters and predictions of linear classifiers with a margin loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import LossName
from dualgap._estimator import ScoringClassifier, refuse_unused, require
from dualgap._estimator.probabilities import MARGIN_ADVICE, without_probabilities
from dualgap._validation import FloatArray, MatrixLike, check_rows
from dualgap.losses import Loss, MarginLoss, core_loss
from dualgap.multiclass._rows import linear_scores, optimum_radius, undecided

__all__ = ["LinearClassifier"]


@without_probabilities(MARGIN_ADVICE)
@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(ScoringClassifier):
    """A classifier with a margin loss and a weight for each class and feature."""

    loss: LossName | Loss | MarginLoss = field(default="max-hinge", kw_only=False)
    smoothing: float = 0.0
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None

    coef_: FloatArray = field(init=False)
    intercept_: FloatArray = field(init=False)

    # Weight of the regulariser; None without a certificate.
    _lambda: float | None = field(init=False, default=None)

    _saved: ClassVar[tuple[str, ...]] = ("_lambda",)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.fit_intercept:
            refuse_unused(self, ["intercept_scaling"], "fit_intercept=False")

    def _store_weights(self, weights: FloatArray) -> None:
        n_features = self.n_features_in_
        self.coef_ = np.ascontiguousarray(weights[:, :n_features])
        self.intercept_ = np.zeros(len(self.classes_))
        if self.fit_intercept:
            self.intercept_ = weights[:, n_features] * float(self.intercept_scaling)

    def _check_restored(self) -> None:
        core_loss(self.loss)
        check_linear_model(self)

    def _scores(self, X: Any) -> FloatArray:
        check_is_fitted(self, "coef_")
        X = check_rows(self, X, reset=False, half=True)
        return linear_scores(X, self.coef_, self.intercept_)

    def prediction_may_change(self, X: MatrixLike) -> NDArray[np.bool_]:
        """Return a mask of the predictions that further training might change.

        The duality gap bounds the distance of the model from the exact optimum, and therefore the
        change of each score. A row is decided if its best score leads by more than this change: the
        optimum then predicts the same class. The bound accounts for rounding errors. A smaller gap
        (see `tol`) leaves fewer rows undecided; rows close to the boundary of two classes need a
        very small gap.

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
            If the model has no certificate.
        """
        scores = self._scores(X)
        if self._lambda is None or not np.isfinite(self.dual_objective_):
            msg = "prediction_may_change: the model has no certificate; fit it with a built-in loss"
            raise ValueError(msg)
        radius = optimum_radius(self.duality_gap_, self._lambda)
        bias = float(self.intercept_scaling) if self.fit_intercept else 0.0
        linear = (self.coef_, self.intercept_, bias)
        X = check_rows(self, X, reset=False, half=True)
        return undecided(X, linear, radius, scores.argmax(axis=1))


def check_linear_model(model: Any) -> None:
    """Check the attributes of a linear classifier that come from a file.

    Raises
    ------
    ValueError
        If the classes are not sorted and distinct, or weights do not fit them or are not finite.
    """
    classes = model.classes_
    require(isinstance(classes, np.ndarray) and classes.ndim == 1 and len(classes) >= 2)
    # The comparison is also false for NaN.
    require(bool((classes[1:] > classes[:-1]).all()), "the classes are not sorted and distinct")
    if not hasattr(model, "coef_"):
        return
    coef, intercept = model.coef_, model.intercept_
    require(coef.dtype == intercept.dtype == np.float64)
    require(coef.shape == (len(classes), model.n_features_in_))
    require(intercept.shape == classes.shape)
    require(np.isfinite(coef).all() and np.isfinite(intercept).all(), "a weight is not finite")
    numbers = [model.objective_, model.null_objective_]
    if model._lambda is not None:
        numbers += [model._lambda, model.dual_objective_, model.duality_gap_]
    require(np.isfinite(numbers).all(), "the record of the fit is not finite")
