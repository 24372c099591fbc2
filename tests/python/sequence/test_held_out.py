"""Fits that end according to the held-out score, and warnings about long fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sentences import sentences

from dualgap.sequence import SequenceTagger
from dualgap.sequence.metrics import label_score

LOSSES = ["hamming", "logistic"]


@pytest.mark.parametrize("loss", LOSSES)
def test_the_model_with_the_best_held_out_score_is_returned(loss: Any) -> None:
    X, y = sentences(300, noise=0.5)
    held = (X[200:], y[200:])
    model = SequenceTagger(loss, C=10.0, random_state=0).fit(X[:200], y[:200], validation=held)
    scores = model.history_["validation_score"]
    assert label_score(y[200:], model.predict(X[200:])) == np.nanmax(scores)
    # The fit ends after the best score, long before its gap is small.
    best = int(np.nanargmax(scores))
    assert best < len(scores) - 1 < 100
    full = SequenceTagger(loss, C=10.0, tol=1e-3, random_state=0).fit(X[:200], y[:200])
    assert full.n_iter_ >= model.n_iter_
    # Objective and bound belong to the returned model.
    assert full.dual_objective_ <= model.objective_
    assert model.dual_objective_ <= full.objective_
    if loss == "logistic":
        assert model.objective_ == pytest.approx(model.history_["objective"][best], rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_share_of_the_sentences_can_be_held_out(loss: Any) -> None:
    X, y = sentences(200)
    weights = np.linspace(0.5, 2.0, 200)
    model = SequenceTagger(loss, random_state=0).fit(X, y, weights, validation=0.2)
    assert model.predict(X[:1]) == [y[0]]
    lengths = [len(labels) for labels in y]
    rows = np.eye(3)[[len(token) for sentence in X for token in sentence]]
    flat = [label for labels in y for label in labels]
    tagger = SequenceTagger(loss, random_state=0)
    tagger.fit(rows, flat, lengths=lengths, validation=0.2)
    assert np.isfinite(tagger.history_["validation_score"][0])
    stopped = SequenceTagger(loss, random_state=0, callback=lambda *_: True)
    assert stopped.fit(X, y, validation=0.2).n_iter_ == 1


def test_errors_of_bad_held_out_sentences_name_the_argument() -> None:
    X, y = sentences(20)
    tagger = SequenceTagger()
    for validation in (1.0, 0, "a", (X, y, X), (X, y[:3]), ([], []), (X, [["O"]] * 20)):
        with pytest.raises(ValueError, match=r"^validation: "):
            tagger.fit(X, y, validation=validation)
    with pytest.raises(ValueError, match=r"^validation: .* features"):
        tagger.fit(X, y, validation=([np.eye(2)], [["O", "O"]]))


def test_a_few_long_sentences_give_a_warning() -> None:
    X, y = sentences(300)
    long = [[token for sentence in X for token in sentence]] * 2
    labels = [[label for sentence in y for label in sentence]] * 2
    with pytest.warns(UserWarning, match=r'^X: 2 sentences of .* loss="logistic"'):
        SequenceTagger(random_state=0, tol=0.5).fit(long, labels)
    SequenceTagger("logistic").fit(long, labels)
