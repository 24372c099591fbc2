"""Errors about unusable input of a recommender: they name the column and the first wrong row."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from dualgap import recommend
from dualgap.recommend import Interactions, OrdinalRecommender, Variational, splits

N = 12
COLUMNS = ("who", "what", "stars", "when")
TABLE = pd.DataFrame(
    {
        "who": np.arange(N) % 4,
        "what": np.arange(N) // 4 * 2,
        "stars": 1.0 + np.arange(N) % 5,
        "when": 1e9 + np.arange(N),
    }
)
NUMBERS = pd.DataFrame({"size": [1.0, 2.0, 3.0]}, index=[0, 2, 4])
UNHASHABLE: Any = [0, 1, [2]]
FLOAT_ID = "floating-point number of 2"


def make(**parameters: Any) -> OrdinalRecommender:
    """Return a recommender for `TABLE`."""
    names = ("user_column", "item_column", "rating_column", "timestamp_column")
    quick = {"method": Variational(n_models=1, max_iter=2), "interactions": False}
    settings = {**dict(zip(names, COLUMNS, strict=True)), **quick, "random_state": 0, "n_jobs": 1}
    return OrdinalRecommender(2, **{**settings, **parameters})


def with_value(column: str, value: Any, row: int = 7, table: pd.DataFrame = TABLE) -> pd.DataFrame:
    """Return a table with another value in one row of a column."""
    values = table[column].astype(object).tolist()
    values[row] = value
    return table.assign(**{column: pd.Series(values, dtype=object)})


def repeated(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of which the first ratings are given twice."""
    return pd.concat([table.iloc[:3], table], ignore_index=True)


def fit(column: str, value: Any, **parameters: Any) -> Callable[[], Any]:
    return lambda: make(**parameters).fit(with_value(column, value))


def fit_in_parts(column: str, value: Any) -> Callable[[], Any]:
    table = with_value(column, value)
    return lambda: make().fit(part for part in (table[:5], table[5:]))


def weighted(weight: Any) -> Callable[[], Any]:
    return lambda: make().fit(TABLE, sample_weight=[*[1.0] * 7, *[weight] * 5])


def described(features: Any, **parameters: Any) -> Callable[[], Any]:
    return lambda: make(**parameters).fit(TABLE, item_features=features)


def timed() -> OrdinalRecommender:
    return make(time_features=True).fit(TABLE)


