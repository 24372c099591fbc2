"""Cross-validation of C for logistic regression, with bounds on the accuracy of the optima."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, fields
from functools import partial
from threading import Event
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.metrics import check_scoring

from dualgap._choices import LogisticSolver, check_choice
from dualgap._estimator import Callback, Stopper, ordered, restores_on_error, warn_user, watch
from dualgap._tuning.parallel import in_threads
from dualgap._tuning.search import Rule, SearchForC, folds_of, grid, store_scores
from dualgap._validation import (
    FloatArray,
    MatrixLike,
    check_rows_and_targets,
    check_weights,
    encode_classes,
    regularization_of,
    resolve_seed,
    resolve_threads,
    row_weights,
)
from dualgap.logistic._bounds import NO_BOUNDS, OptimumBall
from dualgap.logistic._model import LogisticClassifier
from dualgap.logistic.regression import LogisticRegression

__all__ = ["LogisticRegressionCV"]

_OWN = ("Cs", "cv", "scoring", "rule", "cv_tol", "refit")

# Attributes that only the final fit sets.
_LEARNT = ("classes_", "n_features_in_")
_FINAL = [f.name for f in fields(LogisticRegression) if not f.init and f.name not in _LEARNT]

_KINDS = {"n_undecided": np.int64, "n_iter": np.int64, "converged": np.bool_}


@dataclass(frozen=True)
class _Fold:
    """Training rows with their weights, and held-out rows."""

    number: int
    train: tuple[Any, NDArray[Any], FloatArray | None]
    held_out: tuple[Any, NDArray[np.intp], NDArray[Any]]

    @classmethod
    def of(
        cls, number: int, data: Any, places: tuple[Any, Any], weights: FloatArray | None
    ) -> _Fold:
        """Copy a fold's rows, labels and codes from those of all rows."""
        (rows, labels, codes), (train, test) = data, places
        held_out = (rows[test], codes[test], labels[test])
        return cls(number, (rows[train], labels[train], weights), held_out)


# The number of a fold, the position of C, and the results of a fit.
_End = tuple[int, int, dict[str, Any]]

