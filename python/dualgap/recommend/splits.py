"""Splits of ratings or clicks for evaluation, and a comparison of recommenders on one split.

Each split takes a table (a DataFrame of pandas, polars or modin, or a pyarrow table) and returns
parts of its rows, in their original order, as tables of the same kind.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from dualgap._choices import Ranking
from dualgap._estimator import RandomState
from dualgap._validation import check_positive
from dualgap.recommend._tables import as_pandas, comparable_times

__all__ = ["at_random", "by_time", "by_user", "compare_recommenders", "leave_last_out"]


def at_random(
    ratings: Any, test_size: float = 0.2, *, random_state: RandomState = None
) -> tuple[Any, Any]:
    """Hold out a share of the rows, drawn at random.

    Parameters
    ----------
    ratings : table
        Ratings or clicks, one per row.
    test_size : float, default=0.2
        Share of the rows for testing.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    train : table
    test : table
    """
    n = _length(ratings)
    order = check_random_state(random_state).permutation(n)
    return _parts(ratings, _marked(n, order[: _share(test_size, n, "test_size", "ratings")]))


def by_time(
    ratings: Any, test_size: float = 0.2, *, timestamp_column: str = "timestamp"
) -> tuple[Any, Any]:
    """Hold out the latest rows, so that all training rows are earlier.

    Parameters
    ----------
    ratings : table
        Ratings or clicks with times: numbers, or dates.
    test_size : float, default=0.2
        Share of the rows for testing. Rows with the same time as the first test row are also test
        rows. An error is raised if no row is earlier.
    timestamp_column : str, default="timestamp"
        Name of the column of times.

    Returns
    -------
    train : table
    test : table
    """
    times = _times(ratings, timestamp_column)
    ordered = np.sort(times)
    first = ordered[len(times) - _share(test_size, len(times), "test_size", "ratings")]
    if first == ordered[0]:
        msg = (
            f"ratings: column {timestamp_column!r} has too many equal times to separate "
            f"{test_size} of the rows"
        )
        raise ValueError(msg)
    return _parts(ratings, times >= first)


def leave_last_out(
    ratings: Any,
    n: int = 1,
    *,
    user_column: str = "user",
    timestamp_column: str = "timestamp",
) -> tuple[Any, Any]:
    """Hold out the latest rows of each user.

    Parameters
    ----------
    ratings : table
        Ratings or clicks. Without a column of times, rows are taken to be in order of time.
    n : int, default=1
        Number of rows to hold out per user. Users with at most `n` rows keep all of them for
        training.
    user_column, timestamp_column : str
        Names of the columns.

    Returns
    -------
    train : table
    test : table
    """
    check_positive("n", n, integer=True)
    users = _codes(ratings, user_column)
    order = np.argsort(users, kind="stable")
    if timestamp_column in as_pandas(ratings).columns:
        order = np.lexsort((np.arange(len(users)), _times(ratings, timestamp_column), users))
    counts = np.bincount(users)
    from_end = np.cumsum(counts)[users[order]] - np.arange(len(users))
    chosen = order[(from_end <= n) & (counts[users[order]] > n)]
    return _parts(ratings, _marked(len(users), chosen))


def by_user(
    ratings: Any,
    test_size: float = 0.1,
    *,
    share: float = 0.2,
    user_column: str = "user",
    item_column: str = "item",
    random_state: RandomState = None,
) -> tuple[Any, Any, Any]:
    """Hold out users: split their rows into given rows and rows to predict [1]_.

    Parameters
    ----------
    ratings : table
        Ratings or clicks.
    test_size : float, default=0.1
        Share of the users for testing.
    share : float, default=0.2
        Share of a test user's rows to predict, at least one row. The remaining rows are given.
    user_column, item_column : str
        Names of the columns.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    train : table
        All rows of the other users.
    given : table
        The given rows of test users, for `fold_in`.
    test : table
        The rows of test users to predict. `given` and `test` leave out rows whose items do not
        occur in `train`, and test users who then have a single row.

    References
    ----------
    .. [1] D. Liang, R. Krishnan, M. Hoffman and T. Jebara, Variational autoencoders for
       collaborative filtering, WWW 2018.
    """
    users, items = _codes(ratings, user_column), _codes(ratings, item_column)
    rng = check_random_state(random_state)
    n_users = int(users.max()) + 1
    held = np.zeros(n_users, dtype=bool)
    held[rng.permutation(n_users)[: _share(test_size, n_users, "test_size", "users")]] = True
    in_train = np.zeros(int(items.max()) + 1, dtype=bool)
    in_train[items[~held[users]]] = True
    rows = rng.permutation(np.flatnonzero(held[users] & in_train[items]))
    rows = rows[np.argsort(users[rows], kind="stable")]
    owners = users[rows]
    counts = np.bincount(owners, minlength=n_users)[owners]
    rank = np.arange(len(rows)) - np.searchsorted(owners, owners)
    if not 0.0 < share < 1.0:
        msg = f"share: must be between 0 and 1, got {share!r}"
        raise ValueError(msg)
    wanted = rank < np.maximum(1, np.rint(share * counts))
    several = counts > 1
    parts = (
        ~held[users],
        *(_marked(len(users), rows[several & chosen]) for chosen in (~wanted, wanted)),
    )
    train, given, test = (_take(ratings, np.flatnonzero(part)) for part in parts)
    return train, given, test


def compare_recommenders(
    models: Mapping[str, Any],
    train: Any,
    test: Any,
    *,
    given: Any = None,
    k: int | Sequence[int] = 10,
    confidence: float | None = None,
    rank_by: Ranking | None = None,
) -> pd.DataFrame:
    """Fit recommenders to the same training rows, and evaluate them on the same test rows.

    Parameters
    ----------
    models : dict of OrdinalRecommender
        Recommenders by name; copies of them are fitted.
    train, test : as for `OrdinalRecommender.fit`
        Training and test rows of a split.
    given : as for `OrdinalRecommender.fit`, optional
        Rows of test users to fold in before the evaluation; see `by_user`.
    k, confidence, rank_by
        As for `OrdinalRecommender.evaluate`. The whole catalogue is ranked.

    Returns
    -------
    DataFrame
        A row for each model, with the metrics of `evaluate` and the ``seconds`` of the fit. Metrics
        that do not apply to a model are NaN.
    """
    if not isinstance(models, Mapping) or not models:
        msg = f"models: must be a dictionary from names to recommenders, got {models!r}"
        raise ValueError(msg)
    rows: dict[str, dict[str, float]] = {}
    for name, each in models.items():
        start = time.perf_counter()
        model = clone(each).fit(train)
        seconds = time.perf_counter() - start
        if given is not None:
            model = model.fold_in(given)
        settings = {"k": k, "confidence": confidence, "rank_by": rank_by}
        found = model.evaluate(test, catalogue=True, unknown="ignore", **settings)
        rows[name] = {**found, "seconds": seconds}
    return pd.DataFrame.from_dict(rows, orient="index")


def _share(size: float, n: int, name: str, what: str) -> int:
    """Return the number of rows or users, out of `n`, for a given share."""
    check_positive(name, size)
    number = round(size * n)
    if size >= 1.0 or not 0 < number < n:
        msg = f"{name}: must be a share that leaves {what} on both sides, got {size!r} of {n}"
        raise ValueError(msg)
    return number


def _column(ratings: Any, column: str) -> pd.Series[Any]:
    table = as_pandas(ratings, (column,))
    if not isinstance(table, pd.DataFrame):
        msg = f"ratings: must be a DataFrame or another table, got {type(ratings).__name__}"
        raise TypeError(msg)
    if column not in table.columns:
        have = ", ".join(map(str, as_pandas(ratings).columns))
        msg = f"ratings: no column {column!r}; the columns are {have}"
        raise ValueError(msg)
    if not len(table):
        msg = "ratings: there must be at least one row"
        raise ValueError(msg)
    return table[column]


def _times(ratings: Any, column: str) -> NDArray[Any]:
    return comparable_times(_column(ratings, column).to_numpy(), column)


def _codes(ratings: Any, column: str) -> NDArray[np.intp]:
    """Return users or items as numbers from 0."""
    codes, _ = pd.factorize(_column(ratings, column))
    if (codes < 0).any():
        msg = f"ratings: column {column!r} has a missing id in row {int(np.argmax(codes < 0))}"
        raise ValueError(msg)
    return codes


def _length(ratings: Any) -> int:
    table = as_pandas(ratings)
    if not isinstance(table, pd.DataFrame):
        msg = f"ratings: must be a DataFrame or another table, got {type(ratings).__name__}"
        raise TypeError(msg)
    return len(table)


def _marked(n: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    marks = np.zeros(n, dtype=bool)
    marks[rows] = True
    return marks


def _parts(ratings: Any, held: NDArray[np.bool_]) -> tuple[Any, Any]:
    return _take(ratings, np.flatnonzero(~held)), _take(ratings, np.flatnonzero(held))


def _take(ratings: Any, rows: NDArray[np.intp]) -> Any:
    """Select rows of a table; return a table of the same kind."""
    if isinstance(ratings, pd.DataFrame):
        return ratings.iloc[rows]
    return ratings.take(rows) if hasattr(ratings, "take") else ratings[rows]
