"""scikit-learn's own checks of every estimator."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    parametrize_with_checks,
)

import dualgap
from dualgap.distributed import ConsensusSVC
from dualgap.structured import MulticlassModel, StructuredSVM

# This check compares predictions to 1e-7; `test_weights_are_repetitions` runs it at a tight `tol`.
_WEIGHTS = "check_sample_weight_equivalence_on_{}_data"
_FINITE_TOL = "a fit to a gap of tol does not determine the last digits of predictions"
_NOT_UNIQUE = "15 rows of 30 features have many models without any loss, which predict differently"


def expected_failures(estimator: Any) -> dict[str, str]:
    # Batch Frank-Wolfe takes the same steps on repeated rows as on weighted ones. StructuredSVM is
    # left out because it has no scores to compare, and searches because their data have more rows
    # than features.
    passing = (StructuredSVM, dualgap.PolynomialNetworkClassifierCV)
    if getattr(estimator, "solver", None) == "frank-wolfe" or isinstance(estimator, passing):
        return {}
    polynomial = type(estimator).__module__.startswith("dualgap.polynomial")
    reason = _NOT_UNIQUE if polynomial else _FINITE_TOL
    return {_WEIGHTS.format(kind): reason for kind in ("dense", "sparse")}


# On the data of the checks (few rows, features around 100), fits end above the default tolerance.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        dualgap.FactorizationMachineClassifier(5, n_jobs=1),
        dualgap.FactorizationMachineRegressor(5, n_jobs=1),
        dualgap.LogisticRegression(n_jobs=1),
        dualgap.LogisticRegressionCV(Cs=[0.1, 1.0], cv=2, n_jobs=1),
        dualgap.MulticlassSVC(n_jobs=1),
        dualgap.MulticlassSVCCV(Cs=[0.1, 1.0], cv=2, n_jobs=1),
        ConsensusSVC(n_partitions=2, n_jobs=1, max_iter=50),
        dualgap.MulticlassSVC(solver="frank-wolfe", n_jobs=1),
        dualgap.MulticlassSVC(solver="block-frank-wolfe", n_jobs=1),
        dualgap.PolynomialNetworkClassifier(5, n_jobs=1),
        dualgap.PolynomialNetworkClassifierCV([1.0, 10.0], n_components=3, cv=2, n_jobs=1),
        dualgap.PolynomialNetworkRegressor(5, n_jobs=1),
        StructuredSVM(MulticlassModel(), n_jobs=1),
    ],
    expected_failed_checks=expected_failures,
)
def test_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


# Differences of predictions of the margin losses are proportional to the gap. At a gap of 1e-9,
# they are at most 0.03 times the check's tolerance, with every instruction set.
_TIGHT: dict[str, Any] = {"tol": 1e-9, "n_jobs": 1}
# Differences of probabilities are proportional to the square root of the gap, so these fits go on
# until rounding errors stop them.
_ROUNDED: dict[str, Any] = {"tol": 1e-13, "n_jobs": 1}
_STOPPED = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize(
    "check",
    [
        check_sample_weight_equivalence_on_dense_data,
        check_sample_weight_equivalence_on_sparse_data,
    ],
)
@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(dualgap.LogisticRegression(**_ROUNDED), marks=_STOPPED),
        pytest.param(dualgap.LogisticRegressionCV(Cs=[0.1, 1.0], cv=2, **_ROUNDED), marks=_STOPPED),
        dualgap.MulticlassSVC(**_TIGHT),
        dualgap.MulticlassSVC(solver="block-frank-wolfe", step="pairwise", **_TIGHT),
        dualgap.MulticlassSVCCV(Cs=[0.1, 1.0], cv=2, **_TIGHT),
        ConsensusSVC(n_partitions=2, max_iter=1500, **_TIGHT),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_weights_are_repetitions(
    estimator: Any, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(estimator, dualgap.LogisticRegressionCV):
        # With AVX2, probabilities differ by up to 7e-9, slightly more than the check allows.
        compare = partial(estimator_checks.assert_allclose_dense_sparse, atol=1e-8)
        monkeypatch.setattr(estimator_checks, "assert_allclose_dense_sparse", compare)
    check(type(estimator).__name__, estimator)
