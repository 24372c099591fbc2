"""Resuming from checkpoints, with every value in a file validated before use."""

import json
import os

import numpy as np
import pytest
import scipy.sparse as sp
from full_disk import run_on_small_disk
from sklearn.datasets import load_digits

from dualgap._npz import read_npz, write_npz
from dualgap._validation import row_weights
from dualgap.distributed import ConsensusSVC
from dualgap.losses import StructuredHinge

pytest.importorskip("distributed", reason="the extra 'distributed' is not installed")

PROBLEM = {"C": 0.05, "tol": 5e-3, "random_state": 0, "n_partitions": 3}
SETTINGS = {**PROBLEM, "checkpoint_interval": 0.0}


@pytest.fixture(scope="module")
def data():
    X, y = load_digits(return_X_y=True)
    return X[:300] / 16.0, y[:300], np.random.default_rng(0).uniform(0.5, 2.0, 300)


@pytest.fixture
def folder(data, tmp_path):
    """A checkpoint of four rounds."""
    X, y, weights = data
    model = ConsensusSVC(checkpoint=tmp_path, callback=lambda n, *_: n == 4, **SETTINGS)
    model.fit(X, y, sample_weight=weights)
    return tmp_path


@pytest.fixture(scope="module")
def uninterrupted(data):
    X, y, weights = data
    return ConsensusSVC(**PROBLEM).fit(X, y, sample_weight=weights)


class InterruptedRunError(Exception):
    """Simulates the sudden end of the process."""


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def objective(model, X, y, weights):
    """Compute the objective of the model from its definition."""
    scores = X @ model.coef_.T + model.intercept_
    margins = 1.0 + scores - scores[np.arange(len(y)), y][:, None]
    margins[np.arange(len(y)), y] = 0.0
    square = (model.coef_**2).sum() + (model.intercept_**2).sum()
    losses = margins.max(axis=1)
    total = weights.sum()
    return square / (2.0 * model.C * total) + (weights * losses).sum() / total


def change(path, meta=None, **arrays):
    """Rewrite a checkpoint file with other values."""
    found = read_npz(path)
    about = json.loads(found.pop("meta").tobytes())
    values = about.get("values", about)
    values.update(meta or {})
    write_npz(path, about, {**found, **arrays})


OTHER_DATA = {
    "labels": lambda X, y, w: (X, (y + 1) % 10, w),
    "two labels": lambda X, y, w: (X, np.r_[y[1], y[0], y[2:]], w),
    "rows": lambda X, y, w: (3.0 * X, y, w),
    "one value": lambda X, y, w: (np.where(np.arange(X.size).reshape(X.shape) == 70, 9, X), y, w),
    "precision": lambda X, y, w: (X.astype(np.float32), y, w),
    "weights of the same total": lambda X, y, w: (X, y, w[::-1].copy()),
    "no weights": lambda X, y, w: (X, y, None),
    "sparse": lambda X, y, w: (sp.csr_matrix(X), y, w),
}


@pytest.mark.parametrize("other", OTHER_DATA)
def test_other_data_are_rejected_and_the_folder_is_unchanged(data, folder, other):
    X, y, weights = OTHER_DATA[other](*data)
    before = contents(folder)
    with pytest.raises(ValueError, match="not a checkpoint of this fit"):
        ConsensusSVC(resume=folder, **SETTINGS).fit(X, y, sample_weight=weights)
    assert contents(folder) == before


def test_other_class_weights_are_rejected(data, folder):
    X, y, weights = data
    message = r"not a checkpoint of this fit \(identity: different class_weight\)$"
    with pytest.raises(ValueError, match=message):
        ConsensusSVC(resume=folder, class_weight="balanced", **SETTINGS).fit(X, y, weights)


@pytest.mark.parametrize(
    "meta",
    [
        {"dual": "1e9"},
        {"primal": "-1e9"},
        {"dual": "nan", "primal": "nan"},
        {"null_objective": "1e12"},
    ],
    ids=str,
)
def test_a_certificate_is_recomputed_and_not_read_from_a_checkpoint(
    data, folder, uninterrupted, meta
):
    X, y, weights = data
    change(folder / "consensus.npz", meta)
    model = ConsensusSVC(resume=folder, **SETTINGS).fit(X, y, sample_weight=weights)
    assert model.converged_
    assert model.dual_objective_ <= uninterrupted.objective_
    assert model.null_objective_ == pytest.approx(uninterrupted.null_objective_)
    reached = objective(model, *data)
    assert model.objective_ == pytest.approx(reached, rel=1e-9)
    assert model.dual_objective_ <= reached
    # The first round after resuming recomputes its dual value.
    assert np.isfinite(model.history_["dual_objective"][4:]).all()


def test_a_fit_resumed_from_a_checkpoint_gives_the_same_model(data, folder, uninterrupted):
    X, y, weights = data
    model = ConsensusSVC(resume=folder, **SETTINGS).fit(X, y, sample_weight=weights)
    assert np.array_equal(model.coef_, uninterrupted.coef_)
    assert model.n_iter_ == uninterrupted.n_iter_


