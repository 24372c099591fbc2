"""Regressors: polynomial networks and factorization machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from dualgap._estimator import ordered
from dualgap._validation import FloatArray, MatrixLike, check_rows, check_weights, real_array
from dualgap._validation.magnitudes import check_magnitude
from dualgap.polynomial._base import FittedPolynomial, Training, centred, check_training, documented

__all__ = ["FactorizationMachineRegressor", "PolynomialNetworkRegressor"]


@dataclass(kw_only=True, eq=False, repr=False)
class FittedRegressor(RegressorMixin, FittedPolynomial):  # type: ignore[misc]
    """A polynomial model with one output per target. Its loss is half the squared error."""

    _saved: ClassVar[tuple[str, ...]] = ("_one_output",)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _training(self, X: Any, y: Any, sample_weight: Any, validation_data: Any) -> Training:
        X, y = check_training(self, X, y, multi_output=True, y_numeric=True)
        targets, weights = self._targets(y), check_weights(sample_weight, X)
        self._one_output = np.ndim(y) == 1
        validation = None
        if validation_data is not None:
            X_held_out = check_rows(self, validation_data[0], reset=False)
            validation = (X_held_out, self._targets(validation_data[1]))
        means = None
        # A model without intercepts cannot add the means to its outputs.
        if self.linear == "explicit":
            targets, validation, means = centred(targets, weights, validation)
        return Training(
            X=X,
            targets=targets,
            n_outputs=targets.shape[1],
            weights=weights,
            loss="squared",
            validation=validation,
            stratify=False,
            means=means,
        )

    @staticmethod
    def _targets(y: ArrayLike) -> FloatArray:
        # Copied, because the core reads the values in place and the caller may modify the original.
        values = real_array("y", y).copy()
        check_magnitude("y", values)
        return values.reshape(len(values), -1)

    def predict(self, X: MatrixLike) -> FloatArray:
        """Return the predicted values.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs), as in ``fit``
        """
        outputs = self._outputs(X)
        return outputs[:, 0] if self._one_output else outputs


@documented()
@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialNetworkRegressor(FittedRegressor):
    """Polynomial network for one or many regression targets on a shared basis.

    o(x)_c = sum_r u_rc (h_r . x)^2 + w_c . x + b_c (paper, (3)-(4)).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = X[:, 0] * X[:, 1] + X[:, 2]
    >>> model = PolynomialNetworkRegressor(5, radius=2.0, tol=0.01, random_state=0).fit(X, y)
    >>> round(model.score(X, y), 3), model.n_nonzero_bases_
    (1.0, 4)
    """

    _kernel = "square"


@documented()
@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class FactorizationMachineRegressor(FittedRegressor):
    """Factorization machine of degree 2 for one or many regression targets on a shared basis.

    o(x)_c = sum_r u_rc sum_{j<j'} h_rj x_j h_rj' x_j' + w_c . x + b_c (paper, (3)-(4)).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.eye(6)[[0, 0, 1, 1, 2, 2]] + np.eye(6)[[3, 4, 3, 5, 4, 5]]  # one-hot pairs
    >>> y = [5.0, 1.0, 4.0, 2.0, 1.0, 5.0]
    >>> model = FactorizationMachineRegressor(2, radius=10.0, tol=0.1, random_state=0).fit(X, y)
    >>> model.predict(X).round(1)
    array([4.9, 1.1, 3.9, 2.1, 1.1, 4.9])
    """

    _kernel = "anova"
