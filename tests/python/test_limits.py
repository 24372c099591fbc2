"""Resource limits of a fit: memory is checked before the fit, threads are capped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dualgap import FactorizationMachineRegressor, MulticlassSVC, _core
from dualgap._core import THREADS_PER_CORE
from dualgap._validation import check_positive, resolve_threads, row_weights
from dualgap.distributed import ConsensusSVC
from dualgap.sequence import SequenceTagger
from dualgap.structured import ChainModel, StructuredSVM

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
LINUX = pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="the memory is not known")


def available_memory() -> float:
    """Return the number of bytes still available to a fit."""
    text = Path("/proc/meminfo").read_text()
    return 1024 * sum(map(int, re.findall(r"(?:MemAvailable|SwapFree): *(\d+)", text)))


@LINUX
@pytest.mark.parametrize("solver", ["block-descent", "frank-wolfe"])
def test_dual_variables_beyond_memory_are_rejected(solver: str) -> None:
    # The dual variables would take 1.3 TB, although the rows are small.
    n = 800_000
    X, y = np.ones((n, 1)), np.arange(n) // 4
    message = r"dual variables .* n = 800000 rows, m = 200000 classes and d = 2 features need 1.*GB"
    with pytest.raises(MemoryError, match=message) as caught:
        MulticlassSVC(solver=solver, smoothing=0.1).fit(X, y)
    assert 'solver="block-frank-wolfe" keeps only' in str(caught.value)
    assert re.search(r"and [0-9.]+ GB are available", str(caught.value))


@LINUX
def test_weights_beyond_memory_are_rejected() -> None:
    entries = np.array([1.0, 1.0, 1.0]), (np.array([0, 1, 2]), np.array([0, 1, 2 * 10**9]))
    X, y = sp.csr_array(entries, shape=(3, 2 * 10**9 + 1)), np.arange(3)
    message = "n = 3 rows, m = 3 classes and d = 2000000002 features need"
    for model in (MulticlassSVC(), MulticlassSVC(solver="block-frank-wolfe")):
        with pytest.raises(MemoryError, match=message):
            model.fit(X, y)
    with pytest.raises(MemoryError, match="m = 1 outputs and d = 2000000001 features need"):
        FactorizationMachineRegressor(1).fit(X, [0.0, 1.0, 2.0])


@LINUX
@pytest.mark.parametrize("n_labels", [40_000, 32_000])
@pytest.mark.parametrize("estimator", [SequenceTagger(), StructuredSVM(ChainModel())])
def test_tables_of_transitions_beyond_memory_are_rejected(n_labels: int, estimator: Any) -> None:
    # A chain of 32,000 labels would take 44 GB. The other number is above the maximum.
    if n_labels < 2**15 and available_memory() > 40e9:
        pytest.skip("this machine has the memory")
    X, y = np.ones((n_labels, 1)), np.arange(n_labels)
    error = MemoryError if n_labels < 2**15 else ValueError
    message = f"m = {n_labels} labels need 44" if error is MemoryError else rf"y: .*{n_labels}"
    tracemalloc.start()
    try:
        with pytest.raises(error, match=message):
            estimator.fit([X], [y])
        assert tracemalloc.get_traced_memory()[1] < 100 * X.nbytes
    finally:
        tracemalloc.stop()


@LINUX
def test_predictions_and_lists_beyond_memory_are_rejected() -> None:
    rows = sp.csr_matrix((10**6, 2))
    wide = {"basis": np.ones((1, 2)), "output": np.ones((1, 10**6)), "linear": None}
    options = {"kernel": "square", "augmented": False, "n_threads": 1}
    X = (rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, 2)
    message = "n = 1000000 rows and m = 1000000 outputs need 8000.* predict for fewer rows"
    with pytest.raises(MemoryError, match=message):
        _core.predict_polynomial(X, wide, **options)
    lists = {"offsets": np.zeros(4, np.int64), "items": np.zeros(0, np.int32)}
    excluded = {**lists, "allowed": np.zeros(0, bool), "n_items": 2, "n_threads": 1}
    with pytest.raises(MemoryError, match=r"lists of n = \d+ items for 3 users need"):
        _core.best_items([], excluded, 2**50)


def test_fits_beyond_the_memory_limit_of_the_process_are_rejected(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    (tmp_path / "rows").write_text("1 1:1\n2 2:1\n3 100000000:1\n")
    script = """
    import numpy as np
    from click.testing import CliRunner
    from dualgap import MulticlassSVC
    from dualgap.cli import main

    result = CliRunner().invoke(main, ["fit", "-n", "1", "rows", "model"])
    assert result.exit_code == 1, result
    print(result.stderr)
    try:
        MulticlassSVC(n_jobs=1, solver="block-descent").fit(
            np.ones((80_000, 1)), np.arange(80_000) // 2
        )
    except MemoryError as error:
        print(error)
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 * 10**9, 4 * 10**9))

    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        preexec_fn=limit,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended
    assert "n = 3 rows, m = 3 classes and d = 100000001 features need" in ended.stdout
    assert "n = 80000 rows, m = 40000 classes and d = 2 features need" in ended.stdout
    assert os.listdir(tmp_path) == ["rows"]


def test_threads_are_capped() -> None:
    cap = THREADS_PER_CORE * CORES
    assert THREADS_PER_CORE == 4
    assert resolve_threads(10**6) == resolve_threads(2**70) == cap
    assert resolve_threads(cap) == cap
    assert resolve_threads(None) == resolve_threads(-1) == CORES
    assert resolve_threads(-(10**6)) == 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("model", [MulticlassSVC, ConsensusSVC])
def test_a_million_jobs_start_only_a_few_threads_per_core(model: type) -> None:
    def count() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("Threads:")[1].split()[0])

    before, during = count(), []
    # Each thread of consensus training waits for a thread of the core.
    most = before + 2 * THREADS_PER_CORE * CORES + 4

    def look(*_: float) -> bool:
        # The threads of the round before may not have ended yet.
        deadline = time.monotonic() + 5.0
        while count() > most and time.monotonic() < deadline:
            time.sleep(0.01)
        during.append(count())
        return False

    X, y = np.eye(60), np.arange(60) % 3
    model(n_jobs=10**6, callback=look, tol=1e-2).fit(X, y)
    assert during
    assert max(during) <= most


def test_numbers_of_narrow_types_are_accepted_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_positive("C", np.float32(0.1))
        check_positive("tol", np.float16(0.1))


def test_class_weights_without_effect_are_refused() -> None:
    classes, codes = np.arange(2), np.array([0, 1])
    with pytest.raises(ValueError, match=r"^class_weight: 'balanced' .* class 0 has 0"):
        row_weights("balanced", classes, codes, np.array([0.0, 1.0]))
    with pytest.raises(ValueError, match=r"^class_weight: must be positive for at least one class"):
        row_weights({0: 0, 1: 0}, classes, codes, None)
