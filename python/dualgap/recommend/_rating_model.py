"""The learned rating model: factorization machines that predict, rank and fold in new ids."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dualgap import _core
from dualgap._records import ExclusionRecord, FoldInRecord, PartRecord
from dualgap._validation import FloatArray
from dualgap.recommend._features import Periods
from dualgap.recommend._growing import Cached, rows_of
from dualgap.recommend._ranking import Candidates, best_items
from dualgap.recommend._ratings import RatingScale, level_probabilities, refuse_level
from dualgap.recommend._training import (
    FitRecord,
    NewRatings,
    Pairs,
    RunOptions,
    Side,
    Training,
)

_SIDES: tuple[Side, Side] = ("users", "items")


def default_n_components(n_ratings: int, has_histories: bool) -> int:
    """Return the default number of basis vectors; histories justify more vectors."""
    times = max(1.0, n_ratings / 50_000)
    grown: float = min(64.0, 8 * times**0.55) if has_histories else 8 * times**0.4
    return round(grown)


# --- One machine ---


@dataclass(frozen=True)
class Machine:
    """Factorization machine of users and items: o_c = b_c + l_uc + l_ic + sum_r U_rc p_ur q_ir.

    A user's row is [p | l], and an item's row is [q | l]. The first row of each table is for
    unknown ids.
    """

    users: FloatArray
    items: FloatArray
    output: FloatArray
    intercept: FloatArray

    def pairs(self, users: NDArray[np.intp], items: NDArray[np.intp]) -> FloatArray:
        """Return the outputs of (user, item) pairs, shape (n_pairs, n_outputs)."""
        k = len(self.output)
        u, i = rows_of(self.users, users), rows_of(self.items, items)
        return self.intercept + u[:, k:] + i[:, k:] + (u[:, :k] * i[:, :k]) @ self.output

    def user_rows(self, users: NDArray[np.intp], scale: RatingScale) -> NDArray[np.float32]:
        """Return users' factors and offset for each output, shape (n_users, n_outputs, k + 1).

        Outputs are divided by ``scale.ranking_unit``. The intercept of a regression is left out,
        because in single precision a large intercept would hide the differences between items.
        """
        k, m = self.output.shape
        rows = np.empty((len(users), m, k + 1), dtype=np.float32)
        own = rows_of(self.users, users)
        rows[:, :, :k] = own[:, np.newaxis, :k] * (self.output.T / scale.ranking_unit)
        offsets = own[:, k:] + self.intercept if scale.ordinal else own[:, k:]
        rows[:, :, k] = offsets / scale.ranking_unit
        return rows

    def packed_items(self, scale: RatingScale) -> _core.PackedItems:
        """Return known items' factors, and their offset for each output in ``ranking_unit``."""
        rows = self.items[1:].copy()
        rows[:, len(self.output) :] /= scale.ranking_unit
        return _core.PackedItems(rows.astype(np.float32))

    def with_rows(self, new: NewRatings, rows: FloatArray) -> Machine:
        """Insert rows of new ids."""
        return replace(self, **{new.side: new.insert_rows(getattr(self, new.side), rows)})

    def item_vectors(self) -> FloatArray:
        """Return known items' factors, each times the square root of its output weights' norm."""
        k = len(self.output)
        return np.asarray(self.items[1:, :k] * np.sqrt(np.linalg.norm(self.output, axis=1)))

    def n_bases(self) -> int:
        """Number of basis vectors that at least one output uses."""
        return int((np.abs(self.output).max(axis=1, initial=0.0) > 1e-6).sum())

    def fits(self, shape: tuple[int, int], n_outputs: int) -> bool:
        """Whether arrays from a file have the shapes of a machine of this size."""
        n_bases = len(self.output)
        width = n_bases + n_outputs
        arrays = list(vars(self).values())
        return (
            all(array.dtype == np.float64 for array in arrays)
            and all(bool(np.isfinite(array).all()) for array in arrays)
            and self.users.shape == (shape[0] + 1, width)
            and self.items.shape == (shape[1] + 1, width)
            and self.output.shape == (n_bases, n_outputs)
            and self.intercept.shape == (n_outputs,)
        )


