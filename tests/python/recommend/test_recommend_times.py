"""Time features: improvement only if tastes drift, files, errors, determinism."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from recommenders import N_ITEMS, N_USERS, assert_same, greedy, quick

from dualgap import OrdinalRecommender
from dualgap.datasets import synthetic_ratings
from dualgap.recommend import TimeFeatures
from dualgap.recommend._ratings import Columns, read_ratings

DAY = 86_400
DAYS = TimeFeatures(user_days=1.0)


@pytest.fixture(scope="module")
def drifting() -> pd.DataFrame:
    """Return ratings with offsets for each user and visit, and for each item and month.

    There are four visits of each user and four months.
    """
    table = synthetic_ratings(5000, N_USERS, N_ITEMS, rank=1)
    rng = np.random.default_rng(3)
    visit = rng.integers(4, size=len(table))
    month = rng.integers(4, size=(N_USERS, 4))[table["user"], visit]
    mood = rng.normal(0.0, 0.9, (N_USERS, 4))[table["user"], visit]
    fashion = rng.normal(0.0, 0.7, (N_ITEMS, 4))[table["item"], month]
    return table.assign(
        rating=np.clip(np.rint(table["rating"] + mood + fashion), 1.0, 5.0),
        timestamp=(month * 30 + 10 + visit) * DAY + rng.integers(DAY, size=len(table)),
    )


def rmse_with(drifting: pd.DataFrame, **settings: Any) -> float:
    train, test = drifting.iloc[:4000], drifting.iloc[4000:]
    model = quick(max_iter=20, interactions=False, **settings).fit(train)
    return model.evaluate(test, unknown="ignore")["rmse"]


def test_time_features_help_if_tastes_drift(drifting: pd.DataFrame) -> None:
    without = rmse_with(drifting)
    users = rmse_with(drifting, time_features=TimeFeatures(user_days=1.0, item_days=1e6))
    items = rmse_with(drifting, time_features=TimeFeatures(user_days=1e6))
    both = rmse_with(drifting, time_features=DAYS)
    assert users < 0.98 * without
    assert items < 0.97 * without
    assert both < 0.97 * min(users, items)
    assert rmse_with(drifting, time_features=DAYS, task="regression") < 0.96 * without


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("9", "10"),
        ("2026-01-02T00:30:00+02:00", "2026-01-01T23:00:00Z"),
        (dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2)),
    ],
)
def test_the_latest_of_several_ratings_of_a_pair_is_used(early: Any, late: Any) -> None:
    pair = (["u", "u"], ["i", "i"], [5.0, 1.0])
    columns = Columns("user", "item", "rating", "timestamp")
    times = np.array([late, early], dtype=object)
    with pytest.warns(UserWarning, match="the latest rating of each pair"):
        assert read_ratings(pair, columns, timestamps=times).values.tolist() == [5.0]
    with pytest.raises(ValueError, match=r"^timestamps: must be numbers of seconds or dates"):
        read_ratings(pair, columns, timestamps=["yesterday", "today"])


@pytest.mark.parametrize(
    "times",
    [
        [np.nan, 1.0],
        np.array([1, None], dtype=object),
        np.array(["nan", "1"]),
        np.array(["2026-01-01", None], dtype=object),
        np.array([dt.datetime(2026, 1, 1), pd.NaT], dtype=object),
        np.array(["2026-01-01", "NaT"], dtype="datetime64[s]"),
        pd.array([1, pd.NA], dtype="Int64"),
    ],
)
def test_a_rating_with_a_missing_time_is_not_the_latest(times: Any) -> None:
    pair = (["u", "u"], ["i", "i"], [5.0, 1.0])
    columns = Columns("user", "item", "rating", "timestamp")
    with pytest.raises(ValueError, match=r"^timestamps: a time is missing"):
        read_ratings(pair, columns, timestamps=times)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.coo_array])
def test_times_of_a_sparse_matrix_are_in_the_order_of_its_entries(
    drifting: pd.DataFrame, kind: Any
) -> None:
    table = drifting.iloc[:1000].drop_duplicates(["user", "item"], keep="last")
    entries = (table["rating"].to_numpy(), (table["user"].to_numpy(), table["item"].to_numpy()))
    matrix = kind(sp.coo_array(entries))
    when = table.set_index(["user", "item"])["timestamp"]
    coo = matrix.tocoo()
    times = when.loc[list(zip(*coo.coords, strict=True))].to_numpy()
    found = quick(time_features=DAYS).fit(matrix, timestamps=times)
    expected = quick(time_features=DAYS).fit(
        pd.DataFrame(
            {"user": coo.coords[0], "item": coo.coords[1], "rating": coo.data, "timestamp": times}
        )
    )
    assert_same(found, expected)


def test_time_features_do_little_harm_without_drift(ratings: pd.DataFrame) -> None:
    rng = np.random.default_rng(0)
    table = ratings.assign(timestamp=rng.integers(100 * DAY, size=len(ratings)))
    train, test = table.iloc[:2400], table.iloc[2400:]
    found = [
        quick(interactions=False, time_features=features).fit(train).evaluate(test)["rmse"]
        for features in (False, DAYS)
    ]
    assert found[1] < 1.01 * found[0]


@pytest.mark.parametrize("task", ["ordinal", "regression"])
def test_the_objective_never_rises_with_time_features(drifting: pd.DataFrame, task: Any) -> None:
    for extra in ({}, {"history_features": True}, {"radius": 500.0}):
        model = quick(max_iter=25, tol=0.0, task=task, time_features=DAYS, **extra).fit(
            drifting.iloc[:1500]
        )
        objective, number = model.history_["objective"], model.history_["model"]
        step = np.diff(objective)[np.diff(number) == 0]
        # A radius applies only after the first sweeps.
        late = step if "radius" not in extra else step[8:17]
        assert (late <= 1e-7 * np.abs(objective).max()).all(), extra


def test_a_model_with_time_features_does_not_depend_on_the_threads(drifting: pd.DataFrame) -> None:
    one, two = (quick(time_features=True, n_jobs=n).fit(drifting) for n in (1, 2))
    assert_same(one, two)
    pairs = drifting["user"], drifting["item"]
    times = drifting["timestamp"]
    np.testing.assert_array_equal(
        one.predict(*pairs, timestamps=times), two.predict(*pairs, timestamps=times)
    )


def test_times_of_any_form_give_the_same_model(drifting: pd.DataFrame) -> None:
    small = drifting.iloc[:1000]
    parts = tuple(small[name] for name in ("user", "item", "rating"))
    table = quick(time_features=DAYS).fit(small)
    dates = pd.to_datetime(small["timestamp"], unit="s")
    for timestamps in (
        small["timestamp"].tolist(),
        dates.to_numpy(),
        dates.dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
    ):
        fitted = quick(time_features=DAYS).fit(parts, timestamps=timestamps)
        assert_same(table, fitted)
        np.testing.assert_array_equal(
            table.predict(*parts[:2], timestamps=small["timestamp"]),
            fitted.predict(*parts[:2], timestamps=timestamps),
        )
    named = quick(time_features=DAYS, timestamp_column="when")
    assert_same(table, named.fit(small.rename(columns={"timestamp": "when"})))


def test_times_outside_the_training_period_have_no_effect(drifting: pd.DataFrame) -> None:
    model = quick(time_features=DAYS).fit(drifting)
    users, items = [0, 1, 2], [3, 4, 5]
    plain = model.predict(users, items)
    np.testing.assert_array_equal(plain, model.predict(users, items, timestamps=9_999 * DAY))
    assert (plain != model.predict(users, items, timestamps=11 * DAY)).any()
    chances = model.predict_proba(users, items, timestamps=11 * DAY)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    # The ranking of the catalogue does not depend on time.
    assert len(model.recommend([0, 1], n=3)) == 6


def test_time_features_are_saved_and_used_for_folded_in_users(
    drifting: pd.DataFrame, tmp_path: Path
) -> None:
    model = quick(time_features=DAYS).fit(drifting)
    model.save(tmp_path / "model.npz")
    loaded = OrdinalRecommender.load(tmp_path / "model.npz")
    pairs, times = (drifting["user"], drifting["item"]), drifting["timestamp"]
    np.testing.assert_array_equal(
        model.predict(*pairs, timestamps=times), loaded.predict(*pairs, timestamps=times)
    )
    assert loaded.get_params()["time_features"].user_days == 1.0
    folded = loaded.fold_in(drifting[drifting["user"] == 7])
    mine, other = (model.predict(user, [1, 2, 3], timestamps=11 * DAY) for user in (7, 8))
    assert (folded.predict(7, [1, 2, 3], timestamps=11 * DAY) != mine).any()
    np.testing.assert_array_equal(folded.predict(8, [1, 2, 3], timestamps=11 * DAY), other)


def test_times_that_cannot_be_used_are_rejected(
    drifting: pd.DataFrame, ratings: pd.DataFrame
) -> None:
    with pytest.raises(
        ValueError, match=r"^timestamps: time_features needs the times .*'timestamp'"
    ):
        quick(time_features=True).fit(ratings)
    with pytest.raises(ValueError, match=r"^timestamps: must be 5000 times"):
        quick(time_features=True).fit(drifting, timestamps=[1, 2])
    with pytest.raises(ValueError, match=r"^timestamps: a time is missing"):
        quick(time_features=True).fit(drifting.assign(timestamp=np.nan))
    with pytest.raises(ValueError, match=r"^timestamps: must be numbers of seconds or dates"):
        quick(time_features=True).fit(drifting.assign(timestamp="yesterday"))
    with pytest.raises(ValueError, match=r"^timestamps: .* look like milliseconds"):
        quick(time_features=True).fit(drifting.assign(timestamp=1e30))
    with pytest.raises(ValueError, match=r"^time_features: must be a bool or TimeFeatures"):
        quick(time_features="day").fit(drifting)
    with pytest.raises(ValueError, match=r"^user_days: must be"):
        quick(time_features=TimeFeatures(user_days=0.0)).fit(drifting)
    with pytest.raises(ValueError, match=r'^time_features: method="conditional-gradient" does'):
        greedy(time_features=True).fit(drifting)
    with pytest.raises(ValueError, match=r'^time_features: task="clicks"'):
        quick(time_features=True, task="clicks").fit(drifting)
    with pytest.raises(ValueError, match=r"^timestamps: this recommender was fitted without"):
        quick().fit(drifting).predict(0, [1, 2], timestamps=0)
    with pytest.raises(ValueError, match=r"^timestamps: must be 2 times, one for each pair"):
        quick(time_features=True).fit(drifting).predict(0, [1, 2], timestamps=[1, 2, 3])
