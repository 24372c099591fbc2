"""Validation of arguments: rows, weights, numbers, threads and seeds."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite, check_array, check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from dualgap._core import THREADS_PER_CORE
from dualgap._sparse import check_sparse
from dualgap._validation.arrays import real_numbers, text_error
from dualgap._validation.columns import naming_columns
from dualgap._validation.labels import read_labels, sorted_classes
from dualgap._validation.magnitudes import check_magnitude

FloatArray: TypeAlias = NDArray[np.float64]
MatrixLike: TypeAlias = "ArrayLike | sp.spmatrix | sp.sparray"
"""Rows as users pass them: anything that NumPy converts to an array, or a sparse matrix."""
ClassWeight: TypeAlias = Mapping[Any, float] | Literal["balanced"] | None
"""A factor for each class; "balanced" gives all classes the same total weight."""
Rows: TypeAlias = (
    NDArray[np.float16]
    | NDArray[np.float32]
    | NDArray[np.float64]
    | tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any], int]
)
"""A matrix as the core borrows it: a C-ordered array, or (indptr, indices, data, n_columns)."""


def core_rows(X: Any) -> Rows:
    """Convert a validated array or CSR matrix to the core's format, if possible without a copy.

    The core requires C order; sorted, unique column indices of type int32; offsets of type int64.
    """
    if not sp.issparse(X):
        return np.ascontiguousarray(X)
    matrix: Any = X
    if matrix.shape[1] > np.iinfo(np.int32).max:
        msg = f"X: must have at most 2**31 - 1 columns, got {matrix.shape[1]}"
        raise ValueError(msg)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    # The arrays of a CSR matrix may be longer than its number of entries.
    size = int(matrix.indptr[-1])
    return (
        np.ascontiguousarray(matrix.indptr, dtype=np.int64),
        np.ascontiguousarray(matrix.indices[:size], dtype=np.int32),
        np.ascontiguousarray(matrix.data[:size]),
        matrix.shape[1],
    )


def check_rows(estimator: Any, X: Any, *, reset: bool, half: bool = False) -> Any:
    """Validate ``X``: finite, two-dimensional, float32 or float64, dense or CSR.

    With ``half``, an array of float16 is not converted.
    """
    if _accept_plain(estimator, X, reset=reset):
        return X
    X = real_numbers("X", X)
    half = half and _is_half(X)
    kind = _HALF_ROWS if half else _ROWS
    with naming_columns("X", X):
        X = validate_data(estimator, check_sparse(X), reset=reset, **kind)
    if half:
        _check_half(X)
    return X


def check_rows_and_targets(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    half: bool = False,
    single: bool = False,
    magnitude: bool = True,
    **options: bool,
) -> tuple[Any, Any]:
    """Validate training data; pass ``options`` to `validate_data`.

    ``half`` is as in `check_rows`, and ``single`` as in `check_magnitude`, which is not called if
    ``magnitude`` is False.
    """
    X, y = real_numbers("X", X), check_targets(y, numeric=options.get("y_numeric", False))
    half = half and _is_half(X)
    kind = _HALF_ROWS if half else _ROWS
    finite = options.get("ensure_all_finite", True)
    if not (_are_labels(y, X) and _accept_plain(estimator, X, reset=True, finite=finite)):
        with naming_columns("X", X):
            X, y = validate_data(estimator, check_sparse(X), y, **{**kind, **options})
    if half and finite:
        _check_half(X)
    if magnitude:
        check_magnitude("X", X, single=single)
    return X, y


def check_matrix(X: Any, name: str = "X", *, single: bool = False, **options: Any) -> Any:
    """Validate a matrix without an estimator; pass ``options`` to `check_array`.

    scikit-learn's checks convert sparse matrices without checking their indices. The package
    therefore calls them only through this module.
    """
    given = check_sparse(real_numbers(name, X), name)
    with naming_columns(name, given):
        found = check_array(given, input_name=name, **{**_ROWS, **options})
    check_magnitude(name, found, single=single)
    return found


def _accept_plain(estimator: Any, X: Any, *, reset: bool, finite: bool = True) -> bool:
    """Return whether `validate_data` would return the rows `X` as they are.

    If so, and with `reset`, sets ``n_features_in_``, as `validate_data` does. For small arrays,
    `validate_data` takes longer than a prediction.
    """
    known = vars(estimator)
    plain = (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.size > 0
        and X.dtype in (np.float64, np.float32)
        and X.flags.c_contiguous
        and "feature_names_in_" not in known
        and (reset or known.get("n_features_in_") == X.shape[1])
    )
    if plain and finite:
        # An infinite sum of finite numbers only leads to the slower check.
        with np.errstate(over="ignore", invalid="ignore"):
            plain = bool(np.isfinite(X.sum()))
    if plain and reset:
        estimator.n_features_in_ = X.shape[1]
    return plain


def _are_labels(y: Any, X: Any) -> bool:
    """Return whether `y` has an integer, Boolean or string for each row of the array `X`."""
    arrays = type(y) is np.ndarray and type(X) is np.ndarray
    return arrays and y.ndim == 1 and y.dtype.kind in "biuU" and y.shape == X.shape[:1]


def _is_half(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.dtype == np.float16


def _check_half(X: NDArray[np.float16]) -> None:
    """Check for NaN and infinity in blocks of rows; a mask of all rows would take much memory."""
    for start in range(0, len(X), _BLOCK):
        assert_all_finite(X[start : start + _BLOCK].astype(np.float32), input_name="X")


def check_targets(y: Any, *, numeric: bool) -> Any:
    """Return checked targets, as numbers or labels; raise a TypeError if y is sparse."""
    if sp.issparse(y):
        msg = "y: sparse labels are not supported; pass y.toarray()"
        raise TypeError(msg)
    # For None, scikit-learn raises an error that names the missing argument.
    if not numeric and y is not None:
        return read_labels("y", y)
    y = real_numbers("y", y)
    # scikit-learn would convert strings among objects, or raise an error that does not name `y`.
    given = np.asarray(y) if hasattr(y, "dtype") or hasattr(y, "dtypes") else np.empty(0)
    if given.dtype == object and any(isinstance(value, str | bytes) for value in given.ravel()):
        raise text_error("y")
    return y


_ROWS: dict[str, Any] = {
    "accept_sparse": "csr",
    "dtype": [np.float64, np.float32],
    "order": "C",
}
_HALF_ROWS: dict[str, Any] = {**_ROWS, "dtype": np.float16, "ensure_all_finite": False}
# Number of float16 rows to check at a time.
_BLOCK = 4096


def encode_classes(y: Any) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the sorted classes of labels (at least two) and the class index of each label."""
    is_whole = y.dtype.kind in "iub" and y.ndim == 1
    if not is_whole:
        check_classification_targets(y)
    classes, codes = sorted_classes("y", y)
    if is_whole and 2 * len(classes) > len(y):
        # This check is slow, because it sorts the labels. For integers, it only warns of a large
        # number of classes, so it is called only in that case.
        check_classification_targets(y)
    return check_classes(classes), codes


