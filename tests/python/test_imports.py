"""Imports load only the packages that they need; only the recommender needs pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Simulates a package that is not installed.
WITHOUT = "import sys; sys.modules['pandas'] = None; "
INSTALL = "pandas: pip install 'dualgap[recommend]'"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", WITHOUT + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)


SLOW = ["numpy", "scipy", "sklearn", "pandas", "matplotlib", "dask", "onnx"]


def imported_packages(code: str) -> set[str]:
    """Return the packages of SLOW that a new interpreter has imported after `code`."""
    code = f"import sys\ntry:\n    {code}\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True
    )
    return set(SLOW) & set(done.stderr.split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_command_prints_help_and_version_without_the_slow_packages(option: str) -> None:
    assert imported_packages(f"from dualgap.cli import main; main([{option!r}])") == set()


def test_an_estimator_imports_only_the_packages_that_it_needs() -> None:
    assert imported_packages("import dualgap") == set()
    # scikit-learn imports pandas if it is installed.
    needed = imported_packages("import sklearn.model_selection")
    assert imported_packages("from dualgap import MulticlassSVC") == needed | {
        "numpy",
        "scipy",
        "sklearn",
    }


def test_the_package_lists_its_names_and_modules() -> None:
    listed = "{*dir(dualgap)} >= names and 'find_spec' not in dir(dualgap)"
    code = f"import dualgap; print(dualgap.losses.TopK, dualgap.metrics, {listed})"
    done = python(f"import dualgap; names = {{*dualgap.__all__}}; {code}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("True\n")
    done = python("import dualgap; dualgap.MulticlasSVC")
    assert "module 'dualgap' has no attribute 'MulticlasSVC'" in done.stderr


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dualgap", "fit", "--help"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: dualgap fit [OPTIONS] TRAINING_FILE")


def test_without_pandas_only_the_recommender_is_missing() -> None:
    done = python("from dualgap import *; print(MulticlassSVC, Chunks)")
    assert (done.returncode, done.stderr) == (0, "")
    done = python("from dualgap import OrdinalRecommender")
    assert done.stderr.splitlines()[-1] == f"ImportError: OrdinalRecommender requires {INSTALL}"


def test_with_pandas_all_names_can_be_imported() -> None:
    pytest.importorskip("pandas")
    names: dict[str, object] = {}
    exec("from dualgap import *", names)
    assert {"MulticlassSVC", "OrdinalRecommender"} <= set(names)


@pytest.mark.parametrize("option", ["--help", "--user=7", "something"])
def test_a_command_names_its_extra_in_one_line(option: str) -> None:
    done = python("from dualgap.cli import main; main()", "recommend", option)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: dualgap recommend requires {INSTALL}\n"


def test_commands_run_without_pandas_unless_they_read_tables(tmp_path: Path) -> None:
    done = python("from dualgap.cli import main; main()", "--help")
    assert done.returncode == 0
    assert INSTALL in done.stdout
    rows, table = tmp_path / "rows", tmp_path / "rows.csv"
    rows.write_text("1 1:1\n2 1:-1\n")
    table.write_text("a,label\n1,2\n")
    model = str(tmp_path / "model")
    done = python("from dualgap.cli import main; main()", "fit", "-q", str(rows), model)
    assert (done.returncode, done.stderr) == (0, "")
    done = python("from dualgap.cli import main; main()", "fit", "-q", str(table), model)
    assert done.returncode == 1
    assert f"require {INSTALL}" in done.stderr
