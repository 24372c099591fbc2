"""A small fit of every estimator, for tests of common behaviour."""

from __future__ import annotations

from typing import Any

import numpy as np

import dualgap
from dualgap.datasets import synthetic_ratings
from dualgap.distributed import ConsensusSVC
from dualgap.losses import TopK
from dualgap.recommend import ConditionalGradient, OrdinalRecommender, Variational
from dualgap.sequence import SequenceTagger
from dualgap.structured import ChainModel, MatchingModel, MulticlassModel, MultilabelModel

rng = np.random.default_rng(0)
ROWS = rng.normal(size=(60, 4))
LABELS = np.digitize(ROWS[:, 0], [-0.4, 0.4])
TARGETS = ROWS[:, 0] * ROWS[:, 1]
WORDS = [rng.normal(size=(3, 4)) for _ in range(12)]
WORD_LABELS = [word.argmax(axis=1) for word in WORDS]
SETS = [(row > 0.0).astype(int) for row in ROWS]
PAIRS = [rng.normal(size=(3, 3, 2)) for _ in range(8)]
LINKS = [np.array([[0, 0], [1, 1], [2, 2]]) for _ in PAIRS]
SENTENCES = [[["w=the"], ["w=cat"]], [["w=a"], ["w=dog"], ["w=ran", "last"]]] * 4
TAGS = [["D", "N"], ["D", "N", "V"]] * 4
RATINGS = synthetic_ratings(400, 30, 20)

CLASSES = (ROWS, LABELS)
SOLVERS = [
    "block-descent",
    "newton",
    "frank-wolfe",
    "block-frank-wolfe",
    "away-frank-wolfe",
    "projected-gradient",
    "subgradient",
]
FITS: dict[str, tuple[Any, Any, Any]] = {
    "logistic": (dualgap.LogisticRegression(), *CLASSES),
    "logistic-cv": (
        dualgap.LogisticRegressionCV(Cs=[0.1, 1.0], cv=2),
        *CLASSES,
    ),
    "svc": (dualgap.MulticlassSVC(random_state=0), *CLASSES),
    "svc-topk": (dualgap.MulticlassSVC(TopK(2), smoothing=0.1, random_state=0), *CLASSES),
    "svc-frank-wolfe": (
        dualgap.MulticlassSVC(solver="frank-wolfe", tol=0.1, random_state=0),
        *CLASSES,
    ),
    "svc-cv": (dualgap.MulticlassSVCCV(Cs=[0.1, 1.0], cv=2, random_state=0), *CLASSES),
    "class-features": (
        dualgap.ClassFeatureSVC(np.eye(3)[:, :2], tol=0.01, random_state=0),
        *CLASSES,
    ),
    "consensus": (ConsensusSVC(n_partitions=2, tol=0.01, random_state=0), *CLASSES),
    "pn": (dualgap.PolynomialNetworkClassifier(3, tol=0.1, random_state=0), *CLASSES),
    "pn-cv": (
        dualgap.PolynomialNetworkClassifierCV(
            [1.0, 10.0], n_components=3, cv=2, tol=0.1, random_state=0
        ),
        *CLASSES,
    ),
    "fm": (dualgap.FactorizationMachineClassifier(3, tol=0.1, random_state=0), *CLASSES),
    "pn-regressor": (dualgap.PolynomialNetworkRegressor(3, tol=0.1, random_state=0), ROWS, TARGETS),
    "fm-regressor": (
        dualgap.FactorizationMachineRegressor(3, tol=0.1, random_state=0),
        ROWS,
        TARGETS,
    ),
    "chain": (dualgap.StructuredSVM(ChainModel(), C=0.1, random_state=0), WORDS, WORD_LABELS),
    "multilabel": (dualgap.StructuredSVM(MultilabelModel(), C=0.1, random_state=0), ROWS, SETS),
    "structured-classes": (
        dualgap.StructuredSVM(MulticlassModel(), C=0.1, random_state=0),
        *CLASSES,
    ),
    "matching": (dualgap.StructuredSVM(MatchingModel(), C=0.1, random_state=0), PAIRS, LINKS),
    "tagger": (SequenceTagger("logistic", C=1.0, tol=1e-2, random_state=0), SENTENCES, TAGS),
    "tagger-hinge": (SequenceTagger("hamming", random_state=0), SENTENCES, TAGS),
    "recommender": (
        OrdinalRecommender(method=Variational(n_models=1, max_iter=5), random_state=0),
        RATINGS,
        None,
    ),
    "recommender-gradient": (
        OrdinalRecommender(
            4, method=ConditionalGradient(radius=10.0, tol=0.5), random_state=0, interactions=False
        ),
        RATINGS,
        None,
    ),
    "recommender-likes": (
        OrdinalRecommender(task="clicks", random_state=0),
        RATINGS,
        None,
    ),
}
