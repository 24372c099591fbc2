"""The intervals of C that a path covers, for every kind of model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dualgap._estimator import warn_of_gap
from dualgap._validation import FloatArray, check_positive, check_range


class Interval:
    """An interval of C, with the weights at its lower end."""

    C_min: float
    C_max: float
    coef: FloatArray

    def coef_at(self, C: float) -> FloatArray:
        """Return the weights of the certified model for a C in the interval.

        Raises
        ------
        ValueError
            If C is not in the interval.
        """
        return np.asarray(self.coef * scale_at(C, self.C_min, self.C_max))


def scale_at(C: float, C_min: float, C_max: float) -> float:
    """Return the factor from the weights at the lower end of an interval to the weights at `C`."""
    if not C_min <= C <= C_max:
        msg = f"C: must be between {C_min} and {C_max}, got {C}"
        raise ValueError(msg)
    return C / C_min


def warn_of_pieces(estimator: Any, found: Sequence[Any], X: Any) -> None:
    """Warn if a piece of a path over data `X` did not reach the `tol` of the estimator."""
    worst = max(found, key=lambda piece: piece.relative_gap)
    if worst.relative_gap > estimator.tol:
        gap = (worst.duality_gap, worst.relative_gap)
        advice = estimator._advice(X, estimator._remedy)
        warn_of_gap(worst.n_iter, gap, estimator.tol, advice, "a piece of the path ")


def check_interval(C_min: float, C_max: float) -> None:
    """Raise a ValueError for an empty or invalid interval of C."""
    check_positive("C_min", C_min)
    check_positive("C_max", C_max)
    if C_min > C_max:
        msg = f"C_max: must be at least C_min={C_min}, got {C_max}"
        raise ValueError(msg)
    check_range("C_max", C_min, C_max)


def intervals(
    pieces: Iterable[Any], interval: tuple[float, float], largest: float
) -> Iterator[tuple[float, float, FloatArray, float, float, int]]:
    """Convert the core's pieces, which cover lambda from `largest` down, to intervals of C."""
    start, last = map(float, interval)
    for _, until, weights, gap, relative, n_iter in pieces:
        # Each interval starts exactly where the previous one ends, so that rounding leaves no gaps.
        end = min(last, interval[0] * largest / until)
        end = last if end > last * (1 - 1e-12) else end
        yield start, end, weights, gap, relative, n_iter
        start = end
