"""The program that `make lint` type-checks also runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "typing" / "user_program.py"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("part", ["linear", "polynomial", "structured", "recommender"])
def test_the_type_checked_program_runs(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    if part == "recommender":
        pytest.importorskip("matplotlib").use("agg")
    runpy.run_path(str(PROGRAM))[part]()
    assert capsys.readouterr().err == ""


def test_calls_that_type_checkers_reject_raise_errors() -> None:
    with pytest.raises(TypeError, match="loss"):
        runpy.run_path(str(PROGRAM))["rejected"]()
