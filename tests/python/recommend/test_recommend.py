"""OrdinalRecommender: input forms, fallbacks, predictions, recommendations, files, interruption."""

from __future__ import annotations

import io
import json
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import logit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dualgap import OrdinalRecommender, _core
from dualgap.datasets import synthetic_ratings
from dualgap.metrics import rmse
from dualgap.recommend._factors import expected_level, from_machine, level_probabilities
from dualgap.recommend.comparison import _biases, split_ratings

N_USERS, N_ITEMS = 120, 60
UNKNOWN = 10**6
PENALTIES = ["l1", "l1/l2", "l1/linf"]


def quick(**parameters: Any) -> OrdinalRecommender:
    settings = {"n_components": 3, "n_models": 2, "n_sweeps": 8, "random_state": 0, "n_jobs": 1}
    return OrdinalRecommender(**(settings | parameters))


def greedy(**parameters: Any) -> OrdinalRecommender:
    settings = {"method": "conditional-gradient", "refit": "output", "radius": 100.0}
    return quick(**(settings | parameters))


@pytest.fixture(scope="module")
def ratings() -> pd.DataFrame:
    return synthetic_ratings(3000, N_USERS, N_ITEMS, rank=2).drop(columns="timestamp")


@pytest.fixture(scope="module")
def small(ratings: pd.DataFrame) -> pd.DataFrame:
    return ratings.iloc[:800]


@pytest.fixture(scope="module")
def model(ratings: pd.DataFrame) -> OrdinalRecommender:
    return quick().fit(ratings)


@pytest.fixture(scope="module")
def user_table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    n = N_USERS + 10
    return pd.DataFrame({"age": rng.normal(30.0, 9.0, n), "job": rng.choice(["a", "b", "c"], n)})


@pytest.fixture(scope="module")
def item_table() -> sp.csr_array:
    return sp.random_array((N_ITEMS + 5, 7), density=0.4, rng=2, format="csr")


def all_pairs() -> tuple[np.ndarray, np.ndarray]:
    users, items = np.divmod(np.arange(N_USERS * N_ITEMS), N_ITEMS)
    return users, items


def assert_same(a: OrdinalRecommender, b: OrdinalRecommender) -> None:
    """Bit for bit, in every block."""
    assert len(a._models) == len(b._models)
    for mine, other in zip(a._models, b._models, strict=True):
        for name, value in vars(mine).items():
            np.testing.assert_array_equal(value, getattr(other, name), err_msg=name)


# --- Input ---


def test_forms_of_input_give_the_same_model(
    ratings: pd.DataFrame, model: OrdinalRecommender
) -> None:
    u, i, r = (ratings[name].to_numpy() for name in ("user", "item", "rating"))
    columns = {"user": "who", "item": 7, "rating": "stars"}
    renamed = ratings.rename(columns=columns).assign(rating=-1.0)[["stars", "rating", 7, "who"]]
    parameters = {f"{name}_column": column for name, column in columns.items()}
    assert_same(quick(**parameters).fit(renamed), model)
    assert_same(quick().fit((u, i, r)), model)
    assert_same(quick().fit((u.tolist(), pd.Series(i), r.astype(np.float32))), model)
    assert_same(quick().fit(sp.coo_array((r, (u, i)), (N_USERS, N_ITEMS))), model)
    # The rows of other sparse formats come in another order.
    pairs = all_pairs()
    sparse = quick().fit(sp.csr_matrix((r, (u, i)), (N_USERS, N_ITEMS)))
    np.testing.assert_allclose(sparse.predict(*pairs), model.predict(*pairs), atol=1e-6)
    assert np.ptp(model.predict(*pairs)) > 1.0


MIXED = ["7", 7, -3, (1,), (1, 2), ("x", None), b"x", frozenset([1])]


def test_ids_of_mixed_types(ratings: pd.DataFrame) -> None:
    few = ratings[(ratings["user"] < 8) & (ratings["item"] < 8)]
    users = [MIXED[u] for u in few["user"]]
    items = [MIXED[7 - i] for i in few["item"]]
    mixed = quick().fit((users, items, few["rating"]))
    # Ids that cannot be sorted keep the order in which they come.
    codes = [pd.factorize(few[side])[0] for side in ("user", "item")]
    plain = quick().fit((*codes, few["rating"]))
    assert_same(mixed, plain)
    for side, names, column in zip(("user", "item"), (users, items), codes, strict=True):
        table = getattr(mixed, f"{side}_ids_")
        assert [table[code] for code in column] == names
    np.testing.assert_array_equal(mixed.predict(users, items), plain.predict(*codes))
    known = few["user"].unique()
    assert set(mixed.user_ids_) == {MIXED[u] for u in known}
    alone = [mixed.predict([MIXED[u]], [MIXED[0]])[0] for u in known]
    together = mixed.predict([MIXED[u] for u in known], MIXED[0])
    np.testing.assert_allclose(together, alone, atol=1e-12)
    table = mixed.recommend(list(mixed.user_ids_), 8, exclude_seen=False)
    assert set(table["item"]) == set(items)


