"""Sparse matrices with invalid indices raise an error in every method of every estimator.

SciPy's compiled code would follow the indices and read beyond its arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fitted import CLASSES, FITS, LABELS, RATINGS, ROWS, SENTENCES, SETS, TAGS, WORD_LABELS, WORDS
from sklearn.base import clone

import dualgap
from dualgap._sparse import check_sparse
from dualgap.recommend import OrdinalRecommender, Variational
from dualgap.sequence import SequenceTagger
from dualgap.structured import ChainModel, MulticlassModel, StructuredCV, StructuredSVM

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
INCONSISTENT = "sparse matrix are inconsistent"


def wide(X: Any) -> Any:
    """Return the matrix with 64-bit indices, which can hold any number."""
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def set_index(value: int) -> Callable[[Any], Any]:
    def change(X: Any) -> Any:
        X = wide(X)
        X.indices[1] = value
        return X

    return change


def set_offset(at: int, value: int) -> Callable[[Any], Any]:
    def change(X: Any) -> Any:
        X.indptr[at] = value
        return X

    return change


CHANGES: dict[str, Callable[[Any], Any]] = {
    "one-beyond": lambda X: set_index(X.shape[1])(X),
    "negative": set_index(-1),
    "largest": set_index(2**31 - 1),
    "wrapped": set_index(2**32 + 1),
    "wrapped-negative": set_index(-(2**32) + 1),
    "falling": set_offset(1, 10**6),
    "beyond": set_offset(-1, 10**6),
    "start": set_offset(0, -1),
}


def sparse(rows: Any) -> Any:
    return sp.csr_matrix(np.where(np.abs(rows) > 0.3, rows, 0.0))


def make_invalid(change: str, rows: Any = ROWS, kind: type = sp.csr_matrix) -> Any:
    return CHANGES[change](kind(sparse(rows)))


def calls(model: Any, first: Any, rest: dict[str, Any]) -> Iterator[Callable[[], Any]]:
    """Yield calls of all public methods that take rows, with these rows as the argument."""
    for name in dir(model):
        method = None if name.startswith("_") else getattr(model, name, None)
        if not inspect.ismethod(method) or name.startswith(("set_", "get_", "load")):
            continue
        taken = inspect.signature(method).parameters
        if "X" in taken:
            given = {key: value for key, value in rest.items() if key in taken}
            yield lambda method=method, given=given: list(method(first, **given))


# Recommenders are excluded because they have no rows of features, and matchings because their
# arrays have three axes.
LINEAR = [name for name, (_, X, y) in FITS.items() if X is ROWS and len(y) == len(ROWS)]
REST = {"k": 1, "C_min": 0.1, "C_max": 0.2, "Cs": np.array([0.1])}


@pytest.fixture(scope="module", params=LINEAR)
def model(request: pytest.FixtureRequest) -> Any:
    estimator, X, y = FITS[request.param]
    return clone(estimator).fit(sparse(X), y)


@pytest.mark.parametrize("change", CHANGES)
def test_rows_are_rejected_by_every_method(model: Any, change: str) -> None:
    y = LABELS if not isinstance(model, StructuredSVM) or model.coef_.size < 20 else SETS
    tried = 0
    for call in calls(model, make_invalid(change), {**REST, "y": y}):
        with pytest.raises(ValueError, match=INCONSISTENT):
            call()
        tried += 1
    assert tried >= 3


@pytest.mark.parametrize("change", CHANGES)
def test_sequences_are_rejected_by_every_method(change: str) -> None:
    bad = [*map(sparse, WORDS[1:]), make_invalid(change, WORDS[0])]
    chain = StructuredSVM(ChainModel(), C=0.1).fit(list(map(sparse, WORDS)), WORD_LABELS)
    tagger = SequenceTagger("logistic", C=1.0, tol=1e-2).fit(list(map(sparse, WORDS)), WORD_LABELS)
    for model in (chain, tagger):
        for call in calls(model, bad, {**REST, "y": WORD_LABELS}):
            with pytest.raises(ValueError, match=INCONSISTENT):
                call()
    with pytest.raises(ValueError, match=INCONSISTENT):
        tagger.explain(bad[-1], WORD_LABELS[0])
    stacked, flat = make_invalid(change, np.vstack(WORDS)), np.concatenate(WORD_LABELS)
    rest = {"lengths": [3] * len(WORDS), "y": flat, **REST}
    for call in calls(tagger, stacked, rest):
        if "lengths" in inspect.signature(call.__defaults__[0]).parameters:  # type: ignore[attr-defined]
            with pytest.raises(ValueError, match=INCONSISTENT):
                call()


class Own:
    """A user-defined multi-class model."""

    def joint_features(self, x: Any, y: int) -> Any:
        return np.outer(np.arange(3) == y, x.toarray()).ravel()

    def loss(self, y_true: int, y: int) -> float:
        return float(y_true != y)

    def loss_augmented_decode(self, x: Any, y_true: int, w: Any) -> int:
        scores = [self.loss(y_true, y) + self.joint_features(x, y) @ w for y in range(3)]
        return int(np.argmax(scores))

    def decode(self, x: Any, w: Any) -> int:
        return int(np.argmax([self.joint_features(x, y) @ w for y in range(3)]))


@pytest.mark.parametrize("change", CHANGES)
def test_all_other_entry_points_reject_invalid_matrices(change: str) -> None:
    bad = make_invalid(change)
    networks = dualgap.PolynomialNetworkClassifier(3, tol=0.1, random_state=0)
    networks.fit(*CLASSES)
    own = StructuredSVM(Own(), C=0.1).fit(sparse(ROWS), LABELS)
    search = StructuredCV(StructuredSVM(MulticlassModel()), Cs=[0.1], cv=2)
    classes = sparse(np.eye(3)[:, :2])
    shared = dualgap.ClassFeatureSVC(classes, tol=0.01).fit(*CLASSES)
    bad_classes = make_invalid(change, np.eye(3)[:, :2] + 1.0)
    joint = dualgap.ClassFeatureSVC(lambda X, c: make_invalid(change, np.repeat(X, 3, axis=0)))
    recommender = OrdinalRecommender(method=Variational(n_models=1, max_iter=2))
    ratings = sp.csr_matrix(
        (RATINGS["rating"].to_numpy(), (RATINGS["user"].to_numpy(), RATINGS["item"].to_numpy()))
    )
    bad_ratings = CHANGES[change](ratings.copy())
    doors: list[Callable[[], Any]] = [
        lambda: dualgap.Chunks([sparse(ROWS), bad]),
        lambda: dualgap.Chunks.from_pairs([(bad, LABELS)]),
        lambda: clone(networks).fit(*CLASSES, validation_data=(bad, LABELS)),
        lambda: dualgap.ClassFeatureSVC(bad_classes).fit(*CLASSES),
        lambda: shared.predict(ROWS, bad_classes),
        lambda: joint.fit(*CLASSES),
        lambda: own.predict(bad),
        lambda: clone(own).fit(bad, LABELS),
        lambda: search.fit(bad, LABELS),
        lambda: StructuredSVM(FITS["multilabel"][0].model).fit(ROWS, CHANGES[change](sparse(SETS))),
        lambda: recommender.fit(bad_ratings),
        lambda: recommender.fit(RATINGS, user_features=make_invalid(change, ROWS[:30])),
        lambda: recommender.fit(ratings, item_features=make_invalid(change, ROWS[:20])),
        lambda: recommender.fit(ratings).evaluate(bad_ratings),
        lambda: recommender.score(bad_ratings),
        lambda: recommender.fold_in(bad_ratings, side="users"),
    ]
    for door in doors:
        with pytest.raises(ValueError, match=INCONSISTENT):
            door()


@pytest.mark.parametrize("kind", [sp.csc_matrix, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("change", CHANGES)
def test_other_formats_are_rejected(change: str, kind: type) -> None:
    turned = kind(sparse(np.eye(6)))
    with pytest.raises(ValueError, match=INCONSISTENT):
        dualgap.MulticlassSVC().fit(*CLASSES).predict(CHANGES[change](turned))


def blocks() -> Any:
    X = sp.bsr_matrix(np.kron(np.eye(3), np.ones((2, 2))))
    X.indices[0] = 3
    return X


def coordinates() -> Any:
    X = sp.coo_matrix(np.eye(4))
    X.col[0] = 4
    return X


def lists() -> Any:
    X = sp.lil_matrix(np.eye(4))
    X.rows[0] = [4]
    return X


def uneven_lists() -> Any:
    X = sp.lil_matrix(np.eye(4))
    X.rows[0] = [0, 1, 2]
    return X


def reals() -> Any:
    X = sp.csr_matrix(np.eye(4))
    X.indices = X.indices.astype(float)
    return X


def diagonals() -> Any:
    X = sp.dia_matrix(np.eye(4))
    X.offsets = np.arange(5, dtype=np.int32)
    return X


def repeated_diagonals() -> Any:
    X = sp.dia_matrix((np.ones((2, 4)), [0, 1]), shape=(4, 4))
    X.offsets = np.zeros(2, dtype=np.int32)
    return X


def missing_lists() -> Any:
    X = sp.lil_matrix(np.eye(4))
    X.rows = X.rows[:2]
    return X


def values_in_a_table() -> Any:
    X = sp.csr_matrix(np.eye(4))
    X.data = X.data[:, np.newaxis]
    return X


def values_in_a_list() -> Any:
    X = sp.csr_matrix(np.eye(4))
    X.data = X.data.tolist()
    return X


@pytest.mark.parametrize(
    "make",
    [
        blocks,
        coordinates,
        lists,
        uneven_lists,
        missing_lists,
        reals,
        diagonals,
        repeated_diagonals,
        values_in_a_table,
        values_in_a_list,
    ],
)
def test_formats_that_are_not_compressed_are_rejected(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="the sparse matrix"):
        check_sparse(make(), "X")


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
def test_valid_matrices_of_all_formats_are_accepted(kind: str) -> None:
    X = sparse(ROWS).asformat(kind)
    expected = dualgap.MulticlassSVC(random_state=0).fit(sparse(ROWS), LABELS).predict(sparse(ROWS))
    found = dualgap.MulticlassSVC(random_state=0).fit(X, LABELS).predict(X)
    assert (found == expected).all()
    np.testing.assert_array_equal(check_sparse(X).toarray(), X.toarray())


@pytest.mark.parametrize("offset", [4, -4, 2**32, -(2**40)])
def test_diagonals_outside_the_matrix_are_ignored(offset: int) -> None:
    X = sp.dia_matrix((np.ones((2, 4)), [0, 1]), shape=(4, 4))
    X.offsets = np.array([0, offset])
    np.testing.assert_array_equal(check_sparse(X).toarray(), np.eye(4))


def test_strided_arrays_are_read() -> None:
    X, strided = sparse(ROWS), sparse(ROWS)
    strided.data, strided.indices = np.repeat(X.data, 2)[::2], np.repeat(X.indices, 2)[::2]
    for model in (dualgap.MulticlassSVC(random_state=0), dualgap.PolynomialNetworkClassifier(2)):
        found = clone(model).fit(strided, LABELS).predict(strided)
        np.testing.assert_array_equal(found, clone(model).fit(X, LABELS).predict(X))


def test_memory_after_the_last_entry_is_not_read() -> None:
    X, roomy = sparse(ROWS), sparse(ROWS)
    roomy.indices = np.append(X.indices, np.int32(9999))
    roomy.data = np.append(X.data, 9999.0)
    for model in (dualgap.MulticlassSVC(random_state=0), dualgap.PolynomialNetworkClassifier(2)):
        fitted = clone(model).fit(X, LABELS)
        np.testing.assert_array_equal(fitted.predict(roomy), fitted.predict(X))


def test_sentences_of_feature_names_are_not_read_as_matrices() -> None:
    tagger = SequenceTagger("logistic", C=1.0, tol=1e-2).fit(SENTENCES, TAGS)
    assert tagger.predict(SENTENCES[:1]) == [TAGS[0]]
