"""What a variational fit knows of ids that had no part in it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import _core
from dualgap._validation import FloatArray
from dualgap.recommend._factors import Blocks
from dualgap.recommend._ratings import Indexed


@dataclass(frozen=True)
class SidePrior:
    """The prior of one side's blocks, and how certain the fit is of them.

    The mean of a block is ``base[0] + base[1] * (log(1 + ratings) - centre) + features @ weights``;
    `spread` has the mean covariances of ids with 1, 2 to 3, 4 to 7, ... ratings.
    """

    base: FloatArray
    centre: FloatArray
    weights: FloatArray
    covariance: FloatArray
    spread: FloatArray

    @classmethod
    def read(cls, record: Any) -> SidePrior:
        """From what the core reports."""
        weights = record["features"]
        if weights is None:
            weights = np.zeros((0, len(record["covariance"])))
        centre = np.array([record["centre"]])
        return cls(record["base"], centre, weights, record["covariance"], record["spread"])

    def fits(self, n_bases: int, n_outputs: int) -> bool:
        """Whether the arrays are those of blocks of this size."""
        d = n_bases + n_outputs
        spread = n_outputs + n_outputs * n_bases + n_bases * (n_bases + 1) // 2
        arrays = [getattr(self, name) for name in PRIOR_FIELDS]
        return (
            all(a.dtype == np.float64 and bool(np.isfinite(a).all()) for a in arrays)
            and self.base.shape in ((1, d), (2, d))
            and self.centre.shape == (1,)
            and self.weights.shape[1:] == (d,)
            and self.covariance.shape == (d, d)
            and self.spread.shape[1:] == (spread,)
            and len(self.spread) > 0
        )

    def means(self, counts: NDArray[np.intp], features: sp.csr_array | None) -> FloatArray:
        """Prior means of ids with so many ratings."""
        means = np.tile(self.base[0], (len(counts), 1))
        if len(self.base) > 1:
            means += np.outer(np.log1p(counts) - self.centre[0], self.base[1])
        if features is not None and len(self.weights):
            means += features @ self.weights
        return means


@dataclass(frozen=True)
class Learned:
    """The priors of both sides, and the rest of what a likelihood needs."""

    users: SidePrior
    items: SidePrior
    # 1/variance of a rating; of no use to levels.
    precision: FloatArray
    # The weights of the thresholds; empty for a regression.
    tempering: FloatArray

    def fits(self, n_bases: int, n_outputs: int) -> bool:
        """Whether the arrays are those of a model of this size."""
        extra = self.tempering.dtype == self.precision.dtype == np.float64
        return (
            extra
            and self.precision.shape == (1,)
            and self.tempering.shape in ((0,), (n_outputs,))
            and bool(np.isfinite(self.tempering).all())
            and all(side.fits(n_bases, n_outputs) for side in (self.users, self.items))
        )

    def fold_in(
        self,
        blocks: Blocks,
        ratings: Indexed,
        n_new: int,
        counts: NDArray[np.intp],
        features: sp.csr_array | None,
        *,
        of_users: bool,
        n_threads: int,
    ) -> FloatArray:
        """Blocks of new ids: `ratings.users` are theirs, `ratings.items` those of the other side.

        `counts` are the numbers of ratings of the other side's ids; values are the core's.
        """
        prior, other = (self.users, self.items) if of_users else (self.items, self.users)
        means = (blocks.items if of_users else blocks.users)[:-1]
        own = np.bincount(ratings.users, minlength=n_new)
        return _core.fold_in(
            ratings.users.astype(np.uint32),
            ratings.items.astype(np.uint32),
            np.ascontiguousarray(ratings.values),
            {
                "means": np.ascontiguousarray(means),
                "counts": counts.astype(np.uint32),
                "spread": other.spread,
                "output": blocks.output,
                "intercept": blocks.intercept.tolist(),
                "precision": float(self.precision[0]),
                "tempering": self.tempering.tolist() if len(self.tempering) else None,
                "prior_mean": prior.means(own, features),
                "covariance": prior.covariance,
                "n_threads": n_threads,
            },
        )


PRIOR_FIELDS = tuple(field.name for field in fields(SidePrior))
