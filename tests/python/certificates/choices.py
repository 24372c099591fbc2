"""Exact objectives of structured models with few labels, computed by listing all labels.

A label is represented by its loss and its joint features: a dictionary of non-zero entries in the
order of `coef_`. All arithmetic is rational, except for logarithms of sums of exponentials, which
are computed to 60 digits and come with error bounds.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np

Sparse = dict[int, Fraction]
Bounds = tuple[Fraction, Fraction]

DIGITS = decimal.Context(prec=60, Emin=-(10**15), Emax=10**15, traps=[])
RELATIVE_ERROR = Fraction(1, 10**40)
"""Upper bound on the relative error of computations with 60 digits."""


@dataclass(frozen=True)
class Example:
    """An example: its true label, all other labels, and the weight of the example."""

    truth: Sparse
    labels: Sequence[tuple[Sparse, Fraction]]
    weight: Fraction = Fraction(1)


def dot(features: Sparse, weights: Sequence[Fraction]) -> Fraction:
    """Return an inner product."""
    return sum((value * weights[at] for at, value in features.items()), Fraction(0))


def add_features(*parts: Iterable[tuple[int, Fraction]]) -> Sparse:
    """Add two feature vectors."""
    found: Sparse = {}
    for part in parts:
        for at, value in part:
            found[at] = found.get(at, Fraction(0)) + value
    return found


def exact(numbers: Any) -> list[Fraction]:
    """Return floating-point numbers as exact fractions."""
    return [Fraction(float(number)) for number in np.ravel(numbers)]


def regularizer(weights: Sequence[Fraction], C: float, total: Fraction) -> Fraction:
    """Return the squared norm of the weights, times half of lambda."""
    square = sum((w * w for w in weights), Fraction(0))
    return square / (2 * Fraction(C) * total)


def hinge(examples: Sequence[Example], weights: Sequence[Fraction]) -> Fraction:
    """Return the mean structured hinge loss."""
    total = sum((example.weight for example in examples), Fraction(0))
    found = Fraction(0)
    for example in examples:
        right = dot(example.truth, weights)
        margins = [loss + dot(phi, weights) - right for phi, loss in example.labels]
        found += example.weight * max(*margins, Fraction(0), Fraction(0))
    return found / total


def log_loss(examples: Sequence[Example], weights: Sequence[Fraction]) -> Bounds:
    """Return bounds on the mean negative logarithm of the true label's probability."""
    total = sum((example.weight for example in examples), Fraction(0))
    found = Fraction(0)
    for example in examples:
        right = dot(example.truth, weights)
        scores = [dot(phi, weights) - right for phi, _ in example.labels]
        found += example.weight * log_sum(scores)
    return bounds(found / total)


def bounds(value: Fraction) -> Bounds:
    """Return an interval around a value computed with 60 digits."""
    return value - abs(value) * RELATIVE_ERROR, value + abs(value) * RELATIVE_ERROR


def decimal_of(value: Fraction) -> decimal.Decimal:
    """Round to 60 digits."""
    top, bottom = decimal.Decimal(value.numerator), decimal.Decimal(value.denominator)
    return DIGITS.divide(top, bottom)


def log_sum(scores: Sequence[Fraction]) -> Fraction:
    """Return the logarithm of the sum of exponentials to 60 digits."""
    top = max(scores)
    rest = decimal.Decimal(0)
    first = scores.index(top)
    for at, score in enumerate(scores):
        if at != first:
            rest = DIGITS.add(rest, DIGITS.exp(decimal_of(score - top)))
    # Compute ln(1 + rest) without adding 1, which would lose the digits of a small `rest`. A value
    # far below the smallest double is treated as 0.
    if rest < decimal.Decimal("1e-50"):
        beyond = rest if rest > decimal.Decimal("1e-400") else decimal.Decimal(0)
    else:
        long = decimal.Context(prec=120, Emin=-(10**15), Emax=10**15, traps=[])
        beyond = long.ln(long.add(1, rest))
    return top + Fraction(beyond)


