"""Lower bounds and feasibility of polynomial models, checked in rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from dualgap.polynomial import (
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

EXACT_CERTIFICATE = "optimum over all bases and output layers within the radius"


def optimum(y, radius, scale):
    """Compute the minimum squared error of a network on scale * identity, exactly.

    A network with one output, bases of length 1 and an output layer within the radius can produce
    an output vector if and only if its absolute values sum to at most radius * scale ** 2.
    """
    bound = Fraction(radius) * Fraction(scale) ** 2
    values = [abs(Fraction(value)) for value in y.tolist()]
    if sum(values) <= bound:
        return Fraction(0)
    total, level = Fraction(0), Fraction(0)
    for count, value in enumerate(sorted(values, reverse=True), start=1):
        total += value
        if (total - bound) / count >= value:
            break
        level = (total - bound) / count
    return sum(min(value, level) ** 2 for value in values) / 2


def squared_error(model, X, Y):
    """Compute half the squared error of the stored model, exactly."""
    rows = [[Fraction(x) for x in row] for row in X.tolist()]
    bases = [[Fraction(h) for h in basis] for basis in model.components_.tolist()]
    total = Fraction(0)
    for row, targets in zip(rows, Y.tolist(), strict=True):
        scores = [sum(h * x for h, x in zip(basis, row, strict=True)) ** 2 for basis in bases]
        for c, target in enumerate(targets):
            output = sum(
                Fraction(u[c]) * s for u, s in zip(model.output_.tolist(), scores, strict=True)
            )
            total += (output - Fraction(target)) ** 2
    return total / 2


def is_inside_ball(penalty, output, radius):
    """Whether the output layer is in its ball, exactly."""
    rows = [[abs(Fraction(u)) for u in row] for row in output.tolist()]
    if penalty != "l1/l2":
        of_row = sum if penalty == "l1" else max
        return sum(of_row(row) for row in rows) <= Fraction(radius)
    # Square roots, rounded up to 60 digits.
    unit = 10**60
    squares = [sum(u * u for u in row) * unit**2 for row in rows]
    roots = [isqrt_up(square) for square in squares]
    return Fraction(sum(roots), unit) <= Fraction(radius)


def isqrt_up(square):
    from math import ceil, isqrt

    whole = ceil(square)
    root = isqrt(whole)
    return root if root * root == whole else root + 1


def make_targets(rng, seed):
    """Return targets for which a past version mistook a smaller eigenvalue for the largest."""
    y = np.ones(1000)
    rows = rng.choice(1000, 100, replace=False) if seed % 2 else np.arange(100)
    y[rows] = rng.uniform(-0.5, 0.5, 100)
    y[5] = 1.1
    return y


@pytest.mark.parametrize("options", [{"tol": 1e-9, "max_iter": 1}, {"tol": 1.14e-4}], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_the_largest_eigenvalue_is_not_missed(seed, options):
    X = sp.identity(1000, format="csr")
    y = make_targets(np.random.default_rng(seed), seed)
    n_components = 1 if "max_iter" in options else 5
    model = PolynomialNetworkRegressor(
        n_components,
        penalty="l1",
        radius=0.05,
        linear=None,
        reoptimize="output",
        random_state=0,
        **options,
    ).fit(X, y)
    best = optimum(y, 0.05, 1.0)
    assert Fraction(model.dual_objective_) <= best <= Fraction(model.objective_)
    assert np.nanmax(model.history_["dual_objective"]) <= best
    if model.converged_:
        allowed = max(model.objective_, model.null_objective_)
        assert model.objective_ - float(best) <= options["tol"] * allowed
    assert model.certificate_ == EXACT_CERTIFICATE


@pytest.mark.parametrize("penalty", ["l1", "l1/l2", "l1/linf"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 37.0, 1e20])
def test_bounds_hold_in_rational_arithmetic(penalty, dtype, scale):
    rng = np.random.default_rng(0)
    scale = float(dtype(scale))
    for trial in range(4):
        y = rng.normal(size=9) * 10.0 ** rng.integers(-4, 5)
        X = np.eye(9, dtype=dtype) * dtype(scale)
        # The radius is a third of the radius at which a model fits all targets exactly.
        radius = float(np.abs(y).sum() / 3.0 / scale**2)
        model = PolynomialNetworkRegressor(
            12,
            penalty=penalty,
            radius=radius,
            linear=None,
            tol=10.0 ** -rng.integers(1, 10),
            max_iter=20,
            reoptimize="output" if trial % 2 else "full",
            random_state=trial,
        ).fit(X if trial < 2 else sp.csr_matrix(X), y)
        best = optimum(y, radius, scale)
        reached = squared_error(model, X, y[:, None])
        assert Fraction(model.dual_objective_) <= best
        assert best <= reached <= Fraction(model.objective_)
        assert is_inside_ball(penalty, model.output_, radius)


@pytest.mark.parametrize("penalty", ["l1", "l1/l2", "l1/linf"])
@pytest.mark.parametrize(
    "estimator", [PolynomialNetworkRegressor, FactorizationMachineRegressor], ids=["pn", "fm"]
)
def test_the_output_layer_is_inside_its_ball(penalty, estimator):
    rng = np.random.default_rng(1)
    for trial in range(25):
        n, d, m = rng.integers(2, 30), rng.integers(1, 5), rng.integers(1, 4)
        radius = float(rng.choice([0.01, 0.1, 1.0, 3.0, 100.0]))
        X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
        Y = rng.normal(size=(n, m)) * 10.0 ** rng.integers(-3, 4)
        model = estimator(
            int(rng.integers(1, 8)),
            penalty=penalty,
            radius=radius,
            reoptimize=str(rng.choice(["full", "output"])),
            linear=[None, "explicit", "augment"][trial % 3],
            tol=10.0 ** -rng.integers(2, 9),
            max_iter=8,
            random_state=trial,
            n_jobs=1,
        ).fit(X, Y)
        assert is_inside_ball(penalty, model.output_, radius)


def test_bounds_for_too_many_features_to_factorise_are_probabilistic():
    y = np.tile([1.0, 0.9, -0.4, 0.1, 1.02], 220)
    model = PolynomialNetworkRegressor(
        2, penalty="l1", radius=0.05, linear=None, max_iter=2, random_state=0
    ).fit(sp.identity(1100, format="csr"), y)
    best = optimum(y, 0.05, 1.0)
    assert model.certificate_ == f"{EXACT_CERTIFICATE}, with probability 1 - 1e-9"
    assert Fraction(model.dual_objective_) <= best <= Fraction(model.objective_)


def test_bounds_between_formed_and_factorised_sizes_agree():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 90))
    y = rng.integers(0, 3, 200)
    model = PolynomialNetworkClassifier(4, radius=1.0, max_iter=5, random_state=0).fit(X, y)
    wide = np.hstack([X, np.zeros((200, 1000))])
    padded = PolynomialNetworkClassifier(4, radius=1.0, max_iter=5, random_state=0).fit(wide, y)
    assert model.certificate_ != padded.certificate_
    # Lanczos starts from another vector, so the models differ, but each bound holds for both.
    for bound in (model.dual_objective_, padded.dual_objective_):
        assert bound <= min(model.objective_, padded.objective_)


@pytest.mark.parametrize("size", [1e-163, 1e-200, 1e-310])
def test_fits_to_tiny_targets_succeed(size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    for estimator in (PolynomialNetworkRegressor, FactorizationMachineRegressor):
        model = estimator(2, random_state=0).fit(X, size * rng.normal(size=20))
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("size", [1e30, 1e60, 1e100, 1e-60])
def test_single_precision_rows_with_huge_targets_are_predicted(size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = size * (X @ [1.0, -2.0, 0.5])
    single = PolynomialNetworkRegressor(1, random_state=0, max_iter=3).fit(X.astype(np.float32), y)
    found = single.predict(X.astype(np.float32))
    assert np.isfinite(found).all()
    assert np.allclose(found, single.predict(X), rtol=1e-3, atol=1e-3 * size)


def test_outputs_that_overflow_are_rejected():
    X = np.array([[1.0], [2.0]])
    model = PolynomialNetworkRegressor(1, random_state=0).fit(X, np.array([1.0, 4.0]))
    with pytest.raises(RuntimeError, match="an output exceeds the largest"):
        model.predict(np.array([[1e200]]))
