"""Input of a recommender: ratings, ids, parameters, levels, features."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from recommenders import (
    N_ITEMS,
    N_USERS,
    all_pairs,
    assert_same,
    greedy,
    machines,
    quick,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dualgap import OrdinalRecommender, _core
from dualgap.recommend import ConditionalGradient
from dualgap.recommend._conditional_gradient import from_machine
from dualgap.recommend._ratings import RatingScale

# --- Input ---

# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


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
    # Other sparse formats yield the ratings in another order.
    pairs = all_pairs()
    sparse = quick().fit(sp.csr_matrix((r, (u, i)), (N_USERS, N_ITEMS)))
    np.testing.assert_allclose(sparse.predict(*pairs), model.predict(*pairs), atol=1e-6)
    assert np.ptp(model.predict(*pairs)) > 1.0


MIXED = ["7", 7, -3, (1,), (1, 2), ("x", None), b"x", frozenset([1])]


def test_ids_of_mixed_types_give_the_model_of_numeric_ids(ratings: pd.DataFrame) -> None:
    few = ratings[(ratings["user"] < 8) & (ratings["item"] < 8)]
    users = [MIXED[u] for u in few["user"]]
    items = [MIXED[7 - i] for i in few["item"]]
    mixed = quick().fit((users, items, few["rating"]))
    # Ids that cannot be sorted keep the order of their first occurrence.
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


def test_tuple_ids_of_different_lengths_stay_distinct() -> None:
    rng = np.random.default_rng(0)
    users = [[(1,), (1, 2), (2,)][n % 3] for n in range(90)]
    items = [("i", n // 3) for n in range(90)]
    values = [5.0 if user == (1,) else float(rng.integers(1, 4)) for user in users]
    fitted = quick().fit((users, items, values))
    assert set(fitted.user_ids_) == {(1,), (1, 2), (2,)}
    assert fitted.predict([(1,)], [("i", 0)]) > fitted.predict([(1, 2)], [("i", 0)]) + 0.5
    assert fitted.recommend((1,), 40).empty
    assert len(fitted.recommend((1, 2, 3), 40, unknown="ignore")) == 30


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda d: d.drop(columns="item"),
            ValueError,
            r"ratings: no column 'item'; the columns are user",
        ),
        (
            lambda d: d.pivot_table(index="user", columns="item", values="rating"),
            ValueError,
            r"ratings: no column 'user'; the columns are [^.]{,99}, \.\.\.; .*stack\(\)",
        ),
        (
            lambda d: pd.concat([d, d[["rating"]]], axis=1),
            ValueError,
            "ratings: the column 'rating' occurs more than once",
        ),
        (lambda d: d.iloc[:0], ValueError, "ratings: there must be at least one"),
        (lambda d: sp.csr_array((3, 3)), ValueError, "ratings: there must be at least one"),
        (lambda d: d.assign(rating=np.nan), ValueError, "ratings: .*NaN"),
        (lambda d: d.assign(rating=np.inf), ValueError, "ratings: .*infinity"),
        (lambda d: d.assign(rating="good"), ValueError, "ratings: .*numbers"),
        (
            lambda d: d.assign(rating=3.0),
            ValueError,
            "ratings: all .* 3.0, .*task=",
        ),
        (lambda d: d.assign(rating=np.arange(len(d))), ValueError, "ratings: .*too many levels"),
        (
            lambda d: d.assign(user=[None, *d["user"][1:]]),
            ValueError,
            "ratings: column 'user': .*missing",
        ),
        (
            lambda d: d.assign(item=[np.nan, *d["item"][1:]]),
            ValueError,
            "ratings: column 'item': .*missing",
        ),
        (lambda d: (d["user"], d["item"][1:], d["rating"]), ValueError, "ratings: .*equally long"),
        (lambda d: (d["user"], d["item"], d["rating"][1:]), ValueError, "ratings: .*equally long"),
        (lambda d: (d[["user"]].to_numpy(), d["item"], d["rating"]), ValueError, "users: .*one-d"),
        (lambda d: ([[u] for u in d["user"]], d["item"], d["rating"]), TypeError, "users: .*hash"),
        (lambda d: (d["user"], d["item"]), TypeError, "ratings: must be a DataFrame"),
        (lambda d: d.to_numpy()[:, :2], TypeError, "ratings: must be a .*got ndarray of shape"),
    ],
)
def test_errors_describe_unusable_ratings(
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
        ("max_iter", -1),
        ("tempering", 0.0),
        ("tempering", "high"),
        ("feature_ridge", 0),
        ("alpha", np.nan),
        ("radius", 0),
        ("radius", np.inf),
        ("tol", -1e-3),
        ("method", "exact"),
        ("task", "mcrank"),
        ("reoptimize", "none"),
        ("penalty", "l2"),
        ("history_features", "items"),
        ("n_jobs", 0),
        ("levels", ["a", "b"]),
        ("levels", []),
        ("levels", [1, 2, 3, 4, 5, np.nan]),
        ("levels", [1, 2, 3, 4, 5, np.inf]),
    ],
)
def test_errors_name_the_bad_parameter(small: pd.DataFrame, name: str, value: Any) -> None:
    build = greedy if name in ConditionalGradient().get_params() else quick
    with pytest.raises(ValueError, match=f"^{name}: "):
        build(**{name: value}).fit(small)


def test_a_misspelt_parameter_is_an_error() -> None:
    with pytest.raises(TypeError, match="n_component"):
        OrdinalRecommender(n_component=3)
    with pytest.raises(ValueError, match="n_component"):
        quick().set_params(n_component=3)


def test_only_the_conditional_gradient_accepts_validation_rows(small: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"^validation: only method"):
        quick().fit(small, validation=small)
    with pytest.raises(ValueError, match=r"^validation: .*at least one"):
        greedy().fit(small, validation=small.iloc[:0])


def test_methods_of_an_unfitted_recommender_raise(tmp_path: Path, small: pd.DataFrame) -> None:
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


def test_a_fit_does_not_change_the_parameters(small: pd.DataFrame) -> None:
    new = quick(levels=[5, 4, 3, 2, 1])
    before = new.get_params()
    new.fit(small)
    assert new.get_params() == before
    assert_same(clone(new).fit(small), new)


# --- Levels ---


def test_half_star_ratings_give_half_the_predictions(ratings: pd.DataFrame) -> None:
    halves = ratings.assign(rating=ratings["rating"] / 2.0)
    fitted = quick().fit(halves)
    np.testing.assert_array_equal(fitted.levels_, [0.5, 1.0, 1.5, 2.0, 2.5])
    predicted = fitted.predict(*all_pairs())
    # The thresholds are the same, so the model is too, and expected ratings are half as large.
    np.testing.assert_allclose(predicted, quick().fit(ratings).predict(*all_pairs()) / 2.0)
    assert 0.5 <= predicted.min() < predicted.max() <= 2.5


@pytest.mark.parametrize("make", [quick, greedy])
def test_unused_levels_have_small_probabilities(small: pd.DataFrame, make: Any) -> None:
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


def test_a_rating_that_is_not_a_level_is_an_error(small: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"ratings: the rating 5\.0 is not one of the levels"):
        quick(levels=[1, 2, 3, 4]).fit(small)


def test_predictions_of_two_levels_are_probabilities(small: pd.DataFrame) -> None:
    likes = small.assign(rating=(small["rating"] > 3.0).astype(float))
    fitted = quick().fit(likes)
    predicted = fitted.predict(small["user"], small["item"])
    np.testing.assert_allclose(
        fitted.predict_proba(small["user"], small["item"])[:, 1], predicted, atol=1e-12
    )
    liked = likes["rating"] == 1.0
    assert predicted[liked].mean() > predicted[~liked].mean() + 0.1


@pytest.mark.parametrize("settings", [{"task": "regression"}, {"levels": [0.0, 1.0]}])
def test_a_single_level_of_ratings_is_rejected(
    small: pd.DataFrame, settings: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r'all ratings are 1.0, .*task="clicks"'):
        quick(**settings).fit(small.assign(rating=1.0))


# --- Features ---


def test_history_features_of_users_and_of_both_sides_change_predictions(
    ratings: pd.DataFrame, model: OrdinalRecommender
) -> None:
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


def test_numeric_and_categorical_features_are_encoded(
    ratings: pd.DataFrame, user_table: pd.DataFrame
) -> None:
    # Encode the same features by hand, and shuffle the rows of the table together with their ids.
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
def test_errors_of_bad_features_name_the_argument(
    small: pd.DataFrame, name: str, features: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{name}: .*{message}"):
        quick().fit(small, **{name: features})


def outputs_of_all(blocks: Any) -> np.ndarray:
    """Compute outputs from the single-precision rows that ranking uses."""
    scale = RatingScale(np.arange(1.0 + len(blocks.intercept)), ordinal=True)
    rows = blocks.user_rows(np.arange(len(blocks.users) - 1), scale)
    items = blocks.items[1:].astype(np.float32)
    k = rows.shape[2] - 1
    outputs = np.einsum("ucr,ir->uic", rows[:, :, :k], items[:, :k])
    outputs = outputs + rows[:, np.newaxis, :, k] + items[:, k:]
    return outputs.reshape(-1, outputs.shape[2])


def unit(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0.0, lengths, 1.0)


@pytest.mark.parametrize("with_users", [False, True])
@pytest.mark.parametrize("with_items", [False, True])
def test_blocks_predict_like_the_machine_on_one_hot_rows(
    with_users: bool, with_items: bool
) -> None:
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
    blocks_ = from_machine(machine, (mine, others), (n_users, n_items))
    np.testing.assert_allclose(blocks_.pairs(users, items), expected, atol=1e-10)
    everything = outputs_of_all(blocks_)
    np.testing.assert_allclose(everything, expected, rtol=1e-4, atol=1e-4)


def test_fitted_blocks_predict_like_the_machine_of_the_core(
    small: pd.DataFrame,
    user_table: pd.DataFrame,
    item_table: sp.csr_array,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results: list[Any] = []
    fit_polynomial = _core.fit_polynomial

    def spy(*arguments: Any) -> Any:
        results.append(fit_polynomial(*arguments))
        return results[-1]

    monkeypatch.setattr(_core, "fit_polynomial", spy)
    fitted = greedy(history_features=True, reoptimize="full", n_components=2)
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
        machines(fitted)[0].pairs(users, items), expected.reshape(len(rows), -1), atol=1e-10
    )


@pytest.mark.parametrize("bad", ["bad", 1j, {}])
def test_a_value_that_is_no_number_is_named_with_its_column_and_row(bad: object) -> None:
    values = pd.Series([1.0, 2.0, None, bad, 3.0, bad], dtype=object)
    table = pd.DataFrame({"user": range(6), "item": range(6), "stars": values})
    model = OrdinalRecommender(rating_column="stars")
    found = re.escape(f"must be real numbers (found {bad!r} in row 3 (counted from 0))")
    with pytest.raises(ValueError, match=f"^ratings: column 'stars' {found}"):
        model.fit(table)
    with pytest.raises(ValueError, match=f"^ratings: the rating values {found}"):
        model.fit((range(6), range(6), values.tolist()))
    with pytest.raises(ValueError, match=f"^ratings: column 'stars' {found}"):
        model.fit(part for part in (table[:2], table[2:]))
