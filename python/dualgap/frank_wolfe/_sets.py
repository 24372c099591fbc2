"""Sets with a linear oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dualgap import _core
from dualgap._validation import FloatArray, check_positive, real_array
from dualgap.frank_wolfe._user import UserSet


class BuiltinSet:
    """A set implemented in the core."""

    shape: tuple[int, ...]

    def _record(self) -> tuple[Any, ...]:
        """Return the name and the arguments of the set in the core's format."""
        raise NotImplementedError

    def _sizes(self, x: FloatArray) -> list[tuple[float, float]]:
        """Return pairs of a quantity of the point and its largest value over the set."""
        return []

    def _excess(self, x: FloatArray) -> float:
        """Return the largest violation of a constraint; 0 if it is only a rounding error."""
        pairs = self._sizes(x)
        outside = [have - most for have, most in pairs if have > most + 1e-9 * (1.0 + most)]
        return max(outside, default=0.0)

    def vertex(self, gradient: ArrayLike) -> FloatArray:
        """Return a vertex of the set that minimises the inner product with `gradient`.

        Parameters
        ----------
        gradient : array-like
            Coefficients of the linear function, in the shape of a point.

        Returns
        -------
        ndarray
            The vertex, in the shape of a point.

        Raises
        ------
        ValueError
            For a wrong shape, or numbers that are not finite.
        """
        values = real_array("gradient", gradient)
        if values.shape != self.shape:
            msg = f"gradient: must have shape {self.shape}, got {values.shape}"
            raise ValueError(msg)
        if not np.isfinite(values).all():
            msg = "gradient: must be finite"
            raise ValueError(msg)
        return _core.linear_vertex(self._record(), values.ravel()).reshape(self.shape)


class VectorSet(BuiltinSet):
    """A set of vectors with `n` entries, whose size is proportional to `radius`."""

    n: int
    radius: float

    def __post_init__(self) -> None:
        check_positive("n", self.n, integer=True, most=2**32 - 1)
        check_positive("radius", self.radius)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of a point."""
        return (int(self.n),)


@dataclass(frozen=True)
class Simplex(VectorSet):
    """The simplex of vectors x >= 0 whose entries sum to `radius`.

    Parameters
    ----------
    n : int
        Number of entries.
    radius : float, default=1.0
        Sum of the entries.
    """

    n: int
    radius: float = 1.0

    def _sizes(self, x: FloatArray) -> list[tuple[float, float]]:
        return [(abs(x.sum() - self.radius), 0.0), (-x.min(), 0.0)]

    def _record(self) -> tuple[Any, ...]:
        return ("simplex", int(self.n), float(self.radius))


@dataclass(frozen=True)
class L1Ball(VectorSet):
    """The vectors with entries whose absolute values sum to at most `radius`.

    Parameters
    ----------
    n : int
        Number of entries.
    radius : float, default=1.0
        Largest sum of the absolute values of the entries.
    """

    n: int
    radius: float = 1.0

    def _sizes(self, x: FloatArray) -> list[tuple[float, float]]:
        return [(np.abs(x).sum(), self.radius)]

    def _record(self) -> tuple[Any, ...]:
        return ("l1-ball", int(self.n), float(self.radius))


@dataclass(frozen=True)
class KSparse(VectorSet):
    """The convex hull of vectors with `k` entries of absolute value `radius` and zeros elsewhere.

    The entries of a point have absolute values of at most `radius`, which sum to at most
    ``k * radius``.

    Parameters
    ----------
    n : int
        Number of entries.
    k : int
        Number of nonzero entries of a vertex, at most `n`.
    radius : float, default=1.0
        Absolute value of these entries.
    """

    n: int
    k: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("k", self.k, integer=True)
        if self.k > self.n:
            msg = f"k: must be at most n={self.n}, got {self.k}"
            raise ValueError(msg)

    def _sizes(self, x: FloatArray) -> list[tuple[float, float]]:
        sizes = np.abs(x)
        return [(sizes.sum(), self.k * self.radius), (sizes.max(), self.radius)]

    def _record(self) -> tuple[Any, ...]:
        return ("k-sparse", int(self.n), int(self.k), float(self.radius))


@dataclass(frozen=True)
class Birkhoff(BuiltinSet):
    """The doubly stochastic matrices: non-negative, with rows and columns that sum to 1.

    Its vertices are the permutation matrices; the oracle solves an assignment problem in at most
    O(n^3) operations.

    Parameters
    ----------
    n : int
        Number of rows and columns.
    """

    n: int

    def __post_init__(self) -> None:
        check_positive("n", self.n, integer=True, most=2**16 - 1)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of a point."""
        return (int(self.n), int(self.n))

    def _sizes(self, x: FloatArray) -> list[tuple[float, float]]:
        sums = np.r_[x.sum(axis=0), x.sum(axis=1)]
        return [(np.abs(sums - 1.0).max(), 0.0), (-x.min(), 0.0)]

    def _record(self) -> tuple[Any, ...]:
        return ("birkhoff", int(self.n))


