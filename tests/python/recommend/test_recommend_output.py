"""Output of a recommender: predictions, recommendations, scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from recommenders import (
    N_ITEMS,
    N_USERS,
    UNKNOWN,
    all_pairs,
    greedy,
    quick,
)
from scipy.special import logit

from dualgap import OrdinalRecommender
from dualgap.metrics import ndcg_at_k, rmse
from dualgap.recommend._ratings import expected_level, level_probabilities
from dualgap.recommend.comparison import _biases, split_ratings

# --- Predictions ---

# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_expected_level_of_given_probabilities() -> None:
    # Levels 1 to 5; the probabilities in the second row are not increasing.
    below = np.array([[0.1, 0.3, 0.6, 0.8], [0.05, 0.2, 0.15, 0.9]])
    levels = np.arange(1.0, 6.0)
    np.testing.assert_allclose(expected_level(logit(below), levels), [3.2, 3.7], rtol=1e-12)
    chances = level_probabilities(logit(below), levels)
    np.testing.assert_allclose(chances[0], [0.1, 0.2, 0.3, 0.2, 0.2], rtol=1e-12)
    np.testing.assert_allclose(chances[1], [0.05, 0.125, 0.0, 0.725, 0.1], atol=1e-12)


def test_level_probabilities_have_the_given_expectation_for_any_levels() -> None:
    rng = np.random.default_rng(0)
    levels = np.array([-1.0, 0.5, 1.0, 4.0, 4.25, 9.0])
    outputs = rng.normal(size=(500, 5))
    chances = level_probabilities(outputs, levels)
    assert chances.min() >= -1e-15
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(chances @ levels, expected_level(outputs, levels), atol=1e-12)


@pytest.mark.parametrize("make", [quick, greedy])
def test_probabilities_agree_with_predictions(small: pd.DataFrame, make: Any) -> None:
    fitted = make().fit(small)
    users, items = all_pairs()
    users, items = np.append(users, UNKNOWN), np.append(items, UNKNOWN)
    chances = fitted.predict_proba(users, items, unknown="ignore")
    predicted = fitted.predict(users, items, unknown="ignore")
    assert chances.shape == (len(users), 5)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    assert np.diff(np.cumsum(chances, axis=1), axis=1).min() >= -1e-12
    np.testing.assert_allclose(chances @ fitted.levels_, predicted, atol=1e-12)
    assert 1.0 <= predicted.min() < predicted.max() <= 5.0


def test_regression_has_no_level_probabilities(small: pd.DataFrame) -> None:
    fitted = quick(task="regression").fit(small)
    with pytest.raises(AttributeError, match='use "ordinal"'):
        fitted.predict_proba(1, 1)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_iter": 15},
        {"max_iter": 15, "history_features": True},
        {"max_iter": 15, "task": "regression"},
        {"reoptimize": "full", "n_components": 4},
    ],
    ids=["ordinal", "history", "regression", "conditional-gradient"],
)
def test_planted_factors_are_learned(ratings: pd.DataFrame, parameters: dict[str, Any]) -> None:
    train, validation, test = split_ratings(ratings, 0, (0.7, 0.1))
    truth = test["rating"].to_numpy()
    greedily = "reoptimize" in parameters
    fitted = (greedy if greedily else quick)(**parameters)
    fitted.fit(train, validation=validation if greedily else None)
    predicted = fitted.predict(test["user"], test["item"])
    assert predicted.min() >= 1.0
    assert predicted.max() <= 5.0
    mean = rmse(truth, np.full(len(truth), train["rating"].mean()))
    assert rmse(truth, predicted) < rmse(truth, _biases(train, test)) < mean


def test_a_single_id_is_repeated_and_lists_must_have_equal_lengths(
    model: OrdinalRecommender,
) -> None:
    items = [3, 1, 7]
    np.testing.assert_array_equal(model.predict(5, items), model.predict([5, 5, 5], items))
    np.testing.assert_array_equal(model.predict(items, 5), model.predict(iter(items), [5] * 3))
    assert model.predict([], []).shape == (0,)
    with pytest.raises(ValueError, match=r"users, items: .*got 2 and 3"):
        model.predict([1, 2], items)
    with pytest.raises(ValueError, match="items: an id is missing"):
        model.predict(1, [1, None])


# --- Fallbacks ---


@pytest.mark.parametrize("make", [quick, greedy])
def test_predictions_for_unknown_ids_depend_on_the_known_side(
    ratings: pd.DataFrame, make: Any
) -> None:
    fitted = make().fit(ratings)
    items, users = np.arange(N_ITEMS), np.arange(N_USERS)
    by_item = fitted.predict(UNKNOWN, items, unknown="ignore")
    by_user = fitted.predict(users, "nobody's", unknown="ignore")
    neither = fitted.predict("nobody", (UNKNOWN, "x"), unknown="ignore")
    for values in (by_item, by_user, neither):
        assert np.isfinite(values).all()
        assert values.min() >= 1.0
        assert values.max() <= 5.0
    for side, values in (("item", by_item), ("user", by_user)):
        table = ratings.groupby(side)["rating"].agg(["mean", "count"])
        often = table.index[table["count"] >= 20]
        assert np.corrcoef(values[often], table["mean"][often])[0, 1] > 0.8
    # All unknown ids get the same predictions.
    np.testing.assert_array_equal(by_item, fitted.predict(-1.5, items, unknown="ignore"))


@pytest.mark.parametrize("make", [quick, greedy])
@pytest.mark.parametrize("side", ["user", "item"])
def test_unknown_ids_are_predicted_better_than_by_the_mean(
    ratings: pd.DataFrame, make: Any, side: str
) -> None:
    new = ratings[side] % 5 == 0
    train, test = ratings[~new], ratings[new]
    predicted = make().fit(train).predict(test["user"], test["item"], unknown="ignore")
    mean = np.full(len(test), train["rating"].mean())
    assert rmse(test["rating"], predicted) < 0.98 * rmse(test["rating"], mean)


def test_users_without_ratings_are_predicted_from_features(
    ratings: pd.DataFrame, user_table: pd.DataFrame, item_table: sp.csr_array
) -> None:
    # The effect of the feature in the data: users with job "a" rate one star lower.
    job = user_table["job"].to_numpy()
    lower = np.where(job[ratings["user"]] == "a", 1.0, 0.0)
    planted = ratings.assign(rating=np.clip(ratings["rating"] - lower, 1.0, 5.0))
    planted = planted[planted["user"] != 0]
    for make in (quick, greedy):
        fitted = make().fit(planted, user_features=user_table, item_features=item_table)
        assert len(fitted.user_ids_) == len(user_table)
        assert len(fitted.item_ids_) == N_ITEMS + 5
        assert np.isfinite(fitted.predict(*all_pairs())).all()
        new = np.arange(N_USERS, len(user_table))
        predicted = np.array([fitted.predict(user, np.arange(N_ITEMS)).mean() for user in new])
        is_a = job[new] == "a"
        assert 0 < is_a.sum() < len(new)
        assert predicted[is_a].max() < predicted[~is_a].min()
        assert len(fitted.recommend(0, 100)) == N_ITEMS + 5


def test_users_with_an_empty_matrix_row_are_unknown(ratings: pd.DataFrame) -> None:
    rest = ratings[ratings["user"] != 4]
    shape = (N_USERS, N_ITEMS)
    fitted = quick().fit(sp.coo_array((rest["rating"], (rest["user"], rest["item"])), shape))
    assert 4 not in fitted.user_ids_
    found = (fitted.predict(user, [1, 2], unknown="ignore") for user in (4, UNKNOWN))
    np.testing.assert_array_equal(*found)


# --- Recommendations ---


def test_recommendations_are_sorted_predictions(model: OrdinalRecommender) -> None:
    table = model.recommend(7, N_ITEMS, exclude_seen=False)
    scores = model.predict(7, model.item_ids_)
    order = np.argsort(-scores, kind="stable")
    assert table["item"].tolist() == model.item_ids_[order].tolist()
    # Rankings are computed in single precision.
    np.testing.assert_allclose(table["score"], scores[order], atol=1e-5)
    assert table["rank"].tolist() == list(range(1, len(order) + 1))
    assert list(table.columns) == ["user", "rank", "item", "score"]


@pytest.mark.parametrize("make", [quick, greedy])
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_batches_of_users_get_the_lists_of_single_users(
    ratings: pd.DataFrame, make: Any, exclude_seen: bool
) -> None:
    fitted = make().fit(ratings)
    users = [3, UNKNOWN, 0, 3, 99]
    settings: dict[str, Any] = {"exclude_seen": exclude_seen, "unknown": "ignore"}
    batch = fitted.recommend(users, 6, **settings)
    single = pd.concat([fitted.recommend(user, 6, **settings) for user in users], ignore_index=True)
    pd.testing.assert_frame_equal(batch, single, rtol=0.0, atol=1e-12)
    assert batch["user"].tolist() == np.repeat(users, 6).tolist()
    assert (batch.groupby(np.repeat(range(5), 6))["score"].diff().dropna() <= 0.0).all()


def test_seen_items_are_left_out(ratings: pd.DataFrame, model: OrdinalRecommender) -> None:
    users = ratings["user"].unique()
    table = model.recommend(users, 1000)
    seen = ratings.groupby("user")["item"].agg(set)
    found = table.groupby("user")["item"].agg(set)
    everything = set(model.item_ids_)
    assert all(found[user] == everything - seen[user] for user in users)
    assert len(model.recommend(UNKNOWN, 1000, unknown="ignore")) == len(everything)
    assert len(model.recommend(users[:2], 1000, exclude_seen=False)) == 2 * len(everything)


def test_users_who_have_seen_every_item_get_no_recommendations() -> None:
    users, items = [0, 0, 0, 1, 2], [0, 1, 2, 0, 1]
    fitted = quick().fit((users, items, [1.0, 2.0, 3.0, 2.0, 3.0]))
    table = fitted.recommend([0, 1], 5)
    assert set(table["user"]) == {1}
    assert set(table["item"]) == {1, 2}
    assert fitted.recommend([]).empty
    assert list(fitted.recommend([]).columns) == ["user", "rank", "item", "score"]


def test_ties_keep_the_order_of_the_items() -> None:
    # All items except three have the same score, because nobody rated them.
    n = 40
    alike = sp.csr_array(np.ones((n, 1)))
    ratings = ([0, 0, 1, 1, 2], [5, 9, 5, 20, 9], [1.0, 5.0, 2.0, 3.0, 4.0])
    fitted = quick().fit(ratings, item_features=alike)
    for depth in (3, 20, n):
        table = fitted.recommend([0, 1, UNKNOWN], depth, exclude_seen=False, unknown="ignore")
        for _, rows in table.groupby("user"):
            tied = rows[~rows["item"].isin([5, 9, 20])]
            assert tied["score"].nunique() == 1
            expected = [item for item in range(n) if item not in (5, 9, 20)][: len(tied)]
            assert tied["item"].tolist() == expected


@pytest.mark.parametrize("n", [0, -1, 2.5, "all"])
def test_the_number_of_recommendations_must_be_a_positive_integer(
    model: OrdinalRecommender, n: Any
) -> None:
    with pytest.raises(ValueError, match=r"^n: must be a positive finite integer"):
        model.recommend(1, n)
    with pytest.raises(ValueError, match=r"^n: must be a positive finite integer"):
        model.similar_items(1, n)


@pytest.mark.parametrize("make", [quick, greedy])
def test_similarities_are_symmetric_and_sorted(ratings: pd.DataFrame, make: Any) -> None:
    fitted = make().fit(ratings)
    n = len(fitted.item_ids_)
    table = fitted.similar_items(fitted.item_ids_, 1000)
    assert len(table) == n * (n - 1)
    assert (table["item"] != table["similar"]).all()
    square = table.pivot(index="item", columns="similar", values="score").to_numpy()
    off = ~np.eye(n, dtype=bool)
    np.testing.assert_allclose(square[off], square.T[off], atol=1e-12)
    assert np.nanmax(np.abs(square)) <= 1.0 + 1e-12
    assert np.nanstd(square) > 0.05
    assert (table.groupby("item")["score"].diff().dropna() <= 0.0).all()
    three = fitted.similar_items([5, 2], 3)
    assert three["item"].tolist() == [5, 5, 5, 2, 2, 2]
    assert three["rank"].tolist() == [1, 2, 3, 1, 2, 3]
    with pytest.raises(KeyError, match=f"items: {UNKNOWN} "):
        fitted.similar_items([5, UNKNOWN])


def test_similar_items_are_liked_by_the_same_users() -> None:
    # Items of equal parity are liked by the same half of the users.
    users, items = np.divmod(np.arange(40 * 20), 20)
    values = np.where((users + items) % 2 == 0, 5.0, 1.0)
    fitted = quick().fit((users, items, values))
    table = fitted.similar_items(range(20), 9)
    assert (table["item"] % 2 == table["similar"] % 2).all()


# --- Evaluation ---


def test_evaluate_equals_metrics_computed_by_hand(ratings: pd.DataFrame) -> None:
    train, _, test = split_ratings(ratings, 1)
    test = pd.concat(
        [test, pd.DataFrame({"user": [UNKNOWN, UNKNOWN], "item": [1, 2], "rating": [1.0, 5.0]})]
    )
    fitted = quick().fit(train)
    predicted = fitted.predict(test["user"], test["item"], unknown="ignore")
    with pytest.warns(UserWarning, match=r"^users: 2 of 752 ids were not in the ratings"):
        result = fitted.evaluate(test, k=(1, 4))
    assert set(result) == {"rmse", "ndcg@1", "ndcg@4"}
    errors = predicted - test["rating"].to_numpy()
    assert result["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-12)
    for k in (1, 4):
        by_user = []
        for _, rows in test.assign(score=predicted).groupby("user"):
            gains = 2.0 ** rows["rating"].to_numpy() - 1.0
            discount = np.where(
                np.arange(len(gains)) < k, 1.0 / np.log2(np.arange(len(gains)) + 2), 0
            )
            order = np.argsort(-rows["score"].to_numpy(), kind="stable")
            by_user.append((gains[order] @ discount) / (np.sort(gains)[::-1] @ discount))
        assert result[f"ndcg@{k}"] == pytest.approx(np.mean(by_user), rel=1e-12)
    with pytest.raises(ValueError, match=r"^test: no column"):
        fitted.evaluate(test.drop(columns="rating"))


@pytest.mark.parametrize("levels", [(-1.0, 1.0), (0.0, 5000.0)])
def test_ratings_of_any_size_can_be_evaluated(levels: tuple[float, float]) -> None:
    users, items = all_pairs()
    values = np.array(levels)[(users + items) % 2]
    held = np.random.default_rng(0).random(len(users)) < 0.3
    model = quick(task="regression").fit((users[~held], items[~held], values[~held]))
    test = users[held], items[held], values[held]
    found = model.evaluate(test, k=3)
    assert model.score(test) == -found["rmse"]
    # The gain has two values, so shifts and scales of the ratings do not change nDCG.
    plain = (test[2] > 0.0).astype(float)
    predicted = model.predict(*test[:2])
    assert found["ndcg@3"] == pytest.approx(ndcg_at_k(plain, predicted, 3, groups=test[0]))
