"""Consensus estimators on Spark in local mode: two tasks at a time, in other processes."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from dualgap import ConsensusCV, ConsensusLogisticRegression, ConsensusSVC

sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")

SETTINGS = {"C": 0.05, "tol": 5e-3, "random_state": 0}

pytestmark = [
    # Spark warns of new versions of pandas, and leaves sockets open.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def session():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Two tasks run at a time, and each may fail twice.
    builder = sql.SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def files(session, tmp_path_factory):
    """Three files, written by Spark."""
    X, y = load_digits(return_X_y=True)
    table = pd.DataFrame(X[:300] / 16.0).rename(columns="x{}".format).assign(label=y[:300])
    folder = tmp_path_factory.mktemp("rows") / "digits"
    session.createDataFrame(table).repartition(3, "x20").write.parquet(str(folder))
    return sorted(folder.glob("*.parquet"))


@pytest.fixture(scope="module")
def uninterrupted(files):
    return ConsensusSVC(**SETTINGS).fit(files, "label")


def kill_python():
    """Kill the Python processes of Spark."""
    found = subprocess.run(["pgrep", "-f", "pyspark.daemon"], capture_output=True, text=True)
    assert found.stdout.split()
    for number in found.stdout.split():
        os.kill(int(number), signal.SIGKILL)


@pytest.mark.parametrize("kind", [ConsensusSVC, ConsensusLogisticRegression])
def test_executors_give_the_model_of_threads(session, files, tmp_path, kind):
    model = kind(client=session, checkpoint=tmp_path, **SETTINGS).fit(files, "label")
    threads = kind(**SETTINGS).fit(files, "label")
    assert np.array_equal(model.coef_, threads.coef_)
    assert model.dual_objective_ == threads.dual_objective_
    assert not list(tmp_path.glob("spark-*"))


@pytest.mark.parametrize("kind", [ConsensusSVC, ConsensusLogisticRegression])
def test_a_search_in_executors_gives_the_scores_of_threads(session, files, tmp_path, kind):
    on_spark = kind(client=session, checkpoint=tmp_path, **SETTINGS)
    searches = [
        ConsensusCV(model, [0.001, 0.05], cv=3).fit(files, "label")
        for model in (on_spark, kind(**SETTINGS))
    ]
    assert np.array_equal(searches[0].scores_, searches[1].scores_)
    assert np.array_equal(searches[0].best_estimator_.coef_, searches[1].best_estimator_.coef_)
    assert not list(tmp_path.glob("spark-*"))


def test_killed_processes_do_not_change_the_model(session, files, uninterrupted, tmp_path):
    def kill(number, *_):
        if number == 3:
            kill_python()
        elif number == 5:
            # During the next round.
            threading.Timer(0.1, kill_python).start()

    model = ConsensusSVC(client=session, checkpoint=tmp_path, callback=kill, **SETTINGS)
    model.fit(files, "label")
    assert np.array_equal(model.coef_, uninterrupted.coef_)
    assert model.n_iter_ == uninterrupted.n_iter_ > 5


def test_a_fit_resumed_on_spark_gives_the_same_model(session, files, uninterrupted, tmp_path):
    kept = {**SETTINGS, "checkpoint_interval": 0.0, "client": session, "checkpoint": tmp_path}
    ConsensusSVC(callback=lambda n, *_: n == 4, **kept).fit(files, "label")
    resumed = ConsensusSVC(resume=tmp_path, **kept).fit(files, "label")
    assert np.array_equal(resumed.coef_, uninterrupted.coef_)
    assert resumed.n_iter_ == uninterrupted.n_iter_


def test_ctrl_c_ends_a_fit_and_leaves_the_session_usable(session, files, tmp_path):
    settings = {**SETTINGS, "tol": 0.0, "max_iter": 10**6}
    model = ConsensusSVC(client=session, checkpoint=tmp_path, **settings)
    threading.Timer(2.0, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(files, "label")
    assert not list(tmp_path.glob("spark-*"))
    assert session.range(3).count() == 3


def test_a_model_predicts_in_spark(session, files, uninterrupted):
    table = session.read.parquet(*map(str, files))
    columns = list(uninterrupted.feature_names_in_)

    def predicted(frames):
        for frame in frames:
            yield frame.assign(prediction=uninterrupted.predict(frame[columns]))

    schema = f"{', '.join(map(' '.join, table.dtypes))}, prediction int"
    found = table.mapInPandas(predicted, schema).toPandas()
    assert np.array_equal(found["prediction"], uninterrupted.predict(found[columns]))


def test_invalid_data_and_arguments_are_errors_with_spark(session, files, tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"a": [1.0, np.nan], "label": [0, 1]}).to_parquet(path)
    model = ConsensusSVC(client=session, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"NaN.*rows\.parquet"):
        model.fit(path, "label")
    with pytest.raises(FileNotFoundError, match="missing"):
        model.fit(tmp_path / "missing.parquet", "label")
    with pytest.raises(TypeError, match="X: with Spark, must be the paths"):
        model.fit(np.eye(3), [0, 1, 2])
    with pytest.raises(ValueError, match="checkpoint: Spark keeps the dual variables"):
        ConsensusSVC(client=session).fit(files, "label")
