"""Defaults by loss, the choice of C on held-out sentences, and the first passes of a fit."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import sentences

from dualgap.sequence import SequenceTagger
from dualgap.sequence.metrics import label_score


@pytest.mark.parametrize(
    ("loss", "scaled", "pairs"), [("hamming", 3.0, "all"), ("logistic", 20.0, "seen")]
)
def test_defaults_depend_on_the_loss_and_on_the_features(
    loss: Any, scaled: float, pairs: Any, tmp_path: Path
) -> None:
    X, y = sentences(60)
    C = scaled / float(np.mean([len(token) for x in X for token in x]))
    default = SequenceTagger(loss, random_state=0).fit(X, y)
    assert (default.C, default.C_, default.validation_curve_) == (None, C, None)
    # With "logistic", the default rule can end a fit before the gap does.
    stop = {"tol": 0.2} if loss == "hamming" else {"tol": 0.0, "max_iter": default.n_iter_}
    same = SequenceTagger(loss, C=C, pairs=pairs, random_state=0, **stop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same.fit(X, y)
    # With tol=0.0 the weights are not rounded to single precision.
    assert same.objective_ == pytest.approx(default.objective_, rel=1e-5)
    default.save(tmp_path / "model.npz")
    assert SequenceTagger.load(tmp_path / "model.npz").C_ == C


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_default_c_counts_features_and_sample_weights(pairs: Any) -> None:
    rows = np.array([[1.0, -1.0], [0.0, 1.0], [0.5, 0.0], [0.0, 0.0], [7.0, 1.0]])
    labels, lengths = ["a", "b", "a", "b", "a"], [2, 2, 1]

    def default(rows: Any, weights: Any = None) -> float:
        model = SequenceTagger(pairs=pairs, random_state=0)
        return model.fit(rows, labels, weights, lengths=lengths).C_

    assert default(rows) == pytest.approx(3.0 / (5.25 / 5), rel=1e-12)
    assert default(np.tile(rows, 10)) == 0.3
    assert default(1e20 * rows) == pytest.approx(3.0 / (6 / 5), rel=1e-12)
    assert default(2.0 * rows, [3.0, 1.0, 0.0]) == pytest.approx(3.0 / (10 / 8), rel=1e-12)
    assert default(0.0 * rows) == default(1e-170 * rows) == default(1e-3 * rows) == 3.0


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
def test_default_c_suits_words_as_the_only_features(loss: Any) -> None:
    # Sentences of a hidden Markov model with 10 labels and many rare words.
    rng = np.random.default_rng(1)
    moves = rng.dirichlet(np.full(10, 0.3), 10).cumsum(axis=1)
    words = rng.dirichlet(np.full(2000, 0.02), 10).cumsum(axis=1)
    X, y = [], []
    for _ in range(900):
        label, labels, sentence = int(rng.integers(10)), [], []
        for move, word in rng.random((15, 2)):
            label = min(int(np.searchsorted(moves[label], move)), 9)
            labels.append(str(label))
            sentence.append([f"w={np.searchsorted(words[label], word)}"])
        X.append(sentence)
        y.append(labels)

    def score(C: Any) -> float:
        model = SequenceTagger(loss, C=C, random_state=0).fit(X[:500], y[:500])
        return model.score(X[500:], y[500:])

    # With the fixed C of a past version, the weights of rare words were too small.
    assert score(None) > score({"hamming": 0.3, "logistic": 3.0}[loss]) + 0.005


def test_logistic_fits_of_few_sentences_make_many_passes() -> None:
    X, y = sentences(490, noise=0.2)
    model = SequenceTagger("logistic", C=1e3, random_state=0).fit(X[:190], y[:190])
    # L-BFGS from 0 makes little progress in its first passes, so a past version stopped there.
    assert model.n_iter_ >= 30 or model.converged_
    assert model.score(X[190:], y[190:]) > 0.8
    # Sentences with zero weight do not count.
    weights = np.repeat([1.0, 0.0], [190, 300])
    assert model.fit(X, y, weights).n_iter_ >= 30 or model.converged_


def test_logistic_fits_end_when_the_objective_stops_falling() -> None:
    X, y = sentences(300, noise=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SequenceTagger("logistic", C=1e3, random_state=0).fit(X, y)
    objectives = model.history_["objective"]
    assert not model.converged_
    assert 5 < model.n_iter_ < model.max_iter
    assert objectives[-6] - objectives[-1] <= 0.025 * objectives[-1]
    assert objectives[-7] - objectives[-2] > 0.025 * objectives[-2]
    # A user's callback is also called, and may end the fit earlier.
    short = SequenceTagger("logistic", C=1e3, random_state=0, callback=lambda *epoch: epoch[0] == 3)
    assert short.fit(X, y).n_iter_ == 3


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
def test_validation_chooses_the_c_with_the_best_score(loss: Any) -> None:
    X, y = sentences(120, noise=0.3)
    model = SequenceTagger(loss, C="validation", random_state=0).fit(X, y)
    curve = model.validation_curve_
    assert curve is not None
    assert (np.diff(curve["C"]) > 0).all()
    assert curve["C"][np.argmax(curve["score"])] == model.C_
    fixed = SequenceTagger(loss, C=model.C_, random_state=0).fit(X, y)
    assert (fixed.objective_, fixed.predict(X)) == (model.objective_, model.predict(X))
    once = SequenceTagger(loss, C="validation", random_state=0).fit(iter(X), iter(y))
    assert once.objective_ == model.objective_
    with pytest.raises(ValueError, match=r'^C: "validation" needs more sentences .* got 3'):
        SequenceTagger(loss, C="validation").fit(X[:3], y[:3])
    with pytest.raises(ValueError, match=r'^C: must be a positive number, None or "validation"'):
        SequenceTagger(loss, C="best").fit(X, y)


def test_validation_supports_matrices() -> None:
    rows, labels = np.eye(6)[np.arange(120) % 6], [["a", "b", "c"][i % 3] for i in range(120)]
    model = SequenceTagger("logistic", C="validation", random_state=0)
    model.fit(rows, labels, lengths=[4] * 30)
    assert model.predict(rows, lengths=[4] * 30).tolist() == labels


def with_rare_features(n: int, n_features: int) -> tuple[Any, Any]:
    """Return sentences in which a step on one sentence hardly helps on the next sentence."""
    X, y = sentences(n, noise=0.5)
    return [
        [[*token, f"rare{(7 * i + t * t) % n_features}"] for t, token in enumerate(x)]
        for i, x in enumerate(X)
    ], y


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_three_passes_at_current_weights_close_much_of_the_gap() -> None:
    X, y = with_rare_features(2200, 3000)
    model = SequenceTagger("hamming", C=1.0, tol=0.0, max_iter=3, random_state=0).fit(X, y)
    # A past version returned its last iterate and updated the weights after every 32 sentences. Its
    # dual objective was 0.34 and its objective was 1.69.
    assert model.dual_objective_ > 0.45
    assert model.objective_ < 1.3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_stochastic_steps_begin_a_logistic_fit(penalty: Any) -> None:
    X, y = sentences(400, noise=0.4)

    def fitted(n: int, **options: Any) -> SequenceTagger:
        options = {"C": 3.0, "penalty": penalty, "tol": 1e-6, **options}
        return SequenceTagger("logistic", random_state=0, **options).fit(X[:n], y[:n])

    best, one = fitted(400), fitted(400, max_iter=1)
    assert one.objective_ < 1.25 * best.objective_
    assert fitted(400, max_iter=1, n_jobs=1).objective_ == one.objective_
    # With fewer than 200 sentences, the first step of L-BFGS starts from zero weights.
    assert fitted(199, max_iter=1).objective_ > 1.5 * fitted(199).objective_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_stochastic_steps_fit_the_scale_of_each_feature(pairs: Any) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=2000)
    rows = np.eye(3)[labels] + 0.5 * rng.normal(size=(2000, 3))
    lengths = [5] * 400

    def first(scales: Any) -> float:
        model = SequenceTagger("logistic", C=100.0, pairs=pairs, max_iter=1, tol=0.0)
        return model.fit(rows * scales, labels, lengths=lengths).objective_

    plain = first(np.ones(3))
    assert plain < 0.8 * 5 * np.log(3)
    # The penalty of a small feature's weights is higher.
    assert first(np.array([1e5, 1.0, 0.1])) < 1.3 * plain


def test_label_scores_count_chunks_or_tokens() -> None:
    right = [["B-X", "I-X", "O", "B-Y"], ["O"]]
    assert label_score(right, right) == 1.0
    # One of the two true chunks is found, and one predicted chunk is wrong.
    assert label_score(right, [["B-X", "I-X", "O", "B-X"], ["O"]]) == 0.5
    assert label_score(right, [["O"] * 4, ["O"]]) == 0.0
    # A chunk may begin with I after a chunk of another kind.
    assert label_score([["B-X", "I-Y"]], [["B-X", "B-Y"]]) == 1.0
    assert label_score([["S-X", "B-X", "E-X"]], [["S-X", "B-X", "I-X"]]) == 1.0
    assert label_score([["N", "V"], []], [["N", "N"], []]) == 0.5


@pytest.mark.parametrize(
    ("options", "X", "y", "message"),
    [
        (
            {"min_count": 9},
            [[["a"], ["b"]]],
            [["x", "y"]],
            "^min_count: no feature .* at least 9",
        ),
        ({"transition_features": ["t="]}, [[["a"], ["b"]]], [["x", "y"]], "^transition_features"),
        ({}, [[[b"a"], [b"b"]]], [["x", "y"]], "^X: sentence 0, token 0: .* strings, got .*bytes"),
        ({}, [[["a"], ["b"]]], [["x", "\ud800"]], "^y: must be the labels of each sentence"),
        ({}, [[["a"], ["\ud800"]]], [["x", "y"]], "^X: sentence 0, token 1: .*surrogates"),
        ({}, [[{"a": b"1"}, ["b"]]], [["x", "y"]], "^X: sentence 0, token 0: a must be .*bytes"),
        ({}, [[["a"], ["b"]]], [[b"x", b"y"]], "^y: labels must not be bytes; decode them"),
        ({}, [[["a\0"], ["b"]]], [["x", "y\0"]], r"^y: the label 'y\\x00' ends with a NUL"),
    ],
)
def test_errors_of_invalid_input_name_the_argument(
    options: Any, X: Any, y: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SequenceTagger(**options).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", ["hamming", "logistic"])
@pytest.mark.parametrize("C", [0.3, 30.0])
def test_the_objective_never_rises_by_more_than_a_tenth(loss: Any, C: float) -> None:
    X, y = with_rare_features(220, 300)
    model = SequenceTagger(loss, C=C, tol=0.0, n_jobs=1, random_state=0)
    found = [model.set_params(max_iter=n).fit(X, y).objective_ for n in range(1, 9)]
    assert (np.diff(found) <= 0.1 * np.array(found[:-1])).all()
    assert found[-1] < found[0]
