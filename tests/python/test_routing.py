"""scikit-learn's metadata routing passes sample weights and groups to every estimator."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fitted import FITS
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dualgap import LogisticRegressionCV, MulticlassSVCCV

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

WEIGHTED = [
    name
    for name, (estimator, _, y) in FITS.items()
    if y is not None and "sample_weight" in inspect.signature(estimator.fit).parameters
]


@pytest.fixture(autouse=True)
def _routing() -> Iterator[None]:
    with config_context(enable_metadata_routing=True):
        yield


def test_every_model_of_labels_takes_weights() -> None:
    assert len(WEIGHTED) == sum(y is not None for _, _, y in FITS.values())


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_reach_the_fit_of_a_pipeline(name: str) -> None:
    estimator, X, y = FITS[name]
    weights = np.linspace(0.1, 2.0, len(X))
    expected = clone(estimator).fit(X, y, sample_weight=weights)
    routed = clone(estimator).set_fit_request(sample_weight=True)
    # Examples of structured models are sequences, so a step must not convert them.
    model = make_pipeline(FunctionTransformer(validate=False), routed)
    model.fit(X, y, sample_weight=weights)
    assert model[-1].objective_ == expected.objective_ != clone(estimator).fit(X, y).objective_
    with pytest.raises(Exception, match=r"sample_weight.*not explicitly set"):
        make_pipeline(FunctionTransformer(), clone(estimator)).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize(
    "name",
    [name for name in WEIGHTED if is_classifier(FITS[name][0]) or is_regressor(FITS[name][0])],
)
def test_weights_reach_the_score_of_a_search(name: str) -> None:
    estimator, X, y = FITS[name]
    weights = np.linspace(0.1, 2.0, len(X))
    routed = clone(estimator).set_fit_request(sample_weight=True)
    routed.set_score_request(sample_weight=True)
    folds = KFold(2, shuffle=True, random_state=0)
    search = GridSearchCV(routed, {"max_iter": [50]}, cv=folds)
    search.fit(X, y, sample_weight=weights)
    expected = []
    for train, test in folds.split(X):
        model = clone(estimator).set_params(max_iter=50)
        model.fit(X[train], y[train], sample_weight=weights[train])
        expected.append(model.score(X[test], y[test], sample_weight=weights[test]))
    assert search.best_score_ == pytest.approx(np.mean(expected), rel=1e-12)


@pytest.mark.parametrize("search", [MulticlassSVCCV(), LogisticRegressionCV()])
def test_groups_reach_the_splitter_of_a_search(search: Any) -> None:
    _, X, y = FITS["svc"]
    groups = np.arange(len(X)) % 6
    search.set_params(Cs=[0.1, 1.0], cv=GroupKFold(3), random_state=0)
    expected = clone(search).fit(X, y, groups=groups)
    routed = clone(search).set_fit_request(groups=True)
    model = make_pipeline(FunctionTransformer(), routed).fit(X, y, groups=groups)
    np.testing.assert_array_equal(model[-1].scores_, expected.scores_)
