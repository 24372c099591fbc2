import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, root_mean_squared_error

from dualgap.metrics import (
    average_precision_at_k,
    calibration_error,
    coverage_at_k,
    hit_ndcg_at_k,
    ndcg_at_k,
    recall_at_k,
    rmse,
)

GAINS = {"exponential": lambda rel: 2.0**rel - 1.0, "linear": lambda rel: rel}

# Relevance, score and group of up to 30 rows, with many ties and half stars.
ROWS = st.lists(
    st.tuples(st.integers(0, 10), st.integers(-3, 3), st.integers(0, 4)), min_size=1, max_size=30
).map(lambda rows: (np.array(rows)[:, 0] / 2, np.array(rows)[:, 1], np.array(rows)[:, 2]))


def per_user(y_true, y_score, k, groups, gain):
    values = []
    for group in np.unique(groups):
        rows = groups == group
        rel = GAINS[gain](y_true[rows])
        if rows.sum() == 1:  # scikit-learn rejects a single document
            values.append(float(rel[0] > 0))
        else:
            values.append(ndcg_score([rel], [y_score[rows]], k=k))
    return np.mean(values)


def random_rows(n=5000, users=200, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(1, 11, n) / 2, rng.normal(size=n), rng.integers(0, users, n)


@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("k", [1, 5, 1000])
@pytest.mark.parametrize("decimals", [0, 1, 12])
def test_ndcg_agrees_with_scikit_learn(gain, k, decimals):
    y_true, score, groups = random_rows()
    score = score.round(decimals)
    ours = ndcg_at_k(y_true, score, k, groups=groups, gain=gain)
    assert ours == pytest.approx(per_user(y_true, score, k, groups, gain), rel=1e-12)


@given(ROWS, st.integers(1, 8), st.sampled_from(sorted(GAINS)))
def test_ndcg_agrees_with_scikit_learn_on_ties_and_empty_ideals(rows, k, gain):
    y_true, score, groups = rows
    expected = per_user(y_true, score, k, groups, gain)
    assert ndcg_at_k(y_true, score, k, groups=groups, gain=gain) == pytest.approx(expected)


@given(ROWS, st.integers(1, 8), st.sampled_from(["average", "random", "stable"]), st.data())
def test_ndcg_depends_only_on_the_order_and_is_best_for_the_ideal_order(rows, k, ties, data):
    y_true, score, groups = rows
    value = ndcg_at_k(y_true, score, k, groups=groups, ties=ties, random_state=0)
    assert 0.0 <= value <= 1.0 + 1e-12

    has_ideal = np.mean([y_true[groups == group].any() for group in np.unique(groups)])
    best = ndcg_at_k(y_true, y_true, k, groups=groups, ties=ties, random_state=0)
    assert best == pytest.approx(has_ideal)

    increasing = np.exp(score.astype(float)) - 7.0
    same = ndcg_at_k(y_true, increasing, k, groups=groups, ties=ties, random_state=0)
    assert same == value

    if ties == "average":
        order = np.array(data.draw(st.permutations(range(len(score)))))
        shuffled = ndcg_at_k(y_true[order], score[order], k, groups=groups[order])
        assert shuffled == pytest.approx(value)


def test_average_ties_are_the_mean_over_orders_and_random_ties_sample_them():
    y_true, score, groups = np.array([5.0, 1.0, 3.0, 4.5]), np.array([1, 1, 2, 1]), np.zeros(4)
    orders = [
        ndcg_at_k(y_true[list(p)], score[list(p)], 2, groups=groups, ties="stable")
        for p in itertools.permutations(range(4))
    ]
    average = ndcg_at_k(y_true, score, 2, groups=groups)
    assert average == pytest.approx(np.mean(orders))
    rng = np.random.default_rng(0)
    drawn = [
        ndcg_at_k(y_true, score, 2, groups=groups, ties="random", random_state=rng)
        for _ in range(2000)
    ]
    assert set(np.round(drawn, 12)) == set(np.round(orders, 12))
    assert np.mean(drawn) == pytest.approx(average, abs=0.01)


def test_stable_ties_keep_the_order_of_the_input():
    assert ndcg_at_k([3, 0], [1, 1], 1, groups=[7, 7], ties="stable") == 1.0
    assert ndcg_at_k([0, 3], [1, 1], 1, groups=[7, 7], ties="stable") == 0.0


def test_a_seed_gives_the_same_random_order():
    y_true, score, groups = random_rows()
    first, again, other = (
        ndcg_at_k(y_true, score.round(), 5, groups=groups, ties="random", random_state=seed)
        for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("k", "exponential", "linear"),
    [
        (1, 1.0, 1.0),
        (2, 1.0, 1.0),
        (3, 0.931762267670765, 0.8891809465236166),
        (5, 0.9889667628706976, 0.9822359844138907),
    ],
)
@pytest.mark.parametrize("ties", ["average", "random", "stable"])
def test_ndcg_equals_values_computed_by_hand(k, exponential, linear, ties):
    relevance, score, groups = [3, 5, 1, 4, 2], [0.2, 0.9, 0.4, 0.8, 0.1], [0] * 5
    for gain, expected in (("exponential", exponential), ("linear", linear)):
        value = ndcg_at_k(relevance, score, k, groups=groups, gain=gain, ties=ties)
        assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "groups",
    [
        ["b", "a", "b", "a"],
        np.array([("u", 1), 2.5, ("u", 1), 2.5, None], dtype=object)[:4],
        [True, False, True, False],
        [-5, 10**12, -5, 10**12],
    ],
)
def test_groups_may_have_any_type(groups):
    assert ndcg_at_k([1, 5, 5, 1], [0, 1, 1, 0], 1, groups=groups) == 1.0


