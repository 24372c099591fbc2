"""Labels that NumPy would merge or change stay distinct or raise an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fitted import FITS, LABELS
from sklearn.base import clone

from dualgap import ClassFeatureSVC
from dualgap._validation.labels import sorted_classes
from dualgap.distributed import ConsensusSVC
from dualgap.distributed._partition import make_part, summarize

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Estimators without class labels: their targets are numbers, label sets or pairs.
UNNAMED = {"pn-regressor", "fm-regressor", "multilabel", "matching"}
LABELLED = [name for name in FITS if name not in UNNAMED and not name.startswith("recommender")]
FLAT = [name for name in LABELLED if FITS[name][2] is LABELS]
SEQUENCES = [name for name in LABELLED if name not in FLAT]

BIG = 2**53
EXACT: dict[str, list[Any]] = {
    "integers beyond floating point": [BIG, BIG + 1, BIG + 2],
    "unsigned integers": [2**63, 2**63 + 1, 2**64 - 1],
    "smallest and largest": [-(2**63), 0, 2**63 - 1],
    "integers and floats": [0, 1.0, 2],
    "NUL inside": ["a", "a\0a", "a\0b"],
    "empty string": ["", "a", "b"],
}
MERGED_LABELS: dict[str, tuple[list[Any], str]] = {
    "NUL at the end": (["a", "a\0", "b"], r"'a\\x00' ends with a NUL"),
    "bytes": ([b"a", b"a\0", b"b"], "must not be bytes"),
    "numbers and strings": ([1, "a", "b"], "one kind, got .*1.*'a'|one kind, got .*'a'.*1"),
    "booleans and numbers": ([True, 2, 3], "one kind"),
    "bytes and strings": ([b"a", "a", "b"], "one kind"),
    "signed and unsigned": ([-1, 2**63, 2**63 + 1], "int64 nor uint64"),
    "scalars of NumPy": ([np.int64(-1), np.uint64(2**63), np.int64(1)], "int64 nor uint64"),
    "no integer of NumPy": ([0, 1, 2**70], "int64 nor uint64"),
    "integers that floats skip": ([BIG + 1, BIG, 0.5], "float64"),
    "NaN": ([0.0, 1.0, np.nan], "missing or infinite"),
    "NaN among strings": (["a", "b", np.nan], "missing or infinite"),
    "None": (["a", "b", None], "missing or infinite"),
    "NA": (["a", "b", pd.NA], "missing or infinite"),
    "infinity": ([0.0, 1.0, np.inf], "missing or infinite"),
}


def objects(labels: list[Any]) -> Any:
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array


def targets_with_labels(name: str, values: list[Any], container: Any = list) -> Any:
    """Return the targets of a fit with these three labels instead."""
    y = FITS[name][2]
    if name in FLAT:
        return container([values[code] for code in LABELS])
    place: dict[Any, int] = {}
    for sequence in y:
        for label in sequence:
            place.setdefault(label, len(place) % 3)
    return [[values[place[label]] for label in sequence] for sequence in y]


@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("name", LABELLED)
def test_labels_that_numpy_would_merge_stay_distinct(name: str, case: str) -> None:
    estimator, X, _ = FITS[name]
    values = EXACT[case]
    model = clone(estimator).fit(X, targets_with_labels(name, values))
    assert model.classes_.tolist() == sorted(values)
    found = model.predict(X)
    assert {label for each in found for label in (each if name in SEQUENCES else [each])} <= set(
        values
    )
    assert model.score(X, targets_with_labels(name, values)) > 0.3


@pytest.mark.parametrize("case", MERGED_LABELS)
@pytest.mark.parametrize("name", LABELLED)
def test_labels_that_cannot_stay_distinct_are_rejected(name: str, case: str) -> None:
    if case == "None" and name.startswith("tagger"):
        pytest.skip("a label that is not known; see tests/python/sequence/test_partial.py")
    estimator, X, _ = FITS[name]
    values, message = MERGED_LABELS[case]
    for container in [list, objects, pd.Series] if name in FLAT else [list]:
        if container is pd.Series and case == "integers that floats skip":
            continue  # pandas converts them to equal numbers.
        with pytest.raises(ValueError, match=f"^[yY]: .*({message})"):
            clone(estimator).fit(X, targets_with_labels(name, values, container))
    fitted = clone(estimator).fit(X, targets_with_labels(name, ["a", "b", "c"]))
    with pytest.raises(ValueError, match=f"^[yY]: .*({message})"):
        fitted.score(X, targets_with_labels(name, values))


@pytest.mark.parametrize("name", LABELLED)
def test_complex_labels_are_rejected(name: str) -> None:
    estimator, X, _ = FITS[name]
    y = targets_with_labels(name, [1.0, 2.0, 3.0])
    y = np.array(y) + 1j if name in FLAT else [np.array(each) + 1j for each in y]
    with pytest.raises(ValueError, match=r"[cC]omplex"):
        clone(estimator).fit(X, y)


@pytest.mark.parametrize("name", SEQUENCES)
def test_label_arrays_of_incompatible_types_are_rejected(name: str) -> None:
    """Reject labels of int64 and uint64 together, and numbers together with text.

    NumPy's common type of int64 and uint64 is float64, in which different large labels are equal.
    """
    estimator, X, _ = FITS[name]
    signed = targets_with_labels(name, [-1, 0, 1])
    arrays = [np.array(y, dtype=np.int64) for y in signed]
    assert clone(estimator).fit(X, arrays).classes_.tolist() == [-1, 0, 1]
    arrays[0] = np.full(len(arrays[0]), 2**63, dtype=np.uint64)
    with pytest.raises(ValueError, match="int64 nor uint64"):
        clone(estimator).fit(X, arrays)
    arrays[0] = np.full(len(arrays[0]), "a")
    with pytest.raises(ValueError, match="one kind"):
        clone(estimator).fit(X, arrays)


@pytest.mark.parametrize("name", ["chain", "structured-classes", "tagger"])
def test_labels_of_another_type_are_compared_exactly(name: str) -> None:
    estimator, X, _ = FITS[name]
    model = clone(estimator).fit(X, targets_with_labels(name, [BIG, BIG + 1, BIG + 2]))
    right = model.predict(X)
    if name == "structured-classes":
        unsigned: Any = np.array(right, dtype=np.uint64)
        shifted: Any = unsigned + np.uint64(3)
    else:
        unsigned = [np.array(y, dtype=np.uint64) for y in right]
        shifted = [y + np.uint64(3) for y in unsigned]
    assert model.score(X, unsigned) == 1.0
    assert model.score(X, shifted) == 0.0


def test_names_of_classes_with_features_are_compared_exactly() -> None:
    model = ClassFeatureSVC(np.eye(3), classes=["a", "a\0", "b"])
    with pytest.raises(ValueError, match=r"^classes: .*NUL"):
        model.fit(FITS["svc"][1], np.array(["a", "b"])[LABELS % 2])
    model = ClassFeatureSVC(np.eye(3), classes=[BIG, BIG + 1, BIG + 2], tol=0.1)
    model.fit(FITS["svc"][1], [[BIG, BIG + 1, BIG + 2][code] for code in LABELS])
    with pytest.raises(ValueError, match=r"^y: the label 9007199254740995 is not among"):
        model.fit(FITS["svc"][1], [BIG + 3 - code for code in LABELS])


def test_labels_of_partitions_are_merged_exactly_or_rejected() -> None:
    def merge_labels(*labels: Any) -> Any:
        parts = [make_part(np.eye(3), y, None, "a partition") for y in labels]
        model = ConsensusSVC()
        model._merge([summarize(part, False) for part in parts])
        return model.classes_.tolist()

    large = np.array([2**63, 2**63 + 1, 2**64 - 1], dtype=np.uint64)
    assert merge_labels(np.arange(3), large) == [0, 1, 2, *large.tolist()]
    with pytest.raises(ValueError, match="int64 nor uint64"):
        merge_labels(np.arange(3) - 1, large)
    with pytest.raises(ValueError, match="one kind"):
        merge_labels(np.arange(3), ["a", "b", "c"])


@pytest.mark.parametrize("dtype", [bool, "int8", "uint8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("shift", [0, -128, 3, 2**62, -(2**63), 2**63 - 200])
def test_counting_and_sorting_find_the_same_classes(dtype: Any, shift: int) -> None:
    numbers = np.random.default_rng(0).choice([0, 1, 5, 60, 127], size=(40, 5))
    if np.dtype(dtype).kind != "b" and not (
        np.iinfo(dtype).min <= shift and shift + 127 <= np.iinfo(dtype).max
    ):
        pytest.skip("the type does not have these numbers")
    labels = np.array([int(number) + shift for number in numbers.ravel()], dtype=object)
    labels = labels.astype(dtype).reshape(numbers.shape)
    classes, codes = sorted_classes("y", labels)
    expected, places = np.unique(labels, return_inverse=True)
    assert classes.dtype == labels.dtype
    assert codes.dtype == np.intp
    assert np.array_equal(classes, expected)
    assert np.array_equal(codes, places.reshape(labels.shape))
