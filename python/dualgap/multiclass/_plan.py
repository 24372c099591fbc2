"""What a fit is going to do: its solver, its memory, its threads."""

from __future__ import annotations

import sys
from typing import Any

from dualgap import _core
from dualgap._validation import Rows

__all__ = ["tell_plan"]


def tell_plan(rows: Rows, settings: dict[str, Any], *, auto: bool) -> None:
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
    solver, weights, duals = _core.plan_multiclass(rows, settings)
    chosen = " (chosen for the memory that there is)" if auto and solver != "block-descent" else ""
    memory = f"{_size(weights)} for weights"
    if duals:
        memory += f" and {_size(duals)} for dual variables"
    threads = _threads(solver, settings["n_threads"], sparse=isinstance(rows, tuple))
    print(f"{solver}{chosen}: about {memory}; {threads}", file=sys.stderr)


def _threads(solver: str, n_threads: int, *, sparse: bool) -> str:
    """What runs on all threads, and why the rest does not."""
    if n_threads == 1:
        return "one thread"
    shared = {
        "block-descent": "certificates"
        if sparse
        else "certificates, epochs over all classes and conjugate gradients",
        "frank-wolfe": "passes over the rows",
        "away-frank-wolfe": "passes over the rows",
        "projected-gradient": "passes over the rows",
    }.get(solver, "certificates")
    said = f"{n_threads} threads share {shared}"
    if solver == "block-descent":
        said += "; visits to single rows take less than threads need to meet, and run on one"
    return said


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{max(n_bytes / 1e6, 0.1):.1f} MB"
