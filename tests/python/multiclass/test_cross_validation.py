"""Cross-validation of C: scores, choices, and bounds that hold for the exact optima."""

from __future__ import annotations

import signal
import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fitted import CLASSES, FITS
from score_trials import trial
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import KFold, RepeatedStratifiedKFold, StratifiedKFold, cross_val_score

from dualgap import MulticlassSVC, MulticlassSVCCV
from dualgap.losses import TopK


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return X[:600] / 16, y[:600]


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "f1_macro", "top-2"])
def test_scores_agree_with_separate_fits(digits: Any, scoring: str) -> None:
    X, y = digits
    model = MulticlassSVCCV(
        Cs=[0.01, 1.0], cv=3, scoring=scoring, cv_tol=1e-9, max_iter=5000, random_state=0
    ).fit(X, y)
    for column, C in enumerate(model.Cs_):
        single = MulticlassSVC(C=C, tol=1e-9, max_iter=5000, random_state=0)
        name = "top_k_accuracy" if scoring == "top-2" else scoring
        expected = cross_val_score(single, X, y, cv=StratifiedKFold(3), scoring=name)
        np.testing.assert_allclose(model.scores_[:, column], expected, atol=1e-12)
    assert C in model.Cs_
    assert model.best_score_ == model.mean_score_.max()
    final = MulticlassSVC(C=model.C_, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, final.coef_, atol=0.05 * np.abs(final.coef_).max())


@pytest.mark.parametrize("seed", range(40))
def test_score_bounds_contain_the_optimum_and_decided_rows_keep_their_class(seed: int) -> None:
    _, outside, _, _, changed = trial(seed)
    assert (outside, changed) == (0, 0)


def test_trials_have_decided_and_undecided_rows() -> None:
    scores, _, rows, decided, _ = np.sum([trial(seed) for seed in range(10)], axis=0)
    assert scores > 10
    assert 0.2 * rows < decided < rows


def test_results_do_not_depend_on_the_number_of_threads(digits: Any) -> None:
    X, y = digits
    fits = [
        MulticlassSVCCV(Cs=3, cv=4, bounds=0.005, max_iter=12, n_jobs=n_jobs, random_state=1)
        for n_jobs in (1, 2, 3)
    ]
    with pytest.warns(ConvergenceWarning, match="bounds of the mean score"):
        one, *others = [fit.fit(X, y) for fit in fits]
    for other in others:
        for name in ("score", "lower", "upper", "objective", "dual_objective", "n_iter"):
            np.testing.assert_array_equal(one.cv_results_[name], other.cv_results_[name])
        np.testing.assert_array_equal(one.coef_, other.coef_)


def test_bounds_reach_the_requested_width_or_the_candidate_is_beaten(digits: Any) -> None:
    X, y = digits
    loose = MulticlassSVCCV(Cs=[1e-3, 1e-2, 0.1], cv=3, random_state=0).fit(X, y)
    model = MulticlassSVCCV(Cs=[1e-3, 1e-2, 0.1], cv=3, bounds=0.01, random_state=0).fit(X, y)
    lower, upper = model.mean_score_bounds_.T
    assert ((upper - lower <= 0.01) | (upper < lower.max())).all()
    assert (np.diff(loose.mean_score_bounds_).ravel() > 0.01).any()
    assert (model.score_bounds_[..., 0] <= model.scores_).all()
    assert (model.scores_ <= model.score_bounds_[..., 1]).all()


def test_one_standard_error_chooses_the_smallest_value_within_it(digits: Any) -> None:
    X, y = digits
    common: dict[str, Any] = {"Cs": 9, "cv": 5, "random_state": 0, "refit": False}
    best = MulticlassSVCCV(**common).fit(X, y)
    model = MulticlassSVCCV(rule="one-standard-error", **common).fit(X, y)
    np.testing.assert_array_equal(best.scores_, model.scores_)
    at = int(best.mean_score_.argmax())
    error = best.scores_[:, at].std(ddof=1) / np.sqrt(5)
    within = best.mean_score_ >= best.mean_score_[at] - error
    assert best.Cs_[at] == best.C_
    assert model.C_ == model.Cs_[within][0] < best.C_
    assert not hasattr(model, "coef_")


def test_a_search_over_two_classes_with_string_labels_predicts() -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b"])[(y == 2).astype(int)]
    model = MulticlassSVCCV(
        Cs=[0.1, 10.0],
        cv=KFold(3, shuffle=True, random_state=0),
        random_state=0,
        max_iter=5000,
    )
    model.fit(X, names)
    assert set(model.predict(X)) <= {"a", "b"}
    assert model.score(X, names) > 0.9
    assert model.prediction_may_change(X).shape == (150,)


