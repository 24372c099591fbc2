"""Engine that runs partitions on threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

from dualgap._tuning.parallel import result_of
from dualgap._validation import FloatArray
from dualgap.distributed._engine import Source, tree
from dualgap.distributed._partition import Part, Summary, summarize
from dualgap.distributed._plan import Order, Plan, Solution
from dualgap.distributed._worker import add, forget, solve


class Threads:
    """Partitions in memory, with a thread pool."""

    def __init__(self, sources: Sequence[Source], n_threads: int) -> None:
        self._sources = sources
        self._parts: list[Part] = []
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="dualgap-consensus")

    def describe(self, fingerprints: bool) -> list[Summary]:
        """Read and summarise all partitions."""
        reads = [self._pool.submit(source) for source in self._sources]
        self._parts = [result_of(read) for read in reads]
        tasks = [self._pool.submit(summarize, part, fingerprints) for part in self._parts]
        return [result_of(task) for task in tasks]

    def solve(
        self, numbers: list[int], plan: Plan, order: Order, consensus: FloatArray
    ) -> Solution:
        """Run one round on the threads."""
        tasks = [
            self._pool.submit(solve, self._parts[number], number, plan, order, 0, consensus)
            for number in numbers
        ]
        while wait(tasks, timeout=0.2, return_when=FIRST_EXCEPTION).not_done:
            failed = [task for task in tasks if task.done() and task.exception()]
            if failed:
                # End the other tasks before raising: none may write a checkpoint later.
                forget(plan.run, cancel=True)
                wait([task for task in tasks if not task.cancel()])
                failed[0].result()
        width = plan.n_columns
        total: Solution = tree([task.result() for task in tasks], lambda group: add(width, *group))
        return total

    def each(self, numbers: list[int], work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run `work` on the threads."""
        parts = [self._parts[number] for number in numbers]
        return [result_of(task) for task in [self._pool.submit(work, p, *arguments) for p in parts]]

    def close(self, run: str, *, cancel: bool) -> None:
        """End the threads; a subproblem in progress ends after its current pass."""
        self._pool.shutdown(wait=not cancel, cancel_futures=True)
        forget(run, cancel)
