"""Check that the licence of every linked crate is compatible with ours (BSD-3-Clause).

Usage: python scripts/check_licences.py

Reads `cargo metadata` offline, prints each crate whose licence `deny.toml` does not allow, and
exits with status 1 if there is such a crate. Crates that only tests and builds use are also
checked.
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
    """Return whether `ALLOWED` satisfies an SPDX expression of names, AND, OR, WITH and brackets.

    ``MIT/Apache-2.0`` is an old notation for OR. WITH adds permissions, so it can be ignored.
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
    # `eval` is safe: the expression contains only True, False, and, or, and brackets.
    return bool(terms) and bool(eval(" ".join(terms)))


def main() -> int:
    """Check all crates in the lock file."""
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
