"""ClassFeatureSVC: features of rows and classes, certificates, classes without training rows."""

from __future__ import annotations

import sys
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).parents[1] / "certificates"))

from exact import dot, fractions

from dualgap import ClassFeatureSVC, MulticlassSVC, StructuredSVM
from dualgap.losses import LOSSES, Loss, StructuredHinge, Usunier

N, D, M, P = 60, 4, 5, 3


def problem() -> tuple[Any, Any, Any]:
    """Rows, labels, and features of the classes."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % M
    Z = rng.normal(size=(M, P)) * (rng.random((M, P)) < 0.8)
    return Z[y] @ rng.normal(size=(P, D)) + rng.normal(size=(N, D)), y, Z


def kronecker(X: Any, classes: Any) -> Any:
    """Return the joint features kron(z_j, [x, 1]), as a user's callable."""
    Z, rows = problem()[2][classes], np.c_[X, np.ones(len(X))]
    return np.einsum("jp,nd->njpd", Z, rows).reshape(len(X) * len(Z), -1)


def fit(features: Any, X: Any, y: Any, **parameters: Any) -> ClassFeatureSVC:
    defaults: dict[str, Any] = {"C": 0.2, "random_state": 0, "tol": 1e-5, "max_iter": 3000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return ClassFeatureSVC(features, **{**defaults, **parameters}).fit(X, y)


def make_losses() -> list[Loss]:
    given = {"k": 2, "weights": [0.6, 0.4, 0.2, 0.0, 0.0]}
    return [Loss(name, **{own: given[own] for own in owns}) for name, owns in LOSSES.items()]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("loss", make_losses(), ids=repr)
def test_solvers_agree_for_every_loss(loss: Loss, smoothing: float) -> None:
    X, y, Z = problem()
    common: dict[str, Any] = {"loss": loss, "smoothing": smoothing}
    best = fit(Z, X, y, **common)
    assert best.converged_
    for solver, iterations in [("block-frank-wolfe", 300), ("frank-wolfe", 200)]:
        other = fit(Z, X, y, solver=solver, max_iter=iterations, **common)
        assert other.dual_objective_ <= best.objective_
        assert best.dual_objective_ <= other.objective_
        assert other.relative_gap_ < 0.5
    own = fit(kronecker, X, y, **common)
    assert own.converged_
    assert own.objective_ == pytest.approx(best.objective_, rel=2e-5)
    assert own.coef_ == pytest.approx(np.c_[best.coef_, best.intercept_].ravel(), abs=0.02)


@pytest.mark.parametrize("loss", make_losses(), ids=repr)
def test_the_objective_belongs_to_the_returned_weights(loss: Loss) -> None:
    X, y, Z = problem()
    model = fit(Z, X, y, loss=loss, tol=1e-3)
    scores = (X @ model.coef_.T + model.intercept_) @ Z.T
    assert model.decision_function(X) == pytest.approx(scores)
    v = 1.0 + scores - scores[np.arange(N), y][:, None]
    v[np.arange(N), y] = 0.0
    ordered = -np.sort(-v, axis=1)
    k, weights = loss.k or 1, np.array(loss.weights or [0.0])
    values = {
        "top-k": np.maximum(ordered[:, :k].mean(axis=1), 0),
        "usunier": np.maximum(ordered[:, :k], 0).mean(axis=1),
        "weston-watkins": np.maximum(v, 0).sum(axis=1),
        "weighted-top-k": np.maximum((ordered * weights).sum(axis=1), 0),
        "weighted-usunier": (np.maximum(ordered, 0) * weights).sum(axis=1),
    }.get(loss.name, ordered[:, 0])
    norm = (model.coef_**2).sum() + (model.intercept_**2).sum()
    assert model.objective_ == pytest.approx(0.5 * norm / (0.2 * N) + values.mean(), rel=1e-9)


def test_indicators_give_each_class_separate_weights() -> None:
    X, y, _ = problem()
    plain = MulticlassSVC("weston-watkins", C=0.2, tol=1e-6, random_state=0).fit(X, y)
    for features in (np.eye(M), sp.eye_array(M, format="csr")):
        model = fit(features, X, y, loss="weston-watkins", tol=1e-6)
        assert model.objective_ == pytest.approx(plain.objective_, rel=2e-6)
        assert model.coef_ == pytest.approx(plain.coef_, abs=0.01)


@pytest.mark.parametrize("C", [1.0, 100.0])
def test_newton_finishes_fits_that_stall(C: float) -> None:
    X, y = load_iris(return_X_y=True)
    plain = MulticlassSVC("max-hinge", C=C, tol=1e-6, random_state=0).fit(X, y)

    def extract(rows: Any, classes: Any) -> Any:
        found = np.einsum("jp,nd->njpd", np.eye(3)[classes], np.c_[rows, np.ones(len(rows))])
        return found.reshape(3 * len(rows), -1)

    for features in (np.eye(3), extract):
        model = ClassFeatureSVC(features, C=C, tol=1e-5, random_state=0, max_iter=60).fit(X, y)
        assert model.converged_
        assert plain.dual_objective_ <= model.objective_ <= plain.objective_ * (1 + 1e-5)
        assert model.dual_objective_ <= plain.objective_
        solvers = model.history_["solver"]
        n_first = int((solvers == "block-descent").sum())
        assert 0 < n_first < model.n_iter_
        assert (solvers[n_first:] == "newton").all()
    # Descent alone stays far from the optimum, so the test would fail without the hand-over.
    descent = fit(np.eye(3), X, y, C=C, max_iter=60, solver="block-descent")
    assert descent.relative_gap_ > 0.01
    assert set(descent.history_["solver"]) == {"block-descent"}


def test_a_structured_model_of_the_same_features_has_the_same_optimum() -> None:
    X, y, Z = problem()

    class Bilinear:
        def joint_features(self, x: Any, y: int) -> Any:
            return np.kron(Z[y], x)

        def loss(self, y_true: int, y: int) -> float:
            return float(y_true != y)

        def loss_augmented_decode(self, x: Any, y_true: int, w: Any) -> int:
            scores = [self.loss(y_true, j) + w @ self.joint_features(x, j) for j in range(M)]
            return int(np.argmax(scores))

        def decode(self, x: Any, w: Any) -> int:
            return int(np.argmax([w @ self.joint_features(x, j) for j in range(M)]))

    other = StructuredSVM(Bilinear(), C=0.2, tol=1e-3, step="pairwise", random_state=0)
    other.fit(list(X), y.tolist())
    model = fit(Z, X, y, fit_intercept=False)
    assert other.dual_objective_ <= model.objective_
    assert model.dual_objective_ <= other.objective_


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
def test_sparse_and_single_precision_rows_reach_the_optimum(dtype: Any, sparse: bool) -> None:
    X, y, Z = problem()
    reference = fit(Z, X, y)
    rows = X.astype(dtype)
    given = sp.csr_array(rows) if sparse else rows
    features = sp.csr_array(Z) if sparse else Z.tolist()

    def extract(block: Any, classes: Any) -> Any:
        found = kronecker(block.toarray() if sparse else block, classes).astype(dtype)
        return sp.csr_array(found) if sparse else found

    for which in (features, extract):
        for solver in ("auto", "frank-wolfe"):
            model = fit(which, given, y, solver=solver, tol=1e-4, max_iter=1000)
            assert model.dual_objective_ <= reference.objective_ * (1 + 1e-5)
            assert model.objective_ == pytest.approx(reference.objective_, rel=0.05)
            assert model.predict(given).shape == (N,)
            assert model.decision_function(given) == pytest.approx(
                reference.decision_function(X), abs=0.5
            )


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    X, y, Z = problem()
    for which in (Z, kronecker):
        for solver in ("block-descent", "frank-wolfe"):
            one, three = (
                fit(which, X, y, solver=solver, n_jobs=n, max_iter=20, smoothing=0.1)
                for n in (1, 3)
            )
            assert (one.coef_ == three.coef_).all()
            assert one.dual_objective_ == three.dual_objective_


def test_costs_weights_and_custom_losses_are_supported() -> None:
    X, y, Z = problem()
    costs = np.abs(np.subtract.outer(np.arange(M), np.arange(M))) / 2.0
    weights = np.linspace(0.0, 2.0, N)
    model = ClassFeatureSVC(Z, loss=StructuredHinge(costs), C=0.2, random_state=0, tol=1e-4)
    assert model.fit(X, y, sample_weight=weights).converged_
    twice = ClassFeatureSVC(Z, C=0.2, random_state=0, tol=1e-6)
    repeated = twice.fit(np.r_[X, X], np.r_[y, y]).objective_
    weighted = twice.fit(X, y, sample_weight=np.full(N, 2.0)).objective_
    assert repeated == pytest.approx(weighted, rel=2e-6)
    balanced = ClassFeatureSVC(Z, class_weight={0: 3.0}, random_state=0).fit(X, y)
    assert balanced.converged_

    class Largest:
        def support(self, margins: Any, label: int) -> Any:
            return max(margins.max(), 0.0)

        def vertex(self, margins: Any, label: int) -> Any:
            return np.eye(M)[margins.argmax()] * (margins.max() > 0)

    own = fit(Z, X, y, loss=Largest(), tol=1e-2)
    assert own.certificate_ == "exact if the loss's vertex is"
    assert own.dual_objective_ <= fit(Z, X, y).objective_ <= own.objective_ * (1 + 1e-5)


def test_classes_without_training_rows_are_predicted() -> None:
    rng = np.random.default_rng(0)
    kinds = np.array([[k >> bit & 1 for bit in range(4)] for k in range(16)]) * 2.0 - 1.0
    looks = rng.normal(size=(4, 12))
    names = np.array([f"kind {k}" for k in range(16)])
    unseen = np.isin(np.arange(16), [2, 5, 11])
    y = rng.integers(0, 16, 400)
    X = kinds[y] @ looks + rng.normal(size=(400, 12))
    known = ~unseen[y]
    model = ClassFeatureSVC(kinds[~unseen], classes=names[~unseen], C=0.05, random_state=0)
    model.fit(X[known], names[y[known]])
    found = model.predict(X[~known], kinds[unseen], names[unseen])
    assert np.mean(found == names[y[~known]]) > 0.9
    positions = model.predict(X[~known], kinds[unseen])
    assert (names[unseen][positions] == found).all()
    assert (model.predict(X) == model.predict(X, kinds[~unseen], names[~unseen])).all()
    # A class without rows is also allowed in training.
    rivals = ClassFeatureSVC(kinds, classes=names, C=0.05, random_state=0)
    rivals.fit(X[known], names[y[known]])
    assert (rivals.classes_ == names).all()
    assert np.mean(rivals.predict(X[known]) == names[y[known]]) > 0.9


def test_concatenation_adds_separate_weights_of_each_class() -> None:
    X, y, Z = problem()
    model = fit(Z, X, y, combine="concatenate")
    same = fit(np.hstack([np.eye(M), Z]), X, y)
    assert model.coef_ == pytest.approx(same.coef_, abs=1e-4)
    assert model.objective_ < fit(Z, X, y).objective_
    assert model.objective_ < fit(np.eye(M), X, y).objective_
    shared = (X @ model.coef_[M:].T + model.intercept_[M:]) @ Z.T
    assert model.decision_function(X, Z) == pytest.approx(shared)


def test_fits_with_zero_rows_have_valid_gaps_and_call_the_callback() -> None:
    X, y, Z = problem()
    X[:5] = 0.0
    seen = []
    model = fit(Z, X, y, fit_intercept=False, callback=lambda *epoch: seen.append(epoch))
    assert model.converged_
    assert len(seen) == model.n_iter_
    assert (model.history_["gap"] >= 0).all()
    assert model.duality_gap_ == model.objective_ - model.dual_objective_
    assert fit(Z, X, y, callback=lambda *_: True).n_iter_ == 1
    nothing = fit(0 * Z, X, y)
    assert nothing.objective_ == pytest.approx(nothing.null_objective_)


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"class_features": np.ones((M - 1, P))}, "class_features: must have a row for each of the 5"),
    ({"class_features": np.full((M, P), np.nan)}, "class_features contains NaN"),
    ({"classes": [0, 1, 2]}, "y: the label 3 is not among the 3 classes"),
    ({"classes": [0, 1, 2, 3, 3]}, "classes: must be one-dimensional, without duplicates"),
    ({"combine": "sum"}, "combine: must be one of 'kronecker', 'concatenate'"),
    ({"C": -1.0}, "C: must be a positive"),
    ({"solver": "simplex"}, "solver: unknown name"),
    ({"class_features": kronecker, "combine": "concatenate"}, "combine: a callable class_features"),
    (
        {"class_features": lambda X, _: X},
        "class_features: must return a row for each pair of row and class",
    ),
    ({"loss": Usunier(M)}, "k: must be below the number of classes"),
]


