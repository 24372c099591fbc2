"""Constraints on the signs of weights, matchings with several links, inexact decoders."""

import itertools

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp, minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from dualgap.structured import MatchingModel, MulticlassModel, StructuredSVM

rng = np.random.default_rng(5)
ROWS = rng.standard_normal((12, 2))
CLASSES = (ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0.3)


def optimum(signs, C):
    """Minimise 1/2 ||w||^2 + C sum of hinges over weights with these signs, as a QP."""
    n, k = len(ROWS), 3
    psi, losses, owners = [], [], []
    for i, (x, y) in enumerate(zip(ROWS, CLASSES, strict=True)):
        for z in range(k):
            features = np.zeros((2, k))
            features[:, y] += x
            features[:, z] -= x
            psi.append(features.ravel())
            losses.append(float(z != y))
            owners.append(np.eye(n)[i])
    matrix = np.hstack([psi, owners])
    bounds = [(None if s < 1 else 0, None if s > -1 else 0) for s in signs] + [(0, None)] * n
    found = minimize(
        lambda v: 0.5 * v[:6] @ v[:6] / (C * n) + v[6:].mean(),
        np.concatenate([np.zeros(6), np.ones(n)]),
        jac=lambda v: np.concatenate([v[:6] / (C * n), np.full(n, 1 / n)]),
        bounds=bounds,
        constraints={
            "type": "ineq",
            "fun": lambda v: matrix @ v - losses,
            "jac": lambda _: matrix,
        },
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert found.success, found.message
    return found.fun, found.x[:6]


class OwnMulticlass:
    """`MulticlassModel` of three classes, written in Python."""

    def joint_features(self, x, y):
        features = np.zeros((2, 3))
        features[:, y] = x
        return features.ravel()

    def loss(self, y_true, y):
        return float(y_true != y)

    def loss_augmented_decode(self, x, y_true, w):
        scores = [self.loss(y_true, y) + w @ self.joint_features(x, y) for y in range(3)]
        return int(np.argmax(scores))

    def decode(self, x, w):
        return int(np.argmax([w @ self.joint_features(x, y) for y in range(3)]))


SIGNS = [
    [1, 0, -1, 0, 0, 0],
    [1, 1, 1, 1, 1, 1],
    [-1, 1, 0, 1, -1, 0],
    [0, 0, 0, 0, 0, 0],
]


@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("step", ["frank-wolfe", "pairwise", "away"])
@pytest.mark.parametrize("model", [MulticlassModel(), OwnMulticlass()], ids=["built-in", "own"])
def test_signs_give_the_constrained_optimum(model, step, signs):
    C = 2.0
    expected, weights = optimum(signs, C)
    tol = 1e-3 if step == "frank-wolfe" else 1e-6
    fit = {"step": step, "tol": tol, "max_iter": 20000, "random_state": 0}
    svm = StructuredSVM(model, C=C, signs=signs, **fit).fit(ROWS, CLASSES)
    assert svm.converged_
    assert (svm.coef_ * np.array(signs) >= 0).all()
    assert svm.dual_objective_ <= expected + 1e-9
    assert expected <= svm.objective_ + 1e-9
    assert svm.objective_ == pytest.approx(expected, rel=2 * tol)
    # The gap bounds 1/2 lambda ||w - w*||^2.
    distance = np.linalg.norm(svm.coef_ - weights)
    assert distance <= np.sqrt(2 * svm.duality_gap_ * C * len(ROWS)) + 1e-4


def test_signs_that_bind_change_the_optimum():
    assert optimum(SIGNS[1], 2.0)[0] > 1.05 * optimum(SIGNS[-1], 2.0)[0]


def test_a_warm_start_and_a_path_obey_the_signs():
    signs = np.array(SIGNS[2])
    svm = StructuredSVM(
        MulticlassModel(), signs=signs, step="pairwise", warm_start=True, tol=1e-4, random_state=0
    ).fit(ROWS, CLASSES)
    svm.set_params(C=3.0, tol=1e-5).fit(ROWS, CLASSES)
    assert svm.objective_ == pytest.approx(optimum(signs, 3.0)[0], rel=2e-5)
    svm.set_params(signs=None).fit(ROWS, CLASSES)
    assert svm.objective_ == pytest.approx(optimum([0] * 6, 3.0)[0], rel=2e-5)
    pieces = svm.set_params(signs=signs, tol=0.02).path(ROWS, CLASSES, 0.1, 10.0)
    for piece in pieces:
        for C in (piece.C_min, piece.C_max):
            coef = piece.coef_at(C)
            assert (coef * signs >= 0).all()
            margins = 1 - np.eye(3)[CLASSES] + ROWS @ coef.reshape(2, 3)
            right = margins[np.arange(12), CLASSES]
            objective = 0.5 * coef @ coef / (12 * C) + (margins.max(axis=1) - right).mean()
            expected = optimum(signs, C)[0]
            assert expected <= objective + 1e-9
            assert objective <= expected * (1 + 0.021)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"signs": [1, 0]}, "signs: must have one sign for each of the 6 weights"),
        ({"signs": [2] * 6}, "signs: must be one of -1, 0 and 1"),
        ({"signs": SIGNS[0], "averaging": True}, "signs: .*without averaging"),
        ({"signs": SIGNS[0], "solver": "frank-wolfe"}, "signs: only"),
        ({"signs": SIGNS[0], "solver": "extragradient"}, "signs: "),
        ({"exact_decoder": False}, "exact_decoder: a built-in model"),
        ({"verify_decoder": False}, "verify_decoder: a built-in model"),
    ],
)
def test_incompatible_options_are_rejected(parameters, message):
    with pytest.raises(ValueError, match=message):
        StructuredSVM(MulticlassModel(), **parameters).fit(ROWS, CLASSES)


