"""What the four polynomial estimators share: parameters, the call into the core, the attributes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted, check_X_y

from dualgap import _core
from dualgap._estimator import Callback, History, progress
from dualgap._validation import (
    FloatArray,
    check_positive,
    check_rows,
    check_rows_and_targets,
    core_rows,
    resolve_seed,
    resolve_threads,
)
from dualgap.chunks import Chunks

_PARAMETERS = """
    Parameters
    ----------
    n_components : int, default=30
        Largest number of basis vectors. The method adds one at a time and drops those that the
        refit sets to zero.
    penalty : {"l1/l2", "l1/linf", "l1"}, default="l1/l2"
        Norm of the output layer that is bounded: inner norm over outputs, sum over basis vectors
        (paper, Table 1).
    radius : float, default=100.0
        Bound tau on the norm, in units of the outputs (basis vectors have unit length). The
        objective is a sum over rows, not a mean.
    loss : LOSSES
        Loss of the outputs of one row (paper, Table 3).
    refit : {"full", "output"}, default="full"
        What is re-optimised after each new basis vector: basis and output layer (not convex), or
        the output layer alone (convex).
    linear : {"explicit", "augment", None}, default="explicit"
        Linear terms: explicit weights and intercepts outside the ball, under a ridge; or a feature
        that is always 1 for the basis (which gives no intercept in a factorization machine, since
        its square drops out); or none.
    alpha : float, default=1.0
        Ridge on the explicit linear weights and intercepts: alpha/2 times their squared norm is
        added to the sum of the losses.
    tol : float, default=1e-3
        Duality gap at which the fit has converged, relative to the objective of the null model.
    max_iter : int, default=200
        Most iterations (each adds at most one basis vector).
    selection : {"refined", "initial", "random-refined", "random", "best-row", "exact"}, \
default="refined"
        How basis vectors are selected: the extreme eigenvector of largest eigenvalue, refined, or
        up to 64 features the best of those of all outputs. The others are for comparison with it
        (paper, section 6.2): "exact" solves 2^(m - 1) eigenvalue problems for "l1/linf" with
        m <= 16 outputs (at most 512 features), and gives it a tight duality gap.
    selection_tol : float, default=1e-2
        Relative tolerance of the eigenvalue solver that selects basis vectors.
    validation_fraction : float, optional
        Share of the rows set aside (stratified for classes); the number of basis vectors that
        scores best there is kept. The curve is in ``history_``.
    warm_start : bool, default=False
        Start from the basis of the previous fit: continues an interrupted or shorter one.
    random_state : int, RandomState or None, default=None
        Seed of the eigenvalue solver's start vectors and of the validation split.
    n_jobs : int, optional
        Number of threads; None and -1 mean all cores. The model does not depend on it.
    verbose : int, default=0
        Print a line per iteration on stderr.
    callback : callable, optional
        Called after each iteration as ``callback(iteration, seconds, primal, dual)``; a true return
        value stops the fit.

    Attributes
    ----------
    components_ : ndarray of shape (n_bases, n_features [+ 1])
        Basis vectors of unit length (with ``linear="augment"``, their last entry belongs to the
        feature that is always 1).
    output_ : ndarray of shape (n_bases, n_outputs)
        Output layer U; with H = ``components_`` the outputs are K(X, H) U + X coef_.T + intercept_.
    n_nonzero_bases_ : int
        Number of basis vectors that some output uses.
    coef_, intercept_ : ndarray of shape (n_outputs, n_features) and (n_outputs,)
        Linear terms; zero without explicit ones.
    objective_, duality_gap_ : float
        Objective of the model, and an upper bound on its distance from the smallest one over all
        bases within ``radius``. For "l1" the bound is tight up to the eigenvalue solver; for the
        group penalties it exceeds the distance by what basis selection may have missed.
    converged_ : bool
        Whether the gap reached ``tol``.
    n_iter_ : int
        Number of iterations.
    history_ : dict of ndarray
        Per iteration: epoch, seconds, primal, dual, gap, n_components and, with validation rows,
        validation_loss and validation_score (accuracy, or minus the mean loss).
    n_features_in_, feature_names_in_
        As in scikit-learn.
"""


_Class = TypeVar("_Class", bound=type)


def documented(losses: str) -> Callable[[_Class], _Class]:
    """Append the parameters and attributes, which all four share, to a class's docstring."""

    def append(cls: _Class) -> _Class:
        shared = inspect.cleandoc(_PARAMETERS).replace("LOSSES", losses)
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{shared}\n"
        return cls

    return append


