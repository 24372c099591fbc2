"""Classifiers: polynomial networks and factorization machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax, softmax

from dualgap import _core
from dualgap._choices import ClassifierLoss
from dualgap._estimator import ScoringClassifier, ordered, require
from dualgap._estimator.probabilities import no_probabilities
from dualgap._validation import (
    ClassWeight,
    FloatArray,
    check_rows,
    check_weights,
    encode_classes,
    row_weights,
)
from dualgap._validation.labels import class_codes, read_labels
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
    Loss of one row's outputs (paper, Table 3).
class_weight : dict or "balanced", optional
    Factors that multiply the sample weights of each class.
"""

_LABELS = """\
classes_ : ndarray of shape (n_classes,)
    Labels.
"""

_NOTES = """

    Notes
    -----
    There is no `partial_fit`: the certificate compares the model with the best model for *all*
    rows, so each iteration must read all rows. Pass rows that do not fit in memory as
    :class:`dualgap.Chunks`. When new rows arrive, ``warm_start=True`` continues from the basis of
    the previous fit.
"""


@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialClassifier(ScoringClassifier, PolynomialModel):
    """A polynomial model with one output per class."""

    loss: ClassifierLoss = "logistic"
    class_weight: ClassWeight = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        names = [name for name, targets in _core.OUTPUT_LOSSES.items() if targets != "values"]
        if self.loss not in names:
            msg = f"loss: must be one of {', '.join(map(repr, names))}, got {self.loss!r}"
            raise ValueError(msg)

    def _check_restored(self) -> None:
        super()._check_restored()
        if hasattr(self, "output_"):
            require(self.classes_.shape == (self.output_.shape[1],))

    def _scores(self, X: Any) -> FloatArray:
        return self._outputs(X)

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return class probabilities. Only the logistic losses model them.

        "logistic": softmax of the outputs; "binary-logistic": one-vs-rest probabilities,
        normalised.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)

        Raises
        ------
        AttributeError
            If the loss is a hinge loss, which does not model probabilities.
        """
        return np.asarray(softmax(self._logits("predict_proba", X), axis=1))

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Return logarithms of class probabilities, finite where :meth:`predict_proba` rounds to 0.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)

        Raises
        ------
        AttributeError
            If the loss is a hinge loss, which does not model probabilities.
        """
        return np.asarray(log_softmax(self._logits("predict_log_proba", X), axis=1))

    def _logits(self, method: str, X: Any) -> FloatArray:
        """Return scores whose softmax is the vector of class probabilities."""
        if self.loss not in ("logistic", "binary-logistic"):
            msg = f"{method}: loss={self.loss!r}: " + no_probabilities('loss="logistic"')
            raise AttributeError(msg)
        outputs = self._outputs(X)
        return outputs if self.loss == "logistic" else np.asarray(log_expit(outputs))

    def _targets(self, labels: NDArray[np.intp]) -> NDArray[Any]:
        """Encode classes as the loss needs them: as indices, or as one sign per class."""
        if _core.OUTPUT_LOSSES[self.loss] != "signs":
            return np.ascontiguousarray(labels, dtype=np.uint32)
        signs = np.full((len(labels), len(self.classes_)), -1.0)
        signs[np.arange(len(labels)), labels] = 1.0
        return signs

    def _training(self, X: Any, y: Any, sample_weight: Any, validation_data: Any) -> Training:
        X, y = check_training(self, X, y)
        self.classes_, labels = encode_classes(y)
        validation = None
        if validation_data is not None:
            X_held_out = check_rows(self, validation_data[0], reset=False)
            validation = (X_held_out, self._targets(self._known_labels(validation_data[1])))
        targets = self._targets(labels)
        return Training(
            X=X,
            targets=targets,
            n_outputs=len(self.classes_),
            weights=row_weights(
                self.class_weight, self.classes_, labels, check_weights(sample_weight, X)
            ),
            loss=self.loss,
            validation=validation,
            # Stratify only if the targets are class indices, not rows of signs.
            stratify=targets.ndim == 1,
        )

    def _known_labels(self, y: ArrayLike) -> NDArray[np.intp]:
        codes = class_codes(self.classes_, read_labels("validation_data", y))
        if (codes < 0).any():
            msg = "validation_data: some labels do not occur in the training rows"
            raise ValueError(msg)
        return codes


@documented(_LOSS, _NOTES, _LABELS)
@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialNetworkClassifier(PolynomialClassifier, FittedPolynomial):
    """Polynomial network classifier: o(x)_c = sum_r u_rc (h_r . x)^2 + w_c . x + b_c.

    All classes share the basis h_1, ..., h_k. The conditional gradient method adds one vector at a
    time and computes a duality gap after each (paper, Algorithm 1).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PolynomialNetworkClassifier(5, radius=1.0, penalty="l1", tol=0.2, random_state=0)
    >>> model = model.fit(X, y)
    >>> round(model.score(X, y), 2), model.components_.shape
    (0.99, (4, 4))
    """

    _kernel = "square"


@documented(_LOSS, _NOTES, _LABELS)
@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class FactorizationMachineClassifier(PolynomialClassifier, FittedPolynomial):
    """Factorization machine classifier of degree 2.

    o(x)_c = sum_r u_rc sum_{j<j'} h_rj x_j h_rj' x_j' + w_c . x + b_c: like a polynomial network,
    but without the squares of single features, which suits one-hot rows. All classes share the
    basis (paper, (3)-(4)).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = FactorizationMachineClassifier(5, radius=1.0, tol=0.1, random_state=0).fit(X, y)
    >>> round(model.score(X, y), 2), model.converged_
    (0.97, True)
    """

    _kernel = "anova"
