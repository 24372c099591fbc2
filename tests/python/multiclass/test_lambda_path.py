"""Fits of many rows with few features and a large C, which start with smaller values of C."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualgap import MulticlassSVC


def make_overlapping_classes(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and labels of overlapping classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=n)
    return rng.normal(size=(4, 3))[y] + rng.normal(size=(n, 3)), y


def hinge_objective(model: MulticlassSVC, X: np.ndarray, y: np.ndarray) -> float:
    """Compute the objective, divided by the objective of W = 0, from the weights alone."""
    scores = X @ model.coef_.T
    margins = 1.0 + scores - scores[np.arange(len(y)), y][:, None]
    margins[np.arange(len(y)), y] = 0.0
    loss = margins.max(axis=1).mean()
    return float(0.5 * (model.coef_**2).sum() / (model.C * len(y)) + loss)


@pytest.mark.parametrize("max_iter", [1, 2, 3, 5, 10, 1000])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_certificate_is_for_the_given_problem_even_after_an_early_stop(max_iter: int) -> None:
    X, y = make_overlapping_classes()
    given = {"loss": "crammer-singer", "C": 300.0, "fit_intercept": False, "random_state": 0}
    model = MulticlassSVC(max_iter=max_iter, tol=1e-6, **given).fit(X, y)
    assert model.n_iter_ <= max_iter
    np.testing.assert_allclose(model.objective_, hinge_objective(model, X, y), rtol=1e-9)
    # With sparse rows, the solver does not start from a smaller C.
    direct = MulticlassSVC(max_iter=20_000, tol=1e-6, **given).fit(sp.csr_array(X), y)
    assert direct.converged_
    assert model.dual_objective_ <= direct.objective_
    assert direct.dual_objective_ <= model.objective_
    assert model.converged_ == (max_iter == 1000)


def test_epochs_before_the_last_lambda_have_no_certificate() -> None:
    X, y = make_overlapping_classes()
    model = MulticlassSVC(C=300.0, random_state=0).fit(X, y)
    evaluated = np.isfinite(model.history_["objective"])
    assert not evaluated[0]
    first = int(np.argmax(evaluated))
    assert evaluated[first:].all()
    assert (model.history_["dual_objective"][first:] <= model.history_["objective"][first:]).all()
