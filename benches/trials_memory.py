"""Run fits under memory limits, and record the numbers of trials and of crashes.

    python benches/trials_memory.py [PART OF A NAME ...]

Each fit runs in separate processes with decreasing memory limits. RLIMIT_AS sets the limits, so
allocations fail before the system runs out of memory. The first limits are powers of two. Further
limits lie between the largest limit that failed and the smallest that sufficed; under them,
allocations fail during a fit. A trial fails unless the fit succeeds or raises MemoryError or
RuntimeError (a thread that cannot start).
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from _record import Table
from _trial_fits import SHORT, fits

SPARE = [2**k for k in range(12, 21)]
"""Memory limits in addition to current use, in kilobytes."""

BETWEEN = 15
"""Number of further limits between the last failure and the first success."""

DONE, REFUSED = 0, 1


def limited(fit: Callable[[], Any], kilobytes: int) -> int:
    """Run a fit in a child process that may take `kilobytes` more memory; return its exit code.

    The allowed outcomes are `DONE` and `REFUSED` (an error instead of a model).
    """
    child = os.fork()
    if child == 0:
        code = DONE
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with open("/proc/self/statm", encoding="ascii") as file:
                taken = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (taken + 1024 * kilobytes,) * 2)
            warnings.simplefilter("ignore")
            fit()
        except (MemoryError, RuntimeError, ImportError) as error:
            code = 3 if "a bug in dualgap" in str(error) else REFUSED
        except BaseException:
            code = 2
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return -os.WTERMSIG(status)
    return os.waitstatus_to_exitcode(status)


def ends(fit: Callable[[], Any]) -> dict[int, int]:
    """Return the outcome of the fit under each limit."""
    ended = {spare: limited(fit, spare) for spare in SPARE}
    enough = min((spare for spare in SPARE if ended[spare] == DONE), default=SPARE[-1])
    below = max((spare for spare in SPARE if spare < enough), default=enough // 2)
    for spare in np.linspace(below, enough, BETWEEN + 2)[1:-1].astype(int).tolist():
        ended[spare] = limited(fit, spare)
    return ended


def main() -> None:
    table = Table("trials-memory", "fit")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name, fit in fits(SHORT).items():
        if len(sys.argv) > 1 and not any(part in name for part in sys.argv[1:]):
            continue
        ended = ends(fit)
        wrong = {spare: code for spare, code in ended.items() if code not in (DONE, REFUSED)}
        if wrong:
            shown = {
                f"{spare} KB": signal.Signals(-code).name if code < 0 else f"code {code}"
                for spare, code in sorted(wrong.items())
            }
            print(f"{name}: {shown}", file=sys.stderr)
        refused = sum(code == REFUSED for code in ended.values())
        table.add(fit=name, tried=len(ended), refused=refused, failed=len(wrong))


if __name__ == "__main__":
    main()
