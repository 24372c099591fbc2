"""Print the requirements of the named groups in pyproject.toml, one per line.

Usage: python scripts/requirements.py GROUP ...

A group is "build" (the build system), "package" (the dependencies) or the name of an extra.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(groups: list[str]) -> Iterator[str]:
    """Yield the requirements of groups, expanding references to the package's own extras."""
    settings = tomllib.loads(PROJECT.read_text("utf-8"))
    project = settings["project"]
    known = {
        "build": settings["build-system"]["requires"],
        "package": project["dependencies"],
        **project["optional-dependencies"],
    }
    for group in groups:
        if group not in known:
            sys.exit(f"error: unknown group {group!r}; use one of {', '.join(known)}")
        for requirement in known[group]:
            own = re.fullmatch(rf"{project['name']}\[(.*)\]", requirement)
            if own is None:
                yield requirement
            else:
                yield from requirements([extra.strip() for extra in own[1].split(",")])


if __name__ == "__main__":
    print(*requirements(sys.argv[1:]), sep="\n")