def test_tuples_of_different_lengths_stay_apart() -> None:
    rng = np.random.default_rng(0)
    users = [[(1,), (1, 2), (2,)][n % 3] for n in range(90)]
    items = [("i", n // 3 % 10) for n in range(90)]
    values = [5.0 if user == (1,) else float(rng.integers(1, 4)) for user in users]
    fitted = quick().fit((users, items, values))
    assert set(fitted.user_ids_) == {(1,), (1, 2), (2,)}
    assert fitted.predict([(1,)], [("i", 0)]) > fitted.predict([(1, 2)], [("i", 0)]) + 0.5
    assert fitted.recommend((1,), 20).empty
    assert len(fitted.recommend((1, 2, 3), 20)) == 10


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda d: d.drop(columns="item"), ValueError, r"ratings: no column 'item'; it has user"),
        (lambda d: d.iloc[:0], ValueError, "ratings: there must be at least one"),
        (lambda d: sp.csr_array((3, 3)), ValueError, "ratings: there must be at least one"),
        (lambda d: d.assign(rating=np.nan), ValueError, "ratings: .*NaN"),
        (lambda d: d.assign(rating=np.inf), ValueError, "ratings: .*infinity"),
        (lambda d: d.assign(rating="good"), ValueError, "ratings: .*numbers"),
        (lambda d: d.assign(rating=3.0), ValueError, "ratings: all ratings are 3.0; one level"),
        (lambda d: d.assign(rating=np.arange(len(d))), ValueError, "ratings: .*too many levels"),
        (lambda d: d.assign(user=[None, *d["user"][1:]]), ValueError, "users: .*missing"),
        (lambda d: d.assign(item=[np.nan, *d["item"][1:]]), ValueError, "items: .*missing"),
        (lambda d: (d["user"], d["item"][1:], d["rating"]), ValueError, "ratings: .*equally long"),
        (lambda d: (d["user"], d["item"], d["rating"][1:]), ValueError, "ratings: .*equally long"),
        (lambda d: (d[["user"]].to_numpy(), d["item"], d["rating"]), ValueError, "users: .*one-d"),
        (lambda d: ([[u] for u in d["user"]], d["item"], d["rating"]), TypeError, "users: .*hash"),
        (lambda d: (d["user"], d["item"]), TypeError, "ratings: must be a DataFrame"),
        (lambda d: d.to_numpy(), TypeError, "ratings: must be a DataFrame.*got ndarray"),
    ],
)
def test_ratings_that_cannot_be_used(
    small: pd.DataFrame, change: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        quick().fit(change(small))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_components", 0),
        ("n_components", 2.5),
        ("n_models", True),
        ("n_sweeps", -1),
        ("tempering", 0.0),
        ("tempering", "high"),
        ("feature_ridge", 0),
        ("alpha", np.nan),
        ("radius", 0),
        ("radius", np.inf),
        ("tol", -1e-3),
        ("method", "exact"),
        ("reduction", "ordinal"),
        ("refit", "none"),
        ("penalty", "l2"),
        ("history_features", "items"),
        ("n_jobs", 0),
        ("levels", ["a", "b"]),
        ("levels", []),
        ("levels", [1, 2, 3, 4, 5, np.nan]),
        ("levels", [1, 2, 3, 4, 5, np.inf]),
    ],
)
def test_bad_parameters_are_named(small: pd.DataFrame, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        quick(**{name: value}).fit(small)


def test_a_misspelt_parameter() -> None:
    with pytest.raises(TypeError, match="n_component"):
        OrdinalRecommender(n_component=3)
    with pytest.raises(ValueError, match="n_component"):
        quick().set_params(n_component=3)


def test_validation_is_for_the_conditional_gradient(small: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"^validation: only method"):
        quick().fit(small, validation=small)
    with pytest.raises(ValueError, match=r"^validation: .*at least one"):
        greedy().fit(small, validation=small.iloc[:0])


def test_not_fitted(tmp_path: Path, small: pd.DataFrame) -> None:
    new = quick()
    for use in (
        lambda: new.predict(1, 1),
        lambda: new.predict_proba(1, 1),
        lambda: new.recommend(1),
        lambda: new.similar_items(1),
        lambda: new.evaluate(small),
        lambda: new.save(tmp_path / "model"),
    ):
        with pytest.raises(NotFittedError):
            use()


def test_parameters_are_not_touched(small: pd.DataFrame) -> None:
    new = quick(levels=[5, 4, 3, 2, 1])
    before = new.get_params()
    new.fit(small)
    assert new.get_params() == before
    assert_same(clone(new).fit(small), new)


# --- Levels ---


def test_half_stars(ratings: pd.DataFrame) -> None:
    halves = ratings.assign(rating=ratings["rating"] / 2.0)
    fitted = quick().fit(halves)
    np.testing.assert_array_equal(fitted.levels_, [0.5, 1.0, 1.5, 2.0, 2.5])
    predicted = fitted.predict(*all_pairs())
    # The same thresholds: the model is that of whole stars, its expectation half as large.
    np.testing.assert_allclose(predicted, quick().fit(ratings).predict(*all_pairs()) / 2.0)
    assert 0.5 <= predicted.min() < predicted.max() <= 2.5


@pytest.mark.parametrize("make", [quick, greedy])
def test_explicit_levels_with_unused_ones(small: pd.DataFrame, make: Any) -> None:
    fitted = make(levels=[4.5, 0, 1, 2, 3, 4, 5, 6]).fit(small)
    np.testing.assert_array_equal(fitted.levels_, [0.0, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 6.0])
    chances = fitted.predict_proba(small["user"], small["item"])
    assert chances.shape == (len(small), 8)
    mean = dict(zip(fitted.levels_, chances.mean(axis=0), strict=True))
    shares = small["rating"].value_counts(normalize=True)
    assert max(mean[0.0], mean[4.5], mean[6.0]) < 0.02
    assert abs(mean[4.0] - shares[4.0]) < 0.1
    predicted = fitted.predict(small["user"], small["item"])
    assert abs(predicted.mean() - small["rating"].mean()) < 0.2


def test_a_rating_that_is_no_level(small: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"ratings: the rating 5\.0 is not one of the levels"):
        quick(levels=[1, 2, 3, 4]).fit(small)


def test_two_levels(small: pd.DataFrame) -> None:
    likes = small.assign(rating=(small["rating"] > 3.0).astype(float))
    fitted = quick().fit(likes)
    predicted = fitted.predict(small["user"], small["item"])
    np.testing.assert_allclose(
        fitted.predict_proba(small["user"], small["item"])[:, 1], predicted, atol=1e-12
    )
    liked = likes["rating"] == 1.0
    assert predicted[liked].mean() > predicted[~liked].mean() + 0.1


def test_regression_on_a_single_value(small: pd.DataFrame) -> None:
    fitted = quick(reduction="regression").fit(small.assign(rating=3.0))
    np.testing.assert_allclose(fitted.predict([0, UNKNOWN], [0, 0]), 3.0)


# --- Predictions ---


def test_expected_level_of_given_probabilities() -> None:
    # Levels 1 to 5; the second row is out of order.
    below = np.array([[0.1, 0.3, 0.6, 0.8], [0.05, 0.2, 0.15, 0.9]])
    levels = np.arange(1.0, 6.0)
    np.testing.assert_allclose(expected_level(logit(below), levels), [3.2, 3.7], rtol=1e-12)
    chances = level_probabilities(logit(below), levels)
    np.testing.assert_allclose(chances[0], [0.1, 0.2, 0.3, 0.2, 0.2], rtol=1e-12)
    np.testing.assert_allclose(chances[1], [0.05, 0.125, 0.0, 0.725, 0.1], atol=1e-12)


def test_level_probabilities_keep_the_expectation_whatever_the_levels() -> None:
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
    chances, predicted = fitted.predict_proba(users, items), fitted.predict(users, items)
    assert chances.shape == (len(users), 5)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    assert np.diff(np.cumsum(chances, axis=1), axis=1).min() >= -1e-12
    np.testing.assert_allclose(chances @ fitted.levels_, predicted, atol=1e-12)
    assert 1.0 <= predicted.min() < predicted.max() <= 5.0


def test_regression_has_no_probabilities(small: pd.DataFrame) -> None:
    fitted = quick(reduction="regression").fit(small)
    with pytest.raises(AttributeError, match='use "mcrank"'):
        fitted.predict_proba(1, 1)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"history_features": True},
        {"reduction": "regression"},
        {"method": "conditional-gradient", "n_components": 4, "radius": 100.0},
    ],
    ids=["mcrank", "history", "regression", "conditional-gradient"],
)
def test_learns_what_was_planted(ratings: pd.DataFrame, parameters: dict[str, Any]) -> None:
    train, validation, test = split_ratings(ratings, 0, (0.7, 0.1))
    truth = test["rating"].to_numpy()
    fitted = quick(**({"n_sweeps": 15} | parameters))
    greedily = fitted.method == "conditional-gradient"
    fitted.fit(train, validation=validation if greedily else None)
    predicted = fitted.predict(test["user"], test["item"])
    assert predicted.min() >= 1.0
    assert predicted.max() <= 5.0
    mean = rmse(truth, np.full(len(truth), train["rating"].mean()))
    assert rmse(truth, predicted) < rmse(truth, _biases(train, test)) < mean


