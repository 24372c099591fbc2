"""Choice of C for structured models and taggers by cross-validation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self, get_args

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.metrics import check_scoring

from dualgap._choices import check_choice
from dualgap._estimator import Callback, ordered
from dualgap._estimator.probabilities import STRUCTURED_ADVICE, without_probabilities
from dualgap._estimator.watch import CallbackSupportMixin, watch
from dualgap._sparse import check_sparse
from dualgap._tuning.search import Rule, folds_of, grid, store_choice
from dualgap._tuning.wrapper import FIT_COLUMNS, EstimatorSearch
from dualgap._validation import (
    FloatArray,
    check_positive,
    check_verbose,
    real_array,
    resolve_seed,
    resolve_threads,
)
from dualgap._validation.copies import listed

__all__ = ["StructuredCV"]


class Certified(Protocol):
    """An estimator with a parameter C that can fit a series of models."""

    objective_: float
    dual_objective_: float
    relative_gap_: float
    n_iter_: int
    converged_: bool

    def fits(self, X: Any, y: Any, Cs: FloatArray, sample_weight: Any) -> Iterator[Self]:
        """Yield the estimator after each fit, one per C."""

    def predict(self, X: Any) -> Any:
        """Return the predicted labels."""


@ordered
@without_probabilities(STRUCTURED_ADVICE)
@dataclass(kw_only=True, eq=False, repr=False)
class StructuredCV(CallbackSupportMixin, EstimatorSearch):  # type: ignore[misc]
    """Choose C of a `StructuredSVM` or a `SequenceTagger` by cross-validation.

    In each fold, C increases from fit to fit. Each fit starts at the result of the previous fit and
    reports its duality gap. Unlike `MulticlassSVCCV`, this search gives no bounds on scores: a
    bound would require, for each part of a label, the best label that differs in this part.

    Parameters
    ----------
    estimator : StructuredSVM or SequenceTagger
        Estimator with all parameters except C.
    Cs : int or array-like of float, default=13
        Values of C, or the number of values from 1e-3 to 1e3, evenly spaced on a logarithmic scale.
    cv : int, splitter or iterable, optional
        As in scikit-learn; None means five folds.
    scoring : str or callable, optional
        A scorer of scikit-learn, called with a fitted estimator, examples and labels; None means
        the estimator's own score.
    rule : {"best", "one-standard-error"}, default="best"
        Whether to choose the C with the best mean score (the smallest in a tie), or the smallest C
        whose mean score is within one standard error of the best.
    cv_tol : float, optional
        Relative duality gap at which the fits of the folds end; None means the estimator's `tol`.
    refit : bool, default=True
        Whether to fit a model with the chosen C on all examples.
    n_jobs : int, optional
        Number of threads of each fit; None means the estimator's own `n_jobs`.
    random_state : int, RandomState or None, default=None
        Seed of every fit; None means the estimator's own `random_state`.
    verbose : int, optional
        Progress on stderr, as in `MulticlassSVC`, but counted in fits.
    callback : callable, optional
        Called after each fit of the search as ``callback(n_fits, seconds, objective,
        dual_objective)``, then after each iteration of the final fit, together with the estimator's
        own callback if it has one. A true return value ends the final fit; during the search it has
        no effect.

    Attributes
    ----------
    C_ : float
        The chosen value.
    Cs_ : ndarray of shape (n_Cs,)
        All values, in increasing order.
    best_score_ : float
        The mean score of `C_`.
    scores_ : ndarray of shape (n_folds, n_Cs)
        Scores on the held-out examples. Sample weights do not affect scores.
    mean_score_, std_score_ : ndarray of shape (n_Cs,)
        Mean and standard deviation of the scores over the folds.
    cv_results_ : dict of ndarray of shape (n_folds, n_Cs)
        "score", "objective", "dual_objective", "relative_gap", "n_iter" and "converged".
    best_estimator_ : StructuredSVM or SequenceTagger
        The model with the chosen C, fitted to all examples.

    Examples
    --------
    >>> from dualgap import SequenceTagger, StructuredCV
    >>> X = [[["w=the"], ["w=cat"]], [["w=a"], ["w=dog"], ["w=ran"]]] * 5
    >>> y = [["D", "N"], ["D", "N", "V"]] * 5
    >>> search = StructuredCV(SequenceTagger(random_state=0), Cs=[0.01, 1.0]).fit(X, y)
    >>> search.C_, search.predict([[["w=the"], ["w=dog"]]])
    (0.01, [['D', 'N']])
    """

    cv_tol: float | None = None
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Choose C, and fit on all examples.

        Parameters
        ----------
        X, y : sequences of length n_examples
            Examples and their labels, in the form that the estimator requires.
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
        self._check_parameters()
        Cs, scorer = grid(self.Cs), check_scoring(self.estimator, self.scoring)
        X, y = listed(check_sparse(X), "X"), listed(check_sparse(y, "y"), "y")
        if len(X) != len(y):
            msg = f"y: must have a label for each of {len(X)} examples, got {len(y)}"
            raise ValueError(msg)
        weights = None if sample_weight is None else real_array("sample_weight", sample_weight)
        folds = folds_of(self.cv, X)
        changed = self._changed()
        stopping = (len(folds) * len(Cs), None)
        with watch(self, stopping, unit="fit", is_fit=False) as callback:
            results = self._search((X, y, weights), folds, Cs, scorer, changed, callback)
            store_choice(self, Cs, {name: np.array(column) for name, column in results.items()})
        self.__dict__.pop("best_estimator_", None)
        if self.refit:
            model = self._clone().set_params(C=self.C_, **changed)
            own = model.callback
            if self.callback is not None:
                model.callback = self.callback if own is None else _both(self.callback, own)
            self.best_estimator_ = model.fit(X, y, weights)
            model.callback = own
        return self

    def _check_parameters(self) -> None:
        self._check_estimator()
        check_choice("rule", self.rule, *get_args(Rule))
        check_verbose(self.verbose)
        if self.cv_tol is not None:
            check_positive("cv_tol", self.cv_tol, zero=True)

    def _changed(self) -> dict[str, Any]:
        """Return the parameters of the estimator that this search overrides."""
        changed: dict[str, Any] = {}
        if self.n_jobs is not None:
            changed["n_jobs"] = resolve_threads(self.n_jobs)
        if self.random_state is not None:
            changed["random_state"] = resolve_seed(self.random_state) % 2**32
        return changed

    def _search(
        self,
        data: tuple[Any, Any, Any],
        folds: list[Any],
        Cs: FloatArray,
        scorer: Callable[..., float],
        changed: dict[str, Any],
        callback: Callback | None,
    ) -> dict[str, list[list[Any]]]:
        """Fit and score each fold and C; return a dict of columns, each with one list per fold."""
        X, y, weights = data
        results: dict[str, list[list[Any]]] = {name: [] for name in ("score", *FIT_COLUMNS)}
        n_fits, start = 0, time.monotonic()
        for train, test in folds:
            row: dict[str, list[Any]] = {name: [] for name in results}
            held_out = [X[i] for i in test], [y[i] for i in test]
            own = None if weights is None else weights[train]
            model = self._clone().set_params(**changed)
            if self.cv_tol is not None:
                model.set_params(tol=self.cv_tol)
            if model.verbose is None:
                # The search shows its own progress bar.
                model.set_params(verbose=0)
            for fitted in model.fits([X[i] for i in train], [y[i] for i in train], Cs, own):
                row["score"].append(float(scorer(fitted, *held_out)))
                for name in FIT_COLUMNS:
                    row[name].append(getattr(fitted, f"{name}_"))
                n_fits += 1
                if callback is not None:
                    dual = fitted.dual_objective_
                    bound = np.nan if dual is None else dual
                    callback(n_fits, time.monotonic() - start, fitted.objective_, bound)
            for name, values in row.items():
                results[name].append(values)
        return results

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


def _both(first: Callback, second: Callback) -> Callback:
    """Return a callback that calls both callbacks; either ends the fit by returning True."""

    def call(epoch: int, seconds: float, objective: float, dual_objective: float) -> bool:
        given = (epoch, seconds, objective, dual_objective)
        return any([bool(first(*given)), bool(second(*given))])

    return call
