"""Randomised away-step Frank-Wolfe (Boileau et al. 2019) with subsampled atoms or examples.

    python benches/randomized_away.py

"atoms" runs the paper's algorithm on least squares over the simplex and the lasso ball, given as
lists of atoms: each step searches its active atoms and a random part of the other atoms. "examples"
runs `StructuredSVM(solver="away-frank-wolfe", subsample=...)`, whose steps decode a random part of
the examples. Each row has the numbers of iterations and of searched atoms (decodings) until the
error, relative to the initial error, is below 1e-2, 1e-4, ... It also has the rate: the mean factor
of the error per iteration in the second half of the iterations. With linear convergence, the rate
is below 1.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from _record import Table

from dualgap.structured import MulticlassModel, StructuredSVM

LEVELS = (1e-2, 1e-4, 1e-6, 1e-8)


class Quadratic:
    """A random objective 1/2 ||B x - c||^2 whose minimum over the atoms' hull is inside a face."""

    def __init__(self, domain: str, d: int = 60) -> None:
        rng = np.random.default_rng(0)
        self.B = rng.normal(size=(2 * d, d)) / np.sqrt(2 * d)
        inside = np.where(np.arange(d) < d // 4, rng.random(d), 0.0)
        inside /= 1.25 * inside.sum() if domain == "lasso ball" else inside.sum()
        if domain == "lasso ball":
            # The unconstrained solution is outside the hull, so the constraint is active.
            inside *= 1.5 * np.where(rng.random(d) < 0.5, -1.0, 1.0)
        self.c = self.B @ inside + 0.05 * rng.normal(size=2 * d)
        eye = np.eye(d)
        self.atoms = np.vstack([eye, -eye]) if domain == "lasso ball" else eye

    def value(self, x: Any) -> float:
        return 0.5 * float(((self.B @ x - self.c) ** 2).sum())

    def gradient(self, x: Any) -> Any:
        return self.B.T @ (self.B @ x - self.c)


def run(f: Quadratic, share: float, iterations: int, seed: int = 0) -> tuple[Any, Any]:
    """Return the values of the iterates, and the cumulative number of searched atoms."""
    rng = np.random.default_rng(seed)
    n, weights = len(f.atoms), {0: 1.0}
    x, p = f.atoms[0].copy(), max(1, round(share * len(f.atoms)))
    values, seen = [f.value(x)], [0]
    for _ in range(iterations):
        gradient, active = f.gradient(x), np.array(sorted(weights))
        others = np.setdiff1d(np.arange(n), active)
        sampled = rng.choice(others, min(p, len(others)), replace=False)
        looked = np.concatenate([active, sampled])
        scores = f.atoms[looked] @ gradient
        to, away = looked[scores.argmin()], active[scores[: len(active)].argmax()]
        towards, back = f.atoms[to] - x, x - f.atoms[away]
        forward = gradient @ towards <= gradient @ back or len(active) == 1
        direction = towards if forward else back
        alpha = weights[away]
        longest = 1.0 if forward else alpha / (1.0 - alpha)
        square = ((f.B @ direction) ** 2).sum()
        step = min(longest, -(gradient @ direction) / square) if square > 0.0 else 0.0
        step = max(step, 0.0)
        x = x + step * direction
        factor, changed = (1 - step, to) if forward else (1 + step, away)
        weights = {atom: factor * weight for atom, weight in weights.items()}
        weights[changed] = weights.get(changed, 0.0) + (step if forward else -step)
        dropped = None if forward or step < longest else away
        weights = {a: w for a, w in weights.items() if w > 1e-15 and a != dropped}
        values.append(f.value(x))
        seen.append(seen[-1] + len(looked))
    return np.array(values), np.array(seen)


def summary(errors: Any, work: Any) -> dict[str, Any]:
    """Return the iterations at which the errors fall below the levels, and the rate."""
    relative = errors / errors[0]
    cells: dict[str, Any] = {}
    for level in LEVELS:
        at = np.flatnonzero(relative <= level)
        name = f"{level:.0e}".replace("1e-0", "to_1e_")
        cells[name] = int(at[0]) if len(at) else None
        cells[f"{name}_work"] = int(work[at[0]]) if len(at) else None
    inside = np.flatnonzero((relative < 1e-3) & (relative > 1e-9))
    if len(inside) > 1:
        first, last = inside[0], inside[-1]
        cells["rate"] = float((relative[last] / relative[first]) ** (1 / (last - first)))
    return cells


def atoms(table: Table) -> None:
    for domain in ("simplex", "lasso ball"):
        f = Quadratic(domain)
        best = run(f, 1.0, 20_000)[0].min()
        for share in (1.0, 0.5, 0.2, 0.05):
            values, seen = run(f, share, 6000)
            table.add(domain=domain, share=share, **summary(values - best, seen))


def examples(table: Table) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 4
    X = 0.7 * rng.normal(size=(4, 8))[y] + rng.normal(size=(60, 8))
    common: dict[str, Any] = {"C": 0.05, "random_state": 0}
    best = StructuredSVM(
        MulticlassModel(), step="pairwise", tol=1e-12, max_iter=20_000, **common
    ).fit(X, y)
    for share in (1.0, 0.5, 0.2, 0.05):
        model = StructuredSVM(
            MulticlassModel(),
            solver="away-frank-wolfe",
            subsample=share,
            max_iter=20_000,
            tol=1e-10,
            **common,
        ).fit(X, y)
        history = model.history_
        known = np.isfinite(history["dual_objective"])
        errors = np.r_[best.objective_, best.objective_ - history["dual_objective"][known]]
        epochs = np.r_[0, history["epoch"][known]]
        work = epochs * max(1, round(share * len(y)))
        row = summary(np.maximum(errors, 1e-300), work)
        # Errors are known only for the epochs that compute a certificate.
        inside = (errors[1:] / errors[0] < 1e-3) & (errors[1:] / errors[0] > 1e-9)
        if inside.sum() > 1:
            at = np.flatnonzero(inside) + 1
            steps = epochs[at[-1]] - epochs[at[0]]
            row["rate"] = float((errors[at[-1]] / errors[at[0]]) ** (1 / steps))
        for level in LEVELS:
            name = f"{level:.0e}".replace("1e-0", "to_1e_")
            row[name] = None if row[name] is None else int(epochs[row[name]])
        table.add(domain="structured SVM", share=share, **row)


def main() -> None:
    warnings.simplefilter("ignore")
    table = Table("randomized-away", "domain", "share")
    atoms(table)
    examples(table)


if __name__ == "__main__":
    main()
