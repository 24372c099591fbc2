"""Progress on standard error: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np

from dualgap._validation import check_verbose

# A fit that takes longer than this shows a bar that nobody asked for.
_PATIENCE = 2.0
# Seconds between two lines.
_PAUSE = 0.2


class Forecast:
    """When a fit will have ended, as its gaps and its epochs so far let expect.

    Gaps fall by a factor in a given time (linear convergence): the time left is what the later half
    of the run would need to take the relative gap to `tol`. It ends with its epochs in any case.

    Parameters
    ----------
    n_epochs : int, optional
        Number of epochs after which the fit ends.
    tol : float, optional
        Relative gap at which it ends.
    """

    def __init__(self, n_epochs: int | None, tol: float | None) -> None:
        self._tol = tol if tol else None
        self._n_epochs = n_epochs
        self._gaps: list[tuple[float, float]] = []

    def left(self, epoch: int, seconds: float, relative: float) -> float | None:
        """Seconds that are left after an epoch; None where nothing is known yet."""
        found = []
        if self._n_epochs is not None:
            found.append(seconds / epoch * max(self._n_epochs - epoch, 0))
        if self._tol is not None and 0.0 < relative < np.inf:
            self._gaps.append((seconds, float(np.log(relative))))
            half = (entry for entry in self._gaps if entry[0] >= seconds / 2)
            before, gap = next(half, self._gaps[0])
            fallen = gap - self._gaps[-1][1]
            if fallen > 0.0:
                ahead = self._gaps[-1][1] - np.log(self._tol)
                found.append(max(0.0, float(ahead / fallen * (seconds - before))))
        return min(found, default=None)


class Lines(AbstractContextManager["Lines"]):
    """A line per epoch, at most five a second."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._last = -np.inf

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(
        self, epoch: int, seconds: float, objective: float, dual_objective: float
    ) -> object:
        """Print the epoch."""
        if time.monotonic() - self._last > _PAUSE:
            self._last = time.monotonic()
            line = f"{self._unit} {epoch:5d}  {seconds:8.2f} s"
            if not np.isnan(objective):
                line += f"  objective {objective:.6g}"
            if not np.isnan(dual_objective):
                gap = objective - dual_objective
                line += f"  gap {gap:.3g} ({relative_gap(gap, objective):.2g})"
            note(line)
        return False


class Bar(AbstractContextManager["Bar"]):
    """A bar with the gap and the expected end, from `delay` seconds after the beginning."""

    def __init__(self, title: str, unit: str, forecast: Forecast, delay: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._unit, self._forecast = unit, forecast
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True, highlight=False),
            transient=True,
        )
        self._task = self._bar.add_task(title, total=None, state="", left="")
        # Not by an epoch: the first one may take long.
        self._timer = threading.Timer(delay, self._begin)
        self._timer.daemon = True
        self._lock, self._ended = threading.Lock(), False

    def _begin(self) -> None:
        with self._lock:
            if not self._ended:
                self._bar.start()

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            self._bar.stop()

    def __call__(
        self, epoch: int, seconds: float, objective: float, dual_objective: float
    ) -> object:
        """Move the bar."""
        relative, state = np.nan, f"{self._unit} {epoch}"
        if not np.isnan(dual_objective):
            relative = relative_gap(objective - dual_objective, objective)
            state += f"  gap {relative:.1e}"
        elif not np.isnan(objective):
            state += f"  objective {objective:.4g}"
        fields: dict[str, Any] = {"state": state}
        left = self._forecast.left(epoch, seconds, relative)
        if left is not None:
            fields |= {"total": 1.0, "completed": seconds / max(seconds + left, 1e-9)}
            fields["left"] = f"about {_duration(left)} left"
        self._bar.update(self._task, **fields)
        return False


def note(text: str) -> None:
    """Print a line on standard error, if there is one: print takes standard output otherwise."""
    if sys.stderr is not None:
        print(text, file=sys.stderr)


def display(
    verbose: int | bool | None, title: str, unit: str, forecast: Forecast
) -> Bar | Lines | None:
    """What shows the progress of a fit, if anything does."""
    check_verbose(verbose)
    if (verbose is not None and not verbose) or sys.stderr is None:
        return None
    if not sys.stderr.isatty():
        return Lines(unit) if verbose else None
    if verbose:
        return Bar(title, unit, forecast, 0.0)
    # Nobody asked: only where one fit at a time draws on the terminal.
    alone = threading.current_thread() is threading.main_thread()
    main = multiprocessing.current_process().name == "MainProcess"
    return Bar(title, unit, forecast, _PATIENCE) if alone and main else None


def relative_gap(gap: float, objective: float) -> float:
    """The gap in units of the objective."""
    if gap == 0.0:
        return 0.0
    return gap / abs(objective) if objective != 0.0 else np.inf


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
