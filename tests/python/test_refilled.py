"""User functions and iterators may write each result to the same memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fitted import LABELS, ROWS, SENTENCES, TAGS, WORD_LABELS, WORDS
from sklearn.base import clone
from sklearn.metrics import accuracy_score

from dualgap import (
    Chunks,
    ClassFeatureSVC,
    LogisticRegressionCV,
    MulticlassSVC,
    MulticlassSVCCV,
    PolynomialNetworkClassifier,
    PolynomialNetworkClassifierCV,
)
from dualgap.multiclass import _class_features
from dualgap.sequence import SequenceTagger
from dualgap.structured import StructuredCV, StructuredSVM

N_CLASSES = 3
X, Y = list(ROWS), LABELS.tolist()


class Fresh:
    """A multi-class model whose labels are lists with one number.

    Its methods return new objects, except that a method named in `refilled` fills the object given
    there and returns it.
    """

    def __init__(self, **refilled: Any) -> None:
        self.refilled = refilled

    def answer(self, name: str, value: Any) -> Any:
        """Return the value, or write it into the reused object and return that."""
        kept = self.refilled.get(name)
        if kept is None:
            return value
        if isinstance(kept, list):
            kept[:] = value
        else:
            kept[...] = value
        return kept

    def joint_features(self, x: Any, y: Any) -> Any:
        found = np.zeros((N_CLASSES, len(x)))
        found[y[0]] = x
        return self.answer("joint_features", found.ravel())

    def loss(self, y_true: Any, y: Any) -> Any:
        return self.answer("loss", float(y_true[0] != y[0]))

    def max_loss(self, y: Any) -> Any:
        return self.answer("max_loss", 1.0 + y[0])

    def _scores(self, x: Any, w: Any) -> Any:
        return w.reshape(N_CLASSES, -1) @ x

    def loss_augmented_decode(self, x: Any, y_true: Any, w: Any) -> Any:
        scores = self._scores(x, w) + (np.arange(N_CLASSES) != y_true[0])
        return self.answer("loss_augmented_decode", [int(scores.argmax())])

    def decode(self, x: Any, w: Any) -> Any:
        return self.answer("decode", [int(self._scores(x, w).argmax())])


REFILLED: dict[str, Any] = {
    "joint_features": lambda: np.zeros(N_CLASSES * ROWS.shape[1]),
    "max_loss": lambda: np.zeros(()),
    "loss_augmented_decode": lambda: [0],
    "decode": lambda: [0],
    "decode of arrays": lambda: np.zeros(1, dtype=np.int64),
}


@pytest.mark.parametrize("case", REFILLED)
def test_models_may_reuse_the_memory_of_their_results(case: str) -> None:
    labels = [[y] for y in Y]
    expected = StructuredSVM(Fresh(), random_state=0).fit(X, labels)
    own = Fresh(**{case.split()[0]: REFILLED[case]()})
    found = StructuredSVM(own, random_state=0).fit(X, labels)
    assert (found.objective_, found.dual_objective_) == (
        expected.objective_,
        expected.dual_objective_,
    )
    assert found.certificate_ == expected.certificate_
    assert [int(y[0]) for y in found.predict(X)] == [y[0] for y in expected.predict(X)]
    assert found.score(X, labels) == expected.score(X, labels)
    paths = [StructuredSVM(own, random_state=0).path(X, labels, 0.1, 0.2) for own in (own, Fresh())]
    assert [piece.score(X, labels) for piece in paths[0]] == [
        piece.score(X, labels) for piece in paths[1]
    ]


def test_losses_of_models_must_be_numbers() -> None:
    labels = [[y] for y in Y]
    with pytest.raises(ValueError, match="loss"):
        StructuredSVM(Fresh(loss=np.zeros(()))).fit(X, labels)


class OwnHinge:
    """The max hinge of three classes. If `refilled` is given, all points are written to it."""

    def __init__(self, refilled: Any = None) -> None:
        self.refilled = refilled

    def support(self, margins: Any, label: int) -> Any:
        return max(0.0, float(margins.max()))

    def vertex(self, margins: Any, label: int) -> Any:
        point = np.zeros(N_CLASSES) if self.refilled is None else self.refilled
        point[...] = 0.0
        if margins.max() > 0.0:
            point[margins.argmax()] = 1.0
        return point


def test_losses_may_reuse_the_memory_of_their_results() -> None:
    expected = MulticlassSVC(OwnHinge(), tol=0.05, random_state=0).fit(ROWS, LABELS)
    found = MulticlassSVC(OwnHinge(np.zeros(N_CLASSES)), tol=0.05, random_state=0)
    found.fit(ROWS, LABELS)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    assert found.certificate_ == expected.certificate_


@pytest.mark.parametrize("sparse", [False, True])
def test_joint_features_may_reuse_memory_and_write_to_arguments(
    sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small blocks, so that several are needed.
    monkeypatch.setattr(_class_features, "_BLOCK", 20)

    def joint(block: Any, classes: Any) -> Any:
        pairs = [np.kron(np.eye(N_CLASSES)[j], x) for x in block for j in range(len(classes))]
        return sp.csr_array(np.array(pairs)) if sparse else np.array(pairs)

    kept = joint(ROWS[:20], np.arange(N_CLASSES))

    def refilled(block: Any, classes: Any) -> Any:
        new = joint(block, classes)
        if sparse:
            kept.data[:], kept.indices[:], kept.indptr[:] = new.data, new.indices, new.indptr
        else:
            kept[...] = new
        # User functions may also write to their arguments.
        classes[...] = 0
        return kept

    models = [ClassFeatureSVC(own, tol=0.01, random_state=0) for own in (joint, refilled)]
    expected, found = (model.fit(ROWS, LABELS) for model in models)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.predict(ROWS), expected.predict(ROWS))


class Folds:
    """A splitter that yields the same two arrays for each fold, with new values."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Any]:
        train, test = np.zeros(40, np.intp), np.zeros(20, np.intp)
        for fold in range(3):
            test[:] = np.arange(20) * 3 + fold
            train[:] = np.setdiff1d(np.arange(60), test)
            yield train, test

    def get_n_splits(self, *_: Any) -> int:
        return 3


