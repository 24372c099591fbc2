"""MulticlassSVC compared with a plain loop of exact block steps, in single precision on one thread.

    python benches/plain_passes.py [data sets] [--C 0.05 1 10] [--level 1e-4] [--repeats 5]

The loop (`support/plain_passes.c`, compiled with `cc -O3 -march=native`) makes a given number of
passes and certifies nothing. Each program runs at its loosest setting whose weights have a primal
objective of at most (1 + level) times a certified lower bound on the optimum. The setting is a
number of passes for the loop, and a relative gap for dualgap. Timed fits alternate and include the
conversion of the rows. Data sets: those of block_descent.py; generated sets replace missing files.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import subprocess
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
from _record import Table, alternate, seconds
from block_descent import load, svm
from liblinear import CS, NAMES, OUR_GRID, loosest, primal

SOURCE = Path(__file__).parent / "support/plain_passes.c"
FLAGS = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
PASSES = sorted({round(1.1**step) for step in range(80)})
LANES = 8


def compiled(folder: str) -> Any:
    """Compile the loop and return its function `fit`."""
    library = Path(folder) / "plain_passes.so"
    subprocess.run(["cc", *FLAGS, "-o", library, SOURCE], check=True)
    fit = ctypes.CDLL(str(library)).fit
    fit.restype = None
    return fit


def address(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def plain(fit: Any, X: Any, labels: Any, C: float, passes: int) -> Any:
    """Make the passes; return a model with the weights."""
    rows = sp.csr_array(X, dtype=np.float32)
    start, column = (part.astype(np.int32) for part in (rows.indptr, rows.indices))
    (n, d), m = rows.shape, int(labels.max()) + 1
    padded = -(-m // LANES) * LANES
    weights, alpha = (np.zeros((size, padded), dtype=np.float32) for size in (d, n))
    fit(
        *map(address, (start, column, rows.data, labels)), n, m, ctypes.c_float(C), int(passes),
        address(weights), address(alpha),
    )  # fmt: skip
    return SimpleNamespace(coef_=weights[:, :m].T, n_iter_=passes)


def compare(fit: Any, name: str, C: float, level: float, repeats: int) -> None:
    table = Table("plain-passes", "data", "C", "level")
    X, y = load(name)
    X, labels = X.astype(np.float32), np.unique(y, return_inverse=True)[1].astype(np.int32)
    exact = svm("crammer-singer", C=C, tol=0.02 * level, max_iter=10**6).fit(X, y)
    bound = exact.dual_objective_ * C * len(y)

    def excess(model: Any) -> float:
        return primal(X, y, np.asarray(model.coef_, dtype=float), C) / bound - 1.0

    def ours(tol: float) -> Any:
        return svm("crammer-singer", tol=tol, C=C, max_iter=10**6, n_jobs=1).fit(X, y)

    def loop(passes: float) -> Any:
        return plain(fit, X, labels, C, int(passes))

    found = loosest(ours, [level * factor for factor in OUR_GRID], excess, level)
    peer = loosest(loop, [float(passes) for passes in PASSES], excess, level)
    assert found is not None, f"dualgap does not reach {level:g} on {name}"
    # If the loop does not reach the level, the time of the most passes is a lower bound.
    passes = PASSES[-1] if peer is None else peer[1].n_iter_
    times = alternate(
        lambda: seconds(lambda: ours(found[0])),
        lambda: seconds(lambda: loop(passes)),
        repeats=repeats,
    )
    table.add(
        data=name, C=C, level=level, epochs=found[1].n_iter_,
        passes=f"> {passes}" if peer is None else passes,
        seconds=np.median(times[:, 0]), plain_seconds=np.median(times[:, 1]),
        ratio=np.median(times[:, 1] / times[:, 0]),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--C", type=float, nargs="+", default=CS)
    parser.add_argument("--level", type=float, default=1e-4)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        fit = compiled(folder)
        for name, C in itertools.product(arguments.names, arguments.C):
            compare(fit, name, C, arguments.level, arguments.repeats)


if __name__ == "__main__":
    main()
