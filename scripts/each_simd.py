"""Run a command once for each instruction set of this processor, with DUALGAP_SIMD naming it.

Usage: python scripts/each_simd.py [--others | --vectors | --only NAMES] COMMAND ...

--others leaves out the instruction set that a process uses as things are, --vectors leaves out
"scalar", and --only takes the names given ("avx2 avx512"). The exit status is that of the first
run that fails; the other runs follow all the same. With --others, which repeats what has run once,
DUALGAP_REPEATED=1 tells tests that they may draw fewer random trials.
"""

from __future__ import annotations

import os
import subprocess
import sys

VARIABLE = "DUALGAP_SIMD"
# Values of the variable. The name that a process reports for "auto" can be one of the others.
VALUES = ("scalar", "avx2", "avx512", "auto")
# Loads the extension alone: the package would import scikit-learn.
SHOW = """
from importlib import machinery, util
folder = util.find_spec("dualgap").submodule_search_locations
spec = machinery.PathFinder.find_spec("_core", folder)
core = util.module_from_spec(spec)
spec.loader.exec_module(core)
print(core.SIMD)
"""
REFUSED = "this machine does not have"


def instruction_set(value: str | None) -> str | None:
    """Name the instruction set that a value selects; None where the processor lacks it."""
    environment = os.environ if value is None else {**os.environ, VARIABLE: value}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 and REFUSED in done.stderr:
        return None
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout.strip()


def chosen(option: str | None, names: str) -> dict[str, str]:
    """Map the instruction sets to run under to the values that select them."""
    found: dict[str, str] = {}
    for value in VALUES:
        if name := instruction_set(value):
            found.setdefault(name, value)
    if option == "--others":
        found.pop(str(instruction_set(None)))
    elif option == "--vectors":
        found.pop("scalar", None)
    elif option == "--only":
        missing = set(names.split()) - set(found)
        if missing:
            sys.exit(f"error: this processor has {', '.join(found)}, not {', '.join(missing)}")
        found = {name: found[name] for name in names.split()}
    return found


def main() -> int:
    arguments, option, names = sys.argv[1:], None, ""
    if arguments[:1] in (["--others"], ["--vectors"], ["--only"]):
        option = arguments.pop(0)
        names = arguments.pop(0) if option == "--only" else ""
    if not arguments:
        sys.exit(__doc__)
    status = 0
    for name, value in chosen(option, names).items():
        print(f"==> {VARIABLE}={value} ({name})", flush=True)
        environment = {**os.environ, VARIABLE: value}
        if option == "--others":
            environment["DUALGAP_REPEATED"] = "1"
        done = subprocess.run(arguments, env=environment, check=False)
        status = status or done.returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
