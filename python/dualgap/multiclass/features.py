"""Linear multi-category SVMs on joint features of rows and classes.

Tajima, Hirohashi, Zara, Kato: Frank-Wolfe algorithm for learning SVM-type multi-category
classifiers, arXiv:2008.08894 (the feature extractor of section 2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dualgap import _core
from dualgap._choices import LinearSolver, LossName, Sampling, Step, check_choice
from dualgap._estimator import (
    EpochModels,
    ScoringClassifier,
    best_classes,
    ordered,
    refuse_unused,
    require,
    restores_on_error,
    watch,
)
from dualgap._estimator.settings import class_feature_settings, shares_record
from dualgap._validation import (
    ClassWeight,
    FloatArray,
    MatrixLike,
    check_classes,
    check_matrix,
    check_rows,
    check_rows_and_targets,
    check_weights,
    core_rows,
    encode_classes,
    row_weights,
)
from dualgap._validation.copies import own_copy
from dualgap._validation.labels import class_codes, read_labels
from dualgap.losses import Loss, MarginLoss, core_loss
from dualgap.multiclass._own_loss import check_solver, core_loss_of, qualify_certificate

__all__ = ["ClassFeatureSVC"]

Combine: TypeAlias = Literal["kronecker", "concatenate"]

JointFeatures: TypeAlias = Callable[[Any, NDArray[Any]], MatrixLike]
"""Called with rows and classes; returns a row for each row and class, classes varying fastest."""

# Number of rows per call of a feature extractor.
_BLOCK = 1024


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class ClassFeatureSVC(ScoringClassifier):
    """Multi-category SVM on joint features of rows and classes.

    The score of class j for a row x is ``w @ psi(x, j)``. With features ``z_j`` of the classes
    (attributes, embeddings of their names, places in a hierarchy), ``psi(x, j)`` is the Kronecker
    product ``kron(z_j, x)``, so the score ``z_j @ V @ x`` is bilinear. Classes share the weights V,
    which also predict classes without training rows (`predict`).

    Minimises ``1/2 ||w||^2 + C sum_i weight_i loss_i(w)``; the objective is reported as in
    `MulticlassSVC`. All losses of `MulticlassSVC` are available, and the certificate bounds the
    distance from the best of all ``w``.

    Parameters
    ----------
    class_features : array-like or sparse matrix of shape (n_classes, n_class_features), or callable
        A row of features for each class, in the order of `classes` (by default the sorted labels);
        or any feature extractor, called as ``class_features(X, classes)`` with a block of rows and
        an array of classes. It returns ``psi(x, j)`` for the first row with each class, then for
        the second row, and so on (a matrix with ``len(X) * len(classes)`` rows, dense or sparse).
        It is called once for every row before the fit, and the result is kept in memory.
    combine : {"kronecker", "concatenate"}, default="kronecker"
        Joint features of a row and a class. "kronecker": ``kron(z_j, x)``. "concatenate":
        ``kron([e_j, z_j], x)``, the indicator of the class concatenated with its features, so that
        each class also has separate weights. (With features ``[x, z_j]``, the ranking of the
        classes would be the same for all rows.)
    classes : array-like of shape (n_classes,), optional
        Classes of the rows of `class_features`. Classes without training rows take part in training
        and may be predicted.
    loss : str, Loss or MarginLoss, default="max-hinge"
        As in `MulticlassSVC`.
    C : float, default=1.0
        Weight of the losses against the regulariser.
    smoothing : float, default=0.0
        Parameter gamma of the Moreau envelope of the loss; 0 means the loss itself.
    fit_intercept : bool, default=True
        Whether to append a constant feature to ``x``. Not with a callable.
    intercept_scaling : float, default=1.0
        Value of the constant feature.
    class_weight : dict or "balanced", optional
        Factor for each class, by which the weights of its rows are multiplied. "balanced" makes the
        total weights of all classes equal, as in scikit-learn.
    solver : {"auto", "block-descent", "block-frank-wolfe", "frank-wolfe", "away-frank-wolfe", \
"projected-gradient", "subgradient"}, default="auto"
        As in `MulticlassSVC`; "block-descent", the default, takes projected gradient steps on the
        dual variables of one row at a time, since the features of different classes are not
        orthogonal. It stores only nonzero dual variables.
    step, sampling : str
        As in `MulticlassSVC`.
    tol, max_iter, n_jobs, random_state, verbose, callback
        As in `MulticlassSVC`.

    Attributes
    ----------
    coef_ : ndarray
        Of shape (n_class_features, n_features): V; with "concatenate" the separate weights of the
        classes come first, one row per class. Of shape (n_joint_features,) for a callable.
    intercept_ : ndarray of shape (n_class_features,)
        Contribution of the constant feature to ``V @ x``; zeros if there is none.
    classes_ : ndarray of shape (n_classes,)
        The classes, in the order of `class_features`.
    objective_, dual_objective_, duality_gap_, relative_gap_, null_objective_, converged_, \