def check_classes(classes: NDArray[Any]) -> NDArray[Any]:
    """Raise a ValueError for fewer than two classes."""
    if len(classes) < 2:
        msg = f"y: a classifier needs at least two classes, got one class: {classes.tolist()[0]!r}"
        raise ValueError(msg)
    return classes


def check_weights(sample_weight: Any, X: Any) -> FloatArray | None:
    """Return sample weights as float64, or None."""
    if sample_weight is None:
        return None
    is_one = isinstance(sample_weight, Real)
    weights = sample_weight if is_one else real_array("sample_weight", sample_weight)
    weights = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
    _check_total(weights)
    # Copied, because the core may read it in place while the caller writes to the original.
    return np.array(weights, order="C")


def example_weights(sample_weight: Any, n_examples: int) -> FloatArray | None:
    """Return the weights of structured examples as float64, or None."""
    if sample_weight is None:
        return None
    weights = real_array("sample_weight", sample_weight)
    if weights.shape != (n_examples,):
        msg = f"sample_weight: must have shape ({n_examples},), got {weights.shape}"
        raise ValueError(msg)
    if not (np.isfinite(weights).all() and weights.min() >= 0):
        msg = "sample_weight: must be finite and not negative"
        raise ValueError(msg)
    _check_total(weights)
    return weights


def _check_total(weights: FloatArray) -> None:
    """Raise a ValueError if all weights are zero, or if their sum overflows."""
    if not weights.any():
        msg = "sample_weight: all weights are zero; at least one weight must be positive"
        raise ValueError(msg)
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):
        msg = f"sample_weight: the sum overflows, with weights up to {weights.max():.3g}"
        raise ValueError(msg)


def row_weights(
    class_weight: ClassWeight,
    classes: NDArray[Any],
    codes: NDArray[np.intp],
    weights: FloatArray | None,
) -> FloatArray | None:
    """Return the sample weights times the class weights."""
    if class_weight is None:
        return weights
    if not isinstance(class_weight, str):
        check_class_weight(class_weight)
    elif weights is not None:
        totals = np.bincount(codes, weights=weights, minlength=len(classes))
        if not totals.all():
            msg = (
                f"class_weight: {class_weight!r} needs a positive total sample_weight for each "
                f"class, and class {classes[totals.argmin()]!s} has 0; leave out its rows"
            )
            raise ValueError(msg)
    factors = compute_class_weight(
        class_weight, classes=classes, y=classes[codes], sample_weight=weights
    )
    factors = np.asarray(factors, dtype=np.float64)
    if not (np.isfinite(factors).all() and (factors >= 0).all()):
        msg = "class_weight: must be finite and not negative"
        raise ValueError(msg)
    own = factors[codes]
    if len(own) and not own.any():
        msg = "class_weight: must be positive for at least one class of y, but all are 0"
        raise ValueError(msg)
    return own if weights is None else own * weights


