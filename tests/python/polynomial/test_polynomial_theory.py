"""Proposition 1 and Theorem 1 of Blondel et al. (2017), with the constants of the docs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from dualgap import PolynomialNetworkClassifier, PolynomialNetworkRegressor

# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def rows(n: int, d: int, m: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, rng.normal(size=(n, m)) + X[:, :1] * X[:, 1:2]


def test_eigenvectors_are_a_basis_within_the_bound_of_l1() -> None:
    d, m = 4, 3
    X, Y = rows(60, d, m)
    model = PolynomialNetworkRegressor(
        40, penalty="l1", radius=3.0, linear=None, reoptimize="output", tol=1e-6, random_state=0
    ).fit(X, Y)
    basis, output, total = [], [], 0.0
    for c in range(m):
        form = (model.components_.T * model.output_[:, c]) @ model.components_
        values, vectors = np.linalg.eigh(form)
        basis.append(vectors.T)
        output.append(values)
        total += np.abs(values).sum()
    # The reduced model has at most d m vectors, the same outputs, and no larger norm.
    assert sum(map(len, basis)) <= d * m
    assert total <= np.abs(model.output_).sum() + 1e-9
    found = np.column_stack([((X @ h.T) ** 2) @ u for h, u in zip(basis, output, strict=True)])
    np.testing.assert_allclose(found, model.predict(X), atol=1e-9)


def test_a_vertex_of_the_weights_has_no_more_rows_than_outputs() -> None:
    n, m = 2, 2
    X, Y = rows(n, 6, m)
    model = PolynomialNetworkRegressor(
        30, radius=0.5, linear=None, reoptimize="output", tol=1e-9, random_state=0
    ).fit(X, Y)
    norms = np.linalg.norm(model.output_, axis=1)
    kernel = (X @ model.components_.T) ** 2
    atoms = (kernel[:, :, None] * (model.output_ / norms[:, None])).transpose(0, 2, 1)
    found = linprog(
        np.ones(len(norms)),
        A_eq=atoms.reshape(n * m, -1),
        b_eq=model.predict(X).ravel(),
        method="highs-ds",
    )
    assert found.fun <= norms.sum() + 1e-7
    assert np.count_nonzero(found.x > 1e-12) <= n * m + 1


@pytest.mark.parametrize(
    ("penalty", "factor"), [("l1", 1.0), ("l1/l2", 3**-0.5), ("l1/linf", 1 / 3)]
)
def test_the_error_is_within_the_rate_of_the_theorem(penalty: Any, factor: float) -> None:
    X, Y = rows(80, 5, 3)
    y = Y.argmax(axis=1)
    parameters: dict[str, Any] = {
        "penalty": penalty, "linear": None, "reoptimize": "output", "random_state": 0,
    }  # fmt: skip
    radius = 0.5
    # The theorem compares a fit with the best model in a ball that is smaller by the factor nu.
    best = PolynomialNetworkClassifier(60, radius=factor * radius, tol=1e-6, **parameters).fit(X, y)
    fit = PolynomialNetworkClassifier(20, radius=radius, tol=0.0, **parameters).fit(X, y)
    errors = fit.history_["objective"] - best.dual_objective_
    smoothness = 0.5 * (np.linalg.norm(X, axis=1) ** 4).sum() * (3 if penalty == "l1/linf" else 1)
    bounds = 8.0 * smoothness * radius**2 / (np.arange(len(errors)) + 2)
    assert np.all(errors <= bounds)


def onto_nuclear_ball(forms: Any, radius: float) -> Any:
    """Project symmetric matrices onto the ball of the sum of their nuclear norms."""
    values, vectors = np.linalg.eigh(forms)
    ordered = -np.sort(-np.abs(values).ravel())
    shifts = (np.cumsum(ordered) - radius) / np.arange(1, len(ordered) + 1)
    shift = max(0.0, float(shifts[np.count_nonzero(ordered > shifts) - 1]))
    values = np.sign(values) * np.maximum(np.abs(values) - shift, 0.0)
    return (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)


def test_l1_is_the_nuclear_norm_of_the_forms() -> None:
    X, Y = rows(60, 4, 2)
    Y, radius = Y - Y.mean(axis=0), 1.0
    model = PolynomialNetworkRegressor(
        40, penalty="l1", radius=radius, linear=None, tol=1e-7, random_state=0, max_iter=400
    ).fit(X, Y)
    products = np.einsum("ni,nj->nij", X, X)
    forms, length = np.zeros((2, 4, 4)), 1.0 / np.linalg.norm(products.reshape(60, 16), 2) ** 2
    for _ in range(5000):
        residuals = np.einsum("nij,cij->nc", products, forms) - Y
        gradient = np.einsum("nc,nij->cij", residuals, products)
        forms = onto_nuclear_ball(forms - length * gradient, radius)
    outputs = np.einsum("nij,cij->nc", products, forms)
    # The radius is small enough to matter.
    assert np.abs(np.linalg.eigvalsh(forms)).sum() == pytest.approx(radius)
    np.testing.assert_allclose(model.predict(X), outputs, atol=2e-3)
    loss = 0.5 * ((outputs - Y) ** 2).sum()
    assert 0.5 * ((model.predict(X) - Y) ** 2).sum() == pytest.approx(loss, rel=1e-6)
    assert model.dual_objective_ <= loss * (1 + 1e-9)
