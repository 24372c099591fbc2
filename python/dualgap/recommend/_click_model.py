"""The click model and its settings: factors of users and items, item-item models, weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualgap import _core
from dualgap._estimator import storable
from dualgap._records import (
    BlendRecord,
    ExclusionRecord,
    InteractionRecord,
    ListsRecord,
    PartRecord,
)
from dualgap._sparse import checked_csr
from dualgap._validation import FloatArray, check_bool, check_positive
from dualgap.recommend._growing import Cached, Lists, rows_of
from dualgap.recommend._ranking import Candidates, best_items
from dualgap.recommend._training import IndexedRatings, NewRatings, Pairs, Side

__all__ = ["Interactions"]


# Not an estimator, but scikit-learn can read, set, clone and search its parameters.
@storable
@dataclass(kw_only=True, repr=False)
class Interactions(BaseEstimator):  # type: ignore[misc]
    """Model of the items that users choose, learned from clicks or from the likes among ratings.

    Three scorers rank the whole catalogue (``rank_by="like"``): factors fitted by least squares
    over all pairs of users and items [1]_, the graph of items that the same users clicked [2]_, and
    a regression of each item on all other items [3]_. The score is a weighted sum of the three
    scorers' scores, each divided by its standard deviation over the catalogue. The weights, the
    ridge of the regression, and the preference of the graph for popular items [4]_ are chosen on
    held-out clicks of a sample of the users.

    The target is 1 for a rating that is a like, `other_target` for any other rating, and 0 for
    every pair without a rating, which has the weight `unobserved_weight`.

    Parameters
    ----------
    n_components : int, optional
        Length of the vectors of users and items. By default it grows with the number of users or
        items, whichever is smaller, from 64 to 192.
    like_threshold : float, optional
        Smallest rating that is a like. None means that likes are the ratings in the upper quarter
        of the range of levels: 4 and 5 for levels from 1 to 5. With ``task="clicks"``, None means
        that values are counts, not ratings.
    other_target : float, default=0.6
        Target of ratings below `like_threshold`: less than a like, but more than a pair without a
        rating, because users rate items that interest them.
    unobserved_weight : float, optional
        Weight of a pair without a rating, relative to a pair with one. By default three times the
        share of pairs that have a rating, but at most 0.5.
    ridge : float, optional
        Ridge on the vectors, in units of the square root of the total weight of a user's or item's
        pairs. By default 0.1 or 0.3, chosen on held-out clicks; without `blend` it is 0.3.
    blend : bool, default=True
        Whether to add the item-item models. Without them only the factors rank, and the fit takes a
        fraction of the time.
    max_iter : int, default=15
        Maximum number of sweeps over users and items.
    tol : float, default=1e-3
        The fit ends when a sweep lowers the objective by less than this fraction.

    References
    ----------
    .. [1] S. Rendle, W. Krichene, L. Zhang and Y. Koren, Revisiting the performance of iALS on item
       recommendation benchmarks, RecSys 2022; Y. Hu, Y. Koren and C. Volinsky, Collaborative
       filtering for implicit feedback datasets, ICDM 2008.
    .. [2] Y. Shen et al., How powerful is graph convolution for recommendation?, CIKM 2021.
    .. [3] H. Steck, Autoencoders that don't overfit towards the identity, NeurIPS 2020.
    .. [4] H.-M. Fu, P. Poirson, K. S. Lee and C. Wang, Revisiting neighborhood-based link
       prediction for collaborative filtering, WWW 2022 companion.
    """

    n_components: int | None = None
    like_threshold: float | None = None
    other_target: float = 0.6
    unobserved_weight: float | None = None
    ridge: float | None = None
    blend: bool = True
    max_iter: int = 15
    tol: float = 1e-3

    def check(self) -> None:
        """Raise an error for invalid parameters."""
        check_positive("max_iter", self.max_iter, integer=True)
        if self.n_components is not None:
            check_positive("n_components", self.n_components, integer=True)
        for name in ("unobserved_weight", "ridge"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for name in ("other_target", "tol"):
            check_positive(name, getattr(self, name), zero=True)
        check_bool("blend", self.blend)
        if self.like_threshold is not None and not np.isfinite(self.like_threshold):
            msg = f"like_threshold: must be a finite number, got {self.like_threshold!r}"
            raise ValueError(msg)

    def threshold(self, levels: FloatArray) -> float:
        """Return the smallest rating that is a like."""
        if self.like_threshold is not None:
            return float(self.like_threshold)
        return float(levels[0] + 0.75 * (levels[-1] - levels[0]))

    def targets(self, values: FloatArray, like: float) -> FloatArray:
        """Return the targets of ratings, of which those of at least `like` are likes."""
        return np.where(values >= like, 1.0, float(self.other_target))


# Ridge on the feature weights, relative to the mean ridge on the vectors of the ids.
FEATURE_RIDGE = 10.0

# Number of users whose scores of all items are in memory at a time.
_BATCH = 64

_SIDES = ("users", "items")


@dataclass(frozen=True)
class ClickModel(Cached):
    """Scorers of clicks, with weights. The first row of a user or item table is for unknown ids.

    The score is the weighted sum of the scorers, each divided by its standard deviation over the
    catalogue for that user.
    """

    users: FloatArray
    items: FloatArray
    # Matrix of users by items with the targets of clicks.
    history: Lists
    # Item-item models: row j holds the contributions of a click on item j to all scores.
    models: tuple[Lists, ...]
    # The weight of the factors, followed by the weights of the item-item models.
    weights: tuple[float, ...]
    # The settings with which the factors were fitted: the weight of pairs without a click, and the
    # ridge.
    unobserved: float
    ridge: float
    # The weights of user and item features; features times weights are the prior means.
    feature_weights: tuple[FloatArray | None, FloatArray | None] = (None, None)

    def blend(self, users: NDArray[np.intp], n_threads: int) -> BlendRecord:
        """Return the blend of factors and item-item models for some users, in the core's format."""
        rows = np.zeros((len(users), 1, self.users.shape[1] + 1), dtype=np.float32)
        rows[:, 0, :-1] = rows_of(self.users, users)
        factors: PartRecord = {
            "users": rows,
            "items": self._packed_items,
            "gaps": None,
            "weight": 1.0,
        }
        return {
            "factors": factors,
            "models": self._packed_models,
            "history": self.history.take(users).record(),
            "weights": list(self.weights),
            "n_items": len(self.items) - 1,
            "n_threads": n_threads,
        }

    def predict(self, pairs: Pairs) -> FloatArray:
        """Return the scores of pairs."""
        result = np.empty(len(pairs.users))
        items = np.append(np.arange(len(self.items) - 1), -1)[pairs.items]
        users, rows = np.unique(pairs.users, return_inverse=True)
        order = np.argsort(rows, kind="stable")
        ends = np.searchsorted(rows[order], np.arange(0, len(users) + _BATCH, _BATCH))
        for batch, (low, high) in enumerate(pairwise(ends)):
            some, first = order[low:high], batch * _BATCH
            record = self.blend(users[first : first + _BATCH], 1)
            scores = np.pad(_core.scores_of_blend(record), ((0, 0), (0, 1)))
            result[some] = scores[rows[some] - first, items[some]]
        return result

    def best_items(
        self, users: NDArray[np.intp], n: int, candidates: Candidates
    ) -> tuple[NDArray[np.int64], FloatArray]:
        """Return the positions and the scores of each user's best items.

        If fewer than `n` items are available, the remaining positions are -1.
        """

        def search(chosen: NDArray[np.intp], excluded: ExclusionRecord) -> Any:
            return _core.best_of_blend(self.blend(chosen, candidates.n_threads), excluded, n)

        known = replace(candidates, allowed=candidates.allowed & self._known_items)
        return best_items(search, users, n, known)

    def contributions(self, user: int, item: int) -> tuple[NDArray[np.int64], FloatArray]:
        """Return the items of a user, and the contribution of each to the score of an item."""
        history = self.history.take(np.array([user]))
        items, targets = history.columns.astype(np.int64), history.values.astype(np.float64)
        table = self.items[1:]
        vectors = table[items]
        ridge = self.ridge * np.sqrt(len(items) + self.unobserved * len(table))
        matrix = self.unobserved * table.T @ table + vectors.T @ vectors
        matrix[np.diag_indices_from(matrix)] += ridge
        of_factors = targets * (vectors @ np.linalg.solve(matrix, table[item]))
        of_factors = of_factors * _scale(table @ self.users[1 + user])
        total = self.weights[0] * of_factors
        for weight, model in zip(self.weights[1:], self.models, strict=True):
            part = of_factors
            # If an item-item model has no entries for the item, its score is that of the factors.
            if model.offsets[item] < model.offsets[item + 1]:
                part = targets * model.matrix[items][:, [item]].toarray()[:, 0]
                part = part * _scale((history.matrix @ model.matrix).toarray()[0])
            total = total + weight * part
        return items, total

    def item_vectors(self) -> FloatArray:
        """Return vectors of all items, whose cosines are item similarities."""
        return self.items[1:]

    @cached_property
    def _known_items(self) -> NDArray[np.bool_]:
        """Whether each item has clicks or features; no scorer can rank the remaining items."""
        return np.asarray(self.items[1:].any(axis=1))

    @cached_property
    def _packed_items(self) -> _core.PackedItems:
        """The vectors of all items in single precision, each followed by its offset of 0."""
        return _core.PackedItems(np.pad(self.items[1:].astype(np.float32), ((0, 0), (0, 1))))

    @cached_property
    def _packed_models(self) -> list[ListsRecord | _core.DenseItems]:
        """The item-item models, as dense matrices if most of their entries are stored."""
        n = len(self.items) - 1

        def packed(model: Lists) -> ListsRecord | _core.DenseItems:
            record = model.record()
            if 2 * len(model.columns) <= n * n:
                return record
            try:
                return _core.DenseItems(record, n)
            except MemoryError:
                return record

        return [packed(model) for model in self.models]

    def gram(self, side: Side, n_threads: int) -> FloatArray:
        """Return V'V, where V has the vectors of items (for new users) or users (for new items)."""
        if side == "items":
            return _core.factor_gram(np.ascontiguousarray(self.users[1:]), n_threads)
        if "_gram" not in vars(self):
            found = _core.factor_gram(np.ascontiguousarray(self.items[1:]), n_threads)
            vars(self)["_gram"] = found
        kept: FloatArray = vars(self)["_gram"]
        return kept

    def _with_items_of(self, other: ClickModel) -> ClickModel:
        """Reuse the results that `other` computed from the same items."""
        names = "_packed_items", "_packed_models", "_known_items", "_gram", "without_users"
        return self.with_caches_of(other, *names)

    @cached_property
    def without_users(self) -> ClickModel:
        """Return the model with only the row for unknown users."""
        empty = self.history.first(0)
        # Compute cached values before copying, so that later copies reuse them.
        self.gram("users", 1)
        for name in ("_packed_items", "_packed_models", "_known_items"):
            getattr(self, name)
        return replace(self, users=self.users[:1], history=empty)._with_items_of(self)

    def fold_in(
        self, new: NewRatings, settings: Interactions, like: float | None, n_threads: int
    ) -> ClickModel:
        """Add vectors and clicks of new ids. If `like` is None, values are counts."""
        others = np.ascontiguousarray((self.items if new.side == "users" else self.users)[1:])
        counts = new.values if like is None else np.ones(1)
        targets = settings.targets(new.values, 0.0 if like is None else like)
        record: InteractionRecord = {
            "n_users": len(new.ids),
            "n_items": len(others),
            "n_components": others.shape[1],
            "unobserved": self.unobserved,
            "ridge": self.ridge,
            "tol": 0.0,
            "max_iter": 1,
            "n_threads": n_threads,
            "users": new.own.astype(np.uint32),
            "items": new.other.astype(np.uint32),
            "targets": targets,
            "weights": count_weights(counts),
            "seed": 0,
            "start": None,
            "user_features": None,
            "item_features": None,
            "feature_ridge": FEATURE_RIDGE,
            "callback": None,
        }
        weights, means = self.feature_weights[new.side == "items"], None
        if weights is not None and new.features is not None:
            means = np.ascontiguousarray(with_constant(new.features) @ weights)
        vectors = _core.fold_in_interactions(record, others, self.gram(new.side, n_threads), means)
        return self._with_rows(new, vectors, targets)

    def _with_rows(self, new: NewRatings, vectors: FloatArray, targets: FloatArray) -> ClickModel:
        """Return the model extended with vectors and clicks of new ids."""
        changed: Any = {new.side: new.insert_rows(getattr(self, new.side), vectors)}
        clicks = new.lists(targets.astype(np.float32))
        if not clicks.values.all():
            matrix = clicks.matrix.copy()  # other lists of `new` share its arrays
            matrix.eliminate_zeros()
            clicks = Lists.of(matrix)
        if new.side == "users":
            changed["history"] = self.history.with_rows(new.rows, clicks)
            return replace(self, **changed)._with_items_of(self)
        changed["history"] = self.history.transposed().with_rows(new.rows, clicks).transposed()
        n_items = len(changed["items"]) - 1
        changed["models"] = tuple(
            replace(model.first(n_items), n_columns=n_items) for model in self.models
        )
        return replace(self, **changed)

    def fits(self, shape: tuple[int, int]) -> bool:
        """Whether all arrays are finite and match these numbers of users and items."""
        n_items = shape[1]
        tables = (self.users, self.items)
        sparse = (self.history, *self.models)
        width = self.users.shape[-1]
        return (
            all(table.dtype == np.float64 and table.ndim == 2 for table in tables)
            and (len(self.users) - 1, len(self.items) - 1) == shape
            and self.users.shape[1] == self.items.shape[1] > 0
            and (len(self.history), self.history.n_columns) == shape
            and all((len(each), each.n_columns) == (n_items, n_items) for each in self.models)
            and len(self.weights) == len(self.models) + 1
            and all(matrix.values.dtype == np.float32 for matrix in sparse)
            and all(bool(np.isfinite(table).all()) for table in (*tables, *self._weight_tables))
            and all(
                table.ndim == 2 and table.dtype == np.float64 and table.shape[1:] == (width,)
                for table in self._weight_tables
            )
            and all(bool(np.isfinite(matrix.values).all()) for matrix in sparse)
            and bool(np.isfinite([*self.weights, self.unobserved, self.ridge]).all())
            and self.unobserved > 0.0
            and self.ridge > 0.0
        )

    @property
    def _weight_tables(self) -> list[FloatArray]:
        return [table for table in self.feature_weights if table is not None]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save in a file."""
        found: dict[str, NDArray[Any]] = {
            # In files, the row for unknown ids comes last.
            "interactions.users": np.roll(self.users, -1, axis=0),
            "interactions.items": np.roll(self.items, -1, axis=0),
            "interactions.weights": np.array(self.weights),
            "interactions.settings": np.array([self.unobserved, self.ridge]),
        }
        for side, table in zip(_SIDES, self.feature_weights, strict=True):
            if table is not None:
                found[f"interactions.{side}.weights"] = table
        names = ["history", *(f"model{at}" for at in range(len(self.models)))]
        history = self.history.first(len(self.users))
        for name, lists in zip(names, (history, *self.models), strict=True):
            matrix = lists.matrix
            found[f"interactions.{name}.offsets"] = matrix.indptr
            found[f"interactions.{name}.items"] = matrix.indices
            found[f"interactions.{name}.values"] = matrix.data
        return found

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]]) -> ClickModel:
        """Read `arrays` without checking them; the caller must call `fits`."""
        users, items = arrays["interactions.users"], arrays["interactions.items"]
        weights = tuple(arrays["interactions.weights"].astype(np.float64).tolist())
        unobserved, ridge = arrays["interactions.settings"].tolist()

        def matrix(name: str, n_rows: int) -> Lists:
            values, columns, offsets = (
                arrays[f"interactions.{name}.{part}"] for part in ("values", "items", "offsets")
            )
            return Lists.of(checked_csr(values, columns, offsets, (n_rows, len(items) - 1)))

        models = tuple(matrix(f"model{at}", len(items) - 1) for at in range(len(weights) - 1))
        history = matrix("history", len(users)).first(len(users) - 1)
        of_users, of_items = (arrays.get(f"interactions.{side}.weights") for side in _SIDES)
        tables = of_users, of_items
        users, items = (np.roll(table, 1, axis=0) for table in (users, items))
        return cls(users, items, history, models, weights, unobserved, ridge, tables)


def _scale(scores: NDArray[Any]) -> float:
    """Return the reciprocal of the standard deviation of scores, or 0 if all are equal."""
    deviation = float(scores.std())
    return 1.0 / deviation if deviation > 1e-6 * float(np.abs(scores).max(initial=0.0)) else 0.0


def count_weights(counts: FloatArray) -> FloatArray | None:
    """Return the weights of pairs with these counts, 1 + log10(count); None if all are 1."""
    if counts.max(initial=1.0) <= 1.0:
        return None
    weights: FloatArray = 1.0 + np.log10(np.maximum(counts, 1.0))
    return None if bool((weights == 1.0).all()) else weights


def weigh_counts(ratings: IndexedRatings) -> IndexedRatings:
    """Multiply the weights of ratings by the weights of their counts."""
    weights = count_weights(ratings.values)
    if weights is None:
        return ratings
    return replace(
        ratings, weights=weights if ratings.weights is None else weights * ratings.weights
    )


def with_constant(features: sp.csr_array) -> sp.csr_array:
    """Append a constant feature, 1 for each id that has features."""
    constant = sp.csr_array((np.diff(features.indptr) > 0).astype(np.float64)[:, None])
    return sp.csr_array(sp.hstack([features, constant], format="csr"))
