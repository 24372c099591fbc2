"""Serving: new users, candidates, likes, warnings, forms of input."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from recommenders import N_ITEMS, N_USERS, UNKNOWN, all_pairs, assert_same, greedy, quick
from sklearn.model_selection import GridSearchCV

from dualgap import OrdinalRecommender
from dualgap.metrics import rmse
from dualgap.recommend import Interactions, Variational

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# --- Ids that are unknown or of the wrong type ---


def test_warnings_count_unknown_ids(model: OrdinalRecommender) -> None:
    with pytest.warns(UserWarning, match=r"^users: 2 of 3 ids were not in the ratings \(-1, for"):
        model.predict([0, -1, -2], 1)
    with pytest.warns(UserWarning, match=r"^items: 1 of 2 ids"):
        model.predict(0, [1, UNKNOWN])
    with pytest.raises(ValueError, match=r"^users: -1 was not in the ratings; .*ignore"):
        model.recommend(-1)
    with pytest.raises(ValueError, match=r"^items: none of the 2 ids was in the ratings \(-3, "):
        model.predict(0, [-3, -4])
    with pytest.raises(ValueError, match=r"^unknown: must be one of 'warn', 'ignore'"):
        model.predict(0, 1, unknown="reject")


def test_unknown_items_of_click_models_score_0() -> None:
    rng = np.random.default_rng(0)
    clicks = pd.DataFrame({"user": rng.integers(30, size=400), "item": rng.integers(40, size=400)})
    model = OrdinalRecommender(task="clicks", random_state=0).fit(clicks.drop_duplicates())
    with pytest.warns(UserWarning, match="^items: 1 of 2 ids .*it scores 0"):
        scores = model.predict([1, 2], [3, 777])
    assert scores[0] != 0.0
    assert scores[1] == 0.0


def test_ids_of_another_type_are_rejected(model: OrdinalRecommender, ratings: pd.DataFrame) -> None:
    with pytest.raises(TypeError, match=r"^users: the ids are strings, .* are numbers \(0, "):
        model.predict(["1", "2"], 1)
    with pytest.raises(TypeError, match="DataFrame; pass one column"):
        model.predict(ratings[["user"]], 1)
    named = quick().fit(ratings.assign(item="i" + ratings["item"].astype(str)))
    with pytest.raises(TypeError, match=r"^items: the ids are numbers, .* are strings"):
        named.predict(1, [1, 2])
    np.testing.assert_array_equal(model.predict(1.0, [2.0, 3.0]), model.predict(1, [2, 3]))


def test_predictions_of_items_without_ratings_beat_the_mean(
    ratings: pd.DataFrame,
) -> None:
    genres = pd.DataFrame({"a": np.arange(N_ITEMS) % 3 == 0, "b": np.arange(N_ITEMS) % 4 == 0})
    lift = genres["a"].to_numpy(dtype=float)[ratings["item"]]
    table = ratings.assign(rating=np.clip(ratings["rating"] + lift, 1.0, 5.0))
    cold = table["item"] % 5 == 1
    train, test = table[~cold], table[cold]
    mean = rmse(test["rating"], np.full(len(test), train["rating"].mean()))
    scores = []
    for features in (None, genres.astype(int)):
        fitted = quick().fit(train, item_features=features)
        predicted = fitted.predict(test["user"], test["item"], unknown="ignore")
        scores.append(rmse(test["rating"], predicted))
    assert scores[0] < mean
    assert scores[1] < 0.99 * scores[0], "the features say which items are better"


# --- Several ratings of a pair ---


def test_the_latest_rating_of_a_pair_counts(small: pd.DataFrame) -> None:
    old = small.iloc[:50].assign(rating=1.0, timestamp=0)
    new = small.assign(timestamp=1)
    both = pd.concat([new, old], ignore_index=True)
    with pytest.warns(
        UserWarning, match=r"^ratings: 50 of 850 ratings repeat a pair .* the latest rating"
    ):
        fitted = quick().fit(both)
    assert_same(fitted, quick().fit(small))
    with pytest.warns(UserWarning, match="the last rating of each pair"):
        fitted = quick().fit(both.drop(columns="timestamp").iloc[::-1])
    assert len(fitted._fitted.seen.values) == len(small)


def test_a_repeated_test_pair_counts_once(small: pd.DataFrame) -> None:
    model, test = quick().fit(small.iloc[:700]), small.iloc[700:]
    again = pd.concat([test, test.iloc[:40], test.iloc[:40]])
    with pytest.warns(UserWarning, match="^test: 80 of 180 ratings repeat a pair"):
        found = model.evaluate(again, catalogue=True, k=5, unknown="ignore")
    once = model.evaluate(test, catalogue=True, k=5, unknown="ignore")
    assert found == pytest.approx(once, rel=1e-12)


# --- New users and items ---


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("task", ["ordinal", "regression"])
def test_folded_in_users_are_predicted_nearly_as_well_as_after_a_refit(
    ratings: pd.DataFrame, history: bool, task: Any
) -> None:
    settings = {"history_features": history, "task": task, "max_iter": 20}
    is_new = ratings["user"] % 20 == 3
    held = is_new & (np.arange(len(ratings)) % 3 == 0)
    before, mine, test = ratings[~is_new], ratings[is_new & ~held], ratings[held]
    fitted = quick(**settings).fit(before)
    folded = fitted.fold_in(mine)
    refit = quick(**settings).fit(pd.concat([before, mine]))

    def error(model: OrdinalRecommender) -> float:
        return rmse(test["rating"], model.predict(test["user"], test["item"], unknown="ignore"))

    assert error(folded) < error(fitted) - 0.03
    assert error(folded) < error(refit) + 0.02
    assert len(fitted.user_ids_) + mine["user"].nunique() == len(folded.user_ids_)
    # The predictions for other users do not change, and lists exclude rated items.
    pairs = before["user"], before["item"]
    np.testing.assert_array_equal(fitted.predict(*pairs), folded.predict(*pairs))
    table = folded.recommend(mine["user"].unique(), N_ITEMS)
    assert not set(map(tuple, table[["user", "item"]].to_numpy())) & set(
        map(tuple, mine[["user", "item"]].to_numpy())
    )
    for rank_by in ("rating", "like"):
        direct = fitted.recommend(ratings=mine, rank_by=rank_by)
        again = folded.recommend(mine["user"].unique(), rank_by=rank_by)
        pd.testing.assert_frame_equal(direct, again)


def test_fold_in_learns_new_items_and_replaces_known_users(ratings: pd.DataFrame) -> None:
    is_new = ratings["item"] % 10 == 3
    fitted = quick().fit(ratings[~is_new])
    half = is_new & (np.arange(len(ratings)) % 2 == 0)
    test = ratings[is_new & ~half]
    folded = fitted.fold_in(ratings[half], side="items")
    errors = [
        rmse(test["rating"], each.predict(test["user"], test["item"], unknown="ignore"))
        for each in (folded, fitted)
    ]
    assert errors[0] < errors[1] - 0.03
    # For a known user, `fold_in` fits a new vector to the given ratings.
    user = ratings[(ratings["user"] == 5) & ~is_new]
    same = fitted.fold_in(user)
    np.testing.assert_array_equal(same.user_ids_, fitted.user_ids_)
    np.testing.assert_allclose(
        same.predict(5, user["item"]), fitted.predict(5, user["item"]), atol=0.15
    )
    flipped = fitted.fold_in(user.assign(rating=6.0 - user["rating"]))
    agreement = [
        np.corrcoef(each.predict(5, user["item"]), user["rating"])[0, 1] for each in (same, flipped)
    ]
    assert agreement[1] < agreement[0] - 0.3


def test_fold_in_rejects_unusable_ids(model: OrdinalRecommender, ratings: pd.DataFrame) -> None:
    strange = pd.DataFrame({"user": ["new"] * 2, "item": [3, UNKNOWN], "rating": [4.0, 1.0]})
    with pytest.warns(UserWarning, match=r"^ratings: 1 of 2 are of items that were not in the fit"):
        assert len(model.fold_in(strange).user_ids_) == N_USERS + 1
    with pytest.raises(ValueError, match="no item of these ratings was in the fit"):
        model.fold_in(strange.iloc[1:])
    with pytest.raises(ValueError, match=r"the rating 3\.5 is not one of the levels"):
        model.fold_in(strange.iloc[:1].assign(rating=3.5))
    with pytest.raises(ValueError, match='only method="variational"'):
        greedy().fit(ratings.iloc[:800]).fold_in(strange)


# --- Candidates ---


def test_lists_contain_only_candidates(model: OrdinalRecommender) -> None:
    every = model.recommend([1, 2], N_ITEMS)
    for rank_by in (None, "like"):
        with pytest.warns(UserWarning, match="items: 1 of 6 ids were not in the ratings"):
            table = model.recommend([1, 2], 5, items=[3, 4, 5, 6, 7, UNKNOWN], rank_by=rank_by)
        assert set(table["item"]) <= {3, 4, 5, 6, 7}
    rest = model.recommend([1, 2], N_ITEMS, exclude=[3, 4])
    wanted = every[~every["item"].isin([3, 4])]
    assert (
        rest[["user", "item"]].to_numpy().tolist() == wanted[["user", "item"]].to_numpy().tolist()
    )
    even = model.recommend([1, 2], N_ITEMS, mask=model.item_ids_ % 2 == 0)
    assert set(even["item"]) == {item for item in every["item"] if item % 2 == 0}
    with pytest.raises(ValueError, match=r"^mask: must have a bool for each of the 60 ids"):
        model.recommend(1, mask=[True])
    with pytest.raises(ValueError, match=r"^items: none of the candidates"):
        model.recommend(1, items=[UNKNOWN])


def test_threads_and_batches_give_the_same_ranking(
    ratings: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = []
    for n_jobs, batch in ((1, 1 << 14), (2, 7)):
        monkeypatch.setattr("dualgap.recommend._ranking._BATCH", batch)
        fitted = quick(n_jobs=n_jobs).fit(ratings)
        tables.append(
            [fitted.recommend(range(N_USERS), 9, rank_by=by) for by in ("like", "rating")]
        )
    for one, two in zip(*tables, strict=True):
        pd.testing.assert_frame_equal(one, two)


def test_batches_do_not_change_predictions(
    model: OrdinalRecommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = model.predict(*all_pairs()), model.predict_proba(*all_pairs())
    monkeypatch.setattr("dualgap.recommend._training._BATCH", 13)
    np.testing.assert_allclose(model.predict(*all_pairs()), whole[0], atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(*all_pairs()), whole[1], atol=1e-12)


# --- Likes ---


def split_likes() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and held-out likes: each user likes half of the items with the user's parity."""
    rng = np.random.default_rng(0)
    users, items = np.divmod(np.arange(100 * 60), 60)
    taken = ((users + items) % 2 == 0) & (rng.random(len(users)) < 0.5)
    table = pd.DataFrame({"user": users[taken], "item": items[taken], "rating": 1.0})
    held = rng.random(len(table)) < 0.2
    return table[~held], table[held]


