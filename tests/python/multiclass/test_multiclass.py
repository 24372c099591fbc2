"""MulticlassSVC: certificates, invariances, scikit-learn's conventions."""

from __future__ import annotations

import contextlib
import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from dualgap import MulticlassSVC, _core, losses
from dualgap.losses import (
    MaxHinge,
    StructuredHinge,
    TopK,
    Usunier,
    WeightedTopK,
    WeightedUsunier,
    WestonWatkins,
)

SOLVERS = [name for name in _core.SOLVERS if name != "auto"]


def problem(n: int = 150, d: int = 6, m: int = 5, seed: int = 0) -> tuple[Any, Any]:
    """Rows with zeros around a centre for each class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % m
    X = rng.normal(size=(m, d))[y] + rng.normal(size=(n, d))
    return X * (rng.random((n, d)) < 0.7), y


def fit(X: Any, y: Any, *args: Any, sample_weight: Any = None, **parameters: Any) -> MulticlassSVC:
    """Fit without a warning if the fit does not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MulticlassSVC(*args, **{"random_state": 0, "n_jobs": 1, **parameters})
        return model.fit(X, y, sample_weight=sample_weight)


PUBLISHED_LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "max-hinge": lambda v, _: np.maximum(v[:, 0], 0),
    "crammer-singer": lambda v, _: np.maximum(v[:, 0], 0),
    "weston-watkins": lambda v, _: np.maximum(v, 0).sum(axis=1),
    "top-k": lambda v, loss: np.maximum(v[:, : loss.k].mean(axis=1), 0),
    "usunier": lambda v, loss: np.maximum(v[:, : loss.k], 0).mean(axis=1),
    "weighted-top-k": lambda v, loss: np.maximum(v @ loss.weights, 0),
    "weighted-usunier": lambda v, loss: np.maximum(v, 0) @ loss.weights,
}


def objective(model: MulticlassSVC, X: Any, y: Any, loss: Any) -> float:
    """Compute the objective P for the published formula of a loss, equal weights and no smoothing.

    For a loss without a published formula, return `objective_`, which tests of solvers compare.
    """
    scores = np.asarray(X @ model.coef_.T + model.intercept_)
    m = scores.shape[1]
    costs = 1 - np.eye(m) if loss.costs is None else np.asarray(loss.costs)
    v = np.sort(costs[y] + scores - scores[np.arange(len(y)), y][:, None], axis=1)[:, ::-1]
    if loss.name not in PUBLISHED_LOSSES:
        return model.objective_
    values = PUBLISHED_LOSSES[loss.name](v, loss)
    bias = model.intercept_ / model.intercept_scaling
    norm = (model.coef_**2).sum() + (bias**2).sum()
    return 0.5 / (model.C * len(y)) * norm + values.mean()


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_gap_is_reached_and_belongs_to_the_model(loss: Any, solver: str) -> None:
    X, y = problem()
    model = MulticlassSVC(
        loss, C=0.1, solver=solver, tol=0.01, max_iter=5000, intercept_scaling=2.0, random_state=0
    ).fit(X, y)
    assert model.converged_
    assert model.duality_gap_ <= 0.01 * model.null_objective_
    assert model.objective_ == pytest.approx(objective(model, X, y, loss), rel=1e-9)
    null = fit(X, y, loss, C=1e-9)
    assert model.null_objective_ == pytest.approx(objective(null, X, y, loss), rel=1e-5)
    # The bound of each solver holds for the models of the other solvers.
    other = fit(X, y, loss, C=0.1, tol=1e-4, intercept_scaling=2.0)
    assert other.objective_ >= model.dual_objective_
    assert other.dual_objective_ <= model.objective_


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_history_is_consistent(solver: str, smoothing: float) -> None:
    X, y = problem()
    if solver == "away-frank-wolfe" and smoothing > 0:
        with pytest.raises(ValueError, match="smoothing: "):
            fit(X, y, TopK(2), solver=solver, smoothing=smoothing, max_iter=20, tol=0)
        return
    model = fit(X, y, TopK(2), solver=solver, smoothing=smoothing, max_iter=20, tol=0)
    history = model.history_
    assert set(history) == {"epoch", "seconds", "objective", "dual_objective", "gap", "solver"}
    n_epochs = model.n_iter_ if solver == "newton" else 20  # Rounding may end the fit earlier.
    assert history["epoch"].tolist() == list(range(1, n_epochs + 1))
    assert (np.diff(history["seconds"]) >= 0).all()
    # Frank-Wolfe evaluates some objectives only every few iterations.
    known = np.isfinite(history["gap"])
    some = {"frank-wolfe": 8 if smoothing > 0 else 20, "away-frank-wolfe": 3}
    assert known.sum() >= some.get(solver, n_epochs)
    assert (history["gap"][known] >= -1e-12).all()
    assert np.array_equal(
        history["gap"], history["objective"] - history["dual_objective"], equal_nan=True
    )
    last = (history["objective"][-1], history["dual_objective"][-1], history["gap"][-1])
    if known[-1]:
        assert last == (model.objective_, model.dual_objective_, model.duality_gap_)
    assert model.duality_gap_ == model.objective_ - model.dual_objective_
    if solver != "subgradient":
        assert (np.diff(history["dual_objective"][known]) >= -1e-13).all()