def test_a_resumed_run_may_write_its_rounds_to_another_folder(
    data, folder, uninterrupted, tmp_path
):
    X, y, weights = data
    other = tmp_path / "other"
    model = ConsensusSVC(resume=folder, checkpoint=other, **SETTINGS)
    model.fit(X, y, sample_weight=weights)
    assert np.array_equal(model.coef_, uninterrupted.coef_)
    assert (other / "consensus.npz").exists()


def test_a_folder_of_another_fit_is_rejected(data, folder):
    X, y, weights = data
    before = contents(folder)
    with pytest.raises(ValueError, match=r"checkpoint: .* has files of another fit"):
        ConsensusSVC(checkpoint=folder, **SETTINGS).fit(X, y, sample_weight=weights)
    assert contents(folder) == before


def test_a_run_without_a_saved_consensus_can_start_again(data, folder, uninterrupted):
    X, y, weights = data
    (folder / "consensus.npz").unlink()
    model = ConsensusSVC(checkpoint=folder, **SETTINGS).fit(X, y, sample_weight=weights)
    assert np.array_equal(model.coef_, uninterrupted.coef_)


@pytest.mark.parametrize("written", range(4))
@pytest.mark.parametrize("again", [False, True])
def test_a_run_killed_while_writing_a_round_can_be_resumed(
    data, folder, uninterrupted, monkeypatch, written, again
):
    """Resume from files in which some partitions are one round ahead of the other partitions."""
    X, y, weights = data
    files = iter(range(100))

    def write_or_interrupt(path, *rest):
        # The threads of the partitions write their files first; then the consensus is written.
        if next(files) >= written:
            raise InterruptedRunError
        write_npz(path, *rest)

    for _ in range(1 + again):
        files = iter(range(100))
        with monkeypatch.context() as patch:
            patch.setattr("dualgap.distributed._worker.write_arrays", write_or_interrupt)
            patch.setattr("dualgap.distributed._rounds.write_arrays", write_or_interrupt)
            with pytest.raises(InterruptedRunError):
                ConsensusSVC(resume=folder, **SETTINGS).fit(X, y, sample_weight=weights)
    rounds = [json.loads(read_npz(path)["meta"].tobytes())["round"] for path in folder.glob("p*")]
    # Threads write in any order, so a second run may first write the partition that is behind.
    expected = {3, 4} if written == 0 else {4, 6} if written == 3 else {3, 4, 6}
    assert set(rounds) == expected or (again and set(rounds) < expected)
    model = ConsensusSVC(resume=folder, **SETTINGS).fit(X, y, sample_weight=weights)
    assert np.array_equal(model.coef_, uninterrupted.coef_)
    assert model.n_iter_ == uninterrupted.n_iter_


def test_changed_weights_in_a_checkpoint_do_not_change_the_bounds(data, folder):
    X, y, weights = data
    kept = read_npz(folder / "consensus.npz")["consensus"]
    change(folder / "consensus.npz", consensus=np.full_like(kept, 3.0))
    for path in folder.glob("partition-1-*.npz"):
        change(path, multiplier=np.full_like(read_npz(path)["multiplier"], -2.0))
    settings = {**SETTINGS, "tol": 1e-3, "max_iter": 300}
    model = ConsensusSVC(resume=folder, **settings).fit(X, y, sample_weight=weights)
    reached = objective(model, *data)
    assert model.objective_ == pytest.approx(reached, rel=1e-9)
    exact = ConsensusSVC(**{**PROBLEM, "tol": 1e-5, "max_iter": 300}).fit(
        X, y, sample_weight=weights
    )
    assert model.history_["dual_objective"][5:].max() <= exact.objective_


INVALID_DUAL_VARIABLES = {
    "negative": lambda arrays: {"beta": -arrays["beta"]},
    "outside the set": lambda arrays: {"beta": 2.0 * arrays["beta"] + 1.0},
    "not finite": lambda arrays: {"multiplier": np.full_like(arrays["multiplier"], np.nan)},
    "another shape": lambda arrays: {"relaxed": arrays["relaxed"][:-1]},
    "another type": lambda arrays: {"multiplier": arrays["multiplier"].astype(complex)},
}


@pytest.mark.parametrize("how", INVALID_DUAL_VARIABLES)
def test_invalid_dual_variables_are_rejected(data, folder, how):
    X, y, weights = data
    path = folder / "partition-0-0.npz"
    change(path, **INVALID_DUAL_VARIABLES[how](read_npz(path)))
    before = contents(folder)
    with pytest.raises(ValueError, match=r"partition-0-0\.npz: not a checkpoint of|betas: "):
        ConsensusSVC(resume=folder, **SETTINGS).fit(X, y, sample_weight=weights)
    assert contents(folder) == before


@pytest.mark.parametrize("meta", [{"rho": "nan"}, {"rho": "-1"}, {"round": "3"}, {"round": "inf"}])
def test_impossible_rounds_are_rejected(data, folder, meta):
    X, y, weights = data
    change(folder / "consensus.npz", meta)
    with pytest.raises(ValueError, match="not a checkpoint of this fit"):
        ConsensusSVC(resume=folder, **SETTINGS).fit(X, y, sample_weight=weights)


