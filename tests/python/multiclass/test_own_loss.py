"""Losses written in Python: validation of their results, and certificates of their fits."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).parents[1] / "certificates"))

from projection import project

from dualgap import MulticlassSVC, MulticlassSVCCV
from dualgap.losses import MarginLoss, StructuredHinge, Usunier

K = 2


class Sets:
    """Usunier's loss: {0 <= b_j <= 1/K, sum b <= 1}."""

    def support(self, margins: Any, label: int) -> Any:
        return np.sort(np.maximum(margins, 0.0))[-K:].sum() / K

    def vertex(self, margins: Any, label: int) -> Any:
        point = np.zeros(len(margins))
        best = np.argsort(-margins, kind="stable")[:K]
        point[best[margins[best] > 0]] = 1 / K
        return point


class Projected(Sets):
    """The same loss with a projection."""

    def project(self, point: Any, label: int) -> Any:
        return project(point, label, 1 / K)


def problem(n: int = 90, d: int = 5, m: int = 5) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % m
    return rng.normal(size=(m, d))[y] + rng.normal(size=(n, d)), y


def fit(loss: Any, **parameters: Any) -> MulticlassSVC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MulticlassSVC(loss, **{"random_state": 0, "C": 0.1, **parameters}).fit(*problem())


RUNS: list[tuple[type, dict[str, Any]]] = [
    (Sets, {"solver": "block-frank-wolfe", "step": "pairwise", "tol": 1e-4}),
    (Sets, {"solver": "frank-wolfe", "max_iter": 40, "n_jobs": 2}),
    (Sets, {"solver": "subgradient", "max_iter": 20}),
    (Sets, {"solver": "away-frank-wolfe", "max_iter": 40}),
    (Projected, {"solver": "block-descent", "tol": 1e-6}),
    (Projected, {"solver": "block-descent", "tol": 1e-6, "smoothing": 0.1}),
    (Projected, {"solver": "block-frank-wolfe", "smoothing": 0.1, "max_iter": 20, "n_jobs": 2}),
    (Projected, {"solver": "frank-wolfe", "smoothing": 0.1, "max_iter": 30}),
]


@pytest.mark.parametrize(("loss", "parameters"), RUNS)
def test_fits_agree_with_the_built_in_loss(loss: Any, parameters: dict[str, Any]) -> None:
    assert isinstance(loss(), MarginLoss)
    own, ours = fit(loss(), **parameters), fit(Usunier(K), **parameters)
    assert own.certificate_ == "exact if the loss's vertex is"
    assert own.dual_objective_ <= ours.objective_
    assert ours.dual_objective_ <= own.objective_
    assert own.relative_gap_ == pytest.approx(ours.relative_gap_, rel=0.5, abs=1e-6)
    assert own.null_objective_ == pytest.approx(ours.null_objective_)


def test_the_default_solver_needs_only_the_methods_of_the_loss() -> None:
    default = fit(Sets(), tol=1e-2)
    assert default.converged_
    assert (default.coef_ == fit(Sets(), tol=1e-2, solver="block-frank-wolfe").coef_).all()
    descent = fit(Projected(), solver="block-descent")
    assert (fit(Projected()).coef_ == descent.coef_).all()
    for parameters in ({"solver": "block-descent"}, {"smoothing": 0.1}):
        with pytest.raises(ValueError, match="requires a method project, which Sets does not have"):
            fit(Sets(), **parameters)


def test_single_precision_rows_and_paths_are_supported() -> None:
    X, y = problem()
    model = MulticlassSVC(Projected(), C=0.1, tol=1e-4, random_state=0)
    assert model.fit(X.astype(np.float32), y).converged_
    pieces = MulticlassSVC(Sets(), tol=1e-2, random_state=0).path(X, y, 0.01, 0.1)
    assert all(piece.relative_gap <= 1e-2 for piece in pieces)
    assert MulticlassSVC(Projected(), warm_start=True, random_state=0).fit(X, y).fit(X, y)