class Hasty(OwnMulticlass):
    """Inexact decoder that searches two of the three classes, depending on the example."""

    def loss_augmented_decode(self, x, y_true, w):
        some = [y for y in range(3) if y != int(abs(x[0]) * 7) % 3]
        return max(some, key=lambda y: self.loss(y_true, y) + w @ self.joint_features(x, y))


def test_an_approximate_decoder_trains_without_a_certificate():
    with pytest.raises(ValueError, match="exact_decoder=False"):
        StructuredSVM(Hasty(), C=2.0, random_state=0, tol=1e-3).fit(ROWS, CLASSES)
    svm = StructuredSVM(
        Hasty(), exact_decoder=False, C=2.0, random_state=0, tol=1e-3, max_iter=5000
    )
    svm.fit(ROWS, CLASSES)
    assert svm.converged_
    assert svm.certificate_ == "none: the decoder is approximate"
    assert svm.duality_gap_ is None
    assert svm.relative_gap_ is None
    exact = optimum([0] * 6, 2.0)[0]
    # Even an inexact decoder gives a lower bound on the exact objective.
    assert svm.dual_objective_ <= exact
    assert svm.dual_objective_ <= svm.objective_
    assert svm.score(ROWS, CLASSES) > 0.5
    with pytest.raises(ValueError, match="exact_decoder: a path"):
        svm.path(ROWS, CLASSES, 0.1, 1.0)
    with pytest.raises(ValueError, match="exact_decoder: solver="):
        svm.set_params(solver="subgradient").fit(ROWS, CLASSES)


class Ranking:
    """A ranking model whose features are sums over pairs of items, and whose `decode` returns
    scores."""

    def joint_features(self, x, y):
        return sum((x[a] - x[b] for a, b in itertools.combinations(y, 2)), np.zeros(x.shape[1]))

    def loss(self, y_true, y):
        places = {item: place for place, item in enumerate(y_true)}
        return float(sum(places[a] > places[b] for a, b in itertools.combinations(y, 2)))

    def loss_augmented_decode(self, x, y_true, w):
        orders = itertools.permutations(range(len(x)))
        return max(orders, key=lambda y: self.loss(y_true, y) + w @ self.joint_features(x, y))


