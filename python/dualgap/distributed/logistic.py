"""Logistic regression for data larger than one machine's memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap import _core
from dualgap._estimator import Callback, ordered
from dualgap._validation import FloatArray, regularization_of
from dualgap.distributed._base import PartitionedClassifier
from dualgap.distributed._engine import Engine
from dualgap.distributed._logistic_checkpoints import Checkpoints, resume_logistic
from dualgap.distributed._partition import Summary
from dualgap.distributed._plan import VERSION, LogisticOrder, Order, Plan
from dualgap.distributed._rounds import checkpoint_folders
from dualgap.distributed._sources import is_dask
from dualgap.logistic._model import LogisticClassifier
from dualgap.logistic._present import PresentClasses
from dualgap.logistic._rounds import (
    COLUMNS,
    NewtonRounds,
    Problem,
    Sums,
    class_spreads,
    null_objective,
)
from dualgap.logistic.regression import LogisticRegression

__all__ = ["ConsensusLogisticRegression"]


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class ConsensusLogisticRegression(PartitionedClassifier, LogisticClassifier):
    """`LogisticRegression` trained on partitions, on the workers of a cluster or on threads.

    The objective is the same as in `LogisticRegression`. In every round, all partitions evaluate
    the same weights and return a vector of the same size; their sum gives the gradient, or the
    product of the Hessian with a direction. Newton's method solves its systems by conjugate
    gradients with such products, so the number of iterations does not depend on the number of
    partitions. Rows stay in place, in files if they exceed a worker's memory.

    Parameters
    ----------
    C, fit_intercept, class_weight
        As in `LogisticRegression`. ``class_weight="balanced"`` counts the labels of all partitions.
    n_partitions : int, optional
        Number of partitions of arrays in memory (by default one per thread) or of files (by default
        one per file). Dask collections keep their own partitions.
    client : distributed.Client, str or SparkSession, optional
        Client of a Dask cluster, or the address of its scheduler; "ray" for the Ray cluster of this
        process; a SparkSession. None uses the current client for Dask collections, and threads
        of this process for other data.
    tol : float, default=1e-3
        Duality gap of the whole problem at which the fit has converged, relative to the objective.
        The objective is then at most ``1 + tol / (1 - tol)`` times its minimum. A gap no larger
        than rounding error counts as 0 for any positive `tol`.
    max_iter : int, default=1000
        Maximum number of iterations; each iteration evaluates the objective of one model. A fit
        whose last ten steps improved neither the objective nor the gap ends earlier. A resumed
        fit that has already reached this number still evaluates one model, because a certificate is
        never read from a file.
    checkpoint : path or URL, optional
        Folder for checkpoints. It must not contain the checkpoint of another fit. If an iteration
        cannot be written, a RuntimeWarning is issued and the fit continues.
    checkpoint_interval : float, default=30.0
        Minimum number of seconds between two checkpoints.
    resume : path or URL, optional
        Folder with the checkpoint of an earlier fit to the same data with the same parameters,
        which this fit continues.
    n_jobs : int, optional
        Number of threads if there is no client; None and -1 mean all cores. The model depends on
        the number of partitions, but not on the number of threads.
    random_state : int, RandomState or None, default=None
        Not used: the fit makes no random choices.
    verbose : int, optional
        Progress on stderr. None: after two seconds, a bar with the gap and the remaining time, on a
        terminal only. 0: nothing. 1: the bar from the start; without a terminal, one line per
        iteration, at most one per second.
    callback : callable, optional
        Called after each iteration as ``callback(epoch, seconds, objective, dual_objective)``. The
        fit stops if it returns a true value.

    Attributes
    ----------
    coef_, intercept_, classes_, n_iter_, objective_, dual_objective_, duality_gap_, \
            relative_gap_, null_objective_, converged_, certificate_, n_features_in_, \
            feature_names_in_
        As in `LogisticRegression`, for the whole problem.
    history_ : dict of ndarray
        Values of each iteration: epoch, seconds, objective, dual_objective, gap (of the best values
        so far) and rounds (exchanges with the partitions so far).
    n_partitions_ : int
        Number of partitions with rows of positive weight.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualgap.distributed import ConsensusLogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ConsensusLogisticRegression(n_partitions=3, tol=1e-6).fit(X, y)
    >>> model.predict_proba(X[:1]).round(3)
    array([[0.982, 0.018, 0.   ]])
    """

    def _fit(
        self, engine: Engine, run_id: str, seed: int, given: tuple[Any, Callback | None, Any]
    ) -> NewtonRounds:
        X, callback, start = given
        summaries = engine.describe(self.checkpoint is not None or self.resume is not None)
        self._merge(summaries)
        table, factors = self._count(summaries)
        counts, class_weights = table.sum(axis=1), table.sum(axis=0)
        if not class_weights.sum() > 0.0:
            msg = "sample_weight: at least one weight must be positive"
            raise ValueError(msg)
        self._lambda = regularization_of("C", self.C, counts, len(counts))
        numbers = np.flatnonzero(counts > 0.0).tolist()
        self.n_partitions_ = len(numbers)
        problem, present = self._problem(summaries, class_weights)
        folder, source = checkpoint_folders(self.checkpoint, self.resume)
        plan = self._plan(run_id, factors, float(counts.sum()))
        run = NewtonRounds(
            problem=problem,
            evaluate=partial(_round, (engine, numbers, plan), (problem, present)),
            certificate=partial(_certificate, problem, len(numbers)),
            spreads=partial(class_spreads, problem),
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            callback=callback,
        )
        entries = {"loss": "logistic", "lambda": self._lambda, "intercept": self.fit_intercept}
        identity = self._identity(entries, summaries, factors)
        weights = np.zeros((problem.n_outputs, self.n_features_in_ + 1))
        if start is not None:
            weights = start.best
        if source is not None:
            weights = resume_logistic(source, identity, run)
        if folder is not None:
            interval = float(self.checkpoint_interval)
            run.save = Checkpoints(folder, identity, interval)
        run.run(weights)
        self._store(run, X, present)
        largest = max(summary.largest_square for summary in summaries)
        # The intercepts of classes without weight have no optimum, so the curvature gives no bound.
        self._store_curvature(run, present is None, largest)
        return run

    def _problem(
        self, summaries: list[Summary], class_weights: FloatArray
    ) -> tuple[Problem, PresentClasses | None]:
        """Return the problem without the classes that cannot be fitted."""
        squares, present = self._squares(summaries), None
        if self.fit_intercept:
            present = PresentClasses.of(class_weights, partial(_sizes, squares))
        if present is not None:
            class_weights = class_weights[present.places]
        problem = Problem(
            C=float(self.C) * (1.0 if present is None else present.scale),
            intercept=bool(self.fit_intercept),
            class_weights=class_weights,
            squares=squares,
            n_rows=sum(summary.n_rows for summary in summaries),
            n_outputs=1 if len(class_weights) == 2 else len(class_weights),
            null_objective=null_objective(len(self.classes_)),
        )
        return problem, present

    def _squares(self, summaries: list[Summary]) -> FloatArray:
        """Return the sum of the squares of each column over all partitions."""
        squares = np.zeros(self.n_features_in_)
        for summary in summaries:
            if summary.n_rows:
                columns = slice(None) if summary.columns is None else summary.columns
                squares[columns] += summary.squares
        return squares

    def _plan(self, run_id: str, factors: FloatArray | None, total: float) -> Plan:
        # There is no constant feature: intercepts are separate, because they are not regularised.
        problem: Any = {"loss": "logistic", "bias": 0.0}
        return Plan(
            run=run_id,
            kept=run_id,
            version=VERSION,
            classes=self.classes_,
            factors=factors,
            total=total,
            n_features=self.n_features_in_,
            problem=problem,
            regularization=float(self._lambda or 0.0),
            relaxation=1.0,
            max_passes=1,
            solver="newton",
            seed=0,
            folder=None,
            source=None,
            scales=None,
        )

    def _store(self, run: NewtonRounds, X: Any, present: PresentClasses | None) -> None:
        columns = np.array(run.rows).reshape(-1, len(COLUMNS)).T
        history: dict[str, NDArray[Any]] = dict(zip(COLUMNS, columns, strict=True))
        for name in ("epoch", "rounds"):
            history[name] = history[name].astype(np.int64)
        assert run.best is not None
        found = np.ascontiguousarray(run.best[:, :-1]), np.ascontiguousarray(run.best[:, -1])
        self.coef_, self.intercept_ = found if present is None else present.expand(*found)
        result = {
            "history": history,
            "objective": run.primal,
            "dual_objective": run.dual,
            "null_objective": run.problem.null_objective,
            "outcome": run.outcome,
        }
        self._store_run(result, X)

    def _store_curvature(self, run: NewtonRounds, known: bool, largest: float) -> None:
        """Store the curvature in the intercepts; `largest` is the largest square of a row."""
        if not self.fit_intercept:
            self._curvature = None
            return
        n_outputs = run.problem.n_outputs if known and len(run.moments) else 0
        matrix = run.moments[: n_outputs**2].reshape(n_outputs, n_outputs)
        self._curvature = {
            "matrix": matrix / run.problem.total,
            "centre": np.zeros(self.n_features_in_),
            # The mean square is at most the largest.
            "mean_square": largest,
            "largest_square": largest,
        }

    def _predictor(self) -> LogisticRegression:
        """Return an estimator with only the fitted model, small enough to send with each task."""
        check_is_fitted(self)
        model = LogisticRegression()
        for name in ("coef_", "intercept_", "classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model

    def predict_proba(self, X: Any) -> Any:
        """Compute the probability of each class; lazily for a Dask collection."""
        if not is_dask(X):
            return super().predict_proba(X)
        return self._lazily("predict_proba", X, np.dtype(np.float64), len(self.classes_))

    def predict_log_proba(self, X: Any) -> Any:
        """Compute the logarithms of the probabilities; lazily for a Dask collection."""
        if not is_dask(X):
            return super().predict_log_proba(X)
        return self._lazily("predict_log_proba", X, np.dtype(np.float64), len(self.classes_))


def _round(
    given: tuple[Engine, list[int], Plan],
    problems: tuple[Problem, PresentClasses | None],
    weights: FloatArray,
    tilt: FloatArray | None,
) -> Sums:
    """Run a round on all partitions."""
    (engine, numbers, plan), (problem, present) = given, problems
    kept = None if present is None else present.numbers
    order = LogisticOrder(problem.C, problem.intercept, tilt, kept)
    found = engine.solve(numbers, plan, Order(0, 0.0, 0.0, 0.0, 0.0, None, logistic=order), weights)
    assert found.sums is not None
    residual, moments = np.split(found.sums, [problem.n_outputs])
    return Sums(
        image=found.image,
        residual=residual,
        # A sum over partitions has one rounding error per partition.
        loss=found.loss * (1.0 + (len(numbers) + 4) * float(np.finfo(np.float64).eps)),
        entropy=found.dual_term,
        distance=found.image_error,
        depth=int(found.image_norm) + len(numbers),
        moments=moments,
    )


def _certificate(
    problem: Problem, n_partitions: int, weights: FloatArray, sums: Sums
) -> tuple[float, float, FloatArray | None]:
    return _core.logistic_certificate(
        {
            "loss": sums.loss,
            "entropy": sums.entropy,
            "distance": sums.distance,
            "depth": sums.depth,
            "moments": sums.moments,
            "residual": sums.residual,
            "image": np.ascontiguousarray(sums.image),
            "sizes": _sizes(problem.squares),
            "n_examples": problem.n_rows + n_partitions,
            "intercept": problem.intercept,
            "class_totals": problem.C * problem.class_weights,
            "model": (np.ascontiguousarray(weights[:, :-1]), weights[:, -1].copy()),
        }
    )


def _sizes(squares: FloatArray) -> FloatArray:
    """Return upper bounds on the largest value of each column, given its sum of squares."""
    return np.asarray(np.sqrt(squares) * (1.0 + 1e-9))
