"""Clicks without values, counted clicks and repeated clicks, and the lists made from them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from dualgap import OrdinalRecommender
from dualgap.recommend import Interactions


@pytest.fixture(scope="module")
def pairs() -> np.ndarray:
    rng = np.random.default_rng(3)
    users, items = np.divmod(np.arange(60 * 40), 40)
    taken = ((users + items) % 2 == 0) & (rng.random(len(users)) < 0.4)
    return np.stack([users[taken], items[taken]], axis=1)


def fit(clicks: object, **settings: object) -> OrdinalRecommender:
    parameters = {"random_state": 0, "n_jobs": 1, "task": "clicks", **settings}
    return OrdinalRecommender(**parameters).fit(clicks)


def test_clicks_need_no_values(pairs: np.ndarray) -> None:
    users, items = pairs.T
    frame = pd.DataFrame({"user": users, "item": items})
    expected = fit(frame.assign(rating=1.0)).recommend(n=5)
    assert set(expected["user"]) == set(users)
    forms = (frame, (users, items), pairs, list(map(tuple, pairs.tolist())))
    for clicks in forms:
        pd.testing.assert_frame_equal(fit(clicks).recommend(n=5), expected)
    new = fit(frame).recommend(ratings=frame[frame["user"] < 3], n=2)
    assert set(new["user"]) == {0, 1, 2}
    with pytest.raises(ValueError, match=r"^ratings: no column 'rating'"):
        OrdinalRecommender().fit(frame)
    with pytest.raises(
        TypeError, match=r"an array of shape \(n, 3\) or a sparse matrix.*use task=\"clicks\""
    ):
        OrdinalRecommender().fit(pairs)


def test_empty_rows_and_columns_of_a_matrix_are_known_ids(pairs: np.ndarray) -> None:
    users, items = pairs.T
    matrix = sp.csr_array((np.ones(len(users)), (users, items)), shape=(70, 50))
    model = fit(matrix)
    assert (len(model.user_ids_), len(model.item_ids_)) == (70, 50)
    assert len(model.recommend(65, n=3)) == 3
    assert (model.recommend(5, n=20)["item"] < 40).all()


def test_repeated_clicks_add_up(pairs: np.ndarray) -> None:
    users, items = pairs.T
    times = 1 + (users * 7 + items) % 4
    counted = fit((users, items, times))
    events = fit((np.repeat(users, times), np.repeat(items, times)))
    pd.testing.assert_frame_equal(counted.recommend(n=5), events.recommend(n=5))
    others = np.column_stack([users, (items + 1) % 40])
    others = np.array(sorted(set(map(tuple, others)) - set(map(tuple, pairs))))
    found = counted.evaluate((*others.T, 1 + others[:, 0] % 3), k=5)
    assert found == counted.evaluate(others, k=5)
    assert counted.like_threshold_ == 0.0
    weighed = counted.predict(users, items)
    assert not np.allclose(weighed, fit(pairs).predict(users, items))
    levels = fit((users, items, times), interactions=Interactions(like_threshold=3.0))
    assert levels.like_threshold_ == 3.0


def test_zero_counts_warn_and_negative_counts_are_rejected(pairs: np.ndarray) -> None:
    users, items = pairs.T
    values = np.ones(len(users))
    values[4] = 0.0
    with pytest.warns(UserWarning, match=r"^ratings: 1 of \d+ values are 0; these pairs"):
        model = fit((users, items, values))
    assert (users[4], items[4]) not in set(zip(*model._fitted.seen.matrix.nonzero(), strict=True))
    values[4] = -1.0
    with pytest.raises(ValueError, match=r"values must not be negative, found -1 in row 4 "):
        fit((users, items, values))
    parts = pd.DataFrame({"user": users, "item": items, "rating": values})
    with pytest.raises(ValueError, match=r"^ratings: column 'rating' must not .* -1 in row 4 "):
        fit(part for part in (parts[:3], parts[3:]))
    with pytest.raises(ValueError, match=r"^ratings: all values are 0"):
        fit((users, items, np.zeros(len(users))))
    with pytest.raises(ValueError, match=r"^levels: with task=\"clicks\""):
        fit((users, items, np.ones(len(users))), levels=[1.0, 2.0])


def test_fractional_counts_warn_once(pairs: np.ndarray) -> None:
    users, items = pairs.T
    table = pd.DataFrame({"user": users, "item": items, "rating": 0.5 + users % 10 / 2})
    for clicks in (table, (part for part in (table[:50], table[50:]))):
        text = r"^ratings: \d+ of \d+ values .* \(0\.5, .*counts of clicks.*like_threshold"
        with pytest.warns(UserWarning, match=text) as found:
            model = fit(clicks)
        assert len(found) == 1
    fit(table, interactions=Interactions(like_threshold=4.0))
    small, ones = (table.assign(rating=value) for value in (0.5, 1.0))
    with pytest.warns(UserWarning, match="not whole numbers"):
        less = fit(small)
    pd.testing.assert_frame_equal(less.recommend(n=5), fit(ones).recommend(n=5))
    with pytest.warns(UserWarning, match="not whole numbers"):
        model.fold_in(([0], [1], [2.5]))


def test_metrics_of_users_have_intervals(pairs: np.ndarray) -> None:
    held = np.arange(len(pairs)) % 4 == 0
    model = fit(pairs[~held])
    found = model.evaluate(pairs[held], k=5, confidence=0.9)
    lists = model.recommend(np.unique(pairs[held][:, 0]), 5)
    wanted = set(map(tuple, pairs[held].tolist()))
    hit = np.array([pair in wanted for pair in zip(lists["user"], lists["item"], strict=True)])
    of_users = hit.reshape(-1, 5)
    assert found["precision@5"] == pytest.approx(of_users.mean())
    assert found["hit_rate@5"] == pytest.approx(of_users.any(axis=1).mean())
    ranks = np.where(of_users.any(axis=1), 1.0 / (1 + of_users.argmax(axis=1)), 0.0)
    assert found["mrr@5"] == pytest.approx(ranks.mean())
    for name in ("recall", "catalogue_ndcg", "map", "precision", "hit_rate", "mrr"):
        low, mean, high = (found[f"{name}@5{end}"] for end in ("_low", "", "_high"))
        assert low < mean < high
        assert (low + high) / 2 == pytest.approx(mean, rel=1e-12)
    wider = model.evaluate(pairs[held], k=5, confidence=0.99)
    assert wider["mrr@5_low"] < found["mrr@5_low"]
    for bad in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"^confidence: "):
            model.evaluate(pairs[held], confidence=bad)


def test_lists_have_the_column_names_of_the_ratings(pairs: np.ndarray) -> None:
    table = pd.DataFrame(pairs, columns=["userId", "movieId"])
    model = fit(table, user_column="userId", item_column="movieId")
    assert list(model.recommend(n=1).columns) == ["userId", "rank", "movieId", "score"]
    assert list(model.similar_items(1, 2).columns) == ["movieId", "rank", "similar", "score"]


def test_ratings_that_look_like_counts_warn(pairs: np.ndarray) -> None:
    users, items = pairs.T
    rng = np.random.default_rng(0)
    counts = np.minimum(rng.geometric(0.2, len(users)), 21)
    counts[0] = 11
    model = OrdinalRecommender(random_state=0, interactions=False)
    for ratings in (
        (users, items, counts),
        sp.csr_array((counts.astype(float), (users, items))),
    ):
        with pytest.warns(UserWarning, match=r"look like counts .* from 1 to \d+, most often 1"):
            model.fit(ratings)
    # Scales of up to ten levels, scales without the level 1, and levels given by the user cause no
    # warning.
    model.fit((users, items, np.minimum(counts, 10)))
    model.fit((users, items, counts + 1))
    model.set_params(levels=np.unique(counts).tolist()).fit((users, items, counts))
