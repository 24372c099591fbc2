"""Validation of sparse matrices before compiled code follows their indices."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# Number of axes of the array `data`, for each format that has one.
_AXES = {"coo": 1, "csc": 1, "csr": 1, "dia": 2, "bsr": 3}


def check_sparse(X: Any, name: str = "X") -> Any:
    """Raise an error if a sparse matrix has indices outside its shape.

    SciPy checks only some indices, and only when a matrix is constructed. Its products, slices and
    conversions use indices unchecked, and could read and write memory outside the arrays. Every
    sparse argument must therefore pass this check first. The check reads the indices once.

    Parameters
    ----------
    X : object
        A sparse matrix of any format; anything else is returned unchanged.
    name : str, default="X"
        Name of the argument in error messages.

    Returns
    -------
    object
        `X` itself; its CSR form if `X` is a LIL or DOK matrix; or, for a DIA matrix, `X` without
        the diagonals outside its shape.

    Raises
    ------
    ValueError
        If the arrays are inconsistent with the shape of `X`, or contain complex numbers.
    """
    if not sp.issparse(X):
        return X
    axes = _AXES.get(X.format)
    if axes and not (isinstance(X.data, np.ndarray) and X.data.ndim == axes):
        got = f"{type(X.data).__name__} of shape {np.shape(X.data)}"
        _refuse(name, f"data must be an array with {axes} axes, got {got}")
    if X.dtype.kind == "c":
        msg = f"{name}: Complex data not supported; give {name}.real"
        raise ValueError(msg)
    if X.format in ("csr", "csc", "bsr"):
        _check_compressed(X, name)
    elif X.format == "coo":
        _check_coordinates(X, name)
    elif X.format == "dia":
        X = _inner_diagonals(X, name)
    else:
        if X.format == "lil":
            if not len(X.rows) == len(X.data) == X.shape[0]:
                _refuse(name, f"{len(X.rows)} lists of indices and {len(X.data)} of values")
            if any(map(_differ, X.rows, X.data)):
                _refuse(name, "a row has different numbers of indices and values")
        X = X.tocsr()
        _check_compressed(X, name)
    return X


def checked_csr(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int]
) -> sp.csr_array:
    """Build a CSR matrix from arrays that were read from a file.

    Raises
    ------
    ValueError
        Unless the offsets increase from 0 to the number of values and each index is a valid column.
    """
    n_rows, n_columns = (int(n) for n in shape)
    _check_arrays("matrix", (indptr, indices, data), n_rows, n_columns)
    if data.ndim != 1 or data.dtype.kind not in "biuf" or len(data) != indptr[-1]:
        _refuse("matrix", f"{len(data)} values of {data.dtype}, but indptr ends at {indptr[-1]}")
    matrix = sp.csr_array((data, indices, indptr), shape=(n_rows, n_columns))
    matrix.check_format(full_check=True)
    return matrix


def _check_compressed(X: Any, name: str) -> None:
    sizes = (1, X.shape[0]) if X.ndim == 1 else X.shape
    if X.format == "bsr":
        # In BSR format, indices count blocks of values.
        if 0 in X.data.shape[1:]:
            _refuse(name, f"blocks of shape {X.data.shape[1:]}")
        sizes = tuple(size // side for size, side in zip(sizes, X.data.shape[1:], strict=True))
    major, minor = reversed(sizes) if X.format == "csc" else sizes
    _check_arrays(name, (X.indptr, X.indices, X.data), major, minor)


def _check_arrays(name: str, arrays: tuple[Any, Any, Any], major: int, minor: int) -> None:
    """Check the arrays of `major` compressed rows (or columns); indices must be below `minor`."""
    indptr, indices, data = arrays
    _check_integers(indptr, name, "indptr")
    _check_integers(indices, name, "indices")
    if len(indptr) != major + 1:
        _refuse(name, f"indptr must have {major + 1} entries, got {len(indptr)}")
    # Compared directly, because differences of unsigned numbers are never negative.
    if indptr[0] != 0 or not (indptr[1:] >= indptr[:-1]).all():
        _refuse(name, "indptr must start at 0 and never decrease")
    if indptr[-1] > min(len(indices), len(data)):
        stored = f"{len(indices)} indices and {len(data)} values"
        _refuse(name, f"indptr ends at {indptr[-1]}, beyond its {stored}")
    if len(indices) != len(data):
        _refuse(name, f"{len(indices)} indices for {len(data)} values")
    _check_range(indices[: int(indptr[-1])], minor, name)


def _inner_diagonals(X: Any, name: str) -> Any:
    """Return the matrix without the diagonals outside its shape.

    SciPy counts the entries of a diagonal by its offset, and then converts the offset to int32:
    2**32 becomes 0, and the conversion to CSR writes outside its arrays.
    """
    _check_integers(X.offsets, name, "offsets")
    if len(X.offsets) != len(X.data):
        _refuse(name, f"{len(X.offsets)} offsets for {len(X.data)} diagonals")
    if len(np.unique(X.offsets)) < len(X.offsets):
        _refuse(name, "two diagonals have the same offset")
    inside = (X.offsets > -X.shape[0]) & (X.offsets < X.shape[1])
    if inside.all():
        return X
    return type(X)((X.data[inside], X.offsets[inside]), shape=X.shape)


def _check_coordinates(X: Any, name: str) -> None:
    lengths = {len(coordinates) for coordinates in X.coords}
    if len(X.coords) != len(X.shape) or lengths != {len(X.data)}:
        _refuse(name, f"{len(X.data)} values for {sorted(lengths)} coordinates")
    for coordinates, size in zip(X.coords, X.shape, strict=True):
        _check_integers(coordinates, name, "coordinates")
        _check_range(coordinates, size, name)


def _check_integers(array: Any, name: str, what: str) -> None:
    """Raise an error unless `array` is a vector of integers."""
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
        kind = getattr(array, "dtype", type(array).__name__)
        _refuse(name, f"{what} must be a vector of integers, got {kind}")


def _check_range(indices: NDArray[Any], size: int, name: str) -> None:
    if not len(indices):
        return
    # Viewed as unsigned, a negative index exceeds any size, so a single pass finds both errors.
    largest = indices.view(indices.dtype.str.replace("i", "u")).max()
    if largest >= size:
        at = int(np.argmax((indices < 0) | (indices >= size)))
        _refuse(name, f"index {indices[at]} is not between 0 and {size - 1}")


def _differ(row: Any, values: Any) -> bool:
    return len(row) != len(values)


def _refuse(name: str, why: str) -> NoReturn:
    msg = f"{name}: the arrays of the sparse matrix are inconsistent: {why}; rebuild the matrix"
    raise ValueError(msg)
