"""Consensus training on threads, on a cluster of processes, and with lost workers."""

import os
import pickle
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file, load_digits
from sklearn.exceptions import ConvergenceWarning

from dualgap import MulticlassSVC
from dualgap.distributed import ConsensusLogisticRegression, ConsensusSVC, _rounds, _worker
from dualgap.distributed._sources import split
from dualgap.losses import StructuredHinge, TopK, Usunier

distributed = pytest.importorskip("distributed", reason="the extra 'distributed' is not installed")
da = pytest.importorskip("dask.array")
pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")

# Dask leaves event loops and sockets open when processes are killed.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)

SETTINGS = {"C": 0.05, "tol": 5e-3, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    X, y = load_digits(return_X_y=True)
    return X[:600] / 16.0, y[:600]


@pytest.fixture(scope="module")
def plain(data):
    return MulticlassSVC(C=0.05, tol=1e-5, random_state=0).fit(*data)


def test_both_solvers_of_subproblems_reach_the_optimum(data, plain):
    fits = {
        solver: ConsensusSVC(solver=solver, n_partitions=3, **SETTINGS).fit(*data)
        for solver in ("block-descent", "sequential-dual")
    }
    for model in fits.values():
        check_certificate(model, plain)
    # The two runs take different steps.
    assert (fits["sequential-dual"].coef_ != fits["block-descent"].coef_).any()
    with pytest.raises(ValueError, match="solver"):
        ConsensusSVC(solver="newton").fit(*data)


def start_cluster(n_workers=2, **options):
    return distributed.LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        silence_logs=50,
        **options,
    )


@pytest.fixture
def new_cluster():
    return start_cluster


@pytest.fixture(scope="module")
def client():
    with start_cluster() as cluster, distributed.Client(cluster) as client:
        yield client


def check_certificate(model, plain):
    """Check that the certificate is correct and reaches the tolerance."""
    assert model.converged_
    assert model.duality_gap_ <= model.tol * model.null_objective_
    assert model.dual_objective_ <= plain.objective_ + 1e-12
    assert plain.dual_objective_ <= model.objective_ + 1e-12
    gaps = model.history_["gap"]
    # The first round after resuming from a checkpoint has no gap.
    assert (np.diff(gaps[np.isfinite(gaps)]) <= 0).all()
    assert model.null_objective_ == pytest.approx(plain.null_objective_)


def objective(model, X, y):
    """Compute the primal objective with the max hinge in NumPy."""
    codes = np.searchsorted(model.classes_, y)
    scores = X @ model.coef_.T + model.intercept_
    margins = 1.0 + scores - scores[np.arange(len(y)), codes][:, None]
    margins[np.arange(len(y)), codes] = 0.0
    square = (model.coef_**2).sum() + (model.intercept_**2).sum()
    return 0.5 * square / (model.C * len(y)) + margins.max(axis=1).mean()


@pytest.mark.parametrize("n_partitions", [2, 5])
def test_threads_reach_the_optimum(data, plain, n_partitions):
    model = ConsensusSVC(n_partitions=n_partitions, **SETTINGS).fit(*data)
    check_certificate(model, plain)
    assert model.n_partitions_ == n_partitions
    assert model.objective_ == pytest.approx(objective(model, *data), rel=1e-12)
    history = model.history_
    assert history["primal_residual"][-1] < 0.3 * history["primal_residual"][0]
    assert history["dual_residual"][-1] < 0.3 * history["dual_residual"][0]


def test_the_model_does_not_depend_on_the_threads(data):
    fits = [ConsensusSVC(n_partitions=5, n_jobs=n, **SETTINGS).fit(*data) for n in (1, 3)]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)


@pytest.mark.parametrize("loss", ["max-hinge", "weston-watkins", TopK(2), Usunier(3)])
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_one_partition_gives_the_model_of_the_plain_solver(data, loss, smoothing):
    X, y = data
    settings = {"C": 0.05, "tol": 1e-3, "smoothing": smoothing}
    model = ConsensusSVC(loss, n_partitions=1, **settings).fit(X, y)
    plain = MulticlassSVC(loss, **settings).fit(X, y)
    for fit in (model, plain):
        assert fit.converged_
    assert model.n_iter_ == 2
    assert abs(model.objective_ - plain.objective_) <= 1e-3 * plain.null_objective_


