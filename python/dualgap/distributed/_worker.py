"""One partition's side of consensus training: what it keeps between rounds, its answers.

Everything here runs where the partition lives: on a worker of a cluster, or on a thread.
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
from dualgap._estimator.settings import round_settings
from dualgap._npz import read_meta, read_npz, refused_as, write_npz
from dualgap._validation import FloatArray, core_rows
from dualgap._validation.labels import class_codes
from dualgap.distributed._partition import Part

VERSION = _core.__version__


@dataclass(frozen=True)
class Plan:
    """What all partitions share during a fit."""

    run: str
    kept: str
    """The run's name in a checkpoint: that of the first one, where it was resumed."""
    version: str
    classes: NDArray[Any]
    factors: FloatArray | None
    total: float
    n_features: int
    problem: _core._MarginRecord
    regularization: float
    relaxation: float
    max_passes: int
    solver: str
    seed: int
    folder: str | None
    """Where states are kept."""
    source: str | None
    """Where those of the run that is resumed were kept."""

    @property
    def n_columns(self) -> int:
        """Features, and the constant one."""
        return self.n_features + bool(self.problem["bias"])

    def columns(self, present: NDArray[Any] | None) -> NDArray[Any] | None:
        """Which columns a partition's weights have: those with entries, and the constant one."""
        if present is None or not self.problem["bias"]:
            return present
        return np.append(present, self.n_features)


@dataclass(frozen=True)
class Order:
    """What a round asks for."""

    round: int
    rho: float
    gap: float
    relative_gap: float
    tol: float
    copy: int | None
    """Which of a partition's two copies the round is to be kept in, if it is."""


@dataclass
class Answer:
    """What a partition, or several added up, answers; the sums weighted by shares.

    The vector and the image (lambda times w of the dual point; both classes x columns) are over all
    columns of the whole, or over those given.
    """

    vector: FloatArray
    image: FloatArray
    columns: NDArray[Any] | None
    loss: float
    dual_term: float
    image_error: float
    image_norm: float
    square: float
    multiplier_square: float
    passes: int
    seconds: float
    restarted: int
    unkept: str | None = None
    """Why the copy that the round asked for was not written, if it was not."""


@dataclass
class _State:
    """What a partition keeps between rounds; its arrays may be in a file."""

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
    """Whether the dual variables are those of a file, of which nothing is believed."""


_STATES: dict[tuple[str, int], _State] = {}
_CANCELLED: set[str] = set()
_LOCK = Lock()

_SHARE = 0.15
"""Share of a Dask worker's memory that states may take; more of them go to files."""


def worker_version() -> str:
    """Version of the package where this runs."""
    return VERSION


def forget(run: str, cancel: bool = False) -> None:
    """Drop what partitions kept for a run; `cancel` also ends its sub-problems."""
    if cancel:
        _CANCELLED.add(run)
    for key in [key for key in _STATES if key[0] == run]:
        state = _STATES.pop(key, None)
        if state is not None and state.file is not None:
            state.file.unlink(missing_ok=True)


def _aligned(array: Any) -> Any:
    """The array at an address that suits its type; one from a wire or from disk may not be."""
    return np.require(array, requirements=("C", "A"))


def _aligned_rows(rows: Any) -> Any:
    if isinstance(rows, tuple):
        return (*map(_aligned, rows[:3]), rows[3])
    return _aligned(rows)


def inner(a: FloatArray, b: FloatArray) -> float:
    """Inner product on this thread: BLAS would split it, and wake the threads it keeps."""
    return float(np.einsum("i,i->", a, b))


