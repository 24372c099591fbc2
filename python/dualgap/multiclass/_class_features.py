"""Models with scores that are linear in joint features of rows and classes.

Tajima, Hirohashi, Zara, Kato: Frank-Wolfe algorithm for learning SVM-type multi-category
classifiers, arXiv:2008.08894 (the feature extractor of section 2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import check_choice
from dualgap._estimator import ScoringClassifier, best_classes, refuse_unused, require
from dualgap._validation import (
    ClassWeight,
    FloatArray,
    MatrixLike,
    check_classes,
    check_matrix,
    check_rows,
    encode_classes,
)
from dualgap._validation.copies import own_copy
from dualgap._validation.labels import class_codes, read_labels

__all__ = ["ClassFeatureClassifier", "Combine", "JointFeatures"]

Combine: TypeAlias = Literal["kronecker", "concatenate"]

JointFeatures: TypeAlias = Callable[[Any, NDArray[Any]], MatrixLike]
"""Maps rows and classes to one row per pair of row and class, with classes varying fastest."""

# Number of rows per call of a feature extractor.
_BLOCK = 1024


@dataclass(kw_only=True, eq=False, repr=False)
class ClassFeatureClassifier(ScoringClassifier):
    """A classifier whose scores are linear in joint features of rows and classes."""

    class_features: MatrixLike | JointFeatures = field(kw_only=False)
    combine: Combine = "kronecker"
    classes: ArrayLike | None = None
    C: float = 1.0
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    class_weight: ClassWeight = None

    coef_: FloatArray = field(init=False)
    intercept_: FloatArray = field(init=False)

    # Features of the training classes, or the callable that computes joint features.
    _fitted_features: Any = field(init=False)

    _saved: ClassVar[tuple[str, ...]] = ("_fitted_features",)

    def decision_function(
        self,
        X: MatrixLike,
        class_features: MatrixLike | None = None,
        classes: ArrayLike | None = None,
    ) -> FloatArray:
        """Return the score of each class, or for two training classes a single score per row.

        For two training classes, the single score is the second class's score minus the first
        class's score.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.
        class_features : array-like or sparse matrix of shape (n_others, n_class_features), optional
            Features of other classes, seen in training or not. With "concatenate" only the shared
            weights contribute, because a new class has no separate weights.
        classes : array-like of shape (n_others,), optional
            With a callable: the classes to score instead of `classes_`, passed to the callable.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two training classes, or \