def test_sets_may_depend_on_the_label_and_costs_may_be_custom() -> None:
    class Ordered(Projected):
        """A loss of the label and its two neighbours, so that the polytope depends on the label."""

        costs = np.abs(np.subtract.outer(np.arange(5), np.arange(5))) / 2.0

        def near(self, margins: Any, label: int) -> Any:
            return np.where(np.abs(np.arange(len(margins)) - label) <= 1, margins, -np.inf)

        def support(self, margins: Any, label: int) -> Any:
            return max(self.near(margins, label).max(), 0.0)

        def vertex(self, margins: Any, label: int) -> Any:
            at = int(self.near(margins, label).argmax())
            return np.eye(len(margins))[at] * (margins[at] > 0)

        def project(self, point: Any, label: int) -> Any:
            inside = np.maximum(self.near(point, label), 0.0)
            inside[label] = 0.0
            order = np.sort(inside)[::-1]
            over = [(order[: k + 1].sum() - 1) / (k + 1) for k in range(len(order))]
            return np.maximum(inside - max(0.0, *over), 0.0)

    descent, blocks = fit(Ordered(), tol=1e-4), fit(Ordered(), **RUNS[0][1])
    assert descent.converged_
    assert descent.objective_ == pytest.approx(blocks.objective_, rel=1e-3)
    assert descent.objective_ < fit(StructuredHinge(Ordered.costs)).objective_


def test_exceptions_of_the_loss_propagate() -> None:
    raised = ZeroDivisionError("no vertex today")

    class Failing(Projected):
        calls = 0

        def vertex(self, margins: Any, label: int) -> Any:
            self.calls += 1
            if self.calls > 400:
                raise raised
            return super().vertex(margins, label)

    for solver in ("block-descent", "block-frank-wolfe", "frank-wolfe"):
        with pytest.raises(ZeroDivisionError) as caught:
            fit(Failing(), solver=solver, n_jobs=2)
        assert caught.value is raised


def test_ctrl_c_ends_a_fit() -> None:
    class Interrupted(Sets):
        calls = 0

        def vertex(self, margins: Any, label: int) -> Any:
            self.calls += 1
            if self.calls == 1000:
                os.kill(os.getpid(), signal.SIGINT)
            return super().vertex(margins, label)

    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        fit(Interrupted(), tol=0.0, max_iter=10**7)
    assert time.perf_counter() - start < 30


def loss_with_methods(**methods: Any) -> Any:
    return type("Wrong", (Projected,), methods)()


WRONG = [
    (object(), "object with the methods support and vertex"),
    (Sets, "got the class Sets"),
    (
        loss_with_methods(vertex=lambda self, v, y: v[:2]),
        r"vertex must return an array of shape \(5,\)",
    ),
    (loss_with_methods(vertex=lambda self, v, y: None), "vertex must return an array"),
    (loss_with_methods(vertex=lambda self, v, y: v * np.nan), "vertex must return finite numbers"),
    (
        loss_with_methods(vertex=lambda self, v, y: v - 1e3),
        "vertex must return finite numbers of at least 0",
    ),
    (loss_with_methods(vertex=lambda self, v, y: np.ones(5)), "vertex must return 0 at the label"),
    (loss_with_methods(vertex=lambda self, v, y: np.eye(5)[(y + 1) % 5] / K), "vertex attains"),
    (loss_with_methods(support=lambda self, v, y: -1.0), "support must return a finite number"),
    (loss_with_methods(support=lambda self, v, y: "high"), "support must return a finite number"),
    (loss_with_methods(support=lambda self, v, y: 0.0), "support must be positive"),
    (
        loss_with_methods(project=lambda self, v, y: np.where(np.arange(5) == y, 0, 1.0)),
        "project returns a",
    ),
    (
        loss_with_methods(project=lambda self, v, y: np.zeros(5)),
        "project does not return the closest",
    ),
]


@pytest.mark.parametrize(("loss", "message"), WRONG)
def test_errors_name_the_method(loss: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^loss: .*{message}"):
        fit(loss)


def test_a_loss_found_wrong_at_the_end_gives_no_certificate() -> None:
    class Late(Sets):
        """A loss whose results change during the fit."""

        calls = 0

        def vertex(self, margins: Any, label: int) -> Any:
            self.calls += 1
            return super().vertex(margins, label)

        def support(self, margins: Any, label: int) -> Any:
            return super().support(margins, label) * (1.0 if self.calls < 300 else 2.0)

    with pytest.warns(ConvergenceWarning, match="kept without a certificate: vertex attains"):
        model = MulticlassSVC(Late(), C=1e-3, random_state=0).fit(*problem())
    assert model.certificate_.startswith("none: vertex attains")
    assert model.duality_gap_ is None
    assert not model.converged_
    with pytest.raises(ValueError, match="no certificate"):
        model.prediction_may_change(problem()[0])


def test_searches_reject_a_custom_loss() -> None:
    with pytest.raises(ValueError, match="loss: must be a name or an object from"):
        MulticlassSVCCV(Sets(), Cs=[0.1]).fit(*problem())


def test_a_fitted_model_can_be_pickled() -> None:
    model = fit(Sets(), tol=1e-2)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(problem()[0]) == model.predict(problem()[0])).all()
