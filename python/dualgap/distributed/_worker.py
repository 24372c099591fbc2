"""Consensus training on one partition: its state between rounds, and its subproblems.

This module runs where the partition is: on a worker of a cluster, or on a thread.
"""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._estimator import Stopper
from dualgap._estimator.settings import newton_settings, round_settings
from dualgap._npz import read_meta, refused_as
from dualgap._validation import FloatArray, core_rows
from dualgap._validation.labels import class_codes
from dualgap.distributed._logistic import evaluate
from dualgap.distributed._partition import Part
from dualgap.distributed._plan import VERSION, Order, Plan, Solution
from dualgap.distributed._scales import divided, widened
from dualgap.distributed._storage import exists, join, read_arrays, write_arrays


@dataclass
class _State:
    """State of a partition between rounds; its arrays may be in a file."""

    labels: NDArray[np.uint32]
    weights: FloatArray | None
    share: float
    columns: NDArray[Any] | None
    arrays: dict[str, NDArray[Any]]
    round: int = 0
    rho: float = 0.0
    attempt: int = 0
    file: Path | None = None
    restored: bool = False
    """Whether the dual variables come from a file, so that the core must check them."""


_STATES: dict[tuple[str, int], _State] = {}
_CANCELLED: set[str] = set()
_LOCK = Lock()

_SHARE = 0.15
"""Fraction of a Dask worker's memory that states may use. Further states are kept in files."""


def worker_version() -> str:
    """Return the version of the package on this worker."""
    return VERSION


def forget(run: str, cancel: bool = False) -> None:
    """Drop the states of a run; `cancel` also ends its subproblems."""
    if cancel:
        _CANCELLED.add(run)
    for key in [key for key in _STATES if key[0] == run]:
        state = _STATES.pop(key, None)
        if state is not None and state.file is not None:
            state.file.unlink(missing_ok=True)


def _aligned(array: Any) -> Any:
    """Return an aligned, contiguous array; arrays from the network or disk may be unaligned."""
    return np.require(array, requirements=("C", "A"))


def _aligned_rows(rows: Any) -> Any:
    if isinstance(rows, tuple):
        return (*map(_aligned, rows[:3]), rows[3])
    return _aligned(rows)


def inner(a: FloatArray, b: FloatArray) -> float:
    """Return an inner product, computed on this thread; BLAS would use its thread pool."""
    return float(np.einsum("i,i->", a, b))


def solve(
    part: Part, number: int, plan: Plan, order: Order, attempt: int, consensus: FloatArray
) -> Solution:
    """Update the multiplier, solve the subproblem, and return the partition's contribution.

    With the partition's share S, solution w, relaxation r and multiplier a, the vector is
    S (r w + a / rho). Its sum over partitions plus (1 - r) w_bar is the next consensus. All vectors
    cover only the columns with entries in this partition; `_rounds.Absent` adds the rest. Weights
    and multipliers are for scaled columns (`_scales`); the image is for columns without scaling.
    """
    started = time.perf_counter()
    state = _checked_state(part, number, plan, order.round)
    if order.logistic is not None:
        with _LOCK:
            _STATES[plan.run, number] = state
        given = (order.logistic, _aligned(consensus))
        return evaluate(part, (state.labels, state.weights), len(plan.classes), given)
    if order.newton is not None:
        return _expand(part, number, plan, order, attempt, _aligned(consensus), state)
    if state.columns is not None:
        consensus = consensus.reshape(len(plan.classes), -1)[:, state.columns].ravel()
    consensus = _aligned(consensus)
    arrays, multiplier, restarted = _up_to_date(state, number, plan, order, attempt, consensus)
    rows, settings = _subproblem(part, plan, order, state, (consensus, multiplier))
    settings["beta"] = _unpacked(arrays)
    result = _core.consensus_round(_aligned_rows(core_rows(rows)), state.labels, settings)
    state.restored = False
    weights, relaxation = result["weights"], plan.relaxation if order.rho > 0 else 1.0
    scales, force = plan.scales_of(state.columns), plan.penalty(order.rho, state.columns)
    vector = relaxation * weights
    arrays = {"multiplier": multiplier, "relaxed": vector + (1.0 - relaxation) * consensus}
    arrays.update(_packed(result["beta"].astype(part.X.dtype, copy=False)))
    unkept = _keep_copy(number, plan, order, state, arrays)
    with _LOCK:
        # The result of an abandoned attempt is not part of the consensus: drop its state.
        if state.attempt == attempt:
            _keep(number, state, arrays, plan)
    share, image, image_error = state.share, result["image"], result["image_error"]
    if scales is not None:
        image = image * np.tile(scales, len(plan.classes))
        image_error *= scales.max()
    if order.rho > 0:
        vector += multiplier / force
    vector *= share
    return Solution(
        vector=vector.reshape(len(plan.classes), -1),
        image=(share * image).reshape(len(plan.classes), -1),
        columns=state.columns,
        loss=share * result["loss"],
        dual_term=share * result["dual_term"],
        image_error=share * image_error,
        image_norm=share * np.sqrt(inner(image, image)),
        square=share * inner(weights, weights),
        multiplier_square=share * inner(multiplier, multiplier),
        passes=result["n_epochs"],
        seconds=time.perf_counter() - started,
        restarted=int(restarted),
        unkept=unkept,
    )


