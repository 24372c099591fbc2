"""Classifiers: polynomial networks and factorization machines."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from dualgap import _core
from dualgap._estimator import Callback
from dualgap._validation import FloatArray, check_rows, check_weights
from dualgap.chunks import Chunks
from dualgap.polynomial._base import PolynomialModel, check_training, documented

__all__ = ["FactorizationMachineClassifier", "PolynomialNetworkClassifier"]


class _Classifier(ClassifierMixin, PolynomialModel):  # type: ignore[misc]
    def __init__(
        self,
        n_components: int = 30,
        *,
        penalty: str = "l1/l2",
        radius: float = 100.0,
        loss: str = "logistic",
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
        y : array-like of shape (n_samples,)
            Class labels of any kind.
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
        X, y = check_training(self, X, y)
        check_classification_targets(y)
        if self.loss == "squared":
            msg = 'loss: "squared" is for regression; use the regressor or another loss'
            raise ValueError(msg)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            msg = f"y: a classifier needs at least two classes, got one class: {self.classes_[0]!r}"
            raise ValueError(msg)
        validation = None
        if validation_data is not None:
            X_held_out = check_rows(self, validation_data[0], reset=False)
            validation = (X_held_out, self._targets(self._known_labels(validation_data[1])))
        targets = self._targets(labels)
        weights = check_weights(sample_weight, X)
        # Signs stand for the classes one to one: stratify on them only as labels.
        self._fit(X, targets, len(self.classes_), weights, validation, targets.ndim == 1)
        return self

    def _known_labels(self, y: ArrayLike) -> NDArray[np.intp]:
        y = np.asarray(y)
        if not np.isin(y, self.classes_).all():
            msg = "validation_data: has labels that the training rows do not have"
            raise ValueError(msg)
        return np.searchsorted(self.classes_, y)

    def _targets(self, labels: NDArray[np.intp]) -> NDArray[Any]:
        if _core.OUTPUT_LOSSES.get(self.loss) != "signs":
            return np.ascontiguousarray(labels, dtype=np.uint32)
        signs = np.full((len(labels), len(self.classes_)), -1.0)
        signs[np.arange(len(labels)), labels] = 1.0
        return signs

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return the outputs per class; for two classes, the second's minus the first's.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
        """
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class with the largest output (the first of equals).

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        outputs = self._outputs(X)
        return np.asarray(self.classes_[outputs.argmax(axis=1)])

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Class probabilities, for the losses that model them.

        "logistic": softmax of the outputs; "binary-logistic": one-vs-rest probabilities,
        normalised.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)

        Raises
        ------
        AttributeError
            For the hinge losses.
        """
        if self.loss not in ("logistic", "binary-logistic"):
            msg = f'predict_proba: the loss {self.loss!r} gives no probabilities; use "logistic"'
            raise AttributeError(msg)
        outputs = self._outputs(X)
        if self.loss == "logistic":
            return np.asarray(softmax(outputs, axis=1))
        shares = expit(outputs)
        return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300))


_CLASSIFIER_LOSSES = (
    '{"logistic", "smoothed-hinge", "squared-hinge", "binary-logistic"}, default="logistic"'
)


@documented(_CLASSIFIER_LOSSES)
class PolynomialNetworkClassifier(_Classifier):
    """Polynomial network classifier: o(x)_c = sum_r u_rc (h_r . x)^2 + w_c . x + b_c.

    The basis h_1, ..., h_k is shared by all classes and grown one vector at a time by conditional
    gradient, with a duality gap after each (paper, Algorithm 1).
    """

    _kernel = "square"


@documented(_CLASSIFIER_LOSSES)
class FactorizationMachineClassifier(_Classifier):
    """Factorization machine classifier of degree 2.

    o(x)_c = sum_r u_rc sum_{j<j'} h_rj x_j h_rj' x_j' + w_c . x + b_c: like a polynomial network,
    but without the squares of single features, as suits one-hot rows. The basis is shared by all
    classes (paper, (3)-(4)).
    """

    _kernel = "anova"
