"""Arrays of every layout and type: the same model, or an error that names the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fitted import FITS
from sklearn.base import clone
from sklearn.datasets import load_iris

from dualgap import LogisticRegression, _validation

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ARRAYS = {
    name: fit
    for name, fit in FITS.items()
    if not name.startswith(("tagger", "recommender")) and isinstance(fit[1], np.ndarray)
}
SEQUENCES = {name: fit for name, fit in FITS.items() if name in ("chain", "matching")}


def small(estimator: Any) -> Any:
    model = clone(estimator)
    return model.set_params(max_iter=10) if "max_iter" in model.get_params() else model


def strided(array: Any) -> Any:
    wide = np.zeros([2 * side for side in array.shape], array.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def frozen(array: Any) -> Any:
    copied = array.copy()
    copied.setflags(write=False)
    return copied


def unaligned(array: Any) -> Any:
    shifted = np.frombuffer(b"?" + array.tobytes(), dtype=np.uint8)[1:]
    return shifted.view(array.dtype).reshape(array.shape)


class Subclass(np.ndarray):
    """A user-defined subclass of arrays."""


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "strided": strided,
    "backwards": lambda array: array[::-1].copy()[::-1],
    "read-only": frozen,
    "Fortran": np.asfortranarray,
    "byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    "unaligned": unaligned,
    "subclass": lambda array: array.view(Subclass),
    "without masked entries": np.ma.array,
    "objects": lambda array: array.astype(object),
    "list": lambda array: array.tolist(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ARRAYS | SEQUENCES)
def test_layouts_do_not_change_the_model(name: str, layout: str) -> None:
    estimator, X, y = FITS[name]
    change = LAYOUTS[layout]
    expected = small(estimator).fit(X, y)
    rows = change(X) if isinstance(X, np.ndarray) else [change(x) for x in X]
    found = small(estimator).fit(rows, change(y) if isinstance(y, np.ndarray) else y)
    for attribute in ("objective_", "best_score_"):
        assert getattr(found, attribute, None) == getattr(expected, attribute, None)


def masked(array: Any) -> Any:
    return np.ma.array(array, mask=np.arange(array.size).reshape(array.shape) % 7 == 0)


INVALID_ROWS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "masked": (masked, ValueError, "has masked entries"),
    "dates": (lambda array: array.astype("M8[s]"), TypeError, "must be numbers, got datetime64"),
    "days": (lambda array: array.astype("m8[D]"), TypeError, "must be numbers, got timedelta64"),
    "generator": (lambda array: (row for row in array), TypeError, "must be an array, got gener"),
    "dictionary": (lambda array: {0: array}, TypeError, "must be an array, got dict"),
    "text": (lambda array: array.astype(str), ValueError, "must be numbers, got strings"),
    "bytes": (lambda array: array.astype("S9"), ValueError, "must be numbers, got strings"),
    "lists of text": (
        lambda array: array.astype(str).tolist(),
        ValueError,
        "must be numbers, got strings",
    ),
    "object": (lambda array: object(), TypeError, "must be an array, got object"),
}


@pytest.mark.parametrize("kind", INVALID_ROWS)
@pytest.mark.parametrize("name", ARRAYS)
def test_errors_of_rows_that_are_not_numeric_name_the_argument(name: str, kind: str) -> None:
    estimator, X, y = FITS[name]
    change, error, message = INVALID_ROWS[kind]
    if name in ("multilabel", "structured-classes") and "array" in message:
        error, message = Exception, "(must be a|there must be one label)"
    with pytest.raises(error, match=f"^[Xy]: .*{message}"):
        small(estimator).fit(change(X), y)
    model = small(estimator).fit(X, y)
    with pytest.raises(error, match=f"^X: .*{message}"):
        model.predict(change(X))


@pytest.mark.parametrize("name", SEQUENCES)
def test_masked_entries_of_sequences_are_rejected(name: str) -> None:
    estimator, X, y = FITS[name]
    with pytest.raises(ValueError, match=r"^X: .*has masked entries"):
        small(estimator).fit([masked(X[0]), *X[1:]], y)


@pytest.mark.parametrize("name", ARRAYS)
def test_masked_targets_are_rejected(name: str) -> None:
    estimator, X, y = FITS[name]
    with pytest.raises(ValueError, match=r"^y: has masked entries"):
        small(estimator).fit(X, masked(y) if isinstance(y, np.ndarray) else masked(np.array(y)))


INVALID_WEIGHTS: dict[str, Callable[[Any], Any]] = {
    "masked": masked,
    "days": lambda ones: ones.astype("m8[D]"),
    "text": lambda ones: ["a"] * len(ones),
    "complex": lambda ones: ones + 1j,
    "generator": iter,
    "dictionary": lambda ones: dict(enumerate(ones)),
    "too large": lambda ones: ones * 1e308,
    "negative": lambda ones: -ones,
    "missing": lambda ones: pd.Series([None] * len(ones)),
    "short": lambda ones: ones[1:],
    "zeros": lambda ones: 0.0 * ones,
}


@pytest.mark.parametrize("kind", INVALID_WEIGHTS)
@pytest.mark.parametrize("name", ARRAYS)
def test_errors_of_invalid_weights_name_the_argument(name: str, kind: str) -> None:
    estimator, X, y = FITS[name]
    weights = INVALID_WEIGHTS[kind](np.ones(len(X)))
    with pytest.raises((ValueError, TypeError), match=r"(?i)sample.weight"):
        small(estimator).fit(X, y, sample_weight=weights)


def test_plain_arrays_are_validated_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_iris(return_X_y=True)
    names = pd.DataFrame(X, columns=list("abcd"))
    model = LogisticRegression().fit(names, y)
    assert list(model.feature_names_in_) == list("abcd")
    # Fitting an array forgets the names.
    assert not hasattr(model.fit(X, y), "feature_names_in_")

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(_validation, "validate_data", fail)
    model = LogisticRegression().fit(X, y)
    assert model.n_features_in_ == 4
    assert model.score(X, y) > 0.9
    # Everything else is validated by scikit-learn.
    with_nan, column_order = X.copy(), np.asfortranarray(X)
    with_nan[3, 2] = np.nan
    narrow = np.ascontiguousarray(X[:, :3])
    for given in (names, narrow, X.tolist(), X[:0], with_nan, column_order, sp.csr_array(X)):
        with pytest.raises(AssertionError):
            model.predict(given)
    for labels in (y.astype(float), y[:-1], np.column_stack([y, y])):
        with pytest.raises((AssertionError, ValueError)):
            model.fit(X, labels)
