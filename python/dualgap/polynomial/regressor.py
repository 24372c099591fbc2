"""Regressors: polynomial networks and factorization machines."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from dualgap._estimator import Callback
from dualgap._validation import FloatArray, check_rows, check_weights
from dualgap.chunks import Chunks
from dualgap.polynomial._base import PolynomialModel, check_training, documented

__all__ = ["FactorizationMachineRegressor", "PolynomialNetworkRegressor"]


class _Regressor(RegressorMixin, PolynomialModel):  # type: ignore[misc]
    def __init__(
        self,
        n_components: int = 30,
        *,
        penalty: str = "l1/l2",
        radius: float = 100.0,
        loss: str = "squared",
        refit: str = "full",
        linear: str | None = "explicit",
        alpha: float = 1.0,
        tol: float = 1e-3,
        max_iter: int = 200,
        selection: str = "refined",
        selection_tol: float = 1e-2,
        validation_fraction: float | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int | bool = 0,
        callback: Callback | None = None,
    ) -> None:
        self.n_components = n_components
        self.penalty = penalty
        self.radius = radius
        self.loss = loss
        self.refit = refit
        self.linear = linear
        self.alpha = alpha
        self.tol = tol
        self.max_iter = max_iter
        self.selection = selection
        self.selection_tol = selection_tol
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self,
        X: ArrayLike | Chunks,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        validation_data: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like, CSR matrix or Chunks of shape (n_samples, n_features)
            Training rows; float32 and float64 are read in place, from memory-mapped files and
            :class:`dualgap.Chunks` as well. Beyond them a fit needs memory for one number per row
            and output and for a few dozen copies of the model.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Target values; all outputs share the basis.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row's loss.
        validation_data : tuple (X, y), optional
            Rows on which the number of basis vectors is chosen, in place of
            ``validation_fraction``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        X, y = check_training(self, X, y, multi_output=True, y_numeric=True)
        if self.loss != "squared":
            msg = f'loss: a regressor has the loss "squared" only, got {self.loss!r}'
            raise ValueError(msg)
        targets = self._targets(y)
        self._one_output = np.ndim(y) == 1
        validation = None
        if validation_data is not None:
            X_held_out = check_rows(self, validation_data[0], reset=False)
            validation = (X_held_out, self._targets(validation_data[1]))
        weights = check_weights(sample_weight, X)
        self._fit(X, targets, targets.shape[1], weights, validation, stratify=False)
        return self

    @staticmethod
    def _targets(y: ArrayLike) -> FloatArray:
        values = np.ascontiguousarray(y, dtype=np.float64)
        return values.reshape(len(values), -1)

    def predict(self, X: ArrayLike) -> FloatArray:
        """Predicted values.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs), as in ``fit``
        """
        outputs = self._outputs(X)
        return outputs[:, 0] if self._one_output else outputs


_REGRESSOR_LOSSES = '{"squared"}, default="squared"'


@documented(_REGRESSOR_LOSSES)
class PolynomialNetworkRegressor(_Regressor):
    """Polynomial network for one or many regression targets on a shared basis.

    o(x)_c = sum_r u_rc (h_r . x)^2 + w_c . x + b_c (paper, (3)-(4)).
    """

    _kernel = "square"


@documented(_REGRESSOR_LOSSES)
class FactorizationMachineRegressor(_Regressor):
    """Factorization machine of degree 2 for one or many regression targets on a shared basis.

    o(x)_c = sum_r u_rc sum_{j<j'} h_rj x_j h_rj' x_j' + w_c . x + b_c (paper, (3)-(4)).
    """

    _kernel = "anova"
