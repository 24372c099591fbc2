"""The rounds of consensus training: consensus, penalty, residuals, certificate, stopping.

Boyd, Parikh, Chu, Peleato, Eckstein: Distributed optimization and statistical learning via the
alternating direction method of multipliers, 2011, sections 3.3, 3.4, 7.1.
"""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualgap import _core
from dualgap._estimator import Callback, depth
from dualgap._estimator.settings import round_settings
from dualgap._npz import read_meta, refused_as
from dualgap._validation import FloatArray
from dualgap.distributed._engine import Engine
from dualgap.distributed._newton import MAX_WEIGHTS, Newton, dual_scale, rounds_left
from dualgap.distributed._plan import NewtonOrder, Order, Plan, Solution
from dualgap.distributed._storage import (
    absolute,
    check_folder,
    exists,
    join,
    read_arrays,
    remove_all,
    write_arrays,
)
from dualgap.distributed._worker import inner

COLUMNS = (
    "epoch",
    "seconds",
    "objective",
    "dual_objective",
    "gap",
    "primal_residual",
    "dual_residual",
    "rho",
    "passes",
    "solve_seconds",
)
"""Columns of the history. The gap is the difference of the best primal and dual values so far."""

_BALANCE_ROUNDS = 100
"""Rounds after which the penalty is constant, because a changing penalty can make ADMM diverge."""

_INNER = 0.1
"""Gap of the subproblems, relative to the gap of the whole problem."""

_BALANCED = (0.05, 0.5)
"""The penalty is kept if the ratio of relative residuals, primal to dual, is in this range."""

_SPAN = 2.0**13
"""Largest factor by which the penalty may differ from its first value without loss of digits."""

_STALLED = 100
"""The run has stalled if the gap does not fall by the fraction `_GAIN` in this many rounds."""

_GAIN = 0.01

_NEWTON_AFTER = 20
"""Rounds after which Newton rounds may take over."""