def check_class_weight(class_weight: Any) -> None:
    """Raise a ValueError unless the class weights are a dictionary of numbers."""
    numbers = isinstance(class_weight, Mapping) and class_weight.values()
    if not numbers or not all(isinstance(weight, Real) for weight in numbers):
        msg = f"class_weight: must be a dictionary from classes to numbers, got {class_weight!r}"
        raise ValueError(msg)


def regularization_of(name: str, C: float, weights: FloatArray | None, n_rows: int) -> float:
    """Return lambda = 1 / (C * total weight); ``name`` is the argument that gave C."""
    scale = float(C) * float(n_rows if weights is None else weights.sum())
    if not 1e-300 < scale < 1e300:
        msg = f"{name}: {C} times the total weight must lie between 1e-300 and 1e300, got {scale}"
        raise ValueError(msg)
    return 1.0 / scale


def resolve_threads(n_jobs: int | None) -> int:
    """Return the number of threads: for None and -1, all cores this process may use.

    The maximum is `_core.THREADS_PER_CORE` (four) threads per core.
    """
    if n_jobs is not None and (not isinstance(n_jobs, int | np.integer) or n_jobs == 0):
        msg = f"n_jobs: must be None or an integer other than 0, got {n_jobs!r}"
        raise ValueError(msg)
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = available or 1
    if n_jobs is None or n_jobs == -1:
        return cores
    wanted = int(n_jobs) if n_jobs > 0 else cores + 1 + int(n_jobs)
    return min(max(1, wanted), THREADS_PER_CORE * cores)


def resolve_seed(random_state: Any) -> int:
    """Return one 63-bit seed drawn from ``random_state``."""
    try:
        if type(random_state) is int:
            return _seed_of(random_state)
        generator = check_random_state(random_state)
    except ValueError as error:
        msg = f"random_state: {error}"
        if isinstance(random_state, int | np.integer):
            msg = (
                "random_state: must be an integer from 0 to 2**32 - 1, None or a "
                f"numpy.random.RandomState, got {random_state}"
            )
        raise ValueError(msg) from None
    return _draw_seed(generator)


@lru_cache(maxsize=128)
def _seed_of(random_state: int) -> int:
    """Return the seed of an integer. A new generator costs a tenth of the time of a small fit."""
    return _draw_seed(np.random.RandomState(random_state))


def _draw_seed(generator: np.random.RandomState) -> int:
    return int(generator.randint(0, 2**63 - 1, dtype=np.int64))


def real_array(name: str, values: Any) -> FloatArray:
    """Return real numbers as float64 in C order.

    Raises
    ------
    ValueError
        For complex numbers; the message names the argument.
    TypeError or ValueError
        If the values are not an array of numbers.
    """
    values = real_numbers(name, values)
    try:
        values = np.asarray(values)
        if not np.iscomplexobj(values):
            return np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        msg = f"{name}: must be real numbers ({error})"
        raise type(error)(msg) from error
    msg = f"{name}: Complex data not supported; pass {name}.real"
    raise ValueError(msg)


def check_verbose(verbose: Any) -> None:
    """Raise a ValueError unless `verbose` is None, a bool or a non-negative integer."""
    if verbose is not None and not isinstance(verbose, bool | np.bool_):
        check_positive("verbose", verbose, integer=True, zero=True)


def check_range(name: str, smallest: float, largest: float) -> None:
    """Raise a ValueError if the largest C is more than 1e100 times the smallest."""
    # Each fit starts from the previous solution times the ratio of the two values of C. The square
    # of this ratio must be finite.
    if largest / 1e100 > smallest:
        msg = (
            f"{name}: the largest C must be at most 1e100 times the smallest, got {smallest:g} to "
            f"{largest:g}"
        )
        raise ValueError(msg)


def check_bool(name: str, value: Any) -> None:
    """Raise a ValueError unless the value is True or False."""
    if not isinstance(value, bool | np.bool_):
        msg = f"{name}: must be True or False, got {value!r}"
        raise ValueError(msg)


def check_positive(
    name: str, value: Any, *, integer: bool = False, zero: bool = False, most: int = 2**63 - 1
) -> None:
    """Raise a ValueError unless the value is a finite positive number (or zero, with `zero`)."""
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    # Python compares integers of any size with infinity exactly.
    if not (is_number and value < math.inf and (value > 0 or (zero and value == 0))):
        noun = "integer" if integer else "number"
        kind = "non-negative" if zero else "positive"
        msg = f"{name}: must be a {kind} finite {noun}, got {value!r}"
        raise ValueError(msg)
    # For a float32, NumPy would cast the largest float to float32 and warn of an overflow.
    value = value.item() if isinstance(value, np.generic) else value
    largest = most if integer else sys.float_info.max
    if value > largest:
        msg = f"{name}: must be at most {largest}, got about 2**{int(value).bit_length()}"
        raise ValueError(msg)
