"""Run a command once per instruction set of this processor, selected by DUALGAP_SIMD.

Usage: python scripts/each_simd.py [--others | --vectors | --only NAMES] COMMAND ...

--others skips the default instruction set, --vectors skips "scalar", and --only runs just the
given names ("avx2 avx512"). The exit status is that of the first run that fails; the remaining runs
still take place. --others repeats tests that have already run, so it sets DUALGAP_REPEATED=1:
pytest then runs fewer cases, and tests draw fewer random trials.
"""

from __future__ import annotations

import os
import subprocess
import sys

VARIABLE = "DUALGAP_SIMD"
# Values of DUALGAP_SIMD. With "auto", a process reports the name of the set that it chose.
VALUES = ("scalar", "avx2", "avx512", "auto")
# Load only the extension, because the package would import scikit-learn.
SHOW = """
from importlib import machinery, util
folder = util.find_spec("dualgap").submodule_search_locations
spec = machinery.PathFinder.find_spec("_core", folder)
core = util.module_from_spec(spec)
spec.loader.exec_module(core)
print(core.SIMD)
"""
REFUSED = "this machine does not support"


def instruction_set(value: str | None) -> str | None:
    """Return the instruction set that a value selects, or None if the processor lacks it."""
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
    """Map each chosen instruction set to the value that selects it."""
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
            sys.exit(
                f"error: this processor does not have {', '.join(missing)}, only {', '.join(found)}"
            )
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
