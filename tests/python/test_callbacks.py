"""scikit-learn's callbacks (1.9) on every estimator."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from fitted import CLASSES, FITS, LABELS, ROWS, SOLVERS
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from dualgap import (
    ClassFeatureSVC,
    LogisticRegression,
    MulticlassSVC,
    PolynomialNetworkClassifier,
    StructuredSVM,
    _core,
)
from dualgap.sequence import SequenceTagger
from dualgap.structured import ChainModel

callback = pytest.importorskip("sklearn.callback")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Recorder:
    """Records its arguments, and stops a fit after some epochs."""

    def __init__(self, stop_after: int = 10**9) -> None:
        self.events: list[str] = []
        self.stop_after = stop_after

    def setup(self, estimator: Any, context: Any) -> None:
        self.events.append("setup")

    def teardown(self, estimator: Any, context: Any) -> None:
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        self.events.append(f"end {context.task_name}")
        return self.epochs >= self.stop_after

    @property
    def epochs(self) -> int:
        return sum(event in ("end epoch", "end fit") for event in self.events)


class Models:
    """Stores the models that it receives."""

    def __init__(self) -> None:
        self.models: list[Any] = []

    def setup(self, estimator: Any, context: Any) -> None:
        pass

    teardown = on_fit_task_begin = setup

    def on_fit_task_end(self, estimator: Any, context: Any, *, fitted_estimator: Any) -> None:
        self.models.append(fitted_estimator)


class FilterRecorder(PolynomialNetworkClassifier):
    """Records the warning filters whenever a fit is stored."""

    filters: ClassVar[list[Any]] = []

    def _store_run(self, result: Any, X: Any = None) -> None:
        self.filters.append(list(warnings.filters))
        super()._store_run(result, X)


def test_models_of_epochs_do_not_warn_or_change_the_filters() -> None:
    # Warning filters are global: changing them would suppress warnings of other threads.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before, models = list(warnings.filters), Models()
        FilterRecorder(3, max_iter=3, random_state=0).set_callbacks(models).fit(ROWS, LABELS)
    assert len(FilterRecorder.filters) == len(models.models) == 4
    assert all(filters == before for filters in FilterRecorder.filters)
    assert [warning.category for warning in caught] == [ConvergenceWarning]
    assert not any("_quiet" in vars(model) for model in models.models)


@pytest.mark.parametrize("name", FITS)
def test_every_estimator_reports_its_tasks(name: str) -> None:
    estimator, X, y = FITS[name]
    recorder = Recorder()
    model = clone(estimator).set_callbacks(recorder).fit(X, y)
    assert recorder.events[:2] == ["setup", "begin fit"]
    assert recorder.events[-2:] == ["end fit", "teardown"]
    inner = recorder.events[2:-2]
    assert inner[::2] == [event.replace("end", "begin") for event in inner[1::2]]
    # A search calls back after each fit, but has only the history of the last fit.
    assert name.endswith("-cv") or len(inner) == 2 * model.n_iter_


@pytest.mark.parametrize("name", FITS)
def test_the_progress_bar_of_scikit_learn_works(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    estimator, X, y = FITS[name]
    clone(estimator).set_callbacks(callback.ProgressBar()).fit(X, y)
    assert f"{type(estimator).__name__} - fit" in capsys.readouterr().out


# A monitor scores the rows of the fit, and recommenders warn about it.
@pytest.mark.filterwarnings("ignore:test. .* relevant pairs were in the ratings of the fit")
@pytest.mark.parametrize("name", FITS)
def test_the_scoring_monitor_works(name: str) -> None:
    estimator, X, y = FITS[name]
    own = {"score": lambda fitted, X, y: fitted.score(X, y)}
    monitor = callback.ScoringMonitor(scoring=own)
    model = clone(estimator).set_callbacks(monitor).fit(X, y)
    data = monitor.get_logs().data
    last = next(row for row in data if row["task_name"] == "fit" and row["task_id_path"] == (0,))
    assert last["score"] == pytest.approx(model.score(X, X if y is None else y))
    if not name.endswith("-cv") and name not in ("consensus",) and "recommender" not in name:
        scores = [row["score"] for row in data if row["task_name"] == "epoch"]
        assert len(scores) == model.n_iter_
        assert scores[-1] == last["score"]


SHOWN = {
    **{name: (MulticlassSVC(solver=name), *CLASSES) for name in SOLVERS},
    **{f"classes, {name}": (ClassFeatureSVC(np.eye(3)[:, :2], solver=name), *CLASSES)
       for name in ("block-descent", "block-frank-wolfe")},
    **{name: FITS[name] for name in ("pn", "fm-regressor", "chain", "multilabel", "tagger")},
    "linear": (PolynomialNetworkClassifier(3, linear="explicit", alpha=0.1), *CLASSES),
    "extragradient": (
        clone(FITS["chain"][0]).set_params(solver="extragradient"),
        *FITS["chain"][1:],
    ),
}  # fmt: skip
CORES = [
    "fit_multiclass",
    "fit_class_features",
    "fit_polynomial",
    "fit_structured",
    "fit_sequences",
]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the arguments of each call of the core."""
    calls: list[Any] = []
    for core in CORES:
        fit = getattr(_core, core)
        monkeypatch.setattr(
            _core, core, lambda *given, fit=fit: (calls.append(given), fit(*given))[1]
        )
    return calls


