"""All estimators are called in the same way: signatures, searches, and display in notebooks."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest
from fitted import CLASSES, FITS, SENTENCES, TAGS
from sklearn.base import clone

import dualgap
from dualgap import (
    LogisticRegressionCV,
    MulticlassSVCCV,
    PolynomialNetworkClassifierCV,
    SequenceTagger,
    StructuredCV,
)
from dualgap._estimator.signature import ordered, rank
from dualgap.distributed import ConsensusCV
from dualgap.recommend import Interactions

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PUBLIC = [getattr(dualgap, name) for name in dualgap.__all__]
ESTIMATORS = [each for each in PUBLIC if inspect.isclass(each) and hasattr(each, "fit")]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.__name__)
def test_signatures_list_parameters_in_one_order(estimator: Any) -> None:
    parameters = inspect.signature(estimator).parameters.values()
    keywords = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    assert keywords == sorted(keywords, key=rank)
    # The estimator inside ConsensusCV has the number of threads.
    shared = ["n_jobs", "random_state", "verbose", "callback"][estimator is ConsensusCV :]
    assert keywords[-len(shared) :] == shared
    assert {p.name for p in parameters} == set(estimator._get_param_names())


def test_unlisted_parameters_precede_solver_parameters() -> None:
    @ordered
    @dataclass(kw_only=True)
    class Estimator:
        tol: float = 1e-3
        solver: str = "auto"
        own: int = 1
        C: float = 1.0

    assert list(inspect.signature(Estimator).parameters) == ["C", "own", "solver", "tol"]


SEARCHES = [
    ConsensusCV,
    LogisticRegressionCV,
    MulticlassSVCCV,
    PolynomialNetworkClassifierCV,
    StructuredCV,
]
SHARED: dict[str, Any] = {"Cs": 13, "cv": None, "scoring": None, "rule": "best", "cv_tol": 2e-3}
SHARED |= {"refit": True, "n_jobs": None, "random_state": None, "verbose": None, "callback": None}
# A search over radii has one rule, and fits its folds as precisely as the final model. The
# estimator inside `ConsensusCV` has the number of threads.
MISSING = {PolynomialNetworkClassifierCV: {"Cs", "rule", "cv_tol"}, ConsensusCV: {"n_jobs"}}
# With None, the inner estimator's `tol` is used.
OTHER_DEFAULTS = {StructuredCV: {"cv_tol": None}}


@pytest.mark.parametrize("search", SEARCHES)
def test_searches_share_their_parameters(search: Any) -> None:
    parameters = inspect.signature(search).parameters
    expected = SHARED | OTHER_DEFAULTS.get(search, {})
    missing = MISSING.get(search, set())
    found = {name: p.default for name, p in parameters.items() if name in SHARED}
    assert found == {name: value for name, value in expected.items() if name not in missing}
    assert list(found) == [name for name in SHARED if name not in missing]


def test_a_search_calls_back_for_each_fit() -> None:
    calls: list[int] = []
    search = StructuredCV(SequenceTagger(), [0.1, 1.0], cv=2, random_state=0, n_jobs=1)
    search.set_params(callback=lambda epoch, *_: calls.append(epoch)).fit(SENTENCES, TAGS)
    assert calls[:5] == [1, 2, 3, 4, 1]
    assert search.best_estimator_.callback is None
    linear: list[int] = []
    own = MulticlassSVCCV(Cs=2, cv=2, random_state=0, n_jobs=1)
    own.set_params(callback=lambda epoch, *_: linear.append(epoch)).fit(*CLASSES)
    assert linear[:5] == [1, 2, 3, 4, 1]


def test_a_search_without_a_final_fit_cannot_predict() -> None:
    search = PolynomialNetworkClassifierCV(
        [1.0], n_components=2, cv=2, max_iter=3, random_state=0, refit=False
    ).fit(*CLASSES)
    assert search.radius_ == 1.0
    assert not hasattr(search, "components_")
    with pytest.raises(ValueError, match="not fitted"):
        search.predict(CLASSES[0])


@pytest.mark.parametrize("name", ["svc", "pn", "chain", "tagger", "recommender"])
def test_the_notebook_display_shows_the_certificate(name: str) -> None:
    estimator, X, y = FITS[name]
    model = clone(estimator)
    assert "dualgap-record" not in model._repr_html_()
    model.fit(X, y)
    for shown in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        record = shown[shown.index("dualgap-record") :]
        assert f"{model.objective_:.6g}" in record
        assert model.certificate_ in record
        assert ("unknown" in record) == (model.duality_gap_ is None)


def test_the_notebook_display_of_a_search_shows_the_model_with_the_chosen_c() -> None:
    estimator, X, y = FITS["tagger"]
    search = StructuredCV(clone(estimator), Cs=[0.1, 1.0], cv=2)
    assert "dualgap-record" not in search._repr_html_()
    shown = search.fit(X, y)._repr_html_()
    assert f"{search.best_estimator_.objective_:.6g}" in shown[shown.index("dualgap-record") :]


def test_interactions_is_not_an_estimator() -> None:
    assert not hasattr(Interactions(), "fit")