@pytest.mark.parametrize(("solver", "tol"), [("block-frank-wolfe", 1e-6), ("newton", 1e-9)])
def test_optima_agree_with_an_independent_qp_solver(solver: Any, tol: float) -> None:
    fixture = Path(__file__).parents[2] / "fixtures" / "margin_problems.json"
    for case in json.loads(fixture.read_text()):
        loss: Any = {"mh": MaxHinge(), "uu": Usunier(3), "utk": TopK(3)}.get(case["loss"])
        if case["loss"] == "wtk":
            loss = WeightedTopK(case["rho"])
        elif case["loss"] == "wu":
            loss = WeightedUsunier(case["rho"])
        elif case["loss"] == "sh":
            loss = StructuredHinge(case["costs"], per_row=True)
        X, y = np.array(case["X"]), np.array(case["y"])
        # Class 1 or 3 has no row here: rows of weight zero keep the labels 0 to 4.
        missing = sorted(set(range(5)) - set(y.tolist()))
        X = np.vstack([X, np.zeros((len(missing), 3))])
        weights = np.r_[np.ones(len(y)), np.zeros(len(missing))]
        if case["loss"] == "sh":
            loss = StructuredHinge(np.vstack([case["costs"], 1 - np.eye(5)[missing]]), per_row=True)
        y = np.r_[y, missing]
        model = fit(
            X,
            y,
            loss,
            C=1 / (case["lam"] * 4),
            smoothing=case["gamma_sm"],
            solver=solver,
            fit_intercept=False,
            tol=tol,
            max_iter=10_000,
            sample_weight=weights,
        )
        assert model.objective_ == pytest.approx(case["primal"], rel=300 * tol)
        assert model.dual_objective_ <= case["primal"] + 1e-10
        assert np.allclose(model.coef_, case["W"], atol=20 * np.sqrt(tol))