@dataclass(frozen=True)
class NuclearNormBall(BuiltinSet):
    """The matrices whose singular values sum to at most `radius`.

    The oracle finds the leading singular vectors by Lanczos' method. Certificates use an upper
    bound on the largest singular value. The bound is certain if the smaller side of the matrix is
    at most 1024, and otherwise holds with probability 1 - 1e-9.

    Parameters
    ----------
    matrix_shape : tuple (n_rows, n_columns)
        Shape of the matrices.
    radius : float
        Largest sum of the singular values.
    """

    matrix_shape: tuple[int, int]
    radius: float

    def __post_init__(self) -> None:
        if len(self.matrix_shape) != 2:
            msg = f"matrix_shape: must be (n_rows, n_columns), got {self.matrix_shape!r}"
            raise ValueError(msg)
        for size in self.matrix_shape:
            check_positive("matrix_shape", size, integer=True, most=2**32 - 1)
        check_positive("radius", self.radius)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of a point."""
        n_rows, n_columns = self.matrix_shape
        return (int(n_rows), int(n_columns))

    def _sizes(self, x: FloatArray) -> list[tuple[float, float]]:
        return [(float(np.linalg.norm(x, "nuc")), self.radius)]

    def _record(self) -> tuple[Any, ...]:
        return ("nuclear", self.shape, float(self.radius))


class ConvexHull(BuiltinSet):
    """The convex hull of points.

    Parameters
    ----------
    points : array-like of shape (n_points, n)
        The points.
    """

    def __init__(self, points: ArrayLike) -> None:
        self.points = real_array("points", points).copy()
        if self.points.ndim != 2 or 0 in self.points.shape:
            msg = f"points: must have shape (n_points, n), got {self.points.shape}"
            raise ValueError(msg)
        if not np.isfinite(self.points).all():
            msg = "points: must be finite"
            raise ValueError(msg)
        self.points.setflags(write=False)
        self.shape = self.points.shape[1:]

    def __repr__(self) -> str:
        """Return the name of the class with the shape of the points in parentheses."""
        return f"ConvexHull(points of shape {self.points.shape})"

    def _record(self) -> tuple[Any, ...]:
        return ("hull", self.points.ravel(), self.points.shape[1])


class Product(BuiltinSet):
    """The product of sets: a point is the concatenation of one point of each set.

    Parameters
    ----------
    *factors : oracle
        The sets, built-in or with a method `vertex` and an attribute `shape`. Points that are
        matrices are flattened row by row.
    """

    def __init__(self, *factors: Any) -> None:
        if not factors:
            msg = "factors: must contain at least one oracle, got none"
            raise ValueError(msg)
        for index, factor in enumerate(factors):
            if not hasattr(factor, "shape"):
                msg = (
                    f"factors: oracle {index} ({type(factor).__name__}) must have an attribute "
                    "shape, the shape of its points"
                )
                raise ValueError(msg)
        self.factors = factors
        self.shape = (sum(math.prod(factor.shape) for factor in factors),)

    def __repr__(self) -> str:
        """Return the name of the class with the factors in parentheses."""
        return f"Product({', '.join(map(repr, self.factors))})"

    def _sizes(self, x: FloatArray) -> list[tuple[float, float]]:
        ends = np.cumsum([math.prod(factor.shape) for factor in self.factors])
        parts = zip(self.factors, np.split(x, ends[:-1]), strict=True)
        own = [
            factor._sizes(part.reshape(factor.shape))
            for factor, part in parts
            if isinstance(factor, BuiltinSet)
        ]
        return [pair for pairs in own for pair in pairs]

    def _record(self) -> tuple[Any, ...]:
        return ("product", [core_set(factor, tuple(factor.shape)) for factor in self.factors])


def core_set(oracle: Any, shape: tuple[int, ...]) -> Any:
    """Convert a set to the form that the core expects."""
    if isinstance(oracle, BuiltinSet):
        return oracle._record()
    return UserSet(oracle, shape)
