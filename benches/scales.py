"""Estimators with a certificate on columns of two scales, with default settings.

    python benches/scales.py [estimators] [--repeats 3]

Rows are standard normal; every second column is multiplied by a factor from 1e-6 to 1e6. The labels
of three classes come from noisy scores that are linear in the unscaled columns. Chains have three
rows; label sets contain the two classes with the highest scores; matchings link three rows to three
columns with the highest sum of scores. Seconds are the median of
`--repeats` fits on one thread; a fit is stopped after 10 s. `over_null` is the objective divided by
the objective at W = 0.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from _record import Table
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from dualgap import (
    ClassFeatureLogisticRegression,
    ClassFeatureSVC,
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    LogisticRegression,
    LogisticRegressionCV,
    MulticlassSVC,
    MulticlassSVCCV,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
    StructuredSVM,
)
from dualgap.distributed import ConsensusLogisticRegression, ConsensusSVC
from dualgap.sequence import SequenceTagger
from dualgap.structured import ChainModel, MatchingModel, MultilabelModel

N_ROWS, N_COLUMNS, N_CLASSES = 600, 6, 3
SCALES = tuple(f"1e{power}" for power in range(-6, 7, 2))
LIMIT = 10.0


def stop(_epoch: int, elapsed: float, *_values: float) -> bool:
    return elapsed > LIMIT


def rows(scale: float) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    X = random.normal(size=(N_ROWS, N_COLUMNS))
    scores = X @ random.normal(size=(N_COLUMNS, N_CLASSES))
    scores += 0.5 * random.normal(size=scores.shape)
    X[:, ::2] *= scale
    return X, scores


def classes(estimator: Any, scale: float) -> Any:
    X, scores = rows(scale)
    return estimator.fit(X, scores.argmax(axis=1))


def chains(estimator: Any, scale: float) -> Any:
    X, scores = rows(scale)
    lengths = range(0, N_ROWS, 3)
    return estimator.fit([X[i : i + 3] for i in lengths], scores.argmax(axis=1).reshape(-1, 3))


def sentences(estimator: Any, scale: float) -> Any:
    X, scores = rows(scale)
    tokens = [{f"x{column}": value for column, value in enumerate(row)} for row in X.tolist()]
    labels = list(map(str, scores.argmax(axis=1)))
    lengths = range(0, N_ROWS, 3)
    return estimator.fit([tokens[i : i + 3] for i in lengths], [labels[i : i + 3] for i in lengths])


def sets(estimator: Any, scale: float) -> Any:
    X, scores = rows(scale)
    return estimator.fit(X, (scores > np.sort(scores, axis=1)[:, :1]).astype(int))


def numbers(estimator: Any, scale: float) -> Any:
    X, scores = rows(scale)
    return estimator.fit(X, scores[:, 0] - scores[:, 1])


def matchings(estimator: Any, scale: float) -> Any:
    random = np.random.default_rng(0)
    pairs = random.normal(size=(N_ROWS // 9, 3, 3, N_COLUMNS))
    scores = pairs @ random.normal(size=N_COLUMNS) + 0.5 * random.normal(size=pairs.shape[:3])
    links = [np.c_[linear_sum_assignment(-own)] for own in scores]
    pairs[..., ::2] *= scale
    return estimator.fit(list(pairs), links)


FITS: dict[str, tuple[Any, Any]] = {
    "MulticlassSVC": (classes, MulticlassSVC()),
    "MulticlassSVC, block-descent": (classes, MulticlassSVC(solver="block-descent")),
    "MulticlassSVC, smoothing 0.1": (classes, MulticlassSVC(smoothing=0.1)),
    "MulticlassSVCCV": (classes, MulticlassSVCCV(Cs=[0.1, 1.0], cv=3)),
    "LogisticRegression": (classes, LogisticRegression()),
    "LogisticRegressionCV": (classes, LogisticRegressionCV(Cs=[0.1, 1.0], cv=3)),
    "ClassFeatureSVC": (classes, ClassFeatureSVC(np.eye(N_CLASSES))),
    "ClassFeatureLogisticRegression": (
        classes,
        ClassFeatureLogisticRegression(np.eye(N_CLASSES)),
    ),
    "ConsensusSVC": (classes, ConsensusSVC(n_partitions=2)),
    "ConsensusLogisticRegression": (classes, ConsensusLogisticRegression(n_partitions=2)),
    "StructuredSVM, ChainModel": (chains, StructuredSVM(ChainModel())),
    "StructuredSVM, MultilabelModel": (sets, StructuredSVM(MultilabelModel())),
    "StructuredSVM, MatchingModel": (matchings, StructuredSVM(MatchingModel())),
    "SequenceTagger, hamming": (sentences, SequenceTagger("hamming")),
    "SequenceTagger, logistic": (sentences, SequenceTagger("logistic")),
    "FactorizationMachineClassifier": (classes, FactorizationMachineClassifier()),
    "PolynomialNetworkClassifier": (classes, PolynomialNetworkClassifier()),
    "FactorizationMachineRegressor": (numbers, FactorizationMachineRegressor()),
    "PolynomialNetworkRegressor": (numbers, PolynomialNetworkRegressor()),
}


def measure(name: str, repeats: int) -> None:
    table = Table("scales", "estimator", "scale")
    fit, estimator = FITS[name]
    estimator.set_params(n_jobs=1, random_state=0, callback=stop)
    for scale in SCALES:
        elapsed = []
        while len(elapsed) < repeats and sum(elapsed) < LIMIT:
            start = time.perf_counter()
            model = fit(clone(estimator), float(scale))
            elapsed.append(time.perf_counter() - start)
        table.add(
            estimator=name, scale=scale, seconds=float(np.median(elapsed)), gap=model.relative_gap_,
            over_null=model.objective_ / model.null_objective_, converged=model.converged_,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("estimators", nargs="*")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.estimators or FITS:
        measure(name, arguments.repeats)


if __name__ == "__main__":
    main()