def test_the_optimum_agrees_with_liblinear() -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16
    model = fit(X, y, C=0.1, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = LinearSVC(multi_class="crammer_singer", C=0.1, tol=1e-6, max_iter=20_000).fit(X, y)
    model_of_peer = clone(model)
    model_of_peer.coef_, model_of_peer.intercept_ = peer.coef_, peer.intercept_
    value = objective(model_of_peer, X, y, MaxHinge())
    assert model.dual_objective_ <= value * (1 + 1e-9)
    assert model.objective_ <= value + 1e-3 * model.null_objective_


def test_losses_of_the_largest_margin_are_equal() -> None:
    X, y = problem()
    unit = [1.0, 0, 0, 0, 0]
    models = [
        fit(X, y, loss, solver="frank-wolfe", max_iter=30)
        for loss in (
            "max-hinge",
            "crammer-singer",
            MaxHinge(),
            TopK(1),
            Usunier(1),
            WeightedTopK(unit),
            WeightedUsunier(unit),
            StructuredHinge(1 - np.eye(5)),
            StructuredHinge(1 - np.eye(5)[y], per_row=True),
        )
    ]
    for model in models[1:]:
        assert np.allclose(model.coef_, models[0].coef_, atol=1e-12)
    other = fit(X, y, TopK(3), solver="frank-wolfe", max_iter=30)
    assert not np.allclose(other.coef_, models[0].coef_, atol=1e-3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_sparse_rows_give_the_model_of_dense_rows(solver: str) -> None:
    """For block descent, compare converged models, because its steps depend on the layout.

    After a step has made a block optimal, rounding errors decide whether the next epoch visits it
    again. Above some number of candidates, a pass over all classes is faster; this number depends
    on the layout and on the vector width. The other solvers take the same steps for both layouts.
    """
    X, y = problem(d=40)
    is_descent = solver == "block-descent"
    limit: dict[str, Any] = {"tol": 1e-9} if is_descent else {"max_iter": 10}
    options = {"solver": solver, **limit}
    atol = 1e-8 if is_descent else 1e-11
    dense = fit(X, y, Usunier(2), **options)
    sparse = fit(sp.csr_array(X), y, Usunier(2), **options)
    assert not is_descent or (dense.converged_ and sparse.converged_)
    assert np.allclose(dense.coef_, sparse.coef_, atol=atol)
    assert np.allclose(dense.intercept_, sparse.intercept_, atol=atol)
    assert np.allclose(dense.decision_function(X), sparse.decision_function(sp.csr_matrix(X)))
    single = fit(X.astype(np.float32), y, Usunier(2), **(options | {"tol": 1e-5}))
    assert np.allclose(dense.coef_, single.coef_, atol=1e-3)
    # Memory order and format do not matter.
    for same in (np.asfortranarray(X), X[::-1][::-1], sp.csc_array(X), sp.coo_matrix(X)):
        again = fit(same, y, Usunier(2), **options)
        assert np.allclose(dense.coef_, again.coef_, atol=atol)


@pytest.mark.parametrize("solver", SOLVERS)
def test_bounds_of_unfinished_dense_and_sparse_fits_hold(solver: str) -> None:
    X, y = problem(d=40)
    best = fit(X, y, Usunier(2), solver="block-descent", tol=1e-9)
    for form in (np.asarray, sp.csr_array):
        model = fit(form(X), y, Usunier(2), solver=solver, max_iter=3, tol=0.0)
        assert model.objective_ == pytest.approx(objective(model, X, y, Usunier(2)), rel=1e-9)
        assert model.objective_ >= best.dual_objective_
        # Solvers without a dual bound report NaN here.
        assert not model.dual_objective_ > best.objective_


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_model_does_not_depend_on_the_threads(form: Any, dtype: Any, solver: str) -> None:
    X, y = problem(n=1000, d=40)
    X = form(X.astype(dtype))
    for smoothing in (0.0,) if solver == "away-frank-wolfe" else (0.0, 0.1):
        options: dict[str, Any] = {"solver": solver, "smoothing": smoothing, "max_iter": 6}
        one, two = (fit(X, y, TopK(2), n_jobs=n_jobs, **options) for n_jobs in (1, 2))
        assert np.array_equal(one.coef_, two.coef_)
        assert np.array_equal(one.intercept_, two.intercept_)
        assert np.array_equal(one.history_["gap"], two.history_["gap"], equal_nan=True)


def test_sample_weights_equal_repeated_rows() -> None:
    X, y = problem()
    times = np.random.default_rng(1).integers(0, 4, size=len(y))
    weighted = fit(X, y, Usunier(2), solver="frank-wolfe", max_iter=50, sample_weight=times)
    X, y = np.repeat(X, times, axis=0), np.repeat(y, times)
    repeated = fit(X, y, Usunier(2), solver="frank-wolfe", max_iter=50)
    assert np.allclose(weighted.coef_, repeated.coef_, atol=1e-9)
    assert weighted.objective_ == pytest.approx(repeated.objective_)


def test_class_weights_act_as_sample_weights() -> None:
    X, y = problem()
    labels = np.array(list("abcde"))[y]
    by_class = fit(X, labels, class_weight={"b": 3.0, "d": 0.5}, solver="frank-wolfe", max_iter=20)
    weights = np.array([1.0, 3.0, 1.0, 0.5, 1.0])[y]
    by_row = fit(X, labels, sample_weight=weights, solver="frank-wolfe", max_iter=20)
    assert np.array_equal(by_class.coef_, by_row.coef_)
    fewer = np.r_[np.arange(100), np.flatnonzero(y[100:] != 2) + 100]
    balanced = fit(X[fewer], y[fewer], class_weight="balanced", solver="frank-wolfe", max_iter=20)
    counts = np.bincount(y[fewer])
    weights = (len(fewer) / (5 * counts))[y[fewer]]
    by_row = fit(X[fewer], y[fewer], sample_weight=weights, solver="frank-wolfe", max_iter=20)
    assert np.allclose(balanced.coef_, by_row.coef_)


def test_the_intercept_is_a_constant_feature() -> None:
    X, y = problem()
    implicit = fit(X, y, intercept_scaling=3.0, solver="frank-wolfe", max_iter=20)
    X = np.column_stack([X, np.full(len(y), 3.0)])
    explicit = fit(X, y, fit_intercept=False, solver="frank-wolfe", max_iter=20)
    assert np.allclose(implicit.coef_, explicit.coef_[:, :-1])
    assert np.allclose(implicit.intercept_, 3.0 * explicit.coef_[:, -1])
    assert not explicit.intercept_.any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("solver", ["block-descent", "frank-wolfe", "block-frank-wolfe"])
def test_a_warm_start_continues_from_the_last_fit(solver: str, smoothing: float) -> None:
    X, y = problem()
    options: dict[str, Any] = {"solver": solver, "smoothing": smoothing, "tol": 0, "max_iter": 15}
    model = fit(X, y, TopK(2), warm_start=True, **options)
    first = model.dual_objective_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        again = model.fit(X, y)
        assert again.history_["dual_objective"][0] >= first - 1e-13
        if solver == "frank-wolfe":
            whole = fit(X, y, TopK(2), **{**options, "max_iter": 30})
            assert again.dual_objective_ == pytest.approx(whole.dual_objective_, rel=1e-10)
        # A fit with another C starts from the same dual point, and its certificate holds.
        model.set_params(C=2.0).fit(X, y)
        fresh = fit(X, y, TopK(2), C=2.0, **{**options, "max_iter": 2000})
        assert model.dual_objective_ <= fresh.objective_
        assert model.objective_ >= fresh.dual_objective_
        if smoothing == 0:
            assert model.objective_ == pytest.approx(objective(model, X, y, TopK(2)))
        # A fit to other rows starts from scratch.
        model.fit(X[:100], y[:100])
        fresh = fit(X[:100], y[:100], TopK(2), C=2.0, **options)
    assert np.array_equal(model.coef_, fresh.coef_)


def test_a_fit_that_stops_early_reports_its_gap() -> None:
    X, y = problem()
    with pytest.warns(ConvergenceWarning, match=r"gap of [0-9.e-]+, .*max_iter") as caught:
        model = MulticlassSVC(max_iter=2, n_jobs=1).fit(X, y)
    assert f"{model.duality_gap_:.3g}" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert not model.converged_
    stopped = MulticlassSVC(callback=lambda *_: True, n_jobs=1).fit(X, y)
    assert stopped.n_iter_ == 1


def test_top_k_predictions_are_ordered_by_score() -> None:
    X, y = problem()
    model = fit(X, np.array(list("abcde"))[y])
    best = model.predict_top_k(X, 3)
    scores = model.decision_function(X)
    assert best.shape == (150, 3)
    assert (best[:, 0] == model.predict(X)).all()
    order = np.argsort(-scores, axis=1)[:, :3]
    assert (best == model.classes_[order]).all()
    with pytest.raises(ValueError, match="k: must be at most the number of classes, 5, got 6"):
        model.predict_top_k(X, 6)
    with pytest.raises(ValueError, match="k: "):
        model.predict_top_k(X, 0)


def test_two_classes_have_one_decision_value() -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[:100], y[:100]
    model = fit(X, y, WestonWatkins())
    values = model.decision_function(X)
    assert values.shape == (100,)
    assert ((values > 0).astype(int) == model.predict(X)).all()
    assert model.score(X, y) == 1.0
    assert model.coef_.shape == (2, 4)


def test_models_can_be_cloned_pickled_and_searched() -> None:
    X, y = problem()
    model = fit(X, y, WeightedUsunier([0.5, 0.3, 0.2, 0.0, 0.0]), max_iter=50)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert clone(model).get_params()["loss"] == model.loss
    assert repr(losses.Loss("top-k", k=5)) == repr(TopK(5)) == "TopK(k=5)"
    assert repr(losses.Loss("top-k")) == "Loss('top-k')"
    assert losses.Loss("top-k", k=5) == TopK(5) != TopK(4)
    assert hash(losses.Loss("top-k", k=5)) == hash(TopK(5))
    costs = 1 - np.eye(3)
    assert StructuredHinge(costs) == StructuredHinge(costs.tolist()) != MaxHinge()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(model, {"loss": [TopK(2), "max-hinge"], "C": [0.01, 1.0]}, cv=2)
        search.fit(X, y)
    assert search.best_score_ > 0.5


def test_names_of_losses_and_solvers_are_accepted() -> None:
    document = MulticlassSVC.__doc__ or ""
    names = [*_core.SOLVERS, *_core.STEPS, *_core.SAMPLINGS]
    for name in [*names, "crammer-singer", "max-hinge", "weston-watkins"]:
        assert f'"{name}"' in document
    X, y = problem()
    for name, parameters in losses.LOSSES.items():
        # The name alone is accepted if the loss has no parameters; otherwise the error lists them.
        if parameters:
            with pytest.raises(ValueError, match=rf"^loss: .*Loss\('{name}', {parameters[0]}="):
                fit(X, y, name)
        else:
            model, other = fit(X, y, name, max_iter=3), fit(X, y, losses.Loss(name), max_iter=3)
            assert np.array_equal(model.coef_, other.coef_)
    for name in _core.SOLVERS:
        fit(X, y, solver=name, max_iter=1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, "C: "),
        ({"C": np.inf}, "C: "),
        ({"smoothing": -1.0}, "smoothing: "),
        ({"tol": np.nan}, "tol: "),
        ({"max_iter": 0}, "max_iter: "),
        ({"intercept_scaling": 0}, "intercept_scaling: "),
        ({"n_jobs": 0}, "n_jobs: "),
        ({"solver": "simplex"}, "solver: unknown name"),
        ({"step": "pairwise"}, 'step: solver="auto" does not use it'),
        ({"sampling": "luck"}, "sampling: unknown name"),
        ({"step": "big"}, "step: unknown name"),
        ({"solver": "frank-wolfe", "step": "away"}, 'step: solver "frank-wolfe" has no step'),
        ({"sampling": "gap"}, 'sampling: solver="auto" does not use it'),
        (
            {"solver": "subgradient", "warm_start": True},
            'warm_start: solver="subgradient" does not use it, got True',
        ),
        ({"loss": "hinge"}, 'loss: unknown name "hinge"; use one of max-hinge, '),
        ({"loss": "top-k"}, r"loss: 'top-k' needs a parameter; pass dualgap.losses.Loss"),
        ({"loss": losses.Loss("max-hinge", k=2)}, 'k: the loss "max-hinge" takes no k'),
        ({"loss": losses.Loss("usunier")}, 'k: the loss "usunier" needs k'),
        ({"loss": losses.Loss("top-k", weights=[1, 0])}, 'k: the loss "top-k" needs k'),
        ({"loss": 3}, "loss: "),
        ({"loss": TopK(0)}, "k: "),
        ({"loss": TopK(5)}, "k: must be below the number of classes"),
        ({"loss": Usunier(2.5)}, "k: "),
        ({"loss": WeightedTopK([1.0, 0.5])}, "weights: "),
        ({"loss": WeightedTopK([0.5, 1.0, 0, 0, 0])}, "weights: "),
        ({"loss": WeightedUsunier([1.0, 1, 1, 1, 1])}, "weights: "),
        ({"loss": WeightedUsunier([1.0, 0.5, -0.1, -0.2, 0])}, "weights: "),
        ({"loss": StructuredHinge(np.ones((5, 5)))}, "costs: the cost of the true class"),
        ({"loss": StructuredHinge(-np.eye(5)[::-1])}, "costs: "),
        ({"loss": StructuredHinge(np.zeros((4, 4)))}, "costs: must have 5 rows and 5 columns"),
        ({"loss": StructuredHinge(np.zeros((5, 5)), per_row=True)}, "costs: must have 150 rows"),
        ({"loss": StructuredHinge([0.0, 1.0])}, "costs: must be two-dimensional"),
    ],
)
def test_errors_name_the_bad_parameter(parameters: dict[str, Any], message: str) -> None:
    X, y = problem()
    with pytest.raises(ValueError, match=f"^{message}"):
        fit(X, y, **parameters)


