"""What a fit is going to do: its solver, its memory, its threads."""

from __future__ import annotations

import sys
from typing import Any

from dualgap import _core
from dualgap._validation import Rows

__all__ = ["print_plan"]


def print_plan(rows: Rows, settings: dict[str, Any], *, auto: bool) -> None:
    """Print a fit's plan on standard error.

    Parameters
    ----------
    rows : array or tuple
        The rows as the core takes them.
    settings : dict
        What the core is told of the fit.
    auto : bool
        Whether the solver was left to the memory that there is; in `settings` a warm start's is
        settled by now.
    """
    solver, weights, duals, halves = _core.plan_multiclass(rows, settings)
    chosen = " (chosen for the memory that there is)" if auto and solver != "block-descent" else ""
    memory = f"{_size(weights)} for weights"
    if duals:
        memory += f" and {_size(duals)} for dual variables"
    sparse = isinstance(rows, tuple)
    threads = _threads(solver, settings["n_threads"], sparse=sparse, halves=halves)
    print(f"{solver}{chosen}: about {memory}; {threads}", file=sys.stderr)


def _threads(solver: str, n_threads: int, *, sparse: bool, halves: bool) -> str:
    """What runs on all threads, and why the rest does not."""
    if n_threads == 1:
        return "one thread"
    if solver != "block-descent":
        passes = ("frank-wolfe", "away-frank-wolfe", "projected-gradient")
        shared = "passes over the rows" if solver in passes else "certificates"
        return f"{n_threads} threads share {shared}"
    shared = "certificates"
    if not sparse:
        shared += ", epochs over all classes and conjugate gradients"
    # Halves of a row: the sums of more parts would have other bits.
    shared += ", two of them visits to long rows" if halves else ""
    visits = "other visits" if halves else "visits to single rows"
    reason = "take less than threads need to meet, and run on one"
    return f"{n_threads} threads share {shared}; {visits} {reason}"


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{max(n_bytes / 1e6, 0.1):.1f} MB"
