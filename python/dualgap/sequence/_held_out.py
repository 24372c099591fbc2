"""Early stopping of a fit by the score of held-out sentences."""

from __future__ import annotations

from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np

from dualgap import _core
from dualgap._estimator.watch import Callback
from dualgap._validation import FloatArray, example_weights, resolve_threads
from dualgap._validation.copies import listed
from dualgap.sequence._sentences import Rowed, peek, read_matrices, read_named
from dualgap.sequence._training import Problem
from dualgap.sequence._validation import as_lists, split
from dualgap.sequence.features import featured
from dualgap.sequence.metrics import label_score

HeldOut = tuple[list[Any], list[Any]]
"""Sentences and labels."""

# The held-out sentences are scored each time the number of passes has grown by this factor.
_SPACING = 1.15
# The fit ends after this number of consecutive evaluations without a better score, but not before
# `_MIN_PASSES`. The score of the logistic loss can fall in the first passes, and rise again later.
_PATIENCE = 4
_MIN_PASSES = 30
# Tolerance if `tol` is not given; small, because the held-out score normally ends the fit first.
SMALL_TOL = 1e-3


def hold_out(
    tagger: Any, validation: Any, given: tuple[Any, Any, Any, Any, Any]
) -> tuple[tuple[Any, Any, Any, Any, Any], HeldOut]:
    """Split `given`, in the order of `fit`'s arguments, into training and held-out data."""
    X, y, sample_weight, token_weight, lengths = given
    if isinstance(validation, tuple | list) and len(validation) == 2:
        sentences, labels = (listed(part, "validation") for part in validation)
        if not sentences or len(sentences) != len(labels):
            msg = f"validation: got {len(sentences)} sentences and {len(labels)} lists of labels"
            raise ValueError(msg)
        return given, (sentences, labels)
    if not isinstance(validation, Real) or not 0.0 < float(validation) < 1.0:
        msg = f"validation: must be between 0 and 1, or (X, y), got {validation!r}"
        raise ValueError(msg)
    X, y, token_weight = as_lists(X, y, token_weight, lengths)
    weights = example_weights(sample_weight, len(X))
    train, held = split(tagger, y, float(validation), "validation: the split")

    def part(values: Any) -> Any:
        return None if values is None else [values[i] for i in train]

    own = None if weights is None else weights[train]
    kept = (part(X), part(y), own, part(token_weight), None)
    return kept, ([X[i] for i in held], [y[i] for i in held])


class Validation:
    """Scores the models of a fit on held-out sentences, keeps the best model, and stops the fit."""

    _wants_model = True

    def __init__(self, tagger: Any, problem: Problem, held: HeldOut) -> None:
        self._problem, self._threads = problem, resolve_threads(tagger.n_jobs)
        self._data = _read(problem, featured(held[0], tagger.features))
        self._labels = held[1]
        sizes = [len(labels) for labels in self._labels]
        if sizes != np.diff(self._data.offsets).tolist():
            msg = "validation: each sentence must have a label for each token"
            raise ValueError(msg)
        self._callback: Callback | None = None
        self._scores: dict[int, float] = {}
        self._best: tuple[float, FloatArray] | None = None
        self._next, self._misses = 1, 0

    def watching(self, callback: Callback | None) -> Validation:
        """Set the callback to call in each epoch before the validation; return self."""
        self._callback = callback
        return self

    def __call__(self, *epoch: Any) -> bool:
        """Return whether the fit ends with this epoch."""
        wants = getattr(self._callback, "_wants_model", False) is True
        stops = self._callback is not None and bool(self._callback(*epoch[: 5 if wants else 4]))
        number, weights = epoch[0], epoch[4][0][0]
        if number < self._next:
            return stops
        self._next = max(number + 1, int(np.ceil(_SPACING * number)))
        score = self._scores[number] = self._score(weights)
        if self._best is None or score > self._best[0]:
            self._best, self._misses = (score, np.array(weights)), 0
        else:
            self._misses += 1
        return stops or (self._misses >= _PATIENCE and number >= _MIN_PASSES)

    def result(self, settings: Any, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a fit, with its model replaced by the best model."""
        columns = [self._scores.get(epoch, np.nan) for epoch in result["history"]["epoch"].tolist()]
        history = {**result["history"], "validation_score": np.array(columns)}
        if self._best is None:
            return {**result, "history": history}
        weights = self._best[1]
        objective = _core.sequence_objective(self._problem.core, settings, weights)
        dual = result["dual_objective"]
        is_met = dual is not None and objective - dual <= settings["tol"] * abs(objective)
        outcome = "converged" if is_met else "stopped"
        found = {"weights": weights, "objective": objective, "outcome": outcome}
        return {**result, **found, "history": history}

    def _score(self, weights: FloatArray) -> float:
        model, data, marks = self._problem.weights(weights), self._data, self._problem.marks
        rows, edges = (data.rows, None) if marks is None else data.split(marks)
        codes = model.tagger.decode((rows, data.offsets, edges, None), self._threads)
        labels = self._problem.classes.astype(object)[codes].tolist()
        return label_score(self._labels, [labels[a:b] for a, b in pairwise(data.offsets.tolist())])


def _read(problem: Problem, X: Any) -> Rowed:
    """Read sentences, using the columns of the training data."""
    vocabulary = problem.vocabulary
    named, X = peek(X)
    if vocabulary is not None and named:
        return read_named(vocabulary.read, X, lambda: len(vocabulary))
    data = read_matrices(X, None)
    if vocabulary is not None or data.n_features != problem.n_features:
        msg = "validation: the held-out sentences must have the same features as the training data"
        raise ValueError(msg)
    return data
