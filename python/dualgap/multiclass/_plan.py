"""Prints the plan of a fit: its solver, memory and threads."""

from __future__ import annotations

from dualgap import _core
from dualgap._estimator.display import note
from dualgap._validation import Rows

__all__ = ["print_plan"]


_USUAL = {
    "auto": "block-descent, then newton if that is slow",
    "block-descent": "block-descent",
}
"""Descriptions of the usual solvers. Memory or scales may make "auto" choose another solver."""


def print_plan(rows: Rows, settings: _core._MulticlassSettings, *, auto: bool) -> None:
    """Print a fit's plan on standard error.

    Parameters
    ----------
    rows : array or tuple
        The rows in the form of the core.
    settings : dict
        The settings of the fit.
    auto : bool
        Whether the solver was "auto". For a warm start, `settings` already has the chosen solver.
    """
    solver, weights, duals = _core.plan_multiclass(rows, settings)
    reason = "scales of the columns" if solver == "newton" else "available memory"
    chosen = f" (chosen for the {reason})" if auto and solver not in _USUAL else ""
    memory = f"{_size(weights)} for weights"
    if duals:
        memory += f" and {_size(duals)} for dual variables"
    n_threads = settings["n_threads"]
    threads = "one thread" if n_threads == 1 else f"{n_threads} threads"
    note(f"{_USUAL.get(solver, solver)}{chosen}: about {memory}; {threads}")


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{max(n_bytes / 1e6, 0.1):.1f} MB"