def test_decode_may_return_scores_if_it_is_not_verified():
    X = rng.standard_normal((6, 4, 3))
    Y = [tuple(np.argsort(-x @ [1.0, -0.5, 0.2])) for x in X]

    class Scoring(Ranking):
        def decode(self, x, w):
            return x @ w

    with pytest.warns(ConvergenceWarning, match="model failed when its decodings were compared"):
        StructuredSVM(Scoring(), random_state=0).fit(X, Y)
    svm = StructuredSVM(Scoring(), verify_decoder=False, random_state=0).fit(X, Y)
    assert svm.converged_
    assert svm.certificate_ == "exact if the decoder is, unverified"
    assert svm.duality_gap_ <= 1e-2 * svm.objective_
    assert all(tuple(np.argsort(-s)) == y for s, y in zip(svm.predict(X), Y, strict=True))
    # A model without `decode` cannot predict.
    with pytest.raises(ValueError, match=r"decode; with verify_decoder=False, training works"):
        StructuredSVM(Ranking()).fit(X, Y)
    svm = StructuredSVM(Ranking(), verify_decoder=False, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="model: has no method decode"):
        svm.predict(X)


def best_links(scores, rows, columns):
    """Find the best matching with limits per row and column, as an integer program."""
    n, m = scores.shape
    per_row = np.kron(np.eye(n), np.ones(m))
    per_column = np.kron(np.ones(n), np.eye(m))
    limits = [LinearConstraint(per_row, ub=rows), LinearConstraint(per_column, ub=columns)]
    found = milp(-scores.ravel(), constraints=limits, integrality=np.ones(n * m), bounds=(0, 1))
    return -found.fun


def make_linked_pairs(n, seed=0):
    """Sentence pairs in which a row has up to two true links."""
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(n):
        shape = tuple(rng.integers(2, 7, 2))
        truth = rng.random(shape) < 0.25
        truth[:, 2:] = False
        x = rng.standard_normal((*shape, 3)) * 0.4
        x[:, :, 0] += truth
        x[:, :, 2] = 1.0
        X.append(x)
        Y.append(np.argwhere(truth))
    return X, Y


@pytest.mark.parametrize("links", [1, 2, (1, 3), (3, 1), (2, 4)])
def test_links_are_optimal_and_obey_their_limits(links):
    X, Y = make_linked_pairs(15)
    rows, columns = links if isinstance(links, tuple) else (links, links)
    svm = StructuredSVM(MatchingModel(max_links=links), tol=1e-2, C=10, random_state=0).fit(X, Y)
    assert svm.converged_
    for x, pairs in zip(X, svm.predict(X), strict=True):
        scores = x @ svm.coef_
        assert scores[pairs[:, 0], pairs[:, 1]].sum() == pytest.approx(
            best_links(scores, rows, columns), abs=1e-9
        )
        assert len({tuple(pair) for pair in pairs}) == len(pairs)
        assert np.bincount(pairs[:, 0], minlength=1).max() <= rows
        assert np.bincount(pairs[:, 1], minlength=1).max() <= columns
        assert (np.lexsort(pairs.T[::-1]) == np.arange(len(pairs))).all()


def test_more_links_fit_data_that_single_links_cannot_fit():
    X, Y = make_linked_pairs(40)
    one, many = (
        StructuredSVM(MatchingModel(max_links=links), C=100, random_state=0, max_iter=3000)
        .fit(X[:20], Y[:20])
        .score(X[20:], Y[20:])
        for links in (1, (2, 6))
    )
    assert many > one + 0.1


@pytest.mark.parametrize("links", [0, (1, 0), (1, 2, 3), 1.5, "many"])
def test_errors_of_bad_numbers_of_links_name_the_argument(links):
    with pytest.raises(ValueError, match="max_links: must be"):
        StructuredSVM(MatchingModel(max_links=links)).fit(*make_linked_pairs(3))


def test_the_extragradient_method_supports_only_one_link():
    svm = StructuredSVM(MatchingModel(max_links=2), solver="extragradient")
    with pytest.raises(ValueError, match="max_links: "):
        svm.fit(*make_linked_pairs(3))


def test_the_warning_of_slow_fits_with_signs_names_them():
    fit = StructuredSVM(MulticlassModel(), C=100.0, max_iter=2)
    with pytest.warns(ConvergenceWarning) as free:
        fit.fit(ROWS, CLASSES)
    assert "Newton" not in str(free[0].message)
    with pytest.warns(ConvergenceWarning, match="with signs, solver='auto' does not continue"):
        clone(fit).set_params(signs=[0] * len(fit.coef_)).fit(ROWS, CLASSES)