# Scores a model on the held-out rows of its fold; returns the score, its bounds and the number of
# undecided rows.
_Measure = Callable[[LogisticRegression, _Fold], dict[str, float]]


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegressionCV(SearchForC, LogisticClassifier):
    """Logistic regression with cross-validated C.

    Fits the folds in parallel, each from small to large C; every fit starts from the previous fit.

    Parameters
    ----------
    Cs : int or array-like of float, default=13
        Values of C, or the number of values from 1e-3 to 1e3, evenly spaced on a logarithmic scale.
    cv : int, splitter or iterable, optional
        As in scikit-learn; None means five stratified folds.
    scoring : str or callable, optional
        "accuracy", "neg_log_loss" (the mean logarithm of the probability of the true class; the
        classes of held-out rows must have training rows in the same fold), or another name or
        scorer of scikit-learn, which is called with a fitted model and the held-out rows. None
        means accuracy.
    rule : {"best", "one-standard-error"}, default="best"
        Whether to choose the C with the best mean score (the smallest in a tie), or the smallest C
        whose mean score is within one standard error of the best.
    cv_tol : float, default=2e-3
        Relative duality gap at which the fits of the folds end; see `tol` in
        :class:`LogisticRegression`. Scores require less precision than the final model.
    refit : bool, default=True
        Whether to fit a model with the chosen C on all rows, to `tol`.
    fit_intercept, class_weight, solver, tol, max_iter
        As in :class:`LogisticRegression`. Balanced class weights are computed from the training
        rows of each fold.
    n_jobs : int, optional
        Number of threads; None and -1 mean all cores. The results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the order of the rows, the same for all fits.
    verbose : int, optional
        Progress on stderr, counted in fits; see :class:`LogisticRegression`.
    callback : callable, optional
        Called after each fit of the search as ``callback(n_fits, seconds, objective,
        dual_objective)``, then after each iteration of the final fit as in
        :class:`LogisticRegression`. A true return value ends the final fit; during the search it
        has no effect.

    Attributes
    ----------
    C_ : float
        The chosen value.
    Cs_ : ndarray of shape (n_Cs,)
        All values, in increasing order.
    best_score_ : float
        The mean score of `C_`.
    scores_ : ndarray of shape (n_folds, n_Cs)
        Scores on the held-out rows. Sample weights do not affect scores.
    score_bounds_ : ndarray of shape (n_folds, n_Cs, 2)
        Lower and upper bound on the score of the exact optimum, from the gap of each fit; a smaller
        `cv_tol` narrows them. Infinite unless `scoring` is "accuracy" or "neg_log_loss".
    mean_score_, std_score_ : ndarray of shape (n_Cs,)
        Mean over the folds, and standard deviation.
    mean_score_bounds_ : ndarray of shape (n_Cs, 2)
        Bounds on the mean score of the exact optima.
    cv_results_ : dict of ndarray of shape (n_folds, n_Cs)
        "score", "lower", "upper", "n_undecided" (held-out rows whose class may differ at the
        optimum; all rows if there are no bounds), "objective", "dual_objective", "n_iter",
        "seconds" and "converged".
    coef_, intercept_, classes_, n_iter_, objective_, dual_objective_, duality_gap_, \
            relative_gap_, null_objective_, converged_, certificate_, history_, n_features_in_, \
            feature_names_in_
        As in :class:`LogisticRegression`, of the final fit.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualgap import LogisticRegressionCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegressionCV(Cs=[0.1, 1.0, 10.0], scoring="neg_log_loss").fit(X, y)
    >>> model.scores_.shape, model.C_
    ((5, 3), 10.0)
    """

    Cs: int | ArrayLike = field(default=13)
    cv_tol: float = 2e-3
    solver: LogisticSolver = "auto"

    score_bounds_: FloatArray = field(init=False)
    mean_score_bounds_: FloatArray = field(init=False)

    @restores_on_error
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose C, and fit on all rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows of float16, float32 or float64.
        y : array-like of shape (n_samples,)
            Class labels of any kind.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row's loss; scores are not weighted.
        groups : array-like of shape (n_samples,), optional
            Group of each row, for splitters that need groups.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        self._check_parameters()
        check_choice("solver", self.solver, LogisticSolver)
        check_choice("rule", self.rule, *get_args(Rule))
        Cs = grid(self.Cs)
        rows, labels = check_rows_and_targets(self, X, y, half=True)
        self.classes_, codes = encode_classes(labels)
        weights = check_weights(sample_weight, rows)
        splits = folds_of(self.cv, rows, labels, groups, classifier=True)
        folds = self._folds((rows, labels, codes, weights), splits, Cs)
        seed = resolve_seed(self.random_state) % 2**32
        stopping, data = (len(folds) * len(Cs), None), (X, y, sample_weight)
        with watch(self, stopping, data=data, unit="fit") as callback:
            self._store_search(Cs, self._search(folds, Cs, seed, callback), rows)
            for name in _FINAL:
                self.__dict__.pop(name, None)
            if self.refit:
                self._refit(rows, labels, weights, seed)
        return self

    def _folds(self, data: Any, splits: Any, Cs: FloatArray) -> list[Callable[[], _Fold]]:
        """Return functions that copy the rows of a fold, one for each fold.

        Raises a ValueError for a fold that cannot be fitted.
        """
        rows, labels, codes, weights = data
        if self.class_weight != "balanced":
            weights = row_weights(self.class_weight, self.classes_, codes, weights)
        folds: list[Callable[[], _Fold]] = []
        for number, (train, test) in enumerate(splits):
            own = None if weights is None else weights[train]
            if not len(train) or (own is not None and not own.any()):
                msg = f"cv: no training row of fold {number} has a positive weight"
                raise ValueError(msg)
            if not len(test):
                msg = f"cv: fold {number} has no held-out row"
                raise ValueError(msg)
            if len(np.unique(codes[train])) < 2:
                msg = f"cv: the training rows of fold {number} have one class only"
                raise ValueError(msg)
            if isinstance(self.scoring, str) and self.scoring == "neg_log_loss":
                self._check_known(number, codes[train], codes[test])
            for C in (Cs[0], Cs[-1]):
                regularization_of("Cs", C, own, len(train))
            folds.append(partial(_Fold.of, number, (rows, labels, codes), (train, test), own))
        return folds

    def _check_known(self, number: int, train: NDArray[np.intp], test: NDArray[np.intp]) -> None:
        unknown = self.classes_[np.setdiff1d(test, train)]
        if len(unknown):
            msg = (
                f"cv: no training row of fold {number} has the class {unknown.tolist()[0]!r} of a "
                "held-out row, so its log loss is infinite; use stratified folds, remove classes "
                'with few rows, or set scoring="accuracy"'
            )
            raise ValueError(msg)

    def _search(
        self, folds: list[Callable[[], _Fold]], Cs: FloatArray, seed: int, callback: Callback | None
    ) -> dict[str, FloatArray]:
        """Fit and score each fold and C; return arrays of shape (n_folds, n_Cs)."""
        n_threads = resolve_threads(self.n_jobs)
        n_workers = min(n_threads, len(folds))
        parameters = {name: getattr(self, name) for name in ("fit_intercept", "solver", "max_iter")}
        parameters |= {"tol": self.cv_tol, "random_state": seed}
        parameters["class_weight"] = "balanced" if self.class_weight == "balanced" else None
        measure = self._measure()

        def fits(fold_of: Callable[[], _Fold], stop: Event, emit: Callable[[_End], None]) -> None:
            # Only the folds that are being fitted have copies of their rows.
            fold = fold_of()
            model = LogisticRegression(
                **parameters,
                n_jobs=n_threads // n_workers,
                verbose=0,
                callback=Stopper(stop.is_set),
            )
            model._quiet = True
            places = iter(range(len(Cs)))

            def ended() -> bool:
                if stop.is_set():
                    return True
                found = measure(model, fold)
                seconds = float(model.history_["seconds"][-1])
                emit((fold.number, next(places), {**found, "seconds": seconds, **_record(model)}))
                return False

            model._fit_all(fold.train, Cs.tolist(), ended)

        shape, start = (len(folds), len(Cs)), time.monotonic()
        results: dict[str, FloatArray] = {}
        with closing(in_threads(fits, folds, n_workers)) as ends:
            for n_fits, (number, at, found) in enumerate(ends, start=1):
                for name, value in found.items():
                    column = results.setdefault(name, np.zeros(shape, _KINDS.get(name, np.float64)))
                    column[number, at] = value
                if callback is not None:
                    seconds = time.monotonic() - start
                    callback(n_fits, seconds, found["objective"], found["dual_objective"])
        return results

    def _measure(self) -> _Measure:
        """Return the function that scores a model."""
        if self.scoring in (None, "accuracy"):
            return self._accuracy
        if isinstance(self.scoring, str) and self.scoring == "neg_log_loss":
            return self._neg_log_loss
        scorer = check_scoring(LogisticRegression(), self.scoring)

        def measure(model: LogisticRegression, fold: _Fold) -> dict[str, float]:
            rows, _, labels = fold.held_out
            score = float(scorer(model, rows, labels))
            return {"score": score, **NO_BOUNDS, "n_undecided": len(labels)}

        return measure

    def _accuracy(self, model: LogisticRegression, fold: _Fold) -> dict[str, float]:
        rows, _, labels = fold.held_out
        predicted = model._scores(rows).argmax(axis=1)
        right = model.classes_[predicted] == labels
        open_rows = _undecided(model, rows, predicted)
        return {
            "score": float(right.mean()),
            "lower": float((right & ~open_rows).mean()),
            "upper": float((right | open_rows).mean()),
            "n_undecided": int(open_rows.sum()),
        }

    def _neg_log_loss(self, model: LogisticRegression, fold: _Fold) -> dict[str, float]:
        rows, codes, _ = fold.held_out
        score = self._mean_log_probability(model, rows, codes)
        found = {"score": score, **NO_BOUNDS, "n_undecided": len(codes)}
        if np.isfinite(score) and np.isfinite(model.dual_objective_):
            ball = OptimumBall.of(model)
            own = np.searchsorted(model.classes_, self.classes_[codes])
            lower, upper = ball.log_losses(model, rows, own)
            found |= {"lower": -upper, "upper": -lower}
            predicted = model._scores(rows).argmax(axis=1)
            found["n_undecided"] = int(ball.prediction_may_change(model, rows, predicted).sum())
        return found

    def _mean_log_probability(
        self, model: LogisticRegression, rows: Any, codes: NDArray[np.intp]
    ) -> float:
        found = np.full((len(codes), len(self.classes_)), -np.inf)
        known = np.searchsorted(self.classes_, model.classes_)
        found[:, known] = log_softmax(model._scores(rows), axis=1)
        return float(found[np.arange(len(codes)), codes].mean())

    def _store_search(self, Cs: FloatArray, found: dict[str, FloatArray], X: Any) -> None:
        store_scores(self, Cs, found)
        short = np.logical_not(found["converged"])
        if short.any():
            warn_user(
                f"{short.sum()} of {short.size} fits of the folds stopped above cv_tol="
                f"{self.cv_tol:.2g}; {self._advice(X, 'max_iter or cv_tol')}"
            )

    def _refit(self, rows: Any, labels: Any, weights: FloatArray | None, seed: int) -> None:
        own = {k: v for k, v in self.get_params(deep=False).items() if k not in _OWN}
        final = LogisticRegression(**{**own, "C": self.C_, "random_state": seed, "verbose": 0})
        final.fit(rows, labels, weights)
        for name in _FINAL:
            setattr(self, name, getattr(final, name))


def _undecided(
    model: LogisticRegression, rows: Any, predicted: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Return a mask of the rows whose class may differ at the optimum."""
    if not np.isfinite(model.dual_objective_):
        return np.ones(rows.shape[0], dtype=bool)
    return OptimumBall.of(model).prediction_may_change(model, rows, predicted)


def _record(model: LogisticRegression) -> dict[str, Any]:
    names = ("objective", "dual_objective", "n_iter", "converged")
    return {name: getattr(model, f"{name}_") for name in names}
