"""The rounds of consensus training: consensus, penalty, residuals, certificate, stopping.

Boyd, Parikh, Chu, Peleato, Eckstein: Distributed optimization and statistical learning via the
alternating direction method of multipliers, 2011, sections 3.3, 3.4, 7.1.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dualgap._base import Callback, FloatArray
from dualgap._consensus import Answer, Order, Plan, replace
from dualgap._engines import Engine
from dualgap._npz import read_meta, read_npz, refused_as

COLUMNS = (
    "epoch",
    "seconds",
    "primal",
    "dual",
    "gap",
    "primal_residual",
    "dual_residual",
    "rho",
    "passes",
    "solve_seconds",
)
"""What a round leaves in the history; gap is that of the best primal and dual values so far."""

_BALANCE_ROUNDS = 100
"""The penalty is left alone from here on: a penalty that changes for ever need not converge."""


_INNER = 0.1
"""Gap of the sub-problems, relative to that of the whole."""


_IMBALANCE = 5.0
"""Ratio of the relative residuals at which the penalty changes."""


@dataclass
class Run:
    """Where the rounds stand."""

    consensus: FloatArray
    rho: float
    round: int = 0
    best: FloatArray | None = None
    primal: float = np.inf
    dual: float = -np.inf
    null_objective: float = np.nan
    seconds: float = 0.0
    outcome: str = "epoch_limit"
    rows: list[list[float]] = field(default_factory=list)

    @property
    def gap(self) -> float:
        """Best primal minus best dual value."""
        return self.primal - self.dual


@dataclass(frozen=True)
class Settings:
    """What the rounds obey."""

    tol: float
    max_rounds: int
    adapt: bool
    interval: float
    callback: Callback | None
    identity: dict[str, Any]


def train(engine: Engine, numbers: list[int], plan: Plan, settings: Settings, run: Run) -> None:
    """Do rounds until the certificate is good enough."""
    started, saved = time.monotonic() - run.seconds, -np.inf
    while run.round < settings.max_rounds:
        run.round += 1
        now = time.monotonic()
        save = plan.folder is not None and now - saved >= settings.interval
        accuracy = _inner_gap(run, settings.tol, len(numbers))
        order = Order(run.round, run.rho, *accuracy, save)
        answer = engine.ask(numbers, plan, order, run.consensus)
        _digest(run, answer, plan, settings)
        run.seconds = time.monotonic() - started
        run.rows[-1][1] = run.seconds
        if save and plan.folder is not None:
            _keep(run, plan, settings)
            saved = now
        row = run.rows[-1]
        stop = False
        if settings.callback is not None:
            stop = bool(settings.callback(run.round, run.seconds, row[2], row[3]))
        if run.gap <= settings.tol * run.null_objective:
            run.outcome = "converged"
            return
        if stop:
            run.outcome = "stopped"
            return


def _inner_gap(run: Run, tol: float, n_partitions: int) -> tuple[float, float]:
    """How well the sub-problems are to be solved: better than the whole is known.

    A gap, and in the first round a share of the loss.
    """
    alone = n_partitions == 1
    if run.round == 1:
        return 0.0, tol if alone else _INNER
    if alone:
        return tol * run.null_objective, 0.0
    known = run.gap if np.isfinite(run.gap) else run.null_objective
    return _INNER * max(known, tol * run.null_objective), 0.0


def _digest(run: Run, answer: Answer, plan: Plan, settings: Settings) -> None:
    """Make the next consensus of a round's sum, and what the round certifies."""
    lam, rho, relaxation = plan.regularization, run.rho, plan.relaxation if run.rho > 0 else 1.0
    old = run.consensus
    primal = 0.5 * lam * float(old @ old) + answer.loss
    if not np.isfinite(primal):
        msg = "the objective is no longer finite; scale the data or lower C"
        raise RuntimeError(msg)
    if run.round == 1:
        run.null_objective = primal
    if primal < run.primal:
        run.primal, run.best = primal, old
    new = answer.vector + (1.0 - relaxation) * old
    dual = primal_residual = np.nan
    # Where a partition began anew the multipliers do not add up to 0 until the next round.
    if not answer.restarted:
        mean = answer.vector / relaxation
        image = ((lam + rho) * mean - rho * old) / lam
        dual = answer.dual_term - 0.5 * lam * float(image @ image)
        run.dual = max(run.dual, dual)
        spread = answer.square - 2.0 * float(new @ mean) + float(new @ new)
        primal_residual = np.sqrt(max(0.0, spread))
    dual_residual = rho * float(np.linalg.norm(new - old))
    run.consensus = new
    row = [run.round, 0.0, primal, dual, run.gap, primal_residual, dual_residual, rho]
    run.rows.append([*row, answer.passes, answer.seconds])
    if settings.adapt and run.round <= _BALANCE_ROUNDS and rho > 0 and not answer.restarted:
        # Residuals relative to what their tolerances are relative to (3.3.1), balanced as in 3.4.1.
        size = max(np.sqrt(answer.square), float(np.linalg.norm(new)))
        force = np.sqrt(answer.multiplier_square)
        if size > 0 and force > 0:
            primal_part, dual_part = primal_residual / size, dual_residual / force
            if primal_part > _IMBALANCE * dual_part:
                run.rho = 2.0 * rho
            elif dual_part > _IMBALANCE * primal_part:
                run.rho = 0.5 * rho


def _keep(run: Run, plan: Plan, settings: Settings) -> None:
    assert plan.folder is not None
    assert run.best is not None
    names = ("rho", "round", "primal", "dual", "null_objective", "seconds")
    # JSON has no infinity.
    values = {name: repr(float(getattr(run, name))) for name in names}
    meta = {"run": plan.run, "identity": settings.identity, "values": values}
    arrays = {"consensus": run.consensus, "best": run.best, "rows": np.array(run.rows)}
    replace(Path(plan.folder) / "consensus.npz", meta, arrays)


def resume(folder: str, identity: dict[str, Any], n_weights: int) -> tuple[str, Run]:
    """Continue from a kept copy of a run on the same data and parameters."""
    path = Path(folder) / "consensus.npz"
    if not path.exists():
        msg = f"resume: there is no checkpoint in {os.fspath(folder)}"
        raise ValueError(msg)
    with refused_as(path, "a checkpoint of this fit"):
        arrays = read_npz(path)
        meta = read_meta(arrays, identity=identity)
        consensus, best, rows = (arrays[name] for name in ("consensus", "best", "rows"))
        if consensus.shape != (n_weights,) or best.shape != (n_weights,):
            msg = "the weights have another shape"
            raise ValueError(msg)
        values: dict[str, Any] = {name: float(text) for name, text in meta["values"].items()}
        values["round"] = int(values["round"])
        return meta["run"], Run(consensus, best=best, rows=rows.tolist(), **values)