def test_an_error_in_a_scorer_ends_the_search(digits: Any) -> None:
    def scorer(model: Any, X: Any, y: Any) -> float:
        msg = "not today"
        raise ArithmeticError(msg)

    with pytest.raises(ArithmeticError, match="not today"):
        MulticlassSVCCV(scoring=scorer, cv=3).fit(*digits)


def test_ctrl_c_ends_a_search() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 40)), rng.integers(0, 20, 4000)
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        MulticlassSVCCV(Cs=[1e3, 1e4], cv_tol=0.0, max_iter=10**6).fit(X, y)
    timer.join()


def test_progress_is_reported(digits: Any, capsys: Any) -> None:
    MulticlassSVCCV(Cs=2, cv=3, verbose=1, refit=False).fit(*digits)
    assert "fit     1  " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"Cs": 0}, "Cs: must be a positive"),
        ({"Cs": []}, r"Cs: must be an integer \(how many values\) or a list"),
        ({"Cs": [1.0, -1.0]}, "Cs: must be a positive"),
        ({"rule": "worst"}, "rule: must be one of"),
        ({"bounds": -1.0}, "bounds: must be"),
        ({"bounds": 0.1, "scoring": "f1_macro"}, "bounds: "),
        ({"cv_tol": -1.0}, "cv_tol: must be"),
        ({"scoring": "top-0"}, "scoring: 'top-0' needs a number from 1 to 2"),
        ({"scoring": "top-3"}, "scoring: 'top-3' needs a number from 1 to 2"),
    ],
)
def test_errors_name_the_bad_parameter(parameters: dict[str, Any], message: str) -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        MulticlassSVCCV(**parameters).fit(X, y)


def test_prediction_may_change_requires_a_certificate() -> None:
    X, y = load_iris(return_X_y=True)
    model = MulticlassSVC().fit(X, y)
    model._lambda = None
    with pytest.raises(ValueError, match="prediction_may_change: the model has no certificate"):
        model.prediction_may_change(X)


def test_repeated_folds_are_accepted(digits: Any) -> None:
    """These splitters have an attribute `cv` that is a class."""
    X, y = digits
    cv = RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0)
    model = MulticlassSVCCV(Cs=[0.01], cv=cv, refit=False).fit(X, y)
    assert model.scores_.shape == (4, 1)


def test_splitters_may_give_masks_and_numbers_from_the_end(digits: Any) -> None:
    X, y = digits
    train = np.arange(len(y)) % 3 > 0
    rows, tests = np.flatnonzero(train), np.flatnonzero(~train)
    common: dict[str, Any] = {"Cs": [0.1], "random_state": 0, "refit": False}
    expected = MulticlassSVCCV(cv=[(rows, tests)], **common).fit(X, y).scores_
    for fold in [(train, ~train), (rows - len(y), list(tests - len(y)))]:
        model = MulticlassSVCCV(cv=[fold], **common).fit(X, y)
        np.testing.assert_array_equal(model.scores_, expected)
    with pytest.raises(ValueError, match="cv: a fold contains rows that do not exist"):
        MulticlassSVCCV(cv=[(rows, [len(y)])], **common).fit(X, y)


def test_a_search_without_a_final_fit_has_no_model(digits: Any) -> None:
    X, y = digits
    model = MulticlassSVCCV(Cs=[0.1], cv=3, random_state=0).fit(X, y)
    model.set_params(refit=False).fit(X, y % 3)
    assert model.best_score_ > 0.5
    for ask in (model.predict, model.prediction_may_change):
        with pytest.raises(NotFittedError):
            ask(X)


def test_scorers_see_the_value_of_c_that_they_score(digits: Any) -> None:
    model = MulticlassSVCCV(
        Cs=[0.1, 1.0], cv=3, scoring=lambda model, X, y: model.C, refit=False
    ).fit(*digits)
    np.testing.assert_array_equal(model.scores_, [[0.1, 1.0]] * 3)