def answer(
    part: Part, number: int, plan: Plan, order: Order, attempt: int, consensus: FloatArray
) -> Answer:
    """Bring the multiplier up to date, solve the sub-problem, and say what the others need.

    With the partition's share S, its solution w, the relaxation r and the multiplier a, the vector
    is S (r w + a / rho): its sum over partitions plus (1 - r) w_bar is the next consensus. All is
    over the columns that have entries here; `_rounds.Absent` stands for the others.
    """
    started = time.perf_counter()
    state = _checked_state(part, number, plan, order.round)
    if state.columns is not None:
        consensus = consensus.reshape(len(plan.classes), -1)[:, state.columns].ravel()
    consensus = _aligned(consensus)
    arrays, multiplier, restarted = _up_to_date(state, number, plan, order, attempt, consensus)
    shares: _core._SharesRecord = {
        "regularization": plan.regularization,
        "sample_weight": state.weights,
    }
    settings = round_settings(plan.problem, shares, len(consensus))
    settings |= {
        "consensus": consensus,
        "multiplier": multiplier,
        "rho": order.rho,
        "beta": _unpacked(arrays),
        "check_beta": state.restored,
        "gap": order.gap,
        "relative_gap": order.relative_gap,
        "tol": order.tol,
        "max_iter": plan.max_passes,
        "solver": plan.solver,
        "seed": (plan.seed + order.round) % 2**63,
        "callback": lambda *_: plan.run in _CANCELLED,
    }
    result = _core.consensus_round(_aligned_rows(core_rows(part.X)), state.labels, settings)
    state.restored = False
    weights, relaxation = result["weights"], plan.relaxation if order.rho > 0 else 1.0
    vector = relaxation * weights
    arrays = {"multiplier": multiplier, "relaxed": vector + (1.0 - relaxation) * consensus}
    arrays.update(_packed(result["beta"].astype(part.X.dtype, copy=False)))
    unkept = _keep_copy(number, plan, order, state, arrays)
    with _LOCK:
        # The answer of an attempt that was given up is not part of the consensus.
        if state.attempt == attempt:
            _keep(number, state, arrays, plan)
    share = state.share
    if order.rho > 0:
        vector += multiplier / order.rho
    vector *= share
    return Answer(
        vector=vector.reshape(len(plan.classes), -1),
        image=(share * result["image"]).reshape(len(plan.classes), -1),
        columns=state.columns,
        loss=share * result["loss"],
        dual_term=share * result["dual_term"],
        image_error=share * result["image_error"],
        image_norm=share * np.sqrt(inner(result["image"], result["image"])),
        square=share * inner(weights, weights),
        multiplier_square=share * inner(multiplier, multiplier),
        passes=result["n_epochs"],
        seconds=time.perf_counter() - started,
        restarted=int(restarted),
        unkept=unkept,
    )


def _checked_state(part: Part, number: int, plan: Plan, at: int) -> _State:
    """What this worker knows of the partition; it has to run the client's version."""
    if plan.version != VERSION:
        msg = (
            f"this worker has dualgap {VERSION}, the client has {plan.version}; "
            "install the same version everywhere"
        )
        raise RuntimeError(msg)
    return _STATES.get((plan.run, number)) or _begin(part, number, plan, at)


def _up_to_date(
    state: _State, number: int, plan: Plan, order: Order, attempt: int, consensus: FloatArray
) -> tuple[dict[str, NDArray[Any]], FloatArray, bool]:
    """Arrays, multiplier at the new consensus, and whether rounds have been missed."""
    with _LOCK:
        arrays = _arrays(state)
        multiplier = arrays["multiplier"]
        current = state.round == order.round - 1
        if current and "relaxed" in arrays:
            change = arrays["relaxed"] - consensus
            change *= state.rho
            multiplier = multiplier + change
            state.arrays, state.file = {**arrays, "multiplier": multiplier}, None
        # Asked again in the same round, the multiplier is up to date already.
        restarted = not current and state.round != order.round
        state.round, state.rho, state.attempt = order.round, order.rho, attempt
        _STATES[plan.run, number] = state
    return arrays, multiplier, restarted


