"""Recommenders in files of plain arrays (npz) that execute nothing when loaded."""

from __future__ import annotations

import json
import os
import zipfile
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._blocks import BLOCK_FIELDS, Blocks

if TYPE_CHECKING:
    from dualgap.recommend import OrdinalRecommender

_FORMAT = 1

_Model = TypeVar("_Model", bound="OrdinalRecommender")


def write_model(path: str | os.PathLike[str], model: OrdinalRecommender) -> None:
    """Write a fitted recommender."""
    parameters = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in ("callback", "random_state")
    }
    if parameters["levels"] is not None:
        parameters["levels"] = np.asarray(parameters["levels"], dtype=float).tolist()
    meta = {
        "format": _FORMAT,
        "n_models": len(model._models),
        "parameters": parameters,
        "n_components": model.n_components_,
    }
    arrays: dict[str, NDArray[Any]] = {
        "meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
        "user_ids": _plain(model.user_ids_, "user"),
        "item_ids": _plain(model.item_ids_, "item"),
        "levels": model.levels_,
        "certificate": np.array([model.objective_, model.duality_gap_]),
        "seen_offsets": model._seen.indptr,
        "seen_items": model._seen.indices,
    }
    for number, (blocks, history) in enumerate(zip(model._models, model.history_, strict=True)):
        for name in BLOCK_FIELDS:
            arrays[f"model{number}.{name}"] = getattr(blocks, name)
        for name, column in history.items():
            arrays[f"history{number}.{name}"] = column
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_model(path: str | os.PathLike[str], kind: type[_Model]) -> _Model:
    """Read a recommender written by `write_model`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        meta = json.loads(arrays["meta"].tobytes())
        if meta["format"] != _FORMAT:
            msg = f"{os.fspath(path)}: format {meta['format']} is not {_FORMAT}"
            raise ValueError(msg)
        model = kind(**meta["parameters"])
        model.user_ids_ = pd.Index(arrays["user_ids"])
        model.item_ids_ = pd.Index(arrays["item_ids"])
        model.levels_ = arrays["levels"]
        model.objective_, model.duality_gap_ = map(float, arrays["certificate"])
        model.n_components_ = meta["n_components"]
        offsets, items = arrays["seen_offsets"], arrays["seen_items"]
        shape = (len(model.user_ids_), len(model.item_ids_))
        model._seen = sp.csr_array((np.ones(len(items)), items, offsets), shape)
        numbers = range(meta["n_models"])
        model._models = [
            Blocks(*(arrays[f"model{number}.{name}"] for name in BLOCK_FIELDS))
            for number in numbers
        ]
        model.history_ = [
            {
                name.split(".", 1)[1]: column
                for name, column in arrays.items()
                if name.startswith(f"history{number}.")
            }
            for number in numbers
        ]
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError, zipfile.BadZipFile) as error:
        msg = f"{os.fspath(path)}: not a saved OrdinalRecommender ({error!r})"
        raise ValueError(msg) from error
    return model


def _plain(ids: pd.Index[Any], what: str) -> NDArray[Any]:
    """Ids as an array that needs no pickle."""
    array = ids.to_numpy()
    if array.dtype.kind in "iufb":
        return array
    if all(isinstance(name, str) for name in array):
        return array.astype(np.str_)
    if all(isinstance(name, int) and not isinstance(name, bool) for name in array):
        return array.astype(np.int64)
    msg = f"save: the {what} ids must be all strings or all numbers; use pickle for other types"
    raise TypeError(msg)
