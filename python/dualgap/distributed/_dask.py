"""Partitions on the workers of a Dask cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from dualgap._validation import FloatArray
from dualgap.distributed._engine import tree
from dualgap.distributed._partition import Summary, summarize
from dualgap.distributed._plan import VERSION, Order, Plan, Solution
from dualgap.distributed._worker import add, forget, solve, worker_version

_TOO_OFTEN = "workers were lost {} times in a row; check that they have enough memory"


def _lost() -> tuple[type[BaseException], ...]:
    """Return the exceptions that Dask raises when a worker is lost."""
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    return (KilledWorker, CancelledError, CommClosedError, OSError)


def _reraise_other_errors(error: BaseException) -> None:
    """Reraise an OSError that a retry cannot fix: one that is not about a connection."""
    about_connections = isinstance(error, ConnectionError | TimeoutError)
    if isinstance(error, OSError) and error.errno is not None and not about_connections:
        raise error


def _gone(futures: list[Any]) -> bool:
    """Return whether Dask has given up on one of the futures, which may then never be done."""
    return any(future.status in ("lost", "cancelled") for future in futures)


class Cluster:
    """Partitions on the workers of a Dask cluster.

    A partition's task is pinned to the worker that holds its rows and dual variables. If that
    worker is lost, the round is repeated: Dask reads the rows again on another worker, where the
    dual variables start from zero or from a checkpoint.
    """

    _ATTEMPTS = 20
    _PATIENCE = 60.0

    def __init__(self, client: Any, load: Sequence[Callable[[], Any]]) -> None:
        self._client = client
        self._load = load
        self._parts: list[Any] = []
        self._open: list[Any] = []
        self._attempt = 0

    def describe(self, fingerprints: bool) -> list[Summary]:
        """Read all partitions on the workers and summarise them."""
        lost = _lost()
        last: BaseException | None = None
        for _ in range(self._ATTEMPTS):
            try:
                self._check_versions()
                self._parts = [load() for load in self._load]
                summaries = self._client.map(
                    summarize, self._parts, fingerprint=fingerprints, pure=False
                )
                self._open = [*self._parts, *summaries]
                result: list[Summary] = self._client.gather(summaries)
            except lost as error:
                _reraise_other_errors(error)
                last = error
                self._cancel()
                time.sleep(0.5)
            else:
                self._open = []
                return result
        raise RuntimeError(_TOO_OFTEN.format(self._ATTEMPTS)) from last

    def solve(
        self, numbers: list[int], plan: Plan, order: Order, consensus: FloatArray
    ) -> Solution:
        """Run one round; repeat it if workers are lost during the round."""
        total: Solution = self._repeat(numbers, lambda: self._try(numbers, plan, order, consensus))
        return total

    def each(self, numbers: list[int], work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run `work` on the workers that hold the partitions; repeat it if workers are lost."""

        def attempt() -> list[Any] | None:
            parts = [self._parts[number] for number in numbers]
            homes = self._homes(numbers, parts)
            if homes is None:
                return None
            tasks = [
                self._client.submit(work, part, *arguments, pure=False, workers=[homes[number]])
                for number, part in zip(numbers, parts, strict=True)
            ]
            self._open += tasks
            return self._results(tasks, parts, set(homes.values()))

        results: list[Any] = self._repeat(numbers, attempt)
        return results

    def _repeat(self, numbers: list[int], attempt: Callable[[], Any]) -> Any:
        """Return the first result of `attempt` that is not None; reload lost partitions."""
        lost = _lost()
        last: BaseException | None = None
        for _ in range(self._ATTEMPTS):
            self._attempt += 1
            try:
                result = attempt()
            except lost as error:
                _reraise_other_errors(error)
                last = error
                result = None
            self._cancel()
            if result is not None:
                return result
            self._mend(numbers)
        raise RuntimeError(_TOO_OFTEN.format(self._ATTEMPTS)) from last

    def close(self, run: str, *, cancel: bool) -> None:
        """Drop the state kept by the workers, and cancel outstanding tasks."""
        self._cancel()
        self._parts = []
        self._client.run(forget, run, cancel, on_error="ignore")

    def _try(
        self, numbers: list[int], plan: Plan, order: Order, consensus: FloatArray
    ) -> Solution | None:
        """Return the sum of the partitions' solutions, or None if a worker was lost."""
        submit = self._client.submit
        parts = [self._parts[number] for number in numbers]
        homes = self._homes(numbers, parts)
        if homes is None:
            return None
        addresses = set(homes.values())
        # Do not broadcast: a broadcast between workers never ends if one of the workers dies.
        try:
            shared = self._client.scatter(consensus, workers=sorted(addresses), hash=False)
        except KeyError:
            # The scheduler has just lost one of the workers.
            return None
        self._open.append(shared)
        tasks = []
        for number, part in zip(numbers, parts, strict=True):
            key = f"dualgap-solution-{plan.run}-{order.round}-{number}-{self._attempt}"
            where = {"workers": [homes[number]], "allow_other_workers": False}
            subproblem = (part, number, plan, order, self._attempt, shared)
            tasks.append(submit(solve, *subproblem, key=key, **where))
        self._open += tasks

        def combine(group: list[Any]) -> Any:
            self._open.append(submit(add, plan.n_columns, *group, pure=False))
            return self._open[-1]

        total = tree(tasks, combine)
        results = self._results([total], parts, addresses)
        return None if results is None else results[0]

    def _results(self, tasks: list[Any], parts: list[Any], addresses: set[str]) -> list[Any] | None:
        """Wait for the results of tasks; return None if a worker was lost."""
        while not all(task.done() for task in tasks):
            self._wait(tasks)
            if all(task.done() for task in tasks):
                break
            there = addresses <= set(self._client.nthreads())
            if _gone([*parts, *self._open]) or not there:
                return None
        return [task.result() for task in tasks]

    def _homes(self, numbers: list[int], parts: list[Any]) -> dict[int, str] | None:
        """Wait until all partitions are read, and return the worker that holds each partition."""
        waited = time.monotonic()
        while not all(part.done() for part in parts):
            self._wait(parts)
            if _gone(parts):
                return None
            if self._client.nthreads():
                waited = time.monotonic()
            elif time.monotonic() - waited > self._PATIENCE:
                msg = f"client: Dask had no worker for {self._PATIENCE:.0f} seconds; start workers"
                raise RuntimeError(msg)
        for part in parts:
            if part.status == "error":
                part.result()
        holders = self._client.who_has(parts)
        if not all(holders.get(part.key) for part in parts):
            return None
        # If several workers hold a partition, always choose the same worker, which has its state.
        return {number: min(holders[part.key]) for number, part in zip(numbers, parts, strict=True)}

    def _wait(self, futures: list[Any]) -> None:
        import distributed

        try:
            distributed.wait(futures, timeout=1.0)  # type: ignore[no-untyped-call]
        except TimeoutError:
            return

    def _mend(self, numbers: list[int]) -> None:
        """Reload the partitions that Dask cannot recover."""
        time.sleep(0.2)
        for number in numbers:
            if self._parts[number].status in ("lost", "cancelled", "error"):
                self._parts[number] = self._load[number]()

    def _cancel(self) -> None:
        if self._open:
            self._client.cancel(self._open, force=True)
        self._open = []

    def _check_versions(self) -> None:
        try:
            versions = self._client.run(worker_version)
        except (ImportError, AttributeError) as error:
            msg = f"a worker cannot import this version of dualgap ({VERSION}): {error}"
            raise RuntimeError(msg) from error
        for address, version in versions.items():
            if version != VERSION:
                msg = (
                    f"client: the worker {address} has dualgap {version}, but this process has "
                    f"{VERSION}; install the same version everywhere"
                )
                raise RuntimeError(msg)
