"""Partitions in actors of a Ray cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dualgap._validation import FloatArray
from dualgap.distributed._engine import Source, tree
from dualgap.distributed._partition import Part, Summary, summarize
from dualgap.distributed._plan import VERSION, Order, Plan, Solution
from dualgap.distributed._worker import add, solve, worker_version


def ray_of_this_process() -> Any:
    """Return the module ``ray``, connected to a cluster."""
    try:
        import ray
    except ImportError as error:
        msg = 'client: Ray is not installed; pip install "dualgap[ray]"'
        raise ImportError(msg) from error
    if not ray.is_initialized():
        msg = "client: Ray is not running in this process; call ray.init(...) before fit"
        raise ValueError(msg)
    return ray


class Holder:
    """Actor that holds partitions and solves their subproblems."""

    def __init__(self) -> None:
        self._parts: dict[int, Part] = {}

    def version(self) -> str:
        """Return the version of the package in this process."""
        return worker_version()

    def summarize(self, number: int, source: list[Any], fingerprints: bool) -> Summary:
        """Read a partition and summarise it."""
        return summarize(self._part(number, source), fingerprints)

    def solve(self, number: int, source: list[Any], *arguments: Any) -> Solution:
        """Run one round on a partition."""
        return solve(self._part(number, source), number, *arguments)

    def apply(self, number: int, source: list[Any], work: Any, *arguments: Any) -> Any:
        """Run a function on a partition."""
        return work(self._part(number, source), *arguments)

    def add(self, n_columns: int, *solutions: Solution) -> Solution:
        """Add up results in the given order."""
        return add(n_columns, *solutions)

    def _part(self, number: int, source: list[Any]) -> Part:
        # Ray does not fetch objects in a list. The source is therefore sent only when an actor,
        # which may replace a lost actor, first uses the partition.
        if number not in self._parts:
            import ray

            read: Source = ray.get(source[0])
            self._parts[number] = read()
        return self._parts[number]


class Actors:
    """Partitions in Ray actors, with one actor for each CPU.

    A partition stays with its actor. If an actor is lost, a new actor reads its partitions again,
    and the round is repeated. The dual variables of these partitions start from zero or from a
    checkpoint.
    """

    _ATTEMPTS = 20
    _PATIENCE = 300.0

    def __init__(self, ray: Any, sources: Sequence[Source]) -> None:
        self._ray = ray
        self._attempt = 0
        self._turns = itertools.count()
        # The sources are in Ray's object store, so that a new actor can read any partition again.
        self._sources = [ray.put(source) for source in sources]
        cpus = int(ray.cluster_resources().get("CPU", 1))
        self._actors = [self._new_actor() for _ in range(min(max(cpus, 1), len(sources)))]

    def describe(self, fingerprints: bool) -> list[Summary]:
        """Read all partitions in the actors and summarise them."""
        self._wait_for_actors()
        summaries: list[Summary] = self._answer(
            lambda: [
                self._actor(number).summarize.remote(number, [source], fingerprints)
                for number, source in enumerate(self._sources)
            ]
        )
        return summaries

    def solve(
        self, numbers: list[int], plan: Plan, order: Order, consensus: FloatArray
    ) -> Solution:
        """Run one round; repeat it if actors are lost during the round."""

        def ask() -> Any:
            self._attempt += 1
            shared = self._ray.put(consensus)
            solutions = [
                self._actor(number).solve.remote(
                    number, [self._sources[number]], plan, order, self._attempt, shared
                )
                for number in numbers
            ]
            return tree(solutions, partial(self._add, plan.n_columns))

        total: Solution = self._answer(ask)
        return total

    def each(self, numbers: list[int], work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run `work` in the actors; repeat it if actors are lost."""

        def ask() -> list[Any]:
            return [
                self._actor(number).apply.remote(number, [self._sources[number]], work, *arguments)
                for number in numbers
            ]

        results: list[Any] = self._answer(ask)
        return results

    def close(self, run: str, *, cancel: bool) -> None:
        """End the actors, which also drops the state of the run and ends its subproblems."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors, self._sources = [], []

    def _add(self, n_columns: int, group: list[Any]) -> Any:
        # A task outside an actor would wait for a free CPU, but the actors may occupy all CPUs.
        return self._actor(next(self._turns)).add.remote(n_columns, *group)

    def _actor(self, number: int) -> Any:
        return self._actors[number % len(self._actors)]

    def _new_actor(self) -> Any:
        return self._ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Holder).remote()

    def _wait_for_actors(self) -> None:
        """Continue with the actors that Ray starts in time; check their versions."""
        versions = [actor.version.remote() for actor in self._actors]
        started, _ = self._ray.wait(versions, num_returns=len(versions), timeout=self._PATIENCE)
        if not started:
            msg = (
                f"client: Ray has started no actor within {self._PATIENCE:.0f} seconds; each actor "
                "needs a free CPU, so end other tasks or add nodes"
            )
            raise RuntimeError(msg)
        for actor, version in zip(self._actors, versions, strict=True):
            if version not in started:
                self._ray.kill(actor)
        pairs = zip(self._actors, versions, strict=True)
        self._actors = [actor for actor, version in pairs if version in started]
        for version in self._answer(lambda: started):
            if version != VERSION:
                msg = (
                    f"client: a Ray worker has dualgap {version}, but this process has {VERSION}; "
                    "install the same version everywhere"
                )
                raise RuntimeError(msg)

    def _answer(self, ask: Callable[[], Any]) -> Any:
        """Return the results of the tasks that `ask` starts; repeat them if actors are lost."""
        for _ in range(self._ATTEMPTS):
            try:
                return self._ray.get(ask())
            except self._ray.exceptions.RayError as error:
                last = self._cause(error)
            self._replace_lost_actors()
        msg = (
            f"actors were lost {self._ATTEMPTS} times in a row; check that their nodes have enough "
            "memory"
        )
        raise RuntimeError(msg) from last

    def _cause(self, error: Any) -> Any:
        """Return the cause of `error` if an actor or object was lost; raise any other cause."""
        cause = error
        while isinstance(cause, self._ray.exceptions.RayTaskError):
            cause = cause.cause
            if not isinstance(cause, self._ray.exceptions.RayError):
                raise cause from error
        return cause

    def _replace_lost_actors(self) -> None:
        for place, actor in enumerate(self._actors):
            try:
                self._ray.get(actor.version.remote())
            except self._ray.exceptions.RayError:
                self._actors[place] = self._new_actor()
