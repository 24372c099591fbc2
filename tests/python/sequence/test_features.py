"""Taggers of raw sentences, whose features come from a function or from templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import sentences as generated
from sklearn.base import clone

from dualgap.sequence import SequenceTagger, word_features
from dualgap.sequence.features import crfsuite_features
from dualgap.sequence.templates import Templates

WORDS = [["Ada", "flew", "to", "New", "York"], ["it", "rained"], []] * 4
LABELS = [["PER", "O", "O", "LOC", "LOC"], ["O", "O"], []] * 4
PAIRS = [[(word, word[0].upper()) for word in words] for words in WORDS]
NESTED: dict[str, Any] = {}
NESTED["inner"] = NESTED
TEMPLATES = ["U0:%x[0,0]", "U1:%x[-1,0]", "B1:%x[0,0]"]


@pytest.mark.parametrize(
    ("features", "sentences"),
    [("words", WORDS), ("words", PAIRS), (TEMPLATES, WORDS), (TEMPLATES, PAIRS)],
)
@pytest.mark.parametrize("loss", ["hamming", "logistic"])
def test_raw_sentences_are_tagged_before_and_after_saving(
    loss: Any, features: Any, sentences: Any, tmp_path: Path
) -> None:
    tagger = SequenceTagger(loss, features=features, C=10.0, tol=1e-3, random_state=0)
    tagger.fit(iter(sentences), LABELS)
    assert tagger.score(sentences, LABELS) == 1.0
    tagger.save(tmp_path / "model.npz")
    loaded = SequenceTagger.load(tmp_path / "model.npz")
    for model in (tagger, loaded):
        assert model.predict(sentences) == LABELS
        assert model.predict(iter(sentences)) == LABELS
        assert model.predict_single(sentences[0]) == LABELS[0]
        assert model.predict_top_k(sentences, 1)[0][0][0] == LABELS[0]
        assert len(model.predict_marginals(sentences)) == len(sentences)
        assert model.explain(sentences[0])[0].label == "PER"
    # A fitted tagger keeps the feature function of its fit.
    assert loaded.set_params(features=None).predict(sentences) == LABELS
    assert clone(tagger).fit(sentences, LABELS).objective_ == tagger.objective_


def test_features_come_from_the_given_function() -> None:
    raw = SequenceTagger(features="words", C=1.0, random_state=0).fit(PAIRS, LABELS)
    X = list(map(word_features, PAIRS))
    expected = SequenceTagger(C=1.0, random_state=0).fit(X, LABELS)
    assert raw.objective_ == expected.objective_
    assert raw.feature_names_ == expected.feature_names_
    by_templates = SequenceTagger(features=TEMPLATES, C=1.0, random_state=0).fit(PAIRS, LABELS)
    expand = Templates.parse(TEMPLATES).expand
    marked = SequenceTagger(transition_features=["B"], C=1.0, random_state=0)
    marked.fit([expand(words) for words in PAIRS], LABELS)
    assert by_templates.objective_ == marked.objective_


def test_word_features_have_affixes_shapes_and_neighbours() -> None:
    first, second = word_features([("McX-9", "NN"), ("a", "DT")])
    assert first == [
        *("w=mcx-9", "shape=XxX-0", "p1=m", "s1=9", "p2=mc", "s2=-9", "p3=mcx", "s3=x-9"),
        *("p4=mcx-", "s4=cx-9", "first", "w+1=a", "shape+1=x", "w|w+1=mcx-9|a"),
        *("c1@0=NN", "c1@1=DT", "c1@0|=NN|DT"),
    ]
    assert second == [
        *("w=a", "shape=x", "w-1=mcx-9", "shape-1=XxX-0", "w-1|w=mcx-9|a"),
        *("c1@-1=NN", "c1@0=DT", "c1@-1|=NN|DT"),
    ]
    assert word_features([]) == []
    assert word_features([""])[0][:2] == ["w=", "shape="]


def test_dictionaries_are_read_like_in_python_crfsuite() -> None:
    token = {
        "a": "b",
        "up": True,
        "x": 0.5,
        "n": {"c": "d", "e": {"f": 2}},
        "l": ["g", "h"],
        "a:b": 1,
    }
    assert crfsuite_features([token, ["p", "q"]]) == [
        {"a:b": 2.0, "up": 1.0, "x": 0.5, "n:c:d": 1.0, "n:e:f": 2.0, "l:g": 1.0, "l:h": 1.0},
        ["p", "q"],
    ]


@pytest.mark.parametrize(
    ("features", "sentences", "message"),
    [
        ("words", ["a b"], "X: sentence 0 must be a sequence of tokens, got 'a b'"),
        ("words", [["a"], [1]], "X: sentence 1: token 0: must be a word or a tuple of strings"),
        ("words", [[{"w": "a"}]], "X: sentence 0: token 0: must be a word"),
        ("words", 5, "X: must be sentences of words, got int"),
        (["U:%x[0,1]"], [["a"]], "X: sentence 0: the templates need 2 columns, got 1"),
        ("crfsuite", [[{"a": object()}]], "X: sentence 0: float"),
        ("crfsuite", [[NESTED]], "X: sentence 0: features must be nested at most 32 deep"),
        ("other", [["a"]], "features: must be None, 'words', 'crfsuite' or a list of templates"),
        (["X:%x[0,1]"], [["a"]], "features: line 1: 'X:%x.0,1.' is not a template"),
        ([1], [["a"]], "features: templates must be strings"),
    ],
)
def test_errors_name_the_sentence(features: Any, sentences: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SequenceTagger(features=features).fit(sentences, [["A"]] * 2)


def test_a_crf_has_the_logistic_loss() -> None:
    with pytest.raises(
        ValueError, match=r'^loss: for a conditional random field, use loss="logistic"'
    ):
        SequenceTagger("crf").fit([["a"]], [["A"]])  # type: ignore[arg-type]


def test_a_feature_function_for_matrices_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^lengths: features='words' requires raw sentences"):
        SequenceTagger(features="words").fit(np.eye(2), ["a", "b"], lengths=[2])


def test_weights_have_the_attribute_names_of_sklearn_crfsuite() -> None:
    X, y = generated(60)
    for marked in (None, ["before="]):
        model = SequenceTagger("logistic", transition_features=marked).fit(X, y)
        table, names = model.emission_.toarray(), model.feature_names_ or []
        names = [name for name in names if marked is None or not name.startswith("before=")]
        known = model.state_features_
        assert len(known) == np.count_nonzero(table)
        for (name, label), weight in known.items():
            assert table[names.index(name), model.classes_.tolist().index(label)] == weight
    links = model.transition_features_
    assert links["B-NP", "I-NP"] == model.transition_["B-NP", "I-NP"]
