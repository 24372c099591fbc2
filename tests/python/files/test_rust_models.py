"""Model files written by the Rust crate can be loaded in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dualgap import LogisticRegression, MulticlassSVC
from dualgap.losses import TopK

FOLDER = Path(__file__).parents[2] / "fixtures/rust-models"
ROWS = np.array([[0.0, 1.0], [3.0, 1.0], [0.1, 4.0]])


def test_a_margin_model_has_its_loss_its_labels_and_its_certificate() -> None:
    model = MulticlassSVC.load(FOLDER / "top-k.npz")
    assert model.loss == TopK(2)
    assert (model.C, model.random_state, model.fit_intercept) == (2.0, 3, True)
    assert model.classes_.tolist() == ["left", "right", "t\u00f6p"]
    assert model.coef_.shape == (3, 2)
    scores = ROWS @ model.coef_.T + model.intercept_
    np.testing.assert_array_equal(model.predict(ROWS), model.classes_[scores.argmax(axis=1)])
    assert (model.objective_, model.dual_objective_, model.duality_gap_) == (0.75, 0.5, 0.25)
    assert model._lambda == pytest.approx(1 / 12)
    assert model.history_["seconds"].tolist() == [0.25]
    assert model.prediction_may_change(ROWS).shape == (3,)


def test_a_logistic_model_of_two_classes_has_probabilities() -> None:
    model = LogisticRegression.load(FOLDER / "logistic.npz")
    assert model.classes_.tolist() == [False, True]
    assert model.coef_.shape == (1, 2)
    assert model.n_iter_ == len(model.history_["epoch"]) == 1
    np.testing.assert_allclose(model.predict_proba(ROWS).sum(axis=1), 1.0)


def test_a_loaded_model_can_be_saved_again(tmp_path: Path) -> None:
    model = MulticlassSVC.load(FOLDER / "top-k.npz")
    model.save(tmp_path / "again.npz")
    again = MulticlassSVC.load(tmp_path / "again.npz")
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_the_model_file_that_the_crate_reads_is_written_by_python() -> None:
    model = MulticlassSVC.load(FOLDER / "python.npz")
    assert model.classes_.tolist() == ["a", "b", "\u00e9"]
    np.testing.assert_array_equal(model.coef_, [[0.5, -1.0], [2.0, 0.25], [-3.0, 1.5]])
    np.testing.assert_array_equal(model.intercept_, [0.5, 0.0, -0.5])
