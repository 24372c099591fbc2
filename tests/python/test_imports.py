"""Without pandas, which only the recommender and tables need, everything else works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Simulates a package that is not installed.
WITHOUT = "import sys; sys.modules['pandas'] = None; "
WANTED = "needs pandas: pip install 'dualgap[recommend]'"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", WITHOUT + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_all_names_but_the_recommender() -> None:
    done = python("from dualgap import *; print(MulticlassSVC, Chunks)")
    assert (done.returncode, done.stderr) == (0, "")
    done = python("from dualgap import OrdinalRecommender")
    assert done.stderr.splitlines()[-1] == f"ImportError: OrdinalRecommender {WANTED}"


def test_with_pandas_all_names() -> None:
    pytest.importorskip("pandas")
    names: dict[str, object] = {}
    exec("from dualgap import *", names)
    assert {"MulticlassSVC", "OrdinalRecommender"} <= set(names)


@pytest.mark.parametrize("option", ["--help", "--user=7", "something"])
def test_a_command_names_its_extra_in_one_line(option: str) -> None:
    done = python("from dualgap.cli import main; main()", "recommend", option)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: dualgap recommend {WANTED}\n"


def test_the_other_commands(tmp_path: Path) -> None:
    done = python("from dualgap.cli import main; main()", "--help")
    assert done.returncode == 0
    assert WANTED.split("'")[0] in " ".join(done.stdout.split())
    rows, table = tmp_path / "rows", tmp_path / "rows.csv"
    rows.write_text("1 1:1\n2 1:-1\n")
    table.write_text("a,label\n1,2\n")
    model = str(tmp_path / "model")
    done = python("from dualgap.cli import main; main()", "fit", "-q", str(rows), model)
    assert (done.returncode, done.stderr) == (0, "")
    done = python("from dualgap.cli import main; main()", "fit", "-q", str(table), model)
    assert done.returncode == 1
    assert WANTED in done.stderr