def check_training(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[Any, Any]:
    """Validate training data; chunks of rows have been validated one by one."""
    if not isinstance(X, Chunks):
        return check_rows_and_targets(estimator, X, y, **options)
    # A column without values stands for the rows.
    _, y = check_X_y(np.zeros((X.shape[0], 1), dtype=np.int8), y, **options)
    estimator.n_features_in_ = X.shape[1]
    return X, y


class PolynomialModel(BaseEstimator):  # type: ignore[misc]
    """What the four estimators share."""

    _kernel: ClassVar[str]

    n_components: int
    penalty: str
    radius: float
    loss: str
    refit: str
    selection: str
    linear: str | None
    alpha: float
    tol: float
    max_iter: int
    selection_tol: float
    validation_fraction: float | None
    warm_start: bool
    random_state: Any
    n_jobs: int | None
    verbose: int | bool
    callback: Callback | None

    history_: History

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        for name in ("n_components", "max_iter"):
            check_positive(name, getattr(self, name), integer=True)
        for name in ("radius", "alpha", "selection_tol"):
            check_positive(name, getattr(self, name))
        check_positive("tol", self.tol, zero=True)
        if self.linear not in ("explicit", "augment", None):
            msg = f'linear: must be "explicit", "augment" or None, got {self.linear!r}'
            raise ValueError(msg)
        fraction = self.validation_fraction
        if fraction is not None and not 0.0 < fraction < 1.0:
            msg = f"validation_fraction: must lie between 0 and 1, got {fraction!r}"
            raise ValueError(msg)

    def _fit(
        self,
        X: Any,
        targets: NDArray[Any],
        n_outputs: int,
        weights: FloatArray | None,
        validation: tuple[Any, NDArray[Any]] | None,
        stratify: bool,
    ) -> None:
        self._check_parameters()
        seed = resolve_seed(self.random_state)
        if validation is None and self.validation_fraction is not None:
            if isinstance(X, Chunks):
                msg = "validation_fraction: rows in chunks are not split; give validation_data"
                raise ValueError(msg)
            indices = np.arange(X.shape[0])
            train, held_out = train_test_split(
                indices,
                test_size=self.validation_fraction,
                random_state=seed % 2**32,
                stratify=targets if stratify else None,
            )
            train, held_out = np.sort(train), np.sort(held_out)
            validation = (X[held_out], targets[held_out])
            X, targets = X[train], targets[train]
            weights = None if weights is None else weights[train]
        result = _core.fit_polynomial(
            [core_rows(rows) for rows in (X.chunks if isinstance(X, Chunks) else [X])],
            targets,
            n_outputs=n_outputs,
            kernel=self._kernel,
            augmented=self.linear == "augment",
            alpha=float(self.alpha) if self.linear == "explicit" else None,
            loss=self.loss,
            penalty=self.penalty,
            radius=float(self.radius),
            n_components=int(self.n_components),
            refit=self.refit,
            selection=self.selection,
            selection_tol=float(self.selection_tol),
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            seed=seed,
            n_threads=resolve_threads(self.n_jobs),
            sample_weight=weights,
            init=self._previous(X.shape[1], n_outputs),
            validation=None if validation is None else (core_rows(validation[0]), validation[1]),
            callback=progress(self.verbose, self.callback),
        )
        self._store(result, X.shape[1], n_outputs)

    def _previous(self, n_features: int, n_outputs: int) -> Any:
        if not (self.warm_start and hasattr(self, "components_")):
            return None
        width = n_features + (self.linear == "augment")
        if self.components_.shape[1] != width or self.output_.shape[1] != n_outputs:
            msg = "warm_start: X or y has another shape than in the previous fit"
            raise ValueError(msg)
        return self._model()

    def _store(self, result: Any, n_features: int, n_outputs: int) -> None:
        self.components_ = np.ascontiguousarray(result["basis"])
        self.output_ = result["output"]
        linear = result["linear"]
        if linear is None:
            linear = np.zeros((n_features + 1, n_outputs))
        self.coef_ = np.ascontiguousarray(linear[:-1].T)
        self.intercept_ = linear[-1].copy()
        self.history_ = {**result["history"], **result["path"]}
        self.n_iter_ = len(self.history_["epoch"])
        self.objective_ = result["primal"]
        self.duality_gap_ = result["primal"] - result["dual"]
        if "validation_score" in self.history_:
            # The kept model is an earlier one: its own certificate counts.
            best = int(np.argmax(self.history_["validation_score"]))
            self.objective_ = float(self.history_["primal"][best])
            self.duality_gap_ = float(self.history_["gap"][best])
        self.converged_ = self.duality_gap_ <= self.tol * result["scale"]
        if result["outcome"] == "epoch_limit" and not self.converged_:
            relative = (result["primal"] - result["dual"]) / result["scale"]
            warnings.warn(
                f"stopped after max_iter={self.max_iter} iterations at a relative duality gap of "
                f"{relative:.2g} (tol={self.tol:.2g}); raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=4,
            )

    @property
    def n_nonzero_bases_(self) -> int:
        """Number of basis vectors that some output uses."""
        check_is_fitted(self)
        return int(np.count_nonzero(np.abs(self.output_).max(axis=1, initial=0.0)))

    def _model(self) -> Any:
        linear = None
        if self.linear == "explicit":
            linear = np.vstack([self.coef_.T, self.intercept_])
        return {"basis": self.components_, "output": self.output_, "linear": linear}

    def _outputs(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        return _core.predict_polynomial(
            core_rows(X),
            self._model(),
            kernel=self._kernel,
            augmented=self.linear == "augment",
            n_threads=resolve_threads(self.n_jobs),
        )
