"""Training sentences in temporary files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sentences import sentences

from dualgap import Chunks
from dualgap.sequence import SequenceTagger, read_conll

LOSSES = ["hamming", "logistic"]


def are_identical(a: SequenceTagger, b: SequenceTagger) -> bool:
    """Whether two fits have the same bits."""
    return (
        a.objective_ == b.objective_
        and a.dual_objective_ == b.dual_objective_
        and np.array_equal(a.emission_.toarray(), b.emission_.toarray())
        and a.classes_.tolist() == b.classes_.tolist()
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bits", [None, 12])
@pytest.mark.parametrize("value", [1.0, 0.5])
def test_a_fit_from_files_is_identical_to_a_fit_in_memory(
    loss: Any, bits: int | None, value: float, tmp_path: Path
) -> None:
    # The fit writes sentences in batches, and 700 sentences need several. Only the last sentence
    # has a value other than 1.
    X, y = sentences(700, noise=0.3)
    X = [*X, [{"a": value, "b": True}]]
    y = [*y, [y[0][0]]]
    tagger = SequenceTagger(loss, hash_bits=bits, random_state=0)
    expected = SequenceTagger(loss, hash_bits=bits, random_state=0).fit(X, y)
    assert are_identical(tagger.fit(iter(X), iter(y), spill=tmp_path), expected)
    assert are_identical(tagger.fit(zip(X, y, strict=True), spill=tmp_path), expected)
    assert tagger.predict(X) == expected.predict(X)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("loss", LOSSES)
def test_spilled_matrices_and_chunks_give_the_same_model(loss: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=1500)
    rows = np.eye(3)[labels] + (rng.random((1500, 3)) < 0.3)
    lengths = [2, 3] * 300
    ends = np.cumsum(lengths)[:-1]

    def tagger() -> SequenceTagger:
        return SequenceTagger(loss, random_state=0)

    expected = tagger().fit(sp.csr_array(rows), labels, lengths=lengths)
    by_sentence, own = np.split(rows, ends), np.split(labels, ends)
    assert are_identical(tagger().fit(iter(by_sentence), iter(own), spill=tmp_path), expected)
    assert are_identical(tagger().fit(rows, labels, lengths=lengths, spill=tmp_path), expected)
    parts = [rows[:700], sp.csr_array(rows[700:])]
    chunks = Chunks(iter(parts), spill=tmp_path)
    assert are_identical(tagger().fit(chunks, labels, lengths=lengths, spill=tmp_path), expected)


def test_column_files_are_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text("Ada NNP B-PER\nflew VBD O\n\nit PRP O\nrained VBD O\n" * 3)
    tagger = SequenceTagger(features="words", transitions="bio", C=1.0, hash_bits=14)
    words, names = read_conll(path, columns=[0, 1]), read_conll(path, columns=-1)
    tagger.fit(words, names, spill=tmp_path)
    assert tagger.predict(read_conll(path, columns=[0, 1]))[0] == ["B-PER", "O"]
    held = [[("Ada", "NNP")]], [["B-PER"]]
    words, names = read_conll(path, columns=[0, 1]), read_conll(path, columns=-1)
    tagger.fit(words, names, spill=tmp_path, validation=held)
    assert np.nanmax(tagger.history_["validation_score"]) == 1.0


def test_spilled_fits_support_token_weights_and_unknown_labels(tmp_path: Path) -> None:
    X, y = sentences(60, noise=0.2)
    y = [[None if t == 1 else label for t, label in enumerate(labels)] for labels in y]
    costs = [[2.0] * len(labels) for labels in y]
    tagger = SequenceTagger("logistic", random_state=0, class_weight={y[0][0]: 3.0})
    expected = SequenceTagger("logistic", random_state=0, class_weight={y[0][0]: 3.0})
    tagger.fit(iter(X), iter(y), token_weight=costs, spill=tmp_path)
    expected.fit(X, y, token_weight=costs)
    assert tagger.certificate_ == expected.certificate_
    assert tagger.objective_ == expected.objective_


def test_errors_name_the_sentence_of_a_later_batch(tmp_path: Path) -> None:
    X, y = sentences(600)
    X[555] = [[b"a"]]
    with pytest.raises(ValueError, match=r"^X: sentence 555, token 0: .* strings"):
        SequenceTagger().fit(iter(X), iter(y), spill=tmp_path)


def test_data_that_files_cannot_store_are_rejected(tmp_path: Path) -> None:
    X, y = sentences(30)

    def pairs() -> Iterator[Any]:
        yield X[0], y[0]
        yield X[1]

    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"min_count": 2}, {}, "^min_count: spill does not use it"),
        ({"warm_start": True}, {}, "^warm_start: spill"),
        ({"transition_features": ["a"]}, {}, "^transition_features: spill"),
        ({"transitions": "bio", "invalid": "drop"}, {}, "^invalid: spill"),
        ({"C": "validation"}, {}, '^C: "validation" needs the sentences in memory'),
        ({"features": ["U:%x[0,0]", "B:%x[0,0]"]}, {}, "^features: spill"),
        ({}, {"validation": 0.2}, "^validation: with spill"),
    ]
    for parameters, options, message in cases:
        with pytest.raises(ValueError, match=message):
            SequenceTagger(**parameters).fit(iter(X), iter(y), spill=tmp_path, **options)
    with pytest.raises(ValueError, match=r"^y: must have labels for 30 sentences, got 29"):
        SequenceTagger().fit(iter(X), iter(y[1:]), spill=tmp_path)
    with pytest.raises(ValueError, match=r"^y: sentence 0 has 1 labels and"):
        SequenceTagger().fit(iter(X), [["a"]] * 30, spill=tmp_path)
    with pytest.raises(ValueError, match=r"^X: without y, item 1 must be a pair"):
        SequenceTagger().fit(pairs(), spill=tmp_path)
    with pytest.raises(ValueError, match=r"^X: there must be at least one sentence"):
        SequenceTagger().fit(iter([]), iter([]), spill=tmp_path)
    with pytest.raises(ValueError, match=r"^y: all labels are None"):
        SequenceTagger().fit(iter(X), ([None] * len(own) for own in y), spill=tmp_path)
    with pytest.raises(ValueError, match=r"^y: must be the labels of each sentence, got NoneType"):
        SequenceTagger().fit(X)
    with pytest.raises(OSError, match="No such file"):
        SequenceTagger().fit(iter(X), iter(y), spill=tmp_path / "absent")
