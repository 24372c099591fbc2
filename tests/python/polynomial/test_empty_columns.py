"""Polynomial models of wide sparse rows use only the columns with entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import dualgap
from dualgap import _core

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

D = 1000
rng = np.random.default_rng(0)
NARROW = rng.normal(size=(40, 5)) * (rng.random((40, 5)) < 0.8)
PLACES = np.array([3, 250, 251, 700, 999])
LABELS = (NARROW[:, 0] * NARROW[:, 1] > 0.0).astype(int)


def wide(rows: Any) -> Any:
    dense = np.zeros((len(rows), D))
    dense[:, PLACES] = rows
    return scipy.sparse.csr_matrix(dense)


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of columns in each call of the core."""
    seen: list[int] = []
    fit = _core.fit_polynomial

    def spy(chunks: Any, targets: Any, settings: Any) -> Any:
        matrices = [
            *chunks,
            *([] if settings["validation"] is None else [settings["validation"][0]]),
        ]
        seen.extend(m[-1] if isinstance(m, tuple) else m.shape[1] for m in matrices)
        return fit(chunks, targets, settings)

    monkeypatch.setattr(_core, "fit_polynomial", spy)
    return seen


@pytest.mark.parametrize("linear", ["explicit", "augment", None])
@pytest.mark.parametrize(
    "kind", [dualgap.PolynomialNetworkClassifier, dualgap.FactorizationMachineClassifier]
)
def test_columns_without_entries_do_not_change_the_model(
    kind: Any, linear: Any, widths: list[int]
) -> None:
    settings = {"linear": linear, "random_state": 0, "n_jobs": 1, "max_iter": 6}
    one = kind(4, **settings).fit(wide(NARROW), LABELS)
    other = kind(4, **settings).fit(scipy.sparse.csr_matrix(NARROW), LABELS)
    assert widths == [5, 5]
    assert one.objective_ == other.objective_
    assert one.dual_objective_ == other.dual_objective_
    n_constants = int(linear == "augment")
    assert one.components_.shape[1] == D + n_constants
    places = [*PLACES, *([D] * n_constants)]
    np.testing.assert_array_equal(one.components_[:, places], other.components_)
    assert np.abs(one.components_).sum() == pytest.approx(np.abs(other.components_).sum())
    np.testing.assert_array_equal(one.coef_[:, PLACES], other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    new = rng.normal(size=(7, 5))
    expected = other.predict_proba(new) if hasattr(other, "predict_proba") else other.predict(new)
    found = (
        one.predict_proba(wide(new)) if hasattr(one, "predict_proba") else one.predict(wide(new))
    )
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_warm_start_and_validation_rows_may_have_other_columns(widths: list[int]) -> None:
    model = dualgap.PolynomialNetworkClassifier(
        4, warm_start=True, random_state=0, n_jobs=1, max_iter=3
    )
    model.fit(wide(NARROW), LABELS)
    before = model.objective_
    # The weights of the first two columns are kept, and their penalties count.
    fewer = NARROW * [0.0, 0.0, 1.0, 1.0, 1.0]
    model.fit(wide(fewer), LABELS)
    assert widths == [5, 5]
    assert np.isfinite(before)
    model = dualgap.PolynomialNetworkClassifier(4, random_state=0, n_jobs=1, max_iter=3)
    model.fit(wide(fewer), LABELS, validation_data=(wide(NARROW), LABELS))
    assert widths[2:] == [3, 3]
    dense = (wide(NARROW).toarray(), LABELS)
    again = dualgap.PolynomialNetworkClassifier(4, random_state=0, n_jobs=1, max_iter=3)
    again.fit(wide(fewer), LABELS, validation_data=dense)
    assert widths[4:] == [3, 3]
    np.testing.assert_array_equal(model.components_, again.components_)


def test_a_callback_sees_a_model_of_all_columns() -> None:
    seen = []

    class Look:
        _wants_model = True

        def __call__(self, *epoch: Any) -> bool:
            seen.append(epoch)
            return False

    model = dualgap.PolynomialNetworkClassifier(
        2, random_state=0, n_jobs=1, max_iter=2, callback=Look()
    )
    model.fit(scipy.sparse.csr_matrix((40, D)), LABELS)
    assert len(seen) == model.n_iter_
    assert model.components_.shape[1] == D
