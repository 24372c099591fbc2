"""Time features: what a user gave in a sitting and what an item got in a month."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualgap._validation import FloatArray, check_positive

__all__ = ["TimeFeatures"]

# Seconds to the year 5138: milliseconds of any year after 1973 are more.
_LATEST = 1e11
_DAY = 86_400.0


# Not an estimator, but its parameters are to be read, set, cloned and searched like one's.
@dataclass(kw_only=True, repr=False)
class TimeFeatures(BaseEstimator):  # type: ignore[misc]
    """How `OrdinalRecommender` takes up the time of a rating.

    Every output gets a weight for the user's ratings of one sitting (or day) and a weight for the
    item's ratings of one month [1]_, with Gaussian priors whose covariances are learned:

    ``o_c = b_c + l_uc + l_ic + d_c(u, day) + s_c(i, month) + sum_r U_rc p_ur q_ir``.

    A period that is not in the training ratings has no such weight. So short a period of the users
    helps where other ratings of the same sitting are known, as in random splits: a time to come has
    no weight of the user, and of the item only until its period ends.

    Parameters
    ----------
    user_days : float, default=1/96
        Length of a user's periods in days: a quarter of an hour, chosen on validation ratings of
        MovieLens 100k.
    item_days : float, default=30.0
        Length of an item's periods in days.

    References
    ----------
    .. [1] Y. Koren, Collaborative filtering with temporal dynamics, KDD 2009, equation 9.
    """

    user_days: float = 1 / 96
    item_days: float = 30.0

    def check(self) -> None:
        """Refuse parameters that cannot be used."""
        check_positive("user_days", self.user_days)
        check_positive("item_days", self.item_days)

    def periods(
        self, users: NDArray[np.intp], items: NDArray[np.intp], times: FloatArray
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A number for each user and day, and for each item and season: increasing by rows."""
        return _codes(users, times, self.user_days), _codes(items, times, self.item_days)


def _codes(rows: NDArray[np.intp], times: FloatArray, days: float) -> NDArray[np.int64]:
    period = np.floor(times / (days * _DAY))
    if np.abs(period).max(initial=0.0) >= 2.0**30:
        msg = "timestamps: must be dates or seconds since 1970; some are too far away"
        raise ValueError(msg)
    return rows.astype(np.int64) * 2**31 + period.astype(np.int64) + 2**30


def refuse_missing(times: NDArray[Any], name: str) -> None:
    """Raise where a time is NaN, NaT, None or infinite."""
    numbers = times.dtype.kind in "iufbM"
    if (~np.isfinite(times) if numbers else pd.isna(times)).any():
        msg = f"{name}: a time is missing (NaN); leave out these pairs, or all times"
        raise ValueError(msg)


def read_times(times: Any, n: int, name: str = "timestamps") -> FloatArray:
    """Seconds since 1970 of numbers (seconds already), dates, or text in ISO 8601."""
    values = np.asarray(times)
    if values.shape != (n,):
        msg = f"{name}: must be {n} times, one for each pair, got shape {values.shape}"
        raise ValueError(msg)
    refuse_missing(values, name)
    if values.dtype.kind in "iufb":
        seconds: FloatArray = values.astype(np.float64)
    else:
        try:
            dates = pd.to_datetime(pd.Series(times), utc=True, format="ISO8601")
        except (TypeError, ValueError) as error:
            msg = f"{name}: must be numbers of seconds or dates ({error})"
            raise ValueError(msg) from None
        since = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
        seconds = np.asarray(since, dtype=np.float64)
    refuse_missing(seconds, name)
    if (np.abs(seconds) > _LATEST).any():
        msg = f"{name}: must be seconds since 1970 or dates; these look like milliseconds"
        raise ValueError(msg)
    return seconds


@dataclass(frozen=True)
class TimeWeights:
    """The weights of one side's periods: a table for each model; its last row, 0, is for others."""

    codes: NDArray[np.int64]
    tables: list[FloatArray]

    @classmethod
    def of(cls, codes: NDArray[np.int64], tables: list[FloatArray]) -> TimeWeights:
        """Of periods in the order of their numbers."""
        return cls(codes, [np.vstack([table, np.zeros((1, table.shape[1]))]) for table in tables])

    def fits(self, n_models: int, n_outputs: int) -> bool:
        """Whether these are the weights of models of this size."""
        shape = (len(self.codes) + 1, n_outputs)
        return (
            self.codes.dtype == np.int64
            and bool((np.diff(self.codes) > 0).all())
            and len(self.tables) == n_models
            and all(table.shape == shape and table.dtype == np.float64 for table in self.tables)
            and all(bool(np.isfinite(table).all()) for table in self.tables)
        )

    def find(self, codes: NDArray[np.int64]) -> NDArray[np.intp]:
        """Rows of the tables."""
        at = np.minimum(np.searchsorted(self.codes, codes), max(len(self.codes) - 1, 0))
        known = self.codes[at] == codes if len(self.codes) else np.zeros(len(codes), dtype=bool)
        return np.where(known, at, len(self.codes))

    def without(self, rows: NDArray[np.intp]) -> TimeWeights:
        """Without those of some users or items, which were fitted anew without them."""
        stale = np.isin(self.codes // 2**31, rows)
        if not stale.any():
            return self
        tables = [table.copy() for table in self.tables]
        for table in tables:
            table[:-1][stale] = 0.0
        return TimeWeights(self.codes, tables)


@dataclass(frozen=True)
class FittedTimes:
    """The weights of the users' and of the items' periods."""

    users: TimeWeights
    items: TimeWeights

    def outputs(
        self, periods: tuple[NDArray[np.int64], NDArray[np.int64]], model: int
    ) -> FloatArray:
        """What they add to the outputs of pairs, shape (n_pairs, n_outputs)."""
        sides = zip((self.users, self.items), periods, strict=True)
        found = [side.tables[model][side.find(codes)] for side, codes in sides]
        return np.asarray(found[0] + found[1])

    def without(self, rows: NDArray[np.intp], *, of_users: bool) -> FittedTimes:
        """Without those of some users (or items)."""
        side = "users" if of_users else "items"
        changed: Any = {side: getattr(self, side).without(rows)}
        return replace(self, **changed)

    def fits(self, n_models: int, n_outputs: int) -> bool:
        """Whether these are the weights of models of this size."""
        return all(side.fits(n_models, n_outputs) for side in (self.users, self.items))
