"""The progress that a fit shows: a bar on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from dualgap import MulticlassSVC
from dualgap._estimator.display import Forecast

pty = pytest.importorskip("pty", exc_type=ImportError)

PROGRAM = """
import time, numpy as np
from dualgap import MulticlassSVC, MulticlassSVCCV
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 5))
y = rng.integers(0, 4, 300)
def slowly(*_):
    time.sleep({pause})
{program}
"""


def run_on_a_terminal(program: str, pause: float = 0.0) -> str:
    """Return the standard error of a program on a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    code = PROGRAM.format(program=program, pause=pause)
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # Linux: the other end is closed
            pass
        assert process.wait(60) == 0, shown.decode()
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def test_a_requested_bar_shows_epoch_gap_and_time_left() -> None:
    shown = run_on_a_terminal(
        "MulticlassSVC(tol=1e-7, random_state=0, verbose=1, callback=slowly).fit(X, y)", 0.05
    )
    assert re.search(r"MulticlassSVC .* epoch \d+ +gap \d\.\de-\d\d .*about \d+ s left", shown)


def test_only_long_fits_show_a_bar_by_default() -> None:
    short = "MulticlassSVC(random_state=0).fit(X, y)"
    endless = "MulticlassSVC(tol=0.0, random_state=0, max_iter=9, callback=slowly).fit(X, y)"
    program = f"import warnings; warnings.simplefilter('ignore'); {endless}"
    assert "MulticlassSVC" in run_on_a_terminal(program, 0.3)
    silent = program.replace("tol", "verbose=0, tol")
    assert run_on_a_terminal(f"{short}\n{silent}", 0.3) == ""


def test_a_bar_is_shown_before_the_first_epoch_ends() -> None:
    # The timer starts the bar; in this test no epoch ends before the bar is shown.
    program = """
from dualgap._estimator.display import Bar, Forecast
with Bar("title", "epoch", Forecast(None, None), 0.1):
    time.sleep(1.0)
"""
    assert "title" in run_on_a_terminal(program)


def test_a_search_counts_its_fits() -> None:
    program = "MulticlassSVCCV(Cs=[.1, 1.], cv=2, random_state=0, verbose=1).fit(X, y)"
    assert "MulticlassSVCCV" in run_on_a_terminal(program)


def test_without_a_terminal_only_verbose_fits_print_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    X, y = np.eye(6), np.arange(6) % 3
    for verbose in (None, 0):
        MulticlassSVC(random_state=0, verbose=verbose).fit(X, y)
    assert capsys.readouterr().err == ""
    MulticlassSVC(random_state=0, verbose=1).fit(X, y)
    plan, first, *_ = capsys.readouterr().err.splitlines()
    assert plan.startswith("block-descent, then newton if that is slow: about ")
    assert first.startswith("epoch     1 ")


def test_many_epochs_print_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    svm = MulticlassSVC(solver="subgradient", random_state=0, verbose=1, tol=1.0, max_iter=200)
    svm.set_params(callback=lambda epoch, *_: epoch == 150, tol=0.0).fit(X, y)
    lines = capsys.readouterr().err.splitlines()[1:]
    assert len(lines) <= 2 + svm.history_["seconds"][-1]
    assert lines[0].startswith("epoch     1 ")
    assert lines[-1].startswith("epoch   150 ")


def test_the_time_left_is_exact_for_gaps_that_fall_by_a_constant_factor() -> None:
    forecast = Forecast(None, 1e-6)
    assert forecast.left(1, 1.0, np.nan) is None
    assert forecast.left(1, 1.0, 1e-1) is None
    for epoch in range(2, 5):
        left = forecast.left(epoch, float(epoch), 10.0**-epoch)
        assert left == pytest.approx(6 - epoch)
    assert forecast.left(5, 5.0, 1e-7) == 0.0


def test_the_time_left_is_based_on_epochs_if_the_gap_hardly_falls() -> None:
    assert Forecast(10, None).left(4, 2.0, np.nan) == pytest.approx(3.0)
    forecast = Forecast(10, 1e-3)
    assert forecast.left(4, 2.0, 0.5) == pytest.approx(3.0)
    # If the gap hardly falls, the estimate is based on epochs.
    assert forecast.left(5, 2.5, 0.4999) == pytest.approx(2.5)
