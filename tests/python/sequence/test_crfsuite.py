"""CRFsuite's model files, and conversion of its parameters."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import sentences

from dualgap.sequence import SequenceTagger, read_crfsuite, write_crfsuite
from dualgap.sequence._quark import hash_all

X, Y = sentences(200)
TEST, _ = sentences(1000, seed=1, noise=0.3)
SAME: dict[str, Any] = {"pairs": "seen", "transitions": "seen", "boundaries": False}


def assert_same(tagger: Any, model: SequenceTagger, sentences: Any) -> None:
    """Check that predictions are equal, except for label sequences with equal scores."""
    n_ties = 0
    for sentence, labels in zip(sentences, model.predict(sentences), strict=True):
        found = tagger.tag(sentence)
        if found != labels:
            n_ties += 1
            scores = [tagger.probability(each) for each in (found, labels)]
            assert scores[0] == pytest.approx(scores[1], rel=1e-9)
    assert n_ties < 10


def dictionaries(X: Any) -> Any:
    """Return the features as python-crfsuite's nested dictionaries of strings and numbers."""

    def token(names: list[str]) -> dict[str, Any]:
        parts = dict(name.split("=") for name in names)
        return {**parts, "n": {"size": len(names) / 2, "all": list(parts.values())}, "up": True}

    return [[token(names) for names in sentence] for sentence in X]


def test_hashes_equal_published_values_of_lookup3() -> None:
    # Test values from the comments in lookup3.c.
    assert hash_all([b"Four score and seven years ago"]).tolist() == [0x17770551]


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
def test_a_written_file_contains_the_same_model(loss: Any, tmp_path: Path) -> None:
    model = SequenceTagger(loss, pairs="all", boundaries=False, random_state=0).fit(X, Y)
    write_crfsuite(model, tmp_path / "model")
    found = read_crfsuite(tmp_path / "model", loss)
    assert found.state_features_ == model.state_features_
    assert found.transition_features_ == model.transition_features_
    assert found.predict(TEST) == model.predict(TEST)
    write_crfsuite(found, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    found.save(tmp_path / "model.npz")
    assert SequenceTagger.load(tmp_path / "model.npz").predict(TEST) == model.predict(TEST)


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
def test_crfsuite_predicts_the_same_with_a_model_of_dualgap(loss: Any, tmp_path: Path) -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite")
    options = {"features": "crfsuite", "boundaries": False, "random_state": 0}
    model = SequenceTagger(loss, **options).fit(dictionaries(X), Y)
    write_crfsuite(model, tmp_path / "model")
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "model"))
    test = dictionaries(TEST)
    assert_same(tagger, model, test)


@pytest.mark.parametrize("algorithm", ["lbfgs", "pa", "l2sgd"])
def test_dualgap_predicts_the_same_with_a_model_of_crfsuite(algorithm: str, tmp_path: Path) -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite")
    trainer = pycrfsuite.Trainer(algorithm=algorithm, verbose=False)
    trainer.set_params({"max_iterations": 20})
    for sentence, labels in zip(dictionaries(X), Y, strict=True):
        trainer.append(sentence, labels)
    trainer.train(str(tmp_path / "model"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "model"))
    test = dictionaries(TEST)
    model = read_crfsuite(tmp_path / "model")
    assert_same(tagger, model, test)
    for sentence in test[:50]:
        labels, log_probability = model.predict_top_k([sentence], 1)[0][0]
        tagger.set(sentence)
        assert tagger.probability(labels) == pytest.approx(math.exp(log_probability))
    write_crfsuite(model, tmp_path / "again")
    again = pycrfsuite.Tagger()
    again.open(str(tmp_path / "again"))
    assert again.labels() == sorted(tagger.labels())
    assert_same(again, model, test)


