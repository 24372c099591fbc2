"""Reader of files in LIBSVM format."""

from __future__ import annotations

from typing import IO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._validation import resolve_threads


def read_libsvm(
    file: IO[bytes], first: int | None = None, n_features: int | None = None
) -> tuple[sp.csr_array, NDArray[np.float64], int]:
    """Read rows and labels.

    Parameters
    ----------
    file : file
        A binary file; only its method ``read`` is used.
    first : int, optional
        Index of the first feature, 0 or 1; by default 0 if the file has an index 0, else 1.
    n_features : int, optional
        Number of features; later features are dropped. By default the number in the file.

    Returns
    -------
    X : csr_array of shape (n_rows, n_features)
        Rows in double precision, with columns counted from 0.
    y : ndarray of shape (n_rows,)
        The labels.
    first : int
        Index of the first feature.

    Raises
    ------
    ValueError
        If a line is malformed (the message gives its number), or an index is below `first`.
    """
    y, offsets, columns, values = _core.read_libsvm(file.read, resolve_threads(None))
    lowest = int(columns.min()) if len(columns) else 1
    if first is None:
        first = min(lowest, 1)
    if lowest < first:
        msg = f"index {lowest} is below {first}, the index of the first feature"
        raise ValueError(msg)
    columns -= first
    if offsets[-1] <= np.iinfo(np.int32).max:
        # With int64 offsets, SciPy would convert the column indices to int64, too.
        offsets = offsets.astype(np.int32)
    width = int(columns.max()) + 1 if len(columns) else 0
    X = sp.csr_array((values, columns, offsets), shape=(len(y), max(width, n_features or 0)))
    # The reader has checked that the indices are sorted and distinct.
    X.has_sorted_indices = X.has_canonical_format = True
    return (X if n_features is None or width <= n_features else X[:, :n_features]), y, first
