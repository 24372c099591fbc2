"""Every function of the core, called with hostile arguments: an answer or an error, no panic.

A panic comes out as "a bug in dualgap", and an abort or undefined behaviour ends the process.
`DUALGAP_FUZZ_SECONDS=600 pytest tests/python/fuzz` draws new arguments for ten minutes.
"""

import os
import time

import numpy as np
import pytest
from arguments import Arguments, Oracle
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dualgap import _core

SECONDS = float(os.environ.get("DUALGAP_FUZZ_SECONDS", "0"))

SELECTIONS = ["refined", "initial", "random-refined", "random", "best-row", "exact"]


def fit_multiclass(a):
    n, d, m = a.size(), a.size(), a.size()
    given = {**a.margin(m), **a.method(list(_core.SOLVERS)), **a.run(), "keep_dual": a.rarely(0.5)}
    given |= {"regularization": a.positive(), "sample_weight": a.weights(n), "start": None}
    if a.rarely(0.3):
        given["start"] = {
            "weights": a.array(a.near(m), d + a.choice([0, 1])),
            "linear": a.number(),
            "square": a.number(),
            "beta": a.array(a.near(n), m, sign=False),
        }
    return _core.fit_multiclass(a.rows(n, d), a.integers(n, m), given)


def consensus_round(a):
    n, d, m = a.size(), a.size(), a.size()
    n_weights = m * (d + a.choice([0, 1]))
    given = {
        **a.margin(m),
        "regularization": a.positive(),
        "sample_weight": a.weights(n),
        "consensus": a.array(n_weights),
        "multiplier": a.array(n_weights),
        "rho": a.positive(),
        "beta": None if a.rarely(0.4) else a.array(n * m, sign=False),
        "check_beta": a.rarely(0.5),
        "gap": a.positive(),
        "relative_gap": a.positive(),
        "tol": a.positive(),
        "max_iter": a.choice([0, 1, 5]),
        "seed": a.seed(),
        "n_threads": 1,
        "callback": a.callback(),
    }
    return _core.consensus_round(a.rows(n, d), a.integers(n, m), given)


def fit_polynomial(a):
    n, d, m = a.size(), a.size(), a.size()
    given = {
        "n_outputs": a.near(m),
        "kernel": a.choice(["square", "anova"]),
        "augmented": a.rarely(0.5),
        "alpha": a.choice([None, 1.0, a.positive()]),
        "loss": a.choice(list(_core.OUTPUT_LOSSES)),
        "penalty": a.choice(list(_core.PENALTIES)),
        "radius": a.positive(),
        "n_components": a.choice([0, 1, 3]),
        "refit": a.choice(["full", "output"]),
        "selection": a.choice(SELECTIONS),
        "selection_tol": a.positive(),
        "tol": a.positive(),
        "max_iter": a.choice([0, 1, 3]),
        "seed": a.seed(),
        "n_threads": a.choice([0, 1, 2]),
        "sample_weight": a.weights(n),
        "init": None if a.rarely(0.7) else a.network(d, m),
        "validation": None if a.rarely(0.8) else (a.rows(a.size(), d), a.targets(a.size(), m)),
        "callback": a.callback(),
    }
    chunks = [a.rows(n, d)] if a.rarely(0.8) else [a.rows(a.size(), d) for _ in range(a.size() % 3)]
    return _core.fit_polynomial(chunks, a.targets(n, m), given)


def predict_polynomial(a):
    n, d, m = a.size(), a.size(), a.size()
    return _core.predict_polynomial(
        a.rows(n, d),
        a.network(d + a.choice([0, 1]), m),
        kernel=a.choice(["square", "anova"]),
        augmented=a.rarely(0.5),
        n_threads=a.choice([0, 1, 2]),
    )


def select_basis(a):
    n, d, m = a.size(), a.size(), a.size()
    given = {
        "kernel": a.choice(["square", "anova"]),
        "penalty": a.choice(list(_core.PENALTIES)),
        "selection": a.choice(SELECTIONS),
        "tol": a.positive(),
        "seed": a.seed(),
        "n_threads": 1,
    }
    return _core.select_basis(a.rows(n, d), a.array(a.near(n), m), given)


def fit_variational(a):
    n, n_users, n_items = a.size(), a.size(), a.size()
    sparse = {"sparse": True, "dtype": np.float64}
    features = [
        None if a.rarely(0.6) else a.rows(size, a.size(), **sparse) for size in (n_users, n_items)
    ]
    given = {
        "n_users": n_users,
        "n_items": n_items,
        "weights": None if a.rarely(0.5) else a.weights(n),
        "tempering": a.choice([None, [1.0], [0.5, 0.5], [a.number(0.3)], []]),
        "n_components": a.choice([0, 1, 2, 5, 9]),
        "penalty": a.choice(list(_core.PENALTIES)),
        "radius": a.positive(),
        "output_ridge": a.positive(),
        "hold": a.choice([0, 1, 2]),
        "feature_ridge": a.positive(),
        "relaxation": a.choice([1.0, 1.5, a.number(0.3)]),
        "popularity": a.rarely(0.5),
        "n_sweeps": a.choice([0, 1, 3]),
        "tol": a.positive(),
        "seed": a.seed(),
        "n_threads": a.choice([0, 1, 2]),
        "user_features": features[0],
        "item_features": features[1],
        "callback": a.callback(),
    }
    levels = a.integers(n, 3).astype(float)
    values = levels if a.rarely(0.5) else a.array(n)
    return _core.fit_variational(a.integers(n, n_users), a.integers(n, n_items), values, given)


