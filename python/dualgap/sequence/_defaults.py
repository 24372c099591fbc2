"""Parameters whose default depends on the loss, and the stopping rule of the logistic loss."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from dualgap._estimator.watch import Callback
from dualgap._validation import FloatArray
from dualgap.sequence._training import Problem

_BY_LOSS: dict[str, dict[str, Any]] = {
    "hamming": {"tol": 0.2, "pairs": "all"},
    "logistic": {"tol": 0.1, "pairs": "seen"},
}
# The default C if tokens have many features, and if they have one feature. Chosen by the scores of
# held-out sentences on 21 tasks with 1 to 80 features.
_C_OF_MANY = {"hamming": 0.3, "logistic": 3.0}
_C_OF_ONE = {"hamming": 3.0, "logistic": 20.0}

_PASSES = 5
# Fits of fewer than `_FEW` sentences with positive weight (`MIN_SEQUENCES` of the core) start from
# zero weights. If C is large, their objective hardly falls in the first passes, so they make at
# least `_PASSES_OF_FEW` passes.
_FEW = 200
_PASSES_OF_FEW = 30
_LEAST_PROGRESS = 0.025
# With unknown labels, there is no gap. A fit that ends at this share is about 0.1 % above its
# limit.
_LEAST_PARTIAL = 1e-3


def with_defaults(tagger: Any) -> Any:
    """Return a copy of a tagger with its default values in place of None, except for C."""
    found = copy.copy(tagger)
    for name, value in _BY_LOSS[tagger.loss].items():
        if getattr(found, name) is None:
            setattr(found, name, value)
    return found


def default_c(loss: str, problem: Problem, weights: FloatArray | None) -> float:
    """Return the default C for these sentences and their weights.

    A token can change the score of a label at an equal token by at most C times the squared norm of
    its features. With a fixed C, the weights of rare words are too small if the word is the only
    feature of a token. Each feature counts with its squared value, but at most as 1, because C also
    limits the weights of transitions.
    """
    n_features = max(1.0, problem.core.features_per_token(weights))
    return max(_C_OF_MANY[loss], _C_OF_ONE[loss] / n_features)


class StallCheck:
    """Ends a fit when `_PASSES` passes lower the objective by at most a small share in total.

    Predicted labels hardly change from then on. With a large C, the gap of the logistic loss stays
    large for many more passes. With unknown labels, the share is `tol` if it is given.
    """

    def __init__(
        self,
        callback: Callback | None,
        tol: float | None,
        problem: Problem,
        weights: FloatArray | None,
    ) -> None:
        self._callback, is_partial = callback, problem.is_partial
        n_sentences = len(problem) if weights is None else np.count_nonzero(weights)
        is_short = n_sentences < _FEW and not is_partial
        self._passes = _PASSES_OF_FEW if is_short else _PASSES + 1
        default = _LEAST_PARTIAL if is_partial else _LEAST_PROGRESS
        self._least = default if tol is None else tol
        self._wants_model = getattr(callback, "_wants_model", False) is True
        self._objectives: list[float] = []

    def __call__(self, *epoch: Any) -> bool:
        """Return whether the fit ends with this epoch."""
        stops = self._callback is not None and bool(self._callback(*epoch))
        self._objectives.append(epoch[2])
        if len(self._objectives) < self._passes:
            return stops
        before, now = self._objectives[-1 - _PASSES], self._objectives[-1]
        return stops or before - now <= self._least * abs(now)
