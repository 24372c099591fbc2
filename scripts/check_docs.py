"""Check that every public name has a docstring and is listed in docs/reference.

Usage: python scripts/check_docs.py

A name is public if the `__all__` of a public module lists it. Public modules are dualgap, the
modules and packages directly below it whose names have no leading underscore, and the modules that
the `__all__` of such a package lists. The command line is an exception: it has a separate page.
numpydoc checks the docstrings of public names and of the methods of public classes.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpydoc.validate import validate

import dualgap

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"

# Checks of numpydoc that do not apply: an extended summary, "see also" and an example for every
# name; a type for parameters described "as in" another class; a description of "self"; a summary
# without a verb.
WAIVED = {"ES01", "EX01", "SA01", "PR04", "RT03", "SS05"}
# Checks of the sections on parameters and results. They apply only to functions and estimators:
# records list their attributes, and methods may leave out parameters that `fit` describes.
SECTIONS = {"PR01", "RT01", "YD01"}


def modules() -> Iterator[str]:
    """Yield the names of the public modules."""
    yield "dualgap"
    for found in pkgutil.iter_modules(dualgap.__path__, "dualgap."):
        if not found.name.startswith("dualgap._") and found.name != "dualgap.cli":
            yield found.name
            package = importlib.import_module(found.name)
            listed = (name for name in package.__all__ if inspect.ismodule(getattr(package, name)))
            yield from (f"{found.name}.{name}" for name in listed)


def public() -> dict[str, Any]:
    """Return the public objects by the first name under which each can be imported."""
    names: dict[Any, str] = {}
    objects: dict[str, Any] = {}
    for module in modules():
        for name in importlib.import_module(module).__all__:
            thing = getattr(importlib.import_module(module), name)
            if inspect.ismodule(thing):
                continue
            key = thing if callable(thing) else f"{module}.{name}"
            if key not in names and name != "__version__":
                names[key] = f"{module}.{name}"
                objects[names[key]] = thing
    return objects


def callables(objects: dict[str, Any]) -> Iterator[str]:
    """Yield the names of functions and classes, and of methods defined in this package."""
    for name, thing in objects.items():
        if not callable(thing):
            continue
        yield name
        if not inspect.isclass(thing):
            continue
        for member, _ in inspect.getmembers(thing, inspect.isroutine):
            owner = next(base for base in thing.__mro__ if member in vars(base))
            ours = owner.__module__.startswith("dualgap") and not member.endswith("_request")
            if ours and not member.startswith("_"):
                yield f"{name}.{member}"


def waived(objects: dict[str, Any], name: str) -> set[str]:
    """Return the checks that do not apply to the docstring of this name."""
    thing = objects.get(name)
    model = inspect.isclass(thing) and {"fit", "predict"} <= set(dir(thing))
    return WAIVED if model or inspect.isfunction(thing) else WAIVED | SECTIONS


def shown() -> set[str]:
    """Return the names that the pages of docs/reference list."""
    found: set[str] = set()
    for page in REFERENCE.glob("*.md"):
        module = ""
        for line in page.read_text("utf-8").splitlines():
            if match := re.match(r"\s*\.\. (?:currentmodule|autodata):: (\S+)", line):
                if "autodata" in line:
                    found.add(match[1])
                else:
                    module = match[1]
            elif re.fullmatch(r"   +[\w.]+", line):
                found.add(f"{module}.{line.strip()}")
    return found


def main() -> int:
    objects = public()
    listed = shown()
    wrong = [f"{name} is not in docs/reference" for name in sorted(set(objects) - listed)]
    wrong += [f"{name} in docs/reference is not public" for name in sorted(listed - set(objects))]
    checked = 0
    for name in callables(objects):
        checked += 1
        for code, message in validate(name)["errors"]:
            if code not in waived(objects, name):
                wrong.append(f"{name}: {code} {message}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(objects)} public names, {checked} docstrings: {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