def source(a):
    """A problem, and what its sizes may be."""
    if a.rarely(0.35):
        n_blocks, n_weights = a.size(), a.size()
        return (Oracle(a, n_weights), n_blocks, a.near(n_weights)), n_blocks, n_weights
    model = a.model()
    return model, a.choice([1, 2, 3, a.size()]), min(model.n_weights, 1000)


def fit_structured(a):
    problem, n_blocks, n_weights = source(a)
    return _core.fit_structured(problem, a.structured(n_blocks, n_weights))


def structured_path(a):
    problem, n_blocks, n_weights = source(a)
    given = a.structured(n_blocks, n_weights)
    if a.rarely(0.8):
        given |= {"solver": "block-frank-wolfe", "averaging": False, "subsample": 1.0}
        given |= {"projection": None, "radius": None}
    return _core.structured_path(problem, given, a.choice([1e-4, 0.1, a.positive()]))


def decode(a):
    model = a.model()
    if model.n_weights < 10**6:
        weights = a.array(a.near(model.n_weights))
        return (model.decode if a.rarely(0.5) else model.losses)(weights, a.choice([0, 1, 2]))
    return None


def label_edges(a):
    q = a.choice([0, 1, 2, 3, 17, 2**40])
    labels = a.integers(a.choice([0, 3, 2 * min(q, 99)]), 2, np.uint8)
    return _core.StructuredModel.label_edges(labels, q, a.edges())


def check_loss(a):
    weights = a.choice([None, [], [a.number(0.5) for _ in range(3)]])
    return _core.check_loss(a.choice(list(_core.LOSSES)), a.choice([None, 0, 1, 2**40]), weights)


DOORS = [
    fit_multiclass,
    consensus_round,
    fit_polynomial,
    predict_polynomial,
    select_basis,
    fit_variational,
    fit_structured,
    structured_path,
    decode,
    label_edges,
    check_loss,
]
ERRORS = (ValueError, TypeError, OverflowError, RuntimeError, MemoryError)


def call(door, seed):
    """Call a function; whatever is not an ordinary error comes out."""
    try:
        door(Arguments(seed))
    except ERRORS as error:
        if "a bug in dualgap" in str(error):
            raise AssertionError(f"{door.__name__}, seed {seed}: {error}") from error


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**63 - 1))
@example(seed=0)
def test_arguments_are_answered_or_refused(door, seed):
    call(door, seed)


@pytest.mark.skipif(not SECONDS, reason="set DUALGAP_FUZZ_SECONDS to look for as long")
@pytest.mark.timeout(max(2 * SECONDS, 60))
def test_long():
    start, seed, calls = time.monotonic(), time.time_ns() % 2**40, 0
    while time.monotonic() - start < SECONDS:
        call(DOORS[calls % len(DOORS)], seed + calls)
        calls += 1
    print(f"{calls} calls from seed {seed}")


# What was found, each by the arguments that showed it.


def test_no_outputs_no_columns_and_no_classes_are_refused():
    nothing = {"basis": np.zeros((1, 2)), "output": np.zeros((1, 0)), "linear": None}
    with pytest.raises(ValueError, match="X: "):
        _core.predict_polynomial(
            np.ones((2, 2)), nothing, kernel="square", augmented=False, n_threads=1
        )
    given = {"kernel": "square", "penalty": "l1", "selection": "refined", "tol": 0.1, "seed": 0}
    with pytest.raises(ValueError, match="X: there must be at least one column"):
        _core.select_basis(np.ones((2, 0)), np.ones((2, 1)), {**given, "n_threads": 1})
    with pytest.raises(ValueError, match="n_labels: must be between 1"):
        _core.StructuredModel.label_edges(np.zeros(0, np.uint8), 0, "tree")


def test_examples_without_labels_have_no_loss():
    model = _core.StructuredModel.multiclass(np.eye(3), None, n_classes=2, costs=None)
    assert len(model.decode(np.zeros(6), 1)[1]) == 3
    with pytest.raises(ValueError, match="Y: the examples have no labels"):
        model.losses(np.zeros(6), 1)


@pytest.mark.parametrize("answer", [(np.zeros(2), 0.0), (np.full(3, np.nan), 0.0), None])
def test_an_oracle_of_another_size_is_refused(answer):
    class Wrong:
        def vertices(self, indices, weights):
            return [] if answer is None else [answer for _ in indices]

    a = Arguments(0)
    given = {**a.structured(2, 3), "solver": "away-frank-wolfe", "step": None, "start": None}
    given |= {"cache": False, "averaging": False, "subsample": 1.0, "sampling": "permutation"}
    given |= {"projection": None, "radius": None, "regularization": 1.0, "sample_weight": None}
    given |= {"tol": 0.1, "max_iter": 3, "signs": None, "exact": True}
    with pytest.raises(ValueError, match="model: the oracle must return 3 finite numbers"):
        _core.fit_structured((Wrong(), 2, 3), given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_misaligned_rows_are_copied(dtype):
    X = np.arange(12, dtype=dtype).reshape(4, 3)
    raw = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(dtype).reshape(4, 3)
    assert not raw.flags.aligned
    network = {"basis": np.eye(3), "output": np.ones((3, 1)), "linear": None}
    options = {"kernel": "square", "augmented": False, "n_threads": 1}
    found = _core.predict_polynomial(raw, network, **options)
    assert np.array_equal(found, _core.predict_polynomial(X, network, **options))
