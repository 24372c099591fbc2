"""DUALGAP_SIMD: one choice of instructions for a process, to make a model again elsewhere."""

import os
import subprocess
import sys

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
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("name", ["scalar", "avx2", "avx512"])
def test_a_forced_path_gives_the_same_models_again(name):
    first = run(name)
    if "this machine does not have" in first.stderr:
        pytest.skip(f"no {name} here")
    assert first.returncode == 0, first.stderr
    used, digest = first.stdout.split()
    assert used == name
    assert run(name).stdout.split() == [name, digest]


def test_the_default_is_the_widest_path():
    assert run("auto", "from dualgap import _core; print(_core.SIMD)").stdout.strip() == _core.SIMD


def test_an_unknown_path_is_an_error_and_no_guess():
    result = run("sse9", "import dualgap")
    assert result.returncode != 0
    assert "DUALGAP_SIMD: unknown: 'sse9'" in result.stderr.replace('"', "'")