def _packed(beta: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Stored sparse where most entries are zero."""
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
    """Keep a state's arrays in memory, or in the worker's folder where they would be too many."""
    state.arrays, state.file = arrays, None
    worker = _worker()
    limit = worker.memory_manager.memory_limit if worker is not None else None
    if not limit:
        return
    kept = (array.nbytes for state in _STATES.values() for array in state.arrays.values())
    if sum(kept) > _SHARE * limit:
        path = Path(worker.local_directory) / f"dualgap-{plan.run}-{number}.npz"
        _save(path, state, arrays, plan)
        state.arrays, state.file = {}, path


def _arrays(state: _State) -> dict[str, NDArray[Any]]:
    if state.file is None:
        return state.arrays
    arrays = read_npz(state.file)
    return {name: arrays[name] for name in arrays if name != "meta"}


def _worker() -> Any:
    """The Dask worker whose thread this is, if any."""
    # Without Dask loaded there is none; no need to load it.
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
)
"""Numbers of answers that are added up."""


def add(n_columns: int, *answers: Answer) -> Answer:
    """Add answers up, in their order."""
    first, *rest = answers
    sums = {name: np.zeros((len(first.vector), n_columns)) for name in ("vector", "image")}
    total = Answer(**{**vars(first), **sums, "columns": None})
    for answer in answers:
        columns = slice(None) if answer.columns is None else answer.columns
        for name, values in sums.items():
            values[:, columns] += getattr(answer, name)
    for other in rest:
        for name in _ADDED:
            setattr(total, name, getattr(total, name) + getattr(other, name))
        total.passes = max(total.passes, other.passes)
        total.seconds = max(total.seconds, other.seconds)
        total.unkept = total.unkept or other.unkept
    return total


def _begin(part: Part, number: int, plan: Plan, at: int) -> _State:
    """The state of a partition that has none before round `at`: a kept copy, or zero."""
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
    # Before the first round zero is where everybody starts.
    state = _State(codes, weights, mass / plan.total, columns, arrays)
    folders = {folder for folder in (plan.folder, plan.source) if folder is not None}
    if folders:
        every = itertools.product(sorted(folders), range(_COPIES))
        paths = (_path(folder, number, copy) for folder, copy in every)
        copies = [_restored(state, path, plan) for path in paths if path.exists()]
        # A run that was ended while it kept a round has the one before in the other copy.
        return max(copies, key=lambda copy: _worth(copy.round, at), default=state)
    return state


_COPIES = 2
"""The rounds of a partition that are kept, in turn."""


def _worth(kept: int, at: int) -> tuple[bool, bool, bool, int]:
    """What comes first: the state that round `at` begins with, then what is near it."""
    return kept == at - 1, kept == at, kept < at, kept


def _path(folder: str, number: int, copy: int) -> Path:
    return Path(folder) / f"partition-{number}-{copy}.npz"


def _save(path: Path, state: _State, arrays: dict[str, NDArray[Any]], plan: Plan) -> None:
    """Keep a copy."""
    write_npz(path, {"run": plan.kept, "round": state.round, "rho": state.rho}, arrays)


def _keep_copy(
    number: int, plan: Plan, order: Order, state: _State, arrays: dict[str, NDArray[Any]]
) -> str | None:
    """Keep the copy that a round asks for; why that failed, if it did: the fit goes on without."""
    if order.copy is None or plan.folder is None:
        return None
    try:
        _save(_path(plan.folder, number, order.copy), state, arrays, plan)
    except OSError as error:
        return str(error)
    return None


def _restored(begun: _State, path: Path, plan: Plan) -> _State:
    """Return the state as a kept copy has it."""
    state = replace(begun)
    with refused_as(path, "a kept copy of a partition of this run"):
        arrays = read_npz(path)
        meta = read_meta(arrays, run=plan.kept)
        del arrays["meta"]
        beta = _unpacked(arrays)
        shape = state.arrays["multiplier"].shape
        n_betas = len(state.labels) * len(plan.classes)
        fits = arrays["multiplier"].shape == arrays["relaxed"].shape == shape
        if not fits or beta is None or beta.shape != (n_betas,):
            msg = "the arrays do not fit the partition"
            raise ValueError(msg)
        kinds = {"multiplier": np.float64, "relaxed": np.float64, "beta": beta.dtype}
        if any(arrays[name].dtype != kind for name, kind in kinds.items()):
            msg = "the arrays have other types"
            raise ValueError(msg)
        if not all(np.isfinite(arrays[name]).all() for name in kinds) or (beta < 0.0).any():
            msg = "the arrays have values that no run leaves"
            raise ValueError(msg)
        state.round, state.rho = int(meta["round"]), float(meta["rho"])
        if not (np.isfinite(state.rho) and state.rho >= 0.0):
            msg = "the penalty is not finite"
            raise ValueError(msg)
        state.arrays, state.restored = arrays, True
    return state
