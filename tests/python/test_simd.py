"""DUALGAP_SIMD selects the instruction set, to reproduce a model on another processor."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dualgap import _core

FITS = """
import hashlib
import numpy as np
from sklearn.datasets import load_digits
from dualgap import MulticlassSVC, _core
from dualgap.polynomial import FactorizationMachineClassifier
from dualgap.structured import ChainModel, StructuredSVM

X, y = load_digits(return_X_y=True)
X, y = X[:200] / 16.0, y[:200]
words = [X[at : at + 5] for at in range(0, 200, 5)]
labels = [y[at : at + 5] for at in range(0, 200, 5)]
digest = hashlib.sha256()
for solver in ("block-descent", "block-frank-wolfe", "frank-wolfe"):
    for dtype in (np.float64, np.float32):
        model = MulticlassSVC(solver=solver, tol=1e-2, max_iter=20, random_state=0)
        digest.update(model.fit(X.astype(dtype), y).coef_.tobytes())
model = FactorizationMachineClassifier(2, max_iter=2, random_state=0).fit(X, y)
digest.update(model.output_.tobytes() + model.components_.tobytes())
model = StructuredSVM(ChainModel(), tol=0.1, max_iter=5, random_state=0).fit(words, labels)
digest.update(model.coef_.tobytes())
print(_core.SIMD, digest.hexdigest())
"""


def run(name, code=FITS):
    environment = {**os.environ, "DUALGAP_SIMD": name, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=250
    )


@pytest.mark.parametrize("name", ["scalar", "avx2", "avx512"])
def test_a_chosen_instruction_set_gives_reproducible_models(name):
    first = run(name)
    if "this machine does not support" in first.stderr:
        pytest.skip(f"no {name} here")
    assert first.returncode == 0, first.stderr
    used, digest = first.stdout.split()
    assert used == name
    assert run(name).stdout.split() == [name, digest]


def test_the_environment_chooses_the_instruction_set():
    name = os.environ.get("DUALGAP_SIMD", "auto")
    assert run(name, "from dualgap import _core; print(_core.SIMD)").stdout.strip() == _core.SIMD


EACH = Path(__file__).parents[2] / "scripts/each_simd.py"
SHOW = "import os; print(os.environ['DUALGAP_SIMD'])"


def run_for_each_simd(*arguments):
    """Run a command for each instruction set.

    Return its status, and the value of DUALGAP_SIMD and the instruction set of each run.
    """
    command = [sys.executable, str(EACH), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    headed = re.findall(r"==> DUALGAP_SIMD=(\w+) \((\w+)\)\n\1$", done.stdout, re.M)
    assert len(headed) == done.stdout.count("==>")
    return done.returncode, headed


def test_a_command_runs_under_each_instruction_set():
    status, runs = run_for_each_simd(sys.executable, "-c", SHOW)
    assert status == 0
    assert runs[0] == ("scalar", "scalar")
    names = [name for _, name in runs]
    assert _core.SIMD in names
    assert len(set(names)) == len(names)
    others = [run for run in runs if run[1] != _core.SIMD]
    assert run_for_each_simd("--others", sys.executable, "-c", SHOW) == (0, others)
    assert run_for_each_simd("--vectors", sys.executable, "-c", SHOW) == (0, runs[1:])


def test_instruction_sets_are_chosen_by_name():
    assert run_for_each_simd("--only", "scalar", sys.executable, "-c", SHOW) == (
        0,
        [("scalar", "scalar")],
    )
    assert run_for_each_simd("--only", "sse9", sys.executable, "-c", SHOW) == (1, [])


def test_the_default_is_the_widest_instruction_set():
    _, runs = run_for_each_simd("--vectors", sys.executable, "-c", SHOW)
    default = run("auto", "from dualgap import _core; print(_core.SIMD)").stdout.strip()
    assert default == (runs or [("scalar", "scalar")])[-1][1]


def test_the_failure_of_one_instruction_set_is_a_failure():
    failing = f"{SHOW}; raise SystemExit(3 * (os.environ['DUALGAP_SIMD'] == 'scalar'))"
    assert run_for_each_simd(sys.executable, "-c", failing)[0] == 3


def test_an_unknown_instruction_set_is_an_error():
    result = run("sse9", "import dualgap")
    assert result.returncode != 0
    assert "DUALGAP_SIMD: unknown: 'sse9'" in result.stderr.replace('"', "'")
