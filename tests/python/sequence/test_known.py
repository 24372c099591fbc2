"""Predictions for sentences with some known labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sentences import score_label_sequences, sentences

from dualgap.sequence import SequenceTagger

X, Y = sentences(40)


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
@pytest.mark.parametrize("transitions", ["all", "bio"])
def test_predictions_with_known_labels_agree_with_enumeration(loss: Any, transitions: str) -> None:
    model = SequenceTagger(loss, transitions=transitions, tol=0.01, random_state=0).fit(X, Y)
    rng, classes = np.random.default_rng(1), model.classes_.tolist()
    short = [x for x in X if 0 < len(x) < 7]
    known: list[Any] = []
    for x in short:
        of_right = model.predict_top_k([x], 3)[0][-1][0]
        known.append([label if rng.random() < 0.4 else None for label in of_right])
    assert any(label is not None for labels in known for label in labels)
    best = model.predict(short, known=known)
    lists = model.predict_top_k(short, 3, known=known)
    marginals = model.predict_marginals(short, known=known)
    for at, x in enumerate(short):
        ranked = [
            (score, labels)
            for score, labels in score_label_sequences(model, x)
            if all(k in (None, label) for k, label in zip(known[at], labels, strict=True))
            and np.isfinite(score)
        ]
        scores = np.array([score for score, _ in ranked])
        assert best[at] == ranked[0][1]
        log_sum = scores.max() + np.log(np.exp(scores - scores.max()).sum())
        for (labels, score), (expected, own) in zip(lists[at], ranked, strict=False):
            assert score == pytest.approx(expected - (log_sum if loss == "logistic" else 0.0))
            assert labels == own
        for t, row in enumerate(marginals[at]):
            for label, value in zip(classes, row, strict=True):
                with_it = scores[[labels[t] == label for _, labels in ranked]]
                if loss == "logistic":
                    expected = float(np.exp(with_it - log_sum).sum())
                else:
                    expected = with_it.max() - scores.max() if len(with_it) else -np.inf
                assert value == pytest.approx(expected, abs=1e-9)


def test_known_labels_can_be_given_for_rows_of_a_matrix() -> None:
    rows, lengths = np.eye(3)[[0, 1, 2, 0, 1]], [3, 2]
    labels = np.array(["a", "b", "c", "a", "b"])
    model = SequenceTagger(C=10.0).fit(rows, labels, lengths=lengths)
    known = [None, "c", None, None, None]
    found = model.predict(rows, known=known, lengths=lengths)
    assert found[1] == "c"
    split = model.predict([rows[:3], rows[3:]], known=[known[:3], known[3:]])
    assert [*split[0], *split[1]] == found.tolist()
    assert model.predict(rows, known=[None] * 5, lengths=lengths).tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ([["D", None]], "known: must have an entry for each of 2 sentences, got 1"),
        ([["O"], [None]], "known: sentence 0 has 1 entries and 2 tokens"),
        ([["O", None], ["X"]], "known: sentence 1, token 0: 'X' is not a label of the model"),
        ([["O", ["B-NP"]], [None]], "known: sentence 0, token 1: .* is not a label of the model"),
        ([["O", "I-NP"], [None]], "transitions forbid all labels .* known labels"),
    ],
)
def test_errors_of_bad_known_labels_name_the_token(known: Any, message: str) -> None:
    model = SequenceTagger(transitions="bio").fit(X, Y)
    with pytest.raises(ValueError, match=message):
        model.predict([[["w=the"], ["w=cat"]], [["w=a"]]], known=known)