def solve_between_files(
    files: tuple[str | None, str],
    part: Part,
    number: int,
    plan: Plan,
    order: Order,
    attempt: int,
    consensus: FloatArray,
) -> Solution:
    """Run `solve` with the state from the first file, if any; write the new state to the second.

    The result does not depend on the process, and a repeated call has the same result.
    """
    before, after = files
    key = plan.run, number
    _STATES.pop(key, None)
    if before is not None:
        arrays = read_arrays(before)
        meta = read_meta(arrays, run=plan.kept)
        del arrays["meta"]
        begun = _begin(part, number, replace(plan, folder=None, source=None), order.round)
        _STATES[key] = replace(begun, arrays=arrays, round=meta["round"], rho=meta["rho"])
    solution = solve(part, number, plan, order, attempt, consensus)
    state = _STATES.pop(key)
    _save(after, state, _arrays(state), plan)
    return solution


def _expand(
    part: Part,
    number: int,
    plan: Plan,
    order: Order,
    attempt: int,
    weights: FloatArray,
    state: _State,
) -> Solution:
    """Evaluate the partition at the given weights, for unscaled rows, in a Newton round."""
    started = time.perf_counter()
    assert order.newton is not None
    with _LOCK:
        arrays = _arrays(state)
        state.round, state.attempt, state.arrays, state.file = order.round, attempt, arrays, None
        _STATES[plan.run, number] = state
    beta = _unpacked(arrays)
    beta = np.zeros(len(state.labels) * len(plan.classes)) if beta is None else beta
    scale = order.newton.scale
    centre = arrays.get("centre", beta) if scale is None else scale * beta
    shares: _core._SharesRecord = {
        "regularization": plan.regularization,
        "sample_weight": state.weights,
    }
    settings = newton_settings(plan.problem, shares)
    settings |= {
        "consensus": weights,
        "beta": centre,
        "width": order.newton.width,
        "callback": Stopper(lambda: plan.run in _CANCELLED),
    }
    rows = part.X if part.columns is None else widened(part.X, part.columns, plan.n_features)
    result = _core.newton_round(_aligned_rows(core_rows(rows)), state.labels, settings)
    arrays = {"multiplier": arrays["multiplier"], "centre": centre, "beta": result["beta"]}
    with _LOCK:
        if state.attempt == attempt:
            _keep(number, state, arrays, plan)
    share, image = state.share, result["image"]
    shape = (len(plan.classes), -1)
    return Solution(
        vector=np.zeros(weights.shape).reshape(shape),
        image=(share * image).reshape(shape),
        columns=None,
        loss=share * result["loss"],
        dual_term=share * result["dual_term"],
        image_error=share * result["image_error"],
        image_norm=share * np.sqrt(inner(image, image)),
        square=share * _square(result["beta"], state, len(plan.classes)),
        multiplier_square=0.0,
        passes=1,
        seconds=time.perf_counter() - started,
        restarted=0,
        sums=share * result["sums"],
        moved=share * _square(result["beta"] - centre, state, len(plan.classes)),
        unit=share * result["unit"],
    )


def _square(beta: FloatArray, state: _State, n_classes: int) -> float:
    """Return the weighted mean of ||alpha||^2; alpha is -sum(beta) at the label, beta elsewhere."""
    rows = beta.reshape(-1, n_classes)
    squares = np.einsum("ij,ij->i", rows, rows) + np.einsum("ij->i", rows) ** 2
    weights = np.ones(len(rows)) if state.weights is None else state.weights
    return inner(weights, squares) / float(weights.sum())


