"""Model files: every estimator can be saved and loaded, and no other file is accepted."""

from __future__ import annotations

import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fitted import CLASSES, FITS, LABELS, ROWS, SENTENCES, TAGS, WORDS
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold

import dualgap
from dualgap import (
    ClassFeatureLogisticRegression,
    ClassFeatureSVC,
    ConsensusCV,
    ConsensusLogisticRegression,
    LogisticRegression,
    LogisticRegressionCV,
    MulticlassSVC,
    MulticlassSVCCV,
    SequenceTagger,
    StructuredCV,
)
from dualgap._estimator import Estimator
from dualgap.losses import TopK
from dualgap.structured import ChainModel, StructuredSVM

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SAVED: dict[str, tuple[Any, Any, Any]] = {
    **FITS,
    "structured-cv": (
        StructuredCV(SequenceTagger(random_state=0), [0.1, 1.0], cv=2),
        SENTENCES,
        TAGS,
    ),
    "consensus-cv": (
        ConsensusCV(ConsensusLogisticRegression(n_partitions=2), [0.1, 1.0], cv=2),
        *CLASSES,
    ),
    "string classes": (MulticlassSVC(random_state=0), ROWS, np.array(["a", "b", "c"])[LABELS]),
    "object classes": (
        MulticlassSVC(class_weight={"a": 2.0}, random_state=0),
        ROWS,
        np.array(["a", "b", "c"])[LABELS].astype(object),
    ),
    "class weights": (MulticlassSVC(class_weight={0: 2.0}, random_state=0), *CLASSES),
    "splitter": (MulticlassSVCCV(Cs=2, cv=StratifiedKFold(2), random_state=0), *CLASSES),
    "no final logistic fit": (LogisticRegressionCV(Cs=2, cv=2, refit=False), *CLASSES),
    "no final fit": (MulticlassSVCCV(Cs=2, cv=2, refit=False, random_state=0), *CLASSES),
    "sparse features": (
        ClassFeatureSVC(sp.csr_array(np.eye(3)), combine="concatenate", random_state=0),
        *CLASSES,
    ),
    "logistic class features": (ClassFeatureLogisticRegression(np.eye(3)[:, :2]), *CLASSES),
    "logistic partitions": (
        ConsensusLogisticRegression(fit_intercept=False, n_partitions=2),
        *CLASSES,
    ),
    "transitions": (
        SequenceTagger(transitions={("D", "N"), ("N", "V")}, random_state=0),
        SENTENCES,
        TAGS,
    ),
    "raw sentences": (
        SequenceTagger(
            features=["U0:%x[0,0]", "B1:%x[0,0]"],
            transitions="bio",
            invalid="repair",
            random_state=0,
        ),
        [["the", "cat"], ["it"]] * 4,
        [["I-A", "I-A"], ["O"]] * 4,
    ),
}


def predictions_by_method(model: Any, X: Any) -> dict[str, Any]:
    """Return the results of all prediction methods of a fitted model, by name."""
    given: Any = X
    if type(model).__name__ == "OrdinalRecommender":
        if model._fitted.rating_model is None:
            return {"recommend": model.recommend(list(model.user_ids_)).to_numpy()}
        pairs = (model.user_ids_[:10], model.item_ids_[:10])
        return {"predict": model.predict(*pairs)}
    names = ("predict", "decision_function", "predict_proba", "prediction_may_change")
    if getattr(model, "refit", True) is False:
        return {}
    found = {}
    for name in names:
        if hasattr(model, name):
            try:
                found[name] = getattr(model, name)(given)
            except AttributeError:
                continue
    return found


def equal_values(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal_values(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal_values, a, b))
    if hasattr(a, "to_numpy"):
        return equal_values(a.to_numpy(), b.to_numpy())
    if sp.issparse(a):
        return equal_values(a.toarray(), b.toarray())
    if isinstance(a, BaseEstimator):
        return type(a) is type(b) and equal_values(a.get_params(), b.get_params())
    if isinstance(a, np.ndarray):
        exact = a.dtype == b.dtype and a.shape == b.shape
        return exact and all(map(equal_values, a.ravel().tolist(), np.ravel(b).tolist()))
    return bool(a == b or (a != a and b != b))