def test_one_id_with_many_and_mismatch(model: OrdinalRecommender) -> None:
    items = [3, 1, UNKNOWN]
    np.testing.assert_array_equal(model.predict(5, items), model.predict([5, 5, 5], items))
    np.testing.assert_array_equal(model.predict(items, 5), model.predict(iter(items), [5] * 3))
    assert model.predict([], []).shape == (0,)
    with pytest.raises(ValueError, match=r"users, items: .*got 2 and 3"):
        model.predict([1, 2], items)
    with pytest.raises(ValueError, match="items: an id is missing"):
        model.predict(1, [1, None])


# --- Fallbacks ---


@pytest.mark.parametrize("make", [quick, greedy])
def test_unknown_ids_leave_the_decision_to_the_other_side(ratings: pd.DataFrame, make: Any) -> None:
    fitted = make().fit(ratings)
    items, users = np.arange(N_ITEMS), np.arange(N_USERS)
    by_item, by_user = fitted.predict(UNKNOWN, items), fitted.predict(users, "nobody's")
    neither = fitted.predict("nobody", (UNKNOWN, "x"))
    for values in (by_item, by_user, neither):
        assert np.isfinite(values).all()
        assert values.min() >= 1.0
        assert values.max() <= 5.0
    for side, values in (("item", by_item), ("user", by_user)):
        table = ratings.groupby(side)["rating"].agg(["mean", "count"])
        often = table.index[table["count"] >= 20]
        assert np.corrcoef(values[often], table["mean"][often])[0, 1] > 0.8
    # All unknown ids are alike.
    np.testing.assert_array_equal(by_item, fitted.predict(-1.5, items))


