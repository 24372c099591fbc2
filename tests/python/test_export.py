"""Interoperability: files of skops, ONNX graphs, calibrated classifiers, DataFrames."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fitted import FITS, LABELS, RATINGS, ROWS, TARGETS
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss

import dualgap
from dualgap.export import to_onnx
from dualgap.recommend import OrdinalRecommender
from dualgap.structured import MulticlassModel, StructuredSVM

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Types that skops must be asked to trust, listed in `docs/scikit-learn.md`.
TRUSTED = (
    "dualgap.distributed.svm.",
    "dualgap.logistic.",
    "dualgap.losses.",
    "dualgap.multiclass.",
    "dualgap.polynomial.",
    "dualgap.recommend.",
    "dualgap.sequence.",
    "dualgap.structured.",
)


def all_predictions(model: Any, X: Any) -> list[Any]:
    if isinstance(model, OrdinalRecommender):
        return list(model.predict(RATINGS["user"], RATINGS["item"]))
    return list(model.predict(X))


@pytest.mark.parametrize("name", FITS)
def test_models_are_saved_and_loaded_by_skops(name: str, tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io")
    estimator, X, y = FITS[name]
    model = clone(estimator).fit(X, y)
    skops.dump(model, tmp_path / "model.skops")
    unknown = skops.get_untrusted_types(file=tmp_path / "model.skops")
    assert all(kind.startswith(TRUSTED) for kind in unknown)
    loaded = skops.load(tmp_path / "model.skops", trusted=unknown)
    for ours, theirs in zip(all_predictions(model, X), all_predictions(loaded, X), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.objective_ == model.objective_
    assert loaded.certificate_ == model.certificate_
    with pytest.raises(skops.exceptions.UntrustedTypesFoundException):
        skops.load(tmp_path / "model.skops")


@pytest.mark.parametrize("as_text", [False, True])
def test_a_pickled_recommender_knows_its_ids(as_text: bool) -> None:
    ratings = RATINGS.astype({"user": str, "item": str}) if as_text else RATINGS
    model = clone(FITS["recommender"][0]).fit(ratings)
    loaded = pickle.loads(pickle.dumps(model))
    assert loaded.user_ids_.equals(model.user_ids_)
    assert loaded.item_ids_.dtype == model.item_ids_.dtype
    pickle.loads(pickle.dumps(clone(model)))


def run(model: Any, X: Any, dtype: Any = np.float32) -> dict[str, Any]:
    runtime = pytest.importorskip("onnxruntime")
    graph = to_onnx(model, dtype=dtype).SerializeToString()
    session = runtime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X.astype(dtype)}), strict=True))


CLASSIFIERS = [
    dualgap.MulticlassSVC(random_state=0),
    dualgap.MulticlassSVC(fit_intercept=False, random_state=0),
    dualgap.LogisticRegression(),
    dualgap.LogisticRegressionCV(Cs=[0.1, 1.0], cv=2, random_state=0),
    dualgap.MulticlassSVCCV(Cs=[0.1, 1.0], cv=2, random_state=0),
    dualgap.PolynomialNetworkClassifier(4, random_state=0),
    dualgap.PolynomialNetworkClassifier(4, linear="augment", random_state=0),
    dualgap.PolynomialNetworkClassifier(4, linear=None, random_state=0),
    dualgap.PolynomialNetworkClassifier(4, loss="binary-logistic", random_state=0),
    dualgap.PolynomialNetworkClassifier(4, loss="smoothed-hinge", random_state=0),
    dualgap.PolynomialNetworkClassifier(4, radius=1e-9, random_state=0),
    dualgap.FactorizationMachineClassifier(4, random_state=0),
    dualgap.FactorizationMachineClassifier(4, linear="augment", random_state=0),
    dualgap.PolynomialNetworkClassifierCV([1.0, 10.0], n_components=3, cv=2, random_state=0),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=repr)
def test_onnx_graphs_of_classifiers_predict_the_same(model: Any, dtype: Any) -> None:
    pytest.importorskip("onnx")
    X = ROWS.astype(np.float32)
    for names in (np.array(["a", "b", "c"]), np.array([7, 3, 5]), np.array([True, False, True])):
        fitted = clone(model).fit(X, names[LABELS])
        found = run(fitted, X, dtype)
        scores = fitted._scores(X)
        size = 1.0 + np.abs(scores).max()
        np.testing.assert_allclose(found["scores"], scores, atol=1e-5 * size)
        best = np.sort(scores, axis=1)
        clear = best[:, -1] - best[:, -2] > 1e-4 * size
        assert clear.mean() > 0.9
        np.testing.assert_array_equal(found["label"][clear], fitted.predict(X)[clear])
        if getattr(fitted, "loss", "logistic") in ("logistic", "binary-logistic"):
            shares = fitted.predict_proba(X)
            np.testing.assert_allclose(found["probabilities"], shares, atol=1e-5)
        else:
            assert "probabilities" not in found


@pytest.mark.parametrize(
    "model",
    [
        dualgap.PolynomialNetworkRegressor(3, random_state=0),
        dualgap.FactorizationMachineRegressor(3, linear="augment", random_state=0),
    ],
    ids=repr,
)
def test_onnx_graphs_of_regressors_predict_the_same(model: Any) -> None:
    pytest.importorskip("onnx")
    X = ROWS.astype(np.float32)
    for y in (TARGETS, np.stack([TARGETS, -2.0 * TARGETS, X[:, 0]], axis=1)):
        fitted = clone(model).fit(X, y)
        found = run(fitted, X)["predictions"]
        np.testing.assert_allclose(found, fitted.predict(X).reshape(found.shape), atol=1e-4)


def test_onnx_rejects_unsupported_models_and_labels() -> None:
    pytest.importorskip("onnx")
    model = dualgap.MulticlassSVC(random_state=0).fit(ROWS, LABELS)
    with pytest.raises(ValueError, match="dtype: must be float32 or float64"):
        to_onnx(model, dtype=np.float16)
    with pytest.raises(TypeError, match="exported to ONNX, got StructuredSVM"):
        to_onnx(StructuredSVM(MulticlassModel()))  # type: ignore[arg-type]
    halves = dualgap.MulticlassSVC(random_state=0).fit(ROWS, np.array([1.0, 2.0, 3.0])[LABELS])
    halves.classes_ = halves.classes_ + 0.5
    with pytest.raises(TypeError, match="integers or strings, got float64"):
        to_onnx(halves)


def test_calibrated_probabilities_beat_class_frequencies() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 3))
    y = np.array([rng.choice(3, p=p / p.sum()) for p in np.exp(2.0 * X)])
    svm = dualgap.MulticlassSVC(random_state=0)
    for method in ("sigmoid", "temperature"):
        model = CalibratedClassifierCV(svm, method=method, cv=3)
        shares = model.fit(X[:400], y[:400]).predict_proba(X[400:])
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        # The log loss is lower than if the class frequencies were predicted.
        assert log_loss(y[400:], shares) < 0.8 * log_loss(y[400:], [np.bincount(y) / 600] * 200)


def test_a_pipeline_returns_a_dataframe() -> None:
    pandas = pytest.importorskip("pandas")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = pandas.DataFrame(ROWS, columns=list("abcd"))
    pipeline = make_pipeline(StandardScaler(), dualgap.MulticlassSVC(random_state=0))
    pipeline.set_output(transform="pandas").fit(table, LABELS)
    assert list(pipeline[-1].feature_names_in_) == list("abcd")
    # Classifiers and regressors predict arrays, as in scikit-learn.
    assert isinstance(pipeline.predict(table), np.ndarray)


@pytest.mark.parametrize(
    "model",
    [
        dualgap.MulticlassSVC(),
        dualgap.PolynomialNetworkClassifier(2),
        dualgap.PolynomialNetworkRegressor(2),
        dualgap.MulticlassSVCCV(Cs=2),
        StructuredSVM(MulticlassModel()),
    ],
    ids=repr,
)
def test_sparse_labels_and_unsupported_chunks_are_errors(model: Any) -> None:
    with pytest.raises(
        TypeError, match=r"[yY]: sparse labels are not supported; pass [yY].toarray\(\)"
    ):
        model.fit(ROWS, sp.csr_array(LABELS.reshape(-1, 1)))
    chunks = dualgap.Chunks([ROWS[:30], ROWS[30:]])
    if "Polynomial" in repr(model):
        model.fit(chunks, LABELS)
        np.testing.assert_array_equal(model.predict(chunks), model.predict(ROWS))
        assert model.score(chunks, LABELS) == model.score(ROWS, LABELS)
    else:
        with pytest.raises(
            (TypeError, ValueError), match=r"X: (Chunks are supported only by|must be a)"
        ):
            model.fit(chunks, LABELS)
