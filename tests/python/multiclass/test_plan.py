"""float16 rows, and the plan printed before a fit starts."""

import re
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from dualgap import MulticlassSVC, _core
from dualgap._validation import core_rows


@pytest.fixture
def float16_data():
    rng = np.random.default_rng(3)
    y = rng.integers(5, size=5000)
    X = rng.random((5, 20))[y] + 0.3 * rng.normal(size=(5000, 20))
    return X.astype(np.float16), y


@pytest.mark.parametrize("solver", ["auto", "block-frank-wolfe", "frank-wolfe", "subgradient"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_of_float16_give_the_model_of_the_same_rows_of_float32(float16_data, solver):
    X, y = float16_data
    same = X.astype(np.float32)
    fit = MulticlassSVC(solver=solver, random_state=0, max_iter=20, tol=1e-4)
    half, single = fit.fit(X, y), MulticlassSVC(**fit.get_params()).fit(same, y)
    assert np.array_equal(half.coef_, single.coef_)
    assert half.objective_ == single.objective_
    assert half.dual_objective_ == single.dual_objective_
    assert np.array_equal(half.predict(X), single.predict(same))
    assert np.array_equal(half.decision_function(X), single.decision_function(same))
    assert np.array_equal(half.prediction_may_change(X), half.prediction_may_change(same))


def test_rows_of_float16_are_passed_to_the_core_as_float16(float16_data, monkeypatch):
    seen = []
    fit = _core.fit_multiclass
    monkeypatch.setattr(
        _core, "fit_multiclass", lambda rows, *rest: seen.append(rows) or fit(rows, *rest)
    )
    X, y = float16_data
    MulticlassSVC().fit(X, y)
    assert seen[0].dtype == np.float16
    assert np.shares_memory(seen[0], X)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_float16_that_is_not_finite_is_rejected(float16_data, bad):
    X, y = float16_data
    X[4500, 3] = bad
    with pytest.raises(ValueError, match=r"X: contains .*, at row 4500 and column 3"):
        MulticlassSVC().fit(X, y)


@pytest.mark.parametrize(
    ("solver", "n_jobs", "words"),
    [
        (
            "auto",
            2,
            "block-descent, then newton if .*: .* MB for dual variables; 2 threads$",
        ),
        ("auto", 1, "block-descent, then newton .*; one thread$"),
        ("subgradient", 1, "subgradient: about .* MB for weights; one thread$"),
    ],
)
def test_verbose_prints_the_plan_of_a_fit(float16_data, capfd, solver, n_jobs, words):
    X, y = float16_data
    model = MulticlassSVC(solver=solver, n_jobs=n_jobs, max_iter=2, tol=1.0)
    model.fit(X, y)
    assert not capfd.readouterr().err
    model.set_params(verbose=1).fit(X, y)
    first = capfd.readouterr().err.splitlines()[0]
    assert re.match(words, first), first


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize(
    ("solver", "said"),
    [
        ("auto", "block-frank-wolfe (chosen for the available memory"),
        ("block-frank-wolfe", "block-frank-wolfe:"),
    ],
)
def test_verbose_says_that_memory_chose_the_solver(
    float16_data, capfd, monkeypatch, warm_start, solver, said
):
    # Simulate that block descent does not fit in memory.
    plan = ("block-frank-wolfe", 1_000_000, 1_000_000)
    monkeypatch.setattr(_core, "plan_multiclass", lambda *_: plan)
    X, y = float16_data
    model = MulticlassSVC(solver=solver, warm_start=warm_start, verbose=1, max_iter=2, tol=1.0)
    model.fit(X, y)
    assert capfd.readouterr().err.startswith(said)


def test_planned_memory_grows_with_rows_and_classes(float16_data):
    X, y = float16_data
    settings = {**_settings(X, y), "solver": "block-descent"}
    plans = [_core.plan_multiclass(core_rows(X[:n]), settings)[1:] for n in (1000, 5000)]
    assert plans[0][0] == plans[1][0]
    assert 4.9 < plans[1][1] / plans[0][1] <= 5.0
    wide = _core.plan_multiclass(core_rows(X), {**settings, "n_classes": 500})
    assert wide[0] == "block-descent"
    assert wide[1] > plans[1][0]
    assert wide[2] > plans[1][1]


def test_fits_that_need_too_much_memory_are_rejected_before_they_start(float16_data):
    X, y = float16_data
    settings = {**_settings(X, y), "n_classes": 2**40}
    with pytest.raises(MemoryError, match="m = 1099511627776 classes"):
        _core.fit_multiclass(core_rows(X), y.astype(np.uint32), settings)


def _settings(X, y):
    model = MulticlassSVC()
    model.classes_ = np.unique(y)
    return model._settings(X, y.astype(np.uint32), None)[0] | {"callback": None}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_conjugate_gradients_do_not_depend_on_the_number_of_threads(dtype):
    rng = np.random.default_rng(0)
    y = np.arange(4000) % 40
    X = (rng.random((40, 80))[y] + 0.5 * rng.normal(size=(4000, 80))).astype(dtype)
    fits = [
        MulticlassSVC(n_jobs=n_jobs, random_state=0, tol=1e-4, max_iter=200).fit(X, y)
        for n_jobs in (1, 2, 5)
    ]
    for fit in fits[1:]:
        assert np.array_equal(fit.coef_, fits[0].coef_)
        assert fit.dual_objective_ == fits[0].dual_objective_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_classes", [6, 90])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["crammer-singer", "weston-watkins"])
def test_fits_to_sparse_rows_do_not_depend_on_the_number_of_threads(dtype, n_classes, loss):
    rng = np.random.default_rng(0)
    n, d, length = 2500, 3000, 80
    y = np.arange(n) % n_classes
    own = rng.integers(d, size=(n_classes, 100))[y[:, None], rng.integers(100, size=(n, length))]
    columns = np.where(rng.random((n, length)) < 0.3, own, rng.integers(d, size=(n, length)))
    X = sp.csr_array(
        (rng.random(n * length), columns.ravel(), length * np.arange(n + 1)), shape=(n, d)
    )
    X.sum_duplicates()
    X = X.astype(dtype)
    fits = [
        MulticlassSVC(loss, n_jobs=n_jobs, random_state=0, tol=1e-5, max_iter=12).fit(X, y)
        for n_jobs in (1, 2, 5)
    ]
    for fit in fits[1:]:
        assert np.array_equal(fit.coef_, fits[0].coef_)
        assert np.array_equal(fit.history_["gap"], fits[0].history_["gap"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_are_not_copied():
    rng = np.random.default_rng(0)
    y = np.arange(20_000) % 3
    columns = (np.arange(100) * 10 + rng.integers(10, size=(20_000, 1))).ravel()
    indptr = np.arange(0, 2_000_001, 100)
    sparse = sp.csr_array((rng.normal(size=2_000_000), columns, indptr), shape=(20_000, 1000))
    for X in (rng.normal(size=(20_000, 100)), rng.normal(size=(20_000, 200)).astype(np.float32)):
        assert _peak(X, y) < 0.25 * X.nbytes
    for X in (sparse, sparse.astype(np.float32)):
        # The checks only read the index arrays. Only the offsets are converted.
        assert _peak(X, y) < 0.5 * (X.data.nbytes + X.indices.nbytes)


def _peak(X, y):
    """Return the peak number of bytes that NumPy allocates in a fit, without the core's memory."""
    tracemalloc.start()
    try:
        MulticlassSVC(max_iter=1, tol=0.0, solver="frank-wolfe").fit(X, y)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
