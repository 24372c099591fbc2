"""Generate the literals of python/dualgap/_choices.py from the core's registries.

Usage: python scripts/choices.py [--check]

Type checkers cannot read the extension, so `make fmt` copies its registered names to that file.
With --check nothing is written, and the exit status is 1 if the file is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from dualgap import _core

FILE = Path(__file__).parents[1] / "python/dualgap/_choices.py"
REGISTRIES: dict[str, Iterable[str]] = {
    "Step": _core.STEPS,
    "Sampling": _core.SAMPLINGS,
    "FrankWolfeMethod": _core.FRANK_WOLFE_CHOICES["method"],
    "LineSearch": _core.FRANK_WOLFE_CHOICES["line_search"],
    "LinearSolver": _core.SOLVERS,
    "LogisticSolver": _core.LOGISTIC_SOLVERS,
    "StructuredSolver": _core.STRUCTURED_SOLVERS,
    "LossName": [name for name, takes in _core.LOSSES.items() if not takes],
    "ClassifierLoss": [name for name, of in _core.OUTPUT_LOSSES.items() if of != "values"],
    "Penalty": _core.PENALTIES,
}


def derived(text: str) -> str:
    """Return the text of the file with all registered names in its literals."""
    for literal, names in REGISTRIES.items():
        quoted = [f'"{name}"' for name in names]
        head = f"{literal}: TypeAlias = Literal["
        line = f"{head}{', '.join(quoted)}]"
        if len(line) > 100:
            line = f"{head}\n    {', '.join(quoted)}\n]"
        if max(map(len, line.splitlines())) > 100:
            line = "\n    ".join([head, *(f"{name}," for name in quoted)]) + "\n]"
        text, count = re.subn(rf"^{re.escape(head)}[^\]]*\]", line, text, flags=re.M)
        assert count == 1, literal
    return text


def main() -> int:
    text = FILE.read_text("utf-8")
    if derived(text) == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{FILE.name}: the literals differ from the registries; run `make fmt`")
        return 1
    FILE.write_text(derived(text), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
