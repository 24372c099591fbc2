"""Seconds and memory to read files in LIBSVM format.

    python benches/libsvm_files.py [--megabytes 202] [--folder /tmp]

The generated file has rows of 100 entries among 200,000 features, with values of six digits. Each
reader runs in a separate process. Memory is the increase of the peak resident size during reading,
divided by the size of the resulting matrix.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from _record import Table

READERS = ("dualgap", "scikit-learn")


def generate(path: Path, megabytes: float) -> None:
    rng = np.random.default_rng(0)
    with path.open("w", encoding="ascii") as file:
        while file.tell() < megabytes * 1e6:
            columns = np.sort(rng.integers(1, 200_001, size=(200, 100)), axis=1)
            for row, values in zip(columns, rng.random((200, 100)), strict=True):
                unique = np.unique(row)
                pairs = zip(unique, values, strict=False)
                entries = " ".join(f"{column}:{value:.6f}" for column, value in pairs)
                file.write(f"{int(row[0]) % 200} {entries}\n")


def read_alone(path: str, reader: str) -> None:
    """Read the file in this process, and print seconds and memory."""
    from sklearn.datasets import load_svmlight_file

    from dualgap._libsvm import read_libsvm

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    before, start = peak(), time.perf_counter()
    if reader == "dualgap":
        with open(path, "rb") as file:
            X, _, _ = read_libsvm(file)
    else:
        X, _ = load_svmlight_file(path)
    seconds = time.perf_counter() - start
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    taken = (peak() - before) / size
    print(json.dumps({"seconds": seconds, "matrix_mb": size / 1e6, "memory": taken}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=202)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--alone", nargs=2)
    chosen = parser.parse_args()
    if chosen.alone:
        return read_alone(*chosen.alone)
    table = Table("libsvm-files", "megabytes", "reader")
    path = chosen.folder / "dualgap-benchmark.svm"
    generate(path, chosen.megabytes)
    try:
        for reader in READERS:
            runs = []
            for _ in range(chosen.repeats):
                command = [sys.executable, __file__, "--alone", str(path), reader]
                ended = subprocess.run(command, capture_output=True, text=True, check=True)
                runs.append(json.loads(ended.stdout))
            seconds = float(np.median([run["seconds"] for run in runs]))
            memory = max(run["memory"] for run in runs)
            table.add(
                megabytes=round(path.stat().st_size / 1e6), reader=reader, seconds=seconds,
                matrix_mb=runs[0]["matrix_mb"], memory=memory,
            )  # fmt: skip
    finally:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
