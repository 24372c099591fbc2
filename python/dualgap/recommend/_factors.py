"""A fitted two-sided factorization machine as blocks of users and items."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit

from dualgap._validation import FloatArray


@dataclass(frozen=True)
class Blocks:
    """Blocks [p | l] of users and [q | l] of items: o_c = b_c + l_uc + l_ic + sum_r U_rc p_ur q_ir.

    The last row of either table stands for unknown ids.
    """

    users: FloatArray
    items: FloatArray
    output: FloatArray
    intercept: FloatArray

    def pairs(self, users: NDArray[np.intp], items: NDArray[np.intp]) -> FloatArray:
        """Outputs of (user, item) pairs, shape (n_pairs, n_outputs)."""
        k = len(self.output)
        u, i = self.users[users], self.items[items]
        return self.intercept + u[:, k:] + i[:, k:] + (u[:, :k] * i[:, :k]) @ self.output

    def user_rows(self, users: NDArray[np.intp]) -> NDArray[np.float32]:
        """Factors and offset of each output, shape (n_users, n_outputs, k + 1)."""
        k, m = self.output.shape
        rows = np.empty((len(users), m, k + 1), dtype=np.float32)
        rows[:, :, :k] = self.users[users, np.newaxis, :k] * self.output.T
        rows[:, :, k] = self.users[users, k:] + self.intercept
        return rows

    def item_rows(self) -> NDArray[np.float32]:
        """Factors of the known items, and their offset for each output."""
        return np.ascontiguousarray(self.items[:-1], dtype=np.float32)

    def item_vectors(self) -> FloatArray:
        """Factors of the known items, scaled by what the outputs make of each."""
        k = len(self.output)
        return np.asarray(self.items[:-1, :k] * np.sqrt(np.linalg.norm(self.output, axis=1)))

    def n_bases(self) -> int:
        """Number of bases that any output uses."""
        return int((np.abs(self.output).max(axis=1, initial=0.0) > 1e-6).sum())


BLOCK_FIELDS = tuple(field.name for field in fields(Blocks))


def from_machine(
    result: Any,
    user_features: sp.csr_array | None,
    item_features: sp.csr_array | None,
    n_users: int,
    n_items: int,
) -> Blocks:
    """Blocks of a factorization machine on [user | item | user features | item features].

    Products of two inputs of the same side depend on that side alone and go to its linear part.
    """
    basis, output = np.ascontiguousarray(result["basis"].T), result["output"]
    linear = result["linear"]
    n_user_features = 0 if user_features is None else user_features.shape[1]
    ends = np.cumsum([0, n_users, n_items, n_user_features, basis.shape[0]])
    ends[-1] = basis.shape[0]

    def side(own: int, extra: int, features: sp.csr_array | None) -> FloatArray:
        factors, weights = basis[ends[own] : ends[own + 1]], linear[ends[own] : ends[own + 1]]
        if features is not None:
            rest = slice(ends[extra], ends[extra + 1])
            total = factors + features @ basis[rest]
            squares = factors**2 + features.multiply(features) @ basis[rest] ** 2
            inside = 0.5 * (total**2 - squares)
            weights = weights + features @ linear[rest] + inside @ output
            factors = total
        unknown = np.zeros((1, factors.shape[1] + weights.shape[1]))
        return np.vstack([np.hstack([factors, weights]), unknown])

    users, items = side(0, 2, user_features), side(1, 3, item_features)
    return Blocks(users, items, np.ascontiguousarray(output), linear[-1].copy())


def expected_level(outputs: FloatArray, levels: FloatArray) -> FloatArray:
    """E[y] = L - sum_c (gap between levels c and c + 1) P(y <= level c)."""
    return np.asarray(levels[-1] - expit(outputs) @ np.diff(levels))


def level_probabilities(outputs: FloatArray, levels: FloatArray) -> FloatArray:
    """P(y = level): differences of the nearest increasing P(y <= level), shape (n, n_levels).

    Isotonic regression weighted by the gaps between levels leaves the expected level as it is.
    """
    below = expit(outputs)
    gaps = np.diff(levels)
    for row in np.flatnonzero((np.diff(below, axis=1) < 0.0).any(axis=1)):
        below[row] = isotonic_regression(below[row], weights=gaps).x
    edges = [np.zeros((*below.shape[:-1], 1)), below, np.ones((*below.shape[:-1], 1))]
    return np.diff(np.concatenate(edges, axis=-1), axis=-1)
