"""Partitions in the executors of a Spark cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dualgap._validation import FloatArray
from dualgap.distributed._engine import Source, tree
from dualgap.distributed._partition import Summary, summarize
from dualgap.distributed._plan import Order, Plan, Solution
from dualgap.distributed._storage import absolute, join, remove_all
from dualgap.distributed._worker import add, solve, solve_between_files


def is_spark(client: Any) -> bool:
    """Return whether this is a SparkSession, without importing PySpark."""
    return type(client).__module__.startswith("pyspark.sql.")


class Executors:
    """Partitions that Spark keeps in its executors, and reads again if an executor is lost.

    Each round is a Spark job with one task for each partition. Spark does not choose the process of
    a task by its partition, so a task reads the dual variables of the previous round from a file
    and writes the new dual variables to another file. A repeated task reads the same file and has
    the same result.
    """

    def __init__(self, session: Any, sources: Sequence[Source], folder: Any) -> None:
        self._session = session
        self._folder = None if folder is None else absolute(folder)
        self._step = 0
        self._run_id = ""

        def read(frames: Iterator[Any]) -> Iterator[Any]:
            return _answers(frames, "id", lambda row: sources[row.id]())

        numbers = session.range(0, len(sources), 1, len(sources))
        self._parts = numbers.mapInPandas(read, _SCHEMA).persist()

    def describe(self, fingerprints: bool) -> list[Summary]:
        """Read all partitions in the executors and summarise them."""
        return self._run(lambda number, part: summarize(part, fingerprints))

    def solve(
        self, numbers: list[int], plan: Plan, order: Order, consensus: FloatArray
    ) -> Solution:
        """Run one round."""
        if plan.run != self._run_id:
            self._remove_files()
            self._run_id, self._step = plan.run, 0
        step, folder = self._step, self._folder
        if order.logistic is None:
            if folder is None:
                msg = (
                    "checkpoint: Spark keeps the dual variables between rounds in this folder; "
                    "pass a folder that all executors can read and write"
                )
                raise ValueError(msg)
            self._step += 1

        def work(number: int, part: Any) -> Any:
            if number not in numbers:
                return None
            if folder is None or order.logistic is not None:
                return solve(part, number, plan, order, step, consensus)
            names = [
                join(folder, f"{_name(plan.run)}{number}-{n % 2}.npz") for n in (step + 1, step)
            ]
            before, after = names
            return solve_between_files(
                (before if step else None, after), part, number, plan, order, step, consensus
            )

        answers = self._run(work)
        solutions = [answers[number] for number in numbers]
        total: Solution = tree(solutions, lambda group: add(plan.n_columns, *group))
        return total

    def each(self, numbers: list[int], work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run `work` in the executors."""
        chosen = set(numbers)
        found = self._run(lambda n, part: work(part, *arguments) if n in chosen else None)
        return [found[number] for number in numbers]

    def close(self, run: str, *, cancel: bool) -> None:
        """Drop the partitions and the files of the run."""
        self._parts.unpersist()
        self._remove_files()

    def _remove_files(self) -> None:
        """Remove the dual variables of the last run."""
        if self._folder is not None and self._run_id:
            remove_all(self._folder, _name(self._run_id))

    def _run(self, work: Callable[[int, Any], Any]) -> list[Any]:
        """Return the result of `work` for each partition, in order."""

        def visit(frames: Iterator[Any]) -> Iterator[Any]:
            return _answers(frames, "number", lambda row: work(row.number, _result(row.answer)))

        rows = self._parts.mapInPandas(visit, _SCHEMA).collect()
        return [_result(row.answer) for row in sorted(rows, key=lambda row: row.number)]


_SCHEMA = "number long, answer binary"


def _name(run: str) -> str:
    """Return the prefix of the names of a run's files."""
    return f"spark-{run}-"


def _answers(frames: Iterator[Any], number: str, work: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield a table with the pickled result or exception of `work` for each row."""
    import pandas as pd

    for frame in frames:
        for row in frame.itertuples(index=False):
            try:
                answer = True, work(row)
            except Exception as error:
                # Spark would replace the exception by an exception of another type.
                answer = False, error
            yield pd.DataFrame({"number": [getattr(row, number)], "answer": [pickle.dumps(answer)]})


def _result(answer: bytes) -> Any:
    """Unpickle an answer; return the result, or raise the exception."""
    fine, value = pickle.loads(bytes(answer))
    if not fine:
        raise value
    return value