def _subproblem(
    part: Part, plan: Plan, order: Order, state: _State, given: tuple[FloatArray, FloatArray]
) -> tuple[Any, _core._RoundSettings]:
    """Return the rows and the settings of a round, for a consensus and a multiplier."""
    shares: _core._SharesRecord = {
        "regularization": plan.regularization,
        "sample_weight": state.weights,
    }
    scales, rows, problem = plan.scales_of(state.columns), part.X, plan.problem
    consensus, multiplier = given
    if scales is not None:
        rows = divided(rows, scales)
        problem = {**problem, "bias": problem["bias"] and problem["bias"] / float(scales[-1])}
        # The core computes the shift of the subproblem as (rho w_bar - a) / (lambda + rho). This
        # multiplier gives the shift for the penalty of scaled columns.
        force = plan.penalty(order.rho, state.columns)
        multiplier = multiplier - (force - order.rho) * consensus
    settings = round_settings(problem, shares, len(consensus))
    settings |= {
        "consensus": consensus,
        "multiplier": multiplier,
        "rho": order.rho,
        "check_beta": state.restored,
        "gap": order.gap,
        "relative_gap": order.relative_gap,
        "tol": order.tol,
        "max_iter": plan.max_passes,
        "solver": plan.solver,
        "seed": (plan.seed + order.round) % 2**63,
        "callback": Stopper(lambda: plan.run in _CANCELLED),
    }
    return rows, settings


def _checked_state(part: Part, number: int, plan: Plan, at: int) -> _State:
    """Return this worker's state of the partition; raise an error if versions differ."""
    if plan.version != VERSION:
        msg = (
            f"this worker has dualgap {VERSION}, but the client has {plan.version}; "
            "install the same version everywhere"
        )
        raise RuntimeError(msg)
    return _STATES.get((plan.run, number)) or _begin(part, number, plan, at)


def _up_to_date(
    state: _State, number: int, plan: Plan, order: Order, attempt: int, consensus: FloatArray
) -> tuple[dict[str, NDArray[Any]], FloatArray, bool]:
    """Return the arrays, the multiplier at the new consensus, and whether rounds were missed."""
    with _LOCK:
        arrays = _arrays(state)
        multiplier = arrays["multiplier"]
        current = state.round == order.round - 1
        if current and "relaxed" in arrays:
            change = arrays["relaxed"] - consensus
            change *= plan.penalty(state.rho, state.columns)
            multiplier = multiplier + change
            state.arrays, state.file = {**arrays, "multiplier": multiplier}, None
        # If the same round is repeated, the multiplier is already up to date.
        restarted = not current and state.round != order.round
        state.round, state.rho, state.attempt = order.round, order.rho, attempt
        _STATES[plan.run, number] = state
    return arrays, multiplier, restarted