@pytest.mark.parametrize("name", SAVED)
def test_a_loaded_estimator_equals_the_saved_estimator(name: str, tmp_path: Path) -> None:
    estimator, X, y = SAVED[name]
    model = clone(estimator).fit(X, y)
    model.save(tmp_path / "model.npz")
    loaded = type(model).load(tmp_path / "model.npz")
    expected, found = predictions_by_method(model, X), predictions_by_method(loaded, X)
    assert expected.keys() == found.keys()
    assert all(equal_values(expected[key], found[key]) for key in expected)
    if name != "splitter":
        assert equal_values(model.get_params(), loaded.get_params())
    public = [each for each in vars(model) if each.endswith("_") and not each.startswith("_")]
    assert public
    for attribute in public:
        assert equal_values(getattr(model, attribute), getattr(loaded, attribute)), attribute
    # The loaded estimator can be saved and fitted again.
    loaded.save(tmp_path / "again.npz")
    assert equal_values(
        predictions_by_method(type(model).load(tmp_path / "again.npz"), X), expected
    )
    clone(loaded).fit(X, y)


def test_every_public_estimator_has_a_test_of_saving() -> None:
    public = {getattr(dualgap, name) for name in dualgap.__all__}
    estimators = {each for each in public if inspect.isclass(each) and hasattr(each, "fit")}
    assert len(estimators) >= 13
    assert all(issubclass(each, Estimator) for each in estimators)
    assert {type(estimator) for estimator, *_ in SAVED.values()} == estimators


@pytest.mark.parametrize("name", SAVED)
def test_saving_an_unfitted_estimator_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        clone(SAVED[name][0]).save(tmp_path / "model.npz")
    assert not (tmp_path / "model.npz").exists()


class OwnHinge:
    """The max hinge, written in Python."""

    def support(self, margins: Any, label: int) -> float:
        return max(0.0, float(margins.max()))

    def vertex(self, margins: Any, label: int) -> Any:
        point = np.zeros(len(margins))
        if margins.max() > 0.0:
            point[margins.argmax()] = 1.0
        return point


class OwnChain(ChainModel):  # type: ignore[misc]
    """A custom model, which a file cannot describe."""


class OwnTopK(TopK):
    """A subclass of a loss, which a file cannot describe."""


@pytest.mark.parametrize(
    ("estimator", "data", "message"),
    [
        (MulticlassSVC(OwnHinge()), CLASSES, "save: loss: an object of the class OwnHinge"),
        (MulticlassSVC(OwnTopK(2)), CLASSES, "save: loss: an object of the class OwnTopK"),
        (
            ClassFeatureSVC(lambda X, _: np.repeat(X, 3, axis=0)),
            CLASSES,
            "save: class_features: an object of the class function",
        ),
        (
            StructuredSVM(OwnChain()),
            (WORDS, [word.argmax(axis=1) for word in WORDS]),
            "save: model: an object of the class OwnChain",
        ),
    ],
)
def test_saving_user_code_is_an_error(
    estimator: Any, data: Any, message: str, tmp_path: Path
) -> None:
    model = clone(estimator).set_params(max_iter=3).fit(*data)
    with pytest.raises(TypeError, match=rf"^{message} .*pickle"):
        model.save(tmp_path / "model.npz")
    assert not (tmp_path / "model.npz").exists()


def change_file(path: Path, change: Any) -> None:
    """Change the arrays and the description of a file in place."""
    with np.load(path) as file:
        arrays = dict(file)
    meta = json.loads(arrays["meta"].tobytes())
    change(arrays, meta)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


