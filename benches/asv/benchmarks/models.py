"""Short fits and predictions on one thread, on generated data."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

import dualgap
from dualgap.datasets import synthetic_ratings
from dualgap.losses import TopK
from dualgap.structured import ChainModel, MultilabelModel

Case = tuple[Any, Any, Any]

RUN = {"random_state": 0, "n_jobs": 1, "verbose": 0}


def rows(n: int, columns: int, classes: int, density: float = 1.0) -> tuple[Any, Any]:
    """Return rows of noisy linear classes, sparse below a density of 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, columns))
    if density < 1.0:
        X *= rng.random(X.shape) < density
    scores = X @ rng.normal(size=(columns, classes))
    y = (scores + scores.std() * rng.normal(size=scores.shape)).argmax(axis=1)
    return (X if density == 1.0 else sp.csr_array(X)), y


def words() -> tuple[Any, Any]:
    """Return sequences of rows with a label for each row."""
    X, y = rows(2000, 20, 6)
    return np.array_split(X, 250), np.array_split(y, 250)


def sentences() -> tuple[Any, Any]:
    """Return sentences of named features with a tag for each token."""
    X, y = words()
    names = [[[f"{column}={value > 0}" for column, value in enumerate(x)] for x in s] for s in X]
    return names, [[f"T{tag}" for tag in tags] for tags in y]


CASES: dict[str, Callable[[], Case]] = {
    "svc-dense": lambda: (dualgap.MulticlassSVC(C=1.0, **RUN), *rows(3000, 50, 10)),
    "svc-sparse": lambda: (dualgap.MulticlassSVC(C=1.0, **RUN), *rows(3000, 2000, 10, 0.02)),
    "svc-many-classes": lambda: (dualgap.MulticlassSVC(C=0.1, **RUN), *rows(3000, 50, 200)),
    "svc-float32": lambda: (
        dualgap.MulticlassSVC(C=1.0, **RUN),
        rows(3000, 50, 10)[0].astype(np.float32),
        rows(3000, 50, 10)[1],
    ),
    "svc-top-k": lambda: (dualgap.MulticlassSVC(TopK(2), **RUN), *rows(2000, 30, 8)),
    "svc-smooth": lambda: (dualgap.MulticlassSVC(smoothing=0.1, **RUN), *rows(2000, 30, 8)),
    "svc-weston-watkins": lambda: (
        dualgap.MulticlassSVC("weston-watkins", **RUN),
        *rows(2000, 30, 8),
    ),
    "svc-newton": lambda: (dualgap.MulticlassSVC(solver="newton", **RUN), *rows(1000, 20, 5)),
    "svc-frank-wolfe": lambda: (
        dualgap.MulticlassSVC(solver="block-frank-wolfe", C=0.01, tol=0.05, **RUN),
        *rows(1000, 20, 5),
    ),
    "svc-search": lambda: (dualgap.MulticlassSVCCV(Cs=5, cv=3, **RUN), *rows(600, 20, 5)),
    "logistic-dense": lambda: (dualgap.LogisticRegression(**RUN), *rows(3000, 50, 10)),
    "logistic-sparse": lambda: (dualgap.LogisticRegression(**RUN), *rows(2000, 1000, 6, 0.02)),
    "polynomial": lambda: (
        dualgap.PolynomialNetworkClassifier(5, tol=0.1, **RUN),
        *rows(1000, 20, 4),
    ),
    "factorization-machine": lambda: (
        dualgap.FactorizationMachineClassifier(5, tol=0.1, **RUN),
        *rows(1000, 20, 4),
    ),
    "chain": lambda: (dualgap.StructuredSVM(ChainModel(), C=0.1, tol=0.05, **RUN), *words()),
    "multilabel": lambda: (
        dualgap.StructuredSVM(MultilabelModel(), C=0.1, tol=0.05, **RUN),
        rows(500, 10, 4)[0],
        (rows(500, 10, 4)[0][:, :4] > 0.0).astype(int),
    ),
    "tagger": lambda: (dualgap.SequenceTagger("logistic", C=1.0, **RUN), *sentences()),
    "recommender": lambda: (
        dualgap.OrdinalRecommender(random_state=0, n_jobs=1, verbose=0),
        synthetic_ratings(5000, 200, 100),
        None,
    ),
}


def fitted(case: Case) -> Any:
    """Return a fitted copy of the estimator of a case."""
    estimator, X, y = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(estimator).fit(*((X,) if y is None else (X, y)))


class Fit:
    """Processor time and epochs of a fit."""

    params = list(CASES)
    param_names = ["model"]
    timer = time.process_time
    timeout = 60.0

    def setup(self, name: str) -> None:
        self.case = CASES[name]()

    def time_fit(self, name: str) -> None:
        fitted(self.case)

    def track_epochs(self, name: str) -> int:
        return int(fitted(self.case).n_iter_)


class Use:
    """Processor time of predictions and of a model file."""

    params = ["svc-dense", "svc-sparse", "logistic-dense", "polynomial", "chain", "tagger"]
    param_names = ["model"]
    timer = time.process_time

    def setup(self, name: str) -> None:
        _, self.X, _ = case = CASES[name]()
        self.model = fitted(case)
        self.path = Path(tempfile.mkdtemp()) / "model.npz"

    def teardown(self, name: str) -> None:
        self.path.unlink(missing_ok=True)
        self.path.parent.rmdir()

    def time_predict(self, name: str) -> None:
        self.model.predict(self.X)

    def time_save_and_load(self, name: str) -> None:
        self.model.save(self.path)
        type(self.model).load(self.path)
