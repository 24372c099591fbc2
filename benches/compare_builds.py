"""Two builds of dualgap beside each other: seconds and peak memory of the same fits.

    python benches/compare_builds.py --old PYTHON --new PYTHON [--repeats 7] [names]

PYTHON is the interpreter of an environment with the build in it. Each measurement is a process of
its own; the builds take turns, and the ratio is the median of the ratios of neighbours. Seconds are
the faster of two fits in a process, the memory is the process's peak. Data are generated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import numpy as np
from _record import HERE, Table

CASES = HERE / "support/build_cases.py"


def measure(python: str, case: str) -> tuple[float, float]:
    """Seconds of a fit and megabytes of its process."""
    done = subprocess.run(
        [python, str(CASES), case], capture_output=True, text=True, check=True, cwd=CASES.parent
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], found["megabytes"]


def names(python: str) -> list[str]:
    done = subprocess.run([python, str(CASES)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def commit(python: str) -> str:
    """The commit of the sources that an environment imports dualgap from."""
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
    table = Table("compare_builds", "case")
    versions = {"old_commit": commit(arguments.old), "new_commit": commit(arguments.new)}
    for case in arguments.names or names(arguments.new):
        pairs = np.array(
            [
                [measure(arguments.old, case), measure(arguments.new, case)]
                for _ in range(arguments.repeats)
            ]
        )
        (old, old_mb), (new, new_mb) = np.median(pairs, axis=0)
        ratio, memory_ratio = np.median(pairs[:, 1] / pairs[:, 0], axis=0)
        table.add(
            case=case, old_seconds=old, new_seconds=new, ratio=ratio, old_mb=old_mb, new_mb=new_mb,
            memory_ratio=memory_ratio, repeats=arguments.repeats, **versions,
        )  # fmt: skip


if __name__ == "__main__":
    main()
