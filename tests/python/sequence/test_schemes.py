"""Training labels that a chunk scheme forbids."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from dualgap.sequence import SequenceTagger, repair_labels
from dualgap.sequence._transitions import transition_codes
from dualgap.sequence.metrics import chunks_of

BIO = ["O", "B-A", "I-A", "B-B", "I-B"]
BIOES = ["O", "B-A", "I-A", "E-A", "S-A", "E-B", "S-B"]
BILOU = ["O", "B-A", "I-A", "L-A", "U-A", "L-B", "U-B"]


@pytest.mark.parametrize(("scheme", "labels"), [("bio", BIO), ("bioes", BIOES), ("bioes", BILOU)])
def test_repairs_preserve_the_chunks_and_obey_the_scheme(scheme: str, labels: list[str]) -> None:
    classes = np.array(labels)
    n = len(classes)
    seen = np.zeros((n, n), dtype=bool)
    allowed = transition_codes(scheme, classes, True, seen).reshape(n + 2, n) > 0
    place = {label: at for at, label in enumerate(labels)}
    n_valid = 0
    for length in range(5):
        sequences = [list(each) for each in itertools.product(labels, repeat=length)]
        for own, repaired in zip(sequences, repair_labels(sequences, scheme), strict=True):
            codes = [place[label] for label in own]
            valid = all(allowed[a, b] for a, b in itertools.pairwise(codes))
            valid &= not codes or bool(allowed[n, codes[0]] and allowed[n + 1, codes[-1]])
            n_valid += valid
            assert (repaired == own) == valid
            assert chunks_of(repaired) == chunks_of(own)
            assert repair_labels([repaired], scheme) == [repaired]
    assert n_valid > 50


def test_repair_converts_iob1_to_bio() -> None:
    iob1 = [["I-A", "I-A", "B-A", "O", "I-B"], ["O"]]
    assert repair_labels(iob1) == [["B-A", "I-A", "B-A", "O", "B-B"], ["O"]]
    with pytest.raises(ValueError, match="'A' is not a label of"):
        repair_labels([["A"]])
    with pytest.raises(ValueError, match=r"^scheme: "):
        repair_labels([["O"]], "iob")


X = [[["w=a"], ["w=b"]], [["w=a"], ["w=c"]], [["w=b"], ["w=a"]], [["w=c"]], [["w=d"]]]
Y = [["B-A", "I-A"], ["O", "I-A"], ["B-A", "I-A"], ["I-A"], ["I-A"]]
REPAIRED = [["B-A", "I-A"], ["O", "B-A"], ["B-A", "I-A"], ["B-A"], ["B-A"]]


def test_the_error_counts_the_invalid_sentences_and_shows_three() -> None:
    tagger = SequenceTagger(transitions="bio")
    message = re.escape(
        "y: `transitions` forbids the labels of 3 of 5 sentences: sentence 1 has I-A after O, "
        "sentence 3 has I-A at the beginning, sentence 4 has I-A at the beginning; "
        'set invalid="repair" or invalid="drop"'
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        tagger.fit(X, Y)
    with pytest.raises(ValueError, match=r"4 of 5 sentences: .* sentence 3 has") as caught:
        tagger.fit(X, [["I-A", "O"], ["O", "O"], ["I-A", "B-A"], ["I-A"], ["I-A"]])
    assert "IOB1" in str(caught.value)


def problem(kind: str) -> tuple[Any, Any, dict[str, Any]]:
    if kind == "iterators":
        return iter(X), iter(Y), {}
    if kind == "matrix":
        rows = np.concatenate([np.eye(4)[[ord(token[0][2]) - 97 for token in x]] for x in X])
        return rows, np.concatenate(Y), {"lengths": [len(x) for x in X]}
    return X, Y, {}


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
@pytest.mark.parametrize("kind", ["lists", "iterators", "matrix"])
def test_sentences_are_repaired_or_left_out(loss: Any, kind: str) -> None:
    options: dict[str, Any] = {"transitions": "bio", "C": 1.0, "tol": 1e-3, "random_state": 0}
    weights = np.arange(1.0, 6.0)
    costs = [[2.0] * len(y) for y in Y]
    given = {"token_weight": np.concatenate(costs) if kind == "matrix" else costs}
    if loss == "logistic":
        given = {}
    found = {}
    for rule in ("repair", "drop"):
        sentences, labels, lengths = problem(kind)
        model = SequenceTagger(loss, invalid=rule, **options)
        found[rule] = model.fit(sentences, labels, weights, **given, **lengths).objective_
    kept = [0, 2]
    expected = SequenceTagger(loss, **options)
    costs = {"token_weight": costs} if given else {}
    assert expected.fit(X, REPAIRED, weights, **costs).objective_ == pytest.approx(found["repair"])
    costs = {"token_weight": [costs["token_weight"][i] for i in kept]} if costs else {}
    expected.fit([X[i] for i in kept], [Y[i] for i in kept], weights[kept], **costs)
    assert expected.objective_ == pytest.approx(found["drop"])


@pytest.mark.parametrize("rule", ["repair", "drop"])
def test_rules_apply_to_labels_that_are_read_with_their_sentences(rule: Any) -> None:
    scheme = {"transitions": "bioes", "C": 1.0, "random_state": 0}
    sentences = [[["w=a"], ["w=b"]], [["w=a"]], [["w=b"], ["w=a"]], [["w=c"], ["w=d"]]]
    labels = [["I-A", "I-A"], ["U-A"], ["B-A", "L-A"], ["O", "O"]]
    y: list[Any] = []

    def read() -> Any:
        for sentence, own in zip(sentences, labels, strict=True):
            y.append(own)
            yield sentence

    model = SequenceTagger(invalid=rule, **scheme)  # type: ignore[arg-type]
    model.fit(read(), y)
    expected = SequenceTagger(invalid=rule, **scheme).fit(  # type: ignore[arg-type]
        sentences, labels
    )
    assert model.objective_ == expected.objective_
    assert model.classes_.tolist() == ["B-A", "L-A", "O", "U-A"]
    for n_sentences, n_labels in ((3, 4), (4, 3)):
        message = f"^y: must have labels for {n_sentences} sentences, got {n_labels}$"
        own, given = sentences[:n_sentences], labels[:n_labels]
        weights = [1.0] * n_sentences
        for data in ((iter(own), iter(given)), (iter(own), given, weights), (own, given)):
            with pytest.raises(ValueError, match=message):
                model.fit(*data)


def test_rules_check_the_form_of_labels_and_sentences() -> None:
    rows, labels, lengths = problem("matrix")
    for rule in ("repair", "drop"):
        tagger = SequenceTagger(transitions="bio", invalid=rule)  # type: ignore[arg-type]
        for data, flat, message in (
            ((X, 5), {}, "y: must be the labels of each sentence, got int"),
            ((iter(X), 5), {}, "y: must be the labels of each sentence, got int"),
            ((rows, iter(labels)), lengths, "y: must have one label for each row, got iterator"),
            ((iter(rows), labels), lengths, "X: must be an array, got iterator"),
            ((rows[:7], labels), lengths, "lengths: must be integers that sum to the 7 rows"),
            ((5, Y), {}, "X: must be sentences"),
        ):
            with pytest.raises((TypeError, ValueError), match=f"^{message}"):
                tagger.fit(*data, **flat)  # type: ignore[arg-type]
    y: list[Any] = []
    arriving = (y.append(own) or sentence for sentence, own in zip(X, Y, strict=True))
    with pytest.raises(ValueError, match=r"^y: with weights .* all labels before X is read"):
        tagger.fit(arriving, y, np.ones(len(X)))


def test_rules_for_invalid_labels_that_cannot_apply_are_errors() -> None:
    with pytest.raises(ValueError, match=r'^invalid: transitions other than "bio" and "bioes"'):
        SequenceTagger(invalid="drop").fit(X, Y)
    with pytest.raises(ValueError, match=r"^invalid: must be"):
        SequenceTagger(transitions="bio", invalid="fix").fit(X, Y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="forbids the labels of all 2 sentences"):
        SequenceTagger(transitions="bio", invalid="drop").fit(X[3:], Y[3:])
    with pytest.raises(ValueError, match="forbids the labels of all 2 sentences"):
        SequenceTagger(transitions="bio", invalid="drop").fit(iter(X[3:]), iter(Y[3:]))
    with pytest.raises(ValueError, match="sample_weight"):
        SequenceTagger(transitions="bio", invalid="drop").fit(X, Y, [1.0])
    model = SequenceTagger(transitions="bio", invalid="drop", C="validation", random_state=0)
    assert model.fit(X * 4, Y * 4).predict(X[:1]) == Y[:1]


def test_a_loaded_tagger_keeps_its_scheme(tmp_path: Any) -> None:
    model = SequenceTagger(transitions="bio", invalid="repair").fit(X, Y)
    model.save(tmp_path / "model.npz")
    loaded = SequenceTagger.load(tmp_path / "model.npz")
    assert (loaded.transitions, loaded.invalid) == ("bio", "repair")
