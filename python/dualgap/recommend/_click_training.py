"""Training of click models, with settings chosen on held-out clicks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._estimator import announce
from dualgap._records import ClicksRecord, InteractionParameters
from dualgap._validation import FloatArray, Rows, core_rows, resolve_seed, resolve_threads
from dualgap.recommend._click_model import (
    FEATURE_RIDGE,
    ClickModel,
    Interactions,
    with_constant,
)
from dualgap.recommend._growing import Lists
from dualgap.recommend._training import FitRecord, RunOptions, Training

_Setting = TypeVar("_Setting")

# Candidate ridges of the factors; one is chosen on held-out clicks.
_RIDGES = (0.1, 0.3)

# Candidate ridges of the item regression, and its dropout rate. When the regression is blended with
# the other models, the choice between 30 and 300 changes the ranking by less than 1 % on film
# ratings. For clicks on places and words, 30 is best; for synthetic clicks generated from topics,
# 300 or more is best.
_REGRESSION_RIDGES = (30.0, 300.0)
_DROPOUT = 0.33

# Number of sweeps of each trial fit of the factors. Trial fits are compared on held-out clicks.
_TRIAL_SWEEPS = 6

# Settings are chosen on a sample of about this number of clicks.
_TRIAL_CLICKS = 3e6

# Each row of an item-item model keeps its `_ENTRIES / n_items` largest entries, but at least
# `_KEPT`. On sparse clicks, 500 entries per row rank as well as all entries; 200 entries rank up to
# 4 % worse. On dense clicks with 6,000 items, 500 entries rank 8 % worse than 1,500 entries.
_ENTRIES = 12_000_000
_KEPT = 500

# Candidate pairs (a, b) of exponents of the item graph. Entry (j, i) is divided by the number of
# clicks on the user's item j to the power a, and by the number of clicks on the scored item i to
# the power b.
_EXPONENTS = ((0.5, 0.2), (0.5, 0.35), (0.7, 0.65))

# Maximum number of items for a regression, whose time grows with the cube of this number.
_REGRESSED = 8000

# Fraction of a user's clicks that is held out, and the smallest and the largest number of users
# with held-out clicks. With fewer users, no setting is chosen on held-out clicks.
_SHARE = 0.2
_FEWEST = 20
_MOST = 2000

# Maximum number of scores that a comparison of weights computes.
_COMPARED = 4e9


def fit_clicks(
    method: Interactions, training: Training, like: float, options: RunOptions
) -> tuple[ClickModel, FitRecord]:
    """Fit the scorers and choose their weights."""
    values = training.ratings.values
    liked = values.min(initial=np.inf) >= like
    clicks = _Clicks.of(training, None if liked else method.targets(values, like))
    users, items = (None if part is None else with_constant(part) for part in training.features)
    trainer = _Trainer(_resolved(method, clicks), options, (users, items))
    if not method.blend:
        return trainer.fit(clicks, _Plan(method.ridge or _RIDGES[-1]))
    held_out = clicks.hold_out(np.random.default_rng(resolve_seed(options.random_state)))
    if held_out is None:
        return trainer.fit(clicks, _Plan(method.ridge or _RIDGES[-1], (0.5, 0.5)))
    plan, start = trainer.choose(*held_out)
    return trainer.fit(clicks, plan, start)


def _resolved(method: Interactions, clicks: _Clicks) -> Interactions:
    """Return the settings with data-dependent defaults filled in."""
    n_users, n_items = (len(np.unique(ids)) for ids in (clicks.users, clicks.items))
    total = len(clicks.users) if clicks.weights is None else float(clicks.weights.sum())
    density = total / (n_users * n_items)
    grown = 64.0 * max(1.0, min(n_users, n_items) / 5000) ** 0.6
    return replace(
        method,
        n_components=method.n_components or min(8 * round(grown / 8), 192),
        unobserved_weight=method.unobserved_weight or min(3.0 * density, 0.5),
    )


@dataclass(frozen=True)
class _Clicks:
    """Pairs of users and items by position, with their targets and weights."""

    users: NDArray[np.uint32]
    items: NDArray[np.uint32]
    # Target of each pair; None if all targets are 1.
    targets: FloatArray | None
    weights: FloatArray | None
    shape: tuple[int, int]

    @classmethod
    def of(cls, training: Training, targets: FloatArray | None) -> _Clicks:
        ratings = training.ratings
        users, items = (
            ids.astype(np.int32, copy=False).view(np.uint32)
            for ids in (ratings.users, ratings.items)
        )
        return cls(users, items, targets, ratings.weights, training.shape)

    def take(self, rows: NDArray[np.bool_]) -> _Clicks:
        targets, weights = (
            None if part is None else part[rows] for part in (self.targets, self.weights)
        )
        return _Clicks(self.users[rows], self.items[rows], targets, weights, self.shape)

    def values(self) -> NDArray[np.float32]:
        """Return the targets in single precision."""
        if self.targets is None:
            return np.ones(len(self.users), dtype=np.float32)
        return self.targets.astype(np.float32)

    def hold_out(self, rng: np.random.Generator) -> tuple[_Clicks, sp.csr_array] | None:
        """Split off a fraction of some users' likes.

        Returns the remaining clicks and the held-out likes, or None if too few users have at least
        three likes. If there are many clicks, the remaining clicks are from a sample of users.
        """
        liked = np.ones(len(self.users), dtype=bool) if self.targets is None else self.targets >= 1
        counts = np.bincount(self.users[liked], minlength=self.shape[0])
        able = np.flatnonzero(counts >= 3)
        n = min(len(able) // 3, _MOST, max(100, int(_COMPARED / (31 * self.shape[1]))))
        if n < _FEWEST:
            return None
        chosen = np.zeros(self.shape[0], dtype=bool)
        chosen[rng.choice(able, n, replace=False)] = True
        rows = np.flatnonzero(liked & chosen[self.users])
        # The draw must not depend on the order of the rows of the data.
        rows = rows[np.lexsort((self.items[rows], self.users[rows]))]
        rows = rng.permutation(rows)
        rows = rows[np.argsort(self.users[rows], kind="stable")]
        owners = self.users[rows]
        rank = np.arange(len(rows)) - np.searchsorted(owners, owners)
        rows = rows[rank < np.maximum(1, np.rint(_SHARE * counts[owners]))]
        in_sample = chosen | (rng.random(self.shape[0]) < _TRIAL_CLICKS / len(self.users))
        kept = in_sample[self.users]
        kept[rows] = False
        ones = np.ones(len(rows), dtype=np.float32)
        return self.take(kept), sp.csr_array(
            (ones, (self.users[rows], self.items[rows])), self.shape
        )

    def matrix(self) -> sp.csr_array:
        """Return the matrix of targets."""
        ids = self.users.view(np.int32), self.items.view(np.int32)
        result = sp.csr_array((self.values(), ids), self.shape)
        result.sum_duplicates()
        return result


@dataclass(frozen=True)
class _Plan:
    """Settings chosen on held-out clicks."""

    ridge: float
    # Weights of the factors, the graph and the regression; by default only the factors.
    weights: tuple[float, ...] = (1.0,)
    # Exponents of the graph.
    exponents: tuple[float, float] = _EXPONENTS[0]
    # Ridge of the regression.
    regression: float = _REGRESSION_RIDGES[0]


@dataclass(frozen=True)
class _Trainer:
    """Fits scorers with resolved settings."""

    settings: Interactions
    options: RunOptions
    # Features of users and of items, including a constant feature.
    features: tuple[sp.csr_array | None, sp.csr_array | None]

    def fit(self, clicks: _Clicks, plan: _Plan, start: Any = None) -> tuple[ClickModel, FitRecord]:
        """Fit the scorers whose weights are not 0."""
        result = self._factors(clicks, plan.ridge, self.settings.max_iter, start)
        models, weights = [], [plan.weights[0]]
        for at, weight in enumerate(plan.weights[1:]):
            if weight > 0.0:
                weights.append(weight)
                if at == 0:
                    models.append(self._graph(clicks, plan.exponents))
                else:
                    models.append(self._regression(clicks, plan.regression))
        model = self._model(clicks, result, plan.ridge)
        model = replace(model, models=tuple(models), weights=tuple(weights))
        return model, FitRecord(result["history"], result["objective"])

    def choose(self, clicks: _Clicks, held_out: sp.csr_array) -> tuple[_Plan, Any]:
        """Return the plan that ranks held-out clicks best, and factors to start the fit from."""
        users = np.flatnonzero(np.diff(held_out.indptr))
        ridges = _RIDGES if self.settings.ridge is None else (self.settings.ridge,)
        quiet = replace(self, options=replace(self.options, callback=None))
        max_iter = min(_TRIAL_SWEEPS, self.settings.max_iter)
        announce(self.options.callback, "choosing the ridge of the factors on held-out clicks")
        fitted = [quiet._factors(clicks, ridge, max_iter, None) for ridge in ridges]
        models = [self._model(clicks, *each) for each in zip(fitted, ridges, strict=True)]
        best = int(np.argmax([self._compare(each, users, held_out, [(1.0,)]) for each in models]))
        model, start = models[best], (fitted[best]["users"], fitted[best]["items"])
        announce(self.options.callback, "choosing an item graph on held-out clicks")
        exponents, graph = self._best(_EXPONENTS, self._graph, clicks, (model, held_out))
        plan, others = _Plan(ridges[best], exponents=exponents), [graph]
        if len(np.unique(clicks.items)) <= _REGRESSED:
            announce(self.options.callback, "choosing an item regression on held-out clicks")
            ridge, regression = self._best(
                _REGRESSION_RIDGES, self._regression, clicks, (model, held_out)
            )
            plan, others = replace(plan, regression=ridge), [graph, regression]
        announce(self.options.callback, "choosing weights on held-out clicks")
        grid = _simplex(len(others))
        blended = replace(model, models=tuple(others), weights=(1.0,) * (1 + len(others)))
        weights = grid[int(np.argmax(self._compare(blended, users, held_out, grid)))]
        return replace(plan, weights=weights), start

    def _best(
        self,
        settings: Iterable[_Setting],
        scorer: Callable[[_Clicks, _Setting], Lists],
        clicks: _Clicks,
        rest: tuple[ClickModel, sp.csr_array],
    ) -> tuple[_Setting, Lists]:
        """Return the setting whose item-item model ranks best, and that model.

        `rest` is a pair: a model with only the factors, and the held-out clicks. Each item-item
        model is blended with the factors.
        """
        factors, held_out = rest
        users = np.flatnonzero(np.diff(held_out.indptr))

        def tried(setting: _Setting) -> tuple[float, _Setting, Lists]:
            found = scorer(clicks, setting)
            both = replace(factors, models=(found,), weights=(1.0, 1.0))
            quality = self._compare(both, users, held_out, [(0.0, 1.0), (1.0, 1.0)])
            return max(quality), setting, found

        _, setting, found = max(map(tried, settings), key=lambda each: each[0])
        return setting, found

    def _compare(
        self,
        model: ClickModel,
        users: NDArray[np.intp],
        held_out: sp.csr_array,
        grid: list[tuple[float, ...]],
    ) -> list[float]:
        record = model.blend(users, self._n_threads)
        held = Lists.of(held_out[users]).record()
        return _core.compare_blends(record, held, [list(each) for each in grid])

    def _model(self, clicks: _Clicks, fitted: Any, ridge: float) -> ClickModel:
        """Return a model with only the factors."""
        user_features, item_features = self.features
        weights = fitted["user_weights"], fitted["item_weights"]
        users = _described(fitted["users"], clicks.users, user_features, weights[0])
        items = _described(fitted["items"], clicks.items, item_features, weights[1])
        # An unknown user gets the mean vector, which favours popular items; an unknown item gets 0.
        mean = users[users.any(axis=1)].mean(axis=0)
        users[~users.any(axis=1)] = mean
        assert self.settings.unobserved_weight is not None
        return ClickModel(
            users=np.vstack([mean, users]),
            items=np.vstack([np.zeros((1, items.shape[1])), items]),
            history=Lists.of(clicks.matrix()),
            models=(),
            weights=(1.0,),
            unobserved=self.settings.unobserved_weight,
            ridge=ridge,
            feature_weights=weights,
        )

    @property
    def _n_threads(self) -> int:
        return resolve_threads(self.options.n_jobs)

    def _factors(self, clicks: _Clicks, ridge: float, max_iter: int, start: Any) -> Any:
        settings = self.settings
        assert settings.n_components is not None
        assert settings.unobserved_weight is not None
        parameters: InteractionParameters = {
            "n_users": clicks.shape[0],
            "n_items": clicks.shape[1],
            "n_components": int(settings.n_components),
            "unobserved": float(settings.unobserved_weight),
            "ridge": float(ridge),
            "tol": float(settings.tol),
            "max_iter": int(max_iter),
            "n_threads": self._n_threads,
        }
        return _core.fit_interactions(
            {
                **parameters,
                "users": clicks.users,
                "items": clicks.items,
                "targets": clicks.targets,
                "weights": clicks.weights,
                "seed": resolve_seed(self.options.random_state),
                "start": start,
                "user_features": _core_features(self.features[0]),
                "item_features": _core_features(self.features[1]),
                "feature_ridge": FEATURE_RIDGE,
                "callback": self.options.callback,
            }
        )

    def _record(self, clicks: _Clicks) -> ClicksRecord:
        return {
            "users": clicks.users,
            "items": clicks.items,
            "values": clicks.values(),
            "n_users": clicks.shape[0],
            "n_items": clicks.shape[1],
            "n_kept": max(_KEPT, _ENTRIES // clicks.shape[1]),
            "n_threads": self._n_threads,
        }

    def _graph(self, clicks: _Clicks, exponents: tuple[float, float]) -> Lists:
        """Return the item graph with the given exponents of the numbers of clicks."""
        of_own, of_scored = exponents
        counts = np.bincount(clicks.items, minlength=clicks.shape[1])
        counts = np.maximum(counts, 1).astype(np.float32)
        record = self._record(clicks)
        # The core divides by the square roots of both numbers of clicks, and keeps the largest
        # entries of each row. Scaling its input values and its result gives the requested
        # exponents.
        record["values"] *= counts[clicks.items] ** np.float32(0.5 - of_scored)
        graph = _lists(_core.item_graph(record), clicks.shape[1])
        scale = counts ** np.float32(of_scored - of_own)
        values = graph.values * np.repeat(scale, np.diff(graph.offsets))
        return replace(graph, values=values)

    def _regression(self, clicks: _Clicks, ridge: float) -> Lists:
        head = np.unique(clicks.items)
        found = _core.item_regression(self._record(clicks), head, ridge, _DROPOUT)
        return _lists(found, clicks.shape[1])


def _described(
    factors: FloatArray, ids: NDArray[np.uint32], features: Any, weights: FloatArray | None
) -> FloatArray:
    """Return the factors; features predict the factors of ids without clicks."""
    if features is None or weights is None:
        return factors
    without = np.bincount(ids, minlength=len(factors)) == 0
    result: FloatArray = np.where(without[:, None], features @ weights, factors)
    return result


def _core_features(features: sp.csr_array | None) -> Rows | None:
    return None if features is None else core_rows(features)


def _lists(found: Any, n_items: int) -> Lists:
    offsets, items, values = found
    return Lists(offsets, items, values, n_items)


def _simplex(n_models: int) -> list[tuple[float, ...]]:
    """Return a grid of weights, summing to 1, of the factors and one or two item-item models."""
    shares = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0)
    if n_models == 1:
        return [(1.0 - share, share) for share in shares]
    parts = (0.0, 0.25, 0.5, 0.75, 1.0)
    grid: list[tuple[float, ...]] = [(1.0, 0.0, 0.0)]
    grid += [(1.0 - s, s * (1.0 - p), s * p) for s in shares[1:] for p in parts]
    return grid
