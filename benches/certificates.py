"""Random fits over extreme ranges whose certificates are recomputed in rational arithmetic.

python benches/certificates.py [--minutes 3] [--seed 1]

"refused" counts fits that ended with an error that names the remedy, "failed" certificates that did
not hold.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict

import numpy as np
from _record import HERE, Table

sys.path.insert(0, str(HERE.parent / "tests/python/certificates"))

from trials import Trial, check, draw


def group(trial: Trial) -> str:
    """The range of the rows that a trial belongs to."""
    for bound, name in ((1e-30, "up to 1e-30"), (1e-3, "1e-9 to 1e-3"), (1e3, "1 to 1e3")):
        if trial.scale <= bound:
            return name
    return "1e6 and above"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    end = time.monotonic() + 60.0 * options.minutes
    while time.monotonic() < end:
        trial = draw(random)
        try:
            result = check(trial)
        except AssertionError as error:
            print("failed:", error, file=sys.stderr)
            result = "failed"
        solver = trial.solver + (f" ({trial.step})" if trial.step else "")
        counts[solver, group(trial)][result] += 1
    table = Table("certificates", "solver", "rows")
    for (solver, rows), found in sorted(counts.items()):
        names = ("holds", "refused", "failed")
        trials = {name: found[name] for name in names}
        table.add(solver=solver, rows=rows, tried=sum(found.values()), **trials)


if __name__ == "__main__":
    main()
