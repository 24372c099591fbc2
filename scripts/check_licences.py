"""Check that the licence of every crate we link allows what ours (BSD-3-Clause) promises.

Usage: python scripts/check_licences.py

Reads `cargo metadata` without a network, prints each crate whose licence is not among those that
`deny.toml` allows, and exits with status 1 if there is any. Crates that only tests and builds use
are checked as well.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOWED = set(tomllib.loads((ROOT / "deny.toml").read_text("utf-8"))["licenses"]["allow"])


def allowed(expression: str) -> bool:
    """Whether an SPDX expression of names, AND, OR, WITH and brackets can be met by `ALLOWED`.

    ``MIT/Apache-2.0`` is the old way to write OR. A licence WITH an exception allows more.
    """
    tokens = re.findall(r"[()]|[^\s()/]+|/", expression)
    words = {"AND": "and", "OR": "or", "/": "or", "(": "(", ")": ")"}
    terms: list[str] = []
    skip = False
    for token in tokens:
        if skip or token == "WITH":
            skip = token == "WITH"
        else:
            terms.append(words.get(token, str(token in ALLOWED)))
    # Nothing but True, False, and, or and brackets is left of the expression.
    return bool(terms) and bool(eval(" ".join(terms)))


def main() -> int:
    """Check all crates of the lock file."""
    command = [
        "cargo",
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--offline",
        "--all-features",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    crates = json.loads(done.stdout)["packages"]
    wrong = [crate for crate in crates if not allowed(crate["license"] or "")]
    for crate in wrong:
        print(f"{crate['name']} {crate['version']}: licence {crate['license']!r}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