def test_the_documented_parameters_give_the_model_of_crfsuite(tmp_path: Path) -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite")
    for c2, states, transitions in [(0.1, 0, 0), (1.0, 1, 0), (1.0, 0, 1)]:
        trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
        params = {"c1": 0.0, "c2": c2, "epsilon": 1e-9}
        params |= {"feature.possible_states": states, "feature.possible_transitions": transitions}
        trainer.set_params(params | {"delta": 1e-12, "max_iterations": 500})
        for sentence, labels in zip(X, Y, strict=True):
            trainer.append(sentence, labels)
        trainer.train(str(tmp_path / "model"))
        theirs = read_crfsuite(tmp_path / "model")
        model = SequenceTagger(
            "logistic",
            C=1 / (2 * c2),
            pairs="all" if states else "seen",
            transitions="all" if transitions else "seen",
            boundaries=False,
            tol=1e-8,
        ).fit(X, Y)
        ours = {**model.state_features_, **model.transition_features_}
        found = {**theirs.state_features_, **theirs.transition_features_}
        assert ours.keys() == found.keys()
        assert all(found[key] == pytest.approx(ours[key], abs=1e-3) for key in ours)


@pytest.mark.parametrize(("c1", "c2"), [(0.5, 0.0), (0.5, 0.5)])
def test_the_documented_l1_penalties_give_the_model_of_crfsuite(
    c1: float, c2: float, tmp_path: Path
) -> None:
    pycrfsuite = pytest.importorskip("pycrfsuite")
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    trainer.set_params({"c1": c1, "c2": c2, "epsilon": 1e-9, "delta": 1e-12})
    for sentence, labels in zip(X, Y, strict=True):
        trainer.append(sentence, labels)
    trainer.train(str(tmp_path / "model"))
    theirs = read_crfsuite(tmp_path / "model")
    penalty: dict[str, Any] = {"penalty": "l1", "C": 1 / c1}
    if c2 > 0:
        total = c1 + 2 * c2
        penalty = {"penalty": "elastic-net", "C": 1 / total, "l1_ratio": c1 / total}
    model = SequenceTagger("logistic", **penalty, **SAME, tol=1e-4).fit(X, Y)
    ours = {**model.state_features_, **model.transition_features_}
    found = {**theirs.state_features_, **theirs.transition_features_}
    for key in ours.keys() | found.keys():
        assert found.get(key, 0.0) == pytest.approx(ours.get(key, 0.0), abs=0.03)


def fit_tagger(**options: Any) -> SequenceTagger:
    return SequenceTagger(**{"boundaries": False, "random_state": 0, **options}).fit(X, Y)


def test_models_that_crfsuite_cannot_represent_are_rejected(tmp_path: Path) -> None:
    numbers = [[1 if label == "O" else 0 for label in labels] for labels in Y]
    cases = [
        (fit_tagger(boundaries=True), "^boundaries: CRFsuite has no boundary weights"),
        (fit_tagger(transitions="bio"), "^transitions: CRFsuite cannot forbid any"),
        (fit_tagger(transition_features=["w="]), "^transition_features: "),
        (fit_tagger(hash_bits=10), "^tagger: CRFsuite needs feature names"),
        (fit_tagger().fit([np.eye(2)], [["a", "b"]]), "^tagger: CRFsuite needs feature names"),
        (fit_tagger().fit(X, numbers), "^tagger: CRFsuite labels must be strings, got 0"),
        (fit_tagger().fit([[["a\0b"], ["c"]]], [["u", "v"]]), "cannot contain a zero character"),
    ]
    for model, message in cases:
        with pytest.raises(ValueError, match=message):
            write_crfsuite(model, tmp_path / "model")
        assert not (tmp_path / "model").exists()


def test_damaged_files_give_one_error(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_crfsuite(fit_tagger(), path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [b"", b"lCRF", b"x" * len(content), content[:-1], content[: len(content) // 2]]
    for _ in range(300):
        changed = bytearray(content)
        changed[int(rng.integers(8, len(content)))] = int(rng.integers(256))
        damaged.append(bytes(changed))
    n_errors = 0
    for each in damaged:
        path.write_bytes(each)
        try:
            read_crfsuite(path).predict(TEST[:3])
        except ValueError as error:
            assert str(error).startswith(f"{path}: not a model of CRFsuite")  # noqa: PT017
            n_errors += 1
    assert n_errors > 10


def test_the_guide_lists_every_parameter_of_sklearn_crfsuite() -> None:
    crfsuite = pytest.importorskip("sklearn_crfsuite")
    names = list(inspect.signature(crfsuite.CRF).parameters)
    guide = Path(__file__).parents[3] / "docs" / "coming-from" / "crfsuite.md"
    rows = [line for line in guide.read_text().splitlines() if line.startswith("|")]
    listed = " ".join(row.split("|")[1] for row in rows)
    assert [name for name in names if f"`{name}`" not in listed] == []
