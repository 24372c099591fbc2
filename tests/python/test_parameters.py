"""Invalid parameters of every estimator raise an error that names the parameter."""

from __future__ import annotations

import threading
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fitted import CLASSES, FITS, LABELS, PAIRS, ROWS, SENTENCES, TAGS
from sklearn.base import clone

from dualgap import (
    ClassFeatureSVC,
    LogisticRegressionCV,
    MulticlassSVC,
    MulticlassSVCCV,
    PolynomialNetworkClassifierCV,
    StructuredSVM,
)
from dualgap.sequence import SequenceTagger
from dualgap.structured import MatchingModel, MulticlassModel, StructuredCV

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def parameters_of_type(kind: str) -> list[tuple[str, str]]:
    """Pairs of an estimator and a parameter whose default has this type."""
    return [
        (name, each.name)
        for name, (estimator, *_) in FITS.items()
        for each in fields(type(estimator))
        if each.init and type(each.default).__name__ == kind and each.name not in ("verbose", "Cs")
    ]


@pytest.mark.parametrize("value", [2**63, 2**70, np.uint64(2**63)])
@pytest.mark.parametrize(("name", "parameter"), parameters_of_type("int"))
def test_integers_beyond_64_bits_are_rejected(name: str, parameter: str, value: Any) -> None:
    estimator, X, y = FITS[name]
    with pytest.raises(ValueError, match=rf"^{parameter}: must be at most \d+, got about 2\*\*"):
        clone(estimator).set_params(**{parameter: value}).fit(X, y)


@pytest.mark.parametrize("value", [10**400, np.nan, np.inf, -1.0, True, "1", None, 1j])
@pytest.mark.parametrize(("name", "parameter"), parameters_of_type("float"))
def test_numbers_must_be_finite(name: str, parameter: str, value: Any) -> None:
    estimator, X, y = FITS[name]
    with pytest.raises(ValueError, match=rf"^{parameter}: "):
        clone(estimator).set_params(**{parameter: value}).fit(X, y)


@pytest.mark.parametrize("value", [2**32, 2**63])
def test_counts_beyond_32_bits_are_rejected(value: int) -> None:
    with pytest.raises(ValueError, match=r"^min_count: must be at most 4294967295"):
        SequenceTagger(min_count=value).fit(SENTENCES, TAGS)


def test_huge_numbers_of_threads_are_accepted_and_of_links_rejected() -> None:
    MulticlassSVC(n_jobs=2**70).fit(*CLASSES)
    with pytest.raises(ValueError, match=r"^max_links: "):
        StructuredSVM(MatchingModel(max_links=2**70)).fit(PAIRS[:1], [np.array([[0, 0]])])


WIDE = [1e-290, 1e290]
SEARCHES: dict[str, Any] = {
    "svc": lambda: MulticlassSVCCV(Cs=WIDE, cv=2).fit(*CLASSES),
    "logistic": lambda: LogisticRegressionCV(Cs=WIDE, cv=2).fit(*CLASSES),
    "structured": lambda: StructuredCV(StructuredSVM(MulticlassModel()), Cs=WIDE, cv=2).fit(
        *CLASSES
    ),
    "tagger": lambda: StructuredCV(SequenceTagger(), Cs=WIDE, cv=2).fit(SENTENCES, TAGS),
    "tagger-log": lambda: StructuredCV(SequenceTagger("logistic"), Cs=WIDE).fit(SENTENCES, TAGS),
}
PATHS: dict[str, Any] = {
    "svc": lambda: MulticlassSVC().path(*CLASSES, *WIDE),
    "structured": lambda: StructuredSVM(MulticlassModel()).path(*CLASSES, *WIDE),
    "tagger": lambda: SequenceTagger().path(SENTENCES, TAGS, *WIDE),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_over_too_large_a_range_of_c_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"^Cs: the largest C must be at most 1e100 times"):
        SEARCHES[name]()


@pytest.mark.parametrize("name", PATHS)
def test_paths_over_too_large_a_range_of_c_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=r"^C_max: the largest C must be at most 1e100 times"):
        PATHS[name]()