class ListedFolds(Folds):
    def split(self, *arguments: Any) -> Any:
        return [(train.copy(), test.copy()) for train, test in super().split(*arguments)]


def make_scorer(kept: Any) -> Any:
    def score(model: Any, X: Any, y: Any) -> Any:
        kept[...] = accuracy_score(y, model.predict(X))
        return kept if kept.ndim == 0 else float(kept[0])

    return score


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "search",
    [
        LogisticRegressionCV(Cs=[0.01, 1.0], random_state=0),
        MulticlassSVCCV(Cs=[0.01, 1.0], random_state=0),
        PolynomialNetworkClassifierCV([1.0, 10.0], n_components=2, max_iter=3, random_state=0),
    ],
)
def test_splitters_and_scorers_may_reuse_memory(search: Any) -> None:
    expected = clone(search).set_params(cv=ListedFolds(), scoring=make_scorer(np.zeros(1)))
    found = clone(search).set_params(cv=Folds(), scoring=make_scorer(np.zeros(())))
    for model in (expected, found):
        model.fit(ROWS, LABELS)
    (name,) = {"scores_", "cv_scores_"} & vars(found).keys()
    np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_splitters_of_structured_searches_may_reuse_memory() -> None:
    svm = StructuredSVM(Fresh(), random_state=0)
    labels = [[y] for y in Y]
    expected = StructuredCV(svm, [0.1, 1.0], cv=ListedFolds()).fit(X, labels)
    found = StructuredCV(svm, [0.1, 1.0], cv=Folds()).fit(X, labels)
    np.testing.assert_array_equal(found.scores_, expected.scores_)


def refilled_pieces(sparse: bool) -> Iterator[Any]:
    rows = sp.csr_array(np.ones((20, 4))) if sparse else np.zeros((20, 4))
    targets = np.zeros(20, dtype=np.int64)
    for start in range(0, 60, 20):
        if sparse:
            rows.data[:] = ROWS[start : start + 20].ravel()
        else:
            rows[...] = ROWS[start : start + 20]
        targets[:] = LABELS[start : start + 20]
        yield rows, targets


@pytest.mark.parametrize("sparse", [False, True])
def test_chunks_in_reused_memory_are_copied_to_files_or_rejected(
    sparse: bool, tmp_path: Any
) -> None:
    with pytest.raises(ValueError, match=r"^chunks: piece 1 reuses the memory of piece 0"):
        Chunks(rows for rows, _ in refilled_pieces(sparse))
    with pytest.raises(ValueError, match=r"^chunks: piece 1 reuses the memory of piece 0"):
        Chunks.from_pairs(refilled_pieces(sparse))
    # Each piece is copied to a file.
    chunks, y = Chunks.from_pairs(refilled_pieces(sparse), spill=tmp_path)
    np.testing.assert_array_equal(y, LABELS)
    read = [rows.toarray() if sparse else rows for rows in chunks.chunks]
    np.testing.assert_array_equal(np.concatenate(read), ROWS)
    # The pieces of a list exist at the same time, so one may occur twice.
    assert Chunks([ROWS, ROWS]).shape == (120, 4)
    # Parts of one array do not overlap.
    parts = Chunks(ROWS[start : start + 20] for start in range(0, 60, 20))
    model = PolynomialNetworkClassifier(2, max_iter=2, tol=1.0, random_state=0).fit(parts, LABELS)
    assert model.predict(ROWS).shape == (60,)


