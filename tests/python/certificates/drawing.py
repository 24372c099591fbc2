"""Random draws from which random problems are built."""

from __future__ import annotations

from typing import Any

import numpy as np

Random = np.random.Generator
SCALES = (1e-150, 1e-75, 1e-9, 1e-3, 1.0, 1.0, 1.0, 1e3, 1e9, 1e75, 1e150)
STRENGTHS = (1e-12, 1e-6, 1e-3, 1.0, 1.0, 1e3, 1e6, 1e12)


def draw_one(random: Random, values: Any) -> Any:
    """Draw one of the values."""
    return values[int(random.integers(len(values)))]


def draw_distinct(random: Random, values: Any, number: int) -> list[Any]:
    """Draw distinct values."""
    return [values[at] for at in random.choice(len(values), number, replace=False)]


def draw_rows(random: Random, scale: float, *shape: int) -> Any:
    """Draw rows of a given scale, with some zeros."""
    found = random.normal(size=shape) * scale
    found[random.random(shape) < 0.2] = 0.0
    return found
