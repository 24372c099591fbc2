"""What searches for C have in common, whatever the model."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualgap._validation import FloatArray, check_positive, check_range

Rule: TypeAlias = Literal["best", "one-standard-error"]

# Differences of mean scores that are rounding.
ROUNDING = 1e-12


def grid(Cs: int | ArrayLike) -> FloatArray:
    """Return the values to choose from, in rising order: those given, or so many from 1e-3 on."""
    if isinstance(Cs, int | np.integer) and not isinstance(Cs, bool):
        check_positive("Cs", Cs, integer=True)
        return np.logspace(-3.0, 3.0, int(Cs)) if Cs > 1 else np.ones(1)
    values = np.asarray(Cs)
    if values.ndim != 1 or not len(values):
        msg = f"Cs: must be a number of values or a list of them, got {Cs!r}"
        raise ValueError(msg)
    for C in values.tolist():
        check_positive("Cs", C)
    found = np.unique(values.astype(np.float64))
    check_range("Cs", found[0], found[-1])
    return found


def rows_of_fold(chosen: Any, n_rows: int) -> NDArray[np.intp]:
    """The numbers of rows that a splitter gives as such, counted from the end, or as a mask."""
    try:
        return np.asarray(np.arange(n_rows)[chosen])
    except IndexError as error:
        msg = f"cv: a fold names rows that do not exist ({error})"
        raise ValueError(msg) from error


def choose(scores: FloatArray, rule: Rule) -> int:
    """Return the number of the chosen C, given scores of folds x Cs, the larger the better."""
    mean = scores.mean(axis=0)
    best = mean.max()
    slack = ROUNDING * max(1.0, abs(best))
    if rule == "one-standard-error" and len(scores) > 1:
        chosen = int(np.flatnonzero(mean >= best - slack)[0])
        slack += float(scores[:, chosen].std(ddof=1)) / np.sqrt(len(scores))
    return int(np.flatnonzero(mean >= best - slack)[0])


def check_scores(scores: FloatArray, scoring: Any) -> None:
    """Refuse scores that cannot be compared."""
    if not np.isfinite(scores).all():
        msg = f"scoring: {scoring!r} gives scores that are not finite"
        raise ValueError(msg)