def test_likes_without_ratings_are_ranked() -> None:
    train, test = split_likes()
    fitted = OrdinalRecommender(task="clicks", random_state=0, n_jobs=1).fit(train)
    found = fitted.evaluate(test)
    assert set(found) == {
        f"{name}@{k}"
        for name in (
            *("recall", "catalogue_ndcg", "map", "coverage"),
            *("precision", "hit_rate", "mrr"),
        )
        for k in (1, 5, 10)
    }
    # A random list of 10 unseen items would contain about a fifth of the held-out likes.
    assert found["recall@10"] > 0.3
    assert found["coverage@10"] > 0.8
    assert fitted.score(test) == found["recall@10"]
    table = fitted.recommend(train["user"].unique(), 5)
    assert ((table["user"] + table["item"]) % 2 == 0).all()
    assert fitted.predict(0, [2, 3])[0] > fitted.predict(0, [2, 3])[1] + 0.2
    similar = fitted.similar_items(range(60), 10)
    assert ((similar["item"] - similar["similar"]) % 2 == 0).all()
    new = pd.DataFrame({"user": "new", "item": [1, 5, 9, 13, 21], "rating": 1.0})
    ranked = fitted.recommend(ratings=new, n=5)
    assert (ranked["item"] % 2 == 1).all()
    with pytest.raises(ValueError, match=r"^rank_by: .*predicts no ratings"):
        fitted.recommend(0, rank_by="rating")
    with pytest.raises(AttributeError, match="gives no level probabilities"):
        fitted.predict_proba(0, 1)


