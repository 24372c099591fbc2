"""Choice of the engine for the data and the client of a fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sklearn.utils.multiclass import check_classification_targets

from dualgap._validation import check_rows_and_targets, check_weights, resolve_threads
from dualgap.distributed._dask import Cluster
from dualgap.distributed._engine import Engine
from dualgap.distributed._ray import Actors, ray_of_this_process
from dualgap.distributed._sources import (
    as_paths,
    dask_blocks,
    file_sources,
    is_dask,
    part_of,
    same,
    split,
)
from dualgap.distributed._spark import Executors, is_spark
from dualgap.distributed._threads import Threads


def engine_for(model: Any, X: Any, y: Any, sample_weight: Any) -> Engine:
    """Return an engine with these data, for a fit of `model`."""
    if is_dask(X):
        client = _dask_client(model.client)
        _forget_names(model)
        blocks = dask_blocks(X, y, sample_weight)
        return Cluster(client, [partial(_compute, client, *b, n) for n, b in enumerate(blocks)])
    client = _client(model.client)
    paths = as_paths(X)
    if paths is not None:
        _forget_names(model)
        files = file_sources(paths, y, sample_weight, model.n_partitions, None)
        return _of_sources(client, files, model)
    if is_spark(client):
        msg = (
            "X: with Spark, must be the paths of Parquet or LIBSVM files that all executors can "
            f"read, got {type(X).__name__}; write a table with table.write.parquet(...)"
        )
        raise TypeError(msg)
    if isinstance(X, list | tuple) and X and getattr(X[0], "ndim", 0) == 2:
        msg = (
            "X: must be one array, got a list of arrays; pass numpy.concatenate(X) and "
            f"numpy.concatenate(y), and n_partitions={len(X)}"
        )
        raise TypeError(msg)
    X, y = check_rows_and_targets(model, X, y, single=True)
    check_classification_targets(y)
    weights = check_weights(sample_weight, X)
    cores = _cores(client, model.n_jobs)
    parts = split(X, y, weights, min(model.n_partitions or max(cores, 1), X.shape[0]))
    if client is None or _is_ray(client):
        return _of_sources(client, [partial(same, part) for part in parts], model)
    return Cluster(client, [partial(client.scatter, part, hash=False) for part in parts])


def _of_sources(client: Any, sources: Sequence[Callable[[], Any]], model: Any) -> Engine:
    if client is None:
        return Threads(sources, resolve_threads(model.n_jobs))
    if _is_ray(client):
        return Actors(client, sources)
    if is_spark(client):
        return Executors(client, sources, model.checkpoint)
    return Cluster(client, [partial(client.submit, source, pure=False) for source in sources])


def _is_ray(client: Any) -> bool:
    return getattr(client, "__name__", None) == "ray"


def _cores(client: Any, n_jobs: int | None) -> int:
    if client is None:
        return resolve_threads(n_jobs)
    if _is_ray(client):
        return int(client.cluster_resources().get("CPU", 1))
    return int(sum(client.nthreads().values()))


def _client(given: Any) -> Any:
    """Return the client: the module ``ray``, a SparkSession, a Dask client, or None for threads."""
    if given is None or is_spark(given):
        return given
    return (
        ray_of_this_process() if isinstance(given, str) and given == "ray" else _dask_client(given)
    )


def _dask_client(given: Any) -> Any:
    try:
        import distributed
    except ImportError as error:
        msg = 'client: Dask is not installed; pip install "dualgap[distributed]"'
        raise ImportError(msg) from error
    if given is None:
        try:
            return distributed.get_client()
        except ValueError as error:
            msg = "client: no cluster is running; start one with distributed.Client(...)"
            raise ValueError(msg) from error
    if isinstance(given, str):
        if given == "ray":
            msg = "client: Dask collections need a Dask client, got 'ray'; pass arrays or paths"
            raise ValueError(msg)
        connect: Any = distributed.Client
        return connect(given, set_as_default=False)
    if not hasattr(given, "nthreads"):
        msg = (
            "client: must be a Dask client, the address of a Dask scheduler, 'ray' or a "
            f"SparkSession, got {type(given).__name__}; for a Dask cluster, pass Client(cluster)"
        )
        raise TypeError(msg)
    return given


def _forget_names(model: Any) -> None:
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            delattr(model, name)


def _compute(client: Any, X: Any, y: Any, weights: Any, number: int) -> Any:
    """Start the computation of a block of Dask collections."""
    from dask.delayed import delayed

    return client.compute(delayed(part_of, pure=False)(X, y, weights, number))