def test_sparse_and_single_precision_rows_with_weights_and_costs_converge(data):
    X, y = data
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.0, 2.0, len(y))
    costs = rng.uniform(0.5, 2.0, (10, 10))
    np.fill_diagonal(costs, 0.0)
    settings = {"loss": StructuredHinge(costs), "C": 0.02, "tol": 5e-3}
    settings["class_weight"] = {3: 2.0, 4: 0.5}
    plain = MulticlassSVC(**settings).set_params(tol=1e-4).fit(X, y, weights)
    for rows in (X, X.astype(np.float32), sp.csr_matrix(X)):
        model = ConsensusSVC(n_partitions=3, **settings).fit(rows, y, weights)
        assert model.dual_objective_ <= plain.objective_ * (1 + 1e-6)
        assert model.objective_ >= plain.dual_objective_ * (1 - 1e-6)
        assert model.converged_
    settings = {"class_weight": "balanced", "C": 0.02, "tol": 5e-3}
    plain = MulticlassSVC(**settings).fit(X[:150], y[:150])
    model = ConsensusSVC(n_partitions=3, **settings).fit(X[:150], y[:150])
    assert model.null_objective_ == pytest.approx(plain.null_objective_)
    assert abs(model.objective_ - plain.objective_) <= 5e-3 * plain.null_objective_


@pytest.mark.parametrize("intercept", [True, False])
def test_columns_without_entries_do_not_change_the_model(intercept, monkeypatch):
    monkeypatch.setattr(_rounds, "_INNER", 1e-8)  # subproblems solved almost exactly
    monkeypatch.setattr(_rounds, "_NEWTON_AFTER", 100)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 30)), rng.integers(3, size=120)
    X[rng.random(X.shape) < 0.96] = 0.0
    settings = {"C": 0.5, "tol": 0.0, "max_iter": 25, "n_partitions": 4, "max_passes": 2000}
    settings["fit_intercept"] = intercept
    with pytest.warns(ConvergenceWarning):
        dense = ConsensusSVC(**settings).fit(X, y)
    with pytest.warns(ConvergenceWarning):
        sparse = ConsensusSVC(**settings).fit(sp.csr_matrix(X), y)
    lacking = [30 - len(part.columns) for part in split(sp.csr_matrix(X), y, None, 4)]
    assert max(lacking) > 0
    for name in ("objective", "dual_objective", "primal_residual", "dual_residual", "rho"):
        assert np.allclose(sparse.history_[name], dense.history_[name], rtol=1e-4), name
    assert np.allclose(sparse.coef_, dense.coef_, atol=1e-4)


def test_processes_give_the_model_of_threads(data, plain, client):
    model = ConsensusSVC(n_partitions=3, client=client, **SETTINGS).fit(*data)
    check_certificate(model, plain)
    threads = ConsensusSVC(n_partitions=3, **SETTINGS).fit(*data)
    assert np.array_equal(model.coef_, threads.coef_)
    kept = client.run(lambda: len(_worker._STATES))
    assert set(kept.values()) == {0}


def test_states_in_files_give_the_same_model(data, client):
    def set_share(share):
        _worker._SHARE = share

    def n_files(dask_worker=None):
        return len(list(Path(dask_worker.local_directory).glob("dualgap-*.npz")))

    seen = []
    model = ConsensusSVC(n_partitions=3, client=client, **SETTINGS).fit(*data)
    client.run(set_share, 0.0)
    try:
        watched = ConsensusSVC(n_partitions=3, client=client, **SETTINGS)
        watched.callback = lambda *_: seen.append(sum(client.run(n_files).values()))
        watched.fit(*data)
    finally:
        client.run(set_share, _worker._SHARE)
    assert set(seen) == {3}
    assert set(client.run(n_files).values()) == {0}
    assert np.array_equal(model.coef_, watched.coef_)


def test_dask_arrays_may_lack_classes_and_have_single_rows_or_empty_parts(data, plain, client):
    X, y = data
    order = np.argsort(y, kind="stable")  # most partitions lack most of the classes
    X, y = X[order], y[order]
    chunks = (200, 1, 0, 199, 200)
    names = np.array([f"digit {label}" for label in y])
    rows = da.from_array(X, chunks=(chunks, 20))
    labels = da.from_array(names, chunks=(300, 300))
    model = ConsensusSVC(client=client, **SETTINGS).fit(rows, labels)
    assert model.n_partitions_ == 4
    check_certificate(model, plain)
    lazy = model.predict(rows)
    assert isinstance(lazy, da.Array)
    predicted = lazy.compute()
    assert np.array_equal(predicted, model.predict(X))
    assert model.score(rows, labels) == np.mean(predicted == names) > 0.8
    assert model.decision_function(rows).compute().shape == (600, 10)
    assert model.predict_top_k(rows, 3).compute().shape == (600, 3)


