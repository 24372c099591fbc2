"""Seconds and peak memory of the same fits with two builds of dualgap.

    python benches/compare_builds.py --old PYTHON --new PYTHON [--repeats 7] [names]

Each PYTHON is the interpreter of an environment with one of the builds. Each measurement runs in a
separate process. The builds alternate, and a ratio is the median of the ratios of neighbouring
measurements. A process makes at least three fits and reports the seconds of the fastest fit.
Processor seconds, summed over threads, are less affected by other work on the machine. Memory is
the peak of the process. Data are generated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import numpy as np
from _record import HERE, Table

CASES = HERE / "support/build_cases.py"


def measure(python: str, case: str) -> tuple[float, float, float]:
    """Return the seconds and processor seconds of a fit, and the megabytes of its process."""
    done = subprocess.run(
        [python, str(CASES), case], capture_output=True, text=True, check=True, cwd=CASES.parent
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], found["cpu_seconds"], found["megabytes"]


def names(python: str) -> list[str]:
    done = subprocess.run([python, str(CASES)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def commit(python: str) -> str:
    """Return the commit of the sources from which an environment imports dualgap."""
    code = "import dualgap, pathlib; print(pathlib.Path(dualgap.__file__).parent)"
    folder = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, cwd=CASES.parent
    ).stdout.strip()
    command = ["git", "-C", folder, "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    table = Table("compare-builds", "case", "old_commit")
    versions = {"old_commit": commit(arguments.old), "new_commit": commit(arguments.new)}
    for case in arguments.names or names(arguments.new):
        pairs = np.array(
            [
                [measure(arguments.old, case), measure(arguments.new, case)]
                for _ in range(arguments.repeats)
            ]
        )
        (old, _, old_mb), (new, _, new_mb) = np.median(pairs, axis=0)
        ratio, cpu_ratio, memory_ratio = np.median(pairs[:, 1] / pairs[:, 0], axis=0)
        table.add(
            case=case, old_seconds=old, new_seconds=new, ratio=ratio, cpu_ratio=cpu_ratio,
            old_mb=old_mb, new_mb=new_mb, memory_ratio=memory_ratio,
            repeats=arguments.repeats, **versions,
        )  # fmt: skip


if __name__ == "__main__":
    main()
