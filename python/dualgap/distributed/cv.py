"""Choice of C by cross-validation over the partitions of a cluster."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.metrics import check_scoring

from dualgap._choices import check_choice
from dualgap._estimator import Callback, ordered, warn_user
from dualgap._estimator.watch import watch
from dualgap._tuning.search import Rule, folds_of, grid, store_choice
from dualgap._tuning.wrapper import FIT_COLUMNS, EstimatorSearch
from dualgap._validation import FloatArray, check_positive, check_verbose, resolve_seed
from dualgap._validation.labels import class_codes, read_sequences, sorted_classes
from dualgap.distributed._base import PartitionedClassifier
from dualgap.distributed._engine import Engine
from dualgap.distributed._engines import engine_for
from dualgap.distributed._partition import Part, Summary
from dualgap.distributed._plan import Order, Plan, Solution
from dualgap.distributed._rounds import checkpoint_folders
from dualgap.distributed._scales import widened
from dualgap.distributed._worker import forget

__all__ = ["ConsensusCV"]

_Fold = tuple[list[int], list[int]]
"""Numbers of the training partitions and of the held-out partitions."""


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class ConsensusCV(EstimatorSearch):
    """Choose C of a `ConsensusSVC` or a `ConsensusLogisticRegression` by cross-validation.

    The partitions are read once. Each fold holds out whole partitions: all workers fit the other
    partitions, and the workers with the held-out partitions compute the scores there. In each fold,
    C increases from fit to fit, and each fit starts from the weights (and the dual variables) of
    the previous fit.

    Parameters
    ----------
    estimator : ConsensusSVC or ConsensusLogisticRegression
        Estimator with all parameters except C. Its `checkpoint` and `resume` apply to the final
        fit.
    Cs : int or array-like of float, default=13
        Values of C, or the number of values from 1e-3 to 1e3, evenly spaced on a logarithmic scale.
    cv : int, splitter or iterable, optional
        As in scikit-learn, but for partitions instead of rows: an iterable contains pairs of lists
        of partition indices. None means five folds.
    scoring : str or callable, optional
        "accuracy", "neg_log_loss", or another name or scorer of scikit-learn, which is called on
        the workers with a fitted model and the rows of one held-out partition. The score of a fold
        is the mean over its partitions, weighted by the number of rows. None means accuracy.
    rule : {"best", "one-standard-error"}, default="best"
        Whether to choose the C with the best mean score (the smallest in a tie), or the smallest C
        whose mean score is within one standard error of the best.
    cv_tol : float, default=2e-3
        Relative duality gap at which the fits of the folds end. Scores require less precision than
        the final model.
    refit : bool, default=True
        Whether to fit a model with the chosen C on all partitions.
    random_state : int, RandomState or None, default=None
        Seed of every fit; None means the estimator's own `random_state`.
    verbose : int, optional
        Progress on stderr, as in `MulticlassSVC`, but counted in fits.
    callback : callable, optional
        Called after each fit of the search as ``callback(n_fits, seconds, objective,
        dual_objective)``. The final fit calls the estimator's own callback.

    Attributes
    ----------
    C_ : float
        The chosen value.
    Cs_ : ndarray of shape (n_Cs,)
        All values, in increasing order.
    best_score_ : float
        The mean score of `C_`.
    scores_ : ndarray of shape (n_folds, n_Cs)
        Scores on the held-out partitions. Sample weights do not affect scores.
    mean_score_, std_score_ : ndarray of shape (n_Cs,)
        Mean and standard deviation of the scores over the folds.
    cv_results_ : dict of ndarray of shape (n_folds, n_Cs)
        "score", "objective", "dual_objective", "relative_gap", "n_iter" and "converged".
    best_estimator_ : ConsensusSVC or ConsensusLogisticRegression
        The model with the chosen C, fitted to all partitions.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualgap.distributed import ConsensusCV, ConsensusLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ConsensusLogisticRegression(n_partitions=3)
    >>> search = ConsensusCV(model, Cs=[0.01, 1.0], cv=3, scoring="neg_log_loss").fit(X, y)
    >>> search.C_, search.predict(X[:2])
    (1.0, array([0, 0]))
    """

    cv_tol: float = 2e-3

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose C, and fit on all partitions.

        Parameters
        ----------
        X, y, sample_weight
            As in the `fit` of the estimator.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters are invalid; the message names the argument.
        RuntimeError
            If workers have a different version of dualgap, or are lost repeatedly.
        """
        Cs = self._check()
        final = self._model()
        final._check_parameters()
        checkpoint_folders(final.checkpoint, final.resume)
        seed = resolve_seed(final.random_state)
        engine = engine_for(final, X, y, sample_weight)
        runs, cancel = [uuid.uuid4().hex], True
        try:
            summaries = engine.describe(final.checkpoint is not None or final.resume is not None)
            final._merge(summaries)
            folds = self._folds(summaries, Cs)
            stopping = (len(folds) * len(Cs), None)
            with watch(self, stopping, unit="fit", is_fit=False) as callback:
                searched = self._search(engine, summaries, folds, Cs, (final, seed, runs, callback))
            self._store(Cs, searched)
            self.__dict__.pop("best_estimator_", None)
            if self.refit:
                runs.append(uuid.uuid4().hex)
                final.set_params(C=self.C_)
                n_rounds = int(final.max_iter) if final.resume is None else None
                everything = _Subset(engine, list(range(len(summaries))), summaries)
                with watch(final, (n_rounds, float(final.tol)), is_fit=False) as callback:
                    final._fit(everything, runs[-1], seed, (X, callback, None))
                self.best_estimator_ = final
            cancel = False
        finally:
            engine.close(runs[-1], cancel=cancel)
        return self

    def _check(self) -> FloatArray:
        if not isinstance(self.estimator, PartitionedClassifier):
            found = type(self.estimator).__name__
            msg = (
                "estimator: must be a ConsensusSVC or a ConsensusLogisticRegression, got "
                f"{self.estimator.__name__ if found == 'type' else found}"
            )
            raise ValueError(msg)
        check_choice("rule", self.rule, *get_args(Rule))
        check_verbose(self.verbose)
        check_positive("cv_tol", self.cv_tol, zero=True)
        if self.scoring not in (None, "accuracy", "neg_log_loss"):
            check_scoring(self.estimator, self.scoring)
        if self.scoring == "neg_log_loss" and not hasattr(self.estimator, "predict_proba"):
            msg = "scoring: 'neg_log_loss' needs probabilities; use ConsensusLogisticRegression"
            raise ValueError(msg)
        return grid(self.Cs)

    def _model(self) -> Any:
        model = clone(self.estimator)
        if self.random_state is not None:
            model.set_params(random_state=resolve_seed(self.random_state) % 2**32)
        return model

    def _folds(self, summaries: list[Summary], Cs: FloatArray) -> list[_Fold]:
        """Return the folds; raise a ValueError for a fold that cannot be fitted or scored."""
        used = [number for number, summary in enumerate(summaries) if summary.n_rows]
        n_folds = 5 if self.cv is None else self.cv
        if isinstance(n_folds, int | np.integer) and n_folds > len(used):
            msg = (
                f"cv: {n_folds} folds need at least {n_folds} partitions with rows, got "
                f"{len(used)}; lower cv, or raise n_partitions of the estimator"
            )
            raise ValueError(msg)
        folds = []
        for number, (train, test) in enumerate(folds_of(self.cv, np.array(used)[:, None])):
            fold = [used[i] for i in train], [used[i] for i in test]
            if not fold[1]:
                msg = f"cv: fold {number} has no held-out partition"
                raise ValueError(msg)
            known, held_out = ({*_labels(summaries, chosen)} for chosen in fold)
            if len(known) < 2:
                msg = f"cv: the training partitions of fold {number} have fewer than two classes"
                raise ValueError(msg)
            if self.scoring == "neg_log_loss" and held_out - known:
                msg = (
                    f"cv: no training partition of fold {number} has the class "
                    f"{min(held_out - known)!r} of a held-out row, so its log loss is infinite"
                )
                raise ValueError(msg)
            folds.append(fold)
        return folds

    def _search(
        self,
        engine: Engine,
        summaries: list[Summary],
        folds: list[_Fold],
        Cs: FloatArray,
        given: tuple[Any, int, list[str], Callback | None],
    ) -> dict[str, NDArray[Any]]:
        """Fit and score each fold and C; return arrays of shape (n_folds, n_Cs)."""
        final, seed, runs, callback = given
        results: dict[str, list[list[Any]]] = {name: [] for name in ("score", *FIT_COLUMNS)}
        n_fits, start = 0, time.monotonic()
        for train, held_out in folds:
            row: dict[str, list[Any]] = {name: [] for name in results}
            runs.append(uuid.uuid4().hex)
            subset = _Subset(engine, train, [summaries[number] for number in train])
            sizes = [summaries[number].n_rows for number in held_out]
            end = None
            for C in Cs.tolist():
                model = clone(final).set_params(C=C, tol=self.cv_tol, checkpoint=None, resume=None)
                model.n_features_in_, model._quiet = final.n_features_in_, True
                end = model._fit(subset, runs[-1], seed, (None, None, end))
                scored = (model._predictor(), final.n_features_in_, self.scoring)
                scores = engine.each(held_out, _score, *scored)
                row["score"].append(float(np.average(scores, weights=sizes)))
                for name in FIT_COLUMNS:
                    row[name].append(getattr(model, f"{name}_"))
                n_fits += 1
                if callback is not None:
                    seconds = time.monotonic() - start
                    callback(n_fits, seconds, model.objective_, model.dual_objective_)
            engine.each(train, _forget, runs[-1])
            for name, values in row.items():
                results[name].append(values)
        return {name: np.array(values) for name, values in results.items()}

    def _store(self, Cs: FloatArray, results: dict[str, NDArray[Any]]) -> None:
        store_choice(self, Cs, results)
        short = ~results["converged"]
        if short.any():
            warn_user(
                f"{short.sum()} of {short.size} fits of the folds stopped above cv_tol="
                f"{self.cv_tol:.2g}; raise the estimator's max_iter or cv_tol, or lower Cs"
            )


