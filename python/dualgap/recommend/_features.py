"""Features of users, of items and of times, as numeric matrices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualgap._estimator import storable
from dualgap._sparse import check_sparse
from dualgap._validation import FloatArray, check_positive
from dualgap.recommend._tables import as_pandas, read_ids, row_name, table_kind

__all__ = ["TimeFeatures"]

FeaturesLike: TypeAlias = "pd.DataFrame | sp.spmatrix | sp.sparray"


@dataclass(frozen=True)
class FeatureEncoder:
    """Converts feature tables to numbers, with the columns, means and deviations of the fit."""

    # Names of the numeric columns, and a pair (column, value) for each indicator of a non-numeric
    # column. Both are empty for a sparse matrix.
    numbers: tuple[str, ...]
    indicators: tuple[tuple[str, str], ...]
    # Number of features.
    width: int
    # Numeric columns are multiplied by `scales` (powers of two), then `means` is subtracted and the
    # result divided by `deviations`.
    scales: FloatArray
    means: FloatArray
    deviations: FloatArray

    @classmethod
    def of(cls, features: pd.DataFrame | Any, name: str) -> FeatureEncoder:
        """Choose columns, means and deviations."""
        if not isinstance(features, pd.DataFrame):
            empty = np.zeros(0)
            return cls((), (), features.shape[1], empty, empty, empty)
        numbers, others = _parts(features)
        scales = _near_one(numbers.abs().max().to_numpy(dtype=np.float64))
        scaled = numbers * scales
        values = _values(others, name)
        # Values that are equal as text share an indicator.
        indicators = tuple(
            dict.fromkeys((column, text) for column, (_, texts) in values.items() for text in texts)
        )
        return cls(
            numbers=tuple(map(str, numbers.columns)),
            indicators=indicators,
            width=numbers.shape[1] + len(indicators),
            scales=scales,
            means=scaled.mean().to_numpy(dtype=np.float64),
            deviations=scaled.std(ddof=0).replace(0.0, 1.0).to_numpy(dtype=np.float64),
        )

    def encode(self, features: pd.DataFrame | Any, name: str) -> sp.csr_array:
        """Return a feature table as a sparse matrix: numeric columns first, then indicators."""
        if not isinstance(features, pd.DataFrame):
            self._check_width(features.shape[1], name)
            return sp.csr_array(check_sparse(features, name), dtype=np.float64)
        if not self.numbers and not self.indicators:
            self._check_width(features.shape[1], name)
        numbers, others = _parts(features)
        numbers = numbers.set_axis(list(map(str, numbers.columns)), axis=1)
        values = _values(others, name)
        for kind, wanted, given in (
            ("numeric", self.numbers, list(numbers.columns)),
            ("non-numeric", tuple(dict(self.indicators)), list(values)),
        ):
            if missing := [column for column in wanted if column not in given]:
                msg = f"{name}: no {kind} column {missing[0]!r}, which the fit used"
                raise ValueError(msg)
        table = numbers[list(self.numbers)].to_numpy(dtype=np.float64) * self.scales
        table = (table - self.means) / self.deviations
        # The additional last column is for values that did not occur in the fit.
        ones = np.zeros((len(table), len(self.indicators) + 1))
        place = {indicator: at for at, indicator in enumerate(self.indicators)}
        for column in dict(self.indicators):
            codes, texts = values[column]
            places = np.array([place.get((column, text), -1) for text in texts], dtype=np.intp)
            ones[np.arange(len(table)), places[codes]] = 1.0
        return sp.csr_array(np.hstack([table, ones[:, :-1]]))

    def _check_width(self, width: int, name: str) -> None:
        if width != self.width or self.numbers or self.indicators:
            kind = "a DataFrame" if self.numbers or self.indicators else "a sparse matrix"
            msg = f"{name}: the fit had {kind} of {self.width} features, got {width} columns"
            raise ValueError(msg)

    def state(self) -> dict[str, Any]:
        """Return the encoder as lists and arrays for a model file."""
        lists = {"numbers": list(self.numbers), "indicators": list(map(list, self.indicators))}
        return {**vars(self), **lists}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """Return the encoder from the result of `state`."""
        numbers = tuple(map(str, state["numbers"]))
        indicators = tuple((str(column), str(text)) for column, text in state["indicators"])
        arrays = {name: state[name] for name in ("scales", "means", "deviations")}
        if any(array.shape != (len(numbers),) for array in arrays.values()):
            msg = "the arrays do not fit together"
            raise ValueError(msg)
        return cls(numbers, indicators, int(state["width"]), **arrays)


@dataclass(frozen=True)
class FeatureTable:
    """Ids and features of a table; empty if there is no table."""

    ids: pd.Index[Any] | None = None
    matrix: sp.csr_array | None = None
    encoder: FeatureEncoder | None = None

    def rows(self, table: pd.Index[Any]) -> list[sp.csr_array]:
        """Return rows in the order of `table`; the rows of ids without features are empty."""
        if self.ids is None or self.matrix is None:
            return []
        position = self.ids.get_indexer(table)
        known = np.flatnonzero(position >= 0)
        ones = np.ones(len(known))
        pick = sp.csr_array((ones, (known, position[known])), (len(table), self.matrix.shape[0]))
        return [sp.csr_array(pick @ self.matrix)]


def read_features(
    features: FeaturesLike | None, name: str, column: str, encoder: FeatureEncoder | None = None
) -> FeatureTable:
    """Convert a feature table to numbers, with the encoder of a fit or a new encoder.

    A DataFrame of pandas is indexed by id; other tables have the ids in `column`. The numeric
    columns are standardised; every other column becomes one column per value. Row r of a sparse
    matrix belongs to the id r.
    """
    if features is None:
        return FeatureTable()
    place = name
    if table_kind(features) not in (None, "pandas"):
        features = as_pandas(features)
        if column not in features.columns:
            have = ", ".join(features.columns)
            msg = f"{name}: no column {column!r} of ids; the columns are {have}"
            raise ValueError(msg)
        features = features.set_index(column)
        place = f"{name}: column {column!r}"
    if isinstance(features, pd.DataFrame):
        _check_complete(features, name)
        names = pd.Index(list(map(str, features.columns)))
        if not names.is_unique:
            same = [c for c in features.columns if str(c) == names[names.duplicated()][0]]
            msg = f"{name}: the columns {same[0]!r} and {same[1]!r} have the same name; rename one"
            raise ValueError(msg)
        ids = read_ids(features.index, place)
        if not ids.is_unique:
            row = int(np.argmax(ids.duplicated()))
            msg = (
                f"{place}: the id {ids[row : row + 1].tolist()[0]!r} occurs in more than one row, "
                f"again in {row_name(row)}"
            )
            raise ValueError(msg)
        if any(dtype.kind == "c" for dtype in features.dtypes):
            msg = f"{name}: Complex data not supported; give the real parts"
            raise ValueError(msg)
    elif sp.issparse(features):
        ids = pd.RangeIndex(features.shape[0])
    else:
        msg = f"{name}: must be a DataFrame or a sparse matrix, got {type(features).__name__}"
        raise TypeError(msg)
    # Infinite values raise an error below, without a warning of NumPy before it.
    with np.errstate(invalid="ignore"):
        encoder = FeatureEncoder.of(features, name) if encoder is None else encoder
        matrix = encoder.encode(features, name)
    if not np.isfinite(matrix.data).all():
        msg = f"{name}: must not contain NaN or infinity{_infinite_place(features)}"
        raise ValueError(msg)
    return FeatureTable(ids, matrix, encoder)


def new_features(
    features: FeaturesLike | None,
    encoders: tuple[FeatureEncoder | None, FeatureEncoder | None],
    side: tuple[Literal["users", "items"], str],
    *,
    needed: bool,
) -> FeatureTable:
    """Read features of new users or items with the encoders of a fit.

    `side` is a pair: the kind ("users" or "items"), and the name of the column of ids.
    """
    what, column = side
    encoder = encoders[what == "items"]
    if needed if features is None else encoder is None:
        given = (
            "no ratings or features are given" if features is None else "the fit had no features"
        )
        msg = f"features: {given} for {what}"
        raise ValueError(msg)
    return read_features(features, "features", column, encoder)


def _parts(features: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the numeric columns, and the other columns."""
    numbers = features.select_dtypes(include="number").astype(np.float64)
    return numbers, features.drop(columns=numbers.columns)


