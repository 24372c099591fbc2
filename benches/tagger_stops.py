"""Stopping rules of SequenceTagger: the default rule, held-out sentences, and the best pass count.

    python benches/tagger_stops.py [TASK ...] [--losses hamming logistic]

Six tasks: the four tasks of `taggers.py`, noun chunks (CoNLL-2000 without all other chunks), and
name spans (names in the first 2,500 Spanish sentences, without their types). All fits train on the
same 85 % of the training sentences. For each task and loss, the script makes three fits: one with
the default stop, one with the other 15 % as `validation`, and one of 64 passes. The score on the
test sentences is F1 of chunks, or the fraction of correct tokens. The best pass count is the one
with the highest test score among 2, 4, 8, ..., 64 and the default stop's own count.

The data sets are files in the folder DUALGAP_DATA. Generated sentences replace missing files.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from _record import Table
from sequence import Labels, Sentences, f1
from taggers import TASKS, Data, read

PASSES = (2, 4, 8, 16, 32, 64)
DERIVED = {"noun chunks": "chunks", "name spans": "names"}
CHUNKED = ("chunks", "names", *DERIVED)


def sentences(task: str) -> Data:
    """Return features and labels of the training and of the test sentences."""
    X, y, test, right = read(DERIVED.get(task, task))
    if task == "noun chunks":
        y, right = (
            [[label if label.endswith("-NP") else "O" for label in own] for own in labels]
            for labels in (y, right)
        )
    if task == "name spans":
        X = X[:2500]
        y, right = (
            [["O" if label == "O" else f"{label[0]}-NAME" for label in own] for own in labels]
            for labels in (y[:2500], right)
        )
    return X, y, test, right


def score(task: str, right: Labels, predicted: Labels) -> float:
    if task in CHUNKED:
        return f1(right, predicted)
    pairs = [(a, b) for p, q in zip(right, predicted, strict=True) for a, b in zip(p, q)]  # noqa: B905
    return sum(a == b for a, b in pairs) / len(pairs)


class Scores:
    """Callback that scores the models after some numbers of passes."""

    def __init__(self, task: str, test: Sentences, right: Labels) -> None:
        self.task, self.test, self.right = task, test, right
        self.found: dict[int, float] = {}

    def setup(self, estimator: Any, context: Any) -> None:
        pass

    teardown = on_fit_task_begin = setup

    def on_fit_task_end(self, estimator: Any, context: Any, *, fitted_estimator: Any) -> None:
        passes = fitted_estimator.n_iter_
        if passes in PASSES and passes not in self.found:
            predicted = fitted_estimator.predict(self.test)
            self.found[passes] = score(self.task, self.right, predicted)


def measure(table: Table, data: Data, task: str, loss: Any) -> None:
    from dualgap.sequence import SequenceTagger

    X, y, test, right = data
    order = np.random.default_rng(0).permutation(len(X))
    held, own = np.split(order, [round(0.15 * len(X))])
    validation = [X[i] for i in held], [y[i] for i in held]
    X, y = [X[i] for i in own], [y[i] for i in own]

    def fitted(validation: Any = None) -> tuple[int, float]:
        tagger = SequenceTagger(loss, random_state=0).fit(X, y, validation=validation)
        return tagger.n_iter_, score(task, right, tagger.predict(test))

    scores = Scores(task, test, right)
    passes, default = fitted()
    held_passes, held_score = fitted(validation)
    longest = SequenceTagger(loss, max_iter=max(PASSES), tol=1e-6, random_state=0)
    longest.set_callbacks(scores).fit(X, y)
    tried = scores.found | {passes: default}
    best = max(tried, key=lambda n: tried[n])
    row: dict[str, Any] = {"default_passes": passes, "default": default}
    row |= {"held_passes": held_passes, "held": held_score}
    row |= {"best_passes": best, "best": tried[best], "behind": tried[best] - held_score}
    table.add(task=task, loss=loss, **row)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    tasks = [*TASKS, *DERIVED]
    parser.add_argument("tasks", nargs="*", default=tasks, metavar="TASK")
    parser.add_argument("--losses", nargs="+", default=["hamming", "logistic"])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    table = Table("tagger-stops", "task", "loss")
    for task in arguments.tasks:
        data = sentences(task)
        for loss in arguments.losses:
            measure(table, data, task, loss)


if __name__ == "__main__":
    main()