@pytest.mark.parametrize(
    ("lengths", "piece"), [((20, 19, 21), 1), ((21, 20, 19), 0), ((20, 20, 0), 2)]
)
def test_each_piece_of_rows_must_have_the_same_number_of_targets(lengths: Any, piece: int) -> None:
    ends = np.cumsum([0, *lengths])
    pairs = [
        (ROWS[20 * at : 20 * at + 20], LABELS[ends[at] : ends[at + 1]])
        for at in range(len(lengths))
    ]
    for given in (pairs, iter(pairs)):
        with pytest.raises(ValueError, match=rf"^pairs: pair {piece} has 20 rows but targets of"):
            Chunks.from_pairs(given)


def refilled_sequences(sequences: Any) -> Iterator[Any]:
    kept: list[Any] = []
    for sequence in sequences:
        kept[:] = sequence
        yield kept


def test_sentences_and_labels_may_reuse_memory() -> None:
    tagger = SequenceTagger(random_state=0, C=1.0)
    expected = clone(tagger).fit(SENTENCES, TAGS)
    found = clone(tagger).fit(refilled_sequences(SENTENCES), refilled_sequences(TAGS))
    assert found.objective_ == expected.objective_
    assert found.predict(refilled_sequences(SENTENCES)) == expected.predict(SENTENCES)

    def matrices() -> Iterator[Any]:
        kept = np.zeros(WORDS[0].shape)
        for word in WORDS:
            kept[...] = word
            yield kept

    def label_arrays() -> Iterator[Any]:
        kept = np.zeros(3, dtype=np.int64)
        for word in WORD_LABELS:
            kept[...] = word
            yield kept

    expected = clone(tagger).fit(WORDS, WORD_LABELS)
    found = clone(tagger).fit(matrices(), label_arrays())
    assert found.objective_ == expected.objective_
    assert found.predict(matrices()) == expected.predict(WORDS)


def test_searches_over_sequences_that_reuse_memory_have_the_same_scores() -> None:
    search = StructuredCV(SequenceTagger(random_state=0), [0.1, 1.0], cv=2)
    expected = clone(search).fit(SENTENCES, TAGS)
    found = clone(search).fit(refilled_sequences(SENTENCES), refilled_sequences(TAGS))
    np.testing.assert_array_equal(found.scores_, expected.scores_)


class Tag:
    """A user-defined label."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tag) and self.place == other.place

    def __hash__(self) -> int:
        return hash(self.place)


class Tagged(Fresh):
    """Labels are objects: always new, one per class, or a single one that is overwritten."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.tags = [Tag(place) for place in range(N_CLASSES)]

    def tag(self, place: int) -> Tag:
        if self.kind == "new":
            return Tag(place)
        if self.kind == "refilled":
            self.tags[0].place = place
            return self.tags[0]
        return self.tags[place]

    def joint_features(self, x: Any, y: Any) -> Any:
        return super().joint_features(x, [y.place])

    def loss(self, y_true: Any, y: Any) -> Any:
        return super().loss([y_true.place], [y.place])

    def max_loss(self, y: Any) -> Any:
        return 1.0

    def loss_augmented_decode(self, x: Any, y_true: Any, w: Any) -> Any:
        return self.tag(super().loss_augmented_decode(x, [y_true.place], w)[0])

    def decode(self, x: Any, w: Any) -> Any:
        return self.tag(super().decode(x, w)[0])


@pytest.mark.parametrize("kind", ["new", "same", "refilled"])
def test_label_objects_that_a_decoder_changes_later_are_errors(kind: str) -> None:
    labels = [Tag(y) for y in Y]
    model = StructuredSVM(Tagged(kind), random_state=0).fit(X, labels)
    if kind == "refilled":
        for method in (lambda: model.predict(X), lambda: model.score(X, labels)):
            with pytest.raises(ValueError, match=r"^model: decode: item \d+ is an earl"):
                method()
        return
    assert np.mean([a == b for a, b in zip(model.predict(X), labels, strict=True)]) > 0.6
    given = map(Tagged(kind).tag, Y)
    search = StructuredCV(StructuredSVM(Tagged(kind)), Cs=[0.1, 1.0], cv=2).fit(iter(X), given)
    assert search.best_score_ > 0.5


def test_label_objects_that_an_iterator_changes_later_are_errors() -> None:
    given = map(Tagged("refilled").tag, Y)
    with pytest.raises(ValueError, match=r"^y: item \d+ is an earlier Tag"):
        StructuredCV(StructuredSVM(Tagged("new")), Cs=[0.1], cv=2).fit(iter(X), given)