_AHEAD = 50.0
"""Newton rounds take over if more than this number of further rounds is expected."""

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass
class Absent:
    """Closed-form contribution of partitions to the columns in which they have no entries.

    A partition's loss does not depend on the weights of columns in which it has no entries. In
    these columns, the solution of its subproblem is w = (penalty w_bar - a) / curvature, where the
    curvature is lambda + rho. Every multiplier a starts at 0, so all partitions that lack a column
    have the same multiplier for it.
    """

    shares: FloatArray
    """For each column, the sum of the shares of the partitions that lack it."""
    multiplier: FloatArray

    def _weights(self, consensus: FloatArray, penalty: Any, curvature: float) -> FloatArray:
        weights: FloatArray = (penalty * consensus - self.multiplier) / curvature
        return weights

    def add(
        self,
        vector: FloatArray,
        consensus: FloatArray,
        penalty: Any,
        curvature: float,
        relaxation: float,
    ) -> tuple[float, float]:
        """Add the partitions' vectors to `vector`; return the weighted sums of w^2 and a^2."""
        weights = self._weights(consensus, penalty, curvature)
        shares = np.tile(self.shares, len(vector) // len(self.shares))
        vector += shares * (relaxation * weights + self.multiplier / penalty)
        return inner(shares * weights, weights), inner(shares * self.multiplier, self.multiplier)

    def update(
        self,
        old: FloatArray,
        new: FloatArray,
        penalty: Any,
        curvature: float,
        relaxation: float,
    ) -> None:
        """Update the multiplier with the new consensus."""
        weights = self._weights(old, penalty, curvature)
        self.multiplier += penalty * (relaxation * weights + (1.0 - relaxation) * old - new)


@dataclass
class Run:
    """State of a run between rounds."""

    consensus: FloatArray
    rho: float
    regularization: float
    absent: Absent | None = None
    round: int = 0
    best: FloatArray | None = None
    primal: float = np.inf
    dual: float = 0.0
    """Best lower bound; starts at 0, the dual value at W = 0."""
    null_objective: float = np.nan
    seconds: float = 0.0
    outcome: str = "epoch_limit"
    first_rho: float = 0.0
    """The penalty of the first round."""
    mark: tuple[int, float] = (0, np.inf)
    """Number of the round with the last sufficient decrease of the gap, and the gap after it."""
    copy: int = 0
    """Index (0 or 1) of the copy of each partition that belongs to the checkpoint."""
    resumed: bool = False
    """Whether the next round is the first after a checkpoint was read."""
    expected: list[float] = field(default_factory=lambda: [np.inf, -np.inf])
    """Best primal and dual values, including the values of a checkpoint.

    These values determine only the accuracy of the subproblems.
    """
    warned: bool = False
    """Whether the user was warned that a checkpoint failed."""
    rows: list[list[float]] = field(default_factory=list)

    @property
    def gap(self) -> float:
        """Best primal minus best dual value."""
        return self.primal - self.dual


_VALUES = ("rho", "first_rho", "round", "seconds", "copy")
"""Numbers of a run that a checkpoint stores. The certificate does not depend on them."""


@dataclass(frozen=True)
class Settings:
    """Options of the rounds."""

    tol: float
    n_partitions: int
    max_rounds: int
    adapt: bool
    interval: float
    callback: Callback | None
    identity: dict[str, Any]


def train(engine: Engine, numbers: list[int], plan: Plan, settings: Settings, run: Run) -> None:
    """Run rounds until the gap is within the tolerance or a limit is reached."""
    started, saved = time.monotonic() - run.seconds, -np.inf
    # A resumed run evaluates its checkpoint again, if necessary in an extra round.
    last = max(settings.max_rounds, run.round + 1 if run.resumed else 0)
    while run.round < last:
        if _newton_is_due(run, plan, settings):
            _newton_rounds(engine, numbers, plan, settings, run)
            return
        run.round += 1
        now = time.monotonic()
        # The first round after a resume may find a copy invalid, so it keeps the old copies.
        due = not run.resumed and now - saved >= settings.interval
        save = plan.folder is not None and due
        accuracy = _inner_gap(run, settings.tol, len(numbers))
        copy = 1 - run.copy if save else None
        order = Order(run.round, run.rho, *accuracy, copy)
        solution = engine.solve(numbers, plan, order, run.consensus)
        _process(run, solution, plan, settings)
        run.resumed = False
        run.seconds = time.monotonic() - started
        run.rows[-1][1] = run.seconds
        if copy is not None:
            _keep(run, plan, settings, copy, solution.unkept)
            saved = now
        row = run.rows[-1]
        stop = False
        if settings.callback is not None:
            stop = bool(settings.callback(run.round, run.seconds, row[2], row[3]))
        outcome = _outcome(run, settings, stop)
        if outcome is not None:
            run.outcome = outcome
            return


def _newton_is_due(run: Run, plan: Plan, settings: Settings) -> bool:
    """Return whether Newton rounds take over: columns are scaled, or the gap hardly falls."""
    n_weights = plan.n_columns * len(plan.classes)
    possible = run.best is not None and n_weights <= MAX_WEIGHTS
    chosen = plan.solver == "block-descent" and settings.n_partitions > 1
    if not possible or not chosen or run.round < _NEWTON_AFTER:
        return False
    if plan.scales is not None:
        return True
    gaps = [row[COLUMNS.index("gap")] for row in run.rows]
    left = rounds_left(gaps, _allowed(run, settings.tol), run.primal)
    return left > _AHEAD


class _EndedError(Exception):
    """Raised to end the Newton rounds, with the outcome of the run."""


def _newton_rounds(
    engine: Engine, numbers: list[int], plan: Plan, settings: Settings, run: Run
) -> None:
    """Run Newton rounds until the gap is within the tolerance or a limit is reached.

    Newton rounds are not written to checkpoints: a resumed run repeats them.
    """
    started, run.mark = time.monotonic() - run.seconds, (run.round, run.gap)

    def evaluate(weights: FloatArray, width: float, scale: float | None) -> Solution:
        if run.round >= settings.max_rounds:
            raise _EndedError("epoch_limit")
        run.round += 1
        order = Order(run.round, run.rho, 0.0, 0.0, 0.0, None, NewtonOrder(width, scale))
        solution = engine.solve(numbers, plan, order, weights)
        primal, dual = _certificate(run, plan, weights, solution, settings.n_partitions)
        if primal == run.primal:
            run.best = plan.scaled(weights)
        run.seconds = time.monotonic() - started
        row = [run.round, run.seconds, primal, dual, run.gap, np.nan, np.nan, np.nan]
        run.rows.append([*row, solution.passes, solution.seconds])
        callback = settings.callback
        stop = callback is not None and bool(callback(run.round, run.seconds, primal, dual))
        outcome = _outcome(run, settings, stop)
        if outcome is not None:
            raise _EndedError(outcome)
        return solution

    assert run.best is not None
    newton = Newton(
        plan=plan,
        evaluate=evaluate,
        values=lambda: (run.primal, run.gap, _allowed(run, settings.tol)),
        null_objective=run.null_objective,
    )
    try:
        newton.run(plan.unscaled(run.best))
    except _EndedError as ended:
        run.outcome = str(ended)


def _certificate(
    run: Run, plan: Plan, weights: FloatArray, solution: Solution, n_partitions: int
) -> tuple[float, float]:
    """Return the objective and the lower bound of a round; store the best values.

    The weights are for unscaled rows. The objective is rounded up by the error bound of a sum of
    non-negative numbers.
    """
    lam = plan.regularization
    primal = 0.5 * lam * inner(weights, weights) + solution.loss
    primal *= 1.0 + _EPSILON * (len(weights) + n_partitions + 16)
    if not np.isfinite(primal):
        msg = f"the objective is {primal!r}, which is not finite; scale the data or decrease C"
        raise RuntimeError(msg)
    dual = _dual_value(solution, lam, n_partitions)
    run.primal, run.dual = min(run.primal, primal), max(run.dual, dual)
    run.expected = [min(run.expected[0], primal), max(run.expected[1], dual)]
    return primal, dual


def _outcome(run: Run, settings: Settings, stop: bool) -> str | None:
    """Return the reason why the run ends with this round, or None."""
    if run.dual > run.primal:
        msg = (
            f"the lower bound {run.dual!r} is above the objective {run.primal!r} because of "
            "rounding errors; scale the data or decrease C"
        )
        raise RuntimeError(msg)
    if run.gap <= _allowed(run, settings.tol):
        return "converged"
    if stop:
        return "stopped"
    if run.gap < (1.0 - _GAIN) * run.mark[1]:
        run.mark = (run.round, run.gap)
    return "stalled" if run.round - run.mark[0] >= _STALLED else None


def _allowed(run: Run, tol: float) -> float:
    """Return the largest gap at which the run counts as converged."""
    floor = 1e-15 * run.null_objective if tol > 0.0 else 0.0
    return max(tol * abs(run.primal), floor)


def _inner_gap(run: Run, tol: float, n_partitions: int) -> tuple[float, float, float]:
    """Return the accuracy of the subproblems: a gap below the present gap of the whole problem.

    The three numbers are an absolute gap; a gap relative to the loss, in the first round; and the
    tolerance, for a single partition. Numbers that do not apply are 0.
    """
    if n_partitions == 1:
        return (0.0, 0.0, tol) if run.round == 1 else (_allowed(run, tol), 0.0, 0.0)
    if run.round == 1:
        return 0.0, _INNER, 0.0
    allowed = max(tol * abs(run.expected[0]), 1e-15 * run.null_objective)
    known = run.expected[0] - run.expected[1]
    known = min(known, run.null_objective) if np.isfinite(known) else run.null_objective
    return _INNER * max(known, min(allowed, run.null_objective)), 0.0, 0.0


def _process(run: Run, solution: Solution, plan: Plan, settings: Settings) -> None:
    """Compute the certificate, next consensus and residuals from the sum over partitions."""
    lam, rho, relaxation = plan.regularization, run.rho, plan.relaxation if run.rho > 0 else 1.0
    old, force = run.consensus, plan.penalty(rho)
    curvature = lam + rho
    vector = solution.vector.ravel()
    square, multiplier_square = solution.square, solution.multiplier_square
    if run.absent is not None:
        terms = run.absent.add(vector, old, force, curvature, relaxation)
        square, multiplier_square = square + terms[0], multiplier_square + terms[1]
    known = run.primal
    primal, dual = _certificate(run, plan, plan.unscaled(old), solution, settings.n_partitions)
    if np.isnan(run.null_objective):
        run.null_objective = primal
    if primal < known:
        run.best = old
    new = vector + (1.0 - relaxation) * old
    primal_residual = np.nan
    # If a partition restarted, the multipliers do not add up to 0 until the next round. The same
    # holds for multipliers from a file, until this round's consensus updates them.
    if not solution.restarted:
        mean = vector / relaxation
        spread = square - 2.0 * inner(new, mean) + inner(new, new)
        primal_residual = np.sqrt(max(0.0, spread))
    change = new - old
    dual_residual = np.sqrt(inner(force * change, force * change))
    run.consensus = new
    if run.absent is not None:
        run.absent.update(old, new, force, curvature, relaxation)
    gap = run.gap if np.isfinite(run.gap) else np.nan
    row = [run.round, 0.0, primal, dual, gap, primal_residual, dual_residual, rho]
    run.rows.append([*row, solution.passes, solution.seconds])
    if settings.adapt and run.round <= _BALANCE_ROUNDS and rho > 0 and not solution.restarted:
        # Relative residuals, scaled and balanced as in Boyd et al. 2011, sections 3.3.1 and 3.4.1.
        size = np.sqrt(max(square, inner(new, new)))
        force = np.sqrt(multiplier_square)
        if size > 0 and force > 0:
            run.first_rho = run.first_rho or rho
            wanted = rho * _correction((primal_residual / size) / (dual_residual / force))
            run.rho = min(max(wanted, run.first_rho / _SPAN), run.first_rho * _SPAN)


def _dual_value(solution: Solution, lam: float, n_partitions: int) -> float:
    """Return the dual value of the point that the partitions form together, rounded down."""
    image = solution.image.ravel()
    rounding = _EPSILON * (n_partitions + 16)
    norm = np.sqrt(inner(image, image)) * (1.0 + _EPSILON * (len(image) + 16))
    norm += solution.image_error + rounding * solution.image_norm + np.sqrt(5e-324)
    term, force = solution.dual_term, 0.5 * norm * norm / lam
    # Points are scaled only in Newton rounds. In other rounds, a larger first bound would change
    # the accuracy of the subproblems without a gain.
    scale = dual_scale(term, force) if solution.sums is not None else 1.0
    term, force = scale * term, scale * scale * force
    dual = term - force - rounding * (abs(term) + force)
    return float(np.nextafter(dual, -np.inf))


def _correction(ratio: float) -> float:
    """Return the factor by which to multiply the penalty, given the ratio of the residuals."""
    low, high = _BALANCED
    return 2.0 if ratio > high else 0.5 if ratio < low else 1.0


def _keep(run: Run, plan: Plan, settings: Settings, copy: int, unkept: str | None) -> None:
    """Write a checkpoint that refers to this `copy` of the partitions; warn if that fails."""
    if unkept is None:
        try:
            _write(run, plan, settings, copy)
        except OSError as error:
            unkept = str(error)
        else:
            run.copy = copy
    if unkept is not None and not run.warned:
        run.warned = True
        msg = (
            f"checkpoint: round {run.round} could not be written ({unkept}); the fit continues "
            "and tries to write later rounds"
        )
        warnings.warn(msg, RuntimeWarning, stacklevel=depth())


def _write(run: Run, plan: Plan, settings: Settings, copy: int) -> None:
    assert plan.folder is not None
    assert run.best is not None
    # JSON has no infinity.
    values = {name: repr(float(getattr(run, name))) for name in _VALUES}
    values["copy"] = repr(float(copy))
    meta = {"run": plan.kept, "identity": settings.identity, "values": values}
    meta["expected"] = list(map(repr, map(float, run.expected)))
    arrays = {"consensus": run.consensus, "rows": np.array(run.rows)}
    if run.absent is not None:
        arrays["absent"] = run.absent.multiplier
    write_arrays(join(plan.folder, _FILE), meta, arrays)


_FILE = "consensus.npz"
"""Name of the coordinator's file in a checkpoint."""


def checkpoint_folders(
    checkpoint: str | os.PathLike[str] | None, resumed: str | os.PathLike[str] | None
) -> tuple[str | None, str | None]:
    """Return the folder for new checkpoints, and the folder of the resumed run."""
    source = None if resumed is None else absolute(resumed)
    folder = source if checkpoint is None else absolute(checkpoint)
    if folder is not None:
        # Check the folder now, because failures in later rounds cause only a warning.
        check_folder(folder, _FILE)
        if folder != source:
            if exists(join(folder, _FILE)):
                msg = (
                    f"checkpoint: {folder} has files of another fit; pass it as resume, or choose "
                    "an empty folder"
                )
                raise ValueError(msg)
            # A run that ended before its first complete checkpoint leaves unusable files.
            remove_all(folder, "partition-")
    return folder, source


def resume(folder: str, identity: dict[str, Any], run: Run) -> str:
    """Load the checkpoint of a run on the same data and parameters; return the name of that run.

    Objective and bound are not read, because the next round evaluates the consensus and dual point.
    """
    path = join(folder, _FILE)
    if not exists(path):
        msg = f"resume: no checkpoint in {folder}"
        raise ValueError(msg)
    with refused_as(path, "a checkpoint of this fit"):
        arrays = read_arrays(path)
        meta = read_meta(arrays, identity=identity)
        run.consensus = _checked_weights(arrays["consensus"], run.consensus)
        if run.absent is not None:
            run.absent.multiplier = _checked_weights(arrays["absent"], run.consensus)
        values = {name: float(meta["values"][name]) for name in _VALUES}
        sound = all(np.isfinite(value) and value >= 0.0 for value in values.values())
        rows = np.asarray(arrays["rows"], dtype=np.float64)
        if not sound or rows.shape != (int(values["round"]), len(COLUMNS)):
            msg = "the rounds are inconsistent"
            raise ValueError(msg)
        # The penalty is 0 if and only if there is a single partition.
        if (values["rho"] > 0.0) != (run.rho > 0.0):
            msg = "the penalty does not match the number of partitions"
            raise ValueError(msg)
        run.rows, run.round, run.resumed = rows.tolist(), int(values["round"]), True
        run.rho, run.seconds = values["rho"], values["seconds"]
        run.first_rho, run.copy = values["first_rho"], int(values["copy"] == 1.0)
        run.expected = [float(value) for value in meta["expected"]]
        if len(run.expected) != 2:
            msg = f"expected: must hold an objective and a bound, got {len(run.expected)} numbers"
            raise ValueError(msg)
        return str(meta["run"])


def _checked_weights(found: FloatArray, known: FloatArray) -> FloatArray:
    """Return weights from a file, after a check that they can replace the known weights."""
    if found.dtype != known.dtype or found.shape != known.shape or not np.isfinite(found).all():
        msg = "the weights are not finite, or do not have the type and shape of this problem"
        raise ValueError(msg)
    return found


def null_objective(problem: _core._MarginRecord, class_weights: FloatArray) -> float:
    """Return the objective at W = 0, where all rows of a class have the same loss."""
    shares: _core._SharesRecord = {"regularization": 1.0, "sample_weight": class_weights}
    n_classes = len(class_weights)
    settings = round_settings({**problem, "bias": 0.0}, shares, n_classes)
    labels = np.arange(n_classes, dtype=np.uint32)
    solution = _core.consensus_round(np.zeros((n_classes, 1)), labels, settings)
    return float(solution["loss"])
