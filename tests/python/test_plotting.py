"""Plots of convergence and of cross-validation scores."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dualgap import MulticlassSVC, MulticlassSVCCV

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

from matplotlib import pyplot as plt  # noqa: E402

from dualgap.plotting import ConvergenceDisplay, CrossValidationDisplay  # noqa: E402


@pytest.fixture
def models() -> Any:
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield [
            MulticlassSVC(solver=solver, max_iter=10, random_state=0, n_jobs=1).fit(X, y)
            for solver in ("frank-wolfe", "subgradient")
        ]
    plt.close("all")


def test_the_plot_of_one_model_has_its_history(models: Any) -> None:
    display = ConvergenceDisplay.from_estimator(models[0], against="epoch")
    gap, objectives = display.axes_
    history = models[0].history_
    assert gap.get_yscale() == "log"
    assert np.array_equal(gap.lines[0].get_xdata(), history["epoch"])
    assert np.array_equal(gap.lines[0].get_ydata(), history["gap"])
    assert np.array_equal(objectives.lines[0].get_ydata(), history["objective"])
    assert np.array_equal(objectives.lines[1].get_ydata(), history["dual_objective"])
    assert display.figure_ is gap.figure


def test_two_models_can_be_drawn_in_given_axes(models: Any) -> None:
    axis = plt.figure().subplots()
    display = ConvergenceDisplay.from_estimators(
        models, labels=["a", "b"], quantities=["gap"], axes=axis
    )
    assert display.axes_.tolist() == [axis]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a", "b"]
    assert np.array_equal(axis.lines[1].get_xdata(), models[1].history_["seconds"])


def test_epochs_without_a_gap_are_not_drawn(models: Any) -> None:
    history = dict(models[0].history_)
    history["gap"] = history["gap"].astype(float)
    history["gap"][3] = np.nan
    display = ConvergenceDisplay({"a": history}).plot(quantities=["gap"])
    assert len(display.axes_[0].lines[0].get_xdata()) == 9


def test_errors_name_the_bad_argument_of_a_plot(models: Any) -> None:
    with pytest.raises(ValueError, match="quantities: "):
        ConvergenceDisplay.from_estimator(models[0], quantities=["loss"])
    with pytest.raises(ValueError, match="against: "):
        ConvergenceDisplay.from_estimator(models[0], against="time")
    with pytest.raises(ValueError, match="labels: "):
        ConvergenceDisplay.from_estimators(models, labels=["a", "a"])
    with pytest.raises(ValueError, match="axes: "):
        ConvergenceDisplay.from_estimator(models[0], axes=plt.figure().subplots())
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimator(MulticlassSVC())


def test_scores_over_c_are_drawn_with_their_bounds() -> None:
    X, y = load_iris(return_X_y=True)
    search = MulticlassSVCCV(Cs=[0.01, 0.1, 1.0], random_state=0, refit=False).fit(X, y)
    display = CrossValidationDisplay.from_estimator(search)
    line = display.axis_.lines[0]
    np.testing.assert_array_equal(line.get_xdata(), search.Cs_)
    np.testing.assert_array_equal(line.get_ydata(), search.mean_score_)
    (band,) = [found for found in display.axis_.collections if found.get_label() != "_nolegend_"][
        :1
    ]
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() <= search.mean_score_.min()
    assert heights.max() >= search.mean_score_.max()
    axis = plt.subplots()[1]
    assert CrossValidationDisplay.from_estimator(search, axis=axis).axis_ is axis
    with pytest.raises(NotFittedError):
        CrossValidationDisplay.from_estimator(MulticlassSVCCV())
    plt.close("all")