def test_a_group_without_relevance_counts_as_zero():
    assert ndcg_at_k([0, 0, 4], [1, 2, 3], 3, groups=[0, 0, 1]) == 0.5


def test_infinite_scores_rank_first_and_last():
    assert ndcg_at_k([1, 5, 3], [-np.inf, np.inf, 0], 3, groups=[0] * 3) == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_true": []}, "y_true is empty"),
        ({"y_true": [1.0, np.nan]}, "y_true contains NaN"),
        ({"y_true": [1.0, -0.5]}, "y_true must be non-negative"),
        (
            {"y_true": [1.0, 5000.0]},
            "y_true contains 5000, but gain='exponential' supports at most 1000",
        ),
        ({"y_true": [[1.0, 2.0]]}, "y_true must be one-dimensional"),
        ({"y_true": ["good", "bad"]}, "y_true must be an array of numbers"),
        ({"y_score": [1.0]}, "y_score and y_true must have the same length, got 1 and 2"),
        ({"y_score": [1.0, np.nan]}, "y_score contains NaN"),
        ({"groups": [0, 0, 0]}, "groups and y_true must have the same length"),
        ({"groups": [0.0, np.nan]}, "groups contains NaN"),
        ({"groups": ["a", None]}, "groups contains None"),
        ({"groups": [[0, 0]]}, "groups must be one-dimensional"),
        ({"k": 0}, "k must be an integer of at least 1"),
        ({"k": 2.0}, "k must be an integer"),
        ({"k": True}, "k must be an integer"),
        ({"gain": "cubic"}, "gain must be one of"),
        ({"ties": "worst"}, "ties must be one of"),
    ],
)
def test_ndcg_errors_name_the_argument(change, message):
    arguments = {"y_true": [1.0, 2.0], "y_score": [1.0, 2.0], "k": 1, "groups": [0, 0]} | change
    with pytest.raises(ValueError, match=message):
        ndcg_at_k(**arguments)


