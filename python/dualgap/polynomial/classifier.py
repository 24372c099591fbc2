"""Classifiers: polynomial networks and factorization machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from dualgap import _core
from dualgap._choices import ClassifierLoss, check_choice
from dualgap._estimator import ScoringClassifier
from dualgap._validation import (
    FloatArray,
    MatrixLike,
    check_rows,
    check_weights,
    encode_classes,
)
from dualgap.chunks import Chunks
from dualgap.polynomial._base import (
    FittedPolynomial,
    PolynomialModel,
    Training,
    check_training,
    documented,
)

__all__ = ["FactorizationMachineClassifier", "PolynomialNetworkClassifier"]

_LOSS = """\
loss : {"logistic", "smoothed-hinge", "squared-hinge", "binary-logistic"}, default="logistic"
    Loss of the outputs of one row (paper, Table 3).
"""


@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialClassifier(ScoringClassifier, PolynomialModel):
    """A polynomial model with an output for each class."""

    loss: ClassifierLoss = "logistic"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("loss", self.loss, ClassifierLoss)

    def _scores(self, X: Any) -> FloatArray:
        return self._outputs(X)

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

    def _targets(self, labels: NDArray[np.intp]) -> NDArray[Any]:
        """Classes as the loss compares the outputs with them: their numbers, or signs."""
        if _core.OUTPUT_LOSSES[self.loss] != "signs":
            return np.ascontiguousarray(labels, dtype=np.uint32)
        signs = np.full((len(labels), len(self.classes_)), -1.0)
        signs[np.arange(len(labels)), labels] = 1.0
        return signs


@dataclass(kw_only=True, eq=False, repr=False)
class FittedClassifier(PolynomialClassifier, FittedPolynomial):
    """A polynomial classifier that is fitted at one radius."""

    def fit(
        self,
        X: MatrixLike | Chunks,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        validation_data: tuple[MatrixLike, ArrayLike] | None = None,
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
        self._check_parameters()
        X, y = check_training(self, X, y)
        self.classes_, labels = encode_classes(y)
        validation = None
        if validation_data is not None:
            X_held_out = check_rows(self, validation_data[0], reset=False)
            validation = (X_held_out, self._targets(self._known_labels(validation_data[1])))
        targets = self._targets(labels)
        data = Training(
            X=X,
            targets=targets,
            n_outputs=len(self.classes_),
            weights=check_weights(sample_weight, X),
            loss=self.loss,
            validation=validation,
            # Signs stand for the classes one to one: stratify on them only as labels.
            stratify=targets.ndim == 1,
        )
        self._fit(data)
        return self

    def _known_labels(self, y: ArrayLike) -> NDArray[np.intp]:
        y = np.asarray(y)
        if not np.isin(y, self.classes_).all():
            msg = "validation_data: has labels that the training rows do not have"
            raise ValueError(msg)
        return np.searchsorted(self.classes_, y)


@documented(_LOSS)
@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialNetworkClassifier(FittedClassifier):
    """Polynomial network classifier: o(x)_c = sum_r u_rc (h_r . x)^2 + w_c . x + b_c.

    The basis h_1, ..., h_k is shared by all classes and grown one vector at a time by conditional
    gradient, with a duality gap after each (paper, Algorithm 1).
    """

    _kernel = "square"


@documented(_LOSS)
@dataclass(kw_only=True, eq=False, repr=False)
class FactorizationMachineClassifier(FittedClassifier):
    """Factorization machine classifier of degree 2.

    o(x)_c = sum_r u_rc sum_{j<j'} h_rj x_j h_rj' x_j' + w_c . x + b_c: like a polynomial network,
    but without the squares of single features, as suits one-hot rows. The basis is shared by all
    classes (paper, (3)-(4)).
    """

    _kernel = "anova"
