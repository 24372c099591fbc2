"""Time and memory of fits to millions of clicks, compared with implicit and irspack.

python benches/recommender_scale.py [--millions 1 5 20] [--factors 64 128 256] [--methods NAME ...]

The clicks are drawn from a power law of items and from 50 topics. There are 138,000 users and
27,000 items, as in MovieLens 20M. A fifth of the clicks of 2,000 users is held out. Each fit runs
in a separate process, on all cores, with 15 sweeps at most. Memory is the peak memory minus the
memory before the fit, divided by the number of clicks. It does not include the data, which another
process draws. The data are a table for dualgap and a CSR matrix for the other programs. Recall@20
is the fraction of a user's held-out items that are among 20 recommended items. Methods that are not
installed are left out: pip install implicit irspack
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _record import Table, installed

SHAPE = 138_000, 27_000
TOPICS = 50
TESTED = 2000
K = 20
SWEEPS = 15

Lists = Callable[[np.ndarray], np.ndarray]
"""A function that returns the best items of users."""


def drawn(n: int, seed: int = 0) -> np.ndarray:
    """Draw pairs of users and items, each as the number user * n_items + item."""
    rng = np.random.default_rng(seed)
    n_users, n_items = SHAPE
    popularity = np.cumsum(np.arange(1, n_items + 1) ** -0.9)
    activity = np.cumsum(rng.lognormal(size=n_users))
    topics = np.stack([rng.permutation(n_items) for _ in range(TOPICS)])
    found = np.zeros(0, np.int64)
    while len(found) < n:
        size = int(1.3 * (n - len(found))) + 1000
        users = np.searchsorted(activity, rng.random(size) * activity[-1])
        items = np.searchsorted(popularity, rng.random(size) * popularity[-1])
        items = np.where(rng.random(size) < 0.7, topics[users % TOPICS, items], items)
        found = np.unique(np.concatenate([found, users * n_items + items]))
    return rng.permutation(found)[:n]


def dualgap(table: pd.DataFrame, width: int | None, blend: bool) -> tuple[Callable[[], Any], Any]:
    from dualgap.recommend import Interactions, OrdinalRecommender

    settings = Interactions(n_components=width, blend=blend, max_iter=SWEEPS)
    model = OrdinalRecommender(task="clicks", interactions=settings, random_state=0)

    def lists(users: np.ndarray) -> np.ndarray:
        return model.recommend(users, K)["item"].to_numpy().reshape(-1, K)

    return lambda: model.fit(table), lists


def implicit(table: pd.DataFrame, width: int | None) -> tuple[Callable[[], Any], Any]:
    from implicit.als import AlternatingLeastSquares

    clicks = sp.csr_matrix((np.ones(len(table), np.float32), (table["user"], table["item"])), SHAPE)
    model = AlternatingLeastSquares(factors=width, iterations=SWEEPS, random_state=0)

    def lists(users: np.ndarray) -> np.ndarray:
        return model.recommend(users, clicks[users], K)[0]

    return lambda: model.fit(clicks, show_progress=False), lists


def irspack(table: pd.DataFrame, width: int | None) -> tuple[Callable[[], Any], Any]:
    from irspack import IALSRecommender

    clicks = sp.csr_matrix((np.ones(len(table)), (table["user"], table["item"])), SHAPE)
    # By default, irspack gives no weight to pairs without a click; use the weight that dualgap
    # chooses.
    weight = 3.0 * len(table) / SHAPE[0] / SHAPE[1]
    model = IALSRecommender(
        clicks, n_components=width, alpha0=weight, solver_type="IALSPP", train_epochs=SWEEPS
    )

    def lists(users: np.ndarray) -> np.ndarray:
        scores = model.get_score_remove_seen(users)
        best = np.argpartition(-scores, K, axis=1)[:, :K]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
        return np.take_along_axis(best, order, axis=1)

    return model.learn, lists


METHODS: dict[str, Callable[..., tuple[Callable[[], Any], Any]]] = {
    "dualgap, factors alone": lambda table, width: dualgap(table, width, False),
    "dualgap": lambda table, width: dualgap(table, None, True),
    "implicit": implicit,
    "irspack": irspack,
}


def peak() -> int:
    """Return the peak memory of this process, in bytes (Linux)."""
    # `getrusage` would return the peak of the parent process if that is larger.
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def measure(method: str, width: int, folder: str, answers: Any) -> None:
    """Fit in this process, and send the row to the parent process."""
    train, held_out = (np.load(Path(folder) / f"{name}.npy") for name in ("train", "test"))
    table = pd.DataFrame({"user": train // SHAPE[1], "item": train % SHAPE[1]})
    n = len(table)
    del train
    fit, lists = METHODS[method](table, width)
    Path("/proc/self/clear_refs").write_text("5")  # The peak becomes the memory now.
    before = peak()
    start = time.perf_counter()
    fit()
    seconds = time.perf_counter() - start
    most = peak()
    users, rows = np.unique(held_out // SHAPE[1], return_inverse=True)
    found = np.concatenate([lists(users[at : at + 200]) for at in range(0, len(users), 200)])
    hits = (found[rows] == (held_out % SHAPE[1])[:, None]).any(axis=1)
    recall = float((np.bincount(rows, hits) / np.bincount(rows)).mean())
    answers.put({"seconds": seconds, "bytes_per_click": (most - before) / n, "recall": recall})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 5, 20])
    parser.add_argument("--factors", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    chosen = parser.parse_args()
    table = Table("recommender-scale", "millions", "method", "factors")
    context = multiprocessing.get_context("spawn")
    for millions in chosen.millions:
        pairs = drawn(int(1e6 * millions))
        owners, rng = pairs // SHAPE[1], np.random.default_rng(1)
        tested = rng.permutation(np.flatnonzero(np.bincount(owners, minlength=SHAPE[0]) > 4))
        held = np.isin(owners, tested[:TESTED]) & (rng.random(len(pairs)) < 0.2)
        for method in chosen.methods:
            if not method.startswith("dualgap") and find_spec(method) is None:
                continue
            # With default settings, the number of factors depends on the data.
            for width in chosen.factors if method != "dualgap" else [0]:
                with tempfile.TemporaryDirectory() as folder:
                    np.save(Path(folder) / "train.npy", pairs[~held])
                    np.save(Path(folder) / "test.npy", pairs[held])
                    answers = context.Queue()
                    job = context.Process(target=measure, args=(method, width, folder, answers))
                    job.start()
                    job.join()
                    if job.exitcode != 0:
                        sys.exit(f"error: {method} ended with exit code {job.exitcode}")
                    row = answers.get()
                if not method.startswith("dualgap"):
                    row |= {"simd": "", "programs": installed(method)}
                table.add(millions=millions, method=method, factors=width, **row)


if __name__ == "__main__":
    main()
