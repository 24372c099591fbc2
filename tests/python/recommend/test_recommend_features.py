"""Features of users and items in models of clicks: ids without clicks, and new ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from dualgap import OrdinalRecommender
from dualgap.recommend import Interactions

N_USERS, N_ITEMS, N_KINDS = 240, 90, 6
COLD = np.arange(0, N_ITEMS, 5)
KINDS = pd.DataFrame({"kind": [f"kind {item % N_KINDS}" for item in range(N_ITEMS)]})


@pytest.fixture(scope="module")
def clicks() -> pd.DataFrame:
    """Generate clicks: each user clicks many items of one kind, and few other items."""
    rng = np.random.default_rng(0)
    own = np.arange(N_USERS)[:, None] % N_KINDS == np.arange(N_ITEMS) % N_KINDS
    users, items = np.nonzero(rng.random(own.shape) < np.where(own, 0.7, 0.03))
    return pd.DataFrame({"user": users, "item": items})


@pytest.fixture(scope="module")
def warm(clicks: pd.DataFrame) -> pd.DataFrame:
    return clicks[~clicks["item"].isin(COLD)]


def fit(table: pd.DataFrame, **features: object) -> OrdinalRecommender:
    model = OrdinalRecommender(task="clicks", random_state=0, n_jobs=1)
    return model.fit(table, **features)


@pytest.fixture(scope="module")
def model(warm: pd.DataFrame) -> OrdinalRecommender:
    return fit(warm, item_features=KINDS)


def share_of_own_kind(found: pd.DataFrame) -> float:
    return float((found["user"] % N_KINDS == found["item"] % N_KINDS).mean())


def test_items_without_clicks_are_ranked_by_their_features(
    model: OrdinalRecommender, warm: pd.DataFrame
) -> None:
    found = model.recommend(range(N_USERS), 2, items=COLD)
    assert share_of_own_kind(found) > 0.95
    assert set(found["item"]) <= set(COLD)
    assert np.all(np.diff(model.history_["objective"]) <= 0.0)
    near = model.similar_items(COLD[:6], 3)
    assert ((near["item"] - near["similar"]) % N_KINDS == 0).mean() > 0.9
    cut = warm.sample(frac=0.3, random_state=0)
    rest = warm.drop(cut.index)
    plain, described = fit(rest), fit(rest, item_features=KINDS)
    assert described.score(cut) > 0.98 * plain.score(cut)


def test_fits_with_many_feature_columns_converge(warm: pd.DataFrame) -> None:
    rng = np.random.default_rng(1)
    table = sp.csr_array(
        np.hstack([pd.get_dummies(KINDS["kind"]).to_numpy(float), rng.random((N_ITEMS, 40)) < 0.05])
    )
    found = fit(warm, item_features=table).recommend(range(N_USERS), 2, items=COLD)
    assert share_of_own_kind(found) > 0.8


def test_items_without_clicks_and_features_are_never_recommended(warm: pd.DataFrame) -> None:
    known = KINDS.drop(index=[5, 10])
    matrix = sp.csr_array((np.ones(len(warm)), (warm["user"], warm["item"])), (N_USERS, N_ITEMS))
    model = OrdinalRecommender(task="clicks", random_state=0).fit(matrix, item_features=known)
    found = model.recommend(range(N_USERS), N_ITEMS, exclude_seen=False)
    assert set(range(N_ITEMS)) - set(found["item"]) == {5, 10}
    assert model.recommend(0, 3, items=[5, 10]).empty
    assert model.similar_items(5).empty
    assert 5 not in set(model.similar_items(0, N_ITEMS)["similar"])


def test_users_without_clicks_get_lists_from_their_features(clicks: pd.DataFrame) -> None:
    kinds = pd.DataFrame({"kind": [f"kind {user % N_KINDS}" for user in range(N_USERS + 12)]})
    held = clicks["user"] % 7 == 0
    model = fit(clicks[~held], user_features=kinds.iloc[:N_USERS])
    found = model.recommend(range(0, N_USERS, 7), 5)
    assert share_of_own_kind(found) > 0.9
    new = model.fold_in(features=kinds.iloc[N_USERS:])
    assert share_of_own_kind(new.recommend(range(N_USERS, N_USERS + 12), 5)) > 0.9
    # A user with neither clicks nor features gets the list of an unknown user: popular items.
    matrix = sp.csr_array((np.ones(len(clicks)), (clicks["user"], clicks["item"])), (300, N_ITEMS))
    empty = OrdinalRecommender(task="clicks", random_state=0).fit(matrix)
    known, unknown = empty.recommend(299, 5), empty.recommend(-1, 5, unknown="ignore")
    assert known["item"].tolist() == unknown["item"].tolist()
    assert clicks["item"].isin(known["item"]).mean() > 5 / N_ITEMS


def test_new_ids_are_folded_in_with_features(
    model: OrdinalRecommender, warm: pd.DataFrame, tmp_path: Path
) -> None:
    new = KINDS.iloc[:12].set_axis(range(N_ITEMS, N_ITEMS + 12))
    folded = model.fold_in(side="items", features=new)
    found = folded.recommend(range(N_USERS), 1, items=new.index)
    assert share_of_own_kind(found) > 0.95
    # A new item with features gets the vector that the fit gives to an item without clicks.
    vectors = pd.DataFrame(folded.item_vectors_, index=folded.item_ids_)
    np.testing.assert_allclose(vectors.loc[N_ITEMS], vectors.loc[0], atol=1e-12)
    one = pd.DataFrame({"user": [0], "item": [N_ITEMS + 1]})
    with_click = model.fold_in(one, side="items", features=new)
    moved = pd.DataFrame(with_click.item_vectors_, index=with_click.item_ids_)
    assert not np.allclose(moved.loc[N_ITEMS + 1], vectors.loc[N_ITEMS + 1])
    np.testing.assert_allclose(moved.loc[N_ITEMS], vectors.loc[N_ITEMS], atol=1e-12)
    model.save(tmp_path / "model.npz")
    loaded = OrdinalRecommender.load(tmp_path / "model.npz").fold_in(side="items", features=new)
    pd.testing.assert_frame_equal(loaded.recommend(range(9), 5), folded.recommend(range(9), 5))


def test_ratings_of_unrated_items_are_ranked_by_like(warm: pd.DataFrame) -> None:
    rng = np.random.default_rng(2)
    ratings = warm.assign(rating=rng.integers(3, 6, len(warm)).astype(float))
    model = OrdinalRecommender(2, random_state=0, n_jobs=1).fit(ratings, item_features=KINDS)
    found = model.recommend(range(N_USERS), 2, items=COLD)
    pd.testing.assert_frame_equal(
        found, model.recommend(range(N_USERS), 2, items=COLD, rank_by="like")
    )
    assert share_of_own_kind(found) > 0.8
    assert (model.recommend(0, 2)["score"] > 3.0).all()
    folded = model.fold_in(side="items", features=KINDS.iloc[:1].set_axis([N_ITEMS]))
    assert folded.predict(0, N_ITEMS) == pytest.approx(model.predict(0, 0), abs=0.3)


def test_fold_in_rejects_unusable_features(model: OrdinalRecommender, warm: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="features: the fit had no features for users"):
        model.fold_in(features=KINDS)
    with pytest.raises(ValueError, match="features: no ratings or features are given for users"):
        model.fold_in()
    with pytest.raises(ValueError, match="features: all ids are known"):
        model.fold_in(side="items", features=KINDS)
    with pytest.raises(
        TypeError, match="features: the ids are strings, but the ids of the ratings"
    ):
        model.fold_in(side="items", features=KINDS.set_axis([f"i{i}" for i in range(N_ITEMS)]))
    with pytest.raises(ValueError, match="had a DataFrame of 6 features, got 2 columns"):
        model.fold_in(side="items", features=sp.csr_array(np.ones((N_ITEMS + 1, 2))))
    numbers = KINDS.assign(size=1.0 * np.arange(N_ITEMS))
    sized = OrdinalRecommender(
        task="clicks", interactions=Interactions(blend=False), random_state=0
    ).fit(warm, item_features=numbers)
    with pytest.raises(ValueError, match="features: no numeric column 'size'"):
        sized.fold_in(side="items", features=KINDS.set_axis(range(N_ITEMS, 2 * N_ITEMS)))


def test_columns_of_the_fit_must_be_given_for_new_ids(model: OrdinalRecommender) -> None:
    misspelt = pd.DataFrame({"Kind": ["kind 1"]}, index=[N_ITEMS])
    numeric = pd.DataFrame({"kind": [1]}, index=[N_ITEMS])
    for table in (misspelt, numeric, misspelt[[]]):
        with pytest.raises(ValueError, match=r"^features: no non-numeric column 'kind'"):
            model.fold_in(side="items", features=table)


def test_columns_and_values_with_ambiguous_names_stay_distinct(
    warm: pd.DataFrame, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.choice(["b_c", "d"], N_ITEMS)})
    table["a_b"] = rng.choice(["c", "d"], N_ITEMS)
    model = fit(warm, item_features=table)
    encoder = model._fitted.encoders[1]
    assert encoder is not None
    assert encoder.width == 4
    new = pd.DataFrame({"a": ["b_c"], "a_b": ["d"]}, index=[N_ITEMS])
    row = encoder.encode(new, "features").toarray()[0].tolist()
    assert row == [pair in {("a", "b_c"), ("a_b", "d")} for pair in encoder.indicators]
    model.save(tmp_path / "model.npz")
    loaded = OrdinalRecommender.load(tmp_path / "model.npz")
    for each in (model, loaded):
        assert N_ITEMS in each.fold_in(side="items", features=new).item_ids_
    for same in (pd.DataFrame({1: [1.0] * N_ITEMS, "1": 2.0}), pd.concat([table, table], axis=1)):
        with pytest.raises(ValueError, match=r"^item_features: the columns .* same name; rename"):
            fit(warm, item_features=same)


def test_categories_may_be_integers_in_the_fit_and_floats_later(warm: pd.DataFrame) -> None:
    codes = pd.DataFrame({"kind": pd.Categorical(np.arange(N_ITEMS) % N_KINDS)})
    encoder = fit(warm, item_features=codes)._fitted.encoders[1]
    assert encoder is not None
    later = pd.DataFrame({"kind": pd.Categorical([1.0, 3.0, 99.0])})
    rows = encoder.encode(later, "features").toarray()
    np.testing.assert_array_equal(rows, [np.eye(N_KINDS)[1], np.eye(N_KINDS)[3], np.zeros(N_KINDS)])


@pytest.mark.parametrize("task", ["clicks", "ordinal"])
@pytest.mark.parametrize("side", ["user", "item"])
def test_features_of_other_ids_are_refused(task: str, side: str, clicks: pd.DataFrame) -> None:
    model = OrdinalRecommender(task=task)
    numbers = clicks.assign(rating=1.0 + clicks["item"] % 3)
    for table, kinds, examples in (
        (numbers, KINDS.set_index(KINDS.index + 1000), (r"1000", r"0")),
        (
            numbers.astype({side: str}),
            KINDS.set_index("x" + KINDS.index.astype(str)),
            ("'x0'", "'0'"),
        ),
    ):
        message = rf"^{side}_features: none of the 90 ids \({examples[0]}, .*\({examples[1]}, "
        with pytest.raises(ValueError, match=message):
            model.fit(table, **{f"{side}_features": kinds})
