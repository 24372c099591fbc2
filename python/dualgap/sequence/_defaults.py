"""Parameters whose default depends on the loss, and the stopping rule of the logistic loss."""

from __future__ import annotations

import copy
from typing import Any

from dualgap._estimator.watch import Callback

# Defaults with the best held-out scores over several data sets, whose labels mark names, chunks or
# parts of speech. Each data set has 4 to 60 labels and 1,000 to 12,500 sentences.
_BY_LOSS: dict[str, dict[str, Any]] = {
    "hamming": {"C": 0.3, "tol": 0.2, "pairs": "all"},
    "logistic": {"C": 3.0, "tol": 0.1, "pairs": "seen"},
}

_PASSES = 5
_LEAST_PROGRESS = 0.025
# With unknown labels there is no gap; a fit that ends here is about .1 % above its limit.
_LEAST_PARTIAL = 1e-3


def with_defaults(tagger: Any) -> Any:
    """Return a copy of a tagger with its default values in place of None."""
    found = copy.copy(tagger)
    for name, value in _BY_LOSS[tagger.loss].items():
        if getattr(found, name) is None:
            setattr(found, name, value)
    return found


class StallCheck:
    """Ends a fit when `_PASSES` passes lower the objective by at most a small share in total.

    Predicted labels hardly change from then on. With a large C, the gap of the logistic loss stays
    large for many more passes. With unknown labels, the share is `tol` if it is given.
    """

    def __init__(self, callback: Callback | None, tol: float | None, *, is_partial: bool) -> None:
        self._callback = callback
        default = _LEAST_PARTIAL if is_partial else _LEAST_PROGRESS
        self._least = default if tol is None else tol
        self._wants_model = getattr(callback, "_wants_model", False) is True
        self._objectives: list[float] = []

    def __call__(self, *epoch: Any) -> bool:
        """Return whether the fit ends with this epoch."""
        stops = self._callback is not None and bool(self._callback(*epoch))
        self._objectives.append(epoch[2])
        if len(self._objectives) <= _PASSES:
            return stops
        before, now = self._objectives[-1 - _PASSES], self._objectives[-1]
        return stops or before - now <= self._least * abs(now)
