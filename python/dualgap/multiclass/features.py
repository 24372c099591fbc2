"""Linear multi-category SVMs on joint features of rows and classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.multiclass import check_classification_targets

from dualgap import _core
from dualgap._choices import LinearSolver, LossName, Sampling, Step
from dualgap._estimator import EpochModels, ordered, restores_on_error, watch
from dualgap._estimator.probabilities import no_probabilities, without_probabilities
from dualgap._estimator.settings import class_feature_settings, shares_record
from dualgap._validation import (
    MatrixLike,
    check_rows_and_targets,
    check_weights,
    core_rows,
    row_weights,
)
from dualgap._validation.copies import own_copy
from dualgap.losses import Loss, MarginLoss, core_loss
from dualgap.multiclass._class_features import ClassFeatureClassifier
from dualgap.multiclass._own_loss import check_solver, core_loss_of, qualify_certificate

__all__ = ["ClassFeatureSVC"]


@ordered
@without_probabilities(no_probabilities("dualgap.ClassFeatureLogisticRegression"))
@dataclass(kw_only=True, eq=False, repr=False)
class ClassFeatureSVC(ClassFeatureClassifier):
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
        It is called once for each block before the fit, and the results are kept in memory.
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
        Weight of the losses relative to the regulariser.
    smoothing : float, default=0.0
        Parameter gamma of the Moreau envelope of the loss; 0 means the loss itself.
    fit_intercept : bool, default=True
        Whether to append a constant feature to ``x``. Its weights are regularised like all other
        weights. Not used with a callable.
    intercept_scaling : float, default=1.0
        Value of the constant feature: the larger, the less its weights are regularised.
    class_weight : dict or "balanced", optional
        Factor for each class, by which the weights of its rows are multiplied. "balanced" makes the
        total weights of all classes equal, as in scikit-learn.
    solver : {"auto", "block-descent", "block-frank-wolfe", "frank-wolfe", "away-frank-wolfe", \
"projected-gradient", "subgradient"}, default="auto"
        "block-descent" takes projected gradient steps on the dual variables of one row at a time,
        because the features of different classes are not orthogonal. It stores only nonzero dual
        variables. "auto" does the same, and continues with Newton's method if it is slow, for at
        most 200 weights and without smoothing. The other solvers are those of `MulticlassSVC`.
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

    loss: LossName | Loss | MarginLoss = "max-hinge"
    smoothing: float = 0.0
    solver: LinearSolver = "auto"
    step: Step | None = None
    sampling: Sampling = "permutation"

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

        def model_of_epoch(arrays: Any, n_first: int) -> dict[str, Any]:
            width = arrays[0].size if joint else self.n_features_in_ + int(self.fit_intercept)
            return {
                "weights": arrays[0].reshape(-1, width),
                "solver": (settings["solver"], n_first),
            }

        core = partial(_core.fit_class_features, core_rows(rows), labels)
        # The model of an epoch may be found by repeating the fit. With a custom loss, which might
        # not be deterministic, the repeated fit could differ.
        builtin = isinstance(settings["loss"], str)
        models = EpochModels(core, settings, store, model_of_epoch) if builtin else None
        stopping = (settings["max_iter"], settings["tol"])
        with watch(self, stopping, data=(X, y, sample_weight), models=models) as callback:
            result = core({**settings, "callback": callback})
            store(self, result)
        return self

    def _check_restored(self) -> None:
        core_loss(self.loss)
        super()._check_restored()
