"""Draw the chart of README.md and of the start page, which compares fit times of programs.

`scripts/results.py` uses it to draw docs/pictures/speed.svg from the files in benches/results.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

# Each chart has a title and a list of programs. A program has a name, the expression and the format
# of its seconds, and the expression and the name of its quality measure.
NEWS = "liblinear[data=news20;C=1;level=0.0001;program={}].seconds"
SEARCH = "cross-validation[data=satimage;program={}].cpu"
NAMES = "taggers[task=names;system={}].{}"
RATINGS = "recommender-myfm[method={};fold=mean].{}"
CHARTS = [
    (
        "Multi-class SVM, 20 Newsgroups, objective within 0.01 % of the optimum",
        [
            ("dualgap", NEWS.format("float64-1"), ".2f", "", ""),
            ("LIBLINEAR", NEWS.format("liblinear"), ".2f", "", ""),
        ],
    ),
    (
        "Choice of C from 13 values, five folds, satimage, processor time",
        [
            ("dualgap", SEARCH.format("dualgap"), ".1f", "", ""),
            ("GridSearchCV, LinearSVC", SEARCH.format("liblinear"), ".0f", "", ""),
        ],
    ),
    (
        "Conditional random field, Spanish names of CoNLL-2002",
        [
            (
                "dualgap",
                NAMES.format("dualgap, logistic", "seconds"),
                ".1f",
                NAMES.format("dualgap, logistic", "score"),
                "F1",
            ),
            (
                "CRFsuite",
                NAMES.format("python-crfsuite, lbfgs", "seconds"),
                ".1f",
                NAMES.format("python-crfsuite, lbfgs", "score"),
                "F1",
            ),
        ],
    ),
    (
        "Ratings of MovieLens 100k",
        [
            (
                "dualgap",
                RATINGS.format("ours, ids", "seconds"),
                ".1f",
                RATINGS.format("ours, ids", "rmse"),
                "RMSE",
            ),
            (
                "myFM",
                RATINGS.format("myFM, ids", "seconds"),
                ".1f",
                RATINGS.format("myFM, ids", "rmse"),
                "RMSE",
            ),
        ],
    ),
]
WIDTH, LEFT, BAR, LINE, HEAD, GAP = 760, 180, 400, 20, 24, 14
# Colours that are readable on white and on black.
OURS, OTHER, TEXT = "#e07b27", "#8795a8", "#7b828c"


def speed_chart(value: Callable[[str, str], str]) -> str:
    """Return the chart as an SVG; `value` evaluates and formats an expression of figures."""
    lines, y = [], 0
    for title, programs in CHARTS:
        lines.append(f'<text x="0" y="{y + 14}" font-weight="600">{escape(title)}</text>')
        y += HEAD
        longest = max(float(value(seconds, ".6g")) for _, seconds, *_ in programs)
        for name, seconds, spec, quality, measure in programs:
            length = max(2.0, BAR * float(value(seconds, ".6g")) / longest)
            label = f"{value(seconds, spec)} s"
            if quality:
                label += f", {measure} {value(quality, '.3f')}"
            ours = name == "dualgap"
            weight = ' font-weight="600"' if ours else ""
            colour = OURS if ours else OTHER
            lines += [
                f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end"{weight}>'
                f"{escape(name)}</text>",
                f'<rect x="{LEFT}" y="{y + 3}" width="{length:.1f}" height="14" rx="2" '
                f'fill="{colour}"/>',
                f'<text x="{LEFT + length + 8:.1f}" y="{y + 14}"{weight}>{escape(label)}</text>',
            ]
            y += LINE
        y += GAP
    style = f'font-family="system-ui, sans-serif" font-size="13" fill="{TEXT}"'
    size = f'viewBox="0 0 {WIDTH} {y - GAP + 4}" width="{WIDTH}"'
    body = "\n".join(lines)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n'
