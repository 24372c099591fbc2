"""Show that an installed wheel is complete: run in an environment with its dependencies alone.

Usage: python scripts/smoke.py, away from the clone. Prints what it found.
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

# Packages that `import dualgap` must not import: they are slow or optional.
LAZY = ("click", "dask", "distributed", "matplotlib", "onnx", "pandas", "pyarrow", "rich")
RECOMMEND = "needs pandas: pip install 'dualgap[recommend]'"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program and keep what it says."""
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def python(code: str) -> str:
    """Run code in a fresh interpreter, warnings being errors; return what it prints."""
    done = run(sys.executable, "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_package() -> None:
    """The package is the installed one, and whole."""
    here = Path(dualgap.__file__).parent
    assert "site-packages" in str(here), f"not the installed package: {here}"
    assert (here / "py.typed").exists()
    assert (here / "_core.pyi").exists()


def check_fit() -> None:
    """A model is fitted."""
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 5) - 0.5
    y = X[:, 0] * X[:, 1] > 0
    model = dualgap.FactorizationMachineClassifier(4, alpha=0.1, radius=1.0, n_jobs=2).fit(X, y)
    assert model.score(X, y) == 1.0, "the smoke fit failed"


def check_names() -> None:
    """All names can be imported; one that needs pandas says so."""
    for package in ("dualgap", "dualgap.losses", "dualgap.metrics", "dualgap.sequence"):
        python(f"from {package} import *")
    if find_spec("pandas") is None:
        code = (
            "try:\n import dualgap; dualgap.OrdinalRecommender\nexcept ImportError as e: print(e)"
        )
        assert RECOMMEND in python(code)


def check_command() -> None:
    """`dualgap` shows its help, fits and predicts; a command without its extra says which."""
    script = str(shutil.which("dualgap", path=Path(sys.executable).parent))
    shown = run(script, "--help")
    assert shown.returncode == 0, shown.stderr
    assert "Learning with many outputs" in shown.stdout
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
    """An import of dualgap brings nothing along that scikit-learn does not."""
    code = "import sys, sklearn.svm; before = set(sys.modules); import dualgap; "
    code += "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    brought = set(python(code).split())
    assert not brought & set(LAZY), f"an import of dualgap brings {brought & set(LAZY)}"


def import_seconds(name: str) -> float:
    """Processor time of an import in a fresh interpreter, the best of five."""
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
