"""Models of clicks: the blend of factors and item-item models, and settings chosen from data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

from dualgap import OrdinalRecommender, _core
from dualgap.recommend import Interactions

N_USERS, N_ITEMS = 300, 120


@pytest.fixture(scope="module")
def clicks() -> pd.DataFrame:
    """Generate clicks: users and items are on a circle, and users click items near them."""
    rng = np.random.default_rng(0)
    place = rng.random(N_USERS)
    where = np.arange(N_ITEMS) / N_ITEMS
    far = np.abs(place[:, None] - where)
    users, items = np.nonzero(rng.random(far.shape) < 0.6 * np.exp(-40 * np.minimum(far, 1 - far)))
    return pd.DataFrame({"user": users, "item": items, "rating": 1.0})


@pytest.fixture(scope="module")
def split(clicks: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    held = np.random.default_rng(1).random(len(clicks)) < 0.25
    return clicks[~held], clicks[held]


def fit(table: pd.DataFrame, **settings: object) -> OrdinalRecommender:
    parameters = {"random_state": 0, "n_jobs": 1, "task": "clicks", **settings}
    return OrdinalRecommender(**parameters).fit(table)


def test_the_blend_ranks_as_well_as_its_best_part(
    split: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    train, test = split
    model = fit(train)
    clicks = model._fitted.click_model
    assert clicks is not None
    assert sum(clicks.weights) == pytest.approx(1.0)
    blended = model.score(test)
    alone = fit(train, interactions=Interactions(blend=False))
    assert alone._fitted.click_model is not None
    assert alone._fitted.click_model.models == ()
    assert blended > 0.95 * alone.score(test)
    assert blended > 2 * 10 / N_ITEMS


def test_the_share_of_clicks_sets_the_weight_of_other_pairs(clicks: pd.DataFrame) -> None:
    few = clicks[clicks["user"] % 2 == 0]
    for table in (clicks, few):
        found = fit(table)._fitted.click_model
        density = len(table) / (table["user"].nunique() * table["item"].nunique())
        assert found is not None
        assert found.unobserved == pytest.approx(min(3 * density, 0.5))
        assert found.ridge in (0.1, 0.3)
    given = fit(clicks, interactions=Interactions(unobserved_weight=0.2, ridge=0.7, n_components=5))
    assert given._fitted.click_model is not None
    assert (given._fitted.click_model.unobserved, given._fitted.click_model.ridge) == (0.2, 0.7)
    assert given._fitted.click_model.users.shape[1] == 5


@pytest.mark.parametrize("exponents", [(0.5, 0.2), (0.7, 0.65)])
def test_the_graph_divides_by_powers_of_the_numbers_of_clicks(
    clicks: pd.DataFrame, exponents: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dualgap.recommend._click_training._EXPONENTS", (exponents,))
    found = fit(clicks)._fitted.click_model
    assert found is not None
    matrix = found.history.matrix.toarray().astype(np.float64)
    of_users, of_items = np.maximum(matrix.sum(axis=1), 1), np.maximum(matrix.sum(axis=0), 1)
    own, scored = exponents
    graph = matrix.T @ (matrix / of_users[:, None]) * of_items[:, None] ** -own * of_items**-scored
    np.testing.assert_allclose(found.models[0].matrix.toarray(), graph, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("good", [30.0, 300.0])
def test_held_out_clicks_choose_the_ridge_of_the_regression(
    clicks: pd.DataFrame, good: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    item_regression = _core.item_regression
    tried: list[tuple[float, int]] = []

    def regress_with_signs(record: Any, head: Any, ridge: float, dropout: float) -> Any:
        offsets, items, values = item_regression(record, head, ridge, dropout)
        tried.append((ridge, len(record["users"])))
        # Negative weights rank the worst items first, so the ridge `good` must win.
        return offsets, items, values if ridge == good else -values

    monkeypatch.setattr(_core, "item_regression", regress_with_signs)
    # The only blend to compare gives all weight to the regression.
    monkeypatch.setattr("dualgap.recommend._click_training._simplex", lambda n: [(0.0, 0.0, 1.0)])
    fit(clicks)
    assert [ridge for ridge, _ in tried] == [30.0, 300.0, good]
    assert tried[0][1] == tried[1][1] < tried[2][1] == len(clicks)


def test_long_fits_without_a_terminal_print_their_stage(
    clicks: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dualgap._estimator.display._BAR_DELAY", 1e6)
    fit(clicks, verbose=1)
    assert capsys.readouterr().err.startswith("epoch     1 ")
    monkeypatch.setattr("dualgap._estimator.display._BAR_DELAY", 0.0)
    monkeypatch.setattr("dualgap._estimator.display._LINE_INTERVAL", -1.0)
    seen: list[int] = []

    def record_epoch(epoch: int, *_: float) -> None:
        seen.append(epoch)

    fit(clicks, verbose=1, callback=record_epoch)
    lines = capsys.readouterr().err.splitlines()
    stages = lines[: len(lines) - len(seen)]
    assert stages[0] == "reading ratings"
    assert stages[-1] == "choosing weights on held-out clicks"
    assert lines[len(stages)].startswith("epoch     1 ")


def test_settings_of_many_clicks_are_chosen_on_a_sample_of_users(
    split: tuple[pd.DataFrame, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = split
    whole = fit(train).score(test)
    fitted: list[int] = []
    fit_core = _core.fit_interactions

    def fit_and_count(record: Any) -> Any:
        fitted.append(len(record["users"]))
        return fit_core(record)

    monkeypatch.setattr("dualgap.recommend._click_training._TRIAL_CLICKS", len(train) / 2)
    monkeypatch.setattr(_core, "fit_interactions", fit_and_count)
    assert fit(train).score(test) > 0.9 * whole
    assert len(train) / 4 < fitted[0] < 0.8 * len(train)
    assert fitted[-1] == len(train)


def test_predictions_are_the_scores_of_recommendations(clicks: pd.DataFrame) -> None:
    model = fit(clicks)
    users = clicks["user"].iloc[[0, 400, 0, 900]]
    table = model.recommend(users, N_ITEMS, exclude_seen=False)
    np.testing.assert_allclose(
        model.predict(table["user"], table["item"]), table["score"], atol=1e-5
    )
    assert model.predict(users.iloc[0], -1, unknown="ignore") == [0.0]


def test_the_number_of_threads_does_not_change_recommendations(clicks: pd.DataFrame) -> None:
    one, two = fit(clicks), fit(clicks, n_jobs=2)
    users = clicks["user"].unique()
    pd.testing.assert_frame_equal(two.recommend(users, 5), one.recommend(users, 5))


def test_saving_does_not_change_recommendations(clicks: pd.DataFrame, tmp_path: Path) -> None:
    one, users = fit(clicks), clicks["user"].unique()
    one.save(tmp_path / "clicks.npz")
    loaded = OrdinalRecommender.load(tmp_path / "clicks.npz")
    pd.testing.assert_frame_equal(loaded.recommend(users, 5), one.recommend(users, 5))
    newcomer = (["new"] * 3, [10, 11, 13], [1.0] * 3)
    pd.testing.assert_frame_equal(
        loaded.recommend(ratings=newcomer, n=5), one.recommend(ratings=newcomer, n=5)
    )


def test_dense_item_models_score_like_sparse_ones(clicks: pd.DataFrame) -> None:
    model = fit(clicks)
    expected = model.recommend(n=N_ITEMS)
    clicked = model._fitted.click_model
    assert clicked is not None
    assert any(isinstance(each, _core.DenseItems) for each in clicked._packed_models)
    vars(clicked)["_packed_models"] = [each.record() for each in clicked.models]
    pd.testing.assert_frame_equal(model.recommend(n=N_ITEMS), expected, check_exact=True)
    with pytest.raises(ValueError, match="the shapes of its arrays do not match"):
        _core.DenseItems(clicked.models[0].record(), N_ITEMS - 1)


def test_new_and_known_users_with_the_same_clicks_get_similar_lists(clicks: pd.DataFrame) -> None:
    model = fit(clicks)
    own = clicks[clicks["user"] == 40]
    newcomer = own.assign(user=N_USERS + 40)
    known = model.recommend(40, 10)["item"]
    new = model.recommend(ratings=newcomer, n=10)["item"]
    assert len(set(known) & set(new)) >= 9
    again = model.fold_in(own)
    assert len(set(known) & set(again.recommend(40, 10)["item"])) >= 9
    assert not set(new) & set(own["item"])
    items = pd.DataFrame({"user": [3, 4, 5], "item": N_ITEMS, "rating": 1.0})
    larger = model.fold_in(items, side="items")
    assert larger._fitted.click_model is not None
    assert larger._fitted.click_model.fits((clicks["user"].nunique(), N_ITEMS + 1))
    assert larger.predict(3, N_ITEMS) > 0.0


def test_items_without_clicks_come_last(clicks: pd.DataFrame) -> None:
    names = pd.DataFrame({"size": 1.0}, index=range(N_ITEMS + 5))
    model = OrdinalRecommender(task="clicks", random_state=0, n_jobs=1)
    model.fit(clicks, item_features=names)
    for user in clicks["user"].iloc[[0, -1]]:
        assert (model.recommend(user, 30)["item"] < N_ITEMS).all()
        assert (model.predict(user, range(N_ITEMS, N_ITEMS + 5)) == 0.0).all()


def test_few_users_need_no_held_out_clicks() -> None:
    table = ([0, 0, 1, 1, 2], ["a", "b", "b", "c", "a"], [1.0] * 5)
    model = OrdinalRecommender(task="clicks", random_state=0).fit(table)
    assert model.recommend(0, 1)["item"].tolist() == ["c"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"blend": 3}, "^blend: must be True or False, got 3"),
        ({"unobserved_weight": 0.0}, "^unobserved_weight: "),
        ({"n_components": 0}, "^n_components: "),
    ],
)
def test_errors_name_the_invalid_setting(
    settings: dict[str, object], text: str, clicks: pd.DataFrame
) -> None:
    with pytest.raises(ValueError, match=text):
        fit(clicks, interactions=Interactions(**settings))


def test_similar_items_are_near_and_have_enough_clicks(clicks: pd.DataFrame) -> None:
    rare = pd.DataFrame({"user": [clicks["user"].iloc[0]], "item": [N_ITEMS], "rating": 1.0})
    model = fit(pd.concat([clicks, rare]))
    near = model.similar_items(range(N_ITEMS), 3)
    far = (near["item"] - near["similar"]).abs()
    assert (np.minimum(far, N_ITEMS - far) < 12).mean() > 0.9
    assert N_ITEMS not in set(near["similar"])
    only = model.similar_items(5, 9, among=[5, 6, 7])
    assert set(only["similar"]) == {6, 7}
    users = model.similar_users(clicks["user"].iloc[0], 4)
    assert list(users.columns) == ["user", "rank", "similar", "score"]
    assert users["score"].is_monotonic_decreasing
    assert model.user_vectors_.shape[0] == len(model.user_ids_)
    assert model.item_vectors_.shape == (N_ITEMS + 1, model.user_vectors_.shape[1])
    with pytest.raises(KeyError, match="users: -1 was not in the ratings"):
        model.similar_users(-1)
    ratings = clicks.assign(rating=1.0 + clicks["item"] % 3)
    plain = OrdinalRecommender(2, interactions=False, random_state=0).fit(ratings)
    with pytest.raises(AttributeError, match="require interactions=True"):
        plain.similar_users(0)


def test_searches_can_set_the_parameters_of_interactions(clicks: pd.DataFrame) -> None:
    model = OrdinalRecommender(7, task="clicks", random_state=0, n_jobs=1)
    search = GridSearchCV(model, {"interactions__unobserved_weight": [0.01, 0.3]}, cv=2).fit(clicks)
    assert search.best_params_["interactions__unobserved_weight"] in (0.01, 0.3)
    assert model.interactions is True
    assert model.fit(clicks).item_vectors_.shape[1] == 7
    given = fit(clicks, n_components=7, interactions=Interactions(n_components=3))
    assert given.item_vectors_.shape[1] == 3


def test_contributions_add_up_to_the_score(clicks: pd.DataFrame) -> None:
    for interactions in (Interactions(), Interactions(blend=False, max_iter=60, tol=0.0)):
        model = fit(clicks, interactions=interactions)
        user = clicks["user"].iloc[0]
        own = set(clicks.loc[clicks["user"] == user, "item"])
        best = model.recommend(user, 1).iloc[0]
        found = model.explain(user, best["item"], N_ITEMS)
        assert set(found["item"]) == own
        assert found["contribution"].sum() == pytest.approx(best["score"], rel=0.03)
        assert found["contribution"].is_monotonic_decreasing
        far = (found["item"] - best["item"]).abs()
        far = np.minimum(far, N_ITEMS - far).to_numpy()
        assert far[0] <= np.median(far)
        assert len(model.explain(user, best["item"], 2)) == min(2, len(own))
    with pytest.raises(KeyError, match="item: 1000 was not in the ratings"):
        model.explain(user, 1000)


@pytest.mark.parametrize("like", [None, 3.0])
def test_new_clicks_are_added_to_earlier_clicks(clicks: pd.DataFrame, like: float | None) -> None:
    table = clicks if like is None else clicks.assign(rating=2.0 + clicks["item"] % 3)
    user = table["user"].iloc[0]
    own = table[table["user"] == user]
    model = fit(table.drop(own.index[-2:]), interactions=Interactions(like_threshold=like))
    whole = model.fold_in(own)
    added = model.fold_in(own.iloc[-2:], add=True)
    np.testing.assert_allclose(added.user_vectors_, whole.user_vectors_, atol=1e-9)
    pd.testing.assert_frame_equal(added.recommend(user, 9), whole.recommend(user, 9))
    again = added.fold_in(own.iloc[-2:], add=True)
    assert set(again.recommend(user, N_ITEMS)["item"]).isdisjoint(own["item"])
    of_item = model.fold_in(
        pd.DataFrame({"user": [user], "item": own["item"].iloc[-1], "rating": 4.0}),
        side="items",
        add=True,
    )
    assert len(of_item._fitted.seen.columns) == len(model._fitted.seen.columns) + 1


@pytest.mark.parametrize("task", ["ordinal", "regression"])
@pytest.mark.parametrize("side", ["users", "items"])
def test_new_ratings_are_added_to_earlier_ratings(
    task: Any, side: Any, clicks: pd.DataFrame, tmp_path: Path
) -> None:
    # A rating of 0 is a rating, too.
    ratings = clicks.assign(rating=0.5 * (clicks["item"] % 3))
    column = side[:-1]
    own = ratings[ratings[column] == ratings[column].mode()[0]]
    before = OrdinalRecommender(2, task=task, random_state=0).fit(ratings.drop(own.index[-2:]))
    before.save(tmp_path / "model.npz")
    again = own.iloc[:1].assign(rating=1.0)
    for model in (before, OrdinalRecommender.load(tmp_path / "model.npz")):
        added = model.fold_in(own.iloc[-2:], side=side, add=True)
        added = added.fold_in(again, side=side, add=True)
        whole = model.fold_in(pd.concat([again, own.iloc[1:]]), side=side)
        pairs = own["user"], own["item"]
        np.testing.assert_allclose(added.predict(*pairs), whole.predict(*pairs), atol=1e-6)
        np.testing.assert_allclose(added.item_vectors_, whole.item_vectors_, atol=1e-9)
        assert (added._fitted.seen.matrix != whole._fitted.seen.matrix).nnz == 0
        assert np.abs(added.predict(*pairs) - model.predict(*pairs)).max() > 1e-3


def test_a_click_model_refuses_history_features(clicks: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"^history_features: "):
        fit(clicks, history_features=True)


def test_errors_name_unknown_ids_of_restricted_lists(clicks: pd.DataFrame) -> None:
    model = fit(clicks)
    with pytest.warns(UserWarning, match=r"items: 1 of 3 ids were not in the ratings \(999"):
        model.recommend(0, 2, items=[1, 2, 999])
    with pytest.warns(UserWarning, match=r"exclude: 2 of 3 ids were not in the ratings \(998"):
        model.recommend(0, 2, exclude=[1, 998, 999])


def test_the_order_of_rows_does_not_change_the_model(clicks: pd.DataFrame) -> None:
    one, two = fit(clicks), fit(clicks.sample(frac=1.0, random_state=1))
    assert one._fitted.click_model is not None
    assert two._fitted.click_model is not None
    assert one._fitted.click_model.weights == two._fitted.click_model.weights
    pd.testing.assert_frame_equal(one.recommend(n=3), two.recommend(n=3), rtol=1e-4)
