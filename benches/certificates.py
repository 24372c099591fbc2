"""Certificates of random fits over extreme ranges, verified in exact arithmetic.

python benches/certificates.py [--minutes 3] [--seed 1] [KIND ...]

Without a KIND, linear fits run for the given number of minutes, then all other kinds together for
the same time. The column `refused` counts fits that raised an error that names a remedy; `failed`
counts wrong certificates.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
from _record import HERE, Table

sys.path.insert(0, str(HERE.parent / "tests/python/certificates"))

from claims import Claims, check_claims
from kinds import KINDS
from trials import Trial, check, draw

Random = np.random.Generator
LINEAR = "linear"
NAMES = ("holds", "refused", "failed")  # words: allow


def group(trial: Trial) -> str:
    """Return the name of the range from which a trial's rows are drawn."""
    for bound, name in ((1e-30, "up to 1e-30"), (1e-3, "1e-9 to 1e-3"), (1e3, "1 to 1e3")):
        if trial.scale <= bound:
            return name
    return "1e6 and above"


def linear(table: Table, random: Random, minutes: float) -> None:
    """Verify the objective and the dual point of `MulticlassSVC` with every solver."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    end = time.monotonic() + 60.0 * minutes
    while time.monotonic() < end:
        trial = draw(random)
        try:
            result = check(trial)
        except AssertionError as error:
            print("failed:", error, file=sys.stderr)
            result = "failed"
        solver = trial.solver + (f" ({trial.step})" if trial.step else "")
        counts[solver, group(trial)][result] += 1
    for (solver, rows), found in sorted(counts.items()):
        trials = {name: found[name] for name in NAMES}
        table.add(solver=solver, rows=rows, tried=sum(found.values()), **trials)


def other(
    table: Table, name: str, kind: Callable[[Random], Claims], random: Random, minutes: float
) -> None:
    """Fit random problems, each with several solvers."""
    found: Counter[str] = Counter()
    end = time.monotonic() + 60.0 * minutes
    while time.monotonic() < end:
        counts, wrong = check_claims(kind(random))
        found += counts
        for line in wrong:
            print("failed:", line, file=sys.stderr)
    trials = {each: found[each] for each in NAMES}
    table.add(solver=name, rows="all", tried=sum(found.values()), **trials)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("kinds", nargs="*", default=[LINEAR, *KINDS], metavar="KIND")
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    table = Table("certificates", "solver", "rows")
    others = [name for name in options.kinds if name != LINEAR]
    if LINEAR in options.kinds:
        linear(table, random, options.minutes)
    for name in others:
        other(table, name, KINDS[name], random, options.minutes / len(others))


if __name__ == "__main__":
    main()