def _near_one(largest: FloatArray) -> FloatArray:
    """Return powers of two that scale the largest values to about 1, to avoid overflow."""
    found: FloatArray = np.ldexp(1.0, np.minimum(-np.frexp(largest)[1], 1000))
    return found


def _values(columns: pd.DataFrame, name: str) -> dict[str, tuple[NDArray[np.intp], list[str]]]:
    """Return the code of each row in each column, and the value of each code as text."""
    found = {}
    for column, values in columns.items():
        try:
            coded = pd.Categorical(values)
        except TypeError as error:
            msg = f"{name}: the values of a column must be numbers, or hashable ({error})"
            raise TypeError(msg) from error
        texts = [
            str(int(value) if isinstance(value, float) and value.is_integer() else value)
            for value in coded.categories.tolist()
        ]
        found[str(column)] = coded.codes.astype(np.intp), texts
    return found


def _check_complete(features: pd.DataFrame, name: str) -> None:
    """Raise an error that names a column with missing values."""
    missing = features.isna()
    if missing.to_numpy().any():
        column: Hashable = missing.columns[int(missing.any(axis=0).to_numpy().argmax())]
        row = features.index[int(missing[column].to_numpy().argmax())]
        msg = (
            f"{name}: column {column!r} has no value (NaN) for {row!r}; fill it in, or drop the "
            "row: ids without features are allowed"
        )
        raise ValueError(msg)


