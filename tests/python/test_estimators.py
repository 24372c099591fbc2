"""scikit-learn's own checks of every estimator."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import dualgap
from dualgap.distributed import ConsensusSVC

# Sums over rows in another order round differently, and a fit that stops at a finite tolerance
# keeps that difference (about 1e-4 here, where the check allows 1e-7). That the optimum is the same
# is tested in test_polynomial.py and test_multiclass.py.
_WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": "stops at a finite tolerance",
    "check_sample_weight_equivalence_on_sparse_data": "stops at a finite tolerance",
}


def expected_failures(estimator: Any) -> dict[str, str]:
    # Batch Frank-Wolfe takes the same steps on repeated rows as on weighted ones.
    return {} if getattr(estimator, "solver", None) == "frank-wolfe" else _WEIGHTS


# The checks' data (few rows, features around 100) leave a gap above the default tolerance.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        dualgap.FactorizationMachineClassifier(5, n_jobs=1),
        dualgap.FactorizationMachineRegressor(5, n_jobs=1),
        dualgap.MulticlassSVC(n_jobs=1),
        dualgap.MulticlassSVCCV(Cs=[0.1, 1.0], cv=2, n_jobs=1),
        ConsensusSVC(n_partitions=2, n_jobs=1, max_iter=50),
        dualgap.MulticlassSVC(solver="frank-wolfe", n_jobs=1),
        dualgap.MulticlassSVC(solver="block-frank-wolfe", n_jobs=1),
        dualgap.PolynomialNetworkClassifier(5, n_jobs=1),
        dualgap.PolynomialNetworkClassifierCV([1.0, 10.0], n_components=3, cv=2, n_jobs=1),
        dualgap.PolynomialNetworkRegressor(5, n_jobs=1),
    ],
    expected_failed_checks=expected_failures,
)
def test_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
