"""The projection onto Usunier's polytope, for losses written in Python."""

from __future__ import annotations

from typing import Any

import numpy as np


def project(point: Any, label: int, cap: float) -> Any:
    """Return the nearest point with coordinates from 0 to `cap`, a sum up to 1, and 0 at the label.

    Fits call this function 10⁵ times on a few numbers, for which NumPy's functions are slower.
    """
    values = point.tolist()
    values[label] = -np.inf

    def clipped(shift: float) -> list[float]:
        return [min(max(value - shift, 0.0), cap) for value in values]

    low, above = 0.0, sum(clipped(0.0))
    # Between these numbers, the sum of the clipped values is linear in the shift.
    breaks = sorted(value - width for value in values for width in (0.0, cap))
    for high in breaks if above > 1.0 else []:
        below = sum(clipped(high)) if high > 0.0 else above
        if below <= 1.0:
            low += (high - low) * (above - 1.0) / (above - below)
            break
        low, above = max(high, 0.0), below
    return np.array(clipped(low))
