"""Find measured numbers typed into a page instead of filled in from benches/results.

A measured number is a decimal, a power of ten, a percentage, or a number with a unit. Code,
formulas, links, dates, versions, and references to equations and tables of a paper are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Notes on experiments, and mathematics, which contains the constants of algorithms.
UNCHECKED = ("docs/experiments.md", "docs/mathematics/")
REFERENCES = (
    "Algorithm|Appendix|appendix|Chapter|Corollary|Definition|Equation|equation|Figure|Lemma"
    "|Proposition|Section|section|subroutine|Table|Theorem"
)
LABEL = r"\(?(?:\d+|[A-Z]\b)(?:\.\d+)*\)?"
# Patterns of text that contains no measurements, in the order in which they are removed.
IGNORED = [
    re.compile(r"^(```+|~~~+).*?^\1", re.S | re.M),
    re.compile(r"<!-- (?:table: |figures\n).*?<!-- end -->", re.S),
    re.compile(r"<!--(?:=\s|when).*?<!--/-->", re.S),
    re.compile(r"<!--.*?-->", re.S),
    re.compile(r"(`+).*?\1", re.S),
    re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.S),
    re.compile(r"\]\([^)]*\)"),
    re.compile(rf"(?:{REFERENCES})s?\s+{LABEL}(?:(?:,| and| to)\s+{LABEL})*"),
    re.compile(r"\(\d+(?:\.\d+)?\)(?: to \(\d+(?:\.\d+)?\))?"),
    re.compile(
        r"(?:Rust|Python|NumPy|SciPy|scikit-learn|version|libFM|modern-fm|Clarabel|before|Before|v)"
        r"\s+\d+(?:\.\d+)*"
    ),
    # Settings, as in "C = 0.1".
    re.compile(r"\b\w+ = \d+(?:\.\d+)?(?![\w])(?!\.\d)"),
    re.compile(r"\b\d+\.\d+\.\d+\b|BSD-3-Clause|\bCC[ -]BY[ -]\d\.\d"),
]
UNIT = r"(?:%|percent|[mµn]?s|[KMG]i?B|(?:milli|micro|nano)?seconds?|minutes?|hours?|points?|times)"
NUMBER = re.compile(rf"(?<![\w.§/-])(?:\d*\.\d+(?:e-?\d+)?|\d+e-?\d+|\d[\d,]*\s?{UNIT})(?![\w/])")


def blank(match: re.Match[str]) -> str:
    """Replace ignored text by the same number of line breaks."""
    return "\n" * match[0].count("\n") or " "


def typed_numbers(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each measured number that is typed into a page."""
    if name.startswith(UNCHECKED):
        return
    for ignored in IGNORED:
        text = ignored.sub(blank, text)
    for match in NUMBER.finditer(text):
        yield text[: match.start()].count("\n") + 1, match[0]
