"""Features of users and items, as numbers in rows."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._sparse import check_sparse
from dualgap.recommend._ratings import as_pandas, read_ids

FeaturesLike: TypeAlias = "pd.DataFrame | sp.spmatrix | sp.sparray"


@dataclass(frozen=True)
class Sides:
    """What is known of the users and items, a row for each."""

    shape: tuple[int, int]
    features: tuple[sp.csr_array | None, sp.csr_array | None]


@dataclass(frozen=True)
class Features:
    """Ids and numbers of a feature table, if there is one."""

    ids: pd.Index[Any] | None = None
    matrix: sp.csr_array | None = None

    def rows(self, table: pd.Index[Any]) -> list[sp.csr_array]:
        """Rows in the order of `table`, empty for ids without features."""
        if self.ids is None or self.matrix is None:
            return []
        position = self.ids.get_indexer(table)
        known = np.flatnonzero(position >= 0)
        ones = np.ones(len(known))
        pick = sp.csr_array((ones, (known, position[known])), (len(table), self.matrix.shape[0]))
        return [sp.csr_array(pick @ self.matrix)]


def read_features(features: FeaturesLike | None, name: str) -> Features:
    """Read the numbers of a feature table.

    A DataFrame is indexed by id; columns that are not numbers become one column per value, numbers
    are standardised. Row r of a sparse matrix belongs to the id r.
    """
    if features is None:
        return Features()
    features = as_pandas(features)
    if isinstance(features, pd.DataFrame):
        _check_complete(features, name)
        if not features.index.is_unique:
            msg = f"{name}: an id occurs in more than one row of the index"
            raise ValueError(msg)
        numeric = features.select_dtypes(include="number").astype(np.float64)
        numeric = (numeric - numeric.mean()) / numeric.std(ddof=0).replace(0.0, 1.0)
        others = features.drop(columns=numeric.columns)
        tables = [numeric]
        if others.shape[1]:
            tables.append(pd.get_dummies(others.astype("category"), dtype=np.float64))
        matrix = sp.csr_array(np.hstack([table.to_numpy(dtype=np.float64) for table in tables]))
        ids = read_ids(features.index, name.removesuffix("_features"))
    elif sp.issparse(features):
        matrix = sp.csr_array(check_sparse(features, name), dtype=np.float64)
        ids = pd.RangeIndex(matrix.shape[0])
    else:
        msg = f"{name}: must be a DataFrame or a sparse matrix, got {type(features).__name__}"
        raise TypeError(msg)
    if not np.isfinite(matrix.data).all():
        msg = f"{name}: must not contain NaN or infinity"
        raise ValueError(msg)
    return Features(ids, matrix)


def _check_complete(features: pd.DataFrame, name: str) -> None:
    """Refuse missing values, naming the column."""
    missing = features.isna()
    if missing.to_numpy().any():
        column: Hashable = missing.columns[int(missing.any(axis=0).to_numpy().argmax())]
        row = features.index[int(missing[column].to_numpy().argmax())]
        msg = (
            f"{name}: column {column!r} has no value (NaN) for {row!r}; fill it in, or drop the "
            "row: ids without features are allowed"
        )
        raise ValueError(msg)


def history_rows(
    rows: NDArray[np.intp], columns: NDArray[np.intp], shape: tuple[int, int]
) -> sp.csr_array:
    """The set of columns that each row has rated."""
    matrix = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def unit_rows(blocks: list[sp.csr_array]) -> sp.csr_array | None:
    """Feature blocks side by side, each row of each block scaled to unit length."""
    scaled = []
    for block in blocks:
        lengths = np.sqrt(np.asarray(block.multiply(block).sum(axis=1)).ravel())
        scaled.append(sp.diags_array(1.0 / np.where(lengths > 0.0, lengths, 1.0)) @ block)
    if not scaled:
        return None
    result = sp.csr_array(sp.hstack(scaled, format="csr"))
    result.sum_duplicates()
    return result