def test_dataframes_and_files_are_fitted_and_predicted(data, plain, client, tmp_path):
    X, y = data
    table = pd.DataFrame(X, columns=[f"pixel{k}" for k in range(64)])
    table["digit"] = y
    frame = dd.from_pandas(table, npartitions=2)
    model = ConsensusSVC(client=client, **SETTINGS).fit(frame, "digit")
    check_certificate(model, plain)
    assert model.feature_names_in_[0] == "pixel0"
    rows = frame.drop(columns=["digit"])
    assert (model.predict(rows).compute() == model.predict(table.drop(columns="digit"))).all()
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.parquet"))
        table[number::3].to_parquet(paths[-1])
    model = ConsensusSVC(client=client, **SETTINGS).fit(paths, "digit")
    check_certificate(model, plain)
    assert model.n_partitions_ == 3
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.svm"))
        # The first file has fewer columns than the other files.
        part = sp.csr_matrix(X[number::3])
        part = part[:, :60] if number == 0 else part
        dump_svmlight_file(part, y[number::3], paths[-1], zero_based=False)
    for engine in ({"client": client}, {"n_partitions": 2}):
        model = ConsensusSVC(**engine, **SETTINGS).fit(paths)
        assert model.converged_
        assert model.n_features_in_ == 64
        assert set(model.classes_) == set(range(10))


# If warnings in Dask's nanny (the parent process of a worker) were errors, it could not start the
# next worker.
@pytest.mark.filterwarnings("ignore")
def test_a_fit_converges_after_workers_are_killed(data, plain, new_cluster):
    with new_cluster() as cluster, distributed.Client(cluster) as client:
        killed = []

        def kill(number, *_):
            if number in (2, 5):
                workers = client.run(os.getpid)
                killed.append(workers[min(workers)])
                os.kill(killed[-1], signal.SIGKILL)

        model = ConsensusSVC(client=client, n_partitions=4, callback=kill, **SETTINGS)
        model.fit(*data)
        assert len(killed) == 2
        check_certificate(model, plain)
        # Rounds in which a partition restarts have a dual value, too.
        assert np.isfinite(model.history_["dual_objective"]).all()
        # Workers of logistic fits keep only rows, so lost workers do not change the model.
        settings = {"n_partitions": 4, "tol": 1e-7}
        logistic = ConsensusLogisticRegression(client=client, callback=kill, **settings).fit(*data)
        assert len(killed) == 4
        threads = ConsensusLogisticRegression(**settings).fit(*data)
        assert np.array_equal(logistic.coef_, threads.coef_)
        assert logistic.dual_objective_ == threads.dual_objective_


@pytest.mark.parametrize("as_rows", [np.asarray, sp.csr_matrix])
def test_a_fit_resumes_from_a_checkpoint(data, plain, tmp_path, as_rows):
    data = as_rows(data[0]), data[1]

    def stop(number, *_):
        return number == 3

    whole = ConsensusSVC(n_partitions=3, **SETTINGS).fit(*data)
    settings = {**SETTINGS, "n_partitions": 3, "checkpoint_interval": 0.0}
    first = ConsensusSVC(checkpoint=tmp_path, callback=stop, **settings).fit(*data)
    assert first.n_iter_ == 3
    second = ConsensusSVC(resume=tmp_path, **settings).fit(*data)
    check_certificate(second, plain)
    # The interruption does not change the result.
    assert np.array_equal(second.coef_, whole.coef_)
    assert second.n_iter_ == whole.n_iter_
    with pytest.raises(ValueError, match="not a checkpoint of this fit"):
        ConsensusSVC(resume=tmp_path, **{**settings, "C": 1.0}).fit(*data)
    with pytest.raises(ValueError, match="resume: no checkpoint"):
        ConsensusSVC(resume=tmp_path / "nothing", **settings).fit(*data)


def test_a_fit_resumes_after_partitions_are_lost(data, plain, tmp_path):
    settings = {**SETTINGS, "n_partitions": 3, "checkpoint_interval": 0.0}
    ConsensusSVC(checkpoint=tmp_path, callback=lambda n, *_: n == 3, **settings).fit(*data)
    for path in tmp_path.glob("partition-1-*.npz"):
        path.unlink()
    model = ConsensusSVC(resume=tmp_path, **settings).fit(*data)
    check_certificate(model, plain)
    assert np.isfinite(model.history_["dual_objective"]).all()


def test_workers_with_another_version_are_rejected(data, client):
    def pretend(version):
        _worker.VERSION = version

    address = min(client.nthreads())
    client.run(pretend, "0.0.1", workers=[address])
    try:
        with pytest.raises(RuntimeError, match=r"has dualgap 0\.0\.1.*install the same version"):
            ConsensusSVC(client=client).fit(*data)
    finally:
        client.run(pretend, _worker.VERSION, workers=[address])


def test_an_interrupt_cancels_the_tasks_of_the_cluster(data, client):
    X, y = data

    def interrupt():
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ConsensusSVC(client=client, C=1e4, tol=0.0, n_partitions=2, max_iter=10**6).fit(X, y)
    thread.join()
    time.sleep(0.5)
    assert not any(client.processing().values())


