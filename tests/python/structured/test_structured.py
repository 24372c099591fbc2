"""Structured SVMs: models, solvers, custom models, errors."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from dualgap import MulticlassSVC, _core
from dualgap.structured import (
    ChainModel,
    MatchingModel,
    MulticlassModel,
    MultilabelModel,
    StructuredSVM,
)

SOLVERS = [name for name in _core.STRUCTURED_SOLVERS if name != "extragradient"]


def chains(n=20, seed=0, letters="abc"):
    """Generate words with noisy features, in which the next letter of the alphabet is likely."""
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(n):
        length = rng.integers(1, 7)
        codes = np.cumsum(rng.integers(0, 2, length)) % len(letters)
        X.append(np.eye(len(letters))[codes] + 0.4 * rng.standard_normal((length, len(letters))))
        Y.append([letters[code] for code in codes])
    return X, Y


def matchings(n=12, seed=0):
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(n):
        rows, columns = rng.integers(1, 5, 2)
        k = rng.integers(1, min(rows, columns) + 1)
        pairs = np.column_stack([rng.permutation(rows)[:k], rng.permutation(columns)[:k]])
        x = 0.3 * rng.standard_normal((rows, columns, 4))
        x[pairs[:, 0], pairs[:, 1], 0] += 1
        x[:, :, 3] = 1
        X.append(x)
        Y.append(pairs)
    return X, Y


def label_sets(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    Y = (X @ rng.standard_normal((4, 5)) + 0.2 * rng.standard_normal((n, 5)) > 0).astype(int)
    return X, Y


def problems():
    digits, classes = load_digits(n_class=5, return_X_y=True)
    return {
        "chain": (ChainModel(boundaries=True), *chains()),
        "matching": (MatchingModel(), *matchings()),
        "multilabel": (MultilabelModel(), *label_sets()),
        "tree": (MultilabelModel(edges="tree", loss="hamming"), *label_sets()),
        "multiclass": (MulticlassModel(), digits[:60] / 16, classes[:60].astype(str)),
    }


@pytest.mark.parametrize("name", problems())
def test_every_solver_learns_and_certifies(name):
    model, X, Y = problems()[name]
    best = StructuredSVM(model, step="pairwise", tol=1e-3, random_state=0).fit(X, Y)
    assert best.converged_
    assert best.duality_gap_ <= 1e-3 * best.objective_
    for solver in SOLVERS:
        svm = StructuredSVM(model, solver=solver, tol=0.03, max_iter=3000, random_state=0)
        svm.fit(X, Y)
        assert svm.dual_objective_ <= best.objective_ + 1e-12
        assert svm.objective_ >= best.dual_objective_ - 1e-12
        assert svm.score(X, Y) > 0.8
    assert len(best.predict(X)) == len(Y)
    assert best.score(X, Y) == pytest.approx(score_predictions(best, X, Y))
    copy = pickle.loads(pickle.dumps(best))
    assert copy.score(X, Y) == best.score(X, Y)


def score_predictions(svm, X, Y):
    """Compute the score from the predictions, for models whose loss counts parts."""
    wrong = total = 0.0
    for x, y, z in zip(X, Y, svm.predict(X), strict=True):
        if isinstance(svm.model, MatchingModel):
            truth, found = ({tuple(map(int, pair)) for pair in pairs} for pairs in (y, z))
            wrong += len(truth ^ found)
            total += len(truth) + min(x.shape[:2])
        else:
            wrong += np.count_nonzero(np.asarray(y) != np.asarray(z))
            total += np.size(y)
    return 1 - wrong / total


@pytest.mark.parametrize("name", ["chain", "matching", "multiclass"])
def test_extragradient_closes_its_restricted_gap(name):
    model, X, Y = problems()[name]
    svm = StructuredSVM(
        model, solver="extragradient", projection="entropic", radius=1.0, tol=0.05, max_iter=4000
    ).fit(X, Y)
    assert svm.converged_
    assert np.linalg.norm(svm.coef_) <= 1.0 + 1e-9
    with pytest.raises(ValueError, match="projection"):
        StructuredSVM(model, solver="extragradient", projection="round").fit(X, Y)


def test_the_multiclass_model_equals_the_crammer_singer_svm():
    X, y = load_digits(return_X_y=True)
    X, y = X[:120] / 16, y[:120]
    one = StructuredSVM(MulticlassModel(), tol=1e-4, step="pairwise", random_state=0).fit(X, y)
    other = MulticlassSVC(fit_intercept=False, tol=2e-3, random_state=0).fit(X, y)
    assert one.objective_ == pytest.approx(other.objective_, abs=2.2e-3)
    assert one.null_objective_ == pytest.approx(other.null_objective_)
    np.testing.assert_array_equal(one.parameters_["weight"].shape, (64, 10))


def test_scores_use_the_costs_of_a_multiclass_model():
    X, y = load_digits(n_class=3, return_X_y=True)
    costs = np.array([[0, 1, 5], [2, 0, 1], [1, 4, 0.0]])
    svm = StructuredSVM(MulticlassModel(costs=costs), C=1e-4, random_state=0).fit(X, y)
    expected = costs[y, svm.predict(X)].sum() / costs.max(axis=1)[y].sum()
    assert svm.score(X, y) == pytest.approx(1 - expected)


def test_matching_predictions_are_optimal_assignments():
    X, Y = matchings(30, seed=3)
    svm = StructuredSVM(MatchingModel(), random_state=0).fit(X, Y)
    for x, pairs in zip(X, svm.predict(X), strict=True):
        scores = np.maximum(x @ svm.coef_, 0)
        best = scores[linear_sum_assignment(scores, maximize=True)].sum()
        assert scores[pairs[:, 0], pairs[:, 1]].sum() == pytest.approx(best)
        assert len(set(pairs[:, 0])) == len(set(pairs[:, 1])) == len(pairs)


def test_sparse_rows_give_the_same_model_and_threads_do_not_matter():
    X, Y = chains(15)
    X = [np.where(np.abs(x) < 0.3, 0, x) for x in X]
    fits = [
        StructuredSVM(ChainModel(), random_state=1, n_jobs=n_jobs).fit(rows, Y).coef_
        for rows in (X, [sp.csr_matrix(x) for x in X])
        for n_jobs in (1, 2)
    ]
    for coef in fits[1:]:
        np.testing.assert_array_equal(coef, fits[0])


def test_a_warm_start_continues_from_the_last_fit():
    X, Y = chains(25)
    for step, cache in [(None, False), ("pairwise", True)]:
        svm = StructuredSVM(
            ChainModel(), step=step, cache=cache, warm_start=True, tol=1e-2, random_state=0
        ).fit(X, Y)
        svm.set_params(max_iter=1, tol=0.0)
        with pytest.warns(ConvergenceWarning):
            svm.fit(X, Y)
        with pytest.warns(ConvergenceWarning):
            cold = clone(svm).fit(X, Y)
        assert svm.duality_gap_ < 0.3 * cold.duality_gap_
        svm.set_params(C=2.0, max_iter=2000, tol=1e-2).fit(X, Y)
        assert svm.converged_


def test_sample_weights_equal_repeated_examples():
    X, Y = chains(12)
    weights = np.arange(12) % 3
    repeated = [i for i, weight in enumerate(weights) for _ in range(weight)]
    fit = {"step": "pairwise", "tol": 1e-5, "max_iter": 5000, "random_state": 0}
    one = StructuredSVM(ChainModel(), **fit).fit(X, Y, sample_weight=weights)
    two = StructuredSVM(ChainModel(), **fit).fit([X[i] for i in repeated], [Y[i] for i in repeated])
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-4)


def test_a_path_covers_its_interval():
    X, Y = chains(30)
    svm = StructuredSVM(ChainModel(), tol=0.02, step="pairwise", random_state=0)
    pieces = svm.path(X, Y, 0.01, 1.0)
    assert pieces[0].C_min == 0.01
    assert pieces[-1].C_max == 1.0
    for one, two in itertools.pairwise(pieces):
        assert one.C_max == two.C_min
    for piece in pieces:
        C = (piece.C_min * piece.C_max) ** 0.5
        fit = clone(svm).set_params(C=C, tol=1e-3).fit(X, Y)
        margin = piece.duality_gap + 1e-9
        # For each fit, the gap bounds 1/2 lambda ||w - w*||^2.
        distance = np.linalg.norm(piece.coef_at(C) - fit.coef_)
        allowed = sum(np.sqrt(2 * gap * C * len(X)) for gap in (margin, fit.duality_gap_))
        assert distance <= allowed
        assert piece.duality_gap <= 0.02 * fit.null_objective_ + 1e-12
    with pytest.raises(ValueError, match=r"C: must be between .* got 7"):
        pieces[0].coef_at(7)


class OwnChain:
    """`ChainModel` over codes 0 to k - 1, implemented in Python by enumeration."""

    k = 3

    def joint_features(self, x, y):
        node, transition = np.zeros((x.shape[1], self.k)), np.zeros((self.k, self.k))
        for t, label in enumerate(y):
            node[:, label] += x[t]
            if t:
                transition[y[t - 1], label] += 1
        return np.concatenate([node.ravel(), transition.ravel()])

    def loss(self, y_true, y):
        return sum(a != b for a, b in zip(y_true, y, strict=True))

    def _best(self, x, w, loss):
        labels = itertools.product(range(self.k), repeat=len(x))
        return max(labels, key=lambda y: w @ self.joint_features(x, y) + loss(y))

    def loss_augmented_decode(self, x, y_true, w):
        return self._best(x, w, lambda y: self.loss(y_true, y))

    def decode(self, x, w):
        return self._best(x, w, lambda _: 0)

    def max_loss(self, y):
        return len(y)


@pytest.fixture
def own():
    X, Y = chains(8, seed=4)
    X, Y = [x[:3] for x in X], [tuple("abc".index(letter) for letter in y[:3]) for y in Y]
    return X, Y


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_model_in_python_gives_the_fit_of_the_built_in_model(own, solver):
    X, Y = own
    fit = {"solver": solver, "tol": 0.02, "max_iter": 60 if solver == "subgradient" else 400}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = StructuredSVM(OwnChain(), random_state=0, **fit).fit(X, Y)
        theirs = StructuredSVM(ChainModel(), random_state=0, **fit).fit(X, Y)
    gaps = ours.duality_gap_ + theirs.duality_gap_
    assert ours.null_objective_ == pytest.approx(theirs.null_objective_)
    assert abs(ours.objective_ - theirs.objective_) <= gaps
    assert ours.score(X, Y) == pytest.approx(theirs.score(X, Y), abs=0.1)
    assert [tuple(y) for y in ours.predict(X)] == [OwnChain().decode(x, ours.coef_) for x in X]


def test_pairwise_steps_cache_and_path_work_with_a_model_in_python(own):
    X, Y = own
    svm = StructuredSVM(
        OwnChain(), step="pairwise", sampling="gap", cache=True, tol=1e-2, random_state=0
    ).fit(X, Y)
    assert svm.converged_
    assert svm.oracle_calls_ < svm.n_iter_ * 3 * len(X)
    assert svm.path(X, Y, 0.1, 0.2)[-1].C_max == 0.2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"joint_features": lambda self, x, y: np.zeros(len(y) + 1)}, "must return an array of"),
        ({"joint_features": lambda self, x, y: np.full(3, np.nan)}, "not finite"),
        ({"loss": lambda self, a, b: 1.0}, "must be 0"),
        (
            {
                "loss": lambda self, a, b: -1.0 * (a != b),
                "loss_augmented_decode": lambda self, x, y, w: (2,) * len(x),
            },
            "not negative",
        ),
        (
            {"loss_augmented_decode": lambda self, x, y, w: self.decode(x, -w)},
            "less than the true label",
        ),
        ({"check": lambda self, x, y: 1 / 0}, "division by zero"),
    ],
)
def test_a_wrong_model_raises_a_specific_error(own, change, message):
    wrong = type("Wrong", (OwnChain,), change)()
    X, Y = own
    with pytest.raises((ValueError, ZeroDivisionError), match=message):
        StructuredSVM(wrong, C=100, random_state=0, tol=1e-4).fit(X, Y)


@pytest.mark.parametrize("forgets", ["loss", "class"])
def test_an_inexact_oracle_gets_no_certificate(own, forgets):
    class Inexact(OwnChain):
        def loss_augmented_decode(self, x, y_true, w):
            if forgets == "loss":
                return self.decode(x, w)
            labels = itertools.product(range(2), repeat=len(x))
            return max(
                [*labels, y_true],
                key=lambda y: w @ self.joint_features(x, y) + self.loss(y_true, y),
            )

    model = StructuredSVM(Inexact(), C=10, random_state=0, tol=1e-4, max_iter=50)
    if forgets == "loss":
        with pytest.raises(ValueError, match="must return a maximiser"):
            model.fit(*own)
    else:
        with pytest.warns(ConvergenceWarning, match="must return a maximiser"):
            model.fit(*own)
        assert model.duality_gap_ is None


def test_a_model_may_not_change_the_weights(own):
    class Vandal(OwnChain):
        def loss_augmented_decode(self, x, y_true, w):
            w[:] = 0
            return y_true

    with pytest.raises(ValueError, match="read-only"):
        StructuredSVM(Vandal(), random_state=0).fit(*own)


def test_a_failed_fit_and_a_path_leave_the_estimator_as_it_was():
    X, Y = chains()
    svm = StructuredSVM(ChainModel(), random_state=0).fit(X, Y)
    before = svm.predict(X)
    renamed = [[letter.upper() for letter in y] for y in Y]
    svm.path(X, renamed, 0.1, 0.1)

    def fail(*_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        svm.set_params(callback=fail).fit(X, renamed)
    for one, two in zip(before, svm.predict(X), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_path_with_too_few_passes_warns_and_ends():
    X, Y = chains()
    svm = StructuredSVM(ChainModel(), tol=1e-6, max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match="a piece of the path"):
        pieces = svm.path(X, Y, 0.1, 10.0)
    assert len(pieces) < 120
    assert pieces[-1].C_max == 10.0


def test_an_infeasible_decoding_is_rejected(own):
    class Checked(OwnChain):
        def check(self, x, y):
            if 2 in y and len(x) == 3:
                raise ValueError("a label with a 2 is not feasible")

    X, _ = own
    Y = [(0,) * len(x) for x in X]
    with pytest.raises(ValueError, match="not feasible"):
        StructuredSVM(Checked(), random_state=0).fit(X, Y)


def test_an_interruption_of_a_python_oracle_propagates_unchanged(own):
    class Slow(OwnChain):
        calls = 0

        def loss_augmented_decode(self, x, y_true, w):
            self.calls += 1
            if self.calls > 20:
                raise KeyboardInterrupt
            return super().loss_augmented_decode(x, y_true, w)

    X, Y = own
    with pytest.raises(KeyboardInterrupt):
        StructuredSVM(Slow(), random_state=0, tol=0.0).fit(X, Y)


@pytest.mark.parametrize("weights", [[0.0] * 4, [np.nan, 1, 1, 1], [-1, 1, 1, 1], [1.0]])
def test_errors_of_bad_sample_weights_name_the_argument(weights):
    X, Y = chains(4)
    svm = StructuredSVM(ChainModel(), random_state=0)
    with pytest.raises(ValueError, match="sample_weight"):
        svm.fit(X, Y, weights)
    with pytest.raises(ValueError, match="sample_weight"):
        svm.fit(X, Y).score(X, Y, weights)


def test_callbacks_see_passes_and_can_end_the_fit():
    X, Y = chains()
    seen = []

    def stop(epoch, seconds, primal, dual):
        seen.append((epoch, primal, dual))
        return epoch == 3

    svm = StructuredSVM(ChainModel(), tol=0.0, callback=stop, random_state=0).fit(X, Y)
    assert svm.n_iter_ == len(seen) == 3
    assert svm.history_["gap"].shape == (3,)


CHAIN = chains(4)


@pytest.mark.parametrize(
    ("model", "X", "y", "parameters", "message"),
    [
        (ChainModel(), [], [], {}, "X: there must be at least one example"),
        (ChainModel(), CHAIN[0], CHAIN[1][:-1], {}, "y: there must be one label for each example"),
        (ChainModel(), [*CHAIN[0][:3], CHAIN[0][3][:, :2]], CHAIN[1], {}, "same number of feat"),
        (ChainModel(), [*CHAIN[0][:3], [[1.0], [2.0, 3.0]]], CHAIN[1], {}, "X: example 3"),
        (ChainModel(), CHAIN[0], [*CHAIN[1][:3], ["a"] * 99], {}, "y: label 3 has 99 entries"),
        (ChainModel(), [np.zeros((0, 2))], [[]], {}, "no position in any sequence"),
        (ChainModel(loss="round"), *CHAIN, {}, "loss: unknown"),
        (ChainModel(), *CHAIN, {"solver": "magic"}, "solver: unknown name"),
        (ChainModel(), *CHAIN, {"step": "long"}, 'step: solver .* has no step "long"; use '),
        (ChainModel(), *CHAIN, {"sampling": "none"}, "sampling: unknown name"),
        (
            ChainModel(),
            *CHAIN,
            {"solver": "away-frank-wolfe", "subsample": 2.0},
            "subsample: must be",
        ),
        (ChainModel(), *CHAIN, {"C": -1}, "C: must be"),
        (
            ChainModel(),
            *CHAIN,
            {"solver": "extragradient", "projection": "euclidean"},
            "projection: .*Euclidean",
        ),
        (MultilabelModel(), np.eye(3), [[0, 2, 1]] * 3, {}, "y: must contain only zeros and ones"),
        (MultilabelModel(), np.eye(20), np.eye(20), {}, "edges: .*at most 16 labels"),
        (MultilabelModel(edges=[(0, 9)]), np.eye(3), np.eye(3), {}, "edges: "),
        (MultilabelModel(edges="star"), np.eye(3), np.eye(3), {}, "edges: unknown name"),
        (MulticlassModel(costs=np.ones((3, 3))), np.eye(3), [0, 1, 2], {}, "costs"),
        (MatchingModel(), [np.eye(3)], [[(0, 0)]], {}, "X: example 0 must have shape"),
        (MatchingModel(), [np.ones((2, 2, 1))], [[(0, 5)]], {}, "y: "),
        (MatchingModel(), [np.ones((2, 2, 1))], [[(0.5, 1)]], {}, "y: label 0"),
        (MatchingModel(false_positive_cost=-1), *matchings(3), {}, "false_positive_cost"),
        (MatchingModel(), [np.ones((2, 2, 1))], [[(2**32, 1)]], {}, "y: label 0"),
        (
            MatchingModel(),
            [np.ones((2, 2, 1))],
            [[(0, 0), (0, 1)]],
            {"solver": "extragradient"},
            "y: .*not a matching",
        ),
        (ChainModel(), *CHAIN, {"solver": "frank-wolfe", "cache": True}, "cache: solver="),
        (ChainModel(), *CHAIN, {"solver": "subgradient", "step": "away"}, "step: solver="),
        (ChainModel(), iter(CHAIN[0]), CHAIN[1], {}, "X: must be a sequence"),
        (ChainModel(), *CHAIN, {"C": 1e-308}, "C: .* total weight"),
        (MultilabelModel(edges=[(0.5, 1)]), np.eye(3), np.eye(3), {}, "edges: must be"),
        (object(), *CHAIN, {}, "model: must be a built-in model or have"),
    ],
)
def test_errors_of_bad_input_name_the_argument(model, X, y, parameters, message):
    with pytest.raises(ValueError, match=message):
        StructuredSVM(model, **parameters).fit(X, y)


def test_labels_unseen_in_training_count_as_errors():
    X, Y = chains()
    for loss in ("hamming", "mean-hamming"):
        svm = StructuredSVM(ChainModel(loss=loss), random_state=0).fit(X, Y)
        Y_new = [["z", *y[1:]] for y in svm.predict(X)]
        shares = [1 / len(y) for y in Y] if loss == "mean-hamming" else len(Y) / sum(map(len, Y))
        assert svm.score(X, Y_new) == pytest.approx(1 - np.mean(shares))
    rows, labels = load_digits(n_class=3, return_X_y=True)
    svm = StructuredSVM(MulticlassModel(), C=1e-5, random_state=0).fit(rows[:90], labels[:90])
    found = np.array(svm.predict(rows))
    assert svm.score(rows, np.where(labels == 0, 7, found)) == np.mean(labels != 0)
    svm.set_params(model=MulticlassModel(costs=1 - np.eye(3))).fit(rows[:90], labels[:90])
    with pytest.raises(ValueError, match="y: the class 7 did not occur"):
        svm.score(rows, labels + 7)


def test_the_average_weights_each_iterate_by_its_number():
    X, Y = chains(1)

    # Each iterate is better than all previous iterates, so the fit returns the last iterate.
    def coef(t, averaging):
        options = {"averaging": averaging, "tol": 0.0, "callback": lambda epoch, *_: epoch == t}
        svm = StructuredSVM(ChainModel(), C=0.3, solver="subgradient", **options).fit(X, Y)
        assert (np.diff(svm.history_["objective"]) < 0.0).all()
        return svm.coef_

    iterates = [coef(t, averaging=False) for t in range(1, 6)]
    expected = np.average(iterates, axis=0, weights=range(1, 6))
    np.testing.assert_allclose(coef(5, averaging=True), expected, atol=1e-12)
    assert np.abs(expected - iterates[-1]).max() > 1e-3


def test_empty_sequences_are_predicted_and_unknown_labels_rejected():
    X, Y = chains()
    X, Y = [*X, np.zeros((0, 3))], [*Y, []]
    svm = StructuredSVM(ChainModel(), random_state=0).fit(X, Y)
    assert [len(y) for y in svm.predict([np.zeros((0, 3)), X[0][:1]])] == [0, 1]
    with pytest.raises(ValueError, match="y: label 0 has 1 entries"):
        svm.score(X[:1], [["z"]])
    with pytest.raises(ValueError, match="X has 5 features, but ChainModel is expecting 3"):
        svm.predict([np.zeros((2, 5))])
