"""Adapts functions and oracles written in Python to the interface of the core."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dualgap._validation import FloatArray, check_positive, real_array


def _number(name: str, returned: Any) -> float:
    """Return a finite number, or raise a ValueError that names the method."""
    try:
        value = float(returned)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        msg = f"{name} must return a finite number, got {returned!r}"
        raise ValueError(msg)
    return value


def _vector(name: str, returned: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return a flat copy of an array, or raise a ValueError that names the method."""
    try:
        array = real_array(name, returned)
    except (TypeError, ValueError):
        array = None
    if array is None or returned is None or array.shape != shape:
        msg = (
            f"{name} must return an array of shape {shape}, got {type(returned).__name__} of shape "
            f"{np.shape(returned) if array is not None else 'unknown'}"
        )
        raise ValueError(msg)
    if not np.isfinite(array).all():
        wrong = array[~np.isfinite(array)][0]
        msg = f"{name} must return finite numbers, got {wrong}"
        raise ValueError(msg)
    # Copied, because the user's code may reuse the buffer.
    return array.ravel().copy()


class UserFunction:
    """Wraps a user's function for calls from the core, and checks every result.

    Attributes
    ----------
    size : int
        Number of coordinates.
    """

    def __init__(self, f: Any, shape: tuple[int, ...]) -> None:
        methods = [name for name in ("value", "gradient") if callable(getattr(f, name, None))]
        if isinstance(f, type) or not (callable(f) or len(methods) == 2):
            msg = (
                "f: must be an object with the methods value and gradient, or a callable that "
                f"returns (value, gradient), got {f!r}"
            )
            raise TypeError(msg)
        self.f, self.shape, self.size = f, shape, math.prod(shape)
        self._is_object = len(methods) == 2
        self._search: Callable[..., Any] | None = getattr(f, "line_search", None)

    def value_and_gradient(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and the gradient."""
        if self._is_object:
            value = self.f.value(x.copy().reshape(self.shape))
            gradient = self.f.gradient(x.reshape(self.shape))
            names = ("f: value", "f: gradient")
        else:
            returned = self.f(x.reshape(self.shape))
            if not (isinstance(returned, tuple | list) and len(returned) == 2):
                msg = f"f: must return (value, gradient), got {type(returned).__name__}"
                raise ValueError(msg)
            value, gradient = returned
            names = ("f: the value", "f: the gradient")
        return _number(names[0], value), _vector(names[1], gradient, self.shape)

    def line_search(self, x: FloatArray, direction: FloatArray, longest: float) -> float | None:
        """Return the step of the user's line search, or None if there is no line search."""
        if self._search is None:
            return None
        shape = self.shape
        step = self._search(x.reshape(shape), direction.reshape(shape), longest)
        step = _number("f: line_search", step)
        if not 0.0 <= step <= longest:
            msg = f"f: line_search must return a step from 0 to {longest}, got {step}"
            raise ValueError(msg)
        return step


class UserSet:
    """Wraps a user's oracle for calls from the core, and checks every result.

    Attributes
    ----------
    size : int
        Number of coordinates.
    radius : float, optional
        Largest sum of the absolute values of a point's coordinates.
    """

    def __init__(self, oracle: Any, shape: tuple[int, ...]) -> None:
        if isinstance(oracle, type) or not callable(getattr(oracle, "vertex", None)):
            msg = (
                "oracle: must be a set of dualgap.frank_wolfe, or an object with the method "
                f"vertex(gradient), got {oracle!r}"
            )
            raise TypeError(msg)
        self.oracle, self.shape, self.size = oracle, shape, math.prod(shape)
        radius = getattr(oracle, "radius", None)
        if radius is not None:
            check_positive("oracle: radius", radius)
        self.radius = None if radius is None else float(radius)

    def vertex(self, gradient: FloatArray) -> FloatArray:
        """Return the vertex."""
        returned = self.oracle.vertex(gradient.reshape(self.shape))
        return _vector("oracle: vertex", returned, self.shape)
