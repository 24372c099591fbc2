"""Count the failures of three kinds of trials.

The trials kill a process while it writes a file, read damaged files, and limit the threads of a
fit.

Usage: python benches/trials_files.py [threads]

A trial that kills a writer fails if the file is neither the old nor the new version, or if a
temporary file is left. A trial with a damaged file fails unless the file can be read, or a
ValueError names the file. Each kind of file is tried in a separate process; if a signal ends this
process, all its trials fail. Threads are counted during a fit.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _record import Table

from dualgap import MulticlassSVC
from dualgap._core import THREADS_PER_CORE
from dualgap._npz import read_npz, write_npz
from dualgap.cli._linear_file import Training, read_linear, write_linear
from dualgap.cli._tables import Source, read_table
from dualgap.losses import Loss
from dualgap.recommend import OrdinalRecommender

WRITER = """
import sys
import numpy as np
from dualgap._npz import write_npz
number = 0
while True:
    write_npz(sys.argv[1], {}, {"a": np.full(1_000_000, number)})
    number += 1
    print(number, flush=True)
"""
KILLS = 48
DAMAGED = 5000
ROWS = np.random.default_rng(0).normal(size=(20, 4)).round(2)
LABELS = np.arange(20) % 3


def kills(folder: Path) -> int:
    """Kill writers at random moments; count damaged files and leftovers."""
    path, generator, failed = folder / "model", random.Random(0), 0
    write_npz(path, {}, {"a": np.full(1_000_000, -1)})
    for _ in range(KILLS):
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(generator.uniform(0, 0.2))
            writer.kill()
        try:
            content = read_npz(path)["a"]
            failed += int((content != content[0]).any() or os.listdir(folder) != ["model"])
        except (OSError, ValueError):
            failed += 1
    return failed


def damage(good: bytes, generator: random.Random) -> bytes:
    """Change, remove or insert some bytes."""
    content = bytearray(good)
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(content) + 1)
        kind = generator.randrange(4)
        if kind == 0:
            content[at : at + 1] = generator.randbytes(1)
        elif kind == 1:
            del content[at : at + generator.randint(1, 40)]
        elif kind == 2:
            content[at:at] = generator.choice([b"9999999", b"1e999", b"nan", b"-", b",", b"\n"])
        else:
            content[at : at + 8] = generator.randbytes(8)
    return bytes(content)


def linear(path: Path) -> None:
    """Write a linear model."""
    model = MulticlassSVC(Loss("crammer-singer"), random_state=0, n_jobs=1).fit(ROWS, LABELS)
    write_linear(path, model, Training(4, columns=list("abcd"), label="label"))


def recommender(path: Path) -> None:
    """Write a recommender."""
    users, items = np.repeat(np.arange(6), 4), np.tile(np.arange(4), 6)
    model = OrdinalRecommender(random_state=0, n_jobs=1)
    model.fit((users, items, 1.0 + (users + items) % 3)).save(path)


def rows(form: str) -> Callable[[Path], object]:
    """Return a function that reads a table of rows."""
    return lambda path: read_table(Source(path, form), need_labels=False)


def libsvm(path: Path) -> None:
    """Write rows in LIBSVM format."""
    lines = [
        " ".join([str(label), *(f"{column + 1}:{value}" for column, value in enumerate(row))])
        for row, label in zip(ROWS, LABELS, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")


def table(path: Path) -> None:
    """Write rows as CSV."""
    lines = [",".join(map(str, [*row, label])) for row, label in zip(ROWS, LABELS, strict=True)]
    path.write_text("\n".join(["a,b,c,d,label", *lines]) + "\n")


def arrays(path: Path) -> None:
    """Write rows as arrays."""
    with open(path, "wb") as file:
        np.savez(file, X=ROWS, y=LABELS)


def sparse(path: Path) -> None:
    """Write sparse rows without compression."""
    with open(path, "wb") as file:
        sp.save_npz(file, sp.csr_array(ROWS), compressed=False)


READERS: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "linear model": (linear, read_linear),
    "recommender": (recommender, OrdinalRecommender.load),
    "rows, LIBSVM": (libsvm, rows("libsvm")),
    "rows, CSV": (table, rows("csv")),
    "rows, npz": (arrays, rows("npz")),
    "rows, sparse npz": (sparse, rows("npz")),
}


def read_damaged(name: str, folder: Path) -> int:
    """Read damaged files of one kind; count outcomes other than success or the expected error."""
    write, read = READERS[name]
    write(folder / "good")
    good, path = (folder / "good").read_bytes(), folder / "bad"
    generator, failed = random.Random(0), 0
    for _ in range(DAMAGED):
        path.write_bytes(damage(good, generator))
        try:
            read(path)
        except ValueError as error:
            failed += not str(error).startswith(f"{path}: ")
        except Exception as error:
            print(f"{name}: {error!r}", file=sys.stderr)
            failed += 1
    return failed


def in_process(name: str) -> int:
    """Run `read_damaged` in a separate process."""
    command = [sys.executable, __file__, name]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return int(ended.stdout) if ended.returncode == 0 else DAMAGED


def threads() -> int:
    """Return 1 if a fit with a million jobs uses more threads than allowed, else 0.

    The median is used because threads that prepared the fit may still exist during its first
    epochs.
    """
    cores, seen = len(os.sched_getaffinity(0)), []

    def count(*_: float) -> bool:
        text = Path("/proc/self/status").read_text()
        seen.append(int(text.split("Threads:")[1].split()[0]))
        return False

    before = int(Path("/proc/self/status").read_text().split("Threads:")[1].split()[0])
    MulticlassSVC(n_jobs=10**6, callback=count).fit(ROWS, LABELS)
    return int(np.median(seen) > before + THREADS_PER_CORE * cores)


def main() -> None:
    """Run all trials, or only the trials of one kind."""
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:] == ["threads"]:
            Table("trials-files", "trial").add(trial="a million jobs", tried=1, failed=threads())
            return
        if len(sys.argv) > 1:
            print(read_damaged(sys.argv[1], Path(folder)))
            return
        results = Table("trials-files", "trial")
        results.add(trial="kill while a model is written", tried=KILLS, failed=kills(Path(folder)))
    for name in READERS:
        results.add(trial=f"damaged file: {name}", tried=DAMAGED, failed=in_process(name))
    results.add(trial="a million jobs", tried=1, failed=threads())


if __name__ == "__main__":
    main()
