"""Trials that compare bounds on scores and decided rows with exact optima of random problems."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import balanced_accuracy_score, top_k_accuracy_score
from sklearn.model_selection import KFold

from dualgap import MulticlassSVC, MulticlassSVCCV
from dualgap.losses import Loss, StructuredHinge, TopK, WestonWatkins

# Options for fits that end at the limit of double precision.
EXACT = {"tol": 1e-11, "max_iter": 20_000, "random_state": 0}
SCORINGS = ("accuracy", "balanced_accuracy", "top-1", "neg_mean_cost")


def random_problem(rng: np.random.Generator) -> tuple[Any, Any, dict[str, Any]]:
    """Draw rows, labels and all parameters that the bounds depend on."""
    n, d, m = int(rng.integers(20, 50)), int(rng.integers(1, 5)), int(rng.integers(2, 5))
    y = np.concatenate([np.arange(m), np.arange(m), rng.integers(0, m, n - 2 * m)])
    X = rng.normal(size=(m, d))[y] * rng.uniform(0.2, 2) + rng.normal(size=(n, d))
    X = X.astype(rng.choice([np.float32, np.float64]))
    X = sp.csr_matrix(X * (rng.random(X.shape) < 0.7)) if rng.random() < 0.3 else X
    costs = rng.uniform(0.2, 2.0, size=(m, m)) * (1 - np.eye(m))
    losses: list[str | Loss] = ["max-hinge", WestonWatkins(), StructuredHinge(costs)]
    losses += [TopK(2)] if m > 2 else []
    parameters: dict[str, Any] = {
        "loss": losses[rng.integers(len(losses))],
        "smoothing": float(rng.choice([0.0, 0.1])),
        "fit_intercept": bool(rng.random() < 0.6),
        "class_weight": None if rng.random() < 0.7 else "balanced",
    }
    if parameters["fit_intercept"]:
        parameters["intercept_scaling"] = float(rng.choice([1.0, 3.0]))
    return X, y, parameters


def score(model: MulticlassSVC, X: Any, y: Any, scoring: str) -> float:
    """Compute the score independently of the search."""
    if scoring == "accuracy" or (scoring == "top-1" and len(model.classes_) == 2):
        return float(model.score(X, y))
    if scoring == "balanced_accuracy":
        return float(balanced_accuracy_score(y, model.predict(X)))
    if scoring == "top-1":
        labels = np.arange(len(model.classes_))
        return float(top_k_accuracy_score(y, model.decision_function(X), k=1, labels=labels))
    costs = 1 - np.eye(len(model.classes_))
    if isinstance(model.loss, StructuredHinge):
        costs = np.asarray(model.loss.costs)
    return -float(costs[y, model.predict(X)].mean())


def trial(seed: int) -> tuple[int, int, int, int, int]:
    """Return five counts: scores, scores outside their bounds, rows, decided and wrong rows.

    A row is wrong if it is decided, but the exact optimum predicts another class. Rows that the
    accurate fit leaves undecided are ignored, and so are scores on them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        return _trial(np.random.default_rng(seed))


def _trial(rng: np.random.Generator) -> tuple[int, int, int, int, int]:
    X, y, parameters = random_problem(rng)
    scoring = str(rng.choice(SCORINGS))
    weights = None if rng.random() < 0.5 else rng.uniform(0.1, 3.0, len(y))
    splitter = KFold(2, shuffle=True, random_state=int(rng.integers(2**31)))
    folds = list(splitter.split(y))
    # Narrower bounds also use free dual variables. Their width depends on the number of epochs.
    bounds = None if rng.random() < 0.5 else 1e-3
    search = MulticlassSVCCV(
        Cs=[0.01, 1.0], cv=folds, scoring=scoring, cv_tol=10 ** rng.uniform(-6, -1), refit=False,
        random_state=0, bounds=bounds, max_iter=int(10 ** rng.uniform(0.5, 3)), **parameters,
    ).fit(X, y, weights)  # fmt: skip
    found = np.zeros(5, dtype=int)
    for fold, (train, test) in enumerate(folds):
        if len(np.unique(y[train])) < len(search.classes_):
            continue
        own = None if weights is None else weights[train]
        for column, C in enumerate(search.Cs_):
            exact = MulticlassSVC(C=C, **parameters, **EXACT).fit(X[train], y[train], own)
            rough = MulticlassSVC(C=C, tol=10 ** rng.uniform(-6, -1), **parameters)
            rough.fit(X[train], y[train], own)
            settled, decided = (
                ~exact.prediction_may_change(X[test]),
                ~rough.prediction_may_change(X[test]),
            )
            changed = rough.predict(X[test]) != exact.predict(X[test])
            found[2:] += len(test), decided.sum(), (changed & settled & decided).sum()
            if settled.all():
                lower, upper = search.score_bounds_[fold, column]
                at = score(exact, X[test], y[test], scoring)
                found[:2] += 1, not lower - 1e-12 <= at <= upper + 1e-12
    scores, outside, rows, n_decided, n_changed = map(int, found)
    return scores, outside, rows, n_decided, n_changed