@dataclass(frozen=True)
class _Subset:
    """Engine that fits a subset of the partitions held by another engine."""

    engine: Engine
    numbers: list[int]
    summaries: list[Summary]

    def describe(self, fingerprints: bool) -> list[Summary]:
        """Return the known summaries of these partitions."""
        return self.summaries

    def solve(
        self, numbers: list[int], plan: Plan, order: Order, consensus: FloatArray
    ) -> Solution:
        """Run one round on these partitions."""
        return self.engine.solve([self.numbers[n] for n in numbers], plan, order, consensus)


def _labels(summaries: list[Summary], numbers: list[int]) -> list[Any]:
    if not numbers:
        return []
    labels = read_sequences("y", [summaries[number].labels for number in numbers])
    found: list[Any] = sorted_classes("y", labels)[0].tolist()
    return found


def _forget(part: Part, run: str) -> None:
    """On the worker that holds this partition, drop the states of a run."""
    forget(run)


def _score(part: Part, model: Any, n_features: int, scoring: Any) -> float:
    """Score a model on the rows of a partition."""
    rows, labels = part.X, part.y
    if part.columns is not None:
        rows = widened(rows, part.columns, n_features)
    if scoring in (None, "accuracy"):
        return float(np.mean(model.predict(rows) == labels))
    if isinstance(scoring, str) and scoring == "neg_log_loss":
        # scikit-learn's scorer does not know the classes that are missing in this partition.
        codes = class_codes(model.classes_, labels)
        return float(log_softmax(model._scores(rows), axis=1)[np.arange(len(codes)), codes].mean())
    return float(check_scoring(model, scoring)(model, rows, labels))