CHANGES: dict[str, Any] = {
    "format": lambda arrays, meta: meta.update(format="dualgap model 99"),
    "class": lambda arrays, meta: meta.update(kind="SequenceTagger"),
    "no parameters": lambda arrays, meta: meta.update(parameters={}),
    "strange parameter": lambda arrays, meta: meta["parameters"].update(strange=1),
    "bad parameter": lambda arrays, meta: meta["parameters"].update(C=-1.0),
    "unknown loss": lambda arrays, meta: meta["parameters"].update(
        loss={"$object": ["Loss", [["name", "nothing"]]]}
    ),
    "loss of another type": lambda arrays, meta: meta["parameters"].update(loss=[]),
    "unknown object": lambda arrays, meta: meta["parameters"].update(
        loss={"$object": ["Popen", [["args", "true"]]]}
    ),
    "estimator for a loss": lambda arrays, meta: meta["parameters"].update(
        loss={"$estimator": {"kind": "Chunks", "parameters": {}, "fitted": {}}}
    ),
    "nothing fitted": lambda arrays, meta: meta.update(fitted={}),
    "strange attribute": lambda arrays, meta: meta["fitted"].update(predict=1),
    "weights missing": lambda arrays, meta: arrays.update(coef_=None),
    "weights of another shape": lambda arrays, meta: arrays.update(coef_=ROWS),
    "weights of another type": lambda arrays, meta: arrays.update(
        coef_=arrays["coef_"].astype(np.float32)
    ),
    "weights not finite": lambda arrays, meta: arrays.update(
        coef_=np.where(arrays["coef_"] > 0, np.nan, arrays["coef_"])
    ),
    "classes not sorted": lambda arrays, meta: arrays.update(classes_=np.array([2, 1, 0])),
    "a class twice": lambda arrays, meta: arrays.update(classes_=np.array([0, 1, 1])),
    "no gap": lambda arrays, meta: meta["fitted"].update(duality_gap_=float("nan")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_model_files_with_invalid_contents_are_rejected(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    MulticlassSVC(random_state=0).fit(*CLASSES).save(path)
    change_file(path, lambda arrays, meta: None)
    MulticlassSVC.load(path)
    change_file(path, CHANGES[name])
    with pytest.raises(ValueError, match=r"model\.npz: not a saved MulticlassSVC"):
        MulticlassSVC.load(path)


def test_loading_a_pickle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(pickle.dumps(MulticlassSVC()))
    with pytest.raises(ValueError, match=r"not a saved MulticlassSVC \(not an npz file\)$"):
        MulticlassSVC.load(path)
    with pytest.raises(FileNotFoundError):
        MulticlassSVC.load(tmp_path / "missing")


def test_a_loaded_model_reports_the_same_uncertain_predictions(tmp_path: Path) -> None:
    model = MulticlassSVC(tol=1e-6, random_state=0).fit(*CLASSES)
    model.save(tmp_path / "model.npz")
    loaded = MulticlassSVC.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(
        loaded.prediction_may_change(ROWS), model.prediction_may_change(ROWS)
    )
    assert not model.prediction_may_change(ROWS).all()


def test_a_loaded_logistic_regression_reports_the_same_uncertain_predictions(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.npz"
    model = LogisticRegression(tol=1e-8).fit(*CLASSES)
    model.save(path)
    expected = model.prediction_may_change(ROWS)
    assert not expected.all()
    loaded = LogisticRegression.load(path)
    np.testing.assert_array_equal(loaded.prediction_may_change(ROWS), expected)
    # A file of an earlier version.
    change_file(path, lambda arrays, meta: meta["fitted"].pop("_curvature"))
    loaded = LogisticRegression.load(path)
    with pytest.raises(
        ValueError, match=r"^prediction_may_change: the model does not have the cur"
    ):
        loaded.prediction_may_change(ROWS)


@pytest.mark.parametrize("part", ["matrix", "centre"])
def test_curvatures_that_do_not_fit_the_model_are_rejected(part: str, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    LogisticRegression().fit(*CLASSES).save(path)
    name = f"_curvature.{part}"
    for change in (lambda array: array[:1], lambda array: np.nan * array):
        changed = tmp_path / "changed.npz"
        changed.write_bytes(path.read_bytes())
        change_file(changed, lambda arrays, meta, f=change: arrays.update({name: f(arrays[name])}))
        with pytest.raises(ValueError, match="not a saved LogisticRegression"):
            LogisticRegression.load(changed)
