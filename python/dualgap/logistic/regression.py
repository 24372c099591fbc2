"""Multinomial logistic regression, trained to a given duality gap."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from dualgap import _core
from dualgap._choices import LogisticSolver, check_choice
from dualgap._estimator import (
    EpochModels,
    ordered,
    restores_on_error,
    watch,
)
from dualgap._estimator.settings import logistic_path_settings, logistic_settings
from dualgap._tuning.path import check_interval, warn_of_pieces
from dualgap._validation import (
    FloatArray,
    MatrixLike,
    check_positive,
    check_rows_and_targets,
    check_weights,
    core_rows,
    encode_classes,
    regularization_of,
    row_weights,
)
from dualgap.logistic._model import LogisticClassifier
from dualgap.logistic._present import PresentClasses
from dualgap.logistic.path import LogisticPiece, logistic_pieces

__all__ = ["LogisticRegression"]


@dataclass(frozen=True)
class _Problem:
    """The rows, labels and weights of a fit, without the classes that cannot be fitted."""

    rows: Any
    labels: NDArray[np.uint32]
    n_classes: int
    weights: FloatArray | None
    present: PresentClasses | None

    @property
    def scale(self) -> float:
        """The number that multiplies C; see `PresentClasses.scale`."""
        return 1.0 if self.present is None else self.present.scale

    def regularization(self, C: float) -> float:
        """Return the weight of the regulariser relative to the mean loss."""
        return regularization_of("C", C, self.weights, len(self.labels))

    def expand(self, result: Any, n_classes: int) -> Any:
        """Add the classes that were left out to the result of a fit."""
        if self.present is None:
            return result
        weights, intercepts = self.present.expand(result["weights"], result["intercepts"])
        # The intercepts of the other classes have no optimum, so the curvature gives no bound.
        # Models of earlier epochs have no curvature.
        known = result.get("curvature")
        curvature = known and {**known, "matrix": np.zeros((0, 0))}
        found = {"weights": weights, "intercepts": intercepts, "curvature": curvature}
        return {**result, **found, "null_objective": float(np.log(n_classes))}


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(LogisticClassifier):
    """Linear classifier with class probabilities and a certificate of optimality.

    Minimises ``1/2 ||W||^2 + C sum_i weight_i loss_i(W, b)`` over weights W and intercepts b. The
    loss is the negative log-likelihood of the label under ``softmax(W x + b)``. scikit-learn's
    `LogisticRegression` solves the same problem, with the same `C` and unregularised intercepts.
    Two classes have one weight vector; the sigmoid of its score is the probability of the second
    class. The objective is reported as ``P = lambda/2 ||W||^2 + mean loss`` with
    ``lambda = 1 / (C * total weight)``, where the total weight is the number of rows unless there
    are sample or class weights.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the losses relative to the regulariser.
    fit_intercept : bool, default=True
        Whether scores have an intercept, which is not regularised.
    class_weight : dict or "balanced", optional
        Factor for each class, by which the weights of its rows are multiplied. "balanced" makes the
        total weights of all classes equal, as in scikit-learn.
    solver : {"auto", "newton", "dual-descent"}, default="auto"
        In each iteration, "newton" solves a linear system for all weights by conjugate gradients.
        Their preconditioner depends on the cost of the previous systems. The first passes are in
        float32, the last passes in float64. "newton" keeps a float32 copy of the rows. The copy of
        a CSR matrix omits zeros if at most an eighth of the entries are stored, or if the Hessian
        is too large to factorise. "dual-descent" maximises the dual exactly over the variables of
        one row at a time, and suits CSR rows. "auto" is "newton", except for CSR rows with at most
        a quarter of the entries stored: for them, it begins with "dual-descent", and continues with
        "newton" if that is expected to be faster.
    tol : float, default=1e-3
        Duality gap at which the fit has converged, relative to the objective. The objective is then
        at most ``1 + tol / (1 - tol)`` times its minimum. A gap no larger than rounding error
        counts as 0 for any positive `tol`.
    max_iter : int, default=1000
        Maximum number of iterations: Newton steps, or passes over the rows.
    warm_start : bool, default=False
        Whether a fit starts from the weights of the previous fit, if both have the same classes and
        features.
    n_jobs : int, optional
        Number of threads; None and -1 mean all cores. The model does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the order of the rows (only for "dual-descent").
    verbose : int, optional
        Progress on stderr. None: after two seconds, a bar with the gap and the remaining time, on a
        terminal only. 0: nothing. 1: the bar from the start; without a terminal, one line per
        iteration, at most one per second.
    callback : callable, optional
        Called after each iteration as ``callback(epoch, seconds, objective, dual_objective)``.
        Values that were not evaluated are NaN: only the last iterations have a certificate. A true
        return value stops the fit.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Weights.
    intercept_ : ndarray of shape (n_classes,), or (1,) for two classes
        Intercepts; zeros if `fit_intercept` is False.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    n_iter_ : int
        Number of iterations.
    objective_, dual_objective_, duality_gap_ : float
        The objective P of the model, a lower bound on the objective of any model, and their
        difference. The first two account for rounding errors, so they hold in exact arithmetic.
    relative_gap_ : float
        ``duality_gap_ / objective_``, which is compared with `tol`.
    null_objective_ : float
        The objective of ``W = 0, b = 0``.
    converged_ : bool
        Whether the gap reached `tol`.
    certificate_ : str
        "convex optimum": the bound holds for every model.
    history_ : dict of ndarray
        Per iteration: epoch, seconds, objective, dual_objective, gap (NaN where not evaluated), and
        solver (its name).
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualgap import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression(tol=1e-6).fit(X, y)
    >>> model.predict_proba(X[:1]).round(3)
    array([[0.982, 0.018, 0.   ]])
    >>> model.relative_gap_ <= 1e-6
    True
    """

    C: float = field(default=1.0, kw_only=False)
    solver: LogisticSolver = "auto"
    warm_start: bool = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("solver", self.solver, LogisticSolver)

    @restores_on_error
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows of float16, float32 or float64.
        y : array-like of shape (n_samples,)
            Class labels of any kind.
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
        known = vars(self).get("classes_")
        problem = self._problem(X, y, sample_weight)
        regularization = problem.regularization(self.C)
        settings = logistic_settings(self, problem.weights, problem.n_classes)
        settings["C"] *= problem.scale
        starts = self.warm_start and problem.present is None
        if starts and known is not None and np.array_equal(known, self.classes_):
            settings["start"] = self._start()
        n_outputs = 1 if problem.n_classes == 2 else problem.n_classes

        def store(model: Self, result: Any) -> None:
            model._store(problem.expand(result, len(model.classes_)), regularization, problem.rows)

        def model_of_epoch(arrays: Any, n_first: int) -> dict[str, Any]:
            # The core passes the model of an earlier epoch as a single array.
            weights, intercepts = np.split(np.concatenate(arrays), [-n_outputs])
            found = {"weights": weights.reshape(n_outputs, -1), "intercepts": intercepts}
            return {**found, "solver": (self.solver, n_first)}

        core = partial(_core.fit_logistic_regression, core_rows(problem.rows), problem.labels)
        models = EpochModels(core, settings, store, model_of_epoch)
        stopping = (settings["max_iter"], settings["tol"])
        with watch(self, stopping, data=(X, y, sample_weight), models=models) as callback:
            result = core({**settings, "callback": callback})
            store(self, result)
        return self

    def _problem(self, X: Any, y: Any, sample_weight: Any) -> _Problem:
        """Check the parameters and the data; store the classes."""
        self._check_parameters()
        # The core rejects values that are not finite or too large, in its first pass over all rows.
        options = {"half": True, "magnitude": False, "ensure_all_finite": False}
        X, y = check_rows_and_targets(self, X, y, **options)
        self.classes_, codes = encode_classes(y)
        weights = check_weights(sample_weight, X)
        weights = row_weights(self.class_weight, self.classes_, codes, weights)
        present, n_classes = None, len(self.classes_)
        if self.fit_intercept and weights is not None:
            present = PresentClasses.of(np.bincount(codes, weights), partial(_column_sizes, X))
        labels = np.ascontiguousarray(codes, dtype=np.uint32)
        if present is not None:
            labels, n_classes = present.numbers[labels], len(present.places)
        return _Problem(X, labels, n_classes, weights, present)

    def _fit_all(
        self,
        data: tuple[Any, Any, Any],
        Cs: list[float],
        ended: Callable[[], bool],
    ) -> None:
        """Fit all `Cs` in order, each from the previous model.

        Parameters
        ----------
        data : tuple (X, y, sample_weight)
            Training data.
        Cs : list of float
            Values of C.
        ended : callable
            Called after each fit, when this estimator has the attributes of the fit. If it returns
            True, no further model is fitted.
        """
        problem = self._problem(*data)
        scaled = [problem.scale * C for C in Cs]
        settings = logistic_path_settings(self, problem.weights, problem.n_classes, scaled)
        settings["callback"] = self.callback
        remaining = iter(Cs)

        def store(result: Any) -> bool:
            self.C = next(remaining)
            regularization = problem.regularization(self.C)
            result = problem.expand(result, len(self.classes_))
            self._store(result, regularization, problem.rows)
            return ended()

        rows = core_rows(problem.rows)
        _core.fit_logistic_regressions(rows, problem.labels, settings, store)

    def path(
        self,
        X: MatrixLike,
        y: ArrayLike,
        C_min: float,
        C_max: float,
        sample_weight: ArrayLike | None = None,
    ) -> list[LogisticPiece]:
        """Cover an interval of C with models whose relative gap is at most `tol` everywhere on it.

        Each model is fitted to half of `tol`, starting from the previous model. Its dual point is
        feasible for every C, so its gap at any other C follows from the norms of the weights. The
        next fit takes a larger C, chosen so that its interval reaches back to the last interval.
        The estimator does not change; `C` and `warm_start` are not used.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Class labels of any kind.
        C_min, C_max : float
            The interval.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row's loss.

        Returns
        -------
        list of LogisticPiece
            Pieces in increasing order of C, without gaps between them; each can predict. If a fit
            does not converge within `max_iter` iterations, its ``relative_gap`` exceeds `tol`, and
            there is a warning. A path that the callback stops ends early.

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        self._check_parameters()
        check_positive("tol", self.tol)
        check_interval(C_min, C_max)
        checked = clone(self)
        rows = check_rows_and_targets(checked, X, y, half=True)[0]
        for name, C in (("C_min", C_min), ("C_max", C_max)):
            regularization_of(name, C, check_weights(sample_weight, rows), rows.shape[0])
        model = clone(self).set_params(tol=0.5 * self.tol, warm_start=True, verbose=0)
        model._quiet = True
        stopped = False

        def fit(C: float) -> LogisticRegression | None:
            if not stopped:
                model.set_params(C=C).fit(X, y, sample_weight)
            return None if stopped else copy.copy(model)

        with watch(self, is_fit=False) as callback:

            def ends(*values: Any) -> bool:
                nonlocal stopped
                stopped = stopped or (callback is not None and bool(callback(*values)))
                return stopped

            model.callback = ends
            found = list(logistic_pieces(fit, (C_min, C_max), self.tol))
        if not stopped:
            warn_of_pieces(checked, found, rows)
        return found

    def _start(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the previous weights and intercepts if the number of features is the same."""
        coef: FloatArray | None = vars(self).get("coef_")
        if coef is None or coef.shape[1] != self.n_features_in_:
            return None
        intercept = self.intercept_ if self.fit_intercept else np.zeros(len(coef))
        return np.ascontiguousarray(coef), np.ascontiguousarray(intercept)

    def _store(self, result: Any, regularization: float, X: Any) -> None:
        self.coef_, self.intercept_ = result["weights"], result["intercepts"]
        self._store_run(result, X)
        self._lambda, self._curvature = regularization, result.get("curvature")


def _column_sizes(X: Any) -> FloatArray:
    """Return the largest absolute value of each column."""
    sizes = abs(X).max(axis=0)
    sizes = sizes.todense() if hasattr(sizes, "todense") else sizes
    return np.asarray(sizes, dtype=float).ravel()
