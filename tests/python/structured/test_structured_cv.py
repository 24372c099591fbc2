"""Cross-validation of C for structured models and taggers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from dualgap.sequence import SequenceTagger
from dualgap.structured import ChainModel, StructuredCV, StructuredSVM

CS = [1e-3, 0.1, 10.0]


def words() -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(0)
    labels = [(np.arange(4) + rng.integers(3)) % 3 for _ in range(30)]
    return [np.eye(3)[label] + 0.6 * rng.normal(size=(4, 3)) for label in labels], labels


def estimators() -> list[Any]:
    options: dict[str, Any] = {"tol": 1e-4, "max_iter": 2000, "random_state": 0}
    chain = StructuredSVM(ChainModel(), step="pairwise", **options)
    return [chain, SequenceTagger("logistic", **options), SequenceTagger("hamming", **options)]


@pytest.mark.parametrize("at", range(3))
def test_scores_agree_with_separate_fits(at: int) -> None:
    X, y = words()
    y = y if at == 0 else [label.tolist() for label in y]
    estimator = estimators()[at]
    search = StructuredCV(estimator, CS, cv=3).fit(X, y)
    grid = GridSearchCV(estimator, {"C": CS}, cv=KFold(3)).fit(X, y)
    for column, C in enumerate(CS):
        single = estimator.__class__(**{**estimator.get_params(deep=False), "C": C})
        expected = cross_val_score(single, X, y, cv=KFold(3))
        np.testing.assert_allclose(search.scores_[:, column], expected, atol=0.03)
    assert (search.cv_results_["relative_gap"] <= 1e-4).all()
    assert search.cv_results_["converged"].all()
    assert (grid.best_params_["C"],) * 2 == (search.C_, search.best_estimator_.C)
    # Warm starts save passes and do not change the estimator.
    assert search.cv_results_["n_iter"][:, 1:].mean() > 0
    assert not hasattr(estimator, "n_iter_")
    assert list(map(list, search.predict(X))) == list(map(list, grid.predict(X)))
    assert search.score(X, y) == search.best_estimator_.score(X, y)


def test_a_search_supports_rules_weights_and_no_final_fit() -> None:
    X, y = words()
    weights = np.r_[np.ones(20), np.zeros(10)]
    search = StructuredCV(
        estimators()[0], CS, cv=[(np.arange(25), np.arange(25, 30))], refit=False, cv_tol=0.1
    ).fit(X, y, weights)
    single = estimators()[0].set_params(C=CS[0], tol=0.1).fit(X[:20], y[:20])
    assert search.cv_results_["objective"][0, 0] == pytest.approx(single.objective_, rel=0.1)
    with pytest.raises(NotFittedError):
        search.predict(X)
    best = StructuredCV(estimators()[0], 5, cv=4, refit=False).fit(X, y)
    rule = StructuredCV(estimators()[0], 5, cv=4, refit=False, rule="one-standard-error").fit(X, y)
    assert rule.C_ <= best.C_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"Cs": []}, "Cs: "),
        ({"rule": "worst"}, "rule: "),
        ({"cv_tol": -1.0}, "cv_tol: "),
        ({"cv": [([0], [99])]}, "cv: a fold contains rows"),
        ({"scoring": lambda *_: np.nan}, "scoring: "),
    ],
)
def test_errors_name_the_bad_parameter(options: dict[str, Any], message: str) -> None:
    X, y = words()
    with pytest.raises(ValueError, match=message):
        StructuredCV(estimators()[0], **{"Cs": [1.0], **options}).fit(X, y)
    with pytest.raises(ValueError, match="y: must have a label"):
        StructuredCV(estimators()[0], [1.0]).fit(X, y[:3])
