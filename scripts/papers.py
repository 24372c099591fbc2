"""Run the benchmarks that docs/papers.md names, and fill in the figures of the page.

Usage: python scripts/papers.py [--list] [WORD ...]

The commands are in the second column of the tables: `script.py argument` from benches/, and
`cargo bench --bench name`. If further arguments follow in backquotes, the same script also runs
with each of these arguments. If WORDs are given, only commands that contain one of them run. With
--list, the commands are listed and not run. Commands that fail are reported at the end, and the
exit status is then 1.

Data sets are in the folder DUALGAP_DATA. A small generated set replaces each missing data set.
Results on generated sets are not written to benches/results (see benches/_data.py).
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = re.compile(r"`([^`]+)`")
BENCHMARK = re.compile(r"([a-z_]+\.py)((?: [\w-]+)*)|cargo bench --bench \w+")
ARGUMENT = re.compile(r"[a-z-]+")


def commands(page: str) -> list[str]:
    """Return the commands of a page, each once.

    The commands of cargo come first, then criterion.py, which reads the times that they leave
    behind, then all others in the order of the page.
    """
    found: dict[str, None] = {}
    for line in page.splitlines():
        cells = line.split(" | ")
        if not line.startswith("| ") or len(cells) < 3:
            continue
        script = None
        for code in CODE.findall(cells[1]):
            match = BENCHMARK.fullmatch(code)
            if match is not None and (match[1] is None or (ROOT / "benches" / match[1]).exists()):
                script = match[1]
                found[code] = None
            elif script is not None and ARGUMENT.fullmatch(code):
                found[f"{script} {code}"] = None
    ranks = {"cargo": 0, "criterion.py": 1}
    return sorted(found, key=lambda command: ranks.get(command.split()[0], 2))


def runnable(command: str) -> list[str]:
    """Return the arguments that run a command, beginning with the program."""
    words = command.split()
    if words[0] == "cargo":
        return words
    return [sys.executable, str(ROOT / "benches" / words[0]), *words[1:]]


def main() -> int:
    """List or run the commands."""
    words = [word for word in sys.argv[1:] if word != "--list"]
    page = (ROOT / "docs/papers.md").read_text("utf-8")
    chosen = [c for c in commands(page) if not words or any(word in c for word in words)]
    if "--list" in sys.argv:
        print(*chosen, sep="\n")
        return 0
    failed = []
    for command in chosen:
        print(f"==> {command}", flush=True)
        start = time.monotonic()
        if subprocess.run(runnable(command), cwd=ROOT).returncode != 0:
            failed.append(command)
        print(f"    {time.monotonic() - start:.0f} s", flush=True)
    subprocess.run([sys.executable, str(ROOT / "scripts/results.py")], check=True)
    if failed:
        print("failed:", *failed, sep="\n  ")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
