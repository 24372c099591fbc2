"""Ids that conversion to numbers would merge, and ids of another type than in the ratings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from recommenders import quick

BIG = 2**53
N = 30


def ratings(users: Any, items: Any = None) -> Any:
    """Generate ratings: each of N users rates ten items."""
    rng = np.random.default_rng(0)
    item_ids = np.arange(10) if items is None else items
    return (
        np.repeat(users, 10),
        np.tile(item_ids, N),
        rng.integers(1, 6, 10 * N).astype(float),
    )


@pytest.mark.parametrize("start", [2**63, 2**53, -(2**53), 1e300, -1e19])
@pytest.mark.parametrize("column", [0, 1])
def test_float_ids_beyond_exact_integers_are_rejected(start: float, column: int) -> None:
    table = np.column_stack(ratings(np.arange(N))).astype(float)
    step = np.spacing(abs(float(start)))
    table[:, column] = float(start) + table[:, column] * step
    with pytest.raises(ValueError, match=r"^(user|item)s: the id .* floating-point number of 2"):
        quick().fit(table)
    users, items, values = table.T
    frame = pd.DataFrame({"user": users, "item": items, "rating": values})
    for given in (frame, (users, items, values), (users.tolist(), items.tolist(), values)):
        with pytest.raises(ValueError, match=r"the id .* is a floating-point number of 2"):
            quick().fit(given)


@pytest.mark.parametrize("column", [0, 1])
def test_single_precision_ids_beyond_exact_integers_are_rejected(column: int) -> None:
    table = np.column_stack(ratings(np.arange(N))).astype(np.float32)
    assert quick().fit(table).user_ids_.tolist() == list(range(N))
    table[:, column] += 2.0**24
    with pytest.raises(
        ValueError, match=r"the id .* is a floating-point number of 2\*\*24 or more"
    ):
        quick().fit(table)


EXACT: dict[str, list[Any]] = {
    "integers": [BIG + at for at in range(N)],
    "unsigned": [2**64 - 1 - at for at in range(N)],
    "signed and unsigned": [-1 - at for at in range(10)] + [2**63 + at for at in range(20)],
    "NUL": [name + "\0" * end for name in "abcdefghijklmno" for end in range(2)],
    "numbers and strings": [1, "1", *range(2, N)],
}


@pytest.mark.parametrize("case", EXACT)
def test_ids_that_conversion_would_merge_stay_distinct(case: str) -> None:
    users = np.empty(N, dtype=object)
    users[:] = EXACT[case]
    model = quick().fit(ratings(users))
    assert set(model.user_ids_.tolist()) == set(EXACT[case])
    table = model.recommend(EXACT[case], 2, exclude_seen=False)
    assert table["user"].drop_duplicates().tolist() == EXACT[case]


@pytest.mark.parametrize("ids", [[True, 1], [1, False], [np.True_, 2.5], [True, np.int8(3)]])
def test_booleans_among_numbers_are_rejected(ids: list[Any]) -> None:
    """True and False equal 1 and 0, so they would be the same ids."""
    users = np.empty(N, dtype=object)
    users[:] = [*ids, *range(10, 8 + N)]
    message = "^users: these ids mix booleans and numbers"
    with pytest.raises(ValueError, match=message):
        quick().fit(ratings(users))
    who, items, values = ratings(users)
    with pytest.raises(ValueError, match=message):
        quick().fit((who.tolist(), items.tolist(), values.tolist()))
    model = quick().fit(ratings(np.arange(N)))
    with pytest.raises(ValueError, match=message):
        model.recommend(ids)


@pytest.mark.parametrize("start", [2**63, 2**53, -1e19, np.float32(2**60)])
def test_floats_beyond_exact_integers_are_rejected_among_objects(start: Any) -> None:
    users = np.arange(N).astype(object)
    users[3] = float(start)
    users[4] = "name"
    with pytest.raises(ValueError, match=r"^users: the id .* floating-point number of 2"):
        quick().fit(ratings(users))
    users[3] = 3.5
    assert 3.5 in set(quick().fit(ratings(users)).user_ids_.tolist())


def test_new_ids_of_another_integer_type_stay_distinct() -> None:
    """Ids are int64 in the ratings, and uint64 in the features or in `fold_in`."""
    users, large = np.arange(N), np.array([2**63, 2**63 + 1], dtype=np.uint64)
    described = np.array([3, *large.tolist()], dtype=np.uint64)
    features = pd.DataFrame({"a": [0.0, 1.0, 2.0]}, index=described)
    model = quick().fit(ratings(users), user_features=features)
    assert set(model.user_ids_.tolist()) == {*range(N), *large.tolist()}
    folded = quick().fit(ratings(users)).fold_in((large, [1, 2], [5.0, 1.0]))
    assert folded.user_ids_.tolist() == [*range(N), *large.tolist()]


@pytest.mark.parametrize("side", ["user", "item"])
def test_features_with_string_ids_for_numeric_ids_are_rejected(side: str) -> None:
    numbers, names = np.arange(N), np.array([f"n{at}" for at in range(N)])
    by_name = pd.DataFrame({"a": np.arange(10.0)}, index=names[:10])
    by_number = pd.DataFrame({"a": np.arange(10.0)}, index=numbers[:10])
    rows = sp.csr_array(np.eye(10))
    message = rf"^{side}_features: the ids are (strings|numbers), but the ids of the ratings are"
    for given, features in [
        (ratings(numbers), by_name),
        (ratings(names, names[:10]), by_number),
        (ratings(names, names[:10]), rows),
    ]:
        with pytest.raises(TypeError, match=message):
            quick().fit(given, **{f"{side}_features": features})
    model = quick().fit(ratings(numbers), **{f"{side}_features": by_number})
    assert len(model.item_ids_) == 10


@pytest.mark.parametrize("extra", ["7", True, (1, 2), pd.Timestamp("2020-01-01")])
def test_feature_ids_of_another_type_add_no_ids(extra: Any) -> None:
    """The index contains numbers, like the items of the ratings, and one id of another type."""
    index = np.empty(11, dtype=object)
    index[:] = [*range(2, 12), extra]
    features = pd.DataFrame({"a": np.arange(11.0)}, index=pd.Index(index, tupleize_cols=False))
    error = ValueError if isinstance(extra, bool) else TypeError
    with pytest.raises(error, match=r"^item_features: "):
        quick().fit(ratings(np.arange(N)), item_features=features)
    mixed = np.empty(10, dtype=object)
    mixed[:] = [*range(8), "8", "9"]
    frame = pd.DataFrame({"a": np.arange(3.0)}, index=pd.Index([1, "8", "new"], dtype=object))
    model = quick().fit(ratings(np.arange(N), mixed), item_features=frame)
    assert set(model.item_ids_.tolist()) == {*mixed.tolist(), "new"}


def test_exclusions_apply_to_the_given_user() -> None:
    model = quick().fit(ratings(np.arange(N)))
    # The call repeats user 3. `exclude` has another order, and contains an unknown user.
    users = [3, 1, 3, 2]
    with pytest.warns(UserWarning, match=r"^exclude: 1 of 4 users were not .*\(99, "):
        found = model.recommend(
            users, 10, exclude={1: [0, 1, 2], 3: 9, 99: [4], 2: []}, exclude_seen=False
        )
    with pytest.warns(UserWarning, match=r"^exclude: 1 items were not in the ratings \(77, "):
        model.recommend([1], 3, exclude={1: [0, 77]})
    left: dict[Any, set[Any]] = {user: set(group["item"]) for user, group in found.groupby("user")}
    assert left[1] == set(range(3, 10))
    assert left[3] == set(range(9))
    assert left[2] == set(range(10))
    alone = model.recommend([1], 10, exclude=[0, 1, 2], exclude_seen=False)
    same = found[found["user"] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, alone)


def test_exclusions_are_added_to_seen_items() -> None:
    users, items, values = ratings(np.arange(N))
    keep = (users + items) % 3 > 0
    model = quick().fit((users[keep], items[keep], values[keep]))
    seen = set(items[keep & (users == 4)].tolist())
    found = model.recommend([4], 10, exclude={4: [2]})
    assert set(found["item"]) == set(range(10)) - seen - {2}
    # User 3 is known, although this call does not use the other users' tables.
    found = model.recommend(ratings=([4], [1], [5.0]), exclude={4: [2, 5], 3: [0]}, n=10)
    assert set(found["item"]) == set(range(10)) - {1, 2, 5}
    with pytest.warns(UserWarning, match="not in the ratings"):
        found = model.recommend([4, 77], 10, exclude={77: [3]}, exclude_seen=False)
    assert set(found[found["user"] == 77]["item"]) == set(range(10)) - {3}


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (pd.CategoricalIndex([f"n{at}" for at in range(10)]), "strings"),
        (pd.date_range("2020-01-01", periods=10), "dates"),
        (pd.Index([True, False]), "booleans"),
    ],
)
def test_features_with_dates_or_booleans_as_ids_are_rejected(ids: Any, kind: str) -> None:
    features = pd.DataFrame({"a": np.arange(float(len(ids)))}, index=ids)
    with pytest.raises(TypeError, match=rf"^item_features: the ids are {kind}, but the ids of the"):
        quick().fit(ratings(np.arange(N)), item_features=features)
    if kind == "strings":
        model = quick().fit(ratings(np.arange(N), ids), item_features=features)
        assert sorted(model.item_ids_) == sorted(ids)


@pytest.mark.parametrize(
    ("argument", "value", "error", "message"),
    [
        ("exclude", [[1]], TypeError, "exclude: the ids must be hashable"),
        ("exclude", [np.nan], ValueError, "exclude: an id is missing"),
        ("exclude", pd.DataFrame({"item": [1]}), TypeError, "exclude: must be one id or a list"),
        ("items", {1: 2}, TypeError, "items: must be one id or a list"),
        ("users", {1: 2}, TypeError, "users: must be one id or a list"),
    ],
)
def test_errors_of_unreadable_ids_name_the_argument(
    argument: str, value: Any, error: type[Exception], message: str
) -> None:
    model = quick().fit(ratings(np.arange(N)))
    with pytest.raises(error, match=f"^{message}"):
        model.recommend(**{"users": [1], argument: value})


def test_a_single_item_may_be_excluded_by_its_id() -> None:
    model = quick().fit(ratings(np.arange(N)))
    found = model.recommend([1], 10, exclude=4, exclude_seen=False)
    assert set(found["item"]) == set(range(10)) - {4}


@pytest.mark.parametrize("exclude", [["n1"], {"n1": [1]}, {1: ["n1"]}, {1: "n1"}])
def test_exclusions_with_ids_of_another_type_are_rejected(exclude: Any) -> None:
    model = quick().fit(ratings(np.arange(N)))
    with pytest.raises(
        TypeError, match=r"^exclude.*: the ids are strings, but the ids of the ratings"
    ):
        model.recommend([1], exclude=exclude)
    with pytest.raises(TypeError, match=r"^items: the ids are strings"):
        model.recommend([1], items=["n1"])


def test_integers_that_meet_floats_are_not_rounded() -> None:
    users = BIG + np.arange(N)
    users[0] = 0
    features = pd.DataFrame({"a": [0.0, 1.0]}, index=[0.0, 1.0])
    model = quick().fit(ratings(users), user_features=features)
    assert set(model.user_ids_.tolist()) == {*users.tolist(), 1}
    with pytest.raises(ValueError, match=r"^ids: 0\.5 is no .* would be rounded; give"):
        quick().fit(ratings(users), user_features=features.set_axis([0.5, 1.5]))
    small = pd.DataFrame({"a": [0.0, 1.0]}, index=[3.0, 99.0])
    model = quick().fit(ratings(np.arange(N)), user_features=small)
    assert model.user_ids_.tolist() == [*range(N), 99]
    assert model.user_ids_.dtype == np.int64
    large = quick().fit(ratings(users))
    folded = large.fold_in(([3.0, 4.0], [1, 2], [5.0, 1.0]))
    assert folded.user_ids_.tolist() == [*users.tolist(), 3, 4]
    assert folded.recommend([3.0], 2)["item"].tolist() == folded.recommend(3, 2)["item"].tolist()
    with pytest.raises(ValueError, match=r"^ids: 4\.5 is no .* would be rounded"):
        large.fold_in(([3.0, 4.5], [1, 2], [5.0, 1.0]))
    parts = [
        pd.DataFrame(dict(zip(("user", "item", "rating"), ratings(ids), strict=True)))
        for ids in (1.0 + np.arange(N), users)
    ]
    assert set(quick().fit(iter(parts)).user_ids_.tolist()) == {*range(1, N + 1), *users.tolist()}


@pytest.mark.parametrize("known", [np.arange(N), np.arange(N).astype(str)])
def test_new_ratings_with_numbers_as_strings_are_rejected(known: Any) -> None:
    model = quick(interactions=True).fit(ratings(known, known[:10]))
    other: Any = np.arange(N) if known.dtype.kind == "U" else np.arange(N).astype(str)
    for users, items, name in (
        (other[3:5], known[:2], "users"),
        (known[3:5], other[:2], "items"),
    ):
        new = (users, items, [5.0, 1.0])
        for call in (model.fold_in, lambda new: model.recommend(ratings=new)):
            with pytest.raises(TypeError, match=rf"^ratings \({name}\): "):
                call(new)
    assert model.fold_in((["new"] * 2, known[:2], [5.0, 1.0])).user_ids_[-1] == "new"
