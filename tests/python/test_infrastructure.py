"""The test suite itself: hanging tests end, Ctrl-C works, and repeated tests have fewer cases."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from repeats import sample

HERE = Path(__file__).parent
CONFIGURATION = HERE.parents[1] / "pyproject.toml"


def run_suite(folder: Path, test: str, *options: str, ignore_sigint: bool = False) -> str:
    """Run one test with this suite's configuration and conftest; return what pytest prints."""
    (folder / "test_sample.py").write_text(textwrap.dedent(test))
    command = [sys.executable, "-m", "pytest", "-c", str(CONFIGURATION), "-p", "conftest"]
    command += [f"--rootdir={folder}", "-p", "no:cacheprovider", *options, str(folder)]
    if ignore_sigint:
        command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        timeout=250,
    )
    return done.stdout + done.stderr


def test_a_test_that_hangs_in_rust_ends_and_prints_its_stack(tmp_path: Path) -> None:
    printed = run_suite(
        tmp_path,
        """
        import numpy as np
        from dualgap import MulticlassSVC

        def test_endless():
            X = np.random.default_rng(0).normal(size=(2000, 20))
            y = np.arange(2000) % 7
            MulticlassSVC(solver="frank-wolfe", tol=0.0, max_iter=10**9).fit(X, y)
        """,
        "--timeout=3",
    )
    assert "Timeout" in printed
    assert "in test_endless" in printed


def test_every_test_has_a_time_limit(pytestconfig: pytest.Config) -> None:
    assert 0 < float(pytestconfig.getini("timeout")) <= 300
    assert pytestconfig.getini("timeout_method") == "thread"


@pytest.mark.skipif(os.name == "nt", reason="signals are sent differently there")
@pytest.mark.parametrize("ignore_sigint", [False, True])
def test_an_ignored_sigint_is_restored(tmp_path: Path, ignore_sigint: bool) -> None:
    printed = run_suite(
        tmp_path,
        """
        import os, signal, subprocess, sys
        import pytest

        def test_here():
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)

        def test_in_a_child():
            code = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
            done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
            assert "KeyboardInterrupt" in done.stderr
        """,
        ignore_sigint=ignore_sigint,
    )
    assert "2 passed" in printed, printed


def test_each_instruction_set_repeats_other_cases_of_a_test() -> None:
    cases = [f"a.py::several[{case}]" for case in range(30)]
    parts = [sample(["a.py::one", *cases], simd) for simd in ("scalar", "avx2", "avx512")]
    assert all("a.py::one" in part for part in parts)
    assert set().union(*parts) == {"a.py::one", *cases}
    assert sum(map(len, parts)) == len(cases) + len(parts)