def test_bad_data_are_rejected() -> None:
    X, y = problem()
    for bad in (np.nan, np.inf):
        worse = X.copy()
        worse[3, 2] = bad
        what = "NaN" if np.isnan(bad) else "infinity"
        for rows in (worse, worse.astype(np.float32), worse.astype(np.float16)):
            with pytest.raises(ValueError, match=f"^X: contains {what}, at row 3 and column 2"):
                fit(rows, y)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            fit(sp.csr_array(worse), y)
    with pytest.raises(ValueError, match="one class"):
        fit(X, np.zeros(len(y)))
    with pytest.raises(ValueError, match="inconsistent numbers"):
        fit(X, y[:-1])
    with pytest.raises(ValueError, match="0 sample"):
        fit(X[:0], y[:0])
    with pytest.raises(ValueError, match="Unknown label type"):
        fit(X, y + 0.5)
    for weights in (-np.ones(len(y)), np.zeros(len(y)), np.full(len(y), np.nan), np.ones(3)):
        with pytest.raises(ValueError, match=r"(?i)sample.weight"):
            fit(X, y, sample_weight=weights)
    with pytest.raises(NotFittedError):
        MulticlassSVC().predict(X)
    with pytest.raises(ValueError, match="features"):
        fit(X, y, max_iter=1).predict(X[:, :3])
    shuffled = sp.csr_array(X)
    shuffled.indices = shuffled.indices.copy()
    shuffled.indices[0] = 99
    with pytest.raises(ValueError, match=r"index|indices"):
        fit(shuffled, y)


