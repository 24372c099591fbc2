"""Smooth convex functions implemented in the core."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dualgap import _core
from dualgap._validation import FloatArray, MatrixLike, check_matrix, core_rows, real_array


class BuiltinFunction:
    """A function implemented in the core."""

    shape: tuple[int, ...]

    def _record(self) -> tuple[Any, ...]:
        """Return the name and the arguments of the function in the core's format."""
        raise NotImplementedError

    def value(self, x: ArrayLike) -> float:
        """Return the value at a point.

        Parameters
        ----------
        x : array-like
            The point.

        Returns
        -------
        float
        """
        return self._evaluate(x)[0]

    def gradient(self, x: ArrayLike) -> FloatArray:
        """Return the gradient at a point.

        Parameters
        ----------
        x : array-like
            The point.

        Returns
        -------
        ndarray
            The gradient, with the shape of `x`.
        """
        return self._evaluate(x)[1].reshape(self.shape)

    def _evaluate(self, x: ArrayLike) -> tuple[float, FloatArray]:
        values = real_array("x", x)
        if values.shape != self.shape:
            msg = f"x: must have shape {self.shape}, got {values.shape}"
            raise ValueError(msg)
        return _core.smooth_value(self._record(), values.ravel())


class _OfRows(BuiltinFunction):
    """A function of the product A x."""

    _name: str
    _targets: str

    def __init__(self, A: MatrixLike, targets: ArrayLike) -> None:
        self.A = check_matrix(A, "A")
        self._vector = real_array(self._targets, targets).copy()
        if self._vector.shape != (self.A.shape[0],):
            msg = (
                f"{self._targets}: must have shape ({self.A.shape[0]},), one number for each row "
                f"of A, got {self._vector.shape}"
            )
            raise ValueError(msg)
        if not np.isfinite(self._vector).all():
            msg = f"{self._targets}: must be finite"
            raise ValueError(msg)
        self.shape = (self.A.shape[1],)

    def __repr__(self) -> str:
        """Return the name of the class with the shape of the matrix in parentheses."""
        return f"{type(self).__name__}(A of shape {self.A.shape})"

    def _record(self) -> tuple[Any, ...]:
        return (self._name, core_rows(self.A), self._vector)


class LeastSquares(_OfRows):
    """Half the squared residual, ``||A x - b||**2 / 2``.

    Each vertex is multiplied by ``A.T @ A`` only once. Later steps with the same vertex cost
    O(n_features).

    Parameters
    ----------
    A : array-like or CSR matrix of shape (n_samples, n_features)
        Rows. Each call of `minimize` reads them, and does not copy NumPy arrays.
    b : array-like of shape (n_samples,)
        Targets.
    """

    _name, _targets = "least-squares", "b"

    def __init__(self, A: MatrixLike, b: ArrayLike) -> None:
        super().__init__(A, b)
        self.b = self._vector


class Logistic(_OfRows):
    """Sum of logistic losses, ``log(1 + exp(-y_i <a_i, x>))`` over the rows.

    Parameters
    ----------
    A : array-like or CSR matrix of shape (n_samples, n_features)
        Rows. Each call of `minimize` reads them, and does not copy NumPy arrays.
    y : array-like of shape (n_samples,)
        Labels, -1 or 1.
    """

    _name, _targets = "logistic", "y"

    def __init__(self, A: MatrixLike, y: ArrayLike) -> None:
        super().__init__(A, y)
        self.y = self._vector
        wrong = self.y[np.abs(self.y) != 1.0]
        if len(wrong):
            msg = f"y: must be -1 or 1, got {wrong[0]:g}"
            raise ValueError(msg)


class MatrixCompletion(BuiltinFunction):
    """Half the squared error of a matrix on its observed entries.

    With a `NuclearNormBall` and without `x0`, `minimize` keeps the matrix as factors, and a step
    costs O(observed entries + rows + columns).

    Parameters
    ----------
    rows, columns : array-like of shape (n_observed,)
        Indices of the observed entries; no pair occurs twice.
    values : array-like of shape (n_observed,)
        Values of these entries.
    shape : tuple (n_rows, n_columns)
        Shape of the matrix.
    """

    shape: tuple[int, int]

    def __init__(
        self, rows: ArrayLike, columns: ArrayLike, values: ArrayLike, shape: tuple[int, int]
    ) -> None:
        n_rows, n_columns = shape
        self.shape = (int(n_rows), int(n_columns))
        self.values = real_array("values", values).copy()
        self.rows = self._indices("rows", rows, self.shape[0])
        self.columns = self._indices("columns", columns, self.shape[1])
        if self.values.ndim != 1 or not np.isfinite(self.values).all():
            msg = f"values: must be finite numbers in one dimension, got shape {self.values.shape}"
            raise ValueError(msg)

    def __repr__(self) -> str:
        """Return the name of the class with the number of entries and the shape of the matrix."""
        return f"MatrixCompletion({len(self.values)} entries of shape {self.shape})"

    def _indices(self, name: str, indices: ArrayLike, size: int) -> Any:
        array = np.asarray(indices)
        if array.shape != self.values.shape or array.dtype.kind not in "iu":
            msg = (
                f"{name}: must be integers of shape {self.values.shape}, one for each value, got "
                f"{array.dtype} of shape {array.shape}"
            )
            raise ValueError(msg)
        if array.size and not (array.min() >= 0 and array.max() < size):
            msg = f"{name}: must be from 0 to {size - 1}, got {array.min()} to {array.max()}"
            raise ValueError(msg)
        return np.ascontiguousarray(array, dtype=np.uint32)

    def _record(self) -> tuple[Any, ...]:
        return ("matrix-completion", self.shape, self.rows, self.columns, self.values)


def core_function(f: Any, shape: tuple[int, ...]) -> Any:
    """Convert a function to the form that the core expects."""
    from dualgap.frank_wolfe._user import UserFunction

    return f._record() if isinstance(f, BuiltinFunction) else UserFunction(f, shape)