(n_samples, n_others)

        Raises
        ------
        ValueError
            If the number of class features differs from training, or if class features are given to
            a model that was trained with a callable.
        """
        if class_features is None and classes is None:
            return super().decision_function(X)
        return self._class_scores(X, class_features, classes)

    def _class_scores(
        self,
        X: MatrixLike,
        class_features: MatrixLike | None = None,
        classes: ArrayLike | None = None,
    ) -> FloatArray:
        """Return the score of each row and class, of shape (n_samples, n_classes or n_others)."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        if callable(self._fitted_features):
            if class_features is not None:
                msg = "class_features: the model has a callable; pass other classes as classes="
                raise ValueError(msg)
            named = self.classes_ if classes is None else read_labels("classes", classes)
            joint = self._joint_features(X, named)
            if joint.shape[1] != len(self.coef_):
                msg = (
                    f"class_features: must return {len(self.coef_)} columns, as in training, got "
                    f"{joint.shape[1]}"
                )
                raise ValueError(msg)
            return np.asarray(joint @ self.coef_, dtype=np.float64).reshape(X.shape[0], len(named))
        features = self._fitted_features
        if class_features is not None:
            features = self._class_features(class_features, own=False)
        if features.shape[1] != len(self.coef_):
            msg = f"class_features: must have as many columns as in training, {self._n_shared()}"
            raise ValueError(msg)
        projected = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        return np.asarray(safe_sparse_dot(projected, features.T, dense_output=True))

    def predict(
        self,
        X: MatrixLike,
        class_features: MatrixLike | None = None,
        classes: ArrayLike | None = None,
    ) -> NDArray[Any]:
        """Return the class with the largest score, or the first such class in a tie.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.
        class_features : array-like or sparse matrix of shape (n_others, n_class_features), optional
            Features of the classes to choose from, seen in training or not; by default the training
            classes.
        classes : array-like of shape (n_others,), optional
            Names of these classes; by default their positions.

        Returns
        -------
        ndarray of shape (n_samples,)

        Raises
        ------
        ValueError
            As for `decision_function`, or if the number of names differs from the number of
            classes.
        """
        scores, names = self._named_scores(X, class_features, classes)
        return np.asarray(names[scores.argmax(axis=1)])

    def predict_top_k(
        self,
        X: MatrixLike,
        k: int,
        class_features: MatrixLike | None = None,
        classes: ArrayLike | None = None,
    ) -> NDArray[Any]:
        """Return the `k` classes with the largest scores, best first; ties keep the class order.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.
        k : int
            Number of classes, at most the number to choose from.
        class_features, classes
            As for `predict`.

        Returns
        -------
        ndarray of shape (n_samples, k)
        """
        scores, names = self._named_scores(X, class_features, classes)
        return best_classes(scores, names, k)

    def _named_scores(
        self, X: MatrixLike, class_features: MatrixLike | None, classes: ArrayLike | None
    ) -> tuple[FloatArray, NDArray[Any]]:
        """Return the score of each row and class, and the names of the classes."""
        scores = self._class_scores(X, class_features, classes)
        if class_features is None and classes is None:
            names = self.classes_
        else:
            names = (
                np.arange(scores.shape[1]) if classes is None else read_labels("classes", classes)
            )
        if names.shape != scores.shape[1:]:
            msg = f"classes: must have shape {scores.shape[1:]}, got {names.shape}"
            raise ValueError(msg)
        return scores, names

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("combine", self.combine, Combine)
        if not self.fit_intercept:
            refuse_unused(self, ["intercept_scaling"], "fit_intercept=False")
        if callable(self.class_features):
            refuse_unused(self, ["combine", "intercept_scaling"], "a callable class_features")

    def _check_restored(self) -> None:
        features = check_matrix(self._fitted_features, "class_features", dtype=np.float64)
        require(self.classes_.shape == (features.shape[0],))
        require(self.coef_.shape == (features.shape[1], self.n_features_in_))
        require(self.intercept_.shape == (features.shape[1],))
        weights = np.concatenate([self.coef_.ravel(), self.intercept_])
        require(weights.dtype == np.float64 and np.isfinite(weights).all())

    def _scores(self, X: Any) -> FloatArray:
        return self._class_scores(X)

    def _encode(self, y: Any) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """Return the classes in the order of their features, and the class index of each label."""
        if self.classes is None:
            return encode_classes(y)
        classes = read_labels("classes", self.classes)
        if classes.ndim != 1 or len(set(classes.tolist())) != len(classes):
            msg = "classes: must be one-dimensional, without duplicates"
            raise ValueError(msg)
        codes = class_codes(classes, y)
        if (codes < 0).any():
            missing = y[codes < 0].tolist()[0]
            msg = f"y: the label {missing!r} is not among the {len(classes)} classes"
            raise ValueError(msg)
        return check_classes(classes), codes

    def _class_features(self, given: Any, *, own: bool) -> Any:
        """Return checked features of the training classes (`own`) or of other classes."""
        features = check_matrix(given, "class_features", dtype=np.float64)
        n_classes = len(self.classes_)
        if own and features.shape[0] != n_classes:
            order = "in their sorted order" if self.classes is None else "of the parameter classes"
            msg = (
                f"class_features: must have a row for each of the {n_classes} classes {order}, "
                f"got {features.shape[0]}"
            )
            raise ValueError(msg)
        if self.combine == "kronecker":
            return features
        shape = (features.shape[0], n_classes)
        indicators = sp.eye_array(n_classes) if own else sp.csr_array(shape)
        return sp.csr_array(sp.hstack([indicators, sp.csr_array(features)], format="csr"))

    def _joint_features(self, X: Any, classes: NDArray[Any]) -> Any:
        """Compute the joint features of all rows with the callable, a block at a time."""
        extract: Any = self._fitted_features
        found: list[Any] = []
        for start in range(0, X.shape[0], _BLOCK):
            block = X[start : start + _BLOCK]
            returned = check_matrix(extract(block, classes.copy()), "class_features")
            wanted = block.shape[0] * len(classes)
            if (
                returned.shape[0] != wanted
                or returned.shape[1] != (found or [returned])[0].shape[1]
            ):
                msg = (
                    "class_features: must return a row for each pair of row and class, always with "
                    f"the same number of columns; returned {returned.shape} for {block.shape[0]} "
                    f"rows and {len(classes)} classes"
                )
                raise ValueError(msg)
            # A copy, because the callable may reuse the matrix for the next block.
            found.append(own_copy(returned))
        return sp.vstack(found, format="csr") if sp.issparse(found[0]) else np.vstack(found)

    def _store_weights(self, weights: FloatArray, joint: bool) -> None:
        if joint:
            self.coef_, self.intercept_ = np.ascontiguousarray(weights[0]), np.zeros(1)
            return
        n_features = self.n_features_in_
        self.coef_ = np.ascontiguousarray(weights[:, :n_features])
        self.intercept_ = np.zeros(len(weights))
        if self.fit_intercept:
            self.intercept_ = weights[:, n_features] * float(self.intercept_scaling)

    def _n_shared(self) -> int:
        return len(self.coef_) - (len(self.classes_) if self.combine == "concatenate" else 0)
