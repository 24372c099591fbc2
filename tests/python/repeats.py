"""Fewer trials for tests that `make test-simd` repeats."""

import os
from itertools import product
from typing import Any


def trials(count: int) -> int:
    """Return all trials, or a third if `make test-simd` repeats a test."""
    return -(-count // 3) if os.environ.get("DUALGAP_REPEATED") else count


def cases(*parameters: list[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations of parameters, or every third one if `make test-simd` repeats a test.

    Parameters with three values come first, because every third combination has the same last one.
    """
    return list(product(*parameters))[:: 3 if os.environ.get("DUALGAP_REPEATED") else 1]
