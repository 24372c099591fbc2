"""Run every example of the README, the pages and the tutorials on the installed package.

Usage: python -W error tests/python/stranger.py, outside the clone, in an environment with only the
installed wheel, its extras, skops, onnxruntime and MAPIE. Exits with status 1 if an example fails,
warns, does not print the documented output, or connects to another machine.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
from snippets import ROOT, no_network, page_failures, pages

import dualgap


def tutorial_runs(script: Path) -> list[str]:
    """Run a tutorial; return the failures that are not exceptions."""
    from matplotlib import pyplot

    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(script), run_name="__main__")
        return [] if pyplot.get_fignums() else ["no picture"]
    finally:
        pyplot.close("all")


def run_and_report(name: str, check: Callable[[Path], list[str]], path: Path) -> bool:
    """Run one example and report the result."""
    start = time.perf_counter()
    try:
        with no_network():
            wrong = check(path)
    except Exception:
        wrong = [traceback.format_exc()]
    print(f"{'FAILED' if wrong else 'runs'}  {time.perf_counter() - start:4.1f} s  {name}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return bool(wrong)


def main() -> int:
    """Run all examples."""
    here = Path(dualgap.__file__)
    assert "site-packages" in here.parts, f"not the installed package: {here}"
    mpl.use("agg")
    jobs = [(page_failures, page) for page in pages()]
    jobs += [(tutorial_runs, script) for script in sorted((ROOT / "examples").glob("*.py"))]
    done = [run_and_report(str(path.relative_to(ROOT)), check, path) for check, path in jobs]
    print(f"{len(done)} pages and tutorials, {sum(done)} failed")
    return 1 if any(done) or len(done) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