def _packed(beta: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return `beta` in sparse form if most entries are zero."""
    places = np.flatnonzero(beta)
    if 3 * len(places) > len(beta):
        return {"beta": beta}
    return {"places": places, "beta": beta[places], "size": np.array(len(beta))}


def _unpacked(arrays: dict[str, NDArray[Any]]) -> FloatArray | None:
    if "beta" not in arrays:
        return None
    beta = arrays["beta"].astype(np.float64, copy=False)
    if "places" not in arrays:
        return beta
    dense = np.zeros(int(arrays["size"]))
    dense[arrays["places"]] = beta
    return dense


def _keep(number: int, state: _State, arrays: dict[str, NDArray[Any]], plan: Plan) -> None:
    """Keep a state's arrays in memory or, if memory is short, in the worker's folder."""
    state.arrays, state.file = arrays, None
    worker = _worker()
    limit = worker.memory_manager.memory_limit if worker is not None else None
    if not limit:
        return
    kept = (array.nbytes for state in _STATES.values() for array in state.arrays.values())
    if sum(kept) > _SHARE * limit:
        path = Path(worker.local_directory) / f"dualgap-{plan.run}-{number}.npz"
        _save(str(path), state, arrays, plan)
        state.arrays, state.file = {}, path


def _arrays(state: _State) -> dict[str, NDArray[Any]]:
    if state.file is None:
        return state.arrays
    arrays = read_arrays(str(state.file))
    return {name: arrays[name] for name in arrays if name != "meta"}


def _worker() -> Any:
    """Return the Dask worker that owns this thread, if any."""
    # If Dask is not imported, there is no worker, so do not import it.
    dask = sys.modules.get("distributed")
    try:
        return None if dask is None else dask.get_worker()
    except ValueError:
        return None


_ADDED = (
    "loss",
    "dual_term",
    "image_error",
    "image_norm",
    "square",
    "multiplier_square",
    "restarted",
    "moved",
    "unit",
)
"""Numeric fields that `add` sums."""


def add(n_columns: int, *solutions: Solution) -> Solution:
    """Add up results in the given order."""
    first, *rest = solutions
    sums = {name: np.zeros((len(first.vector), n_columns)) for name in ("vector", "image")}
    total = Solution(**{**vars(first), **sums, "columns": None})
    for solution in solutions:
        columns = slice(None) if solution.columns is None else solution.columns
        for name, values in sums.items():
            values[:, columns] += getattr(solution, name)
    for other in rest:
        for name in _ADDED:
            setattr(total, name, getattr(total, name) + getattr(other, name))
        if total.sums is not None and other.sums is not None:
            total.sums = total.sums + other.sums
        total.passes = max(total.passes, other.passes)
        total.seconds = max(total.seconds, other.seconds)
        total.unkept = total.unkept or other.unkept
    return total


def _begin(part: Part, number: int, plan: Plan, at: int) -> _State:
    """Create the state of a partition for round `at`: from a checkpoint, or zero."""
    codes = class_codes(plan.classes, part.y).astype(np.uint32)
    weights = part.weights
    if plan.factors is not None:
        factors = plan.factors[codes]
        weights = factors if weights is None else weights * factors
    mass = float(len(codes) if weights is None else weights.sum())
    weights = None if weights is None else _aligned(weights)
    columns = plan.columns(part.columns)
    width = plan.n_columns if columns is None else len(columns)
    arrays = {"multiplier": np.zeros(len(plan.classes) * width)}
    state = _State(codes, weights, mass / plan.total, columns, arrays)
    folders = {folder for folder in (plan.folder, plan.source) if folder is not None}
    if folders:
        every = itertools.product(sorted(folders), range(_COPIES))
        paths = (_path(folder, number, copy) for folder, copy in every)
        copies = [_restored(state, path, plan) for path in paths if exists(path)]
        # If a run was interrupted while it wrote one copy, the other copy has an earlier round.
        return max(copies, key=lambda copy: _worth(copy.round, at), default=state)
    return state


_COPIES = 2
"""Number of checkpoints per partition, written alternately."""


def _worth(kept: int, at: int) -> tuple[bool, bool, bool, int]:
    """Return a sort key that prefers the state of round `at - 1`, then the state of round `at`."""
    return kept == at - 1, kept == at, kept < at, kept


def _path(folder: str, number: int, copy: int) -> str:
    return join(folder, f"partition-{number}-{copy}.npz")


def _save(path: str, state: _State, arrays: dict[str, NDArray[Any]], plan: Plan) -> None:
    """Write a state to a file."""
    write_arrays(path, {"run": plan.kept, "round": state.round, "rho": state.rho}, arrays)


def _keep_copy(
    number: int, plan: Plan, order: Order, state: _State, arrays: dict[str, NDArray[Any]]
) -> str | None:
    """Write the checkpoint of a round, if requested; return the error message if that fails."""
    if order.copy is None or plan.folder is None:
        return None
    try:
        _save(_path(plan.folder, number, order.copy), state, arrays, plan)
    except OSError as error:
        return str(error)
    return None


def _restored(begun: _State, path: str, plan: Plan) -> _State:
    """Return a state with the arrays of a checkpoint."""
    state = replace(begun)
    with refused_as(path, "a checkpoint of a partition of this run"):
        arrays = read_arrays(path)
        meta = read_meta(arrays, run=plan.kept)
        del arrays["meta"]
        beta = _unpacked(arrays)
        shape = state.arrays["multiplier"].shape
        n_betas = len(state.labels) * len(plan.classes)
        fits = arrays["multiplier"].shape == arrays["relaxed"].shape == shape
        if not fits or beta is None or beta.shape != (n_betas,):
            msg = "array shapes do not match the partition"
            raise ValueError(msg)
        kinds = {"multiplier": np.float64, "relaxed": np.float64, "beta": beta.dtype}
        if any(arrays[name].dtype != kind for name, kind in kinds.items()):
            msg = "array dtypes do not match"
            raise ValueError(msg)
        if not all(np.isfinite(arrays[name]).all() for name in kinds) or (beta < 0.0).any():
            msg = "the arrays contain non-finite values or negative dual variables"
            raise ValueError(msg)
        state.round, state.rho = int(meta["round"]), float(meta["rho"])
        if not (np.isfinite(state.rho) and state.rho >= 0.0):
            msg = f"the penalty must be finite and non-negative, not {state.rho}"
            raise ValueError(msg)
        state.arrays, state.restored = arrays, True
    return state
