"""Deeply nested values, and fits inside fits, raise an error and do not crash."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from fitted import CLASSES, FITS
from sklearn.base import clone

from dualgap.sequence import SequenceTagger
from dualgap.structured import StructuredSVM

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def nest(levels: int) -> dict[str, Any]:
    features: dict[str, Any] = {"a": 1.0}
    for _ in range(levels):
        features = {"a": features}
    return features


def nest_endlessly() -> dict[str, Any]:
    features: dict[str, Any] = {}
    features["again"] = features
    return features


@pytest.mark.parametrize("make", [lambda: nest(50_000), nest_endlessly])
def test_endless_features_are_rejected(make: Any) -> None:
    words = [[{"a": 1.0}], [{"b": 1.0}]]
    tagger = SequenceTagger("logistic", tol=0.1).fit(words, [["A"], ["B"]])
    bad = [[{"a": 1.0}], [make()]]
    calls = [
        lambda: clone(tagger).fit(bad, [["A"], ["B"]]),
        lambda: tagger.path(bad, [["A"], ["B"]], 0.1, 0.2),
        lambda: tagger.predict(bad),
        lambda: tagger.predict_marginals(bad),
        lambda: tagger.predict_top_k(bad, 1),
        lambda: tagger.score(bad, [["A"], ["B"]]),
        lambda: tagger.explain(bad[1], ["A"]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="nested at most 32 deep"):
            call()


def test_moderately_nested_features_are_read() -> None:
    words = [[nest(20)], [{"b": 1.0}]]
    tagger = SequenceTagger("logistic", tol=0.1, C=10.0).fit(words, [["A"], ["B"]])
    assert tagger.predict(words) == [["A"], ["B"]]


CERTIFIED = [name for name in FITS if name not in ("svc-cv", "pn-cv", "logistic-cv", "consensus")]
LIMIT = "nested at most 8 deep"


@pytest.mark.parametrize("name", [n for n in CERTIFIED if hasattr(FITS[n][0], "callback")])
def test_a_callback_that_fits_its_own_estimator_stops_with_an_error(name: str) -> None:
    estimator, X, y = FITS[name]
    most = [0]

    def again(*_: object) -> bool:
        most[0] = max(most[0], threading.active_count())
        clone(estimator).set_params(callback=again, n_jobs=1).fit(X, y)
        return True

    with pytest.raises(RecursionError, match=LIMIT):
        clone(estimator).set_params(callback=again, n_jobs=1).fit(X, y)


class Recursive:
    """A model whose decoder fits the model again."""

    def joint_features(self, x: Any, y: int) -> Any:
        return np.outer(np.arange(3) == y, x).ravel()

    def loss(self, y_true: int, y: int) -> float:
        return float(y_true != y)

    def loss_augmented_decode(self, x: Any, y_true: int, w: Any) -> int:
        StructuredSVM(Recursive(), verify_decoder=False, n_jobs=2).fit(*CLASSES)
        return 0


def test_a_model_that_fits_itself_ends() -> None:
    with pytest.raises(RecursionError, match=LIMIT):
        StructuredSVM(Recursive(), verify_decoder=False).fit(*CLASSES)


def test_consecutive_fits_do_not_count_as_nested() -> None:
    estimator, X, y = FITS["svc"]
    inner: list[Any] = []

    def fit_another(*_: object) -> None:
        inner.append(clone(estimator).fit(X, y))

    for _ in range(20):
        clone(estimator).fit(X, y)
    outer = clone(estimator).set_params(callback=fit_another, max_iter=30).fit(X, y)
    assert len(inner) >= 1
    np.testing.assert_array_equal(outer.coef_, inner[0].coef_)