# --- Priors: new ids ---


@dataclass(frozen=True)
class SidePrior:
    """The prior of the rows of users or of items, and the uncertainty of the fitted rows.

    The mean of a row is ``base[0] + base[1] * (log(1 + ratings) - centre) + features @ weights``.
    The rows of `spread` are the mean covariances of ids with 1, with 2 to 3, with 4 to 7 ratings,
    and so on.
    """

    base: FloatArray
    centre: FloatArray
    weights: FloatArray
    covariance: FloatArray
    spread: FloatArray

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> SidePrior:
        """Read the prior from a record of the core."""
        weights = record["features"]
        if weights is None:
            weights = np.zeros((0, len(record["covariance"])))
        centre = np.array([record["centre"]])
        return cls(record["base"], centre, weights, record["covariance"], record["spread"])

    def fits(self, n_bases: int, n_outputs: int) -> bool:
        """Whether the arrays have the shapes for a machine of this size."""
        d = n_bases + n_outputs
        spread = n_outputs + n_outputs * n_bases + n_bases * (n_bases + 1) // 2
        arrays = list(vars(self).values())
        return (
            all(a.dtype == np.float64 and bool(np.isfinite(a).all()) for a in arrays)
            and self.base.shape in ((1, d), (2, d))
            and self.centre.shape == (1,)
            and self.weights.shape[1:] == (d,)
            and self.covariance.shape == (d, d)
            and self.spread.shape[1:] == (spread,)
            and len(self.spread) > 0
        )

    def means(
        self,
        counts: NDArray[np.intp],
        features: sp.csr_array | None,
        histories: sp.csr_array | None,
    ) -> FloatArray:
        """Return the prior means of ids, given their numbers of ratings, features and histories."""
        means = np.repeat(self.base[:1], len(counts), axis=0)
        if len(self.base) > 1:
            # As in the fit, an id without ratings is treated like an id with an average number of
            # ratings.
            logs = np.where(counts > 0, np.log1p(counts) - self.centre[0], 0.0)
            means += logs[:, np.newaxis] * self.base[1]
        if len(self.weights):
            n_first = len(self.weights) - (0 if histories is None else histories.shape[1])
            if features is not None:
                means += features @ self.weights[:n_first]
            if histories is not None:
                means += histories @ self.weights[n_first:]
        return means


@dataclass(frozen=True)
class Priors:
    """The priors of users and items and the likelihood parameters, used to fit rows of new ids."""

    users: SidePrior
    items: SidePrior
    # Precision (1/variance) of a rating; not used for ordinal levels.
    precision: FloatArray
    # Weights of the thresholds in the likelihood; empty for a regression.
    tempering: FloatArray

    def fits(self, n_bases: int, n_outputs: int) -> bool:
        """Whether the arrays have the shapes for a machine of this size."""
        return (
            self.tempering.dtype == self.precision.dtype == np.float64
            and self.precision.shape == (1,)
            and self.tempering.shape in ((0,), (n_outputs,))
            and bool(np.isfinite(self.tempering).all())
            and all(side.fits(n_bases, n_outputs) for side in (self.users, self.items))
        )

    def with_histories_of(self, new: NewRatings) -> Priors:
        """Append a weight of 0 for each new id, a history feature of the other side."""
        side = "items" if new.side == "users" else "users"
        prior = getattr(self, side)
        n_new = int((new.rows >= new.n_known).sum())
        weights = np.pad(prior.weights, ((0, n_new), (0, 0)))
        changed: Any = {side: replace(prior, weights=weights)}
        return replace(self, **changed)

    def record(self, machine: Machine, new: NewRatings) -> FoldInRecord:
        """Return the data from which the core fits new ids of a factorization machine."""
        prior, other, means = self.users, self.items, machine.items[1:]
        if new.side == "items":
            prior, other, means = other, prior, machine.users[1:]
        counts = np.bincount(new.own, minlength=len(new.ids))
        return {
            "means": np.ascontiguousarray(means),
            "spread": other.spread,
            "output": machine.output,
            "intercept": machine.intercept,
            "precision": float(self.precision[0]),
            "tempering": self.tempering,
            "prior_mean": prior.means(counts, new.features, new.histories),
            "covariance": prior.covariance,
        }


