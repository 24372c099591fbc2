"""Cross-validation of C, with bounds on the scores of the exact optima."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import check_scoring

from dualgap import _core
from dualgap._choices import check_choice
from dualgap._estimator import ordered, restores_on_error, warn_user, watch
from dualgap._estimator.settings import search_settings
from dualgap._tuning.search import ROUNDING, Rule, SearchForC, folds_of, grid, store_scores
from dualgap._validation import (
    FloatArray,
    MatrixLike,
    check_rows_and_targets,
    check_weights,
    core_rows,
    encode_classes,
    regularization_of,
    row_weights,
)
from dualgap.losses import core_loss
from dualgap.multiclass._linear import LinearClassifier
from dualgap.multiclass.svm import MulticlassSVC

__all__ = ["MulticlassSVCCV"]

# Scores that the core computes, with bounds.
_MEASURES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced_accuracy",
    "neg_mean_cost": "cost",
}

_OWN = ("Cs", "cv", "scoring", "rule", "bounds", "cv_tol", "refit")

# Attributes that only the final fit sets.
_LEARNT = ("classes_", "n_features_in_")
_FINAL = [f.name for f in fields(MulticlassSVC) if not f.init and f.name not in _LEARNT]


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class MulticlassSVCCV(SearchForC, LinearClassifier):
    """Linear multi-category SVM with cross-validated C.

    Fits all folds in parallel, each from small to large C; every fit starts from the previous fit.
    The certificate of a fit bounds its distance from the optimum, and therefore gives an interval
    for the score of the exact optimum at that fold and C.

    Parameters
    ----------
    loss : str or Loss, default="max-hinge"
        As in :class:`MulticlassSVC`.
    Cs : int or array-like of float, default=13
        Values of C, or the number of values from 1e-3 to 1e3, evenly spaced on a logarithmic scale.
    cv : int, splitter or iterable, optional
        As in scikit-learn; None means five stratified folds.
    scoring : str or callable, optional
        "accuracy", "balanced_accuracy", "top-K" (the share of rows whose class is among the K best,
        such as "top-3") and "neg_mean_cost" (minus the mean cost of the predicted classes, for
        losses with costs) have bounds. Any other name or scorer of scikit-learn is called with a
        fitted model and the held-out rows, and has no bounds. None means accuracy.
    rule : {"best", "one-standard-error"}, default="best"
        Whether to choose the C with the best mean score (the smallest in a tie), or the smallest C
        whose mean score is within one standard error of the best.
    bounds : float, optional
        Maximum width of the bounds of a mean score. A fit with wider bounds continues, up to
        `max_iter`, unless the bounds show that another C is better. None means no maximum.
    cv_tol : float, default=2e-3
        Relative duality gap at which the fits of the folds end; see `tol` in
        :class:`MulticlassSVC`. Scores require less precision than the final model.
    refit : bool, default=True
        Whether to fit a model with the chosen C on all rows, to `tol`.
    smoothing, fit_intercept, intercept_scaling, class_weight, tol, max_iter
        As in :class:`MulticlassSVC`. Balanced class weights are computed from the training rows of
        each fold.
    n_jobs : int, optional
        Number of threads; None and -1 mean all cores. The results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the order of the rows, the same for all fits.
    verbose : int, optional
        Progress on stderr, counted in fits; see :class:`MulticlassSVC`.
    callback : callable, optional
        Called after each fit of the search as ``callback(n_fits, seconds, objective,
        dual_objective)``, then after each iteration of the final fit as in :class:`MulticlassSVC`.
        A true return value ends the final fit; during the search it has no effect.

    Attributes
    ----------
    C_ : float
        The chosen value.
    Cs_ : ndarray of shape (n_Cs,)
        All values, in increasing order.
    best_score_ : float
        The mean score of `C_`.
    scores_ : ndarray of shape (n_folds, n_Cs)
        Scores on the held-out rows. Sample weights do not affect scores. With `bounds`, the score
        of a fit by Newton's method may be that of the weights of its dual point.
    score_bounds_ : ndarray of shape (n_folds, n_Cs, 2)
        Lower and upper bound on the score of the exact optimum.
    mean_score_, std_score_ : ndarray of shape (n_Cs,)
        Mean over the folds, and standard deviation.
    mean_score_bounds_ : ndarray of shape (n_Cs, 2)
        Bounds on the mean score of the exact optima.
    cv_results_ : dict of ndarray of shape (n_folds, n_Cs)
        "score", "lower", "upper", "n_undecided" (held-out rows whose class may differ at the
        optimum), "objective", "dual_objective", "n_iter", "seconds" and "converged".
    coef_, intercept_, classes_, n_iter_, objective_, dual_objective_, duality_gap_, \
            relative_gap_, null_objective_, converged_, certificate_, history_, n_features_in_, \
            feature_names_in_
        As in :class:`MulticlassSVC`, of the final fit.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualgap import MulticlassSVCCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MulticlassSVCCV(Cs=[0.1, 1.0, 10.0], random_state=0).fit(X, y)
    >>> model.scores_.shape, bool(model.best_score_ > 0.9)
    ((5, 3), True)
    """

    Cs: int | ArrayLike = field(default=13)
    bounds: float | None = None
    cv_tol: float = 2e-3

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
            Training rows; float32 and float64 are read in place.
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
        Cs = self._check()
        rows, labels = check_rows_and_targets(self, X, y, single=True)
        self.classes_, codes = encode_classes(labels)
        weights = check_weights(sample_weight, rows)
        folds = folds_of(self.cv, rows, labels, groups, classifier=True)
        scoring = self._scoring(rows, labels, folds, Cs)
        settings = search_settings(self, core_loss(self.loss), Cs, scoring)
        settings["fold_weights"] = self._fold_weights(folds, codes, weights)
        for own, C in product(settings["fold_weights"], (Cs[0], Cs[-1])):
            regularization_of("Cs", C, own, len(own))
        held_out = [np.ascontiguousarray(test, dtype=np.uint32) for _, test in folds]
        settings["held_out"] = held_out
        classes = np.ascontiguousarray(codes, dtype=np.uint32)
        # With bounds, a fold may need several fits for one C, so the total number is unknown.
        stopping = (len(folds) * len(Cs) if self.bounds is None else None, None)
        data = (X, y, sample_weight)
        with watch(self, stopping, data=data, unit="fit") as callback:
            settings["callback"] = callback
            self._store_search(Cs, _core.cross_validate(core_rows(rows), classes, settings), rows)
            for name in _FINAL:
                self.__dict__.pop(name, None)
            if self.refit:
                self._refit(rows, labels, weights, settings["seed"])
        return self

    def _check(self) -> FloatArray:
        self._check_parameters()
        check_choice("rule", self.rule, *get_args(Rule))
        return grid(self.Cs)

    def _fold_weights(
        self, folds: list[Any], codes: NDArray[np.intp], weights: FloatArray | None
    ) -> FloatArray:
        """Return the weight of each row in each training fold; repeated rows count repeatedly."""
        found = np.empty((len(folds), len(codes)))
        for number, (own, (train, _)) in enumerate(zip(found, folds, strict=True)):
            own[:] = np.bincount(train, minlength=len(codes))
            if weights is not None:
                own *= weights
            used = np.flatnonzero(own)
            if not len(used):
                msg = f"cv: no training row of fold {number} has a positive weight"
                raise ValueError(msg)
            classes = self.classes_
            if self.class_weight == "balanced":
                classes = classes[np.unique(codes[used])]
            inside = np.searchsorted(classes, self.classes_[codes[used]])
            weighted = row_weights(self.class_weight, classes, inside, own[used])
            own[used] = own[used] if weighted is None else weighted
        return found

    def _scoring(self, rows: Any, labels: Any, folds: list[Any], Cs: FloatArray) -> dict[str, Any]:
        """Return the scoring settings that the core expects."""
        found: dict[str, Any] = {"measure": None, "top_k": 1, "score": None}
        scoring = "accuracy" if self.scoring is None else self.scoring
        if isinstance(scoring, str) and scoring in _MEASURES:
            return {**found, "measure": _MEASURES[scoring]}
        count = re.fullmatch(r"top-(\d+)", scoring) if isinstance(scoring, str) else None
        if count:
            k = int(count[1])
            if not 0 < k < len(self.classes_):
                msg = f"scoring: {scoring!r} needs a number from 1 to {len(self.classes_) - 1}"
                raise ValueError(msg)
            return {**found, "measure": "top_k", "top_k": k}
        if self.bounds is not None:
            msg = f"bounds: scoring={scoring!r} has no bounds; set bounds=None"
            raise ValueError(msg)
        scorer = check_scoring(MulticlassSVC(), scoring)

        def score(fold: int, at: int, weights: FloatArray) -> float:
            held_out = folds[fold][1]
            model = self._model(float(Cs[at]), weights)
            return float(scorer(model, rows[held_out], labels[held_out]))

        return {**found, "score": score}

    def _model(self, C: float, weights: FloatArray) -> MulticlassSVC:
        """Return the model of a fold for a scorer."""
        model = MulticlassSVC(C=C, **self._parameters())
        model.classes_, model.n_features_in_ = self.classes_, self.n_features_in_
        model._store_weights(weights)
        return model

    def _parameters(self) -> dict[str, Any]:
        return {k: v for k, v in self.get_params(deep=False).items() if k not in _OWN}

    def _store_search(self, Cs: FloatArray, found: Any, X: Any) -> None:
        outcomes = np.array(found.pop("outcome")).reshape(found["score"].shape)
        found["converged"] = outcomes == "converged"
        found["n_iter"] = found["n_iter"].astype(np.int64)
        found["n_undecided"] = found["n_undecided"].astype(np.int64)
        store_scores(self, Cs, found)
        self._warn(X)

    def _warn(self, X: Any) -> None:
        """Warn if a gap did not reach `cv_tol`, or bounds are wider than `bounds`."""
        if self.bounds is None:
            short = ~self.cv_results_["converged"]
            if short.any():
                warn_user(
                    f"{short.sum()} of {short.size} fits of the folds stopped above cv_tol="
                    f"{self.cv_tol:.2g}; {self._advice(X, 'max_iter or cv_tol')}"
                )
            return
        lower, upper = self.mean_score_bounds_.T
        beaten = upper < lower.max()
        wide = (upper - lower > self.bounds + ROUNDING) & ~beaten
        if wide.any():
            values = ", ".join(f"{C:.3g}" for C in self.Cs_[wide])
            warn_user(
                f"the bounds of the mean score are more than {self.bounds:.2g} apart for C = "
                f"{values}; {self._advice(X, 'max_iter or bounds')}"
            )

    def _refit(self, rows: Any, labels: Any, weights: FloatArray | None, seed: int) -> None:
        changed = {"C": self.C_, "random_state": seed % 2**32, "verbose": 0}
        final = MulticlassSVC(**{**self._parameters(), **changed})
        final.fit(rows, labels, weights)
        for name in _FINAL:
            setattr(self, name, getattr(final, name))
