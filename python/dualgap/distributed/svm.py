"""Multi-category SVMs for data larger than one machine's memory: consensus training.

`ConsensusSVC` uses the alternating direction method of multipliers (Boyd et al. 2011, section 7.1).
Each partition solves a subproblem, warm-started from the previous round, and has a multiplier that
drives its weights to the consensus. Dask needs the extra ``distributed``, Ray the extra ``ray``,
Spark the extra ``spark``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import SubproblemSolver, check_choice
from dualgap._estimator import Callback, ordered
from dualgap._estimator.probabilities import no_probabilities, without_probabilities
from dualgap._estimator.settings import margin_record
from dualgap._validation import FloatArray, regularization_of
from dualgap.distributed._base import PartitionedClassifier
from dualgap.distributed._engine import Engine
from dualgap.distributed._partition import Summary
from dualgap.distributed._plan import VERSION, Plan
from dualgap.distributed._rounds import (
    COLUMNS,
    Absent,
    Run,
    Settings,
    checkpoint_folders,
    null_objective,
    resume,
    train,
)
from dualgap.distributed._scales import column_scales
from dualgap.losses import core_loss
from dualgap.multiclass._linear import LinearClassifier
from dualgap.multiclass.svm import MulticlassSVC

__all__ = ["ConsensusSVC"]

_PENALTY = 10.0
"""Initial penalty, in units of lambda."""


@ordered
@without_probabilities(no_probabilities("dualgap.ConsensusLogisticRegression"))
@dataclass(kw_only=True, eq=False, repr=False)
class ConsensusSVC(PartitionedClassifier, LinearClassifier):
    """`MulticlassSVC` trained on partitions, on the workers of a cluster or on threads.

    The objective is the same as in `MulticlassSVC`. A partition with a share S of the total weight
    has the regulariser ``S lambda/2 ||w||^2`` and the penalty ``S rho/2 ||w - w_bar||^2``. The
    scale of `rho` relative to ``lambda = 1 / (C * total weight)`` is thus independent of the number
    of partitions, and empty partitions have no effect. In each round the partitions receive the
    consensus, a vector of n_classes x n_features numbers, and return a sum of the same size; sparse
    partitions omit their empty columns. Rows and dual variables stay in place, in files if they
    exceed a worker's memory.

    Parameters
    ----------
    loss, C, smoothing, fit_intercept, intercept_scaling, class_weight
        As in `MulticlassSVC`. A `StructuredHinge` must have costs per label, not per row.
        ``class_weight="balanced"`` counts the labels of all partitions.
    solver : {"block-descent", "sequential-dual"}, default="block-descent"
        Solver of the subproblems; "sequential-dual" is the method of Keerthi et al. (2008).
    rho : float, optional
        Initial penalty; by default ``10 lambda``. Not used with a single partition.
    adapt_rho : bool, default=True
        Whether to double or halve `rho` in the first 100 rounds if the ratio of the relative primal
        residual to the relative dual residual is not between 0.05 and 0.5 (Boyd et al., 3.4.1).
        Fits with a fixed penalty needed the fewest rounds when the ratio was in this range.
    relaxation : float, default=1.6
        Over-relaxation, between 1 and 1.8 (Boyd et al., 3.4.3).
    n_partitions : int, optional
        Number of partitions of arrays in memory (by default one per thread) or of files (by default
        one per file). Dask collections keep their own partitions.
    client : distributed.Client, str or SparkSession, optional
        Client of a Dask cluster, or the address of its scheduler; "ray" for the Ray cluster of this
        process; a SparkSession. None uses the current client for Dask collections, and threads
        of this process for other data.
    max_passes : int, default=20
        Maximum number of solver epochs per round (or of passes, for "sequential-dual").
    tol : float, default=1e-3
        Duality gap of the whole problem at which the fit has converged, relative to the objective.
        The objective is then at most ``1 + tol / (1 - tol)`` times its minimum. A gap no larger
        than rounding error counts as 0 for any positive `tol`.
    max_iter : int, default=1000
        Maximum number of rounds. A resumed fit that has already reached this number still runs one
        more round, because a certificate is never read from a file.
    checkpoint : path or URL, optional
        Folder for checkpoints, shared by all workers. It must not contain the checkpoint of another
        fit. If a round cannot be written, a RuntimeWarning is issued and the fit continues. Spark
        requires this folder.
    checkpoint_interval : float, default=30.0
        Minimum number of seconds between two checkpoints.
    resume : path or URL, optional
        Folder with the checkpoint of an earlier fit to the same data with the same parameters,
        which this fit continues.
    n_jobs : int, optional
        Number of threads if there is no client; None and -1 mean all cores. The model depends on
        the number of partitions, but not on the number of threads.
    random_state : int, RandomState or None, default=None
        Seed for the order of the rows.
    verbose : int, optional
        Progress on stderr. None: after two seconds, a bar with the gap and the remaining time, on a
        terminal only. 0: nothing. 1: the bar from the start; without a terminal, one line per
        round, at most one per second.
    callback : callable, optional
        Called after each round as ``callback(epoch, seconds, objective, dual_objective)``. The fit
        stops if it returns a true value.

    Attributes
    ----------
    coef_, intercept_, classes_, n_iter_, objective_, dual_objective_, duality_gap_, \
            relative_gap_, null_objective_, converged_, certificate_, n_features_in_, \
            feature_names_in_
        As in `MulticlassSVC`, for the whole problem. The model is the consensus with the smallest
        objective; ``dual_objective_`` is the largest bound found.
    history_ : dict of ndarray
        Values of each round: epoch, seconds, objective (at the consensus at the start of the
        round), dual_objective, gap (of the best values so far), primal_residual, dual_residual and
        rho (NaN in Newton rounds), passes and solve_seconds (both of the slowest partition).
    n_partitions_ : int
        Number of partitions with rows of positive weight.

    Notes
    -----
    In each round, the certificate costs two passes over the rows: one for the primal value, and one
    for the weights that the dual variables of all partitions define. Each partition also returns
    its part of these weights.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualgap.distributed import ConsensusSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ConsensusSVC(n_partitions=3, tol=1e-2).fit(X, y)
    >>> model.converged_
    True
    """

    rho: float | None = None
    adapt_rho: bool = True
    relaxation: float = 1.6
    max_passes: int = 20
    solver: SubproblemSolver = "block-descent"

    def _fit(
        self, engine: Engine, run_id: str, seed: int, given: tuple[Any, Callback | None, Any]
    ) -> Run:
        X, callback, start = given
        summaries = engine.describe(self.checkpoint is not None or self.resume is not None)
        self._merge(summaries)
        table, factors = self._count(summaries)
        counts = table.sum(axis=1)
        total = float(counts.sum())
        if not total > 0.0:
            msg = "sample_weight: at least one weight must be positive"
            raise ValueError(msg)
        lam = self._lambda = regularization_of("C", self.C, counts, len(counts))
        # Partitions of zero weight are skipped.
        numbers = np.flatnonzero(counts > 0.0).tolist()
        self.n_partitions_ = len(numbers)
        rho = 0.0 if len(numbers) == 1 else _PENALTY * lam if self.rho is None else float(self.rho)
        problem = margin_record(self, core_loss(self.loss))
        n_weights = len(self.classes_) * (self.n_features_in_ + bool(problem["bias"]))
        identity = self._identity({**problem, "lambda": lam}, summaries, factors)
        run = Run(np.zeros(n_weights), rho, lam)
        if rho > 0.0:
            run.absent = self._absent([summaries[n] for n in numbers], counts[numbers] / total)
        if start is not None:
            _start(run, start, null_objective(problem, table.sum(axis=0)))
        kept = run_id
        if self.resume is not None:
            kept = resume(os.fspath(self.resume), identity, run)
            run.null_objective = null_objective(problem, table.sum(axis=0))
        folder, source = checkpoint_folders(self.checkpoint, self.resume)
        plan = Plan(
            run=run_id,
            kept=kept,
            version=VERSION,
            classes=self.classes_,
            factors=factors,
            total=total,
            n_features=self.n_features_in_,
            problem=problem,
            regularization=lam,
            relaxation=float(self.relaxation),
            max_passes=int(self.max_iter if len(numbers) == 1 else self.max_passes),
            solver=self.solver,
            seed=seed,
            folder=folder,
            source=source,
            scales=column_scales(summaries, self.n_features_in_, problem["bias"], rho),
        )
        settings = Settings(
            tol=float(self.tol),
            n_partitions=len(numbers),
            max_rounds=int(self.max_iter),
            adapt=bool(self.adapt_rho),
            interval=float(self.checkpoint_interval),
            callback=callback,
            identity=identity,
        )
        train(engine, numbers, plan, settings, run)
        self._store(run, plan, X)
        return run

    def _store(self, run: Run, plan: Plan, X: Any) -> None:
        columns = np.array(run.rows).reshape(-1, len(COLUMNS)).T
        history: dict[str, NDArray[Any]] = dict(zip(COLUMNS, columns, strict=True))
        history["epoch"] = history["epoch"].astype(np.int64)
        assert run.best is not None
        self._store_weights(plan.unscaled(run.best).reshape(len(self.classes_), -1))
        result = {
            "history": history,
            "objective": run.primal,
            "dual_objective": run.dual,
            "null_objective": run.null_objective,
            "outcome": run.outcome,
        }
        self._store_run(result, X)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("solver", self.solver, SubproblemSolver)
        if not 1.0 <= self.relaxation <= 1.8:
            msg = f"relaxation: must be between 1 and 1.8, got {self.relaxation!r}"
            raise ValueError(msg)
        if core_loss(self.loss)["costs_per_row"]:
            msg = "loss: ConsensusSVC does not support costs per row; use costs per label"
            raise ValueError(msg)

    def _absent(self, summaries: list[Summary], shares: FloatArray) -> Absent | None:
        """Return the contribution of sparse partitions to the columns in which they are empty."""
        missing = np.zeros(self.n_features_in_ + bool(self.fit_intercept))
        for summary, share in zip(summaries, shares, strict=True):
            if summary.columns is not None:
                lacks = np.ones(self.n_features_in_, dtype=bool)
                lacks[summary.columns] = False
                missing[: self.n_features_in_][lacks] += share
        zero = np.zeros(len(self.classes_) * len(missing))
        return Absent(missing, zero) if missing.any() else None

    def _predictor(self) -> MulticlassSVC:
        """Return an estimator with only the fitted model, small enough to send with each task."""
        check_is_fitted(self)
        model = MulticlassSVC()
        for name in ("coef_", "intercept_", "classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model


def _start(run: Run, end: Run, null_objective: float) -> None:
    """Start a run at the dual point that partitions keep from the end of a run with another C.

    The multipliers remain valid. The weights of this dual point are proportional to C.
    """
    assert end.best is not None
    ratio = run.regularization / end.regularization
    run.consensus, run.rho, run.null_objective = end.best / ratio, end.rho * ratio, null_objective
    if run.absent is not None and end.absent is not None:
        run.absent.multiplier = end.absent.multiplier
