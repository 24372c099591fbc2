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
    found = []
    for label in itertools.product(range(len(classes)), repeat=len(x)):
        score = sum(row[k] for row, k in zip(rows, label, strict=True))
        score += sum(transition[a, b] for a, b in itertools.pairwise(label))
        if label:
            score += ends[0, label[0]] + ends[1, label[-1]]
        found.append((float(score), [classes[k] for k in label]))
    return sorted(found, key=lambda pair: -pair[0])