@pytest.mark.parametrize("k", [3, 5])
def test_starts_at_the_next_c_are_in_the_set_of_the_top_k_hinge(k: int) -> None:
    # Shrinking some coordinates of a feasible point may make it infeasible.
    rng = np.random.default_rng(0)
    y = rng.integers(40, size=600)
    X = rng.normal(size=(40, 8))[y] + 0.6 * rng.normal(size=(600, 8))
    search = MulticlassSVCCV(
        loss=TopK(k), Cs=[0.03, 0.1, 0.3, 1.0], cv=2, refit=False, max_iter=200, random_state=0
    ).fit(X, y)
    assert search.cv_results_["converged"].all()


@pytest.fixture(scope="module", params=["svc", "svc-cv", "consensus"])
def tight(request: pytest.FixtureRequest) -> Any:
    """A model whose gap is so small that most predictions are certain."""
    model = clone(FITS[request.param][0])
    # Rounding ends a consensus fit at 1e-8 to 1e-9, depending on the instruction set.
    tol = 1e-7 if request.param == "consensus" else 1e-9
    model.set_params(tol=tol, max_iter=5000, fit_intercept=False)
    # With the large C, weights are large, so scores overflow although rows do not.
    model.set_params(**({"Cs": [1e12]} if request.param == "svc-cv" else {"C": 1e12}))
    return model.fit(CLASSES[0] * 1e-6, CLASSES[1])


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("exponent", [-320, -300, -170, 0, 150, 153, 155, 200, 300, 307])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_decided_rows_of_any_magnitude_have_the_right_class(
    tight: Any, layout: Any, exponent: int
) -> None:
    scaled = CLASSES[0] * 10.0**exponent
    # Scaling by a power of two is exact: these scores neither overflow nor underflow.
    exact = np.ldexp(scaled, round(-exponent * np.log2(10.0))) @ tight.coef_.T
    undecided, found = tight.prediction_may_change(layout(scaled)), tight.predict(layout(scaled))
    assert (found == tight.classes_[exact.argmax(axis=1)])[~undecided].all()
    finite = np.isfinite(tight.decision_function(layout(scaled))).all(axis=1)
    assert undecided[~finite].all()
    assert (~undecided).any() == (-150 < exponent < 155)


@pytest.mark.parametrize("case", ["scales", "shift", "rows x 1e6", "float32"])
def test_searches_converge_with_valid_bounds_at_any_column_scale(case: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8))
    y = (X @ rng.normal(size=(8, 4)) + rng.normal(size=(300, 4))).argmax(axis=1)
    if case == "shift":
        X[:, 3] = 5e4 + 2e4 * X[:, 3]
    elif case == "rows x 1e6":
        X *= 1e6
    else:
        X *= rng.permutation(np.logspace(-3.0, 5.0, 8))
    X = X.astype(np.float32 if case == "float32" else np.float64)
    model = MulticlassSVCCV(Cs=7, refit=False, random_state=0, max_iter=200).fit(X, y)
    results = model.cv_results_
    assert results["converged"].all()
    assert results["n_iter"].max() < 100
    assert (results["objective"] <= 1.0 + 1e-12).all()
    # The bounds contain the scores of much more accurate models.
    for (train, test), bounds in zip(
        StratifiedKFold(5).split(X, y), model.score_bounds_, strict=True
    ):
        for C, (lower, upper) in zip(model.Cs_[::3], bounds[::3], strict=True):
            exact = MulticlassSVC(C=C, tol=1e-8, solver="newton").fit(X[train], y[train])
            assert lower <= exact.score(X[test], y[test]) <= upper


@pytest.mark.parametrize("max_iter", [1, 2, 3, 6])
def test_the_scored_model_has_the_reported_objective(max_iter: int) -> None:
    X, y = load_iris(return_X_y=True)
    X = 100.0 * X
    found: list[Any] = []

    def scorer(model: Any, X: Any, y: Any) -> float:
        found.append(np.c_[model.coef_, model.intercept_])
        return 0.0

    model = MulticlassSVCCV(
        Cs=[0.1, 1.0], scoring=scorer, refit=False, n_jobs=1, max_iter=max_iter, random_state=0
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    objective = model.cv_results_["objective"].ravel()
    weights = iter(zip(found, objective, strict=True))
    for train, _ in StratifiedKFold(5).split(X, y):
        for C in model.Cs_:
            W, expected = next(weights)
            scores = np.c_[X, np.ones(len(X))][train] @ W.T
            own = scores[np.arange(len(train)), y[train]]
            scores += 1.0 - np.eye(3)[y[train]]
            losses = scores.max(axis=1) - own
            value = 0.5 * (W**2).sum() / (C * len(train)) + losses.mean()
            np.testing.assert_allclose(value, expected, rtol=1e-6)