ROW = r"row 7 \(counted from 0\)"
AT = rf"{ROW} of column 'when'"
INPUT: list[tuple[Callable[[], Any], str]] = [
    # Times.
    (fit("when", None, time_features=True), f"^timestamps: a time is missing .* in {AT}"),
    (fit("when", np.inf, time_features=True), f"^timestamps: .* infinite, in {AT}"),
    (fit("when", "noon", time_features=True), rf"^timestamps: .* \(found 'noon' in {AT}"),
    (fit("when", 1.7e12, time_features=True), rf"^timestamps: .* \(1.7e\+12 in {AT}"),
    (
        lambda: make(time_features=True).fit(repeated(with_value("when", 1.7e12, row=4))),
        f"^timestamps: .* in {AT}",
    ),
    (
        lambda: make().fit(repeated(with_value("when", np.nan, row=4))),
        f"^timestamps: .* missing .* in {AT}",
    ),
    (
        lambda: make(time_features=True).fit(TABLE, timestamps=[*[1.0] * 7, *[np.nan] * 5]),
        f"^timestamps: .* missing .* in {ROW};",
    ),
    (lambda: timed().evaluate(with_value("when", None)), f"^timestamps: .* in {AT}"),
    (
        lambda: timed().predict([0, 1], [0, 2], timestamps=["2020-01-01", "noon"]),
        r"^timestamps: .* \(found 'noon' in row 1 \(counted from 0\)\)",
    ),
    (
        lambda: splits.by_time(with_value("when", np.nan), timestamp_column="when"),
        f"^timestamps: .* in {AT}",
    ),
    # Ids.
    (fit("who", ["list"]), f"^ratings: column 'who': .* hashable .* in {ROW}"),
    (fit("what", ("tuple", [1])), f"^ratings: column 'what': .* hashable .* in {ROW}"),
    (fit("who", 2.0**53), f"^ratings: column 'who': .* in {ROW} is a {FLOAT_ID}"),
    (fit_in_parts("what", -(2.0**60)), f"^ratings: column 'what': .* in {ROW} is a {FLOAT_ID}"),
    (
        fit("who", True),
        r"^ratings: column 'who': .* \(a boolean in row 7, a number in row 0, counted from 0\)",
    ),
    (lambda: timed().predict(UNHASHABLE, 0), r"^users: .* in row 2 \(counted from 0\)"),
    # Levels.
    (
        fit("stars", 2.5, levels=[1, 2, 3, 4, 5]),
        "^ratings: the rating 2.5 is not one of .* for user 3 and item 2, in column 'stars'",
    ),
    (
        lambda: make(levels=[1, 2]).fit((["a", "b"], ["x", "y"], [1.0, 3.0])),
        r"^ratings: the rating 3.0 is not one of .* for user 'b' and item 'y'$",
    ),
    (
        lambda: make().fit(TABLE).fold_in(([8, 9], [0, 0], [1.0, 2.5])),
        "^ratings: the rating 2.5 is not one of .* for user 9$",
    ),
    (
        lambda: make(
            task="clicks", interactions=Interactions(like_threshold=2.0), levels=[2, 3]
        ).fit(TABLE.drop(columns="stars")),
        "^ratings: the rating 1.0 is not one of .* for user 0 and item 0$",
    ),
    # Weights.
    (weighted(0.0), f"^sample_weight: must be positive, got 0 in {ROW}"),
    (weighted(-1.0), f"^sample_weight: must be positive, got -1 in {ROW}"),
    (weighted(np.nan), f"^sample_weight: must not contain NaN .* in {ROW}"),
    (weighted(2e10), rf"^sample_weight: must be at most 1e\+10, got 2e\+10 in {ROW}"),
    (weighted("much"), rf"^sample_weight: must be real numbers \(found 'much' in {ROW}"),
    # Features.
    (
        described(NUMBERS.replace(2.0, np.inf)),
        "^item_features: .* infinity, found for 2 in column 'size'",
    ),
    (
        described(sp.csr_array([[1.0, 0.0], [1.0, np.nan]])),
        "^item_features: .* NaN .* found for 1 in column 1",
    ),
    (
        described(NUMBERS.set_axis([0, 2, 2])),
        "^item_features: the id 2 occurs in more than one row, again in row 2 ",
    ),
    (
        described(NUMBERS.set_axis(pd.Index([0, 2, [4]], dtype=object))),
        "^item_features: the ids must be hashable .* in row 2 ",
    ),
]


@pytest.mark.parametrize(("call", "message"), INPUT)
def test_errors_name_the_column_and_the_first_wrong_row(
    call: Callable[[], Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_an_error_names_the_column_of_ids_of_a_polars_table() -> None:
    polars = pytest.importorskip("polars")
    features = polars.DataFrame({"what": [0, 2, 2], "size": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match=r"^item_features: column 'what': the id 2 occurs in more"):
        described(features)()


def test_a_column_of_objects_may_contain_times_as_numbers() -> None:
    expected = timed().predict([0, 1], [0, 2], timestamps=1e9)
    model = make(time_features=True).fit(TABLE.astype({"when": object}))
    np.testing.assert_array_equal(model.predict([0, 1], [0, 2], timestamps=1e9), expected)


def test_errors_name_no_private_class() -> None:
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(recommend.__path__, "dualgap.recommend.")
        if "._" in found.name
    ]
    private = {
        name
        for module in modules
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and name not in recommend.__all__
    }
    assert {"RatingTable", "Machine"} <= private
    for call, _ in INPUT:
        with pytest.raises((TypeError, ValueError)) as raised:
            call()
        words = set(re.findall(r"\w+", str(raised.value)))
        assert not words & private, raised.value
        assert not any(re.match("_[A-Z]", word) for word in words), raised.value
