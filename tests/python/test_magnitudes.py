"""Rows of any size: every fit ends with finite numbers, or with an error that names them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fitted import CLASSES, FITS, SOLVERS
from sklearn.base import clone

import dualgap

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore::RuntimeWarning"
)

ESTIMATORS: dict[str, tuple[Any, Any, Any]] = {
    **{name: fit for name, fit in FITS.items() if not name.startswith(("tagger", "recommender"))},
    **{
        solver: (dualgap.MulticlassSVC(solver=solver, random_state=0), *CLASSES)
        for solver in SOLVERS
    },
}
TOO_LARGE = "^X.*: values up to .* are too large for float"


def scaled(X: Any, factor: float, dtype: Any) -> Any:
    if isinstance(X, list):
        return [scaled(x, factor, dtype) for x in X]
    return (X * factor).astype(dtype)


# Fits that compute with float32 in float32; all others do so in float64.
SINGLE = ("svc", "svc-topk", "svc-cv", "consensus", "block-descent")


def overflows(X: Any, name: str = "svc") -> bool:
    values = np.concatenate([np.ravel(x) for x in X]) if isinstance(X, list) else np.ravel(X)
    if values.dtype == np.float32 and name not in SINGLE:
        return False
    largest = float(np.abs(values).max())
    # Computed without overflow.
    norm = largest * float(np.linalg.norm(values.astype(np.float64) / largest))
    return norm > float(np.sqrt(np.finfo(values.dtype).max))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("dtype", "exponents"),
    [
        (np.float32, (16.0, 18.0, 18.25, 18.5, 18.75, 19.0, 25.0, 37.0)),
        (np.float64, (77.0, 140.0, 150.0, 153.0, 154.0, 155.0, 160.0, 300.0)),
    ],
)
def test_rows_are_refused_where_their_squares_overflow(
    name: str, dtype: Any, exponents: tuple[float, ...]
) -> None:
    estimator, X, y = ESTIMATORS[name]
    for exponent in exponents:
        rows, model = scaled(X, 10.0**exponent, dtype), clone(estimator)
        if "max_iter" in model.get_params():
            model.set_params(max_iter=20)
        if overflows(rows, name):
            with pytest.raises(ValueError, match=TOO_LARGE):
                model.fit(rows, y)
        else:
            model.fit(rows, y)
            assert np.isfinite(getattr(model, "objective_", 0.0))


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("n_columns", [4, 64, 300])
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_single_precision_ends_with_a_finite_model(layout: Any, n_columns: int, C: float) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, n_columns)), rng.integers(3, size=40)
    for exponent in np.arange(16.0, 19.5, 0.25):
        rows = scaled(X, 10.0**exponent, np.float32)
        model = dualgap.MulticlassSVC(C=C, max_iter=20, random_state=0, n_jobs=1)
        if overflows(rows):
            with pytest.raises(ValueError, match=TOO_LARGE):
                model.fit(layout(rows), y)
        else:
            assert np.isfinite(model.fit(layout(rows), y).objective_)


def test_all_other_doors_refuse_them() -> None:
    X, y = CLASSES
    large = X * 1e200
    for door in (
        lambda: dualgap.Chunks([X, large]),
        lambda: dualgap.ClassFeatureSVC(np.eye(3) * 1e200).fit(X, y),
        lambda: dualgap.MulticlassSVC().path(large, y, 0.1, 0.2),
    ):
        with pytest.raises(ValueError, match="are too large for float64"):
            door()
