"""Features, ratings and ids of any size and layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from recommenders import quick

from dualgap.datasets import synthetic_ratings
from dualgap.recommend import ConditionalGradient, Interactions, Variational

RATINGS = synthetic_ratings(400, 30, 20)
USERS, ITEMS, VALUES = (RATINGS[name].to_numpy() for name in ("user", "item", "rating"))
RNG = np.random.default_rng(0)
TABLES = {
    "users": RNG.normal(size=(30, 2)),
    "items": RNG.normal(size=(20, 2)),
}


def predictions(**features: Any) -> Any:
    return quick().fit((USERS, ITEMS, VALUES), **features).predict(USERS, ITEMS)


# Multiplication by a power of two is exact.
@pytest.mark.parametrize("exponent", [-1000, -600, -540, -300, 300, 520, 600, 1000])
@pytest.mark.parametrize("side", TABLES)
@pytest.mark.parametrize("sparse", [False, True])
def test_units_of_features_do_not_change_predictions(
    exponent: int, side: str, sparse: bool
) -> None:
    name = f"{side[:-1]}_features"
    make = sp.csr_array if sparse else pd.DataFrame
    expected = predictions(**{name: make(TABLES[side])})
    found = predictions(**{name: make(np.ldexp(TABLES[side], exponent))})
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, predictions())


def test_scales_of_feature_rows_do_not_change_predictions() -> None:
    scales = np.ldexp(1.0, np.linspace(-1000, 1000, 30).astype(int))[:, None]
    expected = predictions(user_features=sp.csr_array(TABLES["users"]))
    found = predictions(user_features=sp.csr_array(TABLES["users"] * scales))
    assert np.array_equal(found, expected)


def test_errors_of_unhashable_feature_values_name_the_argument() -> None:
    features = pd.DataFrame({"words": [["a"]] * 30})
    with pytest.raises(TypeError, match=r"^user_features: .*hashable"):
        predictions(user_features=features)


@pytest.mark.parametrize("columns", ["ids", "all"])
def test_byte_order_does_not_change_predictions(columns: str) -> None:
    users, items = USERS.astype(">i8"), ITEMS.astype(">i4")
    values = VALUES.astype(">f8") if columns == "all" else VALUES
    found = quick().fit((users, items, values)).predict(users, items)
    assert np.array_equal(found, predictions())


@pytest.mark.parametrize("part", [0, 1, 2])
def test_masked_ratings_are_rejected(part: int) -> None:
    given = [USERS, ITEMS, VALUES]
    given[part] = np.ma.array(given[part], mask=np.arange(len(VALUES)) % 7 == 0)
    with pytest.raises(ValueError, match="has masked entries"):
        quick().fit(tuple(given))


@pytest.mark.parametrize("kind", ["masked", "too large", "short", "text"])
def test_errors_of_invalid_weights_name_the_argument(kind: str) -> None:
    ones = np.ones(len(VALUES))
    weights = {
        "masked": np.ma.array(ones, mask=USERS[0] == USERS),
        "too large": 1e308 * ones,
        "short": ones[1:],
        "text": ["a"] * len(ones),
    }[kind]
    with pytest.raises(ValueError, match=r"^sample_weight: "):
        quick().fit((USERS, ITEMS, VALUES), sample_weight=weights)


@pytest.mark.parametrize("k", ["5", (), 0, (0,), (1.5,), True, (True,)])
@pytest.mark.parametrize("catalogue", [False, True])
def test_the_number_of_ranks_must_be_a_positive_integer(k: Any, catalogue: bool) -> None:
    model = quick().fit((USERS, ITEMS, VALUES))
    with pytest.raises(ValueError, match=r"^k: must be (a|an) "):
        model.evaluate((USERS, ITEMS, VALUES), k=k, catalogue=catalogue)


def test_a_masked_mask_is_rejected() -> None:
    model = quick().fit((USERS, ITEMS, VALUES))
    mask = np.ma.array(np.ones(20, dtype=bool), mask=np.arange(20) % 2 == 0)
    with pytest.raises(ValueError, match=r"^mask: has masked entries"):
        model.recommend([USERS[0]], mask=mask)


@pytest.mark.parametrize("weight", [1e11, 1e150, 1e305])
@pytest.mark.parametrize("kind", ["all", "one"])
def test_errors_of_too_large_weights_name_the_argument(weight: float, kind: str) -> None:
    weights = np.full(len(VALUES), weight)
    weights[1:] = weight if kind == "all" else 1.0
    with pytest.raises(ValueError, match=r"^sample_weight: must be at most 1e\+10, got 1e\+"):
        quick().fit((USERS, ITEMS, VALUES), sample_weight=weights)
    fitted = quick().fit((USERS, ITEMS, VALUES), sample_weight=np.minimum(weights, 1e10))
    assert np.isfinite(fitted.predict(USERS, ITEMS)).all()


@pytest.mark.parametrize("value", ["False", 1, None])
def test_switches_of_methods_must_be_booleans(value: Any) -> None:
    models = {
        "popularity": quick(method=Variational(popularity=value)),
        "blend": quick(interactions=Interactions(blend=value)),
    }
    for name, model in models.items():
        with pytest.raises(ValueError, match=f"^{name}: must be True or False, got {value!r}"):
            model.fit((USERS, ITEMS, VALUES))


@pytest.mark.parametrize("exponent", [-300, -7, 10, 300])
@pytest.mark.parametrize("with_times", [False, True])
def test_units_of_ratings_do_not_change_a_regression(exponent: int, with_times: bool) -> None:
    times: dict[str, Any] = {}
    if with_times:
        times["timestamps"] = 1e9 + 86400.0 * np.arange(len(VALUES))

    def predictions_of(values: Any) -> tuple[Any, Any]:
        model = quick(task="regression", time_features=with_times, interactions=False)
        model.fit((USERS, ITEMS, values), user_features=pd.DataFrame(TABLES["users"]), **times)
        wider = model.fold_in((["new"] * 3, ITEMS[:3], values[:3]))
        return model.predict(USERS, ITEMS, **times), wider.predict(["new"] * 9, ITEMS[:9])

    for found, expected in zip(
        predictions_of(np.ldexp(VALUES, exponent)), predictions_of(VALUES), strict=True
    ):
        np.testing.assert_allclose(np.ldexp(found, -exponent), expected, rtol=1e-12)


@pytest.mark.parametrize("factor", [1e-200, 1e200, 1e307])
@pytest.mark.parametrize("task", ["ordinal", "regression"])
def test_ratings_of_extreme_spread_are_rejected(task: Any, factor: float) -> None:
    with pytest.raises(ValueError, match=r"^ratings: their standard deviation is "):
        quick(task=task).fit((USERS, ITEMS, factor * VALUES))


@pytest.mark.parametrize("task", ["ordinal", "regression"])
@pytest.mark.parametrize(("factor", "offset"), [(1.0, 2e7), (1e-50, 0.0), (1e60, 0.0), (1e3, -1e8)])
def test_recommendations_are_the_best_predictions_for_ratings_of_any_size(
    task: Any, factor: float, offset: float
) -> None:
    """Recommendations are computed in single precision."""
    model = quick(task=task, interactions=False).fit((USERS, ITEMS, factor * VALUES + offset))
    table = model.recommend(range(10), n=5, exclude_seen=False)
    assert len(table) == 50
    for user, own in table.groupby("user"):
        predicted = model.predict(np.full(20, user), np.arange(20))
        assert own["item"].tolist() == np.argsort(-predicted, kind="stable")[:5].tolist()
        error = own["score"].to_numpy() - predicted[own["item"]]
        assert np.abs(error).max() < 1e-5 * factor * np.ptp(VALUES)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_units_of_ratings_do_not_change_the_chosen_radius() -> None:
    for exponent in (-20, 20):
        values = np.ldexp(VALUES, exponent) + np.ldexp(1.0, exponent)
        model = quick(task="regression", method=ConditionalGradient(reoptimize="output", tol=0.01))
        error = model.fit((USERS, ITEMS, values)).predict(USERS, ITEMS) - values
        assert np.ldexp(error, -exponent).std() < 0.8 * VALUES.std()
