"""Every function of the core returns a result or an error for invalid arguments, never a panic.

A panic appears as "a bug in dualgap", and an abort or undefined behaviour ends the process.
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

SELECTIONS = ["refined", "power", "initial", "random-refined", "random", "best-row", "exact"]


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


def fit_class_features(a):
    n, d, m = a.size(), a.size(), a.size()
    given = {**a.margin(m), **a.method(list(_core.SOLVERS)), **a.run()}
    given |= {"regularization": a.positive(), "sample_weight": a.weights(n)}
    given["class_features"] = None if a.rarely(0.3) else a.rows(a.near(m), a.size())
    n_rows = n * m if given["class_features"] is None else n
    return _core.fit_class_features(a.rows(n_rows, d), a.integers(n, m), given)


def logistic_settings(a, n, m):
    return {
        "n_classes": a.near(m),
        "sample_weight": a.weights(n),
        "intercept": a.rarely(0.7),
        "solver": a.choice(["x", ""] if a.rarely() else list(_core.LOGISTIC_SOLVERS)),
        "seed": a.seed(),
    }


def draw_model(a, m, d):
    """Draw weights and intercepts; two classes share one output."""
    n_outputs = a.near(1 if m == 2 else m)
    return a.array(n_outputs, a.near(d)), a.array(a.near(n_outputs))


def fit_logistic_regression(a):
    n, d, m = a.size(), a.size(), a.choice([0, 1, 2, 2, 3, 4])
    given = {**logistic_settings(a, n, m), **a.run(), "C": a.positive()}
    given["start"] = draw_model(a, m, d) if a.rarely(0.3) else None
    return _core.fit_logistic_regression(a.rows(n, d), a.integers(n, m), given)


def fit_logistic_regressions(a):
    n, d, m = a.size(), a.size(), a.choice([0, 1, 2, 2, 3, 4])
    given = {**logistic_settings(a, n, m), **a.run()}
    given["Cs"] = [a.positive() for _ in range(a.choice([0, 1, 2, 3]))]
    ended = a.choice([lambda _: False, lambda _: False, lambda _: a.rarely(0.3), lambda _: "x"])
    return _core.fit_logistic_regressions(a.rows(n, d), a.integers(n, m), given, ended)


def logistic_sums(a):
    n, d, m = a.size(), a.size(), a.choice([0, 1, 2, 2, 3, 4])
    given = {**logistic_settings(a, n, m), "C": a.positive(), "model": draw_model(a, m, d)}
    given["tilt"] = a.array(a.near(m)) if a.rarely(0.3) else None
    given["direction"] = draw_model(a, m, d) if a.rarely(0.3) else None
    return _core.logistic_sums(a.rows(n, d), a.integers(n, m), given)


def logistic_certificate(a):
    d, m = a.size(), a.choice([0, 1, 2, 2, 3, 4])
    k = 1 if m == 2 else m
    given = {
        **{name: abs(a.number()) for name in ("loss", "entropy", "distance")},
        "depth": a.choice([0, 1, 100, 2**40, 2**63]),
        "moments": a.array(a.near(k * k)),
        "residual": a.array(a.near(k)),
        "image": a.array(a.near(k), a.near(d)),
        "sizes": a.array(a.near(d), sign=False),
        "n_examples": a.choice([0, 1, 100, 2**40, 2**63]),
        "intercept": a.rarely(0.7),
        "class_totals": a.array(a.near(m), sign=False),
        "model": draw_model(a, m, d),
    }
    return _core.logistic_certificate(given)


def multiclass_path(a):
    n, d, m = a.size(), a.size(), a.size()
    given = {**a.margin(m), **a.method(list(_core.SOLVERS)), **a.run()}
    given |= {"regularization": a.positive(), "sample_weight": a.weights(n)}
    if a.rarely(0.8):
        given |= {"solver": "block-frank-wolfe", "averaging": False, "subsample": 1.0}
    labels, until = a.integers(n, m), a.choice([1e-4, 0.1, a.positive()])
    return _core.multiclass_path(a.rows(n, d), labels, given, until)


def cross_validate(a):
    n, d, m = a.size(), a.size(), a.size()
    n_folds = a.choice([0, 1, 2, 3])
    given = {
        **a.margin(m),
        **a.run(),
        "Cs": [a.positive() for _ in range(a.choice([0, 1, 2, 3]))],
        "fold_weights": a.array(n_folds, a.near(n), sign=False),
        "held_out": [a.integers(a.size(), n) for _ in range(a.near(n_folds))],
        "measure": a.choice([None, "accuracy", "balanced_accuracy", "top_k", "cost", "x"]),
        "top_k": a.choice([0, 1, 2, 2**40]),
        "score": a.choice([None, lambda *_: 0.5, lambda *_: "x", lambda *_: int("x")]),
        "width": a.choice([None, 0.0, a.positive()]),
        "seed": a.seed(),
    }
    if a.rarely(0.7):
        given["Cs"].sort()
    return _core.cross_validate(a.rows(n, d), a.integers(n, m), given)


def draw_link_codes(a, m):
    """Draw codes of transitions, of first labels and of last labels; most of them have a weight."""
    codes = [a.choice([1, 1, 1, 1, 0, 2]) for _ in range(a.near(m * (m + 2)))]
    return np.array([9, *codes[1:]] if codes and a.rarely() else codes, dtype=np.uint8)


def draw_offsets(a, n):
    """Draw offsets of sentences."""
    found = np.array(sorted([0, n, *(a.random.randrange(n + 1) for _ in range(2))]), np.int64)
    if a.rarely(0.1):
        found[a.random.randrange(len(found))] = a.choice([-1, n + 1, 10**12])
    return found[:0] if a.rarely(0.03) else found


def sequence_settings(a, n, m, n_sentences):
    return {
        **a.run(),
        "n_states": a.near(m),
        "loss": a.choice(
            ["hamming", "logistic", "logistic", "x"] if a.rarely() else ["hamming", "logistic"]
        ),
        "links": draw_link_codes(a, m),
        "seen_pairs": a.rarely(0.3),
        "token_weight": None if a.rarely(0.7) else a.array(a.near(n), sign=False),
        "known": None if a.rarely(0.7) else a.integers(n, 2, np.uint8),
        "l1_ratio": a.choice([0.0, 0.0, 0.5, 1.0, 2.0]),
        "edges": None if a.rarely(0.7) else a.rows(a.near(n), a.size()),
        "sampling": a.choice(_core.SAMPLINGS),
        "seed": a.seed(),
        "start": None,
        "keep_point": a.rarely(0.8),
        "regularization": a.positive(),
        "sample_weight": a.weights(n_sentences),
    }


def fit_sequences(a):
    n, d, m = a.size(), a.size(), a.choice([1, 2, 3])
    ends = draw_offsets(a, n)
    given = sequence_settings(a, n, m, max(len(ends) - 1, 0))
    rows, labels = a.rows(n, d), a.integers(n, m)
    found = _core.fit_sequences(_core.SequenceProblem(rows, ends, labels, given), given)
    # Continue at another C, or with other sentences.
    given |= {"start": found.get("point"), "regularization": a.positive()}
    if a.rarely(0.3):
        n = a.size()
        rows, ends, labels = a.rows(n, a.near(d)), draw_offsets(a, n), a.integers(n, m)
    return _core.fit_sequences(_core.SequenceProblem(rows, ends, labels, given), given)


def tag(a):
    n, d, m = a.size(), a.size(), a.choice([0, 1, 2, 3])
    counts = [a.random.randrange(m + 1) for _ in range(d)]
    ends = np.array([0, *np.cumsum(counts)], np.int64)
    size, n_edge_columns = int(ends[-1]), a.choice([0, 0, 0, 1, 2])
    tagger = _core.Tagger(
        {
            "n_states": a.near(m),
            "links": draw_link_codes(a, m),
            "offsets": ends[::-1].copy() if a.rarely() else ends,
            "labels": a.integers(size, m, np.uint16),
            "values": a.array(a.near(size)),
            "link_weights": a.array(a.near(m * (m + 2))),
            "edge_weights": a.array(a.near(n_edge_columns * m * m)),
        }
    )
    edges = a.rows(n, n_edge_columns) if n_edge_columns else None
    given, threads = (a.rows(n, d), draw_offsets(a, n), edges), a.choice([0, 1, 2])
    names = [f"f{number}" for number in range(d)]
    text, ends = "".join(names).encode(), np.cumsum([len(name) for name in names])
    ends = [*ends.tolist(), *([2**40] if a.rarely() else [])]
    vocabulary = _core.Vocabulary(4) if a.rarely() else _core.Vocabulary.from_names(text, ends)
    sentences = [[["f0", "f1", "?"]], [], [{"f0": a.number(), "f": "x", "f1": [None, {}]}]]
    ask = a.choice(
        [
            lambda: tagger.decode(given, threads),
            lambda: tagger.decode_best(given, a.choice([0, 1, 3, 2**40]), a.rarely(0.5), threads),
            lambda: tagger.marginals(given, a.rarely(0.5), threads),
            lambda: tagger.tag(vocabulary, sentences[: a.choice([0, 1, 2, 3])], threads),
        ]
    )
    return ask()


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
        "solver": a.choice(["block-descent", "sequential-dual"]),
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
        "reoptimize": a.choice(["full", "output"]),
        "selection": a.choice(SELECTIONS),
        "selection_tol": a.positive(),
        "tol": a.positive(),
        "max_iter": a.choice([0, 1, 3]),
        "seed": a.seed(),
        "n_threads": a.choice([0, 1, 2]),
        "sample_weight": a.weights(n),
        "target_means": None if a.rarely(0.7) else a.array(a.near(m)),
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


def draw_groups(a, n):
    n_groups = a.choice([2**40, 2**63]) if a.rarely() else a.size()
    return a.integers(n, n_groups), n_groups


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
        "max_iter": a.choice([0, 1, 3]),
        "tol": a.positive(),
        "seed": a.seed(),
        "n_threads": a.choice([0, 1, 2]),
        "user_features": features[0],
        "item_features": features[1],
        "groups": None if a.rarely(0.6) else [draw_groups(a, n) for _ in range(2)],
        "callback": a.callback(),
    }
    levels = a.integers(n, 3).astype(float)
    values = levels if a.rarely(0.5) else a.array(n)
    return _core.fit_variational(a.integers(n, n_users), a.integers(n, n_items), values, given)


def draw_source(a):
    """Draw a problem, and sizes that match it."""
    if a.rarely(0.35):
        n_blocks, n_weights = a.size(), a.size()
        oracle = Oracle(a, n_weights), n_blocks, a.near(n_weights), a.positive()
        return oracle, n_blocks, n_weights
    model = a.model()
    return model, a.choice([1, 2, 3, a.size()]), min(model.n_weights, 1000)


def fit_structured(a):
    problem, n_blocks, n_weights = draw_source(a)
    return _core.fit_structured(problem, a.structured(n_blocks, n_weights))


def structured_path(a):
    problem, n_blocks, n_weights = draw_source(a)
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


ENTRY_POINTS = [
    fit_multiclass,
    fit_class_features,
    fit_logistic_regression,
    fit_logistic_regressions,
    logistic_sums,
    logistic_certificate,
    multiclass_path,
    cross_validate,
    fit_sequences,
    tag,
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


def call_with_random_arguments(entry_point, seed):
    """Call an entry point, and ignore the errors that it may raise for invalid arguments."""
    try:
        entry_point(Arguments(seed))
    except ERRORS as error:
        if "a bug in dualgap" in str(error):
            raise AssertionError(f"{entry_point.__name__}, seed {seed}: {error}") from error


@pytest.mark.parametrize("entry_point", ENTRY_POINTS, ids=lambda entry_point: entry_point.__name__)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**63 - 1))
@example(seed=0)
def test_arguments_are_answered_or_rejected(entry_point, seed):
    call_with_random_arguments(entry_point, seed)


@pytest.mark.skipif(not SECONDS, reason="set DUALGAP_FUZZ_SECONDS to run this test")
@pytest.mark.timeout(max(2 * SECONDS, 60))
def test_arguments_are_answered_or_rejected_for_the_given_time():
    start, seed, calls = time.monotonic(), time.time_ns() % 2**40, 0
    while time.monotonic() - start < SECONDS:
        call_with_random_arguments(ENTRY_POINTS[calls % len(ENTRY_POINTS)], seed + calls)
        calls += 1
    print(f"{calls} calls from seed {seed}")


# Past bugs, each with the arguments that triggered it.


def test_no_outputs_no_columns_and_no_classes_are_rejected():
    nothing = {"basis": np.zeros((1, 2)), "output": np.zeros((1, 0)), "linear": None}
    with pytest.raises(ValueError, match="X: "):
        _core.predict_polynomial(
            np.ones((2, 2)), nothing, kernel="square", augmented=False, n_threads=1
        )
    given = {"kernel": "square", "penalty": "l1", "selection": "refined", "tol": 0.1, "seed": 0}
    with pytest.raises(ValueError, match="X: must have at least one column"):
        _core.select_basis(np.ones((2, 0)), np.ones((2, 1)), {**given, "n_threads": 1})
    with pytest.raises(ValueError, match="n_labels: must be between 1"):
        _core.StructuredModel.label_edges(np.zeros(0, np.uint8), 0, "tree")


def test_examples_without_labels_have_no_loss():
    model = _core.StructuredModel.multiclass(np.eye(3), None, n_classes=2, costs=None)
    assert len(model.decode(np.zeros(6), 1)[1]) == 3
    with pytest.raises(ValueError, match="y: the examples have no labels"):
        model.losses(np.zeros(6), 1)


@pytest.mark.parametrize("answer", [(np.zeros(2), 0.0), (np.full(3, np.nan), 0.0), None])
def test_an_oracle_of_another_size_is_rejected(answer):
    class Wrong:
        def vertices(self, indices, weights):
            return [] if answer is None else [answer for _ in indices]

    a = Arguments(0)
    given = {**a.structured(2, 3), "solver": "away-frank-wolfe", "step": None, "start": None}
    given |= {"cache": False, "averaging": False, "subsample": 1.0, "sampling": "permutation"}
    given |= {"projection": None, "radius": None, "regularization": 1.0, "sample_weight": None}
    given |= {"tol": 0.1, "max_iter": 3, "signs": None, "exact": True}
    with pytest.raises(ValueError, match="model: the oracle must return 3 finite numbers"):
        _core.fit_structured((Wrong(), 2, 3, 1.0), given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_misaligned_rows_are_copied(dtype):
    X = np.arange(12, dtype=dtype).reshape(4, 3)
    raw = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(dtype).reshape(4, 3)
    assert not raw.flags.aligned
    network = {"basis": np.eye(3), "output": np.ones((3, 1)), "linear": None}
    options = {"kernel": "square", "augmented": False, "n_threads": 1}
    found = _core.predict_polynomial(raw, network, **options)
    assert np.array_equal(found, _core.predict_polynomial(X, network, **options))
