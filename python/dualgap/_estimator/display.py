"""Progress of a fit on standard error, and the record of a fit in a notebook."""

from __future__ import annotations

import html
import multiprocessing
import sys
import threading
import time
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np

from dualgap._validation import check_verbose

# Seconds after which a fit with verbose=None shows a bar.
_BAR_DELAY = 2.0
# Minimum seconds between two lines.
_LINE_INTERVAL = 1.0


class Forecast:
    """Estimate of the time that a fit still needs.

    There are two estimates. The first assumes that the relative gap keeps falling to `tol` at the
    rate of the second half of the run so far. The second is the time for the remaining epochs.
    `left` returns the smaller estimate.

    Parameters
    ----------
    n_epochs : int, optional
        Maximum number of epochs.
    tol : float, optional
        Relative gap at which the fit ends.
    """

    def __init__(self, n_epochs: int | None, tol: float | None) -> None:
        self._tol = tol if tol else None
        self._n_epochs = n_epochs
        self._gaps: list[tuple[float, float]] = []

    def left(self, epoch: int, seconds: float, relative: float) -> float | None:
        """Return the estimated seconds left after an epoch, or None if there is no estimate yet."""
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
    """Prints one line per epoch, at most one per second, and always one for the last epoch.

    If there is no line after `delay` seconds, it prints the stage of the fit.
    """

    def __init__(self, unit: str, delay: float) -> None:
        self._unit = unit
        self._last = -np.inf
        self._pending: str | None = None
        self._stage: str | None = None
        # A timer shows the stage, because a stage may take long without calling this object.
        self._timer = threading.Timer(delay, self._print_stage)
        self._timer.daemon = True
        self._begin = time.monotonic() + delay

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._pending is not None:
            note(self._pending)

    def stage(self, text: str) -> None:
        """Set the text of the stage before the first epoch; print it if the fit takes long."""
        first, self._stage = self._stage is None, text
        if first:
            self._timer.start()
        elif time.monotonic() > self._begin:
            self._print_stage()

    def _print_stage(self) -> None:
        if self._stage is not None and time.monotonic() - self._last > _LINE_INTERVAL:
            self._last = time.monotonic()
            note(self._stage)

    def __call__(
        self, epoch: int, seconds: float, objective: float, dual_objective: float
    ) -> object:
        """Print the line of the epoch, or keep it in case it has to be printed at the end."""
        self._timer.cancel()
        line = f"{self._unit} {epoch:5d}  {seconds:8.2f} s"
        if not np.isnan(objective):
            line += f"  objective {objective:.6g}"
        if not np.isnan(dual_objective):
            gap = objective - dual_objective
            line += f"  gap {gap:.3g} ({relative_gap(gap, objective):.2g})"
        if time.monotonic() - self._last > _LINE_INTERVAL:
            self._last, self._pending = time.monotonic(), None
            note(line)
        else:
            self._pending = line
        return False


class Bar(AbstractContextManager["Bar"]):
    """Progress bar with the gap and the estimated time left, shown after `delay` seconds."""

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
        # A timer shows the bar, because the first epoch may take long.
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

    def stage(self, text: str) -> None:
        """Show the stage of the fit before its first epoch."""
        self._bar.update(self._task, state=text)

    def __call__(
        self, epoch: int, seconds: float, objective: float, dual_objective: float
    ) -> object:
        """Update the bar."""
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
    """Print a line on standard error, if the process has a standard error."""
    # With file=None, print would write to standard output.
    if sys.stderr is not None:
        print(text, file=sys.stderr)


def display(
    verbose: int | bool | None, title: str, unit: str, forecast: Forecast
) -> Bar | Lines | None:
    """Return the progress display of a fit, or None."""
    check_verbose(verbose)
    if (verbose is not None and not verbose) or sys.stderr is None:
        return None
    if not sys.stderr.isatty():
        return Lines(unit, _BAR_DELAY) if verbose else None
    if verbose:
        return Bar(title, unit, forecast, 0.0)
    # Unless verbose=1, only the main thread of the main process shows a bar, so that bars do not
    # overlap.
    main_thread = threading.current_thread() is threading.main_thread()
    main_process = multiprocessing.current_process().name == "MainProcess"
    return Bar(title, unit, forecast, _BAR_DELAY) if main_thread and main_process else None


def relative_gap(gap: float, objective: float) -> float:
    """Return the gap divided by the absolute value of the objective."""
    if gap == 0.0:
        return 0.0
    return gap / abs(objective) if objective != 0.0 else np.inf


def record_html(estimator: Any) -> str:
    """Return the record of a fit as an HTML table: objective, gap and certificate.

    The record of a search is that of its `best_estimator_`. If the estimator is not fitted, return
    an empty string.
    """
    model = getattr(estimator, "best_estimator_", estimator)
    objective = getattr(model, "objective_", None)
    if objective is None:
        return ""
    gap, relative = (getattr(model, f"{name}_gap_", None) for name in ("duality", "relative"))
    shown = "unknown" if gap is None else f"{gap:.3g}"
    if gap is not None and relative is not None:
        shown += f" ({relative:.2g} of the objective"
        tol = getattr(model, "tol", None)
        shown += ")" if tol is None else f"; tol={tol:.2g})"
    rows = {
        "objective": f"{objective:.6g}",
        "duality gap": shown,
        "certificate": str(getattr(model, "certificate_", "none")),
    }
    cells = "".join(
        f'<tr><th style="text-align:left">{name}</th>'
        f'<td style="text-align:left">{html.escape(text)}</td></tr>'
        for name, text in rows.items()
    )
    return f'<table class="dualgap-record">{cells}</table>'


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
