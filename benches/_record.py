"""Helpers of the benchmarks: result files, paired timings, data sets."""

from __future__ import annotations

import contextlib
import csv
import datetime
import fcntl
import functools
import os
import platform
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
PACKAGES = ("dualgap", "numpy", "scipy", "scikit-learn")
ORIGIN = ("simd", "commit", "date", "machine", "versions")
GENERATED: set[str] = set()
"""Names of the data sets that were generated because their files are missing (see `_data.py`)."""


class Table:
    """Writer of result rows to `results/<name>.csv`, in this folder or in DUALGAP_RESULTS.

    Each row records instruction set, commit, date, machine and versions. A row replaces the earlier
    row with the same instruction set (or none) and the same values in the `key` columns, so parts
    of a table can be measured again. Rows of other programs have `simd=""`, because they apply to
    all instruction sets. `make results` fills the tables of the pages from the rows.
    """

    def __init__(self, name: str, *key: str) -> None:
        self.key = key
        self.path = Path(os.environ.get("DUALGAP_RESULTS") or HERE / "results") / f"{name}.csv"

    def read(self) -> list[dict[str, str]]:
        if GENERATED and self.path.parent.name != "generated-results":
            # Results on generated sets must not replace results on real sets.
            self.path = HERE.parent / "target" / "generated-results" / self.path.name
        if not self.path.exists():
            return []
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def add(self, *, programs: tuple[str, ...] = (), **row: Any) -> None:
        """Print a row and store it; `programs` are names and versions of other programs."""
        cells = {name: formatted(value) for name, value in row.items()}
        print("  ".join(f"{name} {cell}" for name, cell in cells.items()), flush=True)
        with lock_results():
            self.store(origin(programs) | cells)

    def store(self, cells: dict[str, str]) -> None:
        """Write a row to the file, in place of the row that it replaces."""
        rows, wanted = self.read(), [cells[name] for name in self.key]
        same = [
            at
            for at, old in enumerate(rows)
            if [old.get(k) for k in self.key] == wanted
            and old.get("simd", "") in ("", cells["simd"])
        ]
        if same:
            rows[same[0]] = cells
        else:
            rows.append(cells)
        columns = [name for name in cells if name not in ORIGIN]
        columns += [name for old in rows for name in old if name not in (*columns, *ORIGIN)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        with draft.open("w", encoding="utf-8", newline="") as file:
            names = [*dict.fromkeys(columns), *ORIGIN]
            writer = csv.DictWriter(file, names, lineterminator="\n", restval="")
            writer.writeheader()
            writer.writerows(rows)
        draft.replace(self.path)


@contextlib.contextmanager
def lock_results() -> Iterator[None]:
    """Lock the results, because benchmarks may run in parallel."""
    with (Path(tempfile.gettempdir()) / "dualgap-results.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def anonymous_memory() -> int:
    """Return the kilobytes of anonymous memory of this process (Linux only)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "RssAnon" in line)


@contextlib.contextmanager
def sampled_memory() -> Iterator[list[int]]:
    """Sample `anonymous_memory` every 10 ms; yield a list that holds the samples at the end."""
    samples: list[int] = []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.01):
            samples.append(anonymous_memory())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield samples
    finally:
        done.set()
        sampler.join()


def formatted(value: Any) -> str:
    """Format a cell: numbers with at most six digits, None and NaN as an empty string."""
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value)


@functools.cache
def origin(programs: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the columns of ORIGIN; the commit ends with + if the code was modified."""
    from dualgap import _core

    versions = [f"{name} {version(name)}" for name in PACKAGES]
    rust = output("rustc", "--version").split(" (")[0]
    versions = [f"python {platform.python_version()}", *versions, *([rust] if rust else [])]
    versions += programs
    changed = output("git", "status", "--porcelain", "--", "src", "python", "Cargo.lock")
    return {
        "simd": _core.SIMD,
        "commit": (output("git", "rev-parse", "--short=7", "HEAD") or "-")
        + ("+" if changed else ""),
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "versions": ", ".join(versions),
    }


def installed(module: str) -> tuple[str, ...]:
    """Return name and version of the package that has this module."""
    return tuple(f"{name} {version(name)}" for name in packages_distributions()[module])


def output(*command: str) -> str:
    """Return the output of a program, or an empty string if it is missing or fails."""
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def processor() -> str:
    """Return the processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def seconds(run: Callable[[], Any]) -> float:
    """Measure the wall-clock seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def fastest(run: Callable[[], Any], *, enough: float, fewest: int = 1, most: int = 5) -> float:
    """Return the smallest processor time of several calls.

    Calls end when they have taken `enough` seconds together, but there are at least `fewest` and at
    most `most` of them.
    """
    times: list[float] = []
    while len(times) < fewest or (len(times) < most and sum(times) < enough):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def alternate(*runs: Callable[[], float], repeats: int = 5) -> np.ndarray:
    """Alternate between measurements, so that slow moments affect all of them.

    Returns an array of shape (repeats, number of runs).
    """
    return np.array([[run() for run in runs] for _ in range(repeats)])


def paired(
    first: Callable[[], float], second: Callable[[], float], repeats: int = 5
) -> tuple[float, float, float]:
    """Return the medians of two alternating measurements, and of their ratios second / first."""
    times = alternate(first, second, repeats=repeats)
    a, b = np.median(times, axis=0)
    return float(a), float(b), float(np.median(times[:, 1] / times[:, 0]))


def data_folder() -> Path | None:
    """Return the folder of the data sets, from the environment variable DUALGAP_DATA."""
    folder = os.environ.get("DUALGAP_DATA")
    return Path(folder) if folder else None