@pytest.mark.parametrize("make", [quick, greedy])
@pytest.mark.parametrize("side", ["user", "item"])
def test_unknown_ids_are_predicted_better_than_by_the_mean(
    ratings: pd.DataFrame, make: Any, side: str
) -> None:
    new = ratings[side] % 5 == 0
    train, test = ratings[~new], ratings[new]
    predicted = make().fit(train).predict(test["user"], test["item"])
    mean = np.full(len(test), train["rating"].mean())
    assert rmse(test["rating"], predicted) < 0.98 * rmse(test["rating"], mean)


def test_users_without_ratings(
    ratings: pd.DataFrame, user_table: pd.DataFrame, item_table: sp.csr_array
) -> None:
    # The planted effect of the feature: job "a" rates one star lower.
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


def test_a_sparse_matrix_with_an_empty_row(ratings: pd.DataFrame) -> None:
    rest = ratings[ratings["user"] != 4]
    shape = (N_USERS, N_ITEMS)
    fitted = quick().fit(sp.coo_array((rest["rating"], (rest["user"], rest["item"])), shape))
    assert 4 not in fitted.user_ids_
    np.testing.assert_array_equal(fitted.predict(4, [1, 2]), fitted.predict(UNKNOWN, [1, 2]))


# --- Features ---


def test_history_of_users_or_of_both(ratings: pd.DataFrame, model: OrdinalRecommender) -> None:
    pairs = all_pairs()
    plain = model.predict(*pairs)
    users = quick(history_features="users").fit(ratings).predict(*pairs)
    both = quick(history_features=True).fit(ratings).predict(*pairs)
    assert np.abs(users - plain).max() > 0.01
    assert np.abs(both - users).max() > 0.01
    u, i, r = (ratings[name].to_numpy() for name in ("user", "item", "rating"))
    seen = sp.csr_array((np.ones(len(r)), (u, i)), (N_USERS, N_ITEMS))
    explicit = quick().fit(ratings, user_features=seen).predict(*pairs)
    np.testing.assert_allclose(users, explicit, atol=1e-10)


