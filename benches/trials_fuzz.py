"""Run each fuzz target for a given time, and record the numbers of inputs and failures.

    python benches/trials_fuzz.py [--seconds 600] [TARGET ...]

The targets are those of tests/python/files/test_fuzz.py and tests/python/fuzz. Each runs in a
separate process, and fails if a signal ends the process or a test fails. The corpus in
tests/fixtures/corpus gains each input for which a reader gives a result or an error message that no
file of the corpus gives.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys

from _record import HERE, Table

FILES = "tests/python/files/test_fuzz.py"
TARGETS = {
    "rows, LIBSVM": [f"{FILES}::test_damaged_tables_are_read_or_rejected[libsvm]"],
    "rows, CSV": [f"{FILES}::test_damaged_tables_are_read_or_rejected[csv]"],
    "rows, npy": [f"{FILES}::test_damaged_tables_are_read_or_rejected[npy]"],
    "rows, npz": [f"{FILES}::test_damaged_tables_are_read_or_rejected[npz]"],
    "rows, sparse npz": [f"{FILES}::test_damaged_sparse_matrices_are_read_or_rejected"],
    "linear model": [
        f"{FILES}::test_damaged_model_files_are_read_or_rejected[linear]",
        f"{FILES}::test_random_model_descriptions_are_read_or_rejected[linear]",
    ],
    "recommender": [
        f"{FILES}::test_damaged_model_files_are_read_or_rejected[recommender]",
        f"{FILES}::test_random_model_descriptions_are_read_or_rejected[recommender]",
    ],
    "arguments of the core": [
        "tests/python/fuzz/test_core.py::test_arguments_are_answered_or_rejected_for_the_given_time"
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="TARGET")
    options = parser.parse_args()
    for name in options.targets:
        tests = TARGETS[name]
        seconds = options.seconds / (2 if name == "rows, sparse npz" else len(tests))
        given = {"DUALGAP_FUZZ_SECONDS": str(seconds), "DUALGAP_FUZZ_KEEP": "1"}
        # Test runs usually stop a test after minutes; here it may take as long as requested.
        endless = ["--timeout=0", "-o", "faulthandler_timeout=0"]
        command = [sys.executable, "-m", "pytest", "-q", "-s", "--hypothesis-profile=default"]
        ended = subprocess.run(
            [*command, "-p", "no:cacheprovider", *endless, *tests],
            cwd=HERE.parent,
            env={**os.environ, **given},
            stdout=subprocess.PIPE,
            text=True,
        )
        if ended.returncode != 0:
            print(ended.stdout, file=sys.stderr)
        tried = sum(int(n) for n in re.findall(r"(\d+) (?:files|calls)", ended.stdout))
        failed = int(ended.returncode != 0)
        Table("trials-fuzz", "target").add(
            target=name, seconds=options.seconds, tried=tried, failed=failed
        )


if __name__ == "__main__":
    main()
