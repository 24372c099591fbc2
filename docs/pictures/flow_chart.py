"""Draw the flow chart of docs/choosing.md: from the kind of output to an estimator.

Usage: python docs/pictures/flow_chart.py [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

QUESTIONS = [
    ("Ratings or clicks\nof users?", "OrdinalRecommender\nno bound by default", "C3"),
    ("Numbers?", "PolynomialNetworkRegressor\none-hot rows: FactorizationMachineRegressor", "C2"),
    ("One of several classes?", "", ""),
    ("A label for each token\nof a sentence?", "SequenceTagger", "C0"),
    ("A matching of two sets?", "StructuredSVM(MatchingModel())", "C0"),
    ("A set of labels?", "StructuredSVM(MultilabelModel())", "C0"),
    (
        "Any output with\na decoder",
        "StructuredSVM(your model)\nexact if the decoder is",
        "C1",
    ),
]
CLASSES = [
    (
        "Do products of\nfeatures matter?",
        "PolynomialNetworkClassifier\nFactorizationMachineClassifier",
        "C2",
    ),
    ("More rows than fit\non one machine?", "ConsensusSVC", "C0"),
    ("Class probabilities?", "LogisticRegression\nto choose C: LogisticRegressionCV", "C0"),
    ("Otherwise", "MulticlassSVC\nto choose C: MulticlassSVCCV", "C0"),
]
LEGEND = [
    ("C0", "the global optimum"),
    ("C2", "the optimum over all bases within the radius"),
    ("C1", "the global optimum if the decoder is exact"),
    ("C3", "no certificate by default"),
]


def box(axis: Any, x: float, y: float, text: str, colour: str = "") -> None:
    """Draw a question, or an estimator in the colour of its certificate."""
    style = {"boxstyle": "round,pad=0.5", "facecolor": colour or "white", "edgecolor": "grey"}
    if colour:
        style |= {"alpha": 0.25, "edgecolor": colour}
    axis.text(x, y, text, ha="center", va="center", fontsize=10, bbox=style)


def arrow(axis: Any, start: tuple[float, float], end: tuple[float, float], text: str = "") -> None:
    """Draw an arrow with a label."""
    line = {"arrowstyle": "->", "color": "grey"}
    axis.annotate("", xy=end, xytext=start, arrowprops=line)
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    axis.annotate(text, middle, textcoords="offset points", xytext=(2, 4), color="grey")


def main() -> None:
    """Draw the chart."""
    mpl.rcParams["svg.hashsalt"] = "dualgap"
    figure, axis = plt.subplots(figsize=(11, 9.4), layout="constrained")
    axis.set(xlim=(-1.2, 8.4), ylim=(-12.4, 0.6))
    axis.axis("off")
    rows = [0.0, -1.4, -2.8, -7.6, -8.8, -10.0, -11.2]
    for number, ((question, answer, colour), y) in enumerate(zip(QUESTIONS, rows, strict=True)):
        box(axis, 0, y, question)
        if answer:
            box(axis, 4.5, y, answer, colour)
            arrow(axis, (1.1, y), (2.75, y), "yes" if number < 6 else "")
        if number < 6:
            arrow(axis, (0, y - 0.42), (0, rows[number + 1] + 0.5), "no")
    for number, (question, answer, colour) in enumerate(CLASSES):
        y = -2.8 - 1.2 * number
        box(axis, 3.4, y, question)
        box(axis, 6.9, y, answer, colour)
        arrow(axis, (4.4, y), (5.35, y), "yes" if number < 3 else "")
        if number < 3:
            arrow(axis, (3.4, y - 0.42), (3.4, y - 0.78), "no")
    arrow(axis, (1.1, -2.8), (2.45, -2.8), "yes")
    for number, (colour, text) in enumerate(LEGEND):
        axis.text(6.4, -8.8 - 0.55 * number, "   ", bbox={"facecolor": colour, "alpha": 0.25})
        axis.text(6.75, -8.8 - 0.55 * number, text, fontsize=9)
    axis.text(6.4, -8.2, "The certificate bounds the distance from", fontsize=9)
    figure.savefig(
        sys.argv[1] if sys.argv[1:] else Path(__file__).with_suffix(".svg"), metadata={"Date": None}
    )


if __name__ == "__main__":
    main()