def test_features_as_numbers_and_as_categories(
    ratings: pd.DataFrame, user_table: pd.DataFrame
) -> None:
    # The same inputs, encoded by hand; shuffled rows belong to the same ids.
    age = user_table["age"].to_numpy()
    jobs = (user_table["job"].to_numpy()[:, np.newaxis] == ["a", "b", "c"]).astype(float)
    encoded = sp.csr_array(np.column_stack([(age - age.mean()) / age.std(), jobs]))
    shuffled = user_table.sample(frac=1.0, random_state=0)
    by_table = quick().fit(ratings, user_features=shuffled)
    pairs = all_pairs()
    by_hand = quick().fit(ratings, user_features=encoded).predict(*pairs)
    np.testing.assert_allclose(by_table.predict(*pairs), by_hand, atol=1e-9)
    assert np.abs(by_table.predict(*pairs) - quick().fit(ratings).predict(*pairs)).max() > 0.005


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (pd.DataFrame({"x": [1.0, np.nan]}), ValueError, "NaN"),
        (pd.DataFrame({"x": [1.0, 2.0]}, index=[3, 3]), ValueError, "more than one row"),
        (sp.csr_array([[1.0], [np.inf]]), ValueError, "infinity"),
        (np.ones((3, 2)), TypeError, "must be a DataFrame or a sparse matrix, got ndarray"),
    ],
)
@pytest.mark.parametrize("name", ["user_features", "item_features"])
def test_bad_features_are_named(
    small: pd.DataFrame, name: str, features: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{name}: .*{message}"):
        quick().fit(small, **{name: features})


def unit(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0.0, lengths, 1.0)


@pytest.mark.parametrize("with_users", [False, True])
@pytest.mark.parametrize("with_items", [False, True])
def test_blocks_are_the_machine_on_one_hot_rows(with_users: bool, with_items: bool) -> None:
    rng = np.random.default_rng(0)
    n_users, n_items, k, m = 9, 7, 3, 4
    mine = sp.random_array((n_users, 5), density=0.6, rng=1, format="csr") if with_users else None
    others = sp.random_array((n_items, 4), density=0.6, rng=2, format="csr") if with_items else None
    users, items = np.divmod(np.arange(n_users * n_items), n_items)
    blocks = [
        sp.eye_array(n_users, format="csr")[users],
        sp.eye_array(n_items, format="csr")[items],
    ]
    blocks += [table[ids] for table, ids in ((mine, users), (others, items)) if table is not None]
    rows = sp.csr_array(sp.hstack(blocks, format="csr"))
    machine = {
        "basis": rng.normal(size=(k, rows.shape[1])),
        "output": rng.normal(size=(k, m)),
        "linear": rng.normal(size=(rows.shape[1] + 1, m)),
    }
    x = rows.toarray()
    products = x @ machine["basis"].T
    pairs = 0.5 * (products**2 - (x**2) @ machine["basis"].T ** 2)
    expected = pairs @ machine["output"] + x @ machine["linear"][:-1] + machine["linear"][-1]
    blocks_ = from_machine(machine, mine, others, n_users, n_items)
    np.testing.assert_allclose(blocks_.pairs(users, items), expected, atol=1e-10)
    everything = blocks_.all_items(np.arange(n_users)).reshape(-1, m)
    np.testing.assert_allclose(everything, expected, atol=1e-10)


def test_fitted_blocks_are_the_core_s_machine(
    small: pd.DataFrame,
    user_table: pd.DataFrame,
    item_table: sp.csr_array,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results: list[Any] = []
    fit_polynomial = _core.fit_polynomial

    def spy(*arguments: Any, **options: Any) -> Any:
        results.append(fit_polynomial(*arguments, **options))
        return results[-1]

    monkeypatch.setattr(_core, "fit_polynomial", spy)
    fitted = greedy(history_features=True, refit="full", n_components=2)
    fitted.fit(small, user_features=user_table, item_features=item_table)

    n_users, n_items = len(user_table), item_table.shape[0]
    age = user_table["age"].to_numpy()
    jobs = (user_table["job"].to_numpy()[:, np.newaxis] == ["a", "b", "c"]).astype(float)
    table = np.column_stack([(age - age.mean()) / age.std(), jobs])
    seen = np.zeros((n_users, n_items))
    seen[small["user"], small["item"]] = 1.0
    of_users = np.hstack([unit(table), unit(seen)])
    of_items = np.hstack([unit(item_table.toarray()), unit(seen.T)])
    users, items = np.divmod(np.arange(n_users * n_items), n_items)
    one_hot = [np.eye(n_users)[users], np.eye(n_items)[items]]
    rows = np.hstack([*one_hot, of_users[users], of_items[items]])
    (machine,) = results
    expected = _core.predict_polynomial(rows, machine, kernel="anova", augmented=False, n_threads=1)
    assert np.ptp(expected) > 1.0
    assert fitted.n_components_ == 2
    np.testing.assert_allclose(
        fitted._models[0].pairs(users, items), expected.reshape(len(rows), -1), atol=1e-10
    )


# --- Recommendations ---


def test_recommend_is_predict_sorted(model: OrdinalRecommender) -> None:
    table = model.recommend(7, N_ITEMS, exclude_seen=False)
    scores = model.predict(7, model.item_ids_)
    order = np.argsort(-scores, kind="stable")
    assert table["item"].tolist() == model.item_ids_[order].tolist()
    np.testing.assert_allclose(table["score"], scores[order], atol=1e-12)
    assert table["rank"].tolist() == list(range(1, len(order) + 1))
    assert list(table.columns) == ["user", "rank", "item", "score"]


@pytest.mark.parametrize("make", [quick, greedy])
@pytest.mark.parametrize("exclude_seen", [True, False])
def test_recommend_in_a_batch_is_one_by_one(
    ratings: pd.DataFrame, make: Any, exclude_seen: bool
) -> None:
    fitted = make().fit(ratings)
    users = [3, UNKNOWN, 0, 3, 99]
    batch = fitted.recommend(users, 6, exclude_seen=exclude_seen)
    single = pd.concat(
        [fitted.recommend(user, 6, exclude_seen=exclude_seen) for user in users], ignore_index=True
    )
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
    assert len(model.recommend(UNKNOWN, 1000)) == len(everything)
    assert len(model.recommend(users[:2], 1000, exclude_seen=False)) == 2 * len(everything)


def test_who_has_seen_everything_gets_nothing() -> None:
    users, items = [0, 0, 0, 1, 2], [0, 1, 2, 0, 1]
    fitted = quick().fit((users, items, [1.0, 2.0, 3.0, 2.0, 3.0]))
    table = fitted.recommend([0, 1], 5)
    assert set(table["user"]) == {1}
    assert set(table["item"]) == {1, 2}
    assert fitted.recommend([]).empty
    assert list(fitted.recommend([]).columns) == ["user", "rank", "item", "score"]


def test_ties_keep_the_order_of_the_items() -> None:
    # All but three items are alike: nobody rated them.
    n = 40
    alike = sp.csr_array(np.ones((n, 1)))
    ratings = ([0, 0, 1, 1, 2], [5, 9, 5, 20, 9], [1.0, 5.0, 2.0, 3.0, 4.0])
    fitted = quick().fit(ratings, item_features=alike)
    for depth in (3, 20, n):
        table = fitted.recommend([0, 1, UNKNOWN], depth, exclude_seen=False)
        for _, rows in table.groupby("user"):
            tied = rows[~rows["item"].isin([5, 9, 20])]
            assert tied["score"].nunique() == 1
            expected = [item for item in range(n) if item not in (5, 9, 20)][: len(tied)]
            assert tied["item"].tolist() == expected


@pytest.mark.parametrize("n", [0, -1, 2.5, "all"])
def test_bad_number_of_recommendations(model: OrdinalRecommender, n: Any) -> None:
    with pytest.raises(ValueError, match=r"^n: must be a positive finite integer"):
        model.recommend(1, n)
    with pytest.raises(ValueError, match=r"^n: must be a positive finite integer"):
        model.similar_items(1, n)


@pytest.mark.parametrize("make", [quick, greedy])
def test_similar_items(ratings: pd.DataFrame, make: Any) -> None:
    fitted = make().fit(ratings)
    n = len(fitted.item_ids_)
    table = fitted.similar_items(fitted.item_ids_, 1000)
    assert len(table) == n * (n - 1)
    assert (table["item"] != table["similar"]).all()
    square = table.pivot(index="item", columns="similar", values="score").to_numpy()
    off = ~np.eye(n, dtype=bool)
    np.testing.assert_allclose(square[off], square.T[off], atol=1e-12)
    assert np.nanmax(np.abs(square)) <= 1.0 + 1e-12
    assert np.nanstd(square) > 0.1
    assert (table.groupby("item")["score"].diff().dropna() <= 0.0).all()
    three = fitted.similar_items([5, 2], 3)
    assert three["item"].tolist() == [5, 5, 5, 2, 2, 2]
    assert three["rank"].tolist() == [1, 2, 3, 1, 2, 3]
    with pytest.raises(KeyError, match=f"items: {UNKNOWN} "):
        fitted.similar_items([5, UNKNOWN])


def test_similar_items_are_those_made_alike() -> None:
    # Items of equal parity are liked by the same half of the users.
    users, items = np.divmod(np.arange(40 * 20), 20)
    values = np.where((users + items) % 2 == 0, 5.0, 1.0)
    fitted = quick().fit((users, items, values))
    table = fitted.similar_items(range(20), 9)
    assert (table["item"] % 2 == table["similar"] % 2).all()


# --- Evaluation ---


def test_evaluate_by_hand(ratings: pd.DataFrame) -> None:
    train, _, test = split_ratings(ratings, 1)
    test = pd.concat(
        [test, pd.DataFrame({"user": [UNKNOWN, UNKNOWN], "item": [1, 2], "rating": [1.0, 5.0]})]
    )
    fitted = quick().fit(train)
    predicted = fitted.predict(test["user"], test["item"])
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


# --- Conditional gradient ---


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("reduction", ["mcrank", "regression"])
def test_certificate(small: pd.DataFrame, penalty: str, reduction: str) -> None:
    settings = {"penalty": penalty, "reduction": reduction, "radius": 20.0}
    brief = greedy(n_components=2, **settings).fit(small)
    longer = greedy(n_components=8, **settings).fit(small)
    for fitted in (brief, longer):
        history = fitted.history_[0]
        assert (history["gap"] >= 0.0).all()
        np.testing.assert_allclose(history["gap"], history["primal"] - history["dual"], rtol=1e-9)
        assert (np.diff(history["primal"]) <= 1e-6 * history["primal"][0]).all()
        assert fitted.duality_gap_ >= 0.0
        assert fitted.n_components_ <= fitted.n_components
    assert longer.objective_ < brief.objective_
    # A lower bound holds for whatever anyone finds.
    assert brief.history_[0]["dual"].max() <= longer.objective_


@pytest.mark.parametrize("penalty", PENALTIES)
def test_validation_picks_the_number_of_bases(ratings: pd.DataFrame, penalty: str) -> None:
    train, validation, _ = split_ratings(ratings, 0)
    fitted = greedy(n_components=8, penalty=penalty, radius=3000.0).fit(
        train, validation=validation
    )
    history = fitted.history_[0]
    best = int(np.argmin(history["validation_loss"]))
    assert fitted.n_components_ == history["n_components"][best]
    assert fitted.n_components_ < 8
    # The stored loss is that of the model that was kept.
    (blocks,) = fitted._models
    users = fitted.user_ids_.get_indexer(validation["user"])
    items = fitted.item_ids_.get_indexer(validation["item"])
    outputs = blocks.pairs(
        np.where(users < 0, len(fitted.user_ids_), users),
        np.where(items < 0, len(fitted.item_ids_), items),
    )
    signs = np.where(validation["rating"].to_numpy()[:, np.newaxis] <= fitted.levels_[:-1], 1, -1)
    loss = np.logaddexp(0.0, -signs * outputs).sum(axis=1).mean()
    assert history["validation_loss"][best] == pytest.approx(loss, rel=1e-9)


# --- Files ---


def make_file(kind: str, small: pd.DataFrame) -> OrdinalRecommender:
    named = small.assign(user="u" + small["user"].astype(str), item=small["item"] - 30)
    users = pd.DataFrame({"x": np.arange(3.0)}, index=["u1", "u2", "new"])
    if kind == "regression":
        return quick(reduction="regression", history_features=True).fit(named, user_features=users)
    if kind == "conditional-gradient":
        return greedy(n_components=np.int64(2)).fit(named, user_features=users)
    return quick(levels=np.arange(0.5, 5.5, 0.5), tempering=np.float64(0.9)).fit(
        named, user_features=users
    )


@pytest.mark.parametrize("how", ["save", "pickle"])
@pytest.mark.parametrize("kind", ["mcrank", "regression", "conditional-gradient"])
def test_a_loaded_model_is_the_same(
    tmp_path: Path, small: pd.DataFrame, kind: str, how: str
) -> None:
    fitted = make_file(kind, small)
    if how == "save":
        fitted.save(tmp_path / "model")
        loaded = OrdinalRecommender.load(tmp_path / "model")
    else:
        loaded = pickle.loads(pickle.dumps(fitted))
    assert_same(loaded, fitted)
    users = [*fitted.user_ids_, "unknown"]
    for item in (-30, 0, 10, "unknown"):
        np.testing.assert_array_equal(loaded.predict(users, item), fitted.predict(users, item))
    pd.testing.assert_frame_equal(loaded.recommend(users, 7), fitted.recommend(users, 7))
    pd.testing.assert_frame_equal(loaded.similar_items([-3, 4]), fitted.similar_items([-3, 4]))
    if kind != "regression":
        np.testing.assert_array_equal(
            loaded.predict_proba(users, 1), fitted.predict_proba(users, 1)
        )
    np.testing.assert_array_equal(loaded.levels_, fitted.levels_)
    assert loaded.objective_ == fitted.objective_
    assert loaded.duality_gap_ == fitted.duality_gap_
    assert loaded.n_components_ == fitted.n_components_
    for mine, other in zip(loaded.history_, fitted.history_, strict=True):
        assert mine.keys() == other.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], other[name])
    for name, value in fitted.get_params().items():
        if name != "random_state" or how == "pickle":
            np.testing.assert_array_equal(loaded.get_params()[name], value)


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def repack(raw: bytes, **changes: Any) -> bytes:
    with np.load(io.BytesIO(raw)) as file:
        arrays = dict(file)
    meta = changes.pop("meta", None)
    if isinstance(meta, dict):
        meta = json.loads(arrays["meta"].tobytes()) | meta
        changes["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    elif meta is not None:
        changes["meta"] = np.frombuffer(meta, dtype=np.uint8)
    arrays |= changes
    out = io.BytesIO()
    np.savez(out, **{name: array for name, array in arrays.items() if array is not None})
    return out.getvalue()


def test_repacked_without_change_loads(tmp_path: Path, small: pd.DataFrame) -> None:
    fitted = quick().fit(small)
    fitted.save(tmp_path / "model")
    (tmp_path / "model").write_bytes(repack((tmp_path / "model").read_bytes(), meta={}))
    assert_same(OrdinalRecommender.load(tmp_path / "model"), fitted)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw, mark: b"",
        lambda raw, mark: b"not a model" * 100,
        lambda raw, mark: pickle.dumps(Bomb(mark)),
        lambda raw, mark: repack(raw, user_ids=np.array([Bomb(mark)], dtype=object)),
        lambda raw, mark: repack(raw, meta=pickle.dumps(Bomb(mark))),
        lambda raw, mark: raw[:1000],
        lambda raw, mark: raw[:-20],
        lambda raw, mark: raw[:3000] + bytes([raw[3000] ^ 255]) + raw[3001:],
        lambda raw, mark: repack(raw, levels=None),
        lambda raw, mark: repack(raw, levels=np.zeros(5)),
        lambda raw, mark: repack(raw, levels=np.array(["1", "2", "3", "4", "5"])),
        lambda raw, mark: repack(raw, certificate=np.zeros(3)),
        lambda raw, mark: repack(raw, meta=b"[1]"),
        lambda raw, mark: repack(raw, meta=b"\xff\xfe"),
        lambda raw, mark: repack(raw, meta={"format": 99}),
        lambda raw, mark: repack(raw, meta={"n_models": 5}),
        lambda raw, mark: repack(raw, meta={"n_models": 0}),
        lambda raw, mark: repack(raw, meta={"parameters": {"strange": 1}}),
        lambda raw, mark: repack(raw, meta={"parameters": {"method": "strange"}}),
        lambda raw, mark: repack(raw, item_ids=np.zeros(N_ITEMS, dtype=np.int64)),
        lambda raw, mark: repack(raw, seen_items=np.full(800, 10**6, dtype=np.int32)),
        lambda raw, mark: repack(raw, seen_offsets=np.arange(N_USERS + 1)[::-1].copy()),
        lambda raw, mark: repack(raw, **{"model0.users": np.zeros((3, 3))}),
        lambda raw, mark: repack(raw, **{"model1.output": np.zeros((1, 4))}),
    ],
)
def test_a_file_that_is_no_model(tmp_path: Path, small: pd.DataFrame, spoil: Any) -> None:
    path, mark = tmp_path / "model", tmp_path / "executed"
    quick(n_sweeps=1).fit(small).save(path)
    path.write_bytes(spoil(path.read_bytes(), mark))
    with pytest.raises(ValueError, match="model: not a saved OrdinalRecommender") as caught:
        OrdinalRecommender.load(path)
    assert "allow_pickle=`" not in str(caught.value)
    assert not mark.exists()


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OrdinalRecommender.load(tmp_path / "missing")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme", "hello")
    with pytest.raises(ValueError, match="not a saved OrdinalRecommender"):
        OrdinalRecommender.load(tmp_path / "other.zip")


