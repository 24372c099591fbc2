"""Rows of any size: every fit ends with finite numbers, or with an error that names them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fitted import CLASSES, FITS, LABELS, ROWS, SOLVERS
from sklearn.base import clone

import dualgap
from dualgap.structured import StructuredSVM

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


# Fits that compute in float32 if rows are float32; all other fits compute in float64.
SINGLE = ("svc", "svc-topk", "svc-cv", "consensus", "block-descent")


def overflows(X: Any, name: str = "svc") -> bool:
    values = np.concatenate([np.ravel(x) for x in X]) if isinstance(X, list) else np.ravel(X)
    if values.dtype == np.float32 and name not in SINGLE:
        return False
    largest = float(np.abs(values).max())
    # Divide by the largest value first, which avoids overflow.
    norm = largest * float(np.linalg.norm(values.astype(np.float64) / largest))
    return norm > float(np.sqrt(np.finfo(values.dtype).max))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("dtype", "exponents"),
    [
        (np.float32, (16.0, 18.0, 18.25, 18.5, 18.75, 19.0, 25.0, 37.0)),
        (np.float64, (77.0, 130.0, 140.0, 150.0, 153.0, 154.0, 155.0, 160.0, 300.0)),
    ],
)
def test_rows_whose_squares_overflow_are_rejected(
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


@pytest.mark.parametrize("name", ["fm-regressor", "pn-regressor"])
@pytest.mark.parametrize("exponent", [100.0, 150.0, 153.0, 154.0, 160.0, 300.0])
def test_targets_whose_squares_overflow_are_rejected(name: str, exponent: float) -> None:
    estimator, X, y = ESTIMATORS[name]
    large, model = y * 10.0**exponent, clone(estimator).set_params(max_iter=5)
    if overflows(large):
        with pytest.raises(ValueError, match=r"^y: values up to .* are too large for float64"):
            model.fit(X, large)
        with pytest.raises(ValueError, match=r"^y: values up to .* are too large for float64"):
            model.fit(X, y, validation_data=(X, large))
    else:
        assert 0.0 <= model.fit(X, large).dual_objective_ <= model.objective_ < np.inf


TOO_FAR = r"^C: times the total weight is .*squared norm of an example's features .*at most 1e280"
REGULARIZED = {name: fit for name, fit in FITS.items() if "C" in fit[0].get_params()}
STRUCTURED = ["block-frank-wolfe", "frank-wolfe", "away-frank-wolfe", "projected-gradient"]
STRUCTURED += ["subgradient", "extragradient"]
REGULARIZED |= {solver: ESTIMATORS[solver] for solver in SOLVERS}
for name, solver in product(("chain", "matching", "multilabel"), STRUCTURED):
    estimator, *data = FITS[name]
    REGULARIZED[f"{name}-{solver}"] = (clone(estimator).set_params(solver=solver), *data)


class Own:
    """A user-defined model with two classes."""

    def joint_features(self, x: Any, y: Any) -> Any:
        return np.concatenate([x, -x]) if y else np.zeros(2 * len(x))

    def loss(self, y_true: Any, y: Any) -> float:
        return float(y_true != y)

    def decode(self, x: Any, w: Any) -> int:
        return int(w[: len(x)] @ x - w[len(x) :] @ x > 0.0)

    def loss_augmented_decode(self, x: Any, y_true: Any, w: Any) -> int:
        gain = w[: len(x)] @ x - w[len(x) :] @ x
        return int(gain + (y_true == 0) > (y_true == 1))


OWN = (StructuredSVM(Own(), random_state=0), list(ROWS), [int(y > 0) for y in LABELS])
REGULARIZED["own"] = OWN


def small(model: Any, C: float) -> Any:
    return clone(model).set_params(C=C, max_iter=5)


@pytest.mark.parametrize("name", REGULARIZED)
@pytest.mark.parametrize("C", [1e281, 1e290, 1e297])
def test_too_large_a_product_of_c_and_rows_is_rejected(name: str, C: float) -> None:
    estimator, X, y = REGULARIZED[name]
    with pytest.raises(ValueError, match=TOO_FAR):
        small(estimator, C).fit(X, y)


@pytest.mark.parametrize("name", REGULARIZED)
@pytest.mark.parametrize("C", [1e-299, 1e-150, 1e150, 1e200, 1e270])
def test_fits_at_every_allowed_c_are_no_worse_than_the_null_model(name: str, C: float) -> None:
    estimator, X, y = REGULARIZED[name]
    model = small(estimator, C).fit(X, y)
    assert 0.0 <= model.objective_ <= model.null_objective_ * (1.0 + 1e-12)
    assert model.duality_gap_ >= 0.0


@pytest.mark.parametrize("name", ["svc", "chain", "tagger", "tagger-hinge", "own"])
def test_a_path_to_too_large_a_c_is_rejected_before_it_begins(name: str) -> None:
    estimator, X, y = REGULARIZED[name]
    seen: list[int] = []
    solver = {"solver": "block-frank-wolfe"} if name in ("svc", "chain", "own") else {}
    model = clone(estimator).set_params(callback=lambda *epoch: seen.append(1), **solver)
    with pytest.raises(ValueError, match=TOO_FAR):
        model.path(X, y, 1e200, 1e290)
    assert not seen


def test_a_search_over_too_large_a_c_is_rejected_before_it_begins() -> None:
    seen: list[int] = []
    search = dualgap.MulticlassSVCCV(Cs=[1e200, 1e290], callback=lambda *fit: seen.append(1))
    with pytest.raises(ValueError, match=TOO_FAR):
        search.fit(*CLASSES)
    assert not seen


@pytest.mark.parametrize(("C", "factor"), [(1e-299, 1e75), (1e-200, 1e75), (1e-150, 1e10)])
def test_a_search_over_small_c_of_large_rows_has_finite_scores(C: float, factor: float) -> None:
    """With such small C, the fits keep their initial dual point."""
    X, y = CLASSES
    model = dualgap.MulticlassSVCCV(Cs=[C, 10.0 * C], cv=2).fit(X * factor, y)
    assert np.isfinite(model.best_score_)


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


def test_chunks_class_features_and_paths_reject_too_large_values() -> None:
    X, y = CLASSES
    large = X * 1e200
    for call in (
        lambda: dualgap.Chunks([X, large]),
        lambda: dualgap.ClassFeatureSVC(np.eye(3) * 1e200).fit(X, y),
        lambda: dualgap.MulticlassSVC().path(large, y, 0.1, 0.2),
    ):
        with pytest.raises(ValueError, match="are too large for float64"):
            call()
