"""Training with unknown labels, given as None among the labels of a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._estimator.settings import shares_record
from dualgap._validation import FloatArray, resolve_threads
from dualgap.sequence._defaults import default_c
from dualgap.sequence._fitting import train
from dualgap.sequence._held_out import HeldOut, Validation
from dualgap.sequence._training import Problem

Codes = NDArray[np.uint32]
Offsets = NDArray[np.int64]
Known = NDArray[np.bool_]

# Unknown labels are first completed by a conditional random field with its default C and this
# number of passes.
_FIRST_PASSES = 10
# Maximum number of fits with completed labels; few labels change after three fits.
_MAX_ROUNDS = 5


def whole_sentences(codes: Codes, offsets: Offsets, known: Known) -> tuple[Codes, Offsets]:
    """Return labels and offsets that treat sentences with an unknown label as empty."""
    unknown = np.concatenate([[0], np.cumsum(~known)])
    is_whole = unknown[offsets[1:]] == unknown[offsets[:-1]]
    sizes = np.where(is_whole, np.diff(offsets), 0)
    kept = np.repeat(is_whole, np.diff(offsets))
    return codes[kept], np.concatenate([[0], np.cumsum(sizes)])


def known_pieces(codes: Codes, offsets: Offsets, known: Known) -> tuple[Codes, Offsets]:
    """Return labels and offsets of the maximal runs of known labels in sentences."""
    cuts = np.zeros(len(codes) + 1, dtype=bool)
    cuts[offsets] = True
    cuts[:-1] |= ~known
    piece = np.cumsum(cuts[:-1])[known]
    sizes = np.unique(piece, return_counts=True)[1]
    return codes[known], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def fit_completed(
    tagger: Any,
    problem: Problem,
    settings: _core._SequenceSettings,
    weights: FloatArray | None,
    held: HeldOut | None = None,
    start: FloatArray | None = None,
) -> None:
    """Fit the structured hinge loss: complete the labels, fit, and repeat until no label changes.

    Unknown labels are completed by the best labelling that agrees with the known labels, according
    to the weights of the previous fit (Yu and Joachims, ICML 2009). Before the first fit, these
    weights are `start` or, by default, those of a few passes with the logistic loss. Errors at
    tokens with unknown labels cost nothing. Each fit is a convex problem. With held-out sentences,
    a round that does not improve their score is the last one, and its fit is discarded.
    """
    threads = resolve_threads(tagger.n_jobs)
    if start is None:
        C = default_c("logistic", problem, weights)
        shares = shares_record("C", C, weights, len(problem))
        first: _core._SequenceSettings = {
            **settings,
            **shares,
            "start": None,
            "max_iter": _FIRST_PASSES,
            "keep_point": False,
        }
        start = _core.fit_sequences(problem.core, first)["weights"]
    labels, point, best, last, outcome = None, None, -np.inf, start, "converged"
    for _ in range(_MAX_ROUNDS):
        core, completed = problem.core.complete(last, threads)
        if labels is not None and np.array_equal(completed, labels):
            break
        labels, whole, kept = completed, replace(problem, core=core), dict(vars(tagger))
        settings["start"], settings["keep_point"] = point, True
        watcher = None if held is None else Validation(tagger, whole, held)
        found = train(tagger, whole, settings, is_fit=False, watcher=watcher, warns=False)
        if watcher is not None:
            score = float(np.nanmax(found["history"]["validation_score"]))
            if not score > best:  # the score may be NaN
                vars(tagger).clear()
                vars(tagger).update(kept)
                break
            best = score
        point, last, outcome = tagger._point, found["weights"], found["outcome"]
    tagger._warn_unless_converged(outcome, problem)
    # The dual variables belong to the completed labels, so a later fit starts from the weights.
    tagger._point = _core.SequencePoint.of_weights(last) if tagger.warm_start else None
