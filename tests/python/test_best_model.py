"""Fits return the best model found, which is never worse than the null model."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

import dualgap
from dualgap.distributed import ConsensusLogisticRegression, ConsensusSVC
from dualgap.losses import Loss
from dualgap.sequence import SequenceTagger
from dualgap.structured import (
    ChainModel,
    MatchingModel,
    MulticlassModel,
    MultilabelModel,
    StructuredSVM,
)

# These fits end before they converge.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

D = 6
SCALES = np.logspace(-3, 5, D)
rng = np.random.default_rng(0)
ROWS = rng.normal(size=(60, D)) * SCALES
LABELS = rng.integers(0, 3, size=60)
WORDS = [rng.normal(size=(4, D)) * SCALES for _ in range(15)]
WORD_LABELS = [rng.integers(0, 3, size=4) for _ in WORDS]
SETS = rng.integers(0, 2, size=(60, 3))
PAIRS = [rng.normal(size=(3, 3, D)) * SCALES for _ in range(12)]
LINKS = [np.stack([np.arange(3), rng.permutation(3)], axis=1) for _ in PAIRS]
TOKENS = [[{f"x{j}": float(v) for j, v in enumerate(row)} for row in word] for word in WORDS]
TAGS = [[str(label) for label in word] for word in WORD_LABELS]


class Own:
    """The structured hinge loss of classes, as a model written in Python."""

    def joint_features(self, x: Any, label: int) -> Any:
        features = np.zeros(3 * D)
        features[label * D : (label + 1) * D] = x
        return features

    def loss(self, right: int, label: int) -> float:
        return float(right != label)

    def loss_augmented_decode(self, x: Any, right: int, weights: Any) -> int:
        scores = weights.reshape(3, D) @ x + (np.arange(3) != right)
        return int(scores.argmax())

    def decode(self, x: Any, weights: Any) -> int:
        return int((weights.reshape(3, D) @ x).argmax())


LINEAR = [
    "auto",
    "block-descent",
    "frank-wolfe",
    "block-frank-wolfe",
    "away-frank-wolfe",
    "projected-gradient",
    "subgradient",
]
STRUCTURED = [*LINEAR[2:], "extragradient"]


def fits() -> dict[str, tuple[Any, Any, Any]]:
    """Return an estimator and its data for every kind of model and every solver."""
    some: dict[str, tuple[Any, Any, Any]] = {}
    for solver in LINEAR:
        svc = dualgap.MulticlassSVC(solver=solver, random_state=0)
        some[f"svc {solver}"] = (svc, ROWS, LABELS)
        some[f"svc single {solver}"] = (clone(svc), ROWS.astype(np.float32), LABELS)
        some[f"svc smooth {solver}"] = (clone(svc).set_params(smoothing=0.1), ROWS, LABELS)
        joint = dualgap.ClassFeatureSVC(np.eye(3)[:, :2], solver=solver, random_state=0)
        some[f"class features {solver}"] = (joint, ROWS, LABELS)
    del some["svc smooth away-frank-wolfe"]
    structured = {
        "classes": (MulticlassModel(), ROWS, LABELS),
        "chain": (ChainModel(), WORDS, WORD_LABELS),
        "matching": (MatchingModel(), PAIRS, LINKS),
        "label sets": (MultilabelModel(), ROWS, SETS),
        "own model": (Own(), list(ROWS), list(LABELS)),
    }
    for (name, (model, X, Y)), solver in itertools.product(structured.items(), STRUCTURED):
        if (name, solver) != ("own model", "extragradient"):
            svm = StructuredSVM(model, solver=solver, random_state=0)
            some[f"{name} {solver}"] = (svm, X, Y)
    for name, solver in itertools.product(
        ["chain", "own model"], ["block-frank-wolfe", "subgradient"]
    ):
        model, X, Y = structured[name]
        svm = StructuredSVM(model, solver=solver, averaging=True, random_state=0)
        some[f"{name} averaged {solver}"] = (svm, X, Y)
    for loss in ("logistic", "hamming"):
        some[f"tagger {loss}"] = (SequenceTagger(loss, random_state=0), TOKENS, TAGS)
    some["consensus"] = (ConsensusSVC(n_partitions=2, random_state=0), ROWS, LABELS)
    for smoothing in (0.0, 0.1):
        svc = dualgap.MulticlassSVC(solver="newton", smoothing=smoothing, random_state=0)
        some[f"svc newton {smoothing}"] = (svc, ROWS, LABELS)
    sparse = scipy.sparse.csr_array(np.where(ROWS > 0, ROWS, 0.0))
    for solver, X in [("newton", ROWS), ("newton", sparse), ("dual-descent", sparse)]:
        model = dualgap.LogisticRegression(solver=solver, random_state=0)
        some[f"logistic {solver} {type(X).__name__}"] = (model, X, LABELS)
    some["logistic auto"] = (dualgap.LogisticRegression(random_state=0), sparse, LABELS)
    features = dualgap.ClassFeatureLogisticRegression(np.eye(3)[:, :2])
    some["class features logistic"] = (features, ROWS, LABELS)
    some["consensus logistic"] = (ConsensusLogisticRegression(n_partitions=2), ROWS, LABELS)
    for kind in ("PolynomialNetworkClassifier", "FactorizationMachineClassifier"):
        some[kind] = (getattr(dualgap, kind)(3, random_state=0), ROWS, LABELS)
    for kind in ("PolynomialNetworkRegressor", "FactorizationMachineRegressor"):
        some[kind] = (getattr(dualgap, kind)(3, random_state=0), ROWS, LABELS.astype(float))
    return some


FITS = fits()


def check_bounds(model: Any) -> None:
    assert model.objective_ <= model.null_objective_
    assert 0.0 <= model.dual_objective_ <= model.objective_
    assert model.duality_gap_ == model.objective_ - model.dual_objective_


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("n_iter", [1, 4])
def test_no_fit_is_worse_than_the_null_model(name: str, n_iter: int) -> None:
    model, X, Y = FITS[name]
    model = clone(model).set_params(max_iter=n_iter, n_jobs=1).fit(X, Y)
    check_bounds(model)
    if not isinstance(model, ConsensusSVC) and "rounds" not in model.history_:
        # Row n of the history is the certificate of the model that a fit with n epochs returns.
        for column, ahead in (("objective", -1.0), ("dual_objective", 1.0)):
            values = model.history_[column]
            values = values[~np.isnan(values)]
            assert (np.diff(ahead * values) >= 0.0).all()
        if not np.isnan(model.history_["gap"][-1]):
            assert model.history_["objective"][-1] == model.objective_
            assert model.history_["dual_objective"][-1] == model.dual_objective_


@pytest.mark.parametrize("name", FITS)
def test_a_callback_stops_at_the_best_model(name: str) -> None:
    model, X, Y = FITS[name]
    model = clone(model).set_params(callback=lambda epoch, *_: epoch == 2, n_jobs=1)
    check_bounds(model.fit(X, Y))


def mean_hinge(model: Any, X: Any, lam: float) -> float:
    """The objective of a linear model of the max hinge, from its attributes."""
    scores = X @ model.coef_.T + model.intercept_
    right = scores[np.arange(len(X)), LABELS][:, None]
    wrong = np.arange(3) != LABELS[:, None]
    loss = np.maximum(0.0, ((wrong + scores - right) * wrong).max(axis=1)).mean()
    square = (model.coef_**2).sum() + (model.intercept_**2).sum()
    return float(0.5 * lam * square + loss)


@pytest.mark.parametrize("solver", LINEAR)
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_the_objective_belongs_to_the_returned_weights(solver: str, scale: float) -> None:
    X = ROWS / SCALES * np.logspace(0, 2, D) * scale
    for max_iter in (1, 2, 3, 5, 8):
        model = dualgap.MulticlassSVC(
            "max-hinge", solver=solver, max_iter=max_iter, tol=1e-9, random_state=0, n_jobs=1
        ).fit(X, LABELS)
        found = mean_hinge(model, X, 1.0 / len(X))
        assert found == pytest.approx(model.objective_, rel=1e-6)


@pytest.mark.parametrize("solver", ["block-descent", "frank-wolfe", "block-frank-wolfe"])
def test_a_warm_start_continues_from_the_last_dual_point(solver: str) -> None:
    model = dualgap.MulticlassSVC(
        solver=solver, max_iter=3, warm_start=True, random_state=0, n_jobs=1
    )
    bounds = []
    for _ in range(3):
        check_bounds(model.fit(ROWS, LABELS))
        bounds.append(model.dual_objective_)
    assert bounds[0] <= bounds[-1] * (1.0 + 1e-9)


def test_paths_and_cross_validation_are_never_worse_than_the_null_model() -> None:
    model = dualgap.MulticlassSVC(max_iter=2, random_state=0, n_jobs=1)
    for piece in model.path(ROWS, LABELS, 0.5, 1.0):
        assert piece.duality_gap <= 1.0
        assert piece.relative_gap <= 1.0
    search = dualgap.MulticlassSVCCV(Cs=[0.1, 1.0], cv=2, max_iter=2, random_state=0, n_jobs=1)
    check_bounds(search.fit(ROWS, LABELS))


NOTHING = [
    (dualgap.MulticlassSVC(Loss("max-hinge", costs=np.zeros((3, 3)))), ROWS, LABELS),
    (
        dualgap.MulticlassSVC(Loss("max-hinge", costs=np.zeros((3, 3))), solver="frank-wolfe"),
        ROWS,
        LABELS,
    ),
    *(
        (StructuredSVM(ChainModel(), solver=s), WORDS, [w * 0 for w in WORD_LABELS])
        for s in STRUCTURED
    ),
    (StructuredSVM(MatchingModel(0.0, 0.0)), PAIRS, LINKS),
    (SequenceTagger("logistic"), TOKENS, [["a"] * len(word) for word in TAGS]),
    (SequenceTagger("hamming"), TOKENS, [["a"] * len(word) for word in TAGS]),
]


@pytest.mark.parametrize("number", range(len(NOTHING)))
def test_a_fit_that_cannot_improve_on_zero_weights_converges_at_once(number: int) -> None:
    model, X, y = NOTHING[number]
    model = clone(model).set_params(max_iter=50, random_state=0, n_jobs=1).fit(X, y)
    assert model.converged_
    assert model.n_iter_ == 1
    assert model.objective_ == pytest.approx(0.0, abs=1e-10)
