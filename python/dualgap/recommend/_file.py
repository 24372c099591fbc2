"""Conversion of a recommender to and from the contents of a model file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dualgap._sparse import checked_csr
from dualgap.recommend._click_model import ClickModel
from dualgap.recommend._features import FeatureEncoder
from dualgap.recommend._growing import Lists
from dualgap.recommend._ranking import Model
from dualgap.recommend._rating_model import RatingModel
from dualgap.recommend._ratings import Catalogue
from dualgap.recommend._training import FitRecord, RatingScale

_RECORD = ("objective", "dual_objective", "null_objective", "converged", "certificate")


@dataclass(frozen=True)
class SavedRecommender:
    """The parts of a fitted recommender."""

    catalogue: Catalogue
    scale: RatingScale
    like: float
    # Matrix of users by items with the ratings of the fit, or with ones unless `stores_ratings`.
    seen: Lists
    # False for files of earlier versions.
    stores_ratings: bool
    rating_model: RatingModel | None
    click_model: ClickModel | None
    # Encoders of the features of users and of items; None without features.
    encoders: tuple[FeatureEncoder | None, FeatureEncoder | None]
    record: FitRecord
    # The library of the tables that methods return.
    tables: str

    def state(self) -> dict[str, Any]:
        """Return the parts as arrays, numbers and dictionaries for a model file."""
        ratings, clicks = self.rating_model, self.click_model
        return {
            "user_ids": _plain(self.catalogue.users, "user"),
            "item_ids": _plain(self.catalogue.items, "item"),
            "levels": self.scale.levels,
            "ordinal": self.scale.ordinal,
            "like": self.like,
            "seen_offsets": self.seen.matrix.indptr,
            "seen_items": self.seen.matrix.indices,
            **({"seen_values": self.seen.matrix.data} if self.stores_ratings else {}),
            "tables": self.tables,
            "n_models": 0 if ratings is None else len(ratings.machines),
            **({} if ratings is None else ratings.arrays()),
            **({} if clicks is None else clicks.arrays()),
            "encoders": [each and each.state() for each in self.encoders],
            "record": {name: getattr(self.record, name) for name in _RECORD},
            "history": dict(self.record.history),
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> SavedRecommender:
        """Return the parts from the result of `state`, after checks that they fit together."""
        record, items = state["record"], state["seen_items"]
        values = state.get("seen_values", np.ones(len(items), np.int8))
        of_users, of_items = state["encoders"]
        catalogue = Catalogue.of_ids(pd.Index(state["user_ids"]), pd.Index(state["item_ids"]))
        scale = RatingScale(state["levels"], state["ordinal"])
        n_models = state["n_models"]
        saved = cls(
            catalogue=catalogue,
            scale=scale,
            like=float(state["like"]),
            seen=Lists.of(checked_csr(values, items, state["seen_offsets"], catalogue.shape)),
            stores_ratings="seen_values" in state,
            tables=str(state["tables"]),
            rating_model=RatingModel.read(state, scale, n_models) if n_models else None,
            click_model=ClickModel.read(state) if "interactions.users" in state else None,
            encoders=(_encoder(of_users), _encoder(of_items)),
            record=FitRecord(dict(state["history"]), **{name: record[name] for name in _RECORD}),
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
            and self._has_levels()
        ):
            msg = "the arrays do not fit together"
            raise ValueError(msg)

    def _has_levels(self) -> bool:
        """Whether the ratings of an ordinal model are positions among the levels."""
        values = self.seen.values
        if not self.scale.ordinal:
            return bool(np.isfinite(values).all())
        positions = values.dtype == np.int8 and values.min(initial=1) >= 1
        return bool(positions and values.max(initial=1) <= len(self.scale.levels))


def _encoder(state: Mapping[str, Any] | None) -> FeatureEncoder | None:
    return None if state is None else FeatureEncoder.of_state(state)


def _plain(ids: pd.Index[Any], what: str) -> NDArray[Any]:
    """Return ids as an array that can be saved without pickle."""
    array = ids.to_numpy()
    if array.dtype.kind in "iufb":
        return array
    if all(isinstance(name, str) for name in array):
        # NumPy strings lose trailing NULs.
        if not any(name.endswith("\0") for name in array):
            return array.astype(np.str_)
    elif all(isinstance(name, int) and not isinstance(name, bool) for name in array):
        with suppress(OverflowError):
            return array.astype(np.int64)
    msg = f"save: the {what} ids must be all strings or all numbers; use pickle for other types"
    raise TypeError(msg)
