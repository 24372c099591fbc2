"""Linear multi-category SVMs, trained to a given duality gap.

Tajima, Hirohashi, Zara, Kato: Frank-Wolfe algorithm for learning SVM-type multi-category
classifiers, arXiv:2008.08894.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from dualgap import _core
from dualgap._choices import LinearSolver, Sampling, Step
from dualgap._estimator import EpochModels, ordered, refuse_unused, restores_on_error, watch
from dualgap._estimator.settings import (
    linear_settings,
    margin_record,
    multiclass_settings,
    shares_record,
)
from dualgap._estimator.warm import problem_hash
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
from dualgap.multiclass._linear import LinearClassifier
from dualgap.multiclass._own_loss import check_solver, core_loss_of, qualify_certificate
from dualgap.multiclass._plan import print_plan
from dualgap.multiclass.path import LinearPiece, linear_pieces

__all__ = ["MulticlassSVC"]


# Solvers that compute in the precision of the rows; all other solvers use float64.
_SINGLE = ("auto", "block-descent")


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class MulticlassSVC(LinearClassifier):
    """Linear classifier for multi-category losses, with a certificate of optimality.

    Minimises ``1/2 ||W||^2 + C sum_i weight_i loss_i(W)``. The reported objective is this value
    divided by ``C * total weight``: ``P = lambda/2 ||W||^2 + mean loss`` with
    ``lambda = 1 / (C * total weight)``. The total weight is the number of rows, unless there are
    sample or class weights. ``C`` has the same meaning as in LIBLINEAR (``-s 4``,
    `LinearSVC`) and in Wang and Scott's solver Walrus; ``lambda = 1/n`` corresponds to ``C = 1``.

    Parameters
    ----------
    loss : str, Loss or MarginLoss, default="max-hinge"
        "max-hinge" (or "crammer-singer"), "weston-watkins" or another name in
        `dualgap.losses.LOSSES` that takes no parameter, an object from `dualgap.losses`, or a loss
        of your own: any object with the methods of the protocol `dualgap.losses.MarginLoss`.
    C : float, default=1.0
        Weight of the losses relative to the regulariser.
    smoothing : float, default=0.0
        Parameter gamma of the Moreau envelope of the loss; 0 means the loss itself.
    fit_intercept : bool, default=True
        Whether to append a constant feature. Its weights are regularised like all other weights.
    intercept_scaling : float, default=1.0
        Value of the constant feature: the larger, the less its weights are regularised.
    class_weight : dict or "balanced", optional
        Factor for each class, by which the weights of its rows are multiplied. "balanced" makes the
        total weights of all classes equal, as in scikit-learn.
    solver : {"auto", "block-descent", "newton", "block-frank-wolfe", "frank-wolfe", \
            "away-frank-wolfe", "projected-gradient", "subgradient"}, default="auto"
        "block-descent" maximises the dual exactly over the variables of one row at a time (Walrus
        for "weston-watkins", Crammer and Singer's step for "max-hinge") in the precision of ``X``;
        it is the fastest by far and keeps n_samples x n_classes dual variables. In each iteration,
        "newton" solves a linear system for all weights. It suits up to 2000 weights and columns of
        very different scales, and typically takes tens of iterations; nearly unregularised
        separable data can take more than a hundred. "block-frank-wolfe" takes one Frank-Wolfe step
        per row and keeps only nonzero dual variables. "frank-wolfe" passes over all rows in each
        iteration and keeps no dual variables (unless there is smoothing); "away-frank-wolfe" does
        the same with an active set of weight matrices, without smoothing. "subgradient" is Pegasos,
        and "projected-gradient" its batch form, with one step per pass. These solvers are for
        comparison, or for little memory. "auto" is "newton" if there are at most 2000 weights and
        the largest absolute values of two columns, including the constant feature, differ by a
        factor that exceeds both 40 and a fifth of the number of weights, because "block-descent" is
        slow on such data. Otherwise it is "block-descent". "newton" continues from the last dual
        point once "block-descent" has worked for as long as 20 Newton steps would take, or is
        expected to work for that much longer, if the number of classes times the square of the
        number of features is at most 2**27 (1 GiB of memory).
        For custom losses, "auto" is always "block-descent", or "block-frank-wolfe" if the loss has
        no ``project``. If memory is too small for "block-descent" according to the estimate that
        `verbose` prints, "auto" is "block-frank-wolfe", or else "frank-wolfe". If memory is too
        small for any of them, the fit raises a MemoryError before it starts.
    step : {"frank-wolfe", "scheduled", "away", "pairwise"}, optional
        For "frank-wolfe", one of "frank-wolfe" (default), the best step in closed form, and
        "scheduled", ``2 / (t + 2)``. For "block-frank-wolfe", one of "frank-wolfe" (default),
        "away" and "pairwise"; the last two also move weight off the worst vertex of a row's active
        set and converge linearly. For "away-frank-wolfe", one of "away" (default) and "pairwise".
        The other solvers have no choice of steps.
    sampling : {"permutation", "uniform", "gap"}, default="permutation"
        Order in which "block-frank-wolfe" visits the rows; "gap" draws them in proportion to their
        last known duality gaps (Osokin et al. 2016).
    tol : float, default=1e-3
        Duality gap at which the fit has converged, relative to the objective. The objective is then
        at most ``1 + tol / (1 - tol)`` times its minimum. A gap no larger than rounding error
        counts as 0 for any positive `tol`.
    max_iter : int, default=1000
        Maximum number of iterations. An iteration is a pass over the rows with a certificate. For
        "block-descent" it is an epoch: several passes over the rows that are not optimal yet and
        over their candidate classes, until a new certificate pays off. For "newton" it is a step.
    warm_start : bool, default=False
        Whether a fit continues the previous fit; only for "block-descent", "newton",
        "block-frank-wolfe" and "frank-wolfe". It does so if rows, labels, weights, loss and solver
        are the same (`C`, `tol` and a positive `smoothing` may change); otherwise it starts from
        zero, because the certificate would not hold.
    n_jobs : int, optional
        Number of threads; None and -1 mean all cores. The model does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the order of the rows (all solvers except "newton" and "frank-wolfe").
    verbose : int, optional
        Progress on stderr. None: after two seconds, a bar with the gap and the remaining time, on a
        terminal only. 0: nothing. 1: the bar from the start; without a terminal, one line per
        iteration, at most one per second. 1 also reports, before the fit, the chosen solver, its
        memory in addition to the rows, and the number of threads.
    callback : callable, optional
        Called after each iteration as ``callback(epoch, seconds, objective, dual_objective)``.
        Values that were not evaluated are NaN (see `history_`), for instance in the first
        iterations of "block-descent" with a large C. A true return value stops the fit.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
        Weights; one row per class, also for two classes.
    intercept_ : ndarray of shape (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    n_iter_ : int
        Number of iterations.
    objective_, dual_objective_, duality_gap_ : float
        The objective P of the model, a lower bound on the objective of any model, and their
        difference. The first two account for rounding errors, so they hold in exact arithmetic. The
        model is the best model that the fit evaluated, including ``W = 0``; the bound is the
        highest bound that the fit found.
    relative_gap_ : float
        ``duality_gap_ / objective_``, which is compared with `tol`.
    null_objective_ : float
        The objective of ``W = 0``.
    converged_ : bool
        Whether the gap reached `tol`.
    certificate_ : str
        Scope of the bound. "convex optimum": it holds for every model. For a custom loss, "exact if
        the loss's vertex is", or "none: " and the reason, if results of the loss contradict each
        other at the fitted model.
    history_ : dict of ndarray
        Per iteration: epoch, seconds, objective, dual_objective, gap (NaN where not evaluated), and
        solver (its name, which can change during a fit with "auto"). Each row describes the best
        model so far, which a fit that ends there returns. "block-frank-wolfe" and
        "away-frank-wolfe" evaluate it every ten iterations and at the end. "block-frank-wolfe" also
        evaluates it when it expects to have converged. "frank-wolfe" with smoothing evaluates it
        every few iterations. With a large C and dense rows, the first iterations of "block-descent"
        are not evaluated, because they solve the problem with smaller values of C.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualgap import MulticlassSVC
    >>> from dualgap.losses import TopK
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MulticlassSVC(TopK(2), tol=1e-2).fit(X, y)
    >>> model.predict_top_k(X[:1], 2).shape
    (1, 2)
    """

    C: float = 1.0
    solver: LinearSolver = "auto"
    step: Step | None = None
    sampling: Sampling = "permutation"
    warm_start: bool = False

    @restores_on_error
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows. float32 and float64 are read in place, and so is float16, which is
            converted to float32 in small blocks.
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
        self._check_parameters()
        single = self.solver in _SINGLE
        # The core checks that values are finite while it computes the norms of the rows, so
        # `ensure_all_finite` is False here.
        X, y = check_rows_and_targets(self, X, y, half=True, single=single, ensure_all_finite=False)
        self.classes_, codes = encode_classes(y)
        labels = np.ascontiguousarray(codes, dtype=np.uint32)
        weights = check_weights(sample_weight, X)
        weights = row_weights(self.class_weight, self.classes_, codes, weights)
        settings, identity = self._settings(X, labels, weights)
        builtin = isinstance(settings["loss"], str)
        if self.verbose:
            auto = check_solver(settings["loss"], self.solver, self.smoothing) == "auto"
            print_plan(core_rows(X), settings, auto=auto)

        def store(model: Self, result: Any) -> None:
            model._store(result, settings["regularization"], identity, X)
            qualify_certificate(model, settings, X, codes)

        @cache
        def solver() -> str:
            return _core.plan_multiclass(core_rows(X), settings)[0]

        def model_of_epoch(arrays: Any, n_first: int) -> dict[str, Any]:
            weights = arrays[0].reshape(len(self.classes_), -1)
            return {"weights": weights, "solver": (solver(), n_first)}

        core = partial(_core.fit_multiclass, core_rows(X), labels)
        # The model of an epoch may be found by repeating the fit. With a custom loss, which might
        # not be deterministic, the repeated fit could differ.
        models = EpochModels(core, settings, store, model_of_epoch) if builtin else None
        stopping = (settings["max_iter"], settings["tol"])
        with watch(self, stopping, data=(X, y, sample_weight), models=models) as callback:
            result = core({**settings, "callback": callback})
            store(self, result)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.solver in ("away-frank-wolfe", "projected-gradient", "subgradient"):
            refuse_unused(self, ["warm_start"], f'solver="{self.solver}"')

    def _settings(
        self, X: Any, labels: NDArray[np.uint32], weights: FloatArray | None
    ) -> tuple[_core._MulticlassSettings, str]:
        """Return the settings of a fit, and a hash of all that must be equal for a warm start."""
        loss = core_loss_of(self.loss, len(self.classes_))
        shares = shares_record("C", self.C, weights, len(labels))
        settings = multiclass_settings(self, loss, shares)
        settings["solver"] = check_solver(settings["loss"], self.solver, self.smoothing)
        if not self.warm_start:
            return settings, ""
        # "auto" depends on the available memory, so the next fit may choose another solver.
        settings["solver"] = _core.plan_multiclass(core_rows(X), settings)[0]
        same = {
            **margin_record(self, loss),
            # A fit may continue a fit with another positive smoothing.
            "smoothing": self.smoothing > 0,
            "sample_weight": weights,
            "solver": settings["solver"],
        }
        identity = problem_hash("loss", self.loss, X, labels, same)
        settings["start"] = self._previous(identity, shares["regularization"])
        return settings, identity

    def _store(self, result: Any, regularization: float, identity: str, X: Any) -> None:
        self._store_weights(result["weights"])
        self._store_run(result, X)
        self._lambda = regularization
        # The model of an epoch has no dual point.
        if self.warm_start and "beta" in result:
            kept = {name: result[name] for name in ("linear", "square", "drift", "beta")}
            kept["weights"] = result["last_weights"]
            self._end = (identity, regularization, kept)

    def path(
        self,
        X: MatrixLike,
        y: ArrayLike,
        C_min: float,
        C_max: float,
        sample_weight: ArrayLike | None = None,
    ) -> list[LinearPiece]:
        """Cover an interval of C with models whose gap is at most `tol` everywhere on it.

        The first fit solves the problem at `C_min` to half of `tol`. Its solution, scaled in
        proportion to C, has a gap that is convex in C. The next fit takes place at the largest C up
        to which this gap is at most `tol`, and so on. A path treats "block-descent" and "newton"
        like "auto", and replaces all other solvers by block Frank-Wolfe with pairwise steps. Wide
        intervals with a small `tol` have many pieces: ten decades at ``tol=1e-3`` can have tens of
        thousands. The estimator does not change; `C`, `step` and `warm_start` are not used.

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
        list of LinearPiece
            Pieces in increasing order of C, without gaps between them; each can predict. If a piece
            does not reach `tol` within `max_iter` passes, its ``relative_gap`` exceeds `tol`, and
            there is a warning. A path that the callback stops ends early.

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        self._check_parameters()
        check_positive("tol", self.tol)
        check_interval(C_min, C_max)
        # Fits along the path use a clone, which leaves this estimator unchanged.
        model = clone(self).set_params(random_state=self.random_state)
        X, y = check_rows_and_targets(model, X, y, single=self.solver in _SINGLE)
        model.classes_, codes = encode_classes(y)
        weights = check_weights(sample_weight, X)
        weights = row_weights(self.class_weight, model.classes_, codes, weights)
        loss = core_loss_of(model.loss, len(model.classes_))
        settings = linear_settings(model, loss, shares_record("C_min", C_min, weights, len(codes)))
        projecting: bool = self.solver in ("auto", "block-descent", "newton")
        solver: LinearSolver = "auto" if projecting else "block-frank-wolfe"
        settings["solver"] = check_solver(settings["loss"], solver, self.smoothing)
        settings["step"] = "pairwise" if settings["solver"] == "block-frank-wolfe" else None
        labels = np.ascontiguousarray(codes, dtype=np.uint32)
        until = regularization_of("C_max", C_max, weights, len(codes))
        with watch(self, is_fit=False) as callback:
            settings["callback"] = callback
            pieces = _core.multiclass_path(core_rows(X), labels, settings, until)

        def fitted(weights: FloatArray) -> MulticlassSVC:
            own: MulticlassSVC = copy.copy(model)
            own._store_weights(weights)
            return own

        found = linear_pieces(pieces, (C_min, C_max), settings["regularization"], fitted)
        warn_of_pieces(model, found, X)
        return found

    def _previous(self, identity: str, regularization: float) -> Any:
        """Return the end of the previous fit of the same problem, rescaled to the new lambda."""
        if not (self.warm_start and hasattr(self, "_end")):
            return None
        known, before, kept = self._end
        if known != identity:
            return None
        # For a fixed dual point alpha, the weights W(alpha) are proportional to 1/lambda.
        weights: Any = kept["weights"]
        return {**kept, "weights": weights * (before / regularization)}