def test_items_can_be_ranked_by_likes_or_by_ratings(ratings: pd.DataFrame) -> None:
    train, test = ratings.iloc[:2400], ratings.iloc[2400:]
    fitted = quick().fit(train)
    assert fitted.like_threshold_ == 4.0
    popular = train[train["rating"] >= 4.0]["item"].value_counts()
    liked = fitted.evaluate(test, k=(10,), catalogue=True, rank_by="like")
    rated = fitted.evaluate(test, k=(10,), catalogue=True)
    assert liked["rmse"] == rated["rmse"]
    # Ratings are random here, so a model can only find popular items.
    assert min(liked["recall@10"], rated["recall@10"]) > 0.3
    table = fitted.recommend(UNKNOWN, 10, rank_by="like", unknown="ignore")
    assert len(set(table["item"]) & set(popular.index[:20])) >= 5
    plain = quick(interactions=False).fit(train)
    assert_same(plain, fitted)
    with pytest.raises(ValueError, match=r'^rank_by: "like" needs interactions=True'):
        plain.recommend(1, rank_by="like")
    for bad in (
        Interactions(n_components=0),
        Interactions(ridge=-1.0),
        Interactions(like_threshold=np.nan),
        3,
    ):
        with pytest.raises(
            ValueError, match=r"^(n_components|ridge|like_threshold|interactions): "
        ):
            quick(interactions=bad).fit(train)
    other = quick(interactions=Interactions(like_threshold=5.0, n_components=3)).fit(train)
    assert other.like_threshold_ == 5.0
    assert other.get_params()["interactions__n_components"] == 3