def test_a_resumed_run_without_rounds_left_evaluates_its_model(data, folder):
    X, y, weights = data
    model = ConsensusSVC(resume=folder, **{**SETTINGS, "max_iter": 4, "tol": 1e-9})
    with pytest.warns(UserWarning, match="stopped after"):
        model.fit(X, y, sample_weight=weights)
    assert model.objective_ == pytest.approx(objective(model, *data), rel=1e-9)
    assert not model.converged_
    assert np.isfinite(model.duality_gap_)
    assert model.n_iter_ == 5


def test_failed_writes_leave_the_old_checkpoint(data, folder, uninterrupted, monkeypatch):
    X, y, weights = data
    before = contents(folder)

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.warns(
            RuntimeWarning, match="round 6 could not be written .*No space left"
        ) as found:
            model = ConsensusSVC(resume=folder, **SETTINGS).fit(X, y, sample_weight=weights)
    assert len(found) == 1
    assert contents(folder) == before
    assert np.array_equal(model.coef_, uninterrupted.coef_)
    again = ConsensusSVC(resume=folder, **SETTINGS).fit(X, y, sample_weight=weights)
    assert np.array_equal(again.coef_, uninterrupted.coef_)


@pytest.mark.parametrize("which", ["consensus.npz", "partition-1"])
def test_a_round_missing_from_one_file_is_not_resumed(
    data, uninterrupted, tmp_path, monkeypatch, which
):
    X, y, weights = data
    replace, n_writes = os.replace, [0]

    def fail_later(source, target):
        n_writes[0] += which in os.fspath(target)
        if which in os.fspath(target) and n_writes[0] > 3:
            raise OSError(28, "No space left on device", os.fspath(target))
        replace(source, target)

    fit = ConsensusSVC(checkpoint=tmp_path, callback=lambda n, *_: n == 6, **SETTINGS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail_later)
        with pytest.warns(
            RuntimeWarning, match=f"checkpoint: round 4 could not be written.*{which}"
        ):
            fit.fit(X, y, sample_weight=weights)
    resumed = ConsensusSVC(resume=tmp_path, **SETTINGS).fit(X, y, sample_weight=weights)
    assert np.array_equal(resumed.coef_, uninterrupted.coef_)


def test_a_folder_that_cannot_be_written_is_rejected_before_the_fit(data):
    X, y, _ = data
    with pytest.raises(OSError, match="/proc"):
        ConsensusSVC(checkpoint="/proc/self", **SETTINGS).fit(X, y)


def test_a_fit_continues_when_its_checkpoint_fills_the_disk(tmp_path):
    script = """
import warnings
import numpy as np
from dualgap.distributed import ConsensusSVC
from dualgap.losses import StructuredHinge
rng = np.random.default_rng(0)
X, y = rng.normal(size=(100, 3000)), rng.integers(10, size=100)
problem = {"C": 0.01, "n_partitions": 3, "max_iter": 4, "n_jobs": 1, "random_state": 0}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    kept = ConsensusSVC(checkpoint=".", checkpoint_interval=0.0, **problem).fit(X, y)
print(*(warning.message for warning in caught if warning.category is RuntimeWarning))
print(np.array_equal(kept.coef_, ConsensusSVC(**problem).fit(X, y).coef_))
"""
    result = run_on_small_disk(script, tmp_path)
    assert "could not be written ([Errno 28] No space left on device" in result.stdout, result
    assert result.stdout.endswith("\nTrue\n"), result


@pytest.mark.parametrize("class_weight", [None, "balanced", {1: 4.0, 3: 0.0}], ids=str)
def test_a_resumed_fit_computes_the_null_objective_from_the_costs(data, tmp_path, class_weight):
    X, y, weights = data
    costs = np.random.default_rng(1).uniform(0.5, 4.0, (10, 10))
    np.fill_diagonal(costs, 0.0)
    problem = {**SETTINGS, "loss": StructuredHinge(costs), "class_weight": class_weight}
    ConsensusSVC(checkpoint=tmp_path, callback=lambda n, *_: n == 3, **problem).fit(X, y, weights)
    model = ConsensusSVC(resume=tmp_path, **problem).fit(X, y, weights)
    factors = row_weights(class_weight, np.arange(10), y, weights)
    expected = np.average(costs.max(axis=1)[y], weights=factors)
    assert model.null_objective_ == pytest.approx(expected)


def test_dates_as_labels_are_compared_on_resuming(tmp_path):
    X, days = np.eye(4), np.array(["2020-01-01", "2020-01-02"] * 2, "M8[D]")
    settings = {"n_partitions": 2, "checkpoint_interval": 0.0, "random_state": 0}
    ConsensusSVC(checkpoint=tmp_path, **settings).fit(X, days)
    model = ConsensusSVC(resume=tmp_path, **settings).fit(X, days)
    assert (model.predict(X) == days).all()
    with pytest.raises(ValueError, match=r"not a checkpoint of this fit .*classes"):
        ConsensusSVC(resume=tmp_path, **settings).fit(X, days + 1)
