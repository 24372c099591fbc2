"""Grids, folds and selection rules of searches for C, for every kind of model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import check_cv

from dualgap._validation import FloatArray, check_positive, check_range

Rule: TypeAlias = Literal["best", "one-standard-error"]

# Mean scores whose relative difference is smaller than this count as equal.
ROUNDING = 1e-12


@dataclass(kw_only=True, eq=False, repr=False)
class SearchForC:
    """Parameters and attributes of every search for C."""

    cv: Any = None
    scoring: str | Callable[..., float] | None = None
    rule: Rule = "best"
    refit: bool = True

    C_: float = field(init=False)
    Cs_: FloatArray = field(init=False)
    best_score_: float = field(init=False)
    scores_: FloatArray = field(init=False)
    mean_score_: FloatArray = field(init=False)
    std_score_: FloatArray = field(init=False)
    cv_results_: dict[str, NDArray[Any]] = field(init=False)


def grid(Cs: int | ArrayLike) -> FloatArray:
    """Return the given values of C in increasing order, or `Cs` values from 1e-3 to 1e3."""
    if isinstance(Cs, int | np.integer) and not isinstance(Cs, bool):
        check_positive("Cs", Cs, integer=True)
        return np.logspace(-3.0, 3.0, int(Cs)) if Cs > 1 else np.ones(1)
    values = np.asarray(Cs)
    if values.ndim != 1 or not len(values):
        msg = f"Cs: must be an integer (how many values) or a list of values, got {Cs!r}"
        raise ValueError(msg)
    for C in values.tolist():
        check_positive("Cs", C)
    found = np.unique(values.astype(np.float64))
    check_range("Cs", found[0], found[-1])
    return found


def folds_of(
    cv: Any, X: Any, y: Any = None, groups: Any = None, *, classifier: bool = False
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return the training and held-out rows of each fold."""
    if isinstance(cv, int | np.integer) and (isinstance(cv, bool) or cv < 2):
        msg = f"cv: must be at least 2 folds, got {cv}"
        raise ValueError(msg)
    try:
        splitter = check_cv(cv, y, classifier=classifier)
    except ValueError as error:
        msg = f"cv: {error}"
        raise ValueError(msg) from error
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    # If `cv` is an iterable of folds, the splitter's attribute `cv` is their list, whose pairs
    # scikit-learn unpacks without checks. In other splitters, this attribute is not a list.
    pairs = getattr(splitter, "cv", None)
    for pair in pairs if isinstance(pairs, list) else []:
        if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
            msg = f"cv: a fold must be a pair of arrays (training, held-out rows), got {pair!r:.80}"
            raise ValueError(msg)
    folds = []
    for train, held_out in splitter.split(X, y, groups):
        folds.append((rows_of_fold(train, n_rows), rows_of_fold(held_out, n_rows)))
    if not folds:
        msg = "cv: must give at least one fold"
        raise ValueError(msg)
    return folds


def rows_of_fold(chosen: Any, n_rows: int) -> NDArray[np.intp]:
    """Convert a splitter's result (a mask, or row numbers that may be negative) to row numbers."""
    try:
        return np.asarray(np.arange(n_rows)[chosen])
    except IndexError as error:
        msg = f"cv: a fold contains rows that do not exist ({error})"
        raise ValueError(msg) from error


def choose(scores: FloatArray, rule: Rule) -> int:
    """Return the index of the chosen C, given scores of shape (n_folds, n_Cs)."""
    mean = scores.mean(axis=0)
    best = mean.max()
    slack = ROUNDING * max(1.0, abs(best))
    if rule == "one-standard-error" and len(scores) > 1:
        chosen = int(np.flatnonzero(mean >= best - slack)[0])
        slack += float(scores[:, chosen].std(ddof=1)) / np.sqrt(len(scores))
    return int(np.flatnonzero(mean >= best - slack)[0])


def check_scores(scores: FloatArray, scoring: Any) -> None:
    """Raise a ValueError for scores that cannot be compared."""
    if not np.isfinite(scores).all():
        msg = f"scoring: {scoring!r} gives scores that are not finite"
        raise ValueError(msg)


def store_choice(model: Any, Cs: FloatArray, found: dict[str, Any]) -> None:
    """Choose C, and set the attributes of the search.

    Raises a ValueError for scores that cannot be compared.
    """
    scores = found["score"]
    check_scores(scores, model.scoring)
    model.Cs_, model.cv_results_, model.scores_ = Cs, found, scores
    model.mean_score_, model.std_score_ = scores.mean(axis=0), scores.std(axis=0)
    chosen = choose(scores, model.rule)
    model.C_, model.best_score_ = float(Cs[chosen]), float(model.mean_score_[chosen])


def store_scores(model: Any, Cs: FloatArray, found: dict[str, Any]) -> None:
    """Choose C, and set the attributes of a search with bounds on scores.

    Raises a ValueError for scores that cannot be compared.
    """
    store_choice(model, Cs, found)
    model.score_bounds_ = np.stack([found["lower"], found["upper"]], axis=2)
    model.mean_score_bounds_ = model.score_bounds_.mean(axis=0)
