"""Tables of other libraries, diverse lists, and warnings about training pairs in a test."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dualgap import OrdinalRecommender
from dualgap.recommend import Interactions, splits
from dualgap.recommend._tables import read_ids

LIBRARIES = ["pandas", "polars", "pyarrow"]


def clicks() -> pd.DataFrame:
    """Generate clicks: even users click even items, and odd users click odd items."""
    rng = np.random.default_rng(0)
    users, items = np.divmod(np.arange(60 * 40), 40)
    taken = ((users + items) % 2 == 0) & (rng.random(len(users)) < 0.5)
    names = np.array([f"item {item}" for item in items[taken]], dtype=object)
    return pd.DataFrame({"who": users[taken], "what": names, "other": 0.0})


def fit(table: Any, **settings: Any) -> OrdinalRecommender:
    model = OrdinalRecommender(
        task="clicks",
        interactions=Interactions(n_components=8, max_iter=4),
        user_column="who",
        item_column="what",
        random_state=0,
        n_jobs=1,
    )
    return model.fit(table, **settings)


def convert_table(table: pd.DataFrame, library: str) -> Any:
    if library == "pandas":
        return table
    module = pytest.importorskip(library)
    columns = {name: column.to_list() for name, column in table.items()}
    return module.table(columns) if library == "pyarrow" else module.DataFrame(columns)


def rows(table: Any) -> list[tuple[Any, ...]]:
    """The rows of a table of any library, without the scores."""
    names = list(getattr(table, "column_names", None) or table.columns)
    names = [name for name in names if name not in ("score", "contribution")]
    return list(zip(*(np.asarray(table[name]).tolist() for name in names), strict=True))


@pytest.mark.parametrize("library", LIBRARIES)
def test_results_are_tables_of_the_library_of_the_ratings(library: str, tmp_path: Path) -> None:
    table = clicks()
    plain, model = fit(table), fit(convert_table(table, library))
    model.save(tmp_path / "model")
    for each in (model, OrdinalRecommender.load(tmp_path / "model")):
        for call in (
            lambda m: m.recommend([3, 5], 4),
            lambda m: m.similar_items("item 3", 4),
            lambda m: m.similar_users(3, 4),
            lambda m: m.explain(3, "item 3", 2),
        ):
            found = call(each)
            assert type(found).__module__.partition(".")[0] == library
            assert rows(found) == rows(call(plain))
    new = pd.DataFrame({"who": [100] * 3, "what": ["item 1", "item 3", "item 5"]})
    mine = model.recommend(ratings=convert_table(new, library), n=3)
    assert rows(mine) == rows(plain.recommend(ratings=new, n=3))
    # The result has the type of the table passed to this call, not of the table passed to `fit`.
    assert isinstance(model.recommend(ratings=new, n=3), pd.DataFrame)
    users = convert_table(pd.DataFrame({"who": [5, 3]}), library)["who"]
    assert rows(model.recommend(users, 2)) == rows(plain.recommend([5, 3], 2))
    train, test = splits.at_random(convert_table(table, library), random_state=0)
    assert type(train).__module__.partition(".")[0] == library
    assert len(train) + len(test) == len(table)


@pytest.mark.parametrize("library", LIBRARIES)
def test_feature_tables_of_other_libraries_have_an_id_column(library: str) -> None:
    table = clicks()
    parity = pd.DataFrame({"what": [f"item {i}" for i in range(42)], "odd": [0.0, 1.0] * 21})
    given = parity.set_index("what") if library == "pandas" else convert_table(parity, library)
    model = fit(convert_table(table, library), item_features=given)
    found = rows(model.recommend(1, 1, items=["item 40", "item 41"]))
    assert found == [(1, 1, "item 41")]
    if library != "pandas":
        strange = convert_table(parity.rename(columns={"what": "id"}), library)
        with pytest.raises(
            ValueError, match=r"^item_features: no column 'what' of ids; the columns are"
        ):
            fit(table, item_features=strange)


def test_pandas_tables_need_no_other_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)
    assert len(fit(clicks()).recommend(3, 4)) == 4


def test_training_pairs_in_a_test_are_counted_in_a_warning() -> None:
    train, test = splits.at_random(clicks(), random_state=0)
    model = fit(train)
    both = pd.concat([test, train.iloc[:7]])
    message = rf"^test: 7 of {len(both)} relevant pairs were in the ratings of the fit"
    with pytest.warns(UserWarning, match=message):
        mixed = model.evaluate(both, k=10)
    assert mixed["recall@10"] < model.evaluate(test, k=10)["recall@10"]


def test_diversity_makes_the_items_of_a_list_less_similar() -> None:
    model = fit(clicks())
    vectors = model.item_vectors_ / np.linalg.norm(model.item_vectors_, axis=1, keepdims=True)

    def similarity(table: pd.DataFrame) -> float:
        places = model.item_ids_.get_indexer(table["what"])
        cosines = vectors[places] @ vectors[places].T
        return float(cosines[np.triu_indices(len(places), 1)].mean())

    plain, none, some, most = (
        model.recommend(3, 5, exclude_seen=False, **given)
        for given in ({}, {"diversity": 0.0}, {"diversity": 0.6}, {"diversity": 0.9})
    )
    pd.testing.assert_frame_equal(none, plain)
    assert similarity(most) <= similarity(some) < similarity(plain)
    for table in (some, most):
        # The first item is the best item, no item comes twice, and scores belong to their items.
        assert table["what"][0] == plain["what"][0]
        assert table["what"].is_unique
        np.testing.assert_allclose(table["score"], model.predict(3, table["what"]), rtol=1e-4)
    few = model.recommend([3, 4], 5, items=["item 1", "item 3"], diversity=1.0, exclude_seen=False)
    assert few.groupby("who").size().tolist() == [2, 2]
    every = model.recommend(range(60), 3, diversity=0.5)
    alone = pd.concat([model.recommend(user, 3, diversity=0.5) for user in (0, 31, 59)])
    picked = every[every["who"].isin([0, 31, 59])]
    assert picked["what"].tolist() == alone["what"].tolist()
    for bad in (-0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match=r"^diversity: "):
            model.recommend(3, diversity=bad)


def test_reading_ids_copies_nothing() -> None:
    ids = pd.Series(np.arange(100_000))
    read_ids(ids[:10], "users")
    tracemalloc.start()
    try:
        read = read_ids(ids, "users")
        assert tracemalloc.get_traced_memory()[1] < 4 * len(ids)
    finally:
        tracemalloc.stop()
    assert np.shares_memory(read.to_numpy(), ids.to_numpy())
    with pytest.raises(TypeError, match=r"^users: the ids must be hashable"):
        fit(([[1], [2]], [1, 2]))


def split_into_parts(table: pd.DataFrame, kind: str, folder: Path) -> Any:
    """Return the table as an iterator of tables, a Parquet file, or a folder of Parquet files."""
    pieces = [table.iloc[start : start + 300] for start in range(0, len(table), 300)]
    if kind == "iterator":
        return iter(pieces)
    pytest.importorskip("pyarrow")
    if kind == "file":
        path = folder / "clicks.parquet"
        table.to_parquet(path, row_group_size=200)
        return path
    for at, piece in enumerate(pieces):
        piece.to_parquet(folder / f"part{at}.parquet")
    return str(folder)


@pytest.mark.parametrize("kind", ["iterator", "file", "folder"])
def test_tables_in_parts_give_the_model_of_the_whole_table(kind: str, tmp_path: Path) -> None:
    table = clicks()
    whole, model = fit(table), fit(split_into_parts(table, kind, tmp_path))
    assert model.user_ids_.equals(whole.user_ids_)
    assert model.item_ids_.equals(whole.item_ids_)
    pd.testing.assert_frame_equal(model.recommend(), whole.recommend())
    larger = whole.fold_in(split_into_parts(table.assign(who=table["who"] + 60), kind, tmp_path))
    assert len(larger.user_ids_) == 120
    with pytest.warns(UserWarning, match=r"^test: .* were in the ratings of the fit"):
        assert whole.evaluate(split_into_parts(table, kind, tmp_path), k=5)["recall@5"] == 0.0


def test_ratings_in_parts_keep_values_and_times(tmp_path: Path) -> None:
    table = clicks().assign(rating=np.arange(len(clicks())) % 5 + 1.0)
    table = pd.concat([table, table.assign(rating=6.0 - table["rating"])])
    table["timestamp"] = np.arange(len(table))[::-1]
    names = {"user_column": "who", "item_column": "what", "random_state": 0, "n_jobs": 1}
    for kind in ("iterator", "file"):
        with pytest.warns(UserWarning, match="latest rating of each pair"):
            whole = OrdinalRecommender(2, **names).fit(table)
        with pytest.warns(UserWarning, match="latest rating of each pair"):
            model = OrdinalRecommender(2, **names).fit(split_into_parts(table, kind, tmp_path))
        users, items = table["who"], table["what"]
        np.testing.assert_array_equal(model.predict(users, items), whole.predict(users, items))


def test_errors_of_ratings_in_parts_name_the_problem(tmp_path: Path) -> None:
    table = clicks()
    with pytest.raises(FileNotFoundError, match=r"^ratings: .*nowhere does not exist or contains"):
        fit(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"contains no Parquet files"):
        fit(tmp_path)
    with pytest.raises(TypeError, match=r"^ratings: the parts .* must be tables, .* got tuple$"):
        fit(zip(table["who"], table["what"], strict=True))
    with pytest.raises(ValueError, match=r"^ratings: there must be at least one rating"):
        fit(iter([]))
    strange = table.assign(what=np.arange(len(table)))
    with pytest.raises(TypeError, match=r"^ratings: a later part \(items\): the ids are numbers"):
        fit(iter([table, strange]))
    with pytest.raises(ValueError, match=r"^ratings: a column of some parts is missing"):
        fit(iter([table, table.assign(rating=1.0)]))
    lost = table.copy()
    lost.loc[421, "what"] = None
    message = r"^ratings: column 'what': an id is missing \(NaN or None\), in row 421 \(counted"
    with pytest.raises(ValueError, match=message):
        fit(split_into_parts(lost, "iterator", tmp_path))
    with pytest.raises(ValueError, match=message):
        fit(lost)
    high = table.assign(rating=1.0)
    high.loc[7, "rating"] = np.inf
    with pytest.raises(ValueError, match=r"^ratings: column 'rating' must not .* in row 7 \("):
        fit(high)
    pytest.importorskip("pyarrow")
    text = tmp_path / "clicks.csv"
    table.to_csv(text)
    with pytest.raises(ValueError, match=r"clicks\.csv is not a Parquet file"):
        fit(text)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
def test_dates_and_time_zones_of_ids_are_kept(library: str, zone: str | None) -> None:
    table = clicks()
    days = pd.to_datetime("2020-03-01") + pd.to_timedelta(table["what"].str[5:].astype(int), "D")
    times = days.dt.tz_localize(zone) if zone else days.dt.date
    module = pytest.importorskip(library)
    dated = convert_table(table.assign(what=times), library)
    if library == "polars" and zone:
        dated = dated.with_columns(module.col("what").dt.convert_time_zone(zone))
    model = fit(dated)
    found = model.recommend([3, 5], 4)
    kind = "dtype" if library == "polars" else "type"
    column = dated["what"]
    assert getattr(found["what"], kind) == getattr(column, kind)
    plain = fit(table.assign(what=times)).recommend([3, 5], 4)
    values = found["what"].to_list() if library == "polars" else found["what"].to_pylist()
    assert values == plain["what"].tolist()
    # A column and a list of the same ids are the same ids.
    part = column[:40] if library == "polars" else column.slice(0, 40).combine_chunks()
    for items in (part, times[:40].tolist()):
        assert rows(model.recommend([3], 2, items=items)) == rows(
            model.recommend([3], 2, items=column[:40])
        )