def test_unsorted_and_repeated_entries_are_summed() -> None:
    X, y = problem()
    tidy = sp.csr_array(X)
    halves = sp.csr_array(
        (
            np.repeat(tidy.data / 2, 2)[::-1].copy(),
            np.repeat(tidy.indices, 2)[::-1].copy(),
            2 * (tidy.indptr[-1] - tidy.indptr[::-1]),
        ),
        shape=tidy.shape,
    )
    a = fit(tidy[::-1], y, solver="frank-wolfe", max_iter=5)
    b = fit(halves, y, solver="frank-wolfe", max_iter=5)
    assert np.allclose(a.coef_, b.coef_, atol=1e-12)


def test_the_objective_counts_the_loss_of_zero_rows() -> None:
    X, y = problem()
    X[:5] = 0
    model = MulticlassSVC(fit_intercept=False, tol=0.01, C=0.1, random_state=0).fit(X, y)
    # All scores of a zero row are 0 in any model, so its loss is the loss of the null model.
    assert model.objective_ >= 5 / len(y)


@pytest.mark.parametrize("scale", [1e-200, 1e160, 1e200])
@pytest.mark.parametrize("solver", SOLVERS)
def test_numbers_beyond_the_range_never_give_a_false_certificate(solver: str, scale: float) -> None:
    X, y = problem()
    # The fit fails or warns; for rows this small the null model is the optimum.
    with contextlib.suppress(ValueError):
        model = fit(X * scale, y, solver=solver, max_iter=5, fit_intercept=False)
        assert model.dual_objective_ - 1e-12 <= model.objective_ < np.inf
        assert model.converged_ == (scale < 1)
