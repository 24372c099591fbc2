"""Multi-category SVMs for data larger than one machine's memory: consensus training.

`ConsensusSVC` uses the alternating direction method of multipliers (Boyd et al. 2011, section 7.1).
Each partition solves a subproblem with block descent, warm-started from the previous round, and
has a multiplier that drives its weights to the consensus. Dask needs the extra ``distributed``, Ray
the extra ``ray``.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap import _core
from dualgap._choices import SubproblemSolver, check_choice
from dualgap._estimator import Callback, ordered, refuse_unused, restores_on_error, watch
from dualgap._estimator.settings import margin_record
from dualgap._validation import (
    FloatArray,
    check_class_weight,
    check_classes,
    regularization_of,
    resolve_seed,
)
from dualgap._validation.labels import class_codes, read_sequences, sorted_classes
from dualgap.distributed._engine import Engine
from dualgap.distributed._engines import engine_for
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
from dualgap.distributed._sources import is_dask
from dualgap.losses import core_loss
from dualgap.multiclass._linear import LinearClassifier
from dualgap.multiclass.svm import MulticlassSVC

__all__ = ["ConsensusSVC"]

_PENALTY = 10.0
"""Initial penalty, in units of lambda."""


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class ConsensusSVC(LinearClassifier):
    """`MulticlassSVC` trained on partitions, on the workers of a cluster or on threads.

    The objective is that of `MulticlassSVC`. A partition with a share S of the total weight has
    the regulariser ``S lambda/2 ||w||^2`` and the penalty ``S rho/2 ||w - w_bar||^2``. The scale of
    `rho` relative to ``lambda = 1 / (C * total weight)`` is thus independent of the number of
    partitions, and empty partitions have no effect. In each round the partitions receive the
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
        Whether to double or halve `rho` during the first 100 rounds when the ratio of the relative
        primal residual to the relative dual residual is outside 0.05 to 0.5 (Boyd et al., 3.4.1).
        Fits with a fixed penalty needed the fewest rounds when the ratio was in this range.
    relaxation : float, default=1.6
        Over-relaxation, between 1 and 1.8 (Boyd et al., 3.4.3).
    n_partitions : int, optional
        Number of partitions of arrays in memory (by default one per thread) or of files (by default
        one per file). Dask collections keep their own partitions.
    client : distributed.Client or str, optional
        Client of a Dask cluster, or the address of its scheduler; "ray" for the Ray cluster of this
        process. None uses the current client for Dask collections, and threads of this process for
        other data.
    max_passes : int, default=20
        Maximum number of solver epochs per round (or of passes, for "sequential-dual").
    tol : float, default=1e-3
        Duality gap of the whole problem at which the fit has converged, relative to the objective.
        The objective is then at most ``1 + tol / (1 - tol)`` times its minimum. A gap no larger
        than rounding error counts as 0 for any positive `tol`.
    max_iter : int, default=1000
        Maximum number of rounds. A resumed fit that has reached it still runs one round, because
        its certificate is computed, never read from a file.
    checkpoint : path or URL, optional
        Folder for checkpoints, shared by all workers. It must not contain the checkpoint of another
        fit. If a round cannot be written, a RuntimeWarning is issued and the fit continues.
    checkpoint_interval : float, default=30.0
        Minimum number of seconds between two checkpoints.
    resume : path or URL, optional
        Folder with the checkpoint of an earlier fit of the same data and parameters, to continue.
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
    The certificate costs two passes over the rows per round: one for the primal value, and one for
    the weights given by the dual variables of all partitions together, which are sent as well.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualgap.distributed import ConsensusSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ConsensusSVC(n_partitions=3, tol=1e-2).fit(X, y)
    >>> model.converged_
    True
    """

    C: float = 1.0
    rho: float | None = None
    adapt_rho: bool = True
    relaxation: float = 1.6
    n_partitions: int | None = None
    client: Any = None
    max_passes: int = 20
    solver: SubproblemSolver = "block-descent"
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_interval: float = 30.0
    resume: str | os.PathLike[str] | None = None

    n_partitions_: int = field(init=False)

    def __getstate__(self) -> dict[str, Any]:
        # A connection cannot be pickled to another process.
        return {**super().__getstate__(), "client": None}

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params(deep=False))

    @restores_on_error
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like, CSR matrix, Dask array or dataframe, or paths
            Training rows, or Parquet or LIBSVM (1-based) files that every worker can read, also in
            object stores (``s3://...``).
        y : array-like, Dask collection or str, optional
            Class labels of any type, partitioned like `X`; the name of a column if `X` is a
            dataframe or Parquet files; None for LIBSVM files.
        sample_weight : like `y`, optional
            Weight of each row's loss.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters are invalid; the message names the argument.
        RuntimeError
            If workers have another version of dualgap, or are lost repeatedly.
        """
        self._check_consensus_parameters()
        seed = resolve_seed(self.random_state)
        engine = engine_for(self, X, y, sample_weight)
        run_id, cancel = uuid.uuid4().hex, True
        try:
            # A resumed run continues counting rounds.
            stopping = (int(self.max_iter) if self.resume is None else None, float(self.tol))
            data = (X, y, sample_weight) if isinstance(y, np.ndarray) else (None, None, None)
            with watch(self, stopping, data=data) as callback:
                self._fit(engine, run_id, seed, (X, callback))
            cancel = False
        finally:
            engine.close(run_id, cancel=cancel)
        return self

    def _fit(
        self, engine: Engine, run_id: str, seed: int, given: tuple[Any, Callback | None]
    ) -> None:
        X, callback = given
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
        identity = self._identity(problem, lam, summaries, factors)
        run = Run(np.zeros(n_weights), rho)
        if rho > 0.0:
            run.absent = self._absent([summaries[n] for n in numbers], counts[numbers] / total)
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

    def _check_consensus_parameters(self) -> None:
        self._check_parameters()
        check_choice("solver", self.solver, SubproblemSolver)
        if not 1.0 <= self.relaxation <= 1.8:
            msg = f"relaxation: must be between 1 and 1.8, got {self.relaxation!r}"
            raise ValueError(msg)
        if self.checkpoint is None and self.resume is None:
            refuse_unused(self, ["checkpoint_interval"], "checkpoint=None")
        if core_loss(self.loss)["costs_per_row"]:
            msg = "loss: ConsensusSVC does not support costs per row; use costs per label"
            raise ValueError(msg)

    def _forget_names(self) -> None:
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                delattr(self, name)

    def _merge(self, summaries: list[Summary]) -> None:
        """Set classes and features from the summaries of all partitions."""
        labels = [summary.labels for summary in summaries if len(summary.labels)]
        if not labels:
            msg = "X: must have at least one row, but all partitions are empty"
            raise ValueError(msg)
        # Partitions may have labels of different types.
        self.classes_, _ = sorted_classes("y", read_sequences("y", labels))
        if self.classes_.dtype.kind == "f" and (self.classes_ != np.rint(self.classes_)).any():
            msg = "y: must be class labels, got non-integer numbers"
            raise ValueError(msg)
        check_classes(self.classes_)
        widths = {summary.n_features for summary in summaries if summary.n_rows}
        names = {summary.names for summary in summaries if summary.n_rows and summary.names}
        if len(names) > 1:
            msg = "X: all partitions must have the same columns"
            raise ValueError(msg)
        known = getattr(self, "n_features_in_", None)
        self.n_features_in_ = max(widths) if known is None else known
        if names and known is None:
            self.feature_names_in_ = np.array(names.pop(), dtype=object)

    def _count(self, summaries: list[Summary]) -> tuple[FloatArray, FloatArray | None]:
        """Return the weight of each partition and class, and the factor of each class."""
        table = np.zeros((len(summaries), len(self.classes_)))
        for row, summary in zip(table, summaries, strict=True):
            if len(summary.labels):
                row[class_codes(self.classes_, summary.labels)] = summary.label_weights
        if self.class_weight is None:
            return table, None
        counts = table.sum(axis=0)
        if self.class_weight == "balanced":
            factors = np.divide(
                counts.sum() / len(counts), counts, out=np.zeros_like(counts), where=counts > 0
            )
        else:
            check_class_weight(self.class_weight)
            strange = [label for label in self.class_weight if label not in set(self.classes_)]
            if strange:
                msg = f"class_weight: the class {strange[0]!r} does not occur in y"
                raise ValueError(msg)
            factors = np.array([float(self.class_weight.get(c, 1.0)) for c in self.classes_])
        return table * factors, factors

    def _absent(self, summaries: list[Summary], shares: FloatArray) -> Absent | None:
        """Return the contribution of sparse partitions to columns without entries there."""
        missing = np.zeros(self.n_features_in_ + bool(self.fit_intercept))
        for summary, share in zip(summaries, shares, strict=True):
            if summary.columns is not None:
                lacks = np.ones(self.n_features_in_, dtype=bool)
                lacks[summary.columns] = False
                missing[: self.n_features_in_][lacks] += share
        zero = np.zeros(len(self.classes_) * len(missing))
        return Absent(missing, zero) if missing.any() else None

    def _identity(
        self,
        problem: _core._MarginRecord,
        lam: float,
        summaries: list[Summary],
        factors: FloatArray | None,
    ) -> dict[str, Any]:
        """Return the values that must be equal for a fit to be resumed, as read back from JSON."""
        entries: dict[str, Any] = {**problem, "lambda": lam, "classes": self.classes_}
        entries |= {"class_weight": factors, "n_features": self.n_features_in_}
        entries["n_rows"] = [summary.n_rows for summary in summaries]
        entries["rows, labels and weights"] = [summary.fingerprint for summary in summaries]
        result: dict[str, Any] = json.loads(json.dumps(entries, default=np.ndarray.tolist))
        return result

    def _predictor(self) -> MulticlassSVC:
        """Return only the fitted model, small enough to send with each task."""
        check_is_fitted(self)
        model = MulticlassSVC()
        for name in ("coef_", "intercept_", "classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model

    def decision_function(self, X: Any) -> Any:
        """Compute the score of each class as in `MulticlassSVC`; lazily for a Dask collection."""
        if not is_dask(X):
            return super().decision_function(X)
        width = 0 if len(self.classes_) == 2 else len(self.classes_)
        return self._lazily("decision_function", X, np.dtype(np.float64), width)

    def predict(self, X: Any) -> Any:
        """Predict the highest-scoring class (the first if tied); lazily for a Dask collection."""
        if not is_dask(X):
            return super().predict(X)
        return self._lazily("predict", X, self.classes_.dtype, 0)

    def predict_top_k(self, X: Any, k: int) -> Any:
        """Predict the `k` highest-scoring classes, best first; lazily for a Dask collection."""
        if not is_dask(X):
            return super().predict_top_k(X, k)
        return self._lazily("predict_top_k", X, self.classes_.dtype, k, k)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Compute the accuracy, also for Dask collections."""
        if is_dask(X):
            from dask.base import compute

            evaluate: Any = compute
            predicted, y = map(np.asarray, evaluate(self.predict(X), y))
            weights = None if sample_weight is None else np.asarray(sample_weight)
            return float(np.average((predicted == y).astype(np.float64), weights=weights))
        return float(super().score(X, y, sample_weight))

    def _lazily(self, method: str, X: Any, dtype: Any, width: int, *arguments: int) -> Any:
        nothing = np.empty((0, width) if width else 0, dtype)
        call = partial(_call, self._predictor(), method, arguments, nothing)
        if hasattr(X, "map_blocks") and hasattr(X, "rechunk"):
            X = X.rechunk({1: -1})
            shape: dict[str, Any] = {"drop_axis": 1}
            if width:
                shape = {"chunks": (X.chunks[0], (width,))}
            return X.map_blocks(call, dtype=dtype, meta=nothing, **shape)
        import pandas as pd

        kind: Any = partial(pd.DataFrame, columns=range(width)) if width else pd.Series
        meta = kind(nothing)
        return X.map_partitions(partial(_call_table, call, kind), meta=meta)


def _call(
    model: MulticlassSVC, method: str, arguments: tuple[int, ...], nothing: NDArray[Any], X: Any
) -> Any:
    return getattr(model, method)(X, *arguments) if X.shape[0] else nothing


def _call_table(call: Callable[[Any], Any], kind: Any, X: Any) -> Any:
    return kind(call(X), index=X.index)
