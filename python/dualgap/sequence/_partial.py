"""Training with unknown labels, given as None among the labels of a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._estimator.settings import shares_record
from dualgap._validation import FloatArray, resolve_threads
from dualgap.sequence._fitting import train
from dualgap.sequence._training import Problem

Codes = NDArray[np.uint32]
Offsets = NDArray[np.int64]
Known = NDArray[np.bool_]

# Unknown labels are first completed by a conditional random field with this C and number of passes.
_FIRST_C = 3.0
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
    """Return labels and offsets of the longest runs of known labels in sentences."""
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
) -> None:
    """Fit the structured hinge loss: complete the labels, fit, and repeat until no label changes.

    Unknown labels are completed by the best labelling that agrees with the known labels, with the
    weights of the previous fit (Yu and Joachims, ICML 2009). Errors at tokens with
    unknown labels cost nothing. Each fit is a convex problem.
    """
    threads = resolve_threads(tagger.n_jobs)
    shares = shares_record("C", _FIRST_C, weights, len(problem))
    first = {**settings, **shares, "max_iter": _FIRST_PASSES, "keep_point": False}
    result: Any = _core.fit_sequences(problem.core, first)  # type: ignore[arg-type]
    labels, point = None, None
    for _ in range(_MAX_ROUNDS):
        core, completed = problem.core.complete(result["weights"], threads)
        if labels is not None and np.array_equal(completed, labels):
            break
        labels = completed
        settings["start"], settings["keep_point"] = point, True
        result = train(tagger, replace(problem, core=core), settings, is_fit=False)
        point = tagger._point
    if not tagger.warm_start:
        tagger._point = None
