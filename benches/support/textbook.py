"""Runs of textbook block descent (examples/shark.rs), with Walrus or Shark as inner solver."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "target/release/examples/shark"
INNER = ("walrus", "shark")


class Epochs:
    """Seconds, duality gaps and test accuracies after each epoch of a run."""

    def __init__(self, lines: list[str]) -> None:
        columns = np.array([line.split() for line in lines], dtype=np.float64).T
        _, self.seconds, self.gaps, self.accuracies = columns

    def first(self, reached: np.ndarray) -> tuple[float | None, int | None]:
        """Return the seconds and the number of epochs until the first True."""
        if not reached.any():
            return None, None
        epoch = int(reached.argmax())
        return float(self.seconds[epoch]), epoch + 1


@contextmanager
def textbook(X: Any, y: np.ndarray) -> Iterator[Any]:
    """Write rows and labels to files, and yield a function that runs the Rust program on them.

    Its arguments are C, the inner solver, the maximum seconds of training, and the number of rows
    at the end that are test rows.
    """
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--example", "shark"], cwd=ROOT, check=True
    )
    with TemporaryDirectory() as folder:
        parts = {"X.f64": X}
        if sp.issparse(X):
            parts = {"X.f64": X.data, "columns.u32": X.indices, "bounds.u32": X.indptr}
        for name, values in {**parts, "y.u32": y}.items():
            values.astype("<f8" if name.endswith("f64") else "<u4").tofile(Path(folder) / name)
        rows = ",".join(f"{folder}/{name}" for name in parts)
        sizes = [str(X.shape[1]), str(int(y.max()) + 1)]

        def run(C: float, inner: str, limit: float = 60.0, n_test: int = 0) -> Epochs:
            command = [PROGRAM, rows, f"{folder}/y.u32", *sizes, str(C), inner]
            command += [str(limit), str(n_test)]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            return Epochs(out.splitlines())

        yield run
