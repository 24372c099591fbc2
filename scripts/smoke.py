"""Test that an installed wheel is complete, in an environment with only its dependencies.

Usage: python scripts/smoke.py (outside the clone). Prints the import times.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.datasets import dump_svmlight_file

import dualgap

# Modules that `import dualgap` must not load, because they are slow or belong to an extra.
LAZY = ("click", "dask", "distributed", "matplotlib", "onnx", "pandas", "pyarrow", "rich")
RECOMMEND = "pandas: pip install 'dualgap[recommend]'"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program and capture its output."""
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def python(code: str) -> str:
    """Run code in a fresh interpreter, with warnings as errors; return its output."""
    done = run(sys.executable, "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_package() -> None:
    """Check that the package is the installed one, with all its files."""
    here = Path(dualgap.__file__).parent
    assert "site-packages" in str(here), f"not the installed package: {here}"
    assert (here / "py.typed").exists()
    assert (here / "_core.pyi").exists()


def check_fit() -> None:
    """Fit a model."""
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 5) - 0.5
    y = X[:, 0] * X[:, 1] > 0
    model = dualgap.FactorizationMachineClassifier(4, alpha=0.1, radius=1.0, n_jobs=2).fit(X, y)
    assert model.score(X, y) == 1.0, "the smoke fit failed"


def check_names() -> None:
    """Check that all names can be imported, or that the error names pandas if it is missing."""
    for package in ("dualgap", "dualgap.losses", "dualgap.metrics", "dualgap.sequence"):
        python(f"from {package} import *")
    if find_spec("pandas") is None:
        code = (
            "try:\n import dualgap; dualgap.OrdinalRecommender\nexcept ImportError as e: print(e)"
        )
        assert RECOMMEND in python(code)


def check_command() -> None:
    """Check the help, fit and predict commands, and the message for a missing extra."""
    script = str(shutil.which("dualgap", path=Path(sys.executable).parent))
    shown = run(script, "--help")
    assert shown.returncode == 0, shown.stderr
    assert "report how close to optimal they are" in " ".join(shown.stdout.split())
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = (X[:, 0] > 0).astype(int)
    with tempfile.TemporaryDirectory() as folder:
        rows, model, labels = (f"{folder}/{name}" for name in ("rows", "model", "labels"))
        dump_svmlight_file(X, y, rows, zero_based=False)
        for arguments in (["fit", "-q", rows, model], ["predict", "-q", rows, model, labels]):
            done = run(script, *arguments)
            assert done.returncode == 0, done.stderr
        assert np.mean(np.loadtxt(labels) == y) > 0.9
        if find_spec("pandas") is None:
            Path(folder, "rows.csv").write_text("a,label\n1,2\n")
            done = run(script, "fit", f"{folder}/rows.csv", model)
            assert done.returncode == 1, done.stderr
            assert RECOMMEND in " ".join(done.stderr.split())
    if find_spec("pandas") is None:
        for option in ("--help", "--user=1"):
            done = run(script, "recommend", option)
            assert done.returncode == 1, done.stderr
            assert done.stderr.count("\n") == 1, done.stderr
            assert RECOMMEND in done.stderr


def check_imports() -> None:
    """Check that importing dualgap loads none of the modules in LAZY."""
    code = "import sys, sklearn.svm; before = set(sys.modules); import dualgap; "
    code += "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    brought = set(python(code).split())
    assert not brought & set(LAZY), f"importing dualgap loads {brought & set(LAZY)}"


def import_seconds(name: str) -> float:
    """Return the lowest processor time of five imports, each in a fresh interpreter."""
    code = f"import time, {name}; print(time.process_time())"
    return min(float(python(code)) for _ in range(5))


if __name__ == "__main__":
    check_package()
    check_fit()
    check_names()
    check_command()
    check_imports()
    ours, theirs = import_seconds("dualgap"), import_seconds("sklearn")
    print(f"dualgap {dualgap.__version__}: the wheel imports, fits and has its command")
    print(f"import dualgap: {ours:.2f} s, of which scikit-learn {theirs:.2f} s")
