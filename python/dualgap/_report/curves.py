"""Curves of a fit as SVG charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualgap._estimator import History
from dualgap._report.markup import Markup, element

__all__ = ["charts"]

# Size of a chart and of its margins, in pixels.
_WIDTH, _HEIGHT = 640, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 12, 12, 40
# Maximum number of points of a curve. Several points per pixel could not be distinguished.
_MOST_POINTS = _WIDTH - _LEFT - _RIGHT
# Points are marked in curves with at most this many points, since a fit may have a single epoch.
_FEW_POINTS = 30

Points = list[tuple[float, float]]


class _Scale(NamedTuple):
    """Linear map from an interval of values to an interval of pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def charts(history: History) -> list[tuple[str, Markup]]:
    """Return a caption and a chart of the objectives, then of the gap if there is one.

    Epochs without an evaluation (NaN) are left out.
    """
    bound = "Objective and its lower bound"
    objectives = {
        label: list(_curves(history, name))
        for label, name in (("objective", "objective"), ("lower bound", "dual_objective"))
    }
    found = []
    if any(objectives.values()):
        caption = bound if objectives["lower bound"] else "Objective"
        found.append((f"{caption} after each epoch", _chart(objectives, caption, log=False)))
    gaps = [[(x, log10(y)) for x, y in curve if y > 0.0] for curve in _curves(history, "gap")]
    if any(gaps):
        drawn = {"duality gap": [curve for curve in gaps if curve]}
        caption = "Duality gap after each epoch (logarithmic scale)"
        found.append((caption, _chart(drawn, "Duality gap", log=True)))
    return found


def _curves(history: History, name: str) -> Iterator[Points]:
    """Yield a curve of the finite values of a column; one for each model of a recommender."""
    epochs, values = history["epoch"], np.asarray(history[name], dtype=np.float64)
    models = history.get("model", np.zeros(len(epochs)))
    for model in np.unique(models):
        at = np.flatnonzero((models == model) & np.isfinite(values))
        if len(at):
            kept = at[_thinned(len(at))]
            yield [(float(epochs[i]), float(values[i])) for i in kept]


def _thinned(size: int) -> NDArray[Any]:
    """Return at most `_MOST_POINTS` evenly spaced positions, including the first and the last."""
    count = min(size, _MOST_POINTS)
    return np.linspace(0, size - 1, count).round().astype(np.int64)


def _chart(curves: Mapping[str, Sequence[Points]], label: str, *, log: bool) -> Markup:
    points = [point for group in curves.values() for curve in group for point in curve]
    x = _Scale(*_interval(point[0] for point in points), _LEFT, _WIDTH - _RIGHT)
    y = _Scale(*_interval(point[1] for point in points), _HEIGHT - _BOTTOM, _TOP)
    parts = [*_axes(x, y, log=log)]
    for number, (name, group) in enumerate(curves.items()):
        for curve in group:
            parts += _drawn(curve, x, y, f"curve{number}")
        if group:
            left, top = _WIDTH - _RIGHT - 130, _TOP + 10 + 18 * number
            key = {"x1": left, "x2": left + 24, "y1": top, "y2": top}
            parts.append(element("line", class_=f"curve{number}", **key))
            parts.append(element("text", name, x=left + 30, y=top + 4))
    first, last = min(points), max(points)
    text = f"{label} from epoch {first[0]:g} to epoch {last[0]:g}."
    options = {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img", "aria_label": text}
    return element("svg", *parts, **options)


def _interval(values: Iterator[float]) -> tuple[float, float]:
    """Return an interval of positive length that contains the values."""
    found = list(values)
    low, high = min(found), max(found)
    margin = 0.5 * (abs(low) or 1.0) if low == high else 0.0
    return low - margin, high + margin


def _drawn(curve: Points, x: _Scale, y: _Scale, kind: str) -> Iterator[Markup]:
    at = [(f"{x(epoch):.1f}", f"{y(value):.1f}") for epoch, value in curve]
    yield element("polyline", class_=kind, points=" ".join(",".join(pair) for pair in at))
    if len(at) <= _FEW_POINTS:
        for across, up in at:
            yield element("circle", class_=kind, cx=across, cy=up, r=2.5)


def _axes(x: _Scale, y: _Scale, *, log: bool) -> Iterator[Markup]:
    left, right, bottom = x.start, x.end, y.start
    for value in _ticks(y.low, y.high, whole=log):
        at = f"{y(value):.1f}"
        yield element("line", class_="grid", x1=left, x2=right, y1=at, y2=at)
        shown = f"1e{value:g}" if log and value == round(value) else _number(value, log=log)
        yield element("text", shown, x=left - 8, y=float(at) + 4, text_anchor="end")
    for value in _ticks(x.low, x.high, whole=True):
        at = f"{x(value):.1f}"
        yield element("text", f"{value:g}", x=at, y=bottom + 16, text_anchor="middle")
    yield element("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom)
    middle = f"{(left + right) / 2:.1f}"
    yield element("text", "epoch", x=middle, y=bottom + 34, text_anchor="middle")


def _number(value: float, *, log: bool) -> str:
    return f"{10.0**value:.2g}" if log else f"{value:.6g}"


def _ticks(low: float, high: float, *, whole: bool) -> list[float]:
    """Return about five multiples of 1, 2 or 5 times a power of ten within an interval.

    With `whole`, they are whole numbers, provided that the interval contains at least two.
    """
    whole = whole and floor(high) - ceil(low) >= 1
    rough = max((high - low) / 5, 1.0 if whole else 0.0)
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]