def attributes(model: Any) -> set[str]:
    return {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}


def assert_same_model(model: Any, other: Any) -> None:
    for name in ("coef_", "intercept_", "components_", "output_"):
        np.testing.assert_array_equal(getattr(model, name, 0.0), getattr(other, name, 0.0))


@pytest.mark.parametrize("name", SHOWN)
def test_the_model_of_an_epoch_equals_the_model_of_a_shorter_fit(
    name: str, calls: list[Any]
) -> None:
    estimator, X, y = SHOWN[name]
    estimator = clone(estimator).set_params(tol=1e-6, max_iter=5, random_state=3)
    models = Models()
    fitted = clone(estimator).set_callbacks(models).fit(X, y)
    # If the core already has the model of an epoch, the callback gets it without an extra fit.
    assert len(calls) == 1
    assert len(models.models) == fitted.n_iter_ + 1 > 2
    for epoch, model in enumerate(models.models[:-1], 1):
        shorter = clone(estimator).set_params(max_iter=epoch).fit(X, y)
        assert attributes(model) == attributes(shorter)
        assert getattr(model, "oracle_calls_", None) is None
        # NaN marks values that the fit did not evaluate.
        for value in ("objective", "dual_objective"):
            certified = np.isfinite(fitted.history_[value][epoch - 1])
            expected = getattr(shorter, f"{value}_") if certified else np.nan
            np.testing.assert_equal(getattr(model, f"{value}_"), expected)
        assert model.history_.keys() == shorter.history_.keys()
        for column in model.history_.keys() - {"seconds"}:
            np.testing.assert_array_equal(model.history_[column], fitted.history_[column][:epoch])
        assert model.n_iter_ == shorter.n_iter_
        assert model.certificate_ == shorter.certificate_
        # A fit that ends at an epoch without a certificate evaluates that epoch, and may return
        # another model.
        if certified:
            assert_same_model(model, shorter)
            np.testing.assert_equal(model.predict(X), shorter.predict(X))
    assert models.models[-1].objective_ == fitted.objective_


def chains_of_scales() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    words = [(np.arange(5) + rng.integers(6)) % 4 for _ in range(40)]
    means = rng.normal(size=(4, 6))
    rows = [means[word] + 0.6 * rng.normal(size=(5, 6)) for word in words]
    return [row * np.logspace(-3, 5, 6) for row in rows], words


def indicators() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    columns = rng.integers(8, size=(2000, 5)) + 8 * np.arange(5)
    X = sp.csr_array((np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 5)))
    scores = X @ rng.normal(size=(40, 3)) + rng.gumbel(size=(2000, 3))
    return X, scores.argmax(axis=1)


IRIS = load_iris(return_X_y=True)
STALLING = {
    "multiclass": (MulticlassSVC(tol=1e-6), 20.0 + IRIS[0], IRIS[1]),
    "class features": (ClassFeatureSVC(np.eye(3), tol=1e-5, max_iter=60), *IRIS),
    "logistic": (LogisticRegression(C=10.0), *indicators()),
    "structured": (StructuredSVM(ChainModel(), tol=1e-4, max_iter=60), *chains_of_scales()),
    "tagger": (SequenceTagger("hamming", C=1.0, tol=1e-4, max_iter=60), *chains_of_scales()),
}


@pytest.mark.parametrize("name", STALLING)
def test_the_models_of_epochs_name_their_solvers(name: str) -> None:
    estimator, X, y = STALLING[name]
    models = Models()
    fitted = clone(estimator).set_params(random_state=0).set_callbacks(models).fit(X, y)
    solvers = list(fitted.history_["solver"])
    first = solvers[0]
    n_first = solvers.count(first)
    assert first in ("block-descent", "block-frank-wolfe", "dual-descent")
    assert solvers == [first] * n_first + ["newton"] * (fitted.n_iter_ - n_first)
    assert n_first < fitted.n_iter_
    for model in models.models:
        assert list(model.history_["solver"]) == solvers[: model.n_iter_]


