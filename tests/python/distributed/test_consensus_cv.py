"""Cross-validation of C over partitions, on threads and on a Dask cluster."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as Peer
from sklearn.metrics import log_loss

import dualgap
from dualgap.distributed import ConsensusCV, ConsensusLogisticRegression, ConsensusSVC, _worker
from dualgap.distributed._sources import split

KINDS = [ConsensusSVC, ConsensusLogisticRegression]
SETTINGS = {"n_partitions": 4, "tol": 5e-3, "random_state": 0}
Cs = [0.0001, 0.01, 0.1]


@pytest.fixture(scope="module")
def data():
    X, y = load_digits(return_X_y=True)
    return X[:600] / 16.0, y[:600]


def parts_of(data, n_partitions):
    """Rows and labels of each partition of arrays."""
    return [(part.X, part.y) for part in split(*data, None, n_partitions)]


def joined(parts, numbers):
    X, y = zip(*[parts[number] for number in numbers], strict=True)
    return np.concatenate(X), np.concatenate(y)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_fits_to_the_training_partitions(data, kind):
    folds = [([0, 1, 2], [3]), ([1, 3], [0, 2])]
    search = ConsensusCV(kind(**SETTINGS), Cs, cv=folds, cv_tol=1e-6).fit(*data)
    parts = parts_of(data, 4)
    for number, (train, test) in enumerate(folds):
        for at, C in enumerate(Cs):
            own = kind(**{**SETTINGS, "n_partitions": 2, "tol": 1e-6}, C=C)
            own.fit(*joined(parts, train))
            assert search.scores_[number, at] == pytest.approx(
                own.score(*joined(parts, test)), abs=0.01
            )
            assert search.cv_results_["objective"][number, at] == pytest.approx(
                own.objective_, rel=3e-6
            )
    assert search.C_ == Cs[int(search.scores_.mean(axis=0).argmax())] == 0.1
    assert search.best_score_ == search.mean_score_.max()
    # The final fit is that of the estimator.
    final = kind(C=search.C_, **SETTINGS).fit(*data)
    assert np.array_equal(search.best_estimator_.coef_, final.coef_)
    assert np.array_equal(search.predict(data[0]), final.predict(data[0]))
    assert search.score(*data) == final.score(*data)
    assert not _worker._STATES


@pytest.mark.parametrize("kind", KINDS)
def test_warm_starts_save_rounds(data, kind):
    grid = np.logspace(-2.0, 0.0, 9)
    search = ConsensusCV(kind(**SETTINGS), grid, cv=[([0, 1], [2])], cv_tol=5e-3, refit=False).fit(
        *data
    )
    rows = joined(parts_of(data, 4), [0, 1])
    cold = [kind(**{**SETTINGS, "n_partitions": 2}, C=C).fit(*rows).n_iter_ for C in grid]
    assert search.cv_results_["n_iter"].sum() < sum(cold)
    assert search.cv_results_["converged"].all()


def test_log_loss_and_scorers_have_the_values_of_scikit_learn(data):
    parts = parts_of(data, 4)
    model = ConsensusLogisticRegression(**SETTINGS)
    folds = [([0, 1, 2], [3])]
    rows = joined(parts, [0, 1, 2])
    peer = Peer(C=0.1, tol=1e-8, max_iter=1000).fit(*rows)
    expected = -log_loss(parts[3][1], peer.predict_proba(parts[3][0]))
    for scoring in ("neg_log_loss", lambda m, X, y: -log_loss(y, m.predict_proba(X))):
        search = ConsensusCV(model, [0.1], cv=folds, scoring=scoring, cv_tol=1e-8, refit=False)
        assert search.fit(*data).scores_[0, 0] == pytest.approx(expected, abs=1e-4)


def test_sparse_files_of_different_widths_give_the_scores_of_dense_rows(data, tmp_path):
    X, y = data
    files = [tmp_path / str(number) for number in range(3)]
    for number, file in enumerate(files):
        rows = sp.csr_matrix(X[number::3])
        # The held-out file is the narrowest in one fold and the widest in another.
        rows = rows[:, : 60 + number]
        dump_svmlight_file(rows, y[number::3], str(file), zero_based=False)
    read = [X[number::3] * (np.arange(64) < 60 + number) for number in range(3)]
    for kind in KINDS:
        search = ConsensusCV(kind(tol=1e-4), [0.01], cv=3, cv_tol=1e-4).fit(files)
        for number in range(3):
            some = [n for n in range(3) if n != number]
            labels = np.concatenate([y[n::3] for n in some])
            own = kind(C=0.01, tol=1e-4, n_partitions=2)
            own.fit(np.concatenate([read[n] for n in some]), labels)
            expected = own.score(read[number], y[number::3])
            assert search.scores_[number, 0] == pytest.approx(expected, abs=0.01)


def test_searches_are_saved_and_call_back(data, tmp_path):
    calls = []
    search = ConsensusCV(
        ConsensusSVC(**SETTINGS), [0.001, 0.01], cv=2, callback=lambda n, *_: calls.append(n)
    ).fit(*data)
    assert calls == [1, 2, 3, 4]
    search.callback = None
    search.save(tmp_path / "search.npz")
    loaded = dualgap.ConsensusCV.load(tmp_path / "search.npz")
    assert loaded.C_ == search.C_
    assert np.array_equal(loaded.predict(data[0]), search.predict(data[0]))


def test_a_fit_to_the_search_resumes_from_the_checkpoint_of_the_final_fit(data, tmp_path):
    model = ConsensusSVC(checkpoint=tmp_path, checkpoint_interval=0.0, **SETTINGS)
    search = ConsensusCV(model, [0.01], cv=2).fit(*data)
    assert list(Path(tmp_path).glob("consensus.npz"))
    with pytest.raises(ValueError, match="has files of another fit"):
        ConsensusCV(model, [0.01], cv=2).fit(*data)
    resumed = ConsensusCV(model.set_params(checkpoint=None, resume=tmp_path), [0.01], cv=2)
    assert resumed.fit(*data).best_estimator_.converged_
    assert resumed.best_estimator_.objective_ <= search.best_estimator_.objective_ * (1 + 1e-12)


def test_invalid_arguments_are_named(data):
    svm = ConsensusSVC(**SETTINGS)
    for search, message in [
        (
            ConsensusCV(dualgap.MulticlassSVC()),
            "estimator: must be a ConsensusSVC .* MulticlassSVC",
        ),
        (ConsensusCV(ConsensusSVC), "estimator: must be a ConsensusSVC"),
        (ConsensusCV(svm, cv=5), "cv: 5 folds need at least 5 partitions with rows, got 4"),
        (ConsensusCV(svm, cv=[([0], [9])]), "cv: a fold contains rows that do not exist"),
        (ConsensusCV(svm, cv=[([0], [])]), "cv: fold 0 has no held-out partition"),
        (ConsensusCV(svm, cv=[([], [0])]), "cv: the training partitions of fold 0"),
        (ConsensusCV(svm, scoring="neg_log_loss"), "scoring: 'neg_log_loss' needs probabilities"),
        (ConsensusCV(svm, Cs=[-1.0]), "Cs: "),
        (ConsensusCV(svm, cv_tol=-1.0), "cv_tol: "),
        (ConsensusCV(svm, rule="most"), "rule: "),
    ]:
        with pytest.raises(ValueError, match=f"^{message}"):
            search.fit(*data)
    with pytest.warns(ConvergenceWarning, match="2 of 2 fits of the folds stopped"):
        ConsensusCV(svm.set_params(max_iter=1, tol=1e-9), [1.0], cv=2, refit=False).fit(*data)


# If warnings in Dask's nanny were errors, it could not start the next worker.
@pytest.mark.filterwarnings("ignore")
def test_processes_give_the_scores_of_threads_and_may_be_killed(data):
    distributed = pytest.importorskip("distributed")
    da = pytest.importorskip("dask.array")
    data = data[0][:400], data[1][:400]
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        for kind in KINDS:
            threads = ConsensusCV(kind(**SETTINGS), Cs[:2], cv=2).fit(*data)
            model = kind(client=client, **SETTINGS)
            search = ConsensusCV(model, Cs[:2], cv=2).fit(*data)
            assert np.array_equal(search.scores_, threads.scores_)
            assert np.array_equal(search.best_estimator_.coef_, threads.best_estimator_.coef_)
            assert set(client.run(lambda: len(_worker._STATES)).values()) == {0}

            def kill(number, *_):
                if number == 2:
                    os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)

            # The partitions of Dask collections are those of the cluster.
            parts = parts_of(data, 4)
            rows, labels = (
                da.concatenate([da.from_array(part[at]) for part in parts]) for at in range(2)
            )
            lost = ConsensusCV(model, Cs[:2], cv=2, callback=kill).fit(rows, labels)
            assert lost.cv_results_["converged"].all()
            np.testing.assert_allclose(lost.scores_, threads.scores_, atol=0.02)
            assert lost.score(rows, labels) == pytest.approx(threads.score(*data), abs=0.02)
