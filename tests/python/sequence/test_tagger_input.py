"""Sentences and labels that a tagger accepts, and its errors for other input."""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dualgap.sequence import SequenceTagger

X = [[["w=the"], ["w=cat"]], [["w=a"], ["w=dog"], ["w=ran", "last"]]] * 5
Y = [["D", "N"], ["D", "N", "V"]] * 5
LOSSES = ["hamming", "logistic"]


def tagger(loss: str = "hamming", **options: Any) -> SequenceTagger:
    return SequenceTagger(loss, **{"C": 10.0, "tol": 1e-3, "random_state": 0, **options})


def test_iterables_that_can_be_read_again_are_read_once() -> None:
    expected = tagger().fit(X, Y)
    ragged = np.empty(len(X), dtype=object)
    ragged[:] = X
    for sentences, labels in [(pd.Series(X), pd.Series(Y)), (ragged, Y), (dict(enumerate(X)), Y)]:
        given = sentences.values() if isinstance(sentences, dict) else sentences
        model = tagger().fit(given, labels)
        assert model.objective_ == expected.objective_
        assert model.predict(given) == expected.predict(X)
    square = np.array([[["a"], ["b"]], [["c"], ["d"]]])
    assert tagger().fit(square, [["u", "v"]] * 2).predict(square) == [["u", "v"]] * 2


@pytest.mark.parametrize("loss", LOSSES)
def test_empty_input_has_no_predictions(loss: str) -> None:
    model = tagger(loss).fit(X, Y)
    for answers in (model.predict([]), model.predict_marginals([]), model.predict_top_k([], 2)):
        assert answers == []
    assert [rows.shape for rows in model.predict_marginals([[], X[0]])] == [(0, 3), (2, 3)]
    assert model.predict([[], X[0]]) == [[], Y[0]]


@pytest.mark.parametrize("value", [np.nan, np.float32("nan"), np.float32("inf"), 10**400])
def test_errors_name_features_whose_values_are_not_finite(value: Any) -> None:
    with pytest.raises(ValueError, match="X: sentence 0, token 1: w must be a finite number"):
        tagger().fit([[{"w": 1.0}, {"w": value}]], [["a", "b"]])


