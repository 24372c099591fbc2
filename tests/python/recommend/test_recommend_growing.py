"""Models from `fold_in`, which share arrays with the original model."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from recommenders import N_ITEMS, quick

from dualgap import OrdinalRecommender
from dualgap.recommend import Interactions
from dualgap.recommend._fitted import Fitted
from dualgap.recommend._growing import Lists, append_rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def new_user(user: Any, n: int = 6) -> pd.DataFrame:
    items = np.random.default_rng(int(user)).choice(N_ITEMS, n, replace=False)
    return pd.DataFrame({"user": user, "item": items, "rating": 1.0 + np.arange(n) % 5})


def lists_of(model: OrdinalRecommender) -> list[pd.DataFrame]:
    return [model.recommend(n=5, rank_by=by) for by in ("rating", "like")]


def assert_same_lists(one: OrdinalRecommender, two: OrdinalRecommender) -> None:
    for first, second in zip(lists_of(one), lists_of(two), strict=True):
        pd.testing.assert_frame_equal(first, second)


def tables(model: OrdinalRecommender) -> list[Any]:
    ratings, clicks = model._fitted.rating_model, model._fitted.click_model
    assert ratings is not None
    assert clicks is not None
    found = [machine.users for machine in ratings.machines]
    columns = model._fitted.seen.columns
    return [*found, clicks.users, columns, clicks.history.columns, clicks.history.values]


def test_rows_are_appended_in_place_unless_the_space_is_taken() -> None:
    first = np.arange(6.0).reshape(3, 2)
    second = append_rows(first, np.ones((1, 2)))
    third, other = append_rows(second, np.zeros((2, 2))), append_rows(second, np.full((1, 2), 7.0))
    assert np.shares_memory(second, third)
    assert not np.shares_memory(second, other)
    np.testing.assert_array_equal(third, np.vstack([first, np.ones((1, 2)), np.zeros((2, 2))]))
    np.testing.assert_array_equal(other, np.vstack([first, np.ones((1, 2)), np.full((1, 2), 7.0)]))
    for number in range(50):
        second = append_rows(second, np.full((1, 2), float(number)))
    np.testing.assert_array_equal(second[4:, 0], np.arange(50))


@pytest.mark.parametrize("rows", [[3, 4], [1], [4, 0, 3], [2, 0]])
def test_sparse_lists_can_replace_select_and_resize_rows(rows: list[int]) -> None:
    rng = np.random.default_rng(0)
    old, new = (rng.random((n, 5)) * (rng.random((n, 5)) < 0.5) for n in (3, len(rows)))
    expected = np.zeros((max(3, max(rows) + 1), 5))
    expected[:3] = old
    expected[rows] = new
    known, other = (Lists.of(sp.csr_array(each)) for each in (old, new))
    found = known.with_rows(np.array(rows), other)
    np.testing.assert_array_equal(found.matrix.toarray(), expected)
    taken = found.take(np.array([2, 9, 0])).matrix.toarray()
    np.testing.assert_array_equal(taken, [expected[2], np.zeros(5), expected[0]])
    for n in (0, 2, len(expected) + 1):
        longer = np.vstack([expected, np.zeros((1, 5))])
        np.testing.assert_array_equal(found.first(n).matrix.toarray(), longer[:n])


def test_folding_in_a_user_does_not_copy_existing_users(ratings: pd.DataFrame) -> None:
    first = quick().fit(ratings).fold_in(new_user(1000))
    before = lists_of(first)
    second, other = first.fold_in(new_user(1001)), first.fold_in(new_user(1002))
    for one, two in zip(tables(first), tables(second), strict=True):
        assert np.shares_memory(one, two)
    for model in (second.fold_in(new_user(3)), other):
        assert not np.shares_memory(tables(first)[0], tables(model)[0])
    for found, expected in zip(lists_of(first), before, strict=True):
        pd.testing.assert_frame_equal(found, expected)
    for model, user in ((second, 1001), (other, 1002)):
        assert model.user_ids_.tolist() == [*first.user_ids_, user]
        alone = pickle.loads(pickle.dumps(first)).fold_in(new_user(user))
        assert_same_lists(model, alone)
        with pytest.raises(ValueError, match="was not in the ratings"):
            model.recommend(2003 - user)


@pytest.mark.parametrize("user", [3, 1000])
@pytest.mark.parametrize("by", ["rating", "like"])
def test_recommending_to_a_rated_user_copies_no_other_user(
    ratings: pd.DataFrame, user: int, by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = quick().fit(ratings)
    expected = model.fold_in(new_user(user)).recommend(user, rank_by=by)
    both = model.recommend([user, 4], ratings=new_user(user), rank_by=by)
    n_known = []
    monkeypatch.setattr(
        Fitted,
        "fold_in",
        lambda self, *given, fold_in=Fitted.fold_in: (
            n_known.append(len(self.catalogue.users)) or fold_in(self, *given)
        ),
    )
    found = model.recommend(ratings=new_user(user), rank_by=by)
    assert n_known == [0]
    for table in (found, both[both["user"] == user]):
        pd.testing.assert_frame_equal(table, expected)


def test_ratings_with_target_0_are_seen_but_are_no_clicks(ratings: pd.DataFrame) -> None:
    model = quick(interactions=Interactions(other_target=0.0, max_iter=2)).fit(ratings)
    new = new_user(1000)
    folded = model.fold_in(new)
    assert folded._fitted.click_model is not None
    one = np.array([len(model.user_ids_)])
    seen, clicks = folded._fitted.seen.take(one), folded._fitted.click_model.history.take(one)
    assert seen.columns.tolist() == sorted(new["item"])
    assert clicks.columns.tolist() == sorted(new.loc[new["rating"] >= 4.0, "item"])
    np.testing.assert_array_equal(clicks.values, np.ones(len(clicks.columns), np.float32))


def test_files_and_pickles_have_no_spare_rows(ratings: pd.DataFrame, tmp_path: Path) -> None:
    model = quick().fit(ratings)
    for user in range(1000, 1005):
        model = model.fold_in(new_user(user))
    text = pickle.dumps(model)
    again = pickle.loads(text)
    assert abs(len(pickle.dumps(again)) - len(text)) < 100
    model.save(tmp_path / "model")
    for each in (again, OrdinalRecommender.load(tmp_path / "model")):
        assert_same_lists(each, model)
        for one, two in zip(tables(each), tables(model), strict=True):
            np.testing.assert_array_equal(one, two)


def test_folded_in_users_may_have_ids_of_another_type(ratings: pd.DataFrame) -> None:
    model = quick().fit(ratings).fold_in(new_user(1000))
    named = model.fold_in(new_user(1001).assign(user="new")).fold_in(new_user(1002))
    assert named.user_ids_.tolist() == [*model.user_ids_, "new", 1002]
    assert len(named.recommend(["new", 1000, 1002, 3], 2)) == 8


def test_threads_can_fold_users_into_a_shared_model(ratings: pd.DataFrame) -> None:
    model = quick(n_jobs=1).fit(ratings)
    expected = [model.recommend(ratings=new_user(1000 + at), n=5) for at in range(40)]
    shared = model.fold_in(new_user(2000))
    before = lists_of(shared)

    def run(at: int) -> pd.DataFrame:
        grown = shared.fold_in(new_user(1000 + at))
        for found, wanted in zip(lists_of(shared), before, strict=True):
            pd.testing.assert_frame_equal(found, wanted)
        return grown.recommend(1000 + at, 5)

    with ThreadPoolExecutor(8) as pool:
        for found, wanted in zip(pool.map(run, range(40)), expected, strict=True):
            pd.testing.assert_frame_equal(found, wanted)