def _infinite_place(features: pd.DataFrame | Any) -> str:
    """Return the id and the column of the first value that is not finite, for an error message."""
    if not isinstance(features, pd.DataFrame):
        matrix = sp.coo_array(features)
        wrong = np.flatnonzero(~np.isfinite(matrix.data))
        if not len(wrong):
            return ""
        return f", found for {matrix.row[wrong[0]]} in column {matrix.col[wrong[0]]}"
    numbers, _ = _parts(features)
    rows, columns = np.nonzero(~np.isfinite(numbers.to_numpy()))
    if not len(rows):
        return ""
    row = features.index[rows[:1]].tolist()[0]
    return f", found for {row!r} in column {numbers.columns[columns[0]]!r}"


def feature_rows(
    ids: tuple[pd.Index[Any], pd.Index[Any]],
    tables: tuple[FeatureTable, FeatureTable],
    seen: sp.csr_array,
    histories: bool | Literal["users"],
) -> tuple[sp.csr_array | None, sp.csr_array | None]:
    """Return the features of all users and of all items: table columns, then histories."""
    users, items = (table.rows(own) for table, own in zip(tables, ids, strict=True))
    if histories:
        users.append(seen)
    if histories is True:
        items.append(sp.csr_array(seen.T))
    return unit_rows(users), unit_rows(items)


def history_rows(
    rows: NDArray[np.integer[Any]], columns: NDArray[np.integer[Any]], shape: tuple[int, int]
) -> sp.csr_array:
    """Return a matrix with a 1 for each pair of row and column that has a rating."""
    matrix = sp.csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def unit_rows(blocks: list[sp.csr_array]) -> sp.csr_array | None:
    """Concatenate feature blocks, with each row of each block scaled to unit length."""
    scaled = []
    for block in blocks:
        block = block.astype(np.float64, copy=False)
        sizes = np.abs(block.data[block.data != 0.0])
        if sizes.size and not 1e-100 < sizes.min() <= sizes.max() < 1e100:
            block = sp.diags_array(_near_one(abs(block).max(axis=1).toarray().ravel())) @ block
        lengths = np.sqrt(np.asarray(block.multiply(block).sum(axis=1)).ravel())
        scaled.append(sp.diags_array(1.0 / np.where(lengths > 0.0, lengths, 1.0)) @ block)
    if not scaled:
        return None
    result = sp.csr_array(sp.hstack(scaled, format="csr"))
    result.sum_duplicates()
    return result


# --- Times ---

Periods: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Codes of the user period and of the item period of each rating."""

_DAY = 86_400.0


# Not an estimator, but scikit-learn can read, set, clone and search its parameters.
@storable
@dataclass(kw_only=True, repr=False)
class TimeFeatures(BaseEstimator):  # type: ignore[misc]
    """Settings for the effect of a rating's time in `OrdinalRecommender`.

    Every output gets a weight for each user and sitting (or day), and a weight for each item and
    month [1]_, with Gaussian priors whose covariances are learned:

    ``o_c = b_c + l_uc + l_ic + d_c(u, day) + s_c(i, month) + sum_r U_rc p_ur q_ir``.

    A period without training ratings has no weight. User periods as short as the default therefore
    help only if other ratings of the same sitting are known, as in random splits. For a future
    rating, the user has no such weight, and the item has a weight only until its period ends.

    Parameters
    ----------
    user_days : float, default=1/96
        Length of a user's periods in days. The default, a quarter of an hour, was chosen on
        validation ratings of MovieLens 100k.
    item_days : float, default=30.0
        Length of an item's periods in days.

    References
    ----------
    .. [1] Y. Koren, Collaborative filtering with temporal dynamics, KDD 2009, equation 9.
    """

    user_days: float = 1 / 96
    item_days: float = 30.0

    def check(self) -> None:
        """Raise an error for invalid parameters."""
        check_positive("user_days", self.user_days)
        check_positive("item_days", self.item_days)

    def periods(
        self, users: NDArray[np.intp], items: NDArray[np.intp], times: FloatArray
    ) -> Periods:
        """Return the codes of the user period and of the item period of each rating."""
        user_periods = _period_codes(users, times, self.user_days)
        return user_periods, _period_codes(items, times, self.item_days)


def _period_codes(rows: NDArray[np.intp], times: FloatArray, days: float) -> NDArray[np.int64]:
    period = np.floor(times / (days * _DAY))
    if np.abs(period).max(initial=0.0) >= 2.0**30:
        msg = "timestamps: must be dates or seconds since 1970; some are too far from the present"
        raise ValueError(msg)
    return rows.astype(np.int64) * 2**31 + period.astype(np.int64) + 2**30