@pytest.mark.parametrize(
    ("sentences", "labels", "message"),
    [
        (["word", "word"], [["a"], ["b"]], "X: sentence 0 must be a sequence of tokens"),
        ([1, 2], [["a"], ["b"]], "X: sentence 0 must be a sequence of tokens"),
        ([[["a"], None]], [["a", "b"]], "X: sentence 0, token 1: must be a list or a dictionary"),
        (pd.DataFrame(np.eye(2)), ["a", "b"], "lengths: one matrix needs the lengths"),
        (
            X,
            [[1, "N"], ["D", 2, "V"]] * 5,
            "y: labels must be all of one kind, got 1 .int. and 'N' .str.",
        ),
    ],
)
def test_errors_describe_invalid_sentences_and_labels(
    sentences: Any, labels: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tagger().fit(sentences, labels)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_tagging_stops_at_the_first_failure(n_jobs: int) -> None:
    nowhere = tagger(transitions={("a", "b")}, n_jobs=n_jobs).fit([[["x"], ["y"]]], [["a", "b"]])

    def without_end() -> Iterator[Any]:
        yield [["x"]] * 3
        yield from itertools.repeat([["x"], ["y"]], 10**6)
        raise AssertionError

    with pytest.raises(ValueError, match="forbid all labels"):
        nowhere.predict(without_end())


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_first_of_several_failures_is_raised(n_jobs: int) -> None:
    nowhere = tagger(transitions={("a", "b")}, n_jobs=n_jobs).fit([[["x"], ["y"]]], [["a", "b"]])
    good: list[Any] = [[["x"], ["y"]]] * 2000
    too_long, unreadable = [["x"]] * 3, [["x"], [1]]
    with pytest.raises(ValueError, match="forbid all labels"):
        nowhere.predict([*good, too_long, *good, unreadable])
    with pytest.raises(ValueError, match="X: sentence 2000, token 1"):
        nowhere.predict([*good, unreadable, *good, too_long])

    def interrupted() -> Iterator[Any]:
        yield from good
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nowhere.predict(interrupted())


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_other_threads_run_while_sentences_are_tagged(n_jobs: int) -> None:
    model = tagger(n_jobs=n_jobs).fit(X, Y)
    names, core = model._weights.names, model._weights.tagger
    assert names is not None
    read, ran = threading.Event(), threading.Event()

    def answer() -> None:
        read.wait()
        ran.set()

    def sentences() -> Iterator[Any]:
        yield from X
        read.set()
        yield [["w=the"], ["w=dog"]] * 500_000

    thread = threading.Thread(target=answer)
    interval = sys.getswitchinterval()
    thread.start()
    # With this long interval, threads switch only when one of them releases the GIL.
    sys.setswitchinterval(1e3)
    try:
        core.tag(names.vocabulary, sentences(), n_jobs)
        assert ran.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_pickled_tagger_can_continue_with_a_warm_start(loss: str) -> None:
    model = tagger(loss, warm_start=True).fit(X, Y)
    same = pickle.loads(pickle.dumps(model))
    assert same.predict(X) == model.predict(X)
    assert same.fit(X, Y).objective_ == tagger(loss).fit(X, Y).objective_


def test_a_warm_start_with_newly_forbidden_labels_starts_again() -> None:
    model = tagger(warm_start=True, C=0.01, tol=0.5).fit(X, Y)
    model.transitions = {("D", "N"), ("N", "V")}
    with pytest.warns(UserWarning, match=r"^warm_start: .* no sentence can .* transitions"):
        model.fit(X, Y)
    new = tagger(C=0.01, tol=0.5, transitions=model.transitions).fit(X, Y)
    assert (model.objective_, model.dual_objective_) == (new.objective_, new.dual_objective_)


def reverse_features(sentences: Any) -> Any:
    """Reverse the features of each token, and therefore the order of the columns."""
    return [[token[::-1] for token in sentence] for sentence in sentences]


WIDE = [[[f"w={at % 7}", f"p={at % 3}", "all"] for at in range(n, n + 4)] for n in range(12)]
TAGGED = [["ABC"[(n + at) % 3] for at in range(4)] for n in range(12)]


@pytest.mark.parametrize("pairs", ["all", "seen"])
@pytest.mark.parametrize("features", [None, ["p="]])
@pytest.mark.parametrize("boundaries", [True, False])
def test_a_warm_start_matches_weights_of_the_logistic_loss_by_name(
    pairs: Any, features: Any, boundaries: bool
) -> None:
    model = tagger(
        "logistic",
        C=1.0,
        tol=1e-6,
        max_iter=1000,
        warm_start=True,
        pairs=pairs,
        transition_features=features,
        boundaries=boundaries,
    )
    cold = model.fit(WIDE, TAGGED).n_iter_
    assert cold > 3
    # The sentences are in another order, which changes the order of the columns.
    assert model.fit(reverse_features(WIDE[::-1]), TAGGED[::-1]).n_iter_ <= 1
    # A new label comes before all other labels, which changes the indices of these labels.
    model.fit([*WIDE, [["new"]]], [*TAGGED, ["0"]])
    assert model.classes_.tolist() == ["0", "A", "B", "C"]
    model.fit(WIDE, TAGGED)
    assert model.n_iter_ < cold


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
def test_a_warm_start_that_cannot_use_the_previous_fit_warns(loss: str) -> None:
    model = tagger(loss, warm_start=True).fit(X, Y)
    if loss == "hamming":
        with pytest.warns(UserWarning, match=r"^warm_start: .* lengths"):
            model.fit([[["other"]]], [["D"]])
    matrices = [np.eye(3)[: len(sentence)] for sentence in X]
    with pytest.warns(UserWarning, match=r"^warm_start: the fit starts from zero"):
        model.fit([np.eye(2)], [["D", "N"]])
    other = "logistic" if loss == "hamming" else "hamming"
    with pytest.warns(UserWarning, match=rf'^warm_start: .* the previous fit had loss="{loss}"'):
        model.set_params(loss=other).fit(matrices, Y)


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
@pytest.mark.parametrize("value", [1e160, 1e200])
def test_features_whose_squares_overflow_are_rejected(loss: str, value: float) -> None:
    X, y = [[{"a": value}, {"b": 1.0}]] * 3, [["D", "N"]] * 3
    with pytest.raises(ValueError, match=r"^C: .* scale the data$"):
        SequenceTagger(loss).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", ["hamming", "logistic"])
def test_features_whose_squares_are_finite_have_a_model(loss: str) -> None:
    X, y = [[{"a": 1e145}, {"b": 1.0}]] * 3, [["D", "N"]] * 3
    tagger = SequenceTagger(loss, max_iter=20).fit(X, y)
    assert 0.0 <= tagger.objective_ <= tagger.null_objective_


def test_masked_lengths_and_weights_of_tokens_are_rejected() -> None:
    X, y = [["a"], ["b"]], [["D", "N"]]
    weights = np.ma.array([1.0, 2.0], mask=[True, False])
    with pytest.raises(ValueError, match=r"^token_weight: has masked entries"):
        SequenceTagger("hamming").fit([X], y, token_weight=[weights])
    with pytest.raises(ValueError, match=r"^token_weight: label 0 has 1 entries"):
        SequenceTagger("hamming").fit([X], y, token_weight=[[1.0]])
    with pytest.raises(ValueError, match=r"^lengths: has masked entries"):
        SequenceTagger("hamming").fit(np.eye(4), [0, 1, 0, 1], lengths=weights.astype(int) + 1)


@pytest.mark.parametrize("features", [5, "a", object()])
def test_transition_features_must_be_a_list(features: Any) -> None:
    X, y = [[["a"], ["b"]]], [["D", "N"]]
    with pytest.raises(ValueError, match=r"^transition_features: must be a list"):
        SequenceTagger("hamming", transition_features=features).fit(X, y)


def test_the_error_for_pairs_suggests_zip() -> None:
    with pytest.raises(ValueError, match=r"^y: must be the labels .*zip"):
        SequenceTagger().fit([([["a"]], ["x"]), ([["b"]], ["y"])])


def test_features_that_repeat_count_as_often_as_they_occur() -> None:
    def weights(token: Any) -> Any:
        return tagger().fit([[token, ["b"]]], [["D", "N"]]).state_features_

    assert weights(["a", "a"]) == weights({"a": 2.0}) != weights(["a"])


def test_sentences_that_end_early_leave_the_model_unchanged() -> None:
    model = tagger().fit(X, Y)

    def broken() -> Iterator[Any]:
        yield X[0]
        raise OSError

    for sentences, labels, error in [
        (iter(X[:3]), iter(Y), ValueError),
        (iter(X), iter(Y[:3]), ValueError),
        (broken(), Y, OSError),
    ]:
        with pytest.raises(error, match=r"^y: must have labels for|^$"):
            model.fit(sentences, labels)
        assert model.predict(X) == Y


def test_empty_sentences_and_tokens_are_allowed() -> None:
    model = tagger().fit([[], [[], ["w=cat"]], *X], [[], ["D", "N"], *Y])
    assert model.predict([[], X[0], [[]]])[:2] == [[], Y[0]]
    with pytest.raises(ValueError, match=r"^y: at least one sentence must have a token"):
        model.fit([[]], [[]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_weights_must_be_finite_and_not_negative(value: float) -> None:
    costs = [[1.0] * len(labels) for labels in Y]
    costs[3][0] = value
    for options, argument in [
        ({"sample_weight": [value, *[1.0] * 9]}, "sample_weight"),
        ({"token_weight": costs}, "token_weight, class_weight"),
    ]:
        with pytest.raises(ValueError, match=f"^{argument}: must be finite"):
            tagger().fit(X, Y, **options)
    with pytest.raises(ValueError, match=r"class_weight: must be"):
        tagger(class_weight={"D": value}).fit(X, Y)
