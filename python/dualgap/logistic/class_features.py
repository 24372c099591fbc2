"""Logistic regression on joint features of rows and classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets

from dualgap import _core
from dualgap._estimator import ordered, restores_on_error, watch
from dualgap._validation import (
    FloatArray,
    MatrixLike,
    check_rows_and_targets,
    check_weights,
    core_rows,
    regularization_of,
    row_weights,
)
from dualgap._validation.copies import own_copy
from dualgap.logistic._rounds import COLUMNS, NewtonRounds, Problem, Sums, null_objective
from dualgap.multiclass._class_features import ClassFeatureClassifier

__all__ = ["ClassFeatureLogisticRegression"]

_EPSILON = float(np.finfo(np.float64).eps)


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class ClassFeatureLogisticRegression(ClassFeatureClassifier):
    """Logistic regression whose classes share weights through their features.

    The score of class j for a row x is bilinear, ``z_j @ V @ x`` with features ``z_j`` of the
    classes, as in `ClassFeatureSVC`; probabilities are the softmax of the scores. The weights V
    also give probabilities of classes without training rows (`predict_proba`).

    Minimises ``1/2 ||V||^2 + C sum_i weight_i loss_i(V)``, where the loss is the negative logarithm
    of the label's probability; the objective is reported as in `LogisticRegression`.

    Parameters
    ----------
    class_features : array-like or sparse matrix of shape (n_classes, n_class_features)
        A row of features for each class, in the order of `classes` (by default the sorted labels).
    combine, classes
        As in `ClassFeatureSVC`.
    C : float, default=1.0
        Weight of the losses relative to the regulariser.
    fit_intercept : bool, default=True
        Whether to append a constant feature to ``x``. Its weights are regularised.
    intercept_scaling : float, default=1.0
        Value of the constant feature.
    class_weight : dict or "balanced", optional
        Factors on the weights of the rows of each class.
    tol : float, default=1e-3
        Duality gap at which the fit has converged, relative to the objective.
    max_iter : int, default=1000
        Maximum number of models whose objective is evaluated. A fit whose last ten steps improved
        neither the objective nor the gap ends earlier.
    n_jobs, random_state
        Not used: a fit runs on one thread and makes no random choices.
    verbose, callback
        As in `LogisticRegression`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_class_features, n_features)
        V; with "concatenate" the separate weights of the classes come first, one row per class.
    intercept_ : ndarray of shape (n_class_features,)
        Contribution of the constant feature to ``V @ x``; zeros if there is none.
    classes_ : ndarray of shape (n_classes,)
        The classes, in the order of `class_features`.
    objective_, dual_objective_, duality_gap_, relative_gap_, null_objective_, converged_, \
            certificate_, n_iter_, n_features_in_, feature_names_in_
        As in `LogisticRegression`.
    history_ : dict of ndarray
        Per evaluated model: epoch, seconds, objective, dual_objective, gap (of the best values so
        far), and rounds (passes over the rows so far).

    Examples
    --------
    >>> import numpy as np
    >>> from dualgap import ClassFeatureLogisticRegression
    >>> attributes = {"calf": [0, 0], "cow": [0, 1], "fawn": [1, 0]}  # wild? grown?
    >>> X = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0]])
    >>> model = ClassFeatureLogisticRegression(
    ...     list(attributes.values()), classes=list(attributes), C=10
    ... )
    >>> model = model.fit(X, ["calf", "cow", "fawn"])
    >>> model.predict([[1.0, 1.0]], [[0, 1], [1, 1]], ["cow", "deer"])
    array(['deer'], dtype='<U4')
    """

    @restores_on_error
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row's loss.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        self._check_parameters()
        if callable(self.class_features):
            msg = "class_features: must be a matrix; only ClassFeatureSVC takes a callable"
            raise ValueError(msg)
        X, y = check_rows_and_targets(self, X, y)
        check_classification_targets(y)
        self.classes_, codes = self._encode(y)
        weights = check_weights(sample_weight, X)
        weights = row_weights(self.class_weight, self.classes_, codes, weights)
        regularization_of("C", self.C, weights, len(codes))
        # A copy, because the caller may change the features after the fit.
        self._fitted_features = own_copy(self._class_features(self.class_features, own=True))
        rows = self._with_constant(X)
        bilinear = _Bilinear.of(self._fitted_features, rows, (codes, weights), float(self.C))
        stopping = (int(self.max_iter), float(self.tol))
        with watch(self, stopping, data=(X, y, sample_weight)) as callback:
            run = NewtonRounds(
                problem=bilinear.problem,
                evaluate=bilinear.evaluate,
                certificate=bilinear.certificate,
                spreads=bilinear.spreads,
                tol=float(self.tol),
                max_iter=int(self.max_iter),
                callback=callback,
            )
            run.run(np.zeros((bilinear.problem.n_outputs, rows.shape[1] + 1)))
            self._store(run, X)
        return self

    def _with_constant(self, X: Any) -> Any:
        """Return rows with the constant feature, if there is one."""
        if not self.fit_intercept:
            return X
        largest = np.finfo(X.dtype).max
        if self.intercept_scaling > largest:
            msg = f"intercept_scaling: must be at most {largest:.3g} for rows in {X.dtype}"
            raise ValueError(msg)
        constant = np.full((X.shape[0], 1), self.intercept_scaling, dtype=X.dtype)
        if sp.issparse(X):
            return sp.csr_matrix(sp.hstack([X, sp.csr_matrix(constant)], format="csr"))
        return np.hstack([X, constant])

    def _store(self, run: NewtonRounds, X: Any) -> None:
        assert run.best is not None
        columns = np.array(run.rows).reshape(-1, len(COLUMNS)).T
        history: dict[str, NDArray[Any]] = dict(zip(COLUMNS, columns, strict=True))
        for name in ("epoch", "rounds"):
            history[name] = history[name].astype(np.int64)
        n_features = self.n_features_in_
        self.coef_ = np.ascontiguousarray(run.best[:, :n_features])
        self.intercept_ = np.zeros(len(run.best))
        if self.fit_intercept:
            self.intercept_ = run.best[:, n_features] * float(self.intercept_scaling)
        result = {
            "history": history,
            "objective": run.primal,
            "dual_objective": run.dual,
            "null_objective": run.problem.null_objective,
            "outcome": run.outcome,
        }
        self._store_run(result, X)

    def predict_proba(self, X: MatrixLike, class_features: MatrixLike | None = None) -> FloatArray:
        """Return the probability of each class: the softmax of the scores.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.
        class_features : array-like or sparse matrix of shape (n_others, n_class_features), optional
            Features of the classes to choose from, seen in training or not; by default the training
            classes.

        Returns
        -------
        ndarray of shape (n_samples, n_classes or n_others)
        """
        return np.asarray(np.exp(self.predict_log_proba(X, class_features)))

    def predict_log_proba(
        self, X: MatrixLike, class_features: MatrixLike | None = None
    ) -> FloatArray:
        """Return the logarithms of the probabilities, finite where `predict_proba` rounds to 0.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.
        class_features : array-like or sparse matrix of shape (n_others, n_class_features), optional
            As for `predict_proba`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes or n_others)
        """
        return np.asarray(log_softmax(self._class_scores(X, class_features), axis=1))


@dataclass(frozen=True)
class _Bilinear:
    """A problem whose class weights are W = Z V.

    The losses are evaluated at W, and the gradients are taken with respect to V. With only two
    classes, a row has a single score, and Z is the difference of the classes' features.
    """

    features: Any
    """Z, of shape (n_outputs of W, n_class_features)."""
    rows: Any
    labels: NDArray[np.uint32]
    weights: FloatArray | None
    problem: Problem
    n_classes: int
    sizes: FloatArray
    """The largest absolute value of each column."""

    @classmethod
    def of(
        cls, features: Any, rows: Any, targets: tuple[NDArray[Any], FloatArray | None], C: float
    ) -> _Bilinear:
        codes, weights = targets
        n_classes = features.shape[0]
        if n_classes == 2:
            features = features[[1]] - features[[0]]
        squared = rows.multiply(rows) if sp.issparse(rows) else np.square(rows, dtype=np.float64)
        squares = np.asarray(squared.sum(axis=0), dtype=np.float64).ravel()
        problem = Problem(
            C=C,
            intercept=False,
            class_weights=np.bincount(codes, weights, n_classes).astype(np.float64),
            squares=squares,
            n_rows=len(codes),
            n_outputs=features.shape[1],
            null_objective=null_objective(n_classes),
        )
        labels = np.ascontiguousarray(codes, dtype=np.uint32)
        sizes = np.sqrt(squares) * (1.0 + 1e-9)
        return cls(features, rows, labels, weights, problem, n_classes, sizes)

    def evaluate(self, weights: FloatArray, tilt: FloatArray | None) -> Sums:
        """Evaluate the losses at V, or multiply their Hessian by a direction."""
        del tilt
        own = [self._class_weights(each[:, :-1]) for each in weights]
        zeros = np.zeros(len(own[0]))
        result: dict[str, Any] = _core.logistic_sums(
            core_rows(self.rows),
            self.labels,
            {
                "n_classes": self.n_classes,
                "C": self.problem.C,
                "sample_weight": self.weights,
                "intercept": False,
                "model": (own[0], zeros),
                "tilt": None,
                "direction": (own[1], zeros) if len(own) > 1 else None,
            },
        )
        image = safe_sparse_dot(self.features.T, result["image"], dense_output=True)
        n_outputs, n_classes = self.problem.n_outputs, self.n_classes
        found = Sums(image=np.asarray(image), residual=np.zeros(n_outputs))
        if len(own) > 1:
            return found
        # W is a rounded product. The rounding errors change a loss by at most twice the largest
        # change of a score.
        absolute = abs(self.features)
        moved = safe_sparse_dot(absolute, np.abs(weights[0][:, :-1]), dense_output=True)
        moved = (np.asarray(moved) @ self.sizes).max(initial=0.0) * (n_outputs + 4) * 2 * _EPSILON
        return Sums(
            image=found.image,
            residual=found.residual,
            loss=result["loss"] + 2.0 * moved * self.problem.total,
            entropy=result["entropy"],
            distance=result["distance"],
            # The products with Z' add at most one rounding per class.
            depth=int(result["depth"]) + n_classes + 4,
        )

    def _class_weights(self, shared: FloatArray) -> FloatArray:
        product = safe_sparse_dot(self.features, shared, dense_output=True)
        return np.ascontiguousarray(product, dtype=np.float64)

    def certificate(
        self, weights: FloatArray, sums: Sums
    ) -> tuple[float, float, FloatArray | None]:
        """Return objective and bound.

        The core gets the weights as a single vector, as in a problem with two classes.
        """
        entries = self.features.data if sp.issparse(self.features) else self.features
        norm = float(np.sqrt(np.square(entries).sum())) * (1.0 + 1e-9)
        flat = np.ascontiguousarray(weights[:, :-1]).reshape(1, -1)
        return _core.logistic_certificate(
            {
                "loss": sums.loss,
                "entropy": sums.entropy,
                "distance": sums.distance,
                "depth": sums.depth,
                "moments": sums.moments,
                "residual": np.zeros(1),
                "image": np.ascontiguousarray(sums.image).reshape(1, -1),
                # Errors of the images of W grow at most by the norm of Z.
                "sizes": np.tile(norm * self.sizes, self.problem.n_outputs),
                "n_examples": self.problem.n_rows,
                "intercept": False,
                "class_totals": np.array([self.problem.total, 0.0]),
                "model": (flat, np.zeros(1)),
            }
        )

    def spreads(self, sums: Sums) -> FloatArray:
        """Estimate the curvature of each row of V from the sizes of the classes."""
        del sums
        shares = self.problem.class_weights / self.problem.class_weights.sum()
        spreads = (shares * (1.0 - shares))[-self.features.shape[0] :]
        squared = (
            self.features.multiply(self.features)
            if sp.issparse(self.features)
            else (np.square(self.features))
        )
        return np.asarray(squared.T @ spreads, dtype=np.float64).ravel()
