"""Fits and lazy predictions that all estimators on partitioned data share."""

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

from dualgap._estimator import (
    Callback,
    ScoringClassifier,
    refuse_unused,
    restores_on_error,
    watch,
)
from dualgap._validation import (
    ClassWeight,
    FloatArray,
    check_class_weight,
    check_classes,
    resolve_seed,
)
from dualgap._validation.labels import class_codes, read_sequences, sorted_classes
from dualgap.distributed._engine import Engine
from dualgap.distributed._engines import engine_for
from dualgap.distributed._partition import Summary
from dualgap.distributed._sources import is_dask

__all__ = ["PartitionedClassifier"]


@dataclass(kw_only=True, eq=False, repr=False)
class PartitionedClassifier(ScoringClassifier):
    """A classifier trained on partitions of the data by the workers of a cluster or by threads."""

    C: float = 1.0
    class_weight: ClassWeight = None
    n_partitions: int | None = None
    client: Any = None
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
            If workers have a different version of dualgap, or are lost repeatedly.
        """
        self._check_parameters()
        if self.checkpoint is None and self.resume is None:
            refuse_unused(self, ["checkpoint_interval"], "checkpoint=None")
        seed = resolve_seed(self.random_state)
        engine = engine_for(self, X, y, sample_weight)
        run_id, cancel = uuid.uuid4().hex, True
        try:
            # A resumed run continues the count of an earlier run, so its length is not known.
            stopping = (int(self.max_iter) if self.resume is None else None, float(self.tol))
            data = (X, y, sample_weight) if isinstance(y, np.ndarray) else (None, None, None)
            with watch(self, stopping, data=data) as callback:
                self._fit(engine, run_id, seed, (X, callback, None))
            cancel = False
        finally:
            engine.close(run_id, cancel=cancel)
        return self

    def _fit(
        self, engine: Engine, run_id: str, seed: int, given: tuple[Any, Callback | None, Any]
    ) -> Any:
        """Fit on the partitions of an engine, and return the end of the run.

        `given` has the rows, the callback, and the starting point: the end of a run with another C
        but the same `run_id` and partitions, or None.
        """
        raise NotImplementedError

    def _predictor(self) -> Any:
        """Return an estimator with only the fitted model, small enough to send with each task."""
        raise NotImplementedError

    def _identity(
        self, problem: dict[str, Any], summaries: list[Summary], factors: FloatArray | None
    ) -> dict[str, Any]:
        """Return the values that a resumed fit must share with the original fit.

        The values have the types that a round trip through JSON gives them.
        """
        classes = self.classes_
        # JSON has no dates.
        entries: dict[str, Any] = {
            **problem,
            "classes": classes.astype(str) if classes.dtype.kind in "mM" else classes,
        }
        entries |= {"class_weight": factors, "n_features": self.n_features_in_}
        entries["n_rows"] = [summary.n_rows for summary in summaries]
        entries["rows, labels and weights"] = [summary.fingerprint for summary in summaries]
        result: dict[str, Any] = json.loads(json.dumps(entries, default=np.ndarray.tolist))
        return result

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
            lacking = {name for own in names for each in names for name in own if name not in each}
            which = f"; some lack {min(lacking)!r}" if lacking else " in the same order"
            msg = f"X: all partitions must have the same columns{which}"
            raise ValueError(msg)
        known = getattr(self, "n_features_in_", None)
        self.n_features_in_ = max(widths) if known is None else known
        if names and known is None:
            self.feature_names_in_ = np.array(names.pop(), dtype=object)

    def _count(self, summaries: list[Summary]) -> tuple[FloatArray, FloatArray | None]:
        """Return the total weight of each class in each partition, and the factor of each class."""
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

    def decision_function(self, X: Any) -> Any:
        """Compute the score of each class of each row; lazily for a Dask collection."""
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
    model: Any, method: str, arguments: tuple[int, ...], nothing: NDArray[Any], X: Any
) -> Any:
    return getattr(model, method)(X, *arguments) if X.shape[0] else nothing


def _call_table(call: Callable[[Any], Any], kind: Any, X: Any) -> Any:
    return kind(call(X), index=X.index)
