"""Recommenders in files of plain arrays."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._npz import read_meta, read_npz, write_npz
from dualgap._sparse import checked_csr
from dualgap._validation import FloatArray
from dualgap.recommend._factors import BLOCK_FIELDS, Blocks
from dualgap.recommend._interactions import InteractionFactors
from dualgap.recommend._learned import PRIOR_FIELDS, Learned, SidePrior
from dualgap.recommend._method import Fitted
from dualgap.recommend._times import FittedTimes, TimeWeights

_FORMAT = 4


@dataclass(frozen=True)
class State:
    """What a fitted recommender consists of."""

    parameters: dict[str, Any]
    user_ids: pd.Index[Any]
    item_ids: pd.Index[Any]
    levels: FloatArray
    n_components: int
    seen: sp.csr_array
    fitted: Fitted

    def check(self, n_outputs: int) -> None:
        """Refuse parts that do not fit together."""
        n_models = len(self.fitted.models)
        alone = self.fitted.interactions is not None and n_models == 0
        good = (
            (n_models > 0 or alone)
            and self.levels.dtype == np.float64
            and n_outputs > 0
            and bool((np.diff(self.levels) > 0.0).all())
            and self.user_ids.is_unique
            and self.item_ids.is_unique
        )
        for blocks in self.fitted.models:
            n_bases = len(blocks.output)
            width = n_bases + n_outputs
            good &= (
                all(getattr(blocks, name).dtype == np.float64 for name in BLOCK_FIELDS)
                and all(bool(np.isfinite(getattr(blocks, name)).all()) for name in BLOCK_FIELDS)
                and blocks.users.shape == (len(self.user_ids) + 1, width)
                and blocks.items.shape == (len(self.item_ids) + 1, width)
                and blocks.output.shape == (n_bases, n_outputs)
                and blocks.intercept.shape == (n_outputs,)
            )
        good &= len(self.fitted.learned) in (0, n_models)
        for blocks, learned in zip(self.fitted.models, self.fitted.learned, strict=False):
            good &= learned.fits(len(blocks.output), n_outputs)
        if self.fitted.times is not None:
            good &= self.fitted.times.fits(n_models, n_outputs)
        if self.fitted.interactions is not None:
            good &= self.fitted.interactions.fits(len(self.user_ids), len(self.item_ids))
        if not good:
            msg = "the arrays do not fit together"
            raise ValueError(msg)


_RECORD = ("objective", "dual_objective", "null_objective", "converged", "certificate", "like")
_FACTORS = ("users", "items")


def write_state(path: str | os.PathLike[str], state: State) -> None:
    """Write a fitted recommender."""
    meta = {
        "format": _FORMAT,
        "n_models": len(state.fitted.models),
        "parameters": state.parameters,
        "n_components": state.n_components,
        "record": {name: getattr(state.fitted, name) for name in _RECORD},
    }
    arrays: dict[str, NDArray[Any]] = {
        "user_ids": _plain(state.user_ids, "user"),
        "item_ids": _plain(state.item_ids, "item"),
        "levels": state.levels,
        "seen_offsets": state.seen.indptr,
        "seen_items": state.seen.indices,
    }
    for number, blocks in enumerate(state.fitted.models):
        for name in BLOCK_FIELDS:
            arrays[f"model{number}.{name}"] = getattr(blocks, name)
    for number, learned in enumerate(state.fitted.learned):
        for side in _FACTORS:
            for name in PRIOR_FIELDS:
                arrays[f"learned{number}.{side}.{name}"] = getattr(getattr(learned, side), name)
        arrays[f"learned{number}.precision"] = learned.precision
        arrays[f"learned{number}.tempering"] = learned.tempering
    if state.fitted.interactions is not None:
        for name in _FACTORS:
            arrays[f"interactions.{name}"] = getattr(state.fitted.interactions, name)
    if state.fitted.times is not None:
        for name in _FACTORS:
            weights: TimeWeights = getattr(state.fitted.times, name)
            arrays[f"times.{name}"] = weights.codes
            for number, table in enumerate(weights.tables):
                arrays[f"times{number}.{name}"] = table[:-1]
    for name, column in state.fitted.history.items():
        arrays[f"history.{name}"] = column
    write_npz(path, meta, arrays)


def read_state(path: str | os.PathLike[str]) -> State:
    """Read what `write_state` wrote; `State.check` is yet to be called."""
    arrays = read_npz(path)
    meta = read_meta(arrays, format=_FORMAT)
    user_ids, item_ids = pd.Index(arrays["user_ids"]), pd.Index(arrays["item_ids"])
    offsets, items = arrays["seen_offsets"], arrays["seen_items"]
    fitted = Fitted(
        models=[
            Blocks(*(arrays[f"model{number}.{name}"] for name in BLOCK_FIELDS))
            for number in range(meta["n_models"])
        ],
        history={
            name.removeprefix("history."): column
            for name, column in arrays.items()
            if name.startswith("history.")
        },
        learned=_read_learned(arrays),
        interactions=_read_interactions(arrays, float(meta["record"]["like"])),
        times=_read_times(arrays, meta["n_models"]),
        **{name: meta["record"][name] for name in _RECORD},
    )
    return State(
        parameters=meta["parameters"],
        user_ids=user_ids,
        item_ids=item_ids,
        levels=arrays["levels"],
        n_components=meta["n_components"],
        seen=checked_csr(np.ones(len(items)), items, offsets, (len(user_ids), len(item_ids))),
        fitted=fitted,
    )


def _read_learned(arrays: dict[str, NDArray[Any]]) -> list[Learned]:
    """What the models know of new ids, as many as the file has."""
    learned: list[Learned] = []
    while f"learned{len(learned)}.precision" in arrays:
        start = f"learned{len(learned)}"
        users, items = (
            SidePrior(*(arrays[f"{start}.{side}.{name}"] for name in PRIOR_FIELDS))
            for side in _FACTORS
        )
        precision, tempering = (arrays[f"{start}.{name}"] for name in ("precision", "tempering"))
        learned.append(Learned(users, items, precision, tempering))
    return learned


def _read_interactions(arrays: dict[str, NDArray[Any]], like: float) -> InteractionFactors | None:
    if "interactions.users" not in arrays:
        return None
    users, items = (arrays[f"interactions.{name}"] for name in _FACTORS)
    return InteractionFactors(users, items, like, {}, float("nan"))


def _read_times(arrays: dict[str, NDArray[Any]], n_models: int) -> FittedTimes | None:
    if "times.users" not in arrays:
        return None
    sides = [
        TimeWeights.of(
            arrays[f"times.{name}"],
            [arrays[f"times{number}.{name}"] for number in range(n_models)],
        )
        for name in _FACTORS
    ]
    return FittedTimes(*sides)


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
