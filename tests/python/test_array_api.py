"""Arrays of other libraries: converted if possible, else an error that names the argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fitted import FITS, LABELS, ROWS
from sklearn import config_context
from sklearn.base import clone

from dualgap.recommend import OrdinalRecommender, Variational
from dualgap.sequence import SequenceTagger

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NAMES = [name for name in FITS if not name.startswith(("recommender", "tagger"))]


@pytest.fixture(params=[False, True])
def dispatch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Set whether scikit-learn dispatches on the array API.

    SCIPY_ARRAY_API is set in both cases, because by itself this variable affects only SciPy.
    """
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    monkeypatch.setattr("scipy._lib._array_api.SCIPY_ARRAY_API", True, raising=False)
    with config_context(array_api_dispatch=request.param):
        yield request.param


def to_strict(values: Any) -> Any:
    """Convert an array, or each array of a list, to array_api_strict."""
    xp = pytest.importorskip("array_api_strict")
    if isinstance(values, list):
        return [xp.asarray(value) for value in values]
    return xp.asarray(values)


@pytest.mark.parametrize("name", NAMES)
def test_strict_arrays_give_the_model_of_numpy_arrays(name: str, dispatch: bool) -> None:
    estimator, X, y = FITS[name]
    expected = clone(estimator).fit(X, y)
    found = clone(estimator).fit(to_strict(X), to_strict(y))
    assert found.objective_ == expected.objective_
    for mine, other in zip(found.predict(to_strict(X)), expected.predict(X), strict=True):
        np.testing.assert_array_equal(mine, other)
    weights = np.linspace(0.5, 1.0, len(X))
    found = clone(estimator).fit(to_strict(X), to_strict(y), sample_weight=to_strict(weights))
    expected = clone(estimator).fit(X, y, sample_weight=weights)
    assert found.objective_ == expected.objective_
    if not dispatch:
        assert found.score(to_strict(X), to_strict(y)) == expected.score(X, y)


@pytest.mark.usefixtures("dispatch")
def test_strict_sentences_and_ratings_give_the_model_of_numpy_arrays() -> None:
    words, labels = [ROWS[:3], ROWS[3:6]], [LABELS[:3], LABELS[3:6]]
    expected = SequenceTagger("logistic", C=1.0).fit(words, labels)
    found = SequenceTagger("logistic", C=1.0).fit(to_strict(words), to_strict(labels))
    assert found.objective_ == expected.objective_
    assert [list(y) for y in found.predict(to_strict(words))] == [
        list(y) for y in expected.predict(words)
    ]
    model = OrdinalRecommender(random_state=0, method=Variational(n_models=1, max_iter=2))
    table = np.array([[0, 0, 1], [0, 1, 2], [1, 0, 2], [1, 1, 1], [2, 1, 1.0]])
    plain = clone(model).fit(table).predict([0, 1, 2], [0, 0, 0])
    users = to_strict(np.arange(3))
    for given in (to_strict(table), tuple(to_strict(list(table.T)))):
        np.testing.assert_array_equal(clone(model).fit(given).predict(users, [0, 0, 0]), plain)


class OnDevice:
    """An array that the CPU cannot read, like CuPy's arrays."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.ndim, self.dtype = shape, len(shape), np.dtype(np.float64)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return np

    def __array__(self, *_: Any, **__: Any) -> Any:
        msg = "implicit conversion to a NumPy array is not allowed"
        raise TypeError(msg)

    def __len__(self) -> int:
        return self.shape[0]


@pytest.mark.parametrize("name", NAMES)
def test_arrays_on_other_devices_are_rejected_by_argument(name: str) -> None:
    estimator, X, y = FITS[name]
    n = len(X)
    bad: Any = [OnDevice(x.shape) for x in X] if isinstance(X, list) else OnDevice(X.shape)
    with pytest.raises(TypeError, match=r"^X: an array of .* could not be converted to NumPy"):
        clone(estimator).fit(bad, y)
    with pytest.raises(TypeError, match=r"^[yY]: an array of .* could not be converted to NumPy"):
        clone(estimator).fit(X, OnDevice((n,)))
    with pytest.raises(TypeError, match=r"^sample_weight: an array of"):
        clone(estimator).fit(X, y, sample_weight=OnDevice((n,)))
    model = clone(estimator).fit(X, y)
    with pytest.raises(TypeError, match=r"^X: an array of"):
        model.predict(bad)
