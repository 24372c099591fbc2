"""Support vector machines in Rust: dualgap, linfa-svm, smartcore and libsvm-rs.

    python benches/rust_peers.py [data sets]

Each program fits linear classifiers with its defaults for tolerance and passes, on one thread.
dualgap minimises the loss of Crammer and Singer, linfa-svm one-vs-all hinge losses, and the other
programs one-vs-one hinge losses. C is the value in the list `CS` with the best accuracy on a
fifth of the training rows. The program is built from benches/peers, with the versions in its
Cargo.lock, into target/peers. A fit that takes more than LIMIT seconds is stopped, and its row has
no numbers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from _data import split
from _record import Table

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "target/peers"
PROGRAMS = ("dualgap", "linfa-svm", "smartcore", "libsvm-rs")
CS = (0.01, 0.1, 1.0, 10.0)
LIMIT = 30.0
REPEATS = 3


def build() -> Path:
    command = ["cargo", "build", "--release", "--quiet", "--locked"]
    command += ["--manifest-path", str(ROOT / "benches/peers/Cargo.toml")]
    subprocess.run(command, env={**os.environ, "CARGO_TARGET_DIR": str(FOLDER)}, check=True)
    return FOLDER / "release/peers"


def write(path: Path, train: tuple[Any, Any], test: tuple[Any, Any]) -> None:
    """Write rows as lines with a label and features."""
    lines = [f"{len(train[1])} {len(test[1])}"]
    for X, y in (train, test):
        for label, row in zip(y, X, strict=True):
            lines.append(" ".join([str(int(label)), *(f"{value:.17g}" for value in row)]))
    path.write_text("\n".join(lines) + "\n", "utf-8")


def run(program: Path, name: str, C: float, path: Path) -> tuple[float, float] | None:
    """Return accuracy and seconds, or None if the fit took too long or failed."""
    command = [str(program), name, str(C), str(path)]
    environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=True
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        print(f"{name}, C={C}: {error}")
        return None
    accuracy, seconds = map(float, done.stdout.split())
    return accuracy, seconds


def compare(table: Table, program: Path, name: str) -> None:
    X, y, X_test, y_test = split(name)
    X, X_test = (np.asarray(each, dtype=np.float64) for each in (X, X_test))
    order = np.random.default_rng(0).permutation(len(y))
    held_out, rest = np.split(order, [len(order) // 5])
    chosen, final = FOLDER / f"{name}-choice.txt", FOLDER / f"{name}.txt"
    write(chosen, (X[rest], y[rest]), (X[held_out], y[held_out]))
    write(final, (X, y), (X_test, y_test))
    for each in PROGRAMS:
        scores = {C: run(program, each, C, chosen) for C in CS}
        known = {C: score[0] for C, score in scores.items() if score is not None}
        cells: dict[str, Any] = {"C": None, "accuracy": None, "seconds": None}
        if known:
            C = max(known, key=lambda C: (known[C], -C))
            found = [run(program, each, C, final) for _ in range(REPEATS)]
            fits = [fit for fit in found if fit is not None]
            if fits:
                seconds = float(np.median([fit[1] for fit in fits]))
                cells = {"C": C, "accuracy": 100 * fits[0][0], "seconds": seconds}
        table.add(data=name, program=each, **cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["dna", "segment", "satimage"])
    arguments = parser.parse_args()
    program = build()
    table = Table("rust-peers", "data", "program")
    for name in arguments.names:
        compare(table, program, name)


if __name__ == "__main__":
    main()
