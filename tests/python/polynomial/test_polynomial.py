"""Polynomial networks and factorization machines: predictions, certificates, invariances."""

from __future__ import annotations

import pickle
import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import dualgap
from dualgap import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
    _core,
)

# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ESTIMATORS = [
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
]
CLASSIFIERS = [FactorizationMachineClassifier, PolynomialNetworkClassifier]
REGRESSORS = [FactorizationMachineRegressor, PolynomialNetworkRegressor]
PENALTIES = ["l1", "l1/l2", "l1/linf"]
CLASSIFIER_LOSSES = [name for name, of in _core.OUTPUT_LOSSES.items() if of != "values"]


def make(estimator: Any, **parameters: Any) -> Any:
    defaults = {"n_components": 4, "radius": 5.0, "random_state": 0, "n_jobs": 1}
    return estimator(**{**defaults, **parameters})


def problem(estimator: Any, n: int = 90, d: int = 7, seed: int = 0) -> tuple[Any, Any]:
    """Rows with zeros, and targets from products of features: three classes, or two outputs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    pair = X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3]
    if is_classifier(estimator()):
        return X, np.digitize(pair + 0.2 * X[:, 0], [-0.2, 0.3])
    return X, np.column_stack([pair + X[:, 0], X[:, 0] * X[:, 1] - X[:, 3]])


def outputs(model: Any, X: Any) -> Any:
    return model._outputs(X)


def assert_same_model(a: Any, b: Any) -> None:
    """Check that two models are equal bit for bit."""
    for name in ("components_", "output_", "coef_", "intercept_"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert a.objective_ == b.objective_
    assert a.duality_gap_ == b.duality_gap_


# --- The formula of the model ---


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n_outputs=st.integers(1, 3), sparse=st.booleans())
def test_outputs_equal_explicit_sums(seed: int, n_outputs: int, sparse: bool) -> None:
    rng = np.random.default_rng(seed)
    d, k = 5, 3
    X = rng.normal(size=(8, d)) * (rng.random((8, d)) < 0.7)
    for estimator in REGRESSORS:
        model = make(estimator, n_components=1).fit(X, np.zeros((8, n_outputs)))
        model.components_ = rng.normal(size=(k, d))
        model.output_ = rng.normal(size=(k, n_outputs))
        model.coef_ = rng.normal(size=(n_outputs, d))
        model.intercept_ = rng.normal(size=n_outputs)
        expected = X @ model.coef_.T + model.intercept_
        for h, u in zip(model.components_, model.output_, strict=True):
            if estimator is FactorizationMachineRegressor:
                pairs = combinations(range(d), 2)
                values = sum(h[i] * X[:, i] * h[j] * X[:, j] for i, j in pairs)
            else:
                values = (X @ h) ** 2
            expected = expected + np.outer(values, u)
        rows = sp.csr_array(X) if sparse else X
        np.testing.assert_allclose(outputs(model, rows), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("refit", ["full", "output"])
def test_a_fit_obeys_its_constraints(estimator: Any, penalty: str, refit: str) -> None:
    X, y = problem(estimator)
    model = make(estimator, penalty=penalty, reoptimize=refit, radius=0.5).fit(X, y)
    inner = {"l1": 1, "l1/l2": 2, "l1/linf": np.inf}[penalty]
    assert np.linalg.norm(model.output_, inner, axis=1).sum() <= 0.5 * (1 + 1e-9)
    lengths = np.linalg.norm(model.components_, axis=1)
    assert 1 <= len(lengths) <= 4
    assert np.all(lengths <= 1 + 1e-9)


# --- The objective and its certificate ---


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_objective_agrees_with_its_definition(estimator: Any) -> None:
    X, y = problem(estimator)
    alpha = 0.3
    model = make(estimator, alpha=alpha).fit(X, y)
    o = outputs(model, X)
    intercept = model.intercept_
    if is_classifier(model):
        losses = np.log(np.exp(o).sum(axis=1)) - o[np.arange(len(y)), y]
    else:
        losses = 0.5 * ((o - y) ** 2).sum(axis=1)
        intercept = intercept - y.mean(axis=0)
    ridge = np.sum(model.coef_**2) + np.sum(intercept**2)
    assert model.objective_ == pytest.approx(losses.sum() + alpha / 2 * ridge, rel=1e-10)
    assert model.duality_gap_ == model.history_["gap"][-1]


def test_the_warning_says_why_the_fit_ended() -> None:
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3]
    with pytest.warns(ConvergenceWarning, match="the model has n_components basis vectors"):
        PolynomialNetworkRegressor(1, radius=10.0, random_state=0).fit(X, y)
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    with pytest.warns(ConvergenceWarning, match="the last basis vectors hardly lowered"):
        PolynomialNetworkClassifier(60, radius=100.0, tol=0.9, random_state=0).fit(X, y)
    with pytest.warns(ConvergenceWarning, match=r"after 2 iterations at .*raise max_iter or tol"):
        PolynomialNetworkClassifier(60, radius=100.0, max_iter=2, random_state=0).fit(X, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_fitted_attributes_of_all_estimators_are_set(estimator: Any) -> None:
    X, y = problem(estimator)
    with pytest.warns(ConvergenceWarning, match=r"gap of [0-9.]+, .*raise n_components") as caught:
        model = make(estimator, n_components=2).fit(X, y)
    assert caught[0].filename == __file__
    assert not model.converged_
    assert model.dual_objective_ == model.history_["dual_objective"][-1]
    assert model.duality_gap_ == model.objective_ - model.dual_objective_
    loss = len(y) * np.log(3) if is_classifier(model) else 0.5 * ((y - y.mean(axis=0)) ** 2).sum()
    assert model.null_objective_ == pytest.approx(loss)
    assert {len(column) for column in model.history_.values()} == {model.n_iter_}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # If the fit returns an earlier model on purpose, it does not warn.
        make(estimator, n_components=2).fit(X, y, validation_data=(X, y))
        make(estimator, n_components=2, callback=lambda *_: True).fit(X, y)
        assert make(estimator, tol=0.5, radius=0.1).fit(X, y).converged_


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_parameters_without_effect_are_rejected(estimator: Any) -> None:
    X, y = problem(estimator)
    with pytest.raises(ValueError, match=r"^alpha: linear=None does not use it, got 2\.0"):
        make(estimator, linear=None, alpha=2.0).fit(X, y)


# Such a small tolerance is not always reached.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("linear", ["explicit", "augment", None])
def test_every_dual_value_is_below_the_best_objective(
    estimator: Any, penalty: str, linear: str | None
) -> None:
    X, y = problem(estimator, n=40, d=4)
    parameters = {"penalty": penalty, "linear": linear, "radius": 0.7}
    short = make(estimator, n_components=2, reoptimize="output", **parameters).fit(X, y)
    # A long fit with full refits gives the best known model within the same radius.
    long = make(estimator, n_components=40, tol=1e-6, selection_tol=1e-8, **parameters).fit(X, y)
    best = long.objective_
    assert best < short.objective_
    for history in (short.history_, long.history_):
        assert np.all(history["dual_objective"] <= best * (1 + 1e-9))
    # A larger ball contains this ball, so the bound of the larger ball is valid here, too.
    wider = make(estimator, n_components=40, **{**parameters, "radius": 1.4}).fit(X, y)
    assert wider.history_["dual_objective"].max() <= best * (1 + 1e-9)
    if penalty == "l1":
        assert long.duality_gap_ <= 1e-3 * long.objective_
        assert short.objective_ - best <= short.duality_gap_ * (1 + 1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_fit_ends_when_new_bases_do_not_improve_it(estimator: Any) -> None:
    X, y = problem(estimator)
    # With a group penalty, selection may miss the best vector. The gap includes a bound on this
    # loss, so it does not reach 0 here.
    model = make(estimator, n_components=50, penalty="l1/l2", radius=0.5, tol=1e-4).fit(X, y)
    assert model.n_iter_ < 60
    assert np.all(np.diff(model.history_["objective"][-3:]) > -1e-7 * model.objective_)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("refit", ["full", "output"])
def test_the_objective_never_rises(estimator: Any, penalty: str, refit: str) -> None:
    X, y = problem(estimator)
    history = make(estimator, n_components=8, penalty=penalty, reoptimize=refit).fit(X, y).history_
    assert len(history["epoch"]) > 3
    assert np.all(np.diff(history["objective"]) <= 1e-9 * history["objective"][0])
    assert history["objective"][-1] < 0.9 * history["objective"][0]
    np.testing.assert_allclose(history["gap"], history["objective"] - history["dual_objective"])
    assert np.all(np.diff(history["seconds"]) >= 0)


@pytest.mark.parametrize("loss", CLASSIFIER_LOSSES)
@pytest.mark.parametrize("estimator", CLASSIFIERS)
def test_every_loss_learns(estimator: Any, loss: str) -> None:
    X, y = problem(estimator)
    model = make(estimator, loss=loss, n_components=8, radius=50.0).fit(X, y)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_sample_weights_equal_repeated_rows(estimator: Any) -> None:
    X, y = problem(estimator, n=40, d=4)
    weights = np.arange(40) % 3
    repeated = np.repeat(np.arange(40), weights)
    # With l1 and convex refits, the fit can reach the optimal value.
    parameters = {"penalty": "l1", "n_components": 60, "tol": 1e-8, "selection_tol": 1e-10}
    a = make(estimator, **parameters).fit(X, y, sample_weight=weights)
    b = make(estimator, **parameters).fit(X[repeated], y[repeated])
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-6)
    assert a.duality_gap_ <= 1e-3 * a.objective_
    other = make(estimator, **parameters).fit(X, y)
    assert abs(other.objective_ - a.objective_) > 1e-3 * a.objective_


# --- Invariances of the model ---


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
def test_threads_do_not_change_the_model(estimator: Any, dtype: Any, sparse: bool) -> None:
    # The rows exceed one block of a reduction, so that threads share the work.
    X, y = problem(estimator, n=9000, d=5)
    rows = X.astype(dtype)
    rows = sp.csr_array(rows) if sparse else rows
    one, two = (
        make(estimator, n_components=2, n_jobs=n_jobs, tol=0.1).fit(rows, y) for n_jobs in (1, 2)
    )
    assert_same_model(one, two)
    assert np.array_equal(outputs(one, rows), outputs(two, rows))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_sparse_and_single_precision_rows_give_nearly_the_same_model(estimator: Any) -> None:
    X, y = problem(estimator)
    # Round the rows, so that both precisions contain the same numbers.
    X = X.astype(np.float32).astype(np.float64)
    dense = make(estimator, n_components=2).fit(X, y)
    for rows in (sp.csr_array(X), sp.csr_matrix(X), X.astype(np.float32), sp.coo_array(X)):
        other = make(estimator, n_components=2).fit(rows, y)
        # Only the order of sums differs, and the fit amplifies this difference only a little.
        assert other.objective_ == pytest.approx(dense.objective_, rel=1e-6)
        np.testing.assert_allclose(outputs(other, rows), outputs(dense, X), atol=1e-3)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_memory_layout_does_not_change_the_model(estimator: Any) -> None:
    X, y = problem(estimator)
    dense = make(estimator).fit(X, y)
    strided = np.repeat(X, 2, axis=1)[:, ::2]
    for layout in (np.asfortranarray(X), strided, X[::-1][::-1], X.tolist()):
        assert_same_model(dense, make(estimator).fit(layout, y))
    read_only = X.copy()
    read_only.flags.writeable = False
    assert_same_model(dense, make(estimator).fit(read_only, y))


def shuffled_csr(X: Any, index_dtype: Any, *, split: bool) -> sp.csr_array:
    """CSR with the columns of each row reversed; with `split`, two entries add up to each value."""
    data: list[float] = []
    indices: list[int] = []
    indptr = [0]
    for row in X:
        for column in reversed(np.flatnonzero(row).tolist()):
            # The two halves add up exactly.
            parts = [row[column] / 2] * 2 if split else [row[column]]
            data += parts
            indices += [column] * len(parts)
        indptr.append(len(data))
    matrix = sp.csr_array((np.array(data), np.array(indices), np.array(indptr)), shape=X.shape)
    matrix.indices = matrix.indices.astype(index_dtype)
    matrix.indptr = matrix.indptr.astype(index_dtype)
    return matrix


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("split", [False, True])
def test_unsorted_csr_gives_the_model_of_sorted_csr(
    estimator: Any, index_dtype: Any, split: bool
) -> None:
    X, y = problem(estimator)
    canonical = make(estimator).fit(sp.csr_array(X), y)
    matrix = shuffled_csr(X, index_dtype, split=split)
    before = matrix.copy()
    assert not matrix.has_sorted_indices
    assert_same_model(canonical, make(estimator).fit(matrix, y))
    assert np.array_equal(outputs(canonical, matrix), outputs(canonical, sp.csr_array(X)))
    assert np.array_equal(matrix.indices, before.indices), "the caller's matrix was changed"
    assert np.array_equal(matrix.data, before.data)


def test_a_seed_determines_the_model() -> None:
    X, y = problem(PolynomialNetworkClassifier)
    a, b = (make(PolynomialNetworkClassifier).fit(X, y) for _ in range(2))
    assert_same_model(a, b)
    generator = make(PolynomialNetworkClassifier, random_state=np.random.RandomState(3)).fit(X, y)
    assert generator.score(X, y) > 0.5


# --- Copies of the rows ---


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_pickled_model_predicts_the_same_bits(estimator: Any) -> None:
    X, y = problem(estimator)
    model = make(estimator).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    assert_same_model(model, copy)
    assert np.array_equal(model.predict(X), copy.predict(X))
    assert np.array_equal(outputs(model, X), outputs(copy, X))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_clone_has_the_parameters_and_no_model(estimator: Any) -> None:
    X, y = problem(estimator)
    model = make(estimator, radius=3.0, penalty="l1").fit(X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "components_")
    assert_same_model(model, copy.fit(X, y))


# --- Warm starts and validation ---


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_warm_start_continues_from_the_last_fit(estimator: Any) -> None:
    X, y = problem(estimator)
    model = make(estimator, n_components=2, radius=20.0, warm_start=True).fit(X, y)
    objective, n_bases = model.objective_, len(model.components_)
    model.set_params(n_components=5).fit(X, y)
    assert model.history_["objective"][0] <= objective * (1 + 1e-9)
    assert model.objective_ < objective
    assert n_bases < len(model.components_) <= 5
    with pytest.raises(ValueError, match="warm_start"):
        model.fit(X[:, :-1], y)


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_best_model_on_validation_rows_is_kept(estimator: Any, explicit: bool) -> None:
    X, y = problem(estimator, n=80)
    # Add noise, so that a larger model is not always better.
    rng = np.random.default_rng(0)
    y = (
        np.where(rng.random(80) < 0.3, rng.permutation(y), y)
        if y.ndim == 1
        else y + rng.normal(size=y.shape)
    )
    parameters = {"n_components": 12, "radius": 1000.0, "alpha": 0.1, "tol": 0.0}
    if explicit:
        X, X_held_out, y, y_held_out = train_test_split(X, y, random_state=0)
        model = make(estimator, **parameters).fit(X, y, validation_data=(X_held_out, y_held_out))
        o = outputs(model, X_held_out)
        if is_classifier(model):
            score = model.score(X_held_out, y_held_out)
        else:
            score = -0.5 * ((o - y_held_out) ** 2).sum(axis=1).mean()
        assert model.history_["validation_score"].max() == pytest.approx(score, rel=1e-9)
    else:
        model = make(estimator, validation_fraction=0.3, **parameters).fit(X, y)
    history = model.history_
    best = int(np.argmax(history["validation_score"]))
    assert len(model.components_) == history["n_components"][best]
    assert best < len(history["epoch"]) - 1, "the data does not make early models better"
    assert model.objective_ == history["objective"][best]
    assert len(history["validation_loss"]) == len(history["epoch"])


# --- Accuracy ---


def test_parity_is_learned_from_products_of_features() -> None:
    corner = np.random.default_rng(0).uniform(0.1, 1, size=(60, 2))
    X = np.concatenate([corner * signs for signs in ([1, 1], [1, -1], [-1, 1], [-1, -1])])
    y = X[:, 0] * X[:, 1] > 0
    for estimator in CLASSIFIERS:
        model = make(estimator, n_components=2, alpha=1e-2, radius=200.0).fit(X, y)
        assert model.score(X, y) > 0.97
    # By symmetry, no linear model can be better than chance.
    assert LogisticRegression().fit(X, y).score(X, y) == pytest.approx(0.5, abs=0.05)


def test_digits_are_classified_accurately() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
    model = make(PolynomialNetworkClassifier, n_components=10, radius=100.0, tol=1e-2)
    assert model.fit(X_train, y_train).score(X_test, y_test) > 0.95


@pytest.mark.parametrize("loss", ["logistic", "binary-logistic"])
@pytest.mark.parametrize("estimator", CLASSIFIERS)
def test_probabilities_sum_to_one_and_agree_with_predictions(estimator: Any, loss: str) -> None:
    X, y = problem(estimator)
    model = make(estimator, loss=loss).fit(X, y)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (len(X), 3)
    assert np.all(probabilities >= 0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert np.array_equal(probabilities.argmax(axis=1), model.predict(X))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), probabilities, rtol=1e-12)
    # Probabilities may underflow to 0, but their logarithms stay finite.
    model.intercept_[:] = [0.0, -2000.0, -3000.0]
    assert np.all(np.isfinite(model.predict_log_proba(X)))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)
    hinge = make(estimator, loss="smoothed-hinge").fit(X, y)
    for method in ("predict_proba", "predict_log_proba"):
        with pytest.raises(AttributeError, match=method):
            getattr(hinge, method)(X)


@pytest.mark.parametrize("estimator", CLASSIFIERS)
def test_class_weights_act_as_sample_weights(estimator: Any) -> None:
    X, y = problem(estimator)
    own = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    by_class = make(estimator, class_weight={0: 3.0, 2: 0.0}).fit(X, y, own)
    by_row = make(estimator).fit(X, y, own * np.array([3.0, 1.0, 0.0])[y])
    assert np.array_equal(by_class.output_, by_row.output_)
    counts = np.bincount(y)
    balanced = make(estimator, class_weight="balanced").fit(X, y)
    by_row = make(estimator).fit(X, y, (len(y) / (len(counts) * counts))[y])
    assert balanced.objective_ == pytest.approx(by_row.objective_, rel=1e-9)
    with pytest.raises(ValueError, match="class_weight"):
        make(estimator, class_weight={0: -1.0}).fit(X, y)


@pytest.mark.parametrize("estimator", REGRESSORS)
def test_one_and_several_targets_are_predicted(estimator: Any) -> None:
    X, y = problem(estimator)
    many = make(estimator, n_components=8, radius=50.0, alpha=0.01).fit(X, y)
    assert many.predict(X).shape == y.shape
    assert many.output_.shape[1] == 2
    assert many.score(X, y) > 0.95
    single = make(estimator).fit(X, y[:, 0])
    assert single.predict(X).shape == (len(X),)
    assert make(estimator).fit(X, y[:, :1]).predict(X).shape == (len(X), 1)


@pytest.mark.parametrize("estimator", CLASSIFIERS)
def test_labels_may_be_strings_or_booleans(estimator: Any) -> None:
    X, y = problem(estimator)
    names = np.array(["low", "middle", "high"])
    by_name = make(estimator).fit(X, names[y])
    assert set(by_name.predict(X)) <= set(names)
    assert by_name.classes_.tolist() == sorted(names)
    two = make(estimator).fit(X, y > 0)
    assert two.predict(X).dtype == bool
    assert np.array_equal(two.decision_function(X) > 0, two.predict(X))


def test_every_parameter_is_documented() -> None:
    assert {estimator.__name__ for estimator in ESTIMATORS} <= set(dualgap.__all__)
    for estimator in ESTIMATORS:
        documented = estimator.__doc__ or ""
        for name in estimator().get_params():
            assert f"\n{name} : " in documented, f"{estimator.__name__}: {name} is not documented"


# --- Basis selection ---


def test_exact_selection_closes_the_gap() -> None:
    X, y = problem(PolynomialNetworkClassifier)
    parameters = {"penalty": "l1/linf", "n_components": 40, "tol": 1e-3, "radius": 1.0}
    exact = make(PolynomialNetworkClassifier, selection="exact", **parameters).fit(X, y)
    refined = make(PolynomialNetworkClassifier, **parameters).fit(X, y)
    # Without exact selection, the bound sums the maxima of all outputs, whose directions differ.
    assert exact.converged_
    assert exact.duality_gap_ < refined.duality_gap_
    assert exact.objective_ == pytest.approx(refined.objective_, rel=1e-2)
