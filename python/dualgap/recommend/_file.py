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
from dualgap.recommend._interactions import ClickModel
from dualgap.recommend._ranking import Model
from dualgap.recommend._rating_model import RatingModel
from dualgap.recommend._ratings import Catalogue
from dualgap.recommend._training import FitRecord, RatingScale

_FORMAT = 4
_RECORD = ("objective", "dual_objective", "null_objective", "converged", "certificate")


@dataclass(frozen=True)
class SavedRecommender:
    """The parts of a fitted recommender."""

    # The parameters, in terms of JSON.
    parameters: dict[str, Any]
    catalogue: Catalogue
    scale: RatingScale
    like: float
    # The pairs of users and items with ratings.
    seen: sp.csr_array
    rating_model: RatingModel | None
    click_model: ClickModel | None
    record: FitRecord

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a file."""
        ratings, clicks = self.rating_model, self.click_model
        record = {name: getattr(self.record, name) for name in _RECORD}
        meta = {
            "format": _FORMAT,
            "n_models": 0 if ratings is None else len(ratings.machines),
            "parameters": self.parameters,
            "n_components": 0 if ratings is None else ratings.n_bases,
            "record": {**record, "like": self.like},
        }
        arrays = {
            "user_ids": _plain(self.catalogue.users, "user"),
            "item_ids": _plain(self.catalogue.items, "item"),
            "levels": self.scale.levels,
            "seen_offsets": self.seen.indptr,
            "seen_items": self.seen.indices,
            **({} if ratings is None else ratings.arrays()),
            **({} if clicks is None else clicks.arrays()),
            **{f"history.{name}": column for name, column in self.record.history.items()},
        }
        write_npz(path, meta, arrays)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SavedRecommender:
        """Read a file, and refuse parts that do not fit together."""
        arrays = read_npz(path)
        meta = read_meta(arrays, format=_FORMAT)
        parameters, record = meta["parameters"], meta["record"]
        catalogue = Catalogue(pd.Index(arrays["user_ids"]), pd.Index(arrays["item_ids"]))
        scale = RatingScale(arrays["levels"], parameters["reduction"] == "mcrank")
        items = arrays["seen_items"]
        history = {
            name.removeprefix("history."): column
            for name, column in arrays.items()
            if name.startswith("history.")
        }
        saved = cls(
            parameters=parameters,
            catalogue=catalogue,
            scale=scale,
            like=record["like"],
            seen=checked_csr(np.ones(len(items)), items, arrays["seen_offsets"], catalogue.shape),
            rating_model=(
                None
                if parameters["reduction"] == "interactions"
                else RatingModel.read(arrays, scale, meta["n_models"])
            ),
            click_model=ClickModel.read(arrays) if "interactions.users" in arrays else None,
            record=FitRecord(history, **{name: record[name] for name in _RECORD}),
        )
        saved._check()
        return saved

    def _check(self) -> None:
        shape, levels = self.catalogue.shape, self.scale.levels
        models: list[Model] = [
            model for model in (self.rating_model, self.click_model) if model is not None
        ]
        if not (
            models
            and levels.dtype == np.float64
            and bool((np.diff(levels) > 0.0).all())
            and self.catalogue.users.is_unique
            and self.catalogue.items.is_unique
            and all(model.fits(shape) for model in models)
        ):
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