@pytest.mark.parametrize("ids", [["a", 1], [(1, 2), (3, 4)], ["a", "a\0"], [1, 2**70]])
def test_ids_that_only_pickle_keeps(tmp_path: Path, ids: list[Any]) -> None:
    items = np.arange(40) % 10
    fitted = quick().fit(([ids[n % 2] for n in range(40)], items, 1.0 + np.arange(40) % 3))
    with pytest.raises(TypeError, match=r"save: the user ids .*pickle"):
        fitted.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert_same(pickle.loads(pickle.dumps(fitted)), fitted)


# --- Reproducibility, progress, interruption ---


@pytest.mark.parametrize("make", [quick, greedy])
@pytest.mark.parametrize("extra", [{}, {"history_features": True}, {"reduction": "regression"}])
def test_the_model_does_not_depend_on_the_threads(
    ratings: pd.DataFrame, small: pd.DataFrame, make: Any, extra: dict[str, Any]
) -> None:
    few = small if make is greedy else ratings
    one, two = (make(n_jobs=n, **extra).fit(few) for n in (1, 2))
    assert_same(one, two)
    assert one.objective_ == two.objective_


def test_random_state(small: pd.DataFrame) -> None:
    pairs = all_pairs()
    first = quick(random_state=3).fit(small)
    assert_same(quick(random_state=3).fit(small), first)
    assert_same(quick(random_state=np.random.RandomState(3)).fit(small), first)
    other = quick(random_state=4).fit(small)
    assert np.abs(first.predict(*pairs) - other.predict(*pairs)).max() > 1e-6
    assert np.abs(first._models[0].users - first._models[1].users).max() > 1e-6


