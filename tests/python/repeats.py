"""Fewer trials for tests that `make test-simd` repeats."""

import os
from itertools import product
from typing import Any

REPEATED = bool(os.environ.get("DUALGAP_REPEATED"))


def trials(count: int) -> int:
    """Return all trials, or a third if `make test-simd` repeats a test."""
    return -(-count // 3) if REPEATED else count


def cases(*parameters: list[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations of parameters, or every third one if `make test-simd` repeats a test.

    A parameter with three values must not come last: it would have the same value in all of them.
    """
    return list(product(*parameters))[:: 3 if REPEATED else 1]
