"""Rows that a callback or another thread changes during a fit cause an error, or are copied."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fitted import CLASSES, FITS, SOLVERS
from sklearn.base import clone

from dualgap import (
    ClassFeatureSVC,
    FactorizationMachineRegressor,
    LogisticRegression,
    MulticlassSVC,
    MulticlassSVCCV,
    PolynomialNetworkClassifier,
    PolynomialNetworkClassifierCV,
    PolynomialNetworkRegressor,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

MODELS: dict[str, Any] = {
    **{name: MulticlassSVC(solver=name, max_iter=20) for name in SOLVERS},
    "smooth": MulticlassSVC("weston-watkins", smoothing=0.1),
    "search": MulticlassSVCCV(Cs=[0.1, 1.0], cv=2),
    "classes": ClassFeatureSVC(np.eye(3)[:, :2]),
    "logistic": LogisticRegression(tol=1e-9),
    "network": PolynomialNetworkClassifier(3, max_iter=5),
    "networks": PolynomialNetworkClassifierCV([1.0, 10.0], n_components=3, cv=2, max_iter=5),
    "machine": FactorizationMachineRegressor(3, max_iter=5),
}
WRITES: dict[str, Any] = {
    "nan": np.nan,
    "infinity": np.inf,
    "zero": 0.0,
}


def fit(model: Any, X: Any, write: Any) -> Any:
    """Fit, and call `write` once after the first epoch."""
    calls: list[int] = []

    def callback(*_: float) -> bool:
        calls.append(1)
        if len(calls) == 1:
            write()
        return False

    model = clone(model).set_params(callback=callback, random_state=0, n_jobs=1)
    try:
        return model.fit(X, CLASSES[1])
    finally:
        assert calls


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", MODELS)
def test_dense_rows_that_change_are_an_error(name: str, write: str) -> None:
    X = CLASSES[0].copy()
    with pytest.raises(RuntimeError, match="X changed during the fit"):
        fit(MODELS[name], X, lambda: X.fill(WRITES[write]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rows_of_lower_precision_that_change_are_an_error(dtype: Any) -> None:
    X = CLASSES[0].astype(dtype)
    with pytest.raises(RuntimeError, match="X changed during the fit"):
        fit(MODELS["block-descent"], X, lambda: X.fill(np.nan))


@pytest.mark.parametrize("part", ["indices", "data"])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "classes"])
def test_sparse_rows_that_change_are_an_error(name: str, part: str) -> None:
    X = sp.csr_array(CLASSES[0])
    value = {"indices": 10**6, "data": np.nan}[part]
    with pytest.raises(RuntimeError, match="X changed during the fit"):
        fit(MODELS[name], X, lambda: getattr(X, part).fill(value))


def test_a_changed_sign_or_column_index_is_detected() -> None:
    X = CLASSES[0].copy()
    with pytest.raises(RuntimeError, match="X changed during the fit"):
        fit(MODELS["block-descent"], X, lambda: np.negative(X[-1:], out=X[-1:]))
    sparse = sp.csr_array(CLASSES[0])
    sparse.data[sparse.indices == 2] = 0.0
    sparse.eliminate_zeros()

    def move() -> None:
        sparse.indices[-1] = 2

    with pytest.raises(RuntimeError, match="X changed during the fit"):
        fit(MODELS["block-descent"], sparse, move)


def test_a_change_by_another_thread_is_detected() -> None:
    X = CLASSES[0].copy()

    def elsewhere() -> None:
        thread = threading.Thread(target=X.fill, args=(np.nan,))
        thread.start()
        thread.join()

    with pytest.raises(RuntimeError, match="X changed during the fit"):
        fit(MODELS["network"], X, elsewhere)


def test_an_error_in_the_callback_takes_precedence() -> None:
    X = CLASSES[0].copy()

    def write() -> None:
        X.fill(np.nan)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(MODELS["block-descent"], X, write)


@pytest.mark.parametrize("name", ["multilabel", "structured-classes", "chain", "consensus"])
def test_other_models_copy_their_rows(name: str) -> None:
    estimator, X, y = FITS[name]
    expected = clone(estimator).fit(X, y)
    mine = [np.array(rows) for rows in X] if isinstance(X, list) else np.array(X)
    calls: list[int] = []

    def write(*_: float) -> bool:
        calls.append(1)
        for rows in mine:
            rows.fill(np.nan)
        return False

    found = clone(estimator).set_params(callback=write).fit(mine, y)
    # The fit ran another epoch after the rows had changed.
    assert len(calls) > 1
    assert all(np.isnan(rows).all() for rows in mine)
    assert (found.objective_, found.dual_objective_) == (
        expected.objective_,
        expected.dual_objective_,
    )


def test_changes_of_targets_and_weights_do_not_change_the_fit() -> None:
    X, y, weights = CLASSES[0], CLASSES[0][:, 0] ** 2, np.ones(len(CLASSES[0]))
    model = PolynomialNetworkRegressor(3, max_iter=5, random_state=0)
    expected = clone(model).fit(X, y.copy(), sample_weight=weights.copy())
    calls: list[int] = []

    def write(*_: float) -> bool:
        calls.append(1)
        y.fill(np.nan)
        weights.fill(np.nan)
        return False

    found = clone(model).set_params(callback=write).fit(X, y, sample_weight=weights)
    assert len(calls) > 1
    assert np.isnan(y).all()
    assert np.isnan(weights).all()
    assert found.objective_ == expected.objective_