certificate_, n_iter_, history_, n_features_in_, feature_names_in_
        As in `MulticlassSVC`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualgap import ClassFeatureSVC
    >>> attributes = {"calf": [0, 0], "cow": [0, 1], "fawn": [1, 0]}  # wild? grown?
    >>> X = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0]])
    >>> model = ClassFeatureSVC(list(attributes.values()), classes=list(attributes), C=10)
    >>> model = model.fit(X, ["calf", "cow", "fawn"])
    >>> model.predict([[1.0, 1.0]], [[0, 1], [1, 1]], ["cow", "deer"])
    array(['deer'], dtype='<U4')
    """

    class_features: MatrixLike | JointFeatures = field(kw_only=False)
    combine: Combine = "kronecker"
    classes: ArrayLike | None = None
    loss: LossName | Loss | MarginLoss = "max-hinge"
    C: float = 1.0
    smoothing: float = 0.0
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    class_weight: ClassWeight = None
    solver: LinearSolver = "auto"
    step: Step | None = None
    sampling: Sampling = "permutation"

    coef_: FloatArray = field(init=False)
    intercept_: FloatArray = field(init=False)

    # Features of the training classes, or the callable.
    _fitted_features: Any = field(init=False)

    _saved: ClassVar[tuple[str, ...]] = ("_fitted_features",)

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
        X, y = check_rows_and_targets(self, X, y)
        check_classification_targets(y)
        self.classes_, codes = self._encode(y)
        weights = check_weights(sample_weight, X)
        weights = row_weights(self.class_weight, self.classes_, codes, weights)
        joint = callable(self.class_features)
        # A copy, because the caller may change the features after the fit.
        features = None if joint else own_copy(self._class_features(self.class_features, own=True))
        self._fitted_features = self.class_features if joint else features
        rows = self._joint_features(X, self.classes_) if joint else X
        loss = core_loss_of(self.loss, len(self.classes_))
        shares = shares_record("C", self.C, weights, len(codes))
        features = None if features is None else core_rows(features)
        settings = class_feature_settings(self, loss, shares, features)
        settings["solver"] = check_solver(settings["loss"], self.solver, self.smoothing)
        labels = np.ascontiguousarray(codes, dtype=np.uint32)

        def store(model: Self, result: Any) -> None:
            model._store_weights(result["weights"], joint)
            model._store_run(result, X)
            qualify_certificate(model, settings, X, codes)

        def model_of_epoch(arrays: Any) -> dict[str, Any]:
            width = arrays[0].size if joint else self.n_features_in_ + int(self.fit_intercept)
            return {"weights": arrays[0].reshape(-1, width)}

        core = partial(_core.fit_class_features, core_rows(rows), labels)
        # A custom loss may not be deterministic.
        builtin = isinstance(settings["loss"], str)
        models = EpochModels(core, settings, store, model_of_epoch) if builtin else None
        stopping = (settings["max_iter"], settings["tol"])
        with watch(self, stopping, data=(X, y, sample_weight), models=models) as callback:
            result = core({**settings, "callback": callback})
            store(self, result)
        return self

    def decision_function(
        self,
        X: MatrixLike,
        class_features: MatrixLike | None = None,
        classes: ArrayLike | None = None,
    ) -> FloatArray:
        """Return the score of each class, or for two training classes a single score per row.

        For two training classes, this single score is the second class's score minus the first's.

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
        """Score of each row and class, of shape (n_samples, n_classes or n_others)."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        if callable(self._fitted_features):
            if class_features is not None:
                msg = "class_features: the model has a callable; pass other classes as classes="
                raise ValueError(msg)
            named = self.classes_ if classes is None else read_labels("classes", classes)
            joint = self._joint_features(X, named)
            if joint.shape[1] != len(self.coef_):
                msg = f"class_features: returned {joint.shape[1]} columns, not {len(self.coef_)}"
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
        """Class with the largest score; the first one in a tie.

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
        core_loss(self.loss)
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
