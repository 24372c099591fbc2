"""Cross-validated C of logistic regression: scores, choices, bounds, and bad input."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegressionCV as Reference
from sklearn.model_selection import GroupKFold, StratifiedKFold, cross_val_score

from dualgap import LogisticRegression, LogisticRegressionCV
from dualgap._tuning.parallel import in_threads


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return X[:500] / 16, y[:500]


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "f1_macro"])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_scores_agree_with_separate_fits(digits: Any, scoring: str, class_weight: Any) -> None:
    X, y = digits
    common: dict[str, Any] = {"class_weight": class_weight, "max_iter": 2000, "random_state": 0}
    model = LogisticRegressionCV(Cs=[0.01, 1.0], cv=3, scoring=scoring, cv_tol=1e-9, **common)
    model.fit(X, y)
    for column, C in enumerate(model.Cs_):
        single = LogisticRegression(C=C, tol=1e-9, **common)
        expected = cross_val_score(single, X, y, cv=StratifiedKFold(3), scoring=scoring)
        np.testing.assert_allclose(model.scores_[:, column], expected, atol=1e-5)
    assert model.best_score_ == model.mean_score_.max()
    final = LogisticRegression(C=model.C_, **common).fit(X, y)
    np.testing.assert_array_equal(model.coef_, final.coef_)
    np.testing.assert_array_equal(model.predict_proba(X), final.predict_proba(X))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("load", [load_iris, load_digits])
def test_scores_agree_with_scikit_learn(load: Any) -> None:
    X, y = load(return_X_y=True)
    X, y = X[::2] / 16, y[::2]
    Cs, cv = [0.1, 1.0], StratifiedKFold(3)
    ours = LogisticRegressionCV(Cs=Cs, cv=cv, cv_tol=1e-9, tol=1e-9, random_state=0).fit(X, y)
    theirs = Reference(
        Cs=Cs, cv=cv, scoring="accuracy", solver="newton-cg", tol=1e-9, max_iter=1000
    ).fit(X, y)
    scores: Any = theirs.scores_
    if isinstance(scores, dict):
        scores = next(iter(scores.values()))
    np.testing.assert_allclose(ours.scores_, np.squeeze(scores), atol=1e-9)
    assert np.ravel(theirs.C_)[0] == ours.C_
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


def test_results_do_not_depend_on_the_number_of_threads(digits: Any) -> None:
    X, y = digits
    rows = sp.csr_array(np.where(X > 0.9, X, 0.0))
    for data in (X, rows):
        one, *others = [
            LogisticRegressionCV(Cs=[0.01, 0.1, 1], cv=4, n_jobs=n_jobs, random_state=1).fit(
                data, y
            )
            for n_jobs in (1, 2, 7)
        ]
        for other in others:
            for name in ("score", "objective", "dual_objective", "n_iter", "n_undecided"):
                np.testing.assert_array_equal(one.cv_results_[name], other.cv_results_[name])
            np.testing.assert_array_equal(one.coef_, other.coef_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("n_classes", [2, 10])
def test_score_bounds_contain_the_score_of_the_optimum(
    digits: Any, scoring: str, intercept: bool, n_classes: int
) -> None:
    X, y = digits
    y = y % n_classes
    common: dict[str, Any] = {"Cs": [0.01, 0.1, 1.0], "cv": 3, "refit": False, "scoring": scoring}
    common["fit_intercept"] = intercept
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    tight = LogisticRegressionCV(cv_tol=1e-11, **common).fit(X, y, weights)
    widths, gaps = [], []
    for cv_tol in (0.02, 1e-4, 1e-6):
        loose = LogisticRegressionCV(cv_tol=cv_tol, **common).fit(X, y, weights)
        lower, upper = np.moveaxis(loose.score_bounds_, 2, 0)
        assert (lower <= tight.scores_).all()
        assert (tight.scores_ <= upper).all()
        assert (lower <= loose.scores_).all()
        assert (loose.scores_ <= upper).all()
        widths.append(upper - lower)
        gaps.append(loose.cv_results_["objective"] - loose.cv_results_["dual_objective"])
        if scoring == "accuracy":
            np.testing.assert_array_equal(loose.cv_results_["n_undecided"] > 0, widths[-1] > 0)
    assert widths[0].max() > 0
    # A fit may end far below its tolerance, so that a smaller one changes nothing.
    closer = gaps[1] <= 0.5 * gaps[0]
    assert closer.sum() > closer.size / 2
    assert (widths[1][closer] <= widths[0][closer]).all()
    assert widths[2].max() < 0.3


def test_scores_that_cannot_be_bounded_have_infinite_bounds(digits: Any) -> None:
    X, y = digits
    model = LogisticRegressionCV(Cs=[0.1], cv=5, scoring="f1_macro", refit=False).fit(X, y)
    assert np.isinf(model.score_bounds_).all()
    np.testing.assert_array_equal(model.cv_results_["n_undecided"], [[100]] * 5)


def test_gaps_that_do_not_bound_the_intercepts_leave_all_rows_undecided(digits: Any) -> None:
    X, y = digits
    common: dict[str, Any] = {"Cs": [10.0], "cv": 5, "cv_tol": 0.5, "refit": False}
    model = LogisticRegressionCV(**common).fit(X, y)
    np.testing.assert_array_equal(model.score_bounds_, [[[0.0, 1.0]]] * 5)
    model = LogisticRegressionCV(scoring="neg_log_loss", **common).fit(X, y)
    np.testing.assert_array_equal(model.score_bounds_, [[[-np.inf, 0.0]]] * 5)


def test_sample_weights_equal_repeated_training_rows() -> None:
    X, y = load_iris(return_X_y=True)
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    folds = [(np.arange(0, 150, 2), np.arange(1, 150, 2)), (np.arange(1, 150, 2), [0, 75, 149])]
    repeated = [(np.repeat(train, weights[train]), test) for train, test in folds]
    common: dict[str, Any] = {"Cs": [0.1, 1.0], "cv_tol": 1e-9, "refit": False}
    for class_weight in (None, "balanced", {0: 2.0}):
        common["class_weight"] = class_weight
        one = LogisticRegressionCV(cv=folds, **common).fit(X, y, weights)
        other = LogisticRegressionCV(cv=repeated, **common).fit(X, y)
        if class_weight == {0: 2.0}:
            # The objective is measured in units of the total weight.
            np.testing.assert_array_equal(one.scores_, other.scores_)
        objectives = [each.cv_results_["objective"] for each in (one, other)]
        np.testing.assert_allclose(*objectives, rtol=1e-7)


def test_a_search_supports_string_labels_groups_and_the_one_standard_error_rule() -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b"])[(y == 2).astype(int)]
    groups = np.arange(150) % 5
    common: dict[str, Any] = {"Cs": 9, "cv": GroupKFold(5), "refit": False}
    best = LogisticRegressionCV(**common).fit(X, names, groups=groups)
    near = LogisticRegressionCV(rule="one-standard-error", **common).fit(X, names, groups=groups)
    np.testing.assert_array_equal(best.scores_, near.scores_)
    assert near.C_ < best.C_
    with pytest.raises(NotFittedError):
        best.predict(X)
    fitted = LogisticRegressionCV(Cs=[1.0], cv=3).fit(X, names)
    assert fitted.coef_.shape == (1, 4)
    assert set(fitted.predict(X)) == {"a", "b"}


def test_a_class_without_training_rows_is_never_predicted() -> None:
    X, y = load_iris(return_X_y=True)
    folds = [(np.flatnonzero(y < 2), np.flatnonzero(y > 0))]
    weights = {0: 1.0, 1: 2.0, 2: 3.0}
    model = LogisticRegressionCV(Cs=[1.0], cv=folds, class_weight=weights, refit=False)
    assert model.fit(X, y).scores_[0, 0] == 0.5
    with pytest.raises(
        ValueError, match=r"^cv: no training row of fold 0 has the class 2 of a held"
    ):
        model.set_params(scoring="neg_log_loss").fit(X, y)


def test_bad_folds_and_parameters_are_rejected() -> None:
    X, y = load_iris(return_X_y=True)
    every, some = np.arange(150), np.arange(0, 150, 2)
    for cv, weights, message in [
        ([(some, every)], (every % 2).astype(float), "^cv: no training row of fold 0 has a pos"),
        ([(some, every), ([], every)], None, "^cv: no training row of fold 1"),
        ([(some, every), (np.arange(40), every)], None, "^cv: the training rows of fold 1 have"),
        ([(some, [])], None, "^cv: fold 0 has no held-out row"),
        ([(some, [150])], None, "^cv: a fold contains rows"),
    ]:
        with pytest.raises(ValueError, match=message):
            LogisticRegressionCV(Cs=2, cv=cv).fit(X, y, weights)
    for parameters, message in [
        ({"Cs": [-1.0]}, "^Cs: "),
        ({"Cs": [1e299]}, "^Cs: "),
        ({"rule": "worst"}, "^rule: "),
        ({"solver": "lbfgs"}, "^solver: "),
        ({"scoring": "nothing"}, "nothing"),
        ({"cv_tol": -1.0}, "^cv_tol: "),
        ({"class_weight": {0: -1.0}}, "^class_weight: "),
    ]:
        with pytest.raises(ValueError, match=message):
            LogisticRegressionCV(**parameters).fit(X, y)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        LogisticRegressionCV(Cs=2).fit(X, y)


def test_fits_that_do_not_converge_are_counted_in_one_warning() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning) as caught:
        LogisticRegressionCV(Cs=2, cv=3, max_iter=1, cv_tol=1e-9, refit=False).fit(X, y)
    (warning,) = caught
    assert "6 of 6 fits of the folds stopped above cv_tol=1e-09" in str(warning.message)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_callbacks_count_fits_and_their_errors_end_the_search(n_jobs: int) -> None:
    X, y = load_iris(return_X_y=True)
    calls: list[int] = []
    model = LogisticRegressionCV(Cs=3, cv=4, n_jobs=n_jobs)
    model.set_params(callback=lambda n, *_: calls.append(n)).fit(X, y)
    assert calls[:13] == [*range(1, 13), 1]

    def raise_error(*_: Any) -> None:
        raise RuntimeError("enough")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="enough"):
        LogisticRegressionCV(Cs=50, cv=4, n_jobs=n_jobs, callback=raise_error).fit(X, y)
    assert threading.active_count() == before


def test_an_error_in_one_series_stops_all_series() -> None:
    record_fit: list[int] = []

    def series(item: int, stop: threading.Event, emit: Callable[[int], None]) -> None:
        if item == 1:
            raise ValueError("one")
        while not stop.is_set():
            time.sleep(0.001)
            emit(item)
        record_fit.append(item)

    with pytest.raises(ValueError, match="one"):
        list(in_threads(series, [0, 1, 2, 3], 2))
    assert record_fit == [0]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_fits_in_a_series_agree_with_single_fits(n_classes: int, sparse: bool) -> None:
    rng = np.random.default_rng(n_classes)
    X = rng.standard_normal((300, 12)) * (rng.random((300, 12)) < (0.15 if sparse else 1.0))
    y = (X @ rng.standard_normal((12, n_classes)) + rng.gumbel(size=(300, n_classes))).argmax(1)
    weights, Cs = rng.uniform(0.5, 2.0, 300), [0.01, 0.3, 20.0, 1e4]
    rows = sp.csr_matrix(X) if sparse else X
    found = []
    model = LogisticRegression(tol=1e-5, random_state=0)

    def record_fit() -> bool:
        p = model.predict_proba(X)
        p = p[:, 1:] if n_classes == 2 else p
        shares = weights / weights.sum()
        expected = np.diag(shares @ p) - np.einsum("i,ij,ik->jk", shares, p, p)
        assert model._curvature is not None
        np.testing.assert_allclose(model._curvature["matrix"], expected, rtol=1e-3, atol=1e-9)
        assert model.converged_
        found.append((model.C, model.objective_, model.dual_objective_))
        return len(found) == 3

    model._fit_all((rows, y, weights), Cs, record_fit)
    assert [C for C, *_ in found] == Cs[:3]
    for C, objective, dual in found:
        single = LogisticRegression(C, tol=1e-9).fit(X, y, weights)
        assert dual <= single.objective_
        assert single.dual_objective_ <= objective <= (1 + 1e-5) * single.objective_ + 1e-12
