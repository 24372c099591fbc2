"""The choice of C for structured models and taggers by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import check_choice
from dualgap._estimator.display import note
from dualgap._sparse import check_sparse
from dualgap._tuning.search import Rule, check_scores, choose, grid, rows_of_fold
from dualgap._validation import FloatArray, check_positive, check_verbose, real_array
from dualgap._validation.copies import listed

__all__ = ["StructuredCV"]


class Certified(Protocol):
    """An estimator with a parameter C that fits one model after the other."""

    objective_: float
    dual_objective_: float
    relative_gap_: float
    n_iter_: int
    converged_: bool

    def fits(self, X: Any, y: Any, Cs: FloatArray, sample_weight: Any) -> Iterator[Self]:
        """Yield the estimator, fitted for each C."""

    def predict(self, X: Any) -> Any:
        """Return labels."""


_COLUMNS = ("objective", "dual_objective", "relative_gap", "n_iter", "converged")


class StructuredCV(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """C of a `StructuredSVM` or a `SequenceTagger` by cross-validation.

    The fits of a fold go from small C to large, each from where the one before it ended, and each
    reports its duality gap. The bounds on scores of `MulticlassSVCCV` have no counterpart here:
    they would need the best label that differs from the predicted one in each way it can differ.

    Parameters
    ----------
    estimator : StructuredSVM or SequenceTagger
        All parameters but C.
    Cs : int or array-like of float, default=13
        Values of C to choose from, or how many from 1e-3 to 1e3, evenly spaced on a logarithmic
        scale.
    cv : int, splitter or iterable, optional
        As in scikit-learn; None means five folds.
    scoring : str or callable, optional
        A scorer of scikit-learn, called with a fitted estimator, examples and labels; None means
        the estimator's own score.
    rule : {"best", "one-standard-error"}, default="best"
        Whether to choose the C of the best mean score (the smallest of equals), or the smallest one
        whose mean score is within one standard error of that.
    cv_tol : float, optional
        Relative duality gap at which the fits of the folds end; None means the estimator's `tol`.
    refit : bool, default=True
        Whether to fit a model with the chosen C on all examples.
    verbose : int, default=0
        Print a line for each fit on stderr.

    Attributes
    ----------
    C_ : float
        The chosen value.
    Cs_ : ndarray of shape (n_Cs,)
        All values, in rising order.
    best_score_ : float
        The mean score of `C_`.
    scores_ : ndarray of shape (n_folds, n_Cs)
        Scores on the held-out examples, which sample weights do not count in.
    mean_score_, std_score_ : ndarray of shape (n_Cs,)
        Mean over the folds, and standard deviation.
    cv_results_ : dict of ndarray of shape (n_folds, n_Cs)
        "score", "objective", "dual_objective", "relative_gap", "n_iter" and "converged".
    best_estimator_ : StructuredSVM or SequenceTagger
        The model with the chosen C, fitted to all examples.

    Examples
    --------
    >>> from dualgap.sequence import SequenceTagger
    >>> from dualgap.structured import StructuredCV
    >>> X = [[["w=the"], ["w=cat"]], [["w=a"], ["w=dog"], ["w=ran"]]] * 5
    >>> y = [["D", "N"], ["D", "N", "V"]] * 5
    >>> search = StructuredCV(SequenceTagger(random_state=0), Cs=[0.01, 1.0]).fit(X, y)
    >>> search.C_, search.predict([[["w=the"], ["w=dog"]]])
    (0.01, [['D', 'N']])
    """

    def __init__(
        self,
        estimator: Any,
        Cs: int | ArrayLike = 13,
        *,
        cv: Any = None,
        scoring: str | Callable[..., float] | None = None,
        rule: Rule = "best",
        cv_tol: float | None = None,
        refit: bool = True,
        verbose: int | bool = 0,
    ) -> None:
        self.estimator = estimator
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.rule = rule
        self.cv_tol = cv_tol
        self.refit = refit
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Choose C, and fit on all examples.

        Parameters
        ----------
        X, y : sequences of length n_examples
            Examples and their labels, as the estimator takes them.
        sample_weight : array-like of shape (n_examples,), optional
            Weight of each example's loss; scores are not weighted.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        self._check_estimator()
        check_choice("rule", self.rule, *get_args(Rule))
        check_verbose(self.verbose)
        if self.cv_tol is not None:
            check_positive("cv_tol", self.cv_tol, zero=True)
        Cs, scorer = grid(self.Cs), check_scoring(self.estimator, self.scoring)
        X, y = listed(check_sparse(X), "X"), listed(check_sparse(y, "y"), "y")
        if len(X) != len(y):
            msg = f"y: must have a label for each of {len(X)} examples, got {len(y)}"
            raise ValueError(msg)
        weights = None if sample_weight is None else real_array("sample_weight", sample_weight)
        splits = check_cv(self.cv).split(X)
        folds = [tuple(rows_of_fold(part, len(X)) for part in split) for split in splits]
        results: dict[str, list[list[Any]]] = {name: [] for name in ("score", *_COLUMNS)}
        for train, test in folds:
            row: dict[str, list[Any]] = {name: [] for name in results}
            held_out = [X[i] for i in test], [y[i] for i in test]
            own = None if weights is None else weights[train]
            model = self._clone()
            if self.cv_tol is not None:
                model.set_params(tol=self.cv_tol)
            for fitted in model.fits([X[i] for i in train], [y[i] for i in train], Cs, own):
                row["score"].append(float(scorer(fitted, *held_out)))
                for name in _COLUMNS:
                    row[name].append(getattr(fitted, f"{name}_"))
                self._report(len(results["score"]), fitted, row["score"][-1])
            for name, values in row.items():
                results[name].append(values)
        self._store(Cs, {name: np.array(values) for name, values in results.items()})
        self.__dict__.pop("best_estimator_", None)
        if self.refit:
            self.best_estimator_ = self._clone().set_params(C=self.C_)
            self.best_estimator_.fit(X, y, weights)
        return self

    def _check_estimator(self) -> None:
        if isinstance(self.estimator, type) or not hasattr(self.estimator, "fits"):
            given = self.estimator
            name = given.__name__ if isinstance(given, type) else type(given).__name__
            what = f"the class {name}; write {name}(...)" if isinstance(given, type) else name
            msg = f"estimator: must be a StructuredSVM or a SequenceTagger, got {what}"
            if name == "MulticlassSVC":
                msg += "; use MulticlassSVCCV"
            raise ValueError(msg)

    def _clone(self) -> Any:
        try:
            return clone(self.estimator)
        except TypeError as error:
            own = type(getattr(self.estimator, "model", self.estimator)).__name__
            msg = f"estimator: {own} cannot be copied for each fold ({error}); give it __deepcopy__"
            raise ValueError(msg) from error

    def _report(self, fold: int, fitted: Any, score: float) -> None:
        if self.verbose:
            gap = f"gap {fitted.relative_gap_:.2g}" if fitted.relative_gap_ is not None else ""
            note(f"fold {fold}  C {fitted.C:.3g}  score {score:.4f}  {gap}")

    def _store(self, Cs: FloatArray, results: dict[str, NDArray[Any]]) -> None:
        scores = results["score"]
        check_scores(scores, self.scoring)
        self.Cs_, self.cv_results_, self.scores_ = Cs, results, scores
        self.mean_score_, self.std_score_ = scores.mean(axis=0), scores.std(axis=0)
        chosen = choose(scores, self.rule)
        self.C_, self.best_score_ = float(Cs[chosen]), float(self.mean_score_[chosen])

    def predict(self, X: Any) -> Any:
        """Return the labels that the model with the chosen C predicts."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    def score(self, X: Any, y: Any) -> float:
        """Return the score of the model with the chosen C."""
        check_is_fitted(self, "best_estimator_")
        return float(check_scoring(self.best_estimator_, self.scoring)(self.best_estimator_, X, y))
