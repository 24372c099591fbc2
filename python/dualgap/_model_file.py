"""Recommenders in files of plain arrays."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._blocks import BLOCK_FIELDS, Blocks
from dualgap._npz import read_meta, read_npz, refused_as, write_npz

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
    write_npz(path, meta, arrays)


def read_model(path: str | os.PathLike[str], kind: type[_Model]) -> _Model:
    """Read a recommender written by `write_model`."""
    with refused_as(path, "a saved OrdinalRecommender"):
        arrays = read_npz(path)
        meta = read_meta(arrays, format=_FORMAT)
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
        _check(model)
    return model


def _check(model: OrdinalRecommender) -> None:
    """Refuse parts that do not fit together: SciPy reads outside of memory on wrong offsets."""
    model._check_parameters()
    seen = model._seen
    seen.check_format(full_check=True)
    levels = model.levels_
    n_outputs = len(levels) - 1 if model.reduction == "mcrank" else 1
    good = (
        len(model._models) > 0
        and seen.indptr[-1] == len(seen.indices)
        and bool((np.diff(seen.indptr) >= 0).all())
        and levels.dtype == np.float64
        and n_outputs > 0
        and bool((np.diff(levels) > 0.0).all())
        and model.user_ids_.is_unique
        and model.item_ids_.is_unique
    )
    for blocks in model._models:
        n_bases = len(blocks.output)
        width = n_bases + n_outputs
        good &= (
            all(getattr(blocks, name).dtype == np.float64 for name in BLOCK_FIELDS)
            and blocks.users.shape == (len(model.user_ids_) + 1, width)
            and blocks.items.shape == (len(model.item_ids_) + 1, width)
            and blocks.output.shape == (n_bases, n_outputs)
            and blocks.intercept.shape == (n_outputs,)
        )
    if not good:
        msg = "the arrays do not fit together"
        raise ValueError(msg)


def _plain(ids: pd.Index[Any], what: str) -> NDArray[Any]:
    """Ids as an array that needs no pickle."""
    array = ids.to_numpy()
    if array.dtype.kind in "iufb":
        return array
    if all(isinstance(name, str) for name in array):
        # NumPy's strings end before their trailing NULs.
        if not any(name.endswith("\0") for name in array):
            return array.astype(np.str_)
    elif all(isinstance(name, int) and not isinstance(name, bool) for name in array):
        with suppress(OverflowError):
            return array.astype(np.int64)
    msg = f"save: the {what} ids must be all strings or all numbers; use pickle for other types"
    raise TypeError(msg)
