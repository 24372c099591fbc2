"""Find measured numbers typed into a page instead of filled in from benches/results.

A measured number is a decimal, a power of ten, a percentage, or a number with a unit. Code,
formulas, links, dates, versions, and references to equations and tables of a paper are not. A
comparison of speed, size or accuracy in number words ("twice as fast", "a tenth of the time") is a
measured number too.
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

FACTOR = (
    r"(?:(?:two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|fifty|several|many"
    r"|(?:a|one) (?:hundred|thousand)|hundreds of|thousands of)\s+times|twice|half"
    r"|(?:a|one|two|three)\s+(?:half|third|quarter|fifth|tenth|hundredth|thousandth)s?)"
)
QUANTITY = r"(?:time|seconds|memory|speed|size|error|passes|epochs)"
MORE = "faster|slower|quicker|larger|smaller|longer|shorter|less|more|fewer|higher|lower"
EQUAL = rf"fast|slow|quick|long|large|small|big|accurate|precise|(?:much|many)\s+{QUANTITY}"
COMPARISON = re.compile(
    rf"\b{FACTOR}\s+(?:(?:{MORE})\b|as\s+(?:{EQUAL})\b|(?:of\s+)?the\s+{QUANTITY}\b)"
    rf"|\borders?\s+of\s+magnitude\s+(?:{MORE})\b",
    re.I,
)


def blank(match: re.Match[str]) -> str:
    """Replace ignored text by the same number of line breaks."""
    return "\n" * match[0].count("\n") or " "


def typed_numbers(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each measured number that is typed into a page."""
    if name.startswith(UNCHECKED):
        return
    for ignored in IGNORED:
        text = ignored.sub(blank, text)
    for pattern in (NUMBER, COMPARISON):
        for match in pattern.finditer(text):
            yield text[: match.start()].count("\n") + 1, " ".join(match[0].split())
