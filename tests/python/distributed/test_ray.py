"""Consensus estimators on two real processes of a Ray cluster."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from dualgap.distributed import ConsensusCV, ConsensusLogisticRegression, ConsensusSVC
from dualgap.distributed import _ray as engine

ray = pytest.importorskip("ray", reason="Ray is not installed")

SETTINGS = {"C": 0.05, "tol": 5e-3, "random_state": 0, "n_partitions": 3}

pytestmark = [
    # Ray leaves sockets and pipes of its processes open.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def data():
    X, y = load_digits(return_X_y=True)
    return X[:300] / 16.0, y[:300]


@pytest.fixture(scope="module")
def uninterrupted(data):
    return ConsensusSVC(**SETTINGS).fit(*data)


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20)
    yield ray
    ray.shutdown()


@pytest.fixture
def engines(cluster, monkeypatch):
    """List that collects the engine of each fit in this test."""
    found = []

    class Recorded(engine.Actors):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            found.append(self)

    monkeypatch.setattr("dualgap.distributed._engines.Actors", Recorded)
    return found


def test_the_error_without_a_cluster_says_how_to_start_one(data):
    if not ray.is_initialized():
        with pytest.raises(ValueError, match=r"client: .* call ray\.init"):
            ConsensusSVC(client="ray", **SETTINGS).fit(*data)


@pytest.mark.parametrize("kind", [ConsensusSVC, ConsensusLogisticRegression])
def test_two_actors_give_the_model_of_threads(data, engines, kind):
    counts = []
    model = kind(
        client="ray", callback=lambda *_: counts.append(len(engines[0]._actors)), **SETTINGS
    )
    model.fit(*data)
    threads = kind(**SETTINGS).fit(*data)
    assert np.array_equal(model.coef_, threads.coef_)
    assert model.dual_objective_ == threads.dual_objective_
    assert set(counts) == {2}


@pytest.mark.parametrize("kind", [ConsensusSVC, ConsensusLogisticRegression])
def test_a_search_in_actors_gives_the_scores_of_threads(data, cluster, kind):
    searches = [
        ConsensusCV(kind(client=client, **SETTINGS), [0.001, 0.05], cv=3).fit(*data)
        for client in ("ray", None)
    ]
    assert np.array_equal(searches[0].scores_, searches[1].scores_)
    assert np.array_equal(searches[0].best_estimator_.coef_, searches[1].best_estimator_.coef_)


def test_a_logistic_fit_gives_the_same_model_after_an_actor_is_killed(data, engines):
    def kill(iteration, *_):
        if iteration == 2:
            ray.kill(engines[0]._actors[1])

    # Actors keep only rows, so the loss of one does not change the model.
    model = ConsensusLogisticRegression(client="ray", callback=kill, **SETTINGS).fit(*data)
    assert np.array_equal(model.coef_, ConsensusLogisticRegression(**SETTINGS).fit(*data).coef_)


@pytest.mark.parametrize("kept", [False, True])
def test_a_fit_converges_after_an_actor_is_killed(data, uninterrupted, engines, tmp_path, kept):
    def kill(round_, *_):
        if round_ == 3:
            ray.kill(engines[0]._actors[1])

    # The other actor may solve the repeated round a second time, so the models differ within tol.
    checkpoint = {"checkpoint": tmp_path, "checkpoint_interval": 0.0} if kept else {}
    model = ConsensusSVC(client="ray", callback=kill, **checkpoint, **SETTINGS).fit(*data)
    assert model.converged_
    assert model.objective_ == pytest.approx(uninterrupted.objective_, rel=2 * SETTINGS["tol"])


def test_a_run_resumes_after_the_loss_of_all_actors(data, uninterrupted, cluster, tmp_path):
    kept = {**SETTINGS, "checkpoint_interval": 0.0, "client": "ray"}
    ConsensusSVC(checkpoint=tmp_path, callback=lambda n, *_: n == 4, **kept).fit(*data)
    resumed = ConsensusSVC(resume=tmp_path, **kept).fit(*data)
    assert np.array_equal(resumed.coef_, uninterrupted.coef_)
    assert resumed.n_iter_ == uninterrupted.n_iter_


def test_actors_that_are_always_lost_end_the_fit(data, engines, monkeypatch):
    monkeypatch.setattr(engine.Actors, "_ATTEMPTS", 2)
    monkeypatch.setattr(engine.Actors, "_replace_lost_actors", lambda self: None)

    def kill(*_):
        for actor in engines[0]._actors:
            ray.kill(actor)

    with pytest.raises(RuntimeError, match="actors were lost 2 times in a row"):
        ConsensusSVC(client="ray", callback=kill, **SETTINGS).fit(*data)


def test_invalid_files_are_errors_with_ray(cluster, tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"a": [1.0, np.nan], "label": [0, 1]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"NaN.*rows\.parquet"):
        ConsensusSVC(client="ray").fit(path, "label")
    with pytest.raises(FileNotFoundError, match="missing"):
        ConsensusSVC(client="ray").fit(tmp_path / "missing.parquet", "label")
    # The failed fits have ended their actors, so another fit can start its own.
    X, y = load_digits(return_X_y=True)
    assert ConsensusSVC(client="ray", C=0.01, tol=0.1).fit(X[:100], y[:100]).converged_


def test_dask_collections_need_dask(data):
    array = pytest.importorskip("dask.array")
    X, y = (array.from_array(value) for value in data)
    with pytest.raises(ValueError, match="client: Dask collections need a Dask client"):
        ConsensusSVC(client="ray").fit(X, y)