# --- Scikit-learn, weights, forms of input ---


def test_a_grid_search_selects_the_better_parameter(ratings: pd.DataFrame) -> None:
    model = OrdinalRecommender(2, method=Variational(n_models=1, max_iter=5), interactions=False)
    search = GridSearchCV(
        model.set_params(random_state=0, n_jobs=1), {"method__tempering": [1e-3, 1.0]}, cv=2
    )
    for table in (ratings, ratings.to_numpy()):
        search.fit(table)
        assert search.best_params_ == {"method__tempering": 1.0}
        assert search.best_score_ == pytest.approx(-0.93, abs=0.08)


@pytest.mark.parametrize("make", [quick, greedy])
def test_sample_weights_change_the_fit(small: pd.DataFrame, make: Any) -> None:
    plain = make().fit(small)
    ones = make().fit(small, sample_weight=np.ones(len(small)))
    pairs = all_pairs()
    np.testing.assert_allclose(ones.predict(*pairs), plain.predict(*pairs), atol=1e-6)
    low = small["rating"] <= 2.0
    heavy = make().fit(small, sample_weight=np.where(low, 5.0, 1.0))
    assert heavy.predict(*pairs).mean() < plain.predict(*pairs).mean() - 0.1
    for bad in ([1.0], np.zeros(len(small)), ["x"] * len(small)):
        with pytest.raises(ValueError, match=r"^sample_weight: "):
            make().fit(small, sample_weight=bad)