@pytest.mark.parametrize(("parameters", "message"), ERRORS)
def test_errors_of_the_fit_name_the_argument(parameters: dict[str, Any], message: str) -> None:
    X, y, Z = problem()
    with pytest.raises(ValueError, match=message):
        ClassFeatureSVC(**{"class_features": Z, **parameters}).fit(X, y)


def test_predictions_reject_features_that_differ_from_training() -> None:
    X, y, Z = problem()
    model, own = fit(Z, X, y, combine="concatenate"), fit(kronecker, X, y)
    with pytest.raises(ValueError, match="as many columns as in training, 3"):
        model.predict(X, np.ones((2, P + 1)))
    with pytest.raises(ValueError, match="classes: must have shape"):
        model.predict(X, Z, ["one"])
    with pytest.raises(ValueError, match="the model has a callable"):
        own.predict(X, Z)
    assert (own.predict(X, classes=[1, 3]) == own.predict(X, classes=np.array([1, 3]))).all()


def test_the_estimator_follows_scikit_learns_conventions() -> None:
    X, y, Z = problem()
    model = clone(ClassFeatureSVC(Z, C=0.3))
    assert model.get_params()["C"] == 0.3
    with pytest.warns(ConvergenceWarning, match="stopped after 1 iterations"):
        model.set_params(max_iter=1, tol=1e-9).fit(X, y)
    assert model.predict_top_k(X[:3], 2).shape == (3, 2)
    assert 0 < model.score(X, y) <= 1


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e5])
@pytest.mark.parametrize("solver", ["block-descent", "frank-wolfe", "block-frank-wolfe"])
def test_the_certificate_holds_in_rational_arithmetic(solver: Any, scale: float) -> None:
    X, y, Z = problem()
    X, weights = X[:12] * scale, np.linspace(0.1, 1.3, 12)
    exact: list[Fraction] = []
    models = []
    for tol, which in [(1e-2, solver), (1e-9, "block-descent")]:
        model = ClassFeatureSVC(Z, C=0.3, tol=tol, solver=which, max_iter=200, fit_intercept=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            models.append(model.set_params(random_state=0).fit(X, y[:12], sample_weight=weights))
        V, rows, classes, shares = map(fractions, (model.coef_, X, Z, weights[None]))
        loss = Fraction(0)
        for row, label, share in zip(rows, y, shares[0], strict=False):
            scores = [dot(z, [dot(v, row) for v in V]) for z in classes]
            margins = [1 + score - scores[label] for score in scores]
            loss += share * max([0, *(v for j, v in enumerate(margins) if j != label)])
        norm = sum(dot(v, v) for v in V)
        exact.append((norm / (2 * Fraction(0.3)) + loss) / sum(shares[0]))
    for model, objective in zip(models, exact, strict=True):
        # lambda is 1 / (C * total) in floating point.
        assert Fraction(model.objective_) >= objective * (1 - Fraction(1, 2**50))
        assert model.objective_ == pytest.approx(float(objective), rel=1e-9)
        assert Fraction(model.dual_objective_) <= min(exact) * (1 + Fraction(1, 2**50))