def test_epochs_of_block_descent_at_smaller_c_need_separate_fits(calls: list[Any]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(320, 4))
    y = np.digitize(X[:, 0] + rng.normal(scale=0.5, size=320), [-0.4, 0.4])
    estimator = MulticlassSVC(C=300.0, solver="block-descent", tol=1e-3, random_state=0)
    models = Models()
    fitted = clone(estimator).set_callbacks(models).fit(X, y)
    objectives = fitted.history_["objective"]
    n_before = int(np.isnan(objectives).sum())
    assert 0 < n_before < fitted.n_iter_
    assert np.isfinite(objectives[n_before:]).all()
    # Each of these epochs needs a separate fit, which may take other steps.
    assert len(calls) == 1 + n_before
    for epoch, model in enumerate(models.models[:n_before], 1):
        assert_same_model(model, clone(estimator).set_params(max_iter=epoch).fit(X, y))
        assert np.isfinite(model.objective_)
        # The accuracy is better than chance.
        assert model.score(X, y) > 0.4
    for model, objective in zip(models.models[n_before:], objectives[n_before:], strict=False):
        assert model.objective_ == objective


def test_callbacks_that_read_models_do_not_change_the_fit() -> None:
    model = MulticlassSVC(random_state=0)
    plain, watched = model.fit(ROWS, LABELS), clone(model).set_callbacks(Models())
    told: list[Any] = []
    watched.set_params(callback=lambda *epoch: told.append(epoch)).fit(ROWS, LABELS)
    np.testing.assert_array_equal(plain.coef_, watched.coef_)
    assert {len(epoch) for epoch in told} == {4}


def test_an_object_with_any_attribute_is_called_with_four_numbers() -> None:
    told = mock.Mock(return_value=False)
    MulticlassSVC(callback=told, random_state=0).set_callbacks(Models()).fit(ROWS, LABELS)
    assert {len(call.args) for call in told.call_args_list} == {4}


SOLVED_AGAIN = {
    "validation": (PolynomialNetworkClassifier(3, validation_fraction=0.3), *CLASSES),
    "averages": (clone(FITS["chain"][0]).set_params(averaging=True), *FITS["chain"][1:]),
}


@pytest.mark.parametrize("name", SOLVED_AGAIN)
def test_a_model_of_an_epoch_that_is_not_available_comes_from_a_second_fit(name: str) -> None:
    estimator, X, y = SOLVED_AGAIN[name]
    estimator = clone(estimator).set_params(tol=1e-6, max_iter=4, random_state=0)
    models = Models()
    fitted = clone(estimator).set_callbacks(models).fit(X, y)
    for epoch, model in enumerate(models.models, 1):
        # The list has one model for each epoch, and then the model that the fit returned, which is
        # the model of the last epoch.
        shorter = clone(estimator).set_params(max_iter=min(epoch, fitted.n_iter_)).fit(X, y)
        np.testing.assert_array_equal(model.coef_, shorter.coef_)
        np.testing.assert_array_equal(getattr(model, "output_", 0), getattr(shorter, "output_", 0))
    assert len(models.models) == fitted.n_iter_ + 1


@pytest.mark.parametrize("name", ["svc", "pn", "chain", "tagger", "consensus", "recommender"])
def test_a_callback_can_end_a_fit(name: str) -> None:
    estimator, X, y = FITS[name]
    tight = {"tol": 1e-9} if hasattr(estimator, "tol") else {}
    recorder = Recorder(stop_after=2)
    model = clone(estimator).set_params(**tight).set_callbacks(recorder).fit(X, y)
    assert model.n_iter_ == 2


def test_a_search_passes_its_callbacks_to_its_fits() -> None:
    recorder = Recorder()
    search = GridSearchCV(MulticlassSVC(random_state=0), {"C": [0.1, 1.0]}, cv=2)
    bar = callback.ProgressBar(max_propagation_depth=None)
    search.set_callbacks(bar, recorder).fit(ROWS, LABELS)
    assert recorder.events[0] == "setup"
    assert recorder.events[-1] == "teardown"


def test_callbacks_are_ended_if_the_fit_fails() -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    recorder = Recorder()
    model = PolynomialNetworkClassifier(3, callback=fail).set_callbacks(recorder)
    with pytest.raises(ZeroDivisionError):
        model.fit(ROWS, LABELS)
    assert recorder.events[-1] == "teardown"
    assert "end fit" not in recorder.events
    assert not hasattr(model, "_callback_fit_ctx")
