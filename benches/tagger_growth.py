"""SequenceTagger continued with ten per cent more sentences, compared with a new fit.

    python benches/tagger_growth.py [TASK ...] [--losses hamming logistic] [--tol 0.2]

A tagger with `warm_start=True` fits 10/11 of the training sentences of a task of `taggers.py`, and
then all of them. A second tagger fits all of them from zero. All fits end as soon as the gap is at
most `tol`. CPU seconds are the time from strings to a model. Part of it is "reading", the
conversion of strings, which a warm start cannot save. The share is the ratio of the CPU seconds of
the continued fit and of the new fit.

The data sets are files in the folder DUALGAP_DATA. Generated sentences replace missing files.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

from _record import Table
from taggers import TASKS, Data, read


def fitted(tagger: Any, X: Any, y: Any) -> float:
    start = time.process_time()
    tagger.fit(X, y)
    return time.process_time() - start


def measure(table: Table, data: Data, task: str, loss: Any, tol: float) -> None:
    from dualgap.sequence import SequenceTagger
    from dualgap.sequence._problem import read_problem

    X, y = data[:2]
    n = 10 * len(X) // 11
    new = SequenceTagger(loss, tol=tol, random_state=0)
    start = time.process_time()
    read_problem(new, X, y, None, None)
    reading = time.process_time() - start
    new_seconds = fitted(new, X, y)
    more = SequenceTagger(loss, tol=tol, C=new.C_, warm_start=True, random_state=0)
    more.fit(X[:n], y[:n])
    more_seconds = fitted(more, X, y)
    row: dict[str, Any] = {"new_seconds": new_seconds, "new_passes": new.n_iter_}
    row |= {"more_seconds": more_seconds, "more_passes": more.n_iter_, "reading": reading}
    row |= {"share": more_seconds / new_seconds}
    row |= {"new_gap": new.relative_gap_, "more_gap": more.relative_gap_}
    table.add(task=task, loss=loss, **row)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=["chunks", "names"], metavar="TASK")
    parser.add_argument("--losses", nargs="+", default=["hamming", "logistic"])
    parser.add_argument("--tol", type=float, default=0.2)
    arguments = parser.parse_args()
    if unknown := set(arguments.tasks) - set(TASKS):
        parser.error(f"unknown tasks {sorted(unknown)}")
    warnings.simplefilter("ignore")
    table = Table("tagger-growth", "task", "loss")
    for task in arguments.tasks:
        data = read(task)
        for loss in arguments.losses:
            measure(table, data, task, loss, arguments.tol)


if __name__ == "__main__":
    main()
