"""Saving and loading of recommenders, with invalid and malicious files."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from recommenders import (
    N_ITEMS,
    N_USERS,
    UNKNOWN,
    assert_same,
    greedy,
    quick,
)

from dualgap import OrdinalRecommender
from dualgap.recommend import Interactions

# --- Files ---

# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def make_file(kind: str, small: pd.DataFrame) -> OrdinalRecommender:
    named = small.assign(user="u" + small["user"].astype(str), item=small["item"] - 30)
    users = pd.DataFrame({"x": np.arange(3.0)}, index=["u1", "u2", "new"])
    if kind == "regression":
        return quick(task="regression", history_features=True).fit(named, user_features=users)
    if kind == "conditional-gradient":
        return greedy(n_components=np.int64(2)).fit(named, user_features=users)
    return quick(levels=np.arange(0.5, 5.5, 0.5), tempering=np.float64(0.9)).fit(
        named, user_features=users
    )


@pytest.mark.parametrize("how", ["save", "pickle"])
@pytest.mark.parametrize("kind", ["ordinal", "regression", "conditional-gradient"])
def test_a_loaded_model_equals_the_saved_model(
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
        found = (each.predict(users, item, unknown="ignore") for each in (loaded, fitted))
        np.testing.assert_array_equal(*found)
    ranked = (each.recommend(users, 7, unknown="ignore") for each in (loaded, fitted))
    pd.testing.assert_frame_equal(*ranked)
    liked = (each.recommend(users[:-1], 7, rank_by="like") for each in (loaded, fitted))
    pd.testing.assert_frame_equal(*liked)
    pd.testing.assert_frame_equal(loaded.similar_items([-3, 4]), fitted.similar_items([-3, 4]))
    if kind != "regression":
        np.testing.assert_array_equal(
            loaded.predict_proba(users[:-1], 1), fitted.predict_proba(users[:-1], 1)
        )
    np.testing.assert_array_equal(loaded.levels_, fitted.levels_)
    assert loaded.objective_ == fitted.objective_
    assert loaded.duality_gap_ == fitted.duality_gap_
    assert loaded.n_components_ == fitted.n_components_
    assert loaded.history_.keys() == fitted.history_.keys()
    for name, column in fitted.history_.items():
        np.testing.assert_array_equal(loaded.history_[name], column)
    for name, value in fitted.get_params().items():
        if name == "method":
            assert loaded.method == value
        else:
            np.testing.assert_array_equal(loaded.get_params()[name], value)


def test_parameters_that_change_after_a_fit_do_not_change_the_meaning_of_values(
    tmp_path: Path, small: pd.DataFrame
) -> None:
    likes = Interactions(like_threshold=4.0)
    new = pd.DataFrame({"user": UNKNOWN, "item": [1, 2, 3], "rating": [5.0, 1.0, 4.0]})
    for before, after in ((likes, True), (True, likes)):
        fitted = quick(task="clicks", interactions=before).fit(small)
        fitted.set_params(interactions=after).save(tmp_path / "model")
        loaded = OrdinalRecommender.load(tmp_path / "model")
        assert loaded._fitted.counts is fitted._fitted.counts is (before is True)
        found = (each.fold_in(new).predict(UNKNOWN, range(9)) for each in (fitted, loaded))
        np.testing.assert_array_equal(*found)


def test_a_changed_task_needs_another_fit(tmp_path: Path, small: pd.DataFrame) -> None:
    fitted = quick().fit(small)
    scores, shares = fitted.score(small), fitted.predict_proba(1, 1)
    fitted.set_params(task="clicks")
    assert fitted.score(small) == scores
    np.testing.assert_array_equal(fitted.predict_proba(1, 1), shares)
    with pytest.raises(ValueError, match=r'^task: the model was fitted with "ordinal"'):
        fitted.save(tmp_path / "model")
    clicks = quick(task="clicks").fit(small).set_params(task="ordinal")
    with pytest.raises(AttributeError, match=r'task="clicks" gives no level probabilities'):
        clicks.predict_proba(1, 1)
    with pytest.warns(UserWarning, match="were in the ratings of the fit"):
        assert 0.0 <= clicks.score(small) <= 1.0


class Bomb:
    """An object that creates the file `mark` when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def repack(raw: bytes, **changes: Any) -> bytes:
    with np.load(io.BytesIO(raw)) as file:
        arrays = dict(file)
    meta = changes.pop("meta", None)
    if isinstance(meta, dict):
        known = json.loads(arrays["meta"].tobytes())
        for name, value in meta.items():
            known[name] = known[name] | value if isinstance(value, dict) else value
        meta = known
        changes["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    elif meta is not None:
        changes["meta"] = np.frombuffer(meta, dtype=np.uint8)
    arrays |= changes
    out = io.BytesIO()
    np.savez(out, **{name: array for name, array in arrays.items() if array is not None})
    return out.getvalue()


def test_a_repacked_file_without_changes_loads(tmp_path: Path, small: pd.DataFrame) -> None:
    fitted = quick().fit(small)
    fitted.save(tmp_path / "model")
    (tmp_path / "model").write_bytes(repack((tmp_path / "model").read_bytes(), meta={}))
    assert_same(OrdinalRecommender.load(tmp_path / "model"), fitted)


@pytest.mark.parametrize("how", ["save", "pickle"])
@pytest.mark.parametrize("task", ["ordinal", "regression", "clicks"])
def test_a_model_of_an_earlier_version_does_not_add_ratings(
    tmp_path: Path, small: pd.DataFrame, task: Any, how: str
) -> None:
    fitted = quick(task=task, interactions=task == "clicks").fit(small)
    new = ([fitted.user_ids_[0], "new"], fitted.item_ids_[:2], [4.0, 2.0])
    expected = fitted.fold_in(new).recommend(new[0])
    path = tmp_path / "model"
    if how == "save":
        fitted.save(path)
        raw = path.read_bytes()
        with np.load(io.BytesIO(raw)) as file:
            meta = json.loads(file["meta"].tobytes())
        del meta["fitted"]["seen_values"], meta["fitted"]["counts"]
        path.write_bytes(repack(raw, meta=json.dumps(meta).encode(), seen_values=None))
        early = OrdinalRecommender.load(path)
    else:
        ones = np.ones(len(fitted._fitted.seen.values), np.int8)
        seen = replace(fitted._fitted.seen, values=ones)
        fitted._fitted = replace(fitted._fitted, seen=seen, stores_ratings=False)
        early = pickle.loads(pickle.dumps(fitted))
    early.save(path)
    for model in (early, early.fold_in(new), OrdinalRecommender.load(path)):
        pd.testing.assert_frame_equal(model.fold_in(new).recommend(new[0]), expected)
        if task == "clicks":
            model.fold_in(new, add=True)
            continue
        with pytest.raises(ValueError, match=r"^add: .* earlier version, .*; fit again$"):
            model.fold_in(new, add=True)
    early.fit(small).fold_in(new, add=True)


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
        lambda raw, mark: repack(raw, meta={"fitted": {"record": {"$dict": []}}}),
        lambda raw, mark: repack(raw, meta={"parameters": {"method": {"name": "x"}}}),
        lambda raw, mark: repack(raw, meta=b"[1]"),
        lambda raw, mark: repack(raw, meta=b"\xff\xfe"),
        lambda raw, mark: repack(raw, meta={"format": 99}),
        lambda raw, mark: repack(raw, meta={"fitted": {"n_models": 5}}),
        lambda raw, mark: repack(raw, meta={"fitted": {"n_models": 0}}),
        lambda raw, mark: repack(raw, meta={"parameters": {"strange": 1}}),
        lambda raw, mark: repack(raw, meta={"parameters": {"method": "strange"}}),
        lambda raw, mark: repack(raw, item_ids=np.zeros(N_ITEMS, dtype=np.int64)),
        lambda raw, mark: repack(raw, seen_items=np.full(800, 10**6, dtype=np.int32)),
        lambda raw, mark: repack(raw, seen_values=np.full(800, 6, dtype=np.int8)),
        lambda raw, mark: repack(raw, seen_values=np.zeros(800, dtype=np.int8)),
        lambda raw, mark: repack(raw, seen_offsets=np.arange(N_USERS + 1)[::-1].copy()),
        lambda raw, mark: repack(raw, **{"model0.users": np.zeros((3, 3))}),
        lambda raw, mark: repack(raw, **{"model1.output": np.zeros((1, 4))}),
    ],
)
def test_invalid_model_files_are_rejected_without_running_code(
    tmp_path: Path, small: pd.DataFrame, spoil: Any
) -> None:
    path, mark = tmp_path / "model", tmp_path / "executed"
    quick(max_iter=1).fit(small).save(path)
    path.write_bytes(spoil(path.read_bytes(), mark))
    with pytest.raises(ValueError, match="model: not a saved OrdinalRecommender") as caught:
        OrdinalRecommender.load(path)
    assert "allow_pickle=`" not in str(caught.value)
    assert not mark.exists()


def test_a_history_without_its_epochs_is_rejected(tmp_path: Path, small: pd.DataFrame) -> None:
    path = tmp_path / "model.npz"
    make_file("regression", small).save(path)
    path.write_bytes(path.read_bytes().replace(b"epoch", b"epoxh"))
    with pytest.raises(ValueError, match="not a saved OrdinalRecommender"):
        OrdinalRecommender.load(path)


def test_missing_files_and_other_archives_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OrdinalRecommender.load(tmp_path / "missing")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme", "hello")
    with pytest.raises(ValueError, match="not a saved OrdinalRecommender"):
        OrdinalRecommender.load(tmp_path / "other.zip")


@pytest.mark.parametrize("ids", [["a", 1], [(1, 2), (3, 4)], ["a", "a\0"], [1, 2**70]])
def test_saving_ids_that_only_pickle_can_store_is_an_error(tmp_path: Path, ids: list[Any]) -> None:
    items = np.arange(40) // 2
    fitted = quick().fit(([ids[n % 2] for n in range(40)], items, 1.0 + np.arange(40) % 3))
    with pytest.raises(TypeError, match=r"save: the user ids .*pickle"):
        fitted.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert_same(pickle.loads(pickle.dumps(fitted)), fitted)