def test_averaging_models(small: pd.DataFrame) -> None:
    both = quick().fit(small)
    pairs = all_pairs()
    parts = []
    for blocks in both._models:
        alone = quick().fit(small)
        alone._models = [blocks]
        parts.append(alone.predict(*pairs))
    np.testing.assert_allclose(both.predict(*pairs), np.mean(parts, axis=0), rtol=1e-12)
    assert len(both.history_) == 2


@pytest.mark.parametrize("make", [quick, greedy])
def test_the_callback_stops_the_fit(small: pd.DataFrame, make: Any) -> None:
    calls: list[tuple[int, float, float, float]] = []

    def stop(*arguments: Any) -> bool:
        calls.append(arguments)
        return len(calls) == 2

    fitted = make(callback=stop).fit(small)
    assert len(calls) == 2
    assert [call[0] for call in calls] == [1, 2]
    assert len(fitted.history_) == 1
    assert fitted.history_[0]["epoch"].tolist() == [1, 2]
    assert [call[2] for call in calls] == fitted.history_[0]["primal"].tolist()
    assert np.isfinite(fitted.predict([0, UNKNOWN], 1)).all()


@pytest.mark.parametrize("make", [quick, greedy])
def test_exceptions_of_the_callback_come_out(small: pd.DataFrame, make: Any) -> None:
    error = LookupError("mine")

    def fail(*_: Any) -> bool:
        raise error

    with pytest.raises(LookupError) as caught:
        make(callback=fail).fit(small)
    assert caught.value is error


def test_verbose(small: pd.DataFrame, capfd: pytest.CaptureFixture[str]) -> None:
    quick(verbose=1).fit(small)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("epoch     1 ")


INTERRUPTED = """
import sys
from dualgap import OrdinalRecommender
from dualgap.datasets import synthetic_ratings

ratings = synthetic_ratings(300_000, 6000, 3000)
started = lambda epoch, *_: epoch == 1 and print("started", flush=True)
model = OrdinalRecommender(n_sweeps=10_000, callback=started, random_state=0)
try:
    model.fit(ratings)
except KeyboardInterrupt:
    sys.exit(42)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a process")
def test_keyboard_interrupt() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "started\n"
            time.sleep(0.1)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=3.0) == 42
        finally:
            process.kill()