# --- Times ---


@dataclass(frozen=True)
class PeriodWeights:
    """Weights of the periods of users or items: one table per machine, whose last row is zero."""

    codes: NDArray[np.int64]
    tables: list[FloatArray]

    @classmethod
    def of(cls, codes: NDArray[np.int64], tables: list[FloatArray]) -> PeriodWeights:
        """Append a row for unknown periods to tables of known ones."""
        return cls(codes, [np.vstack([table, np.zeros((1, table.shape[1]))]) for table in tables])

    def fits(self, n_machines: int, n_outputs: int) -> bool:
        """Whether the weights have the shapes for machines of this size."""
        shape = (len(self.codes) + 1, n_outputs)
        return (
            self.codes.dtype == np.int64
            and bool((np.diff(self.codes) > 0).all())
            and len(self.tables) == n_machines
            and all(table.shape == shape and table.dtype == np.float64 for table in self.tables)
            and all(bool(np.isfinite(table).all()) for table in self.tables)
        )

    def find(self, codes: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the rows of the tables for these periods."""
        at = np.minimum(np.searchsorted(self.codes, codes), max(len(self.codes) - 1, 0))
        known = self.codes[at] == codes if len(self.codes) else np.zeros(len(codes), dtype=bool)
        return np.where(known, at, len(self.codes))

    def without(self, positions: NDArray[np.intp]) -> PeriodWeights:
        """Drop the weights of some users or items."""
        stale = np.isin(self.codes // 2**31, positions)
        if not stale.any():
            return self
        tables = [table.copy() for table in self.tables]
        for table in tables:
            table[:-1][stale] = 0.0
        return PeriodWeights(self.codes, tables)


@dataclass(frozen=True)
class TimeEffects:
    """The weights of the periods of users and of items."""

    users: PeriodWeights
    items: PeriodWeights

    def outputs(self, periods: Periods, number: int) -> FloatArray:
        """Return contributions to the outputs of a machine, shape (n_pairs, n_outputs)."""
        users, items = (
            side.tables[number][side.find(codes)]
            for side, codes in zip((self.users, self.items), periods, strict=True)
        )
        return np.asarray(users + items)


# --- The model ---


@dataclass(frozen=True)
class RatingModel(Cached):
    """Factorization machines whose expected ratings are averaged."""

    scale: RatingScale
    machines: list[Machine]
    # One entry per machine, or none if the method has no priors.
    priors: list[Priors] = field(default_factory=list)
    times: TimeEffects | None = None

    @property
    def n_bases(self) -> int:
        """Largest number of basis vectors that any of the machines uses."""
        return max(machine.n_bases() for machine in self.machines)

    def predict(self, pairs: Pairs) -> FloatArray:
        """Return the expected ratings of pairs."""
        result = np.empty(len(pairs.users))
        for rows, some in pairs.batches():
            each = [self.scale.expected(outputs) for outputs in self._outputs(some)]
            result[rows] = np.mean(each, axis=0)
        return result

    def predict_proba(self, pairs: Pairs) -> FloatArray:
        """Return the probabilities of the levels, shape (n_pairs, n_levels)."""
        levels = self.scale.levels
        result = np.empty((len(pairs.users), len(levels)))
        for rows, some in pairs.batches():
            each = [level_probabilities(outputs, levels) for outputs in self._outputs(some)]
            result[rows] = np.mean(each, axis=0)
        return result

    def _outputs(self, pairs: Pairs) -> Iterator[FloatArray]:
        """Yield the outputs of each machine."""
        for number, machine in enumerate(self.machines):
            outputs = machine.pairs(pairs.users, pairs.items)
            if self.times is not None and pairs.periods is not None:
                outputs = outputs + self.times.outputs(pairs.periods, number)
            yield outputs

    def best_items(
        self, users: NDArray[np.intp], n: int, candidates: Candidates
    ) -> tuple[NDArray[np.int64], FloatArray]:
        """Return the positions and the expected ratings of each user's best items.

        If fewer than `n` items are available, the remaining positions are -1.
        """
        scale, levels = self.scale, self.scale.levels
        # The core works in single precision, so levels are scaled to a range from 0 to 1.
        gaps = (np.diff(levels) / scale.span).tolist() if scale.ordinal else None

        def search(chosen: NDArray[np.intp], excluded: ExclusionRecord) -> Any:
            parts: list[PartRecord] = [
                {
                    "users": machine.user_rows(chosen, scale),
                    "items": packed,
                    "gaps": gaps,
                    "weight": 1.0 / len(self.machines),
                }
                for machine, packed in zip(self.machines, self._packed_items, strict=True)
            ]
            return _core.best_items(parts, excluded, n)

        found, scores = best_items(search, users, n, candidates)
        if scale.ordinal:
            return found, levels[0] + scale.span * scores
        mean = np.mean([machine.intercept[0] for machine in self.machines])
        return found, np.clip(mean + scale.ranking_unit * scores, *levels[[0, -1]])

    @cached_property
    def _packed_items(self) -> list[_core.PackedItems]:
        return [machine.packed_items(self.scale) for machine in self.machines]

    def item_vectors(self) -> FloatArray:
        """Return factors of all items, whose cosines are item similarities."""
        return np.hstack([machine.item_vectors() for machine in self.machines])

    @cached_property
    def without_users(self) -> RatingModel:
        """Return the model with only the row for unknown users."""
        machines = [replace(machine, users=machine.users[:1]) for machine in self.machines]
        alone = replace(self, machines=machines, times=None)
        vars(alone)["_packed_items"] = self._packed_items
        return alone

    def fold_in(self, new: NewRatings, n_threads: int) -> RatingModel:
        """Add rows of new ids, fitted with the machines' priors."""
        values, levels = new.values, self.scale.levels
        if self.scale.ordinal:
            places = np.minimum(np.searchsorted(levels, values), len(levels) - 1)
            if (strange := np.flatnonzero(levels[places] != values)).size:
                own = new.own[strange[0]]
                owner = f"{new.side[:-1]} {new.ids[own : own + 1].tolist()[0]!r}"
                refuse_level(values[strange[0]], owner, levels)
            values = places.astype(np.float64)
        values = np.ascontiguousarray(values)
        pairs = zip(self.machines, self.priors, strict=True)
        records = [priors.record(machine, new) for machine, priors in pairs]
        ratings = new.own.astype(np.uint32), new.other.astype(np.uint32), values
        blocks = _core.fold_in(ratings, new.counts.astype(np.uint32), records, n_threads)
        machines = [
            machine.with_rows(new, rows)
            for machine, rows in zip(self.machines, blocks, strict=True)
        ]
        extended = self.priors
        if new.of_other:
            extended = [priors.with_histories_of(new) for priors in extended]
        times = self.times
        if times is not None and not new.all_new:
            kept: Any = {new.side: getattr(times, new.side).without(new.rows)}
            times = replace(times, **kept)
        grown = replace(self, machines=machines, priors=extended, times=times)
        names = ("without_users", "_packed_items") if new.side == "users" else ()
        return grown.with_caches_of(self, *names)

    def fits(self, shape: tuple[int, int]) -> bool:
        """Whether arrays from a file match this number of users and items."""
        n_outputs, n_machines = self.scale.n_outputs, len(self.machines)
        return (
            min(len(self.scale.levels) - 1, n_machines) > 0
            and self.scale.span < np.inf
            and all(machine.fits(shape, n_outputs) for machine in self.machines)
            and len(self.priors) in (0, n_machines)
            and all(
                priors.fits(len(machine.output), n_outputs)
                for machine, priors in zip(self.machines, self.priors, strict=False)
            )
            and (
                self.times is None
                or all(
                    side.fits(n_machines, n_outputs)
                    for side in (self.times.users, self.times.items)
                )
            )
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save in a file."""
        arrays: dict[str, NDArray[Any]] = {}
        for number, machine in enumerate(self.machines):
            # In files, the row for unknown ids comes last.
            own = vars(machine)
            own = own | {side: np.roll(own[side], -1, axis=0) for side in _SIDES}
            arrays |= {f"model{number}.{name}": array for name, array in own.items()}
        for number, priors in enumerate(self.priors):
            for side in _SIDES:
                prior = vars(getattr(priors, side))
                arrays |= {f"learned{number}.{side}.{name}": prior[name] for name in prior}
            arrays[f"learned{number}.precision"] = priors.precision
            arrays[f"learned{number}.tempering"] = priors.tempering
        if self.times is not None:
            for side in _SIDES:
                weights: PeriodWeights = getattr(self.times, side)
                arrays[f"times.{side}"] = weights.codes
                for number, table in enumerate(weights.tables):
                    arrays[f"times{number}.{side}"] = table[:-1]
        return arrays

    @classmethod
    def read(
        cls, arrays: Mapping[str, NDArray[Any]], scale: RatingScale, n_machines: int
    ) -> RatingModel:
        """Read `arrays` without checking them; the caller must call `fits`."""

        def part(kind: type[Any], prefix: str) -> Any:
            return kind(*(arrays[f"{prefix}.{field.name}"] for field in fields(kind)))

        priors: list[Priors] = []
        while f"learned{len(priors)}.precision" in arrays:
            start = f"learned{len(priors)}"
            users, items = (part(SidePrior, f"{start}.{side}") for side in _SIDES)
            rest = [arrays[f"{start}.{name}"] for name in ("precision", "tempering")]
            priors.append(Priors(users, items, *rest))
        times = None
        if "times.users" in arrays:
            tables = {
                side: [arrays[f"times{number}.{side}"] for number in range(n_machines)]
                for side in _SIDES
            }
            times = TimeEffects(
                *(PeriodWeights.of(arrays[f"times.{side}"], tables[side]) for side in _SIDES)
            )
        machines = [part(Machine, f"model{number}") for number in range(n_machines)]
        for at, machine in enumerate(machines):
            users, items = (np.roll(getattr(machine, side), 1, axis=0) for side in _SIDES)
            machines[at] = replace(machine, users=users, items=items)
        return cls(scale, machines, priors, times)


# --- Methods ---


# Not an estimator, but scikit-learn can read, set, clone and search its parameters.
class Method(BaseEstimator):  # type: ignore[misc]
    """A training method of the rating model, with its own parameters."""

    name: ClassVar[str]
    # Whether the number of basis vectors is chosen on held-out ratings.
    validates: ClassVar[bool]
    # Whether the method supports time features.
    has_times: ClassVar[bool] = False

    @abstractmethod
    def check(self) -> None:
        """Raise an error for invalid parameters."""

    def n_epochs(self) -> int | None:
        """Return the maximum number of epochs that the callback receives, if known."""
        return None

    @abstractmethod
    def run(
        self, training: Training, scale: RatingScale, n_components: int, options: RunOptions
    ) -> tuple[RatingModel, FitRecord]:
        """Fit a model with at most `n_components` basis vectors."""