def test_rmse_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.normal(size=(2, 100))
    assert rmse(y_true, y_pred) == pytest.approx(root_mean_squared_error(y_true, y_pred))
    assert rmse([1, 2], [1, 2]) == 0.0


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([], [], "y_true is empty"),
        ([1.0], [1.0, 2.0], "y_pred and y_true must have the same length, got 2 and 1"),
        ([np.inf], [1.0], "y_true contains NaN or infinity"),
        ([1.0], [np.nan], "y_pred contains NaN or infinity"),
    ],
)
def test_rmse_errors_name_the_argument(y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        rmse(y_true, y_pred)


def test_calibration_errors_equal_values_computed_by_hand() -> None:
    # One threshold: four rows at .2, one of which is of level 1, and two at .9, both of level 1.
    low = np.array([0.2, 0.2, 0.2, 0.2, 0.9, 0.9])
    chances = np.column_stack([low, 1.0 - low])
    truth = [1.0, 2.0, 2.0, 2.0, 1.0, 1.0]
    expected = 4 / 6 * abs(0.2 - 0.25) + 2 / 6 * abs(0.9 - 1.0)
    assert calibration_error(truth, chances, [1.0, 2.0]) == pytest.approx(expected)
    # With one bin, the error compares the mean prediction with the overall share of level 1.
    one = calibration_error(truth, chances, [1.0, 2.0], n_bins=1)
    assert one == pytest.approx(abs(low.mean() - 0.5))


def test_frequencies_are_calibrated_and_certain_predictions_are_not() -> None:
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(4), size=20_000)
    levels = np.arange(4.0)
    truth = (chances.cumsum(axis=1) < rng.random((len(chances), 1))).sum(axis=1).astype(float)
    assert calibration_error(truth, chances, levels) < 0.01
    certain = np.eye(4)[chances.argmax(axis=1)]
    assert calibration_error(truth, certain, levels) > 0.1


def test_calibration_rejects_arrays_of_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"^probabilities must be of shape \(2, 2\)"):
        calibration_error([1.0, 2.0], np.ones((2, 3)), [1.0, 2.0])


def test_catalogue_metrics_equal_values_computed_by_hand() -> None:
    relevant = [{1, 2, 5}, {3}, set()]
    recommended = [[2, 9, 1, 8], [4, 3, -1, -1], [1, 2, 3, 4]]
    # The third user has no relevant items, and counts only for the coverage.
    assert recall_at_k(relevant, recommended, 1) == pytest.approx((1.0 + 0.0) / 2)
    assert recall_at_k(relevant, recommended, 4) == pytest.approx((2 / 3 + 1.0) / 2)
    gain = 1.0 / np.log2(np.arange(2, 6))
    first = (gain[0] + gain[2]) / gain[:3].sum()
    assert hit_ndcg_at_k(relevant, recommended, 4) == pytest.approx((first + gain[1]) / 2)
    precision = (1.0 + 2 / 3) / 3
    assert average_precision_at_k(relevant, recommended, 4) == pytest.approx((precision + 0.5) / 2)
    assert coverage_at_k(recommended, 10, 1) == pytest.approx(3 / 10)
    assert coverage_at_k(recommended, 10, 4) == pytest.approx(6 / 10)
    assert recall_at_k([set()], [[1, 2]], 2) == 0.0


@pytest.mark.parametrize("metric", [recall_at_k, hit_ndcg_at_k, average_precision_at_k])
def test_catalogue_metrics_reject_invalid_arguments(metric: Any) -> None:
    with pytest.raises(ValueError, match="k must be an integer"):
        metric([{1}], [[1]], 0)
    with pytest.raises(ValueError, match="one row per user"):
        metric([{1}], [1], 1)
    with pytest.raises(ValueError, match="same number of users, got 2 and 1"):
        metric([{1}, {2}], [[1]], 1)
    with pytest.raises(ValueError, match="n_items must be an integer"):
        coverage_at_k([[1]], 0, 1)


@pytest.mark.parametrize("users", [["a", "a\0"], [1, "1"]])
def test_groups_that_numpy_would_merge_stay_distinct(users):
    """A user with one row always has an ideal ranking. Merged users would not."""
    assert ndcg_at_k([1, 2], [0.9, 0.1], 1, groups=users) == 1.0


def test_a_nan_group_is_rejected_for_every_type():
    for nan in (np.nan, np.float32(np.nan), np.float16(np.nan)):
        with pytest.raises(ValueError, match="groups contains NaN"):
            ndcg_at_k([1, 2], [0.9, 0.1], 1, groups=[0, nan])
