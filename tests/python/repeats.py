"""Fewer trials for tests that `make test-simd` repeats."""

import os
import random
from itertools import product
from typing import Any


def trials(count: int) -> int:
    """Return all trials, or a third if `make test-simd` repeats a test."""
    return -(-count // 3) if os.environ.get("DUALGAP_REPEATED") else count


def cases(*parameters: list[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations of parameters, or a random third if `make test-simd` repeats a test.

    Every third combination would keep a parameter with three values at its first value.
    """
    combinations = list(product(*parameters))
    kept = random.Random(0).sample(range(len(combinations)), trials(len(combinations)))
    return [combinations[at] for at in sorted(kept)]
