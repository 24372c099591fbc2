"""Write docs/parameters.md: every parameter, its defaults, and the estimators that have it.

Usage: python scripts/parameters.py [--check]

With --check nothing is written, and the exit status is 1 if the page is not up to date. A parameter
with several defaults needs a reason for each exception in REASONS; a missing or an unused reason is
an error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dualgap
from dualgap.recommend import ConditionalGradient, Interactions, Variational

PAGE = Path(__file__).parents[1] / "docs" / "parameters.md"

# Reasons for defaults that differ from the default of most estimators.
REASONS = {
    ("C", "None"): "Depends on the loss and the features; see the class.",
    ("alpha", "3.0"): "Tuned on ratings: most users and items have few of them.",
    ("cv_tol", "None"): "The `tol` of the estimator whose C is chosen.",
    ("loss", "'hamming'"): "The loss of a sequence of labels.",
    ("loss", "'logistic'"): "A loss of outputs that are not linear in the features.",
    ("max_iter", "15"): "A sweep improves the vectors of all users and items.",
    ("max_iter", "40"): "A sweep fits all users and items exactly.",
    ("n_components", "None"): "Grows with the number of ratings, users or items.",
    ("penalty", "'l2'"): "Its dual is that of the other models; there are no groups of weights.",
    ("solver", "'block-descent'"): "Subproblems of a consensus fit have two solvers only.",
    ("tol", "0.01"): "An epoch decodes all examples, which costs more than an epoch over rows.",
    ("tol", "0.0001"): "The radius is chosen among fits, whose differences are small.",
    ("tol", "None"): "Depends on the loss of a tagger; bounds the gain of a sweep of ratings.",
}

HEAD = """\
# Parameters

Every parameter of every estimator, in the order of all signatures, with its default. A parameter
has one meaning and one default; the last column explains each exception.

| parameter | default | estimators | reason for the exception |
|---|---|---|---|
"""


def classes() -> Iterator[Any]:
    """Yield the estimator classes, and the classes of settings for the recommender."""
    for name in dualgap.__all__:
        each = getattr(dualgap, name)
        if inspect.isclass(each) and hasattr(each, "get_params"):
            yield each
    yield from (Variational, ConditionalGradient, Interactions)


def table() -> dict[str, dict[str, list[str]]]:
    """Map each parameter and each of its defaults to the classes that have them."""
    found: dict[str, dict[str, list[str]]] = {}
    for each in sorted(classes(), key=lambda each: str(each.__name__)):
        for parameter in inspect.signature(each).parameters.values():
            default = parameter.default
            text = "required" if default is inspect.Parameter.empty else repr(default)
            found.setdefault(parameter.name, {}).setdefault(text, []).append(each.__name__)
    return found


def order(names: Any) -> list[str]:
    """Sort names by `ORDER`; names that it does not list come last."""
    from dualgap._estimator.signature import ORDER

    return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


def page() -> str:
    """Return the text of the page; raise a ValueError for missing or unused reasons."""
    rows, unused = [], set(REASONS)
    found = table()
    for name in order(found):
        defaults = sorted(found[name].items(), key=lambda item: -len(item[1]))
        for place, (default, owners) in enumerate(defaults):
            reason = REASONS.get((name, default), "") if place else ""
            unused.discard((name, default))
            if place and not reason:
                msg = f"{name}={default} of {', '.join(owners)}: REASONS has no reason"
                raise ValueError(msg)
            rows.append(f"| `{name}` | `{default}` | {', '.join(owners)} | {reason} |")
    if unused:
        msg = f"REASONS has reasons for defaults that no class has: {sorted(unused)}"
        raise ValueError(msg)
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    """Write or check the page."""
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text("utf-8") != text:
            print("docs/parameters.md is not up to date: run python scripts/parameters.py")
            return 1
        return 0
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
