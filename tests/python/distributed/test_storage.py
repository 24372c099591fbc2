"""Partitions and checkpoints in object stores."""

import os
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file, load_digits

from dualgap.distributed import ConsensusLogisticRegression, ConsensusSVC

fsspec = pytest.importorskip("fsspec", reason="the extra 'distributed' is not installed")

SETTINGS = {"C": 0.05, "tol": 5e-3, "random_state": 0}
BUCKET = "dualgap-test"
KINDS = [ConsensusSVC, ConsensusLogisticRegression]


@pytest.fixture(scope="module")
def data():
    X, y = load_digits(return_X_y=True)
    return X[:300] / 16.0, y[:300]


@pytest.fixture(scope="module")
def s3():
    """Run a local S3 server, set the environment variables for it, and yield a bucket's address."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    pytest.importorskip("flask", reason="the server of moto is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    settings = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except OSError:
                time.sleep(0.25)
        fsspec.filesystem("s3").mkdir(BUCKET)
        yield f"s3://{BUCKET}"
    finally:
        server.terminate()
        server.wait()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def memory():
    yield "memory://store"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture(params=["memory", "s3"])
def store(request):
    return request.getfixturevalue(request.param)


def put(store, name, content):
    with fsspec.open(f"{store}/{name}", "wb") as file:
        file.write(content)
    return f"{store}/{name}"


@pytest.mark.parametrize("kind", KINDS)
def test_parquet_files_in_a_store_give_the_model_of_local_files(data, store, tmp_path, kind):
    X, y = data
    local, remote = [], []
    for number in range(2):
        table = pd.DataFrame(X[number::2], columns=[f"c{column}" for column in range(64)])
        path = tmp_path / f"{number}.parquet"
        table.assign(label=y[number::2]).to_parquet(path)
        local.append(path)
        remote.append(put(store, f"rows/{path.name}", path.read_bytes()))
    near, far = (kind(**SETTINGS).fit(paths, "label") for paths in (local, remote))
    assert np.array_equal(near.coef_, far.coef_)
    assert far.n_partitions_ == 2


@pytest.mark.parametrize("kind", KINDS)
def test_libsvm_files_in_a_store_give_the_model_of_local_files(data, store, tmp_path, kind):
    X, y = data
    path = tmp_path / "rows"
    dump_svmlight_file(X, y, str(path), zero_based=False)
    remote = put(store, "rows/libsvm", path.read_bytes())
    near, far = (kind(**SETTINGS).fit(rows) for rows in (path, remote))
    assert np.array_equal(near.coef_, far.coef_)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_resumed_from_a_store_gives_the_same_model(data, store, kind):
    settings = {**SETTINGS, "tol": 5e-3 if kind is ConsensusSVC else 1e-7, "n_partitions": 3}
    whole = kind(**settings).fit(*data)
    run = f"{store}/{kind.__name__}/"
    kept = {**settings, "checkpoint_interval": 0.0}
    kind(checkpoint=run, callback=lambda n, *_: n == 4, **kept).fit(*data)
    with pytest.raises(ValueError, match="has files of another fit"):
        kind(checkpoint=run, **kept).fit(*data)
    resumed = kind(resume=run, **kept).fit(*data)
    if kind is ConsensusSVC:
        assert np.array_equal(resumed.coef_, whole.coef_)
        assert resumed.n_iter_ == whole.n_iter_
    else:
        # A resumed logistic fit evaluates the last model again, and Newton's method restarts there.
        assert resumed.converged_
        assert 4 < resumed.n_iter_ <= whole.n_iter_ + 1
        np.testing.assert_allclose(resumed.coef_, whole.coef_, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_checkpoint_in_a_store_is_rejected(data, store, kind):
    settings = {**SETTINGS, "n_partitions": 3, "checkpoint_interval": 0.0}
    run = f"{store}/damaged-{kind.__name__}"
    kind(checkpoint=run, callback=lambda n, *_: n == 2, **settings).fit(*data)
    put(store, f"damaged-{kind.__name__}/consensus.npz", b"no archive")
    with pytest.raises(ValueError, match=r"consensus\.npz: not a checkpoint of this fit"):
        kind(resume=run, **settings).fit(*data)


def test_errors_name_missing_files_and_unknown_stores(data, memory):
    with pytest.raises(FileNotFoundError, match=r"none\.parquet"):
        ConsensusSVC(**SETTINGS).fit(f"{memory}/none.parquet", "label")
    with pytest.raises(ValueError, match="resume: no checkpoint in memory://store/none"):
        ConsensusSVC(resume=f"{memory}/none", **SETTINGS).fit(*data)
    with pytest.raises(ValueError, match="nowhere"):
        ConsensusSVC(**SETTINGS).fit("nowhere://rows.parquet", "label")