class Locked:
    """A model that cannot be pickled, and whose repr is very long."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def joint_features(self, x: Any, y: Any) -> Any:
        return np.kron(np.eye(3)[y], x)

    def loss(self, y_true: Any, y: Any) -> float:
        return float(y_true != y)

    def loss_augmented_decode(self, x: Any, y_true: Any, w: Any) -> Any:
        return int((w.reshape(3, -1) @ x + (np.arange(3) != y_true)).argmax())

    def decode(self, x: Any, w: Any) -> Any:
        return int((w.reshape(3, -1) @ x).argmax())

    def __repr__(self) -> str:
        return "0.125 " * 10_000


class Shared(Locked):
    """A model that can be copied but not pickled."""

    def __deepcopy__(self, memo: Any) -> Shared:
        return Shared(self.lock)


class OwnHinge:
    """A loss that cannot be pickled."""

    def __init__(self) -> None:
        self.support = lambda margins, label: max(0.0, float(margins.max()))

    def vertex(self, margins: Any, label: int) -> Any:
        point = np.zeros(3)
        if margins.max() > 0.0:
            point[margins.argmax()] = 1.0
        return point


def test_warm_starts_of_models_that_cannot_be_pickled_are_rejected() -> None:
    X, y = list(ROWS), LABELS.tolist()
    own = Locked(threading.Lock())
    plain = StructuredSVM(own, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"^model: Locked cannot be pickled") as raised:
        StructuredSVM(own, warm_start=True).fit(X, y)
    assert len(str(raised.value)) < 400
    assert raised.value.__cause__ is raised.value.__context__ is None
    with pytest.raises(ValueError, match=r"^estimator: Locked cannot be copied") as raised:
        StructuredCV(StructuredSVM(own), [0.1, 1.0]).fit(X, y)
    assert len(str(raised.value)) < 400
    # A search does not compare models, so it does not pickle them.
    shared = StructuredSVM(Shared(own.lock), random_state=0)
    search = StructuredCV(shared, [0.1, 1.0], cv=2).fit(X, y)
    assert search.best_estimator_.predict(X) == plain.set_params(C=search.C_).fit(X, y).predict(X)
    with pytest.raises(ValueError, match=r"^loss: OwnHinge cannot be pickled"):
        MulticlassSVC(OwnHinge(), warm_start=True).fit(*CLASSES)


def test_errors_of_unsupported_estimators_name_an_alternative() -> None:
    for given, message in [
        (MulticlassSVC(), "got MulticlassSVC; use MulticlassSVCCV"),
        (PolynomialNetworkClassifierCV(), "got PolynomialNetworkClassifierCV"),
        (SequenceTagger, r"got the class SequenceTagger; write SequenceTagger\(...\)"),
        (None, "got NoneType"),
    ]:
        with pytest.raises(ValueError, match=f"^estimator: must be a StructuredSVM .*{message}"):
            StructuredCV(given).fit(*CLASSES)


def test_each_row_must_have_one_label() -> None:
    svm = StructuredSVM(MulticlassModel())
    with pytest.raises(ValueError, match=r"^[yY]: must have shape \(60,\).*\(60, 1\); give"):
        svm.fit(ROWS, LABELS[:, None])
    svm.fit(*CLASSES)
    with pytest.raises(ValueError, match=r"^[yY]: must have shape \(60,\)"):
        svm.score(ROWS, LABELS[:, None])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("combine", ["kronecker", "concatenate"])
def test_later_changes_of_class_features_do_not_change_the_model(
    combine: Any, sparse: bool
) -> None:
    features: Any = np.eye(3)
    given = sp.csr_array(features) if sparse else features
    model = ClassFeatureSVC(given, combine=combine, tol=0.01, random_state=0).fit(*CLASSES)
    expected = model.decision_function(ROWS)
    (given.data if sparse else given)[:] = -7.0
    np.testing.assert_array_equal(model.decision_function(ROWS), expected)
    model.set_params(class_features=np.zeros((3, 3)))
    np.testing.assert_array_equal(model.decision_function(ROWS), expected)


def network(**changed: Any) -> Any:
    base = PolynomialNetworkClassifierCV(
        [1.0, 10.0, 100.0], n_components=2, cv=3, max_iter=3, random_state=0, n_jobs=1
    )
    return base.set_params(**changed)


def test_scores_of_networks_must_be_finite() -> None:
    calls = []

    def nan(*_: Any) -> float:
        calls.append(1)
        return np.nan

    with pytest.raises(ValueError, match=r"^scoring: .* not finite"):
        network(scoring=nan).fit(*CLASSES)
    assert len(calls) == 1


def test_folds_with_rows_that_do_not_exist_are_rejected() -> None:
    folds = [(np.arange(30), np.arange(30, 61))]
    with pytest.raises(ValueError, match=r"^cv: a fold contains rows that do not exist"):
        network(cv=folds).fit(*CLASSES)


FOLDS: dict[str, tuple[Any, str]] = {
    "none": (0, "must be at least 2 folds, got 0"),
    "one": (np.int64(1), "must be at least 2 folds, got 1"),
    "negative": (-3, "must be at least 2 folds, got -3"),
    "truth": (True, "must be at least 2 folds, got True"),
    "fraction": (2.5, "Expected `cv` as an integer"),
    "text": ("five", "Expected `cv` as an integer"),
    "empty": ([], "must give at least one fold"),
    "triples": ([(np.arange(30), np.arange(30), 1)], "a fold must be a pair of arrays"),
    "numbers": ([7], "a fold must be a pair of arrays"),
}
FOLDED: dict[str, Any] = {
    "svc": lambda cv: MulticlassSVCCV(Cs=2, cv=cv).fit(*CLASSES),
    "logistic": lambda cv: LogisticRegressionCV(Cs=2, cv=cv).fit(*CLASSES),
    "network": lambda cv: network(cv=cv).fit(*CLASSES),
    "structured": lambda cv: StructuredCV(SequenceTagger(), Cs=2, cv=cv).fit(SENTENCES, TAGS),
}


@pytest.mark.parametrize("kind", FOLDS)
@pytest.mark.parametrize("name", FOLDED)
def test_errors_of_invalid_folds_name_cv(name: str, kind: str) -> None:
    cv, message = FOLDS[kind]
    with pytest.raises(ValueError, match=f"^cv: .*{message}"):
        FOLDED[name](cv)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_callbacks_end_searches_of_networks(n_jobs: int) -> None:
    epochs: list[Any] = []

    def stop(*epoch: float) -> bool:
        epochs.append(epoch)
        return True

    full = network().fit(*CLASSES)
    found = network(callback=stop, n_jobs=n_jobs).fit(*CLASSES)
    # Three folds of the first radius, then one epoch of the final fit.
    assert [epoch[0] for epoch in epochs] == [1, 2, 3, 1]
    assert all(np.isnan(epoch[2:]).all() for epoch in epochs[:3])
    assert found.radius_ == 1.0
    np.testing.assert_array_equal(found.cv_scores_[0], full.cv_scores_[0])
    assert np.isnan(found.cv_scores_[1:]).all()
    assert np.isfinite(full.cv_scores_).all()


@pytest.mark.parametrize("verbose", ["a", -1, 1.5, [], object()])
@pytest.mark.parametrize("name", FITS)
def test_verbose_must_be_a_non_negative_integer_or_a_boolean(name: str, verbose: Any) -> None:
    estimator, X, y = FITS[name]
    with pytest.raises(ValueError, match=r"^verbose: must be a non-negative finite integer, got"):
        clone(estimator).set_params(verbose=verbose).fit(X, y)


@pytest.mark.parametrize("seed", [2**70, 2**32, -1])
@pytest.mark.parametrize("name", FITS)
def test_seeds_out_of_range_are_rejected(name: str, seed: int) -> None:
    estimator, X, y = FITS[name]
    with pytest.raises(ValueError, match=rf"^random_state: .*2\*\*32 - 1.*got {seed}$"):
        clone(estimator).set_params(random_state=seed).fit(X, y)


@pytest.mark.parametrize("callback", [3, "x", [print]])
@pytest.mark.parametrize("name", FITS)
def test_callbacks_must_be_callable(name: str, callback: Any) -> None:
    estimator, X, y = FITS[name]
    with pytest.raises(TypeError, match=r"^callback: must be callable, got"):
        clone(estimator).set_params(callback=callback).fit(X, y)


SWITCHES = [
    (name, parameter.name)
    for name, (estimator, *_) in FITS.items()
    for parameter in fields(estimator)
    if parameter.init and parameter.type == "bool" and not name.startswith("recommender")
]


@pytest.mark.parametrize("value", ["False", 1, None])
@pytest.mark.parametrize(("name", "parameter"), SWITCHES)
def test_switches_must_be_booleans(name: str, parameter: str, value: Any) -> None:
    """Strings raise an error, because all of them, even "False", are true."""
    estimator, X, y = FITS[name]
    with pytest.raises(ValueError, match=rf"^{parameter}: must be True or False, got {value!r}"):
        clone(estimator).set_params(**{parameter: value}).fit(X, y)


WEIGHTED = [name for name, fit in FITS.items() if "class_weight" in fit[0].get_params()]


@pytest.mark.parametrize("weights", [5, "x", [1.0, 2.0], {"nowhere": 1.0}, {0: "x"}, {0: None}])
@pytest.mark.parametrize("name", WEIGHTED)
def test_errors_of_invalid_class_weights_name_the_argument(name: str, weights: Any) -> None:
    estimator, X, y = FITS[name]
    with pytest.raises((TypeError, ValueError), match="class_weight"):
        clone(estimator).set_params(class_weight=weights).fit(X, y)


LIMITED = [
    (name, parameter)
    for name, fit in FITS.items()
    for parameter in ("smoothing", "intercept_scaling")
    if parameter in fit[0].get_params()
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("name", "parameter"), LIMITED)
def test_some_parameters_must_be_at_most_1e100(name: str, parameter: str) -> None:
    estimator, X, y = FITS[name]
    model = clone(estimator).set_params(**{parameter: 1e100})
    if "max_iter" in model.get_params():
        model.set_params(max_iter=5)
    assert np.isfinite(model.fit(X, y).objective_)
    with pytest.raises(ValueError, match=rf"^{parameter}: must be at most 1e\+100"):
        model.set_params(**{parameter: 1e308}).fit(X, y)
