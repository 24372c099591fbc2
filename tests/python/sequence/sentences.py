"""Generated sentences with chunks for the tests of taggers, and all their possible labels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dualgap.sequence import SequenceTagger

WORDS = {"D": ["the", "a", "this", "that"], "J": ["big", "old", "red", "new"]}
WORDS |= {"N": ["cat", "dog", "tree", "house", "car"], "V": ["sees", "has", "eats"]}
NEXT = {"^": "DNV", "D": "JN", "J": "JN", "N": "VDN", "V": "DJN"}


def sentences(n: int, seed: int = 0, noise: float = 0.1) -> tuple[list[Any], list[list[str]]]:
    """Generate sentences of named features, with labels of noun chunks."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        kinds, before = [], "^"
        for _ in range(int(rng.integers(1, 9))):
            before = str(rng.choice(list(NEXT[before])))
            kinds.append(before)
        words = [str(rng.choice(WORDS[kind])) for kind in kinds]
        labels, inside = [], False
        for kind in kinds:
            starts = kind == "D" or (kind in "JN" and not inside)
            labels.append("O" if kind == "V" else "B-NP" if starts else "I-NP")
            inside = kind in "DJ"
        tokens = []
        for t, word in enumerate(words):
            around = [f"w={word}", f"before={words[t - 1] if t else '^'}"]
            tokens.append([f for f in around if rng.random() > noise])
        X.append(tokens)
        y.append(labels)
    return X, y


def score_label_sequences(model: SequenceTagger, x: Any) -> list[tuple[float, list[Any]]]:
    """List all label sequences of a sentence of named features, with their scores."""
    classes, names = model.classes_.tolist(), model.feature_names_ or []
    emission, place = model.emission_.toarray(), {name: i for i, name in enumerate(names)}
    rows = [
        sum((emission[place[f]] for f in token if f in place), np.zeros(len(classes)))
        for token in x
    ]
    transition, ends = np.asarray(model.transition_), np.asarray(model.boundary_)
    labels = list(itertools.product(range(len(classes)), repeat=len(x)))
    each = np.array(labels, dtype=int).reshape(len(labels), len(x))
    scores = np.zeros(len(labels))
    for t, row in enumerate(rows):
        scores += row[each[:, t]]
    for a, b in itertools.pairwise(each.T):
        scores += transition[a, b]
    if rows:
        scores += ends[0, each[:, 0]] + ends[1, each[:, -1]]
    order = np.argsort(-scores, kind="stable")
    return [(float(scores[i]), [classes[k] for k in labels[i]]) for i in order]