def chain_examples(
    X: Sequence[Any],
    Y: Sequence[Any],
    n_states: int,
    *,
    boundaries: bool,
    costs: Sequence[Sequence[float]] | None = None,
    mean: bool = False,
    allowed: Any = None,
    weights: Sequence[float] | None = None,
) -> list[Example]:
    """List all label sequences of each chain, with their features.

    The features belong to the nodes, the transitions, and the first and last labels.
    """
    d = X[0].shape[1]
    first = d * n_states + n_states * n_states

    def features(x: Any, y: Sequence[int]) -> Sparse:
        node = [
            (f * n_states + label, Fraction(float(value)))
            for row, label in zip(x, y, strict=True)
            for f, value in enumerate(row)
        ]
        steps = [(d * n_states + a * n_states + b, Fraction(1)) for a, b in pairwise(y)]
        ends = [(first + y[0], Fraction(1)), (first + n_states + y[-1], Fraction(1))]
        return add_features(node, steps, ends if boundaries and len(y) else [])

    found = []
    for number, (x, y) in enumerate(zip(X, Y, strict=True)):
        right, labels = [int(label) for label in y], []
        cost = exact([1.0] * len(y) if costs is None else costs[number])
        for other in product(range(n_states), repeat=len(right)):
            if allowed is not None and not all(allowed[a][b] for a, b in pairwise(other)):
                continue
            wrong = [c for c, a, b in zip(cost, right, other, strict=True) if a != b]
            loss = sum(wrong, Fraction(0)) / (max(len(right), 1) if mean else 1)
            labels.append((features(x, other), loss))
        weight = Fraction(1) if weights is None else Fraction(float(weights[number]))
        found.append(Example(features(x, right), labels, weight))
    return found


def class_examples(X: Any, y: Any, n_classes: int, costs: Any = None) -> list[Example]:
    """List all classes with their features; a feature's weights for all classes are adjacent."""

    def features(row: Any, label: int) -> Sparse:
        return {f * n_classes + label: Fraction(float(v)) for f, v in enumerate(row)}

    def loss(label: int, other: int) -> Fraction:
        if costs is None:
            return Fraction(int(label != other))
        return Fraction(float(costs[label][other]))

    return [
        Example(
            features(row, int(label)),
            [(features(row, other), loss(int(label), other)) for other in range(n_classes)],
        )
        for row, label in zip(X, y, strict=True)
    ]


def set_examples(X: Any, Y: Any, edges: Sequence[tuple[int, int]], *, mean: bool) -> list[Example]:
    """List all label sets with the features of their labels and of their pairs of labels."""
    d, q = X.shape[1], Y.shape[1]

    def features(row: Any, y: Sequence[int]) -> Sparse:
        own = [
            (f * q + label, Fraction(float(value)))
            for f, value in enumerate(row)
            for label in range(q)
            if y[label]
        ]
        pairs = [(d * q + 4 * e + 2 * y[a] + y[b], Fraction(1)) for e, (a, b) in enumerate(edges)]
        return add_features(own, pairs)

    found = []
    for row, y in zip(X, Y, strict=True):
        right = [int(label) for label in y]
        labels = []
        for other in product(range(2), repeat=q):
            wrong = sum(a != b for a, b in zip(right, other, strict=True))
            labels.append((features(row, other), Fraction(wrong, q if mean else 1)))
        found.append(Example(features(row, right), labels))
    return found


def matching_examples(
    X: Sequence[Any], Y: Sequence[Any], costs: tuple[float, float], links: tuple[int, int]
) -> list[Example]:
    """List all matchings within the limits on links per row and per column."""
    wrong, missed = map(Fraction, costs)
    found = []
    for x, y in zip(X, Y, strict=True):
        right = {(int(a), int(b)) for a, b in y}
        pairs = list(np.ndindex(x.shape[:2]))

        def features(x: Any, chosen: Iterable[tuple[int, int]]) -> Sparse:
            return add_features(*(enumerate(exact(x[pair])) for pair in chosen))

        labels = []
        for chosen in subsets(pairs, links):
            loss = wrong * len(set(chosen) - right) + missed * len(right - set(chosen))
            labels.append((features(x, chosen), loss))
        found.append(Example(features(x, right), labels))
    return found


def subsets(
    pairs: Sequence[tuple[int, int]], links: tuple[int, int]
) -> Iterator[list[tuple[int, int]]]:
    """Yield all sets of pairs within the limits on links."""
    for taken in product((False, True), repeat=len(pairs)):
        chosen = [pair for pair, take in zip(pairs, taken, strict=True) if take]
        rows = np.bincount([a for a, _ in chosen], minlength=1)
        columns = np.bincount([b for _, b in chosen], minlength=1)
        if rows.max() <= links[0] and columns.max() <= links[1]:
            yield chosen
