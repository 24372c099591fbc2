"""Memory of SequenceTagger with the features of sentences in memory and on a disk.

    python benches/tagger_memory.py [--sentences 10000 40000] [--passes 3]

The sentences have 20 words from a vocabulary of 20,000 and ten labels. They are generated one at a
time. The features are those of `features="words"`, hashed to 2^18 numbers. Each fit runs in a
separate process. Memory is the peak growth of anonymous memory during the fit, without the pages of
files that the system can drop; it is sampled every 10 ms, on Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from _record import Table, anonymous_memory, sampled_memory

LENGTH, N_WORDS, N_LABELS = 20, 20_000, 10


def sentences(n: int) -> Iterator[tuple[list[tuple[str, str]], list[str]]]:
    """Yield pairs of a sentence and its labels."""
    rng = np.random.default_rng(0)
    for _ in range(n):
        words = (N_WORDS * rng.random(LENGTH) ** 2).astype(int).tolist()
        labels = [f"L{word % N_LABELS}" for word in words]
        yield [(f"w{word}", f"t{word % 40}") for word in words], labels


def words_and_labels(n: int) -> tuple[Iterator[Any], Iterator[Any]]:
    """Return generators of the words and of the labels."""
    return (words for words, _ in sentences(n)), (labels for _, labels in sentences(n))


def child(n: int, loss: Any, passes: int, on_disk: bool) -> None:
    """Fit one tagger and print its numbers."""
    from dualgap import SequenceTagger

    warnings.simplefilter("ignore")
    tagger = SequenceTagger(
        loss, features="words", hash_bits=18, max_iter=passes, tol=0.0, random_state=0
    )
    tagger.fit(*words_and_labels(10))  # this loads libraries
    before = anonymous_memory()
    with TemporaryDirectory() as folder, sampled_memory() as samples:
        start = time.perf_counter()
        tagger.fit(*words_and_labels(n), spill=folder if on_disk else None)
        seconds = time.perf_counter() - start
    memory_mb = (max(samples) - before) / 1024
    print(json.dumps({"memory_mb": memory_mb, "seconds": seconds, "passes": tagger.n_iter_}))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--sentences", type=int, nargs="+", default=[10_000, 40_000])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--child", nargs=3, metavar=("N", "LOSS", "PLACE"))
    arguments = parser.parse_args()
    if arguments.child:
        n, loss, place = arguments.child
        child(int(n), loss, arguments.passes, place == "disk")
        return
    if not Path("/proc/self/status").exists():
        print("tagger_memory.py: skipped; it needs /proc")
        return
    table = Table("tagger-memory", "loss", "sentences", "features")
    for loss in ("hamming", "logistic"):
        for n in arguments.sentences:
            for place in ("memory", "disk"):
                command = [sys.executable, __file__, "--passes", str(arguments.passes)]
                command += ["--child", str(n), loss, place]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found = json.loads(done.stdout.splitlines()[-1])
                found["bytes_per_token"] = found["memory_mb"] * 2**20 / (n * LENGTH)
                table.add(loss=loss, sentences=n, features=place, **found)


if __name__ == "__main__":
    main()