def test_arrays_and_pyarrow_tables_give_the_model_of_pandas(small: pd.DataFrame) -> None:
    plain = quick().fit(small)
    assert_same(quick().fit(small.to_numpy()), plain)
    pyarrow = pytest.importorskip("pyarrow")
    assert_same(quick().fit(pyarrow.Table.from_pandas(small)), plain)


def test_polars_tables_give_the_model_of_pandas(small: pd.DataFrame) -> None:
    polars = pytest.importorskip("polars")
    assert_same(quick().fit(polars.DataFrame(small.to_dict("list"))), quick().fit(small))


def test_the_error_names_a_missing_feature(small: pd.DataFrame) -> None:
    features = pd.DataFrame({"age": np.arange(4.0), "job": ["a", "b", None, "c"]})
    with pytest.raises(ValueError, match=r"^user_features: column 'job' has no value .* for 2"):
        quick().fit(small, user_features=features)
    with pytest.raises(ValueError, match="infinity"):
        quick().fit(small, item_features=sp.csr_array([[np.inf]]))


@pytest.mark.parametrize("rank_by", ["rating", "like"])
def test_lists_for_given_ratings_equal_lists_after_fold_in(
    ratings: pd.DataFrame, rank_by: Any
) -> None:
    model = quick(history_features=True).fit(ratings)
    some = ratings[ratings["user"] < 3]
    new = some.assign(user=UNKNOWN + some["user"])
    for given in (new, pd.concat([new, some.iloc[::2]])):
        expected = model.fold_in(given).recommend(given["user"].unique(), 7, rank_by=rank_by)
        found = model.recommend(ratings=given, n=7, rank_by=rank_by)
        pd.testing.assert_frame_equal(found, expected)
    both = model.recommend([UNKNOWN, 50], 7, ratings=new, rank_by=rank_by)
    wanted = model.fold_in(new).recommend([UNKNOWN, 50], 7, rank_by=rank_by)
    pd.testing.assert_frame_equal(both, wanted)


def test_caches_are_not_pickled(ratings: pd.DataFrame) -> None:
    model = quick().fit(ratings)
    new = ratings[ratings["user"] == 1].assign(user=UNKNOWN)
    expected = model.recommend(ratings=new, rank_by="like")
    folded = model.fold_in(new)
    for each in (model, folded, pickle.loads(pickle.dumps(model)), copy.deepcopy(folded)):
        pd.testing.assert_frame_equal(each.recommend(ratings=new, rank_by="like"), expected)
    again = model.fold_in(ratings[ratings["item"] == 1].assign(item=UNKNOWN), side="items")
    assert len(again.recommend(ratings=new, rank_by="like", exclude_seen=False, n=100)) > N_ITEMS


@pytest.mark.parametrize("history", [True, "users"])
def test_users_are_folded_in_after_items_with_history_features(
    ratings: pd.DataFrame, history: Any
) -> None:
    fitted = quick(history_features=history).fit(ratings)
    new = ratings[ratings["user"] == 5].assign(user=UNKNOWN)
    item = ratings[ratings["item"] == 1].assign(item=UNKNOWN)
    both = fitted.fold_in(item, side="items").fold_in(new)
    # Only items of the fit have history weights.
    expected = fitted.fold_in(new).predict(UNKNOWN, range(N_ITEMS))
    np.testing.assert_allclose(both.predict(UNKNOWN, range(N_ITEMS)), expected, rtol=1e-12)
    other_way = fitted.fold_in(new).fold_in(item, side="items")
    assert np.isfinite(other_way.predict(range(N_USERS), UNKNOWN)).all()
