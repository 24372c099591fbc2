"""Hashes of problems: a warm start continues only a fit of the same problem."""

from __future__ import annotations

from typing import Any

import joblib


def problem_hash(argument: str, own: object, *data: Any) -> str:
    """Return a hash of a model or loss and its data; equal problems have equal hashes.

    Parameters
    ----------
    argument : str
        The parameter that holds `own`, for error messages.
    own : object
        A model or a loss, possibly a custom one.
    data : objects
        All other parts of the problem.

    Raises
    ------
    ValueError
        If a part cannot be pickled, which the hash requires. The message does not print the part.
    """
    try:
        return str(joblib.hash((own, *data)))
    except Exception:
        subject = f"{argument}: {type(own).__name__} cannot" if _fails(own) else "X and y cannot"
    # Raised outside the handler. Inside it, the traceback would show joblib's message, which
    # contains all data.
    msg = (
        f"{subject} be pickled, which warm_start=True requires to recognise the problem; "
        "remove lambdas, locks and open files from it, or set warm_start=False"
    )
    raise ValueError(msg)


def _fails(value: object) -> bool:
    try:
        joblib.hash(value)
    except Exception:
        return True
    return False
