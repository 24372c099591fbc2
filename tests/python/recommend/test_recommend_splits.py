"""Splits of ratings, and the table that compares recommenders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dualgap import OrdinalRecommender
from dualgap.datasets import synthetic_ratings
from dualgap.recommend import Interactions, splits


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    ratings = synthetic_ratings(1500, 60, 40)
    times = np.random.default_rng(0).permutation(len(ratings))
    return ratings.assign(timestamp=times).set_index(times + 7)


def test_the_latest_rows_are_held_out(table: pd.DataFrame) -> None:
    train, test = splits.by_time(table, 0.2)
    assert (len(train), len(test)) == (1200, 300)
    assert train["timestamp"].max() < test["timestamp"].min()
    pd.testing.assert_frame_equal(pd.concat([train, test]).loc[table.index], table)
    ties = table.assign(timestamp=table["timestamp"] // 250)
    train, test = splits.by_time(ties, 0.2)
    assert (len(test), set(test["timestamp"])) == (500, {4, 5})
    dates = table.assign(timestamp=pd.to_datetime(table["timestamp"], unit="D"))
    assert splits.by_time(dates, 0.2)[1].index.equals(splits.by_time(table, 0.2)[1].index)


def test_the_last_rows_of_each_user_are_held_out(table: pd.DataFrame) -> None:
    renamed = table.rename(columns={"user": "who", "timestamp": "when"})
    train, test = splits.leave_last_out(renamed, 2, user_column="who", timestamp_column="when")
    assert (test.groupby("who").size() == 2).all()
    last = train.groupby("who")["when"].max()
    first = test.groupby("who")["when"].min()
    assert (last[first.index] < first).all()
    few = pd.DataFrame({"user": [1, 2, 1, 1], "item": [5, 6, 7, 8]})
    train, test = splits.leave_last_out(few)
    assert train["item"].tolist() == [5, 6, 7]
    assert test["item"].tolist() == [8]


def test_users_are_held_out_with_a_part_of_their_rows(table: pd.DataFrame) -> None:
    train, given, test = splits.by_user(table, 0.25, random_state=3)
    users = [set(part["user"]) for part in (train, given, test)]
    assert users[1] == users[2]
    assert not users[0] & users[1]
    assert len(users[1]) == 15
    shares = test.groupby("user").size() / table.groupby("user").size()
    assert shares.dropna().between(0.1, 0.4).all()
    assert not set(given.index) & set(test.index)
    rare = pd.concat([table, table.iloc[:60].assign(item=10**6 + np.arange(60))])
    train, given, test = splits.by_user(rare, 0.25, random_state=3)
    assert set(given["item"]) | set(test["item"]) <= set(train["item"])


def test_random_rows_follow_the_seed(table: pd.DataFrame) -> None:
    train, test = splits.at_random(table, 0.1, random_state=0)
    assert len(test) == 150
    pd.testing.assert_frame_equal(splits.at_random(table, 0.1, random_state=0)[1], test)
    assert not splits.at_random(table, 0.1, random_state=1)[1].index.equals(test.index)
    assert sorted([*train.index, *test.index]) == sorted(table.index)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_splits_keep_the_type_of_the_table(table: pd.DataFrame, library: str) -> None:
    package: Any = pytest.importorskip(library)
    make: Any = {"polars": "from_pandas", "pyarrow": "Table"}[library]
    other = getattr(package, make)
    other = other.from_pandas(table) if library == "pyarrow" else other(table)
    expected = splits.by_time(table)
    for part, frame in zip(splits.by_time(other), expected, strict=True):
        assert type(part) is type(other)
        assert part.to_pandas()["item"].tolist() == frame["item"].tolist()
    assert len(splits.by_user(other, random_state=0)) == 3


def test_several_recommenders_are_compared_in_one_call(table: pd.DataFrame) -> None:
    train, given, test = splits.by_user(table, 0.2, random_state=0)
    clicks = OrdinalRecommender(task="clicks", random_state=0)
    models = {
        "blend": clicks,
        "factors": OrdinalRecommender(
            task="clicks", interactions=Interactions(blend=False), random_state=0
        ),
        "ratings": OrdinalRecommender(2, random_state=0),
    }
    found = splits.compare_recommenders(models, train, test, given=given, k=(5, 10))
    assert found.index.tolist() == list(models)
    assert not hasattr(clicks, "user_ids_")
    expected = clicks.fit(train).fold_in(given).evaluate(test, k=(5, 10))
    for name, value in expected.items():
        assert found.loc["blend", name] == value
    assert np.isnan(found.loc["blend", "rmse"])
    assert found.loc["ratings", "rmse"] < 1.5
    assert (found["seconds"] > 0.0).all()
    before, after = splits.at_random(table, random_state=0)
    found = splits.compare_recommenders(models, before, after, confidence=0.9)
    assert (found["recall@10_low"] < found["recall@10_high"]).all()


@pytest.mark.parametrize(
    ("split", "text"),
    [
        (lambda table: splits.at_random(table, 1.0), "test_size: must be a share"),
        (lambda table: splits.at_random(table, 1e-6), "test_size: must be a share"),
        (lambda table: splits.at_random([1, 2]), "ratings: must be a DataFrame"),
        (lambda table: splits.by_time(table.drop(columns="timestamp")), "no column 'timestamp'"),
        (lambda table: splits.by_time(table.assign(timestamp=1)), "to separate 0.2 of the"),
        (lambda table: splits.by_time(table.assign(timestamp=np.nan)), "a time is missing"),
        (lambda table: splits.by_user(table.assign(user=None)), "missing id in row 0"),
        (lambda table: splits.by_user(table, share=1.0), "share: must be between 0 and 1"),
        (lambda table: splits.leave_last_out(table, 0), "^n: "),
        (lambda table: splits.leave_last_out(table.iloc[:0]), "at least one row"),
        (lambda table: splits.compare_recommenders({}, table, table), "^models: must be"),
    ],
)
def test_errors_describe_impossible_splits(
    split: Callable[[Any], object], text: str, table: pd.DataFrame
) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        split(table)