def test_errors_of_the_callback_propagate(data, client):
    def fail(*_):
        raise ZeroDivisionError

    for engine in ({}, {"client": client}):
        with pytest.raises(ZeroDivisionError):
            ConsensusSVC(n_partitions=2, callback=fail, **engine).fit(*data)


def test_files_with_different_or_invalid_columns_are_rejected(data, tmp_path, client):
    X, y = data
    table = pd.DataFrame(X[:60, :9], columns=[f"pixel{k}" for k in range(9)]).assign(digit=y[:60])
    good, other = str(tmp_path / "good.parquet"), str(tmp_path / "other.parquet")
    table.set_index(np.arange(60)[::-1]).to_parquet(good)  # the index is not a feature
    assert ConsensusSVC(tol=0.1).fit([good], "digit").n_features_in_ == 9
    for wrong, message in [
        (table.rename(columns={"pixel3": "x"}), "the same columns; some lack 'pixel3'"),
        (table[table.columns[::-1]], "the same columns in the same order"),
        (table.assign(pixel3="a"), "column 'pixel3' in .* must be numeric"),
        (table.assign(pixel3=np.nan), r"contains NaN.*column 'pixel3'"),
        (table.rename(columns={"digit": "y"}), "y: no column 'digit'"),
    ]:
        wrong.to_parquet(other)
        with pytest.raises(ValueError, match=message):
            ConsensusSVC().fit([other, good] if "same" in message else [other], "digit")
    for name, y in (("no.parquet", "digit"), ("no.svm", None)):
        with pytest.raises(FileNotFoundError):
            ConsensusSVC(client=client).fit([str(tmp_path / name)], y)


def test_errors_of_unsupported_partitions_name_a_supported_form(data, tmp_path):
    X, y = data
    for given in ("rows.csv", str(tmp_path), ["part-0.csv", "part-1.csv"]):
        with pytest.raises(ValueError, match=r"^X: .* is not the name of a Parquet file"):
            ConsensusSVC().fit(given, "digit")
    with pytest.raises(ValueError, match=r"is a pattern; .*glob"):
        ConsensusSVC().fit(str(tmp_path / "*.parquet"), "digit")
    with pytest.raises(TypeError, match=r"n_partitions=2"):
        ConsensusSVC().fit([X[:300], X[300:]], [y[:300], y[300:]])
    with pytest.raises(AttributeError, match=r"use dualgap\.ConsensusLogisticRegression"):
        ConsensusSVC().predict_proba(X)


def test_errors_of_bad_input_name_the_argument(data, client):
    X, y = data
    for parameters, name in [
        ({"rho": -1.0}, "rho"),
        ({"relaxation": 2.0}, "relaxation"),
        ({"n_partitions": 0}, "n_partitions"),
        ({"max_passes": 0}, "max_passes"),
        ({"class_weight": "equal"}, "class_weight"),
        ({"loss": StructuredHinge(np.zeros((600, 10)), per_row=True)}, "loss"),
    ]:
        with pytest.raises(ValueError, match=f"^{name}: "):
            ConsensusSVC(**parameters).fit(X, y)
    rows = da.from_array(X, chunks=(300, 64))
    with pytest.raises(TypeError, match=r"^client: .*pass Client\(cluster\)"):
        ConsensusSVC(client=client.cluster).fit(X, y)
    frame = dd.from_pandas(pd.DataFrame({"a": [1.0, 2.0], "b": [0, 1]}), npartitions=1)
    with pytest.raises(ValueError, match=r"^y: X has no column 'target'"):
        ConsensusSVC(client=client).fit(frame, "target")
    with pytest.raises(TypeError, match=r"^y: must be a Dask collection"):
        ConsensusSVC(client=client).fit(rows, y)
    holes = da.from_array(np.where(X > 0.9, np.nan, X), chunks=(300, 64))
    with pytest.raises(ValueError, match=r"NaN.*in partition"):
        ConsensusSVC(client=client).fit(holes, da.from_array(y, chunks=300))
    mixed = da.concatenate(
        [
            da.from_array(y[:300], chunks=300).astype(object),
            da.from_array(y[300:].astype(str).astype(object), chunks=300),
        ]
    )
    with pytest.raises(ValueError, match="y: labels must be all of one kind"):
        ConsensusSVC(client=client).fit(rows, mixed)
    with pytest.raises(ValueError, match="all LIBSVM, got both"):
        ConsensusSVC().fit(["a.parquet", "b.svm"], "y")


def test_clones_keep_the_client_and_pickles_drop_it(data, client):
    with pytest.warns(ConvergenceWarning, match="stopped after 2 iterations"):
        model = ConsensusSVC(n_partitions=3, max_iter=2, client=client).fit(*data)
    assert clone(model).client is client
    copy = pickle.loads(pickle.dumps(model))
    assert copy.client is None
    assert np.array_equal(copy.predict(data[0]), model.predict(data[0]))
