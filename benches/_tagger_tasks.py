"""Tasks for sequence taggers: texts, letters and generated sentences, with different features.

`TASKS` maps the name of a task to a function and to a score: F1 of chunks ("f1") or the fraction of
correct tokens ("tokens"). The function returns training sentences and either test sentences or, for
the choice of settings, held-out sentences ("held"). Held-out sentences are the last training
sentences of a text, or sentences of another hidden Markov model. The tasks in `GENERATED` need no
files.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from _data import text_of
from sequence import Labels, Sentences
from taggers import Data, letters

Rows = list[list[tuple[str, ...]]]
"""Sentences of tokens; a token has columns, of which the first is a word and the last a label."""


def text(name: str, part: str) -> tuple[Rows, Rows]:
    """Return the training sentences of a text, and its test sentences or the held-out sentences."""
    from dualgap.sequence import read_conll

    files = [io.BytesIO(text_of(name, each)) for each in ("train", "test")]
    train, test = ([[tuple(token) for token in s] for s in read_conll(file)] for file in files)
    return train, test if part == "test" else train[-2000:]


def notebook(rows: Rows) -> Sentences:
    """Return the features of python-crfsuite's notebook (of words, if there is no other column)."""
    return [[_notebook(sentence, t) for t in range(len(sentence))] for sentence in rows]


def _notebook(sentence: list[tuple[str, ...]], t: int) -> list[str]:
    word = sentence[t][0]
    found = ["bias", f"word.lower={word.lower()}", f"word[-3:]={word[-3:]}"]
    found += [f"word[-2:]={word[-2:]}", f"word.isupper={word.isupper()}"]
    found += [f"word.istitle={word.istitle()}", f"word.isdigit={word.isdigit()}"]
    found += [f"{name}={tag}" for name, tag in _tags(sentence[t])]
    for offset, edge in ((-1, "BOS"), (1, "EOS")):
        if not 0 <= t + offset < len(sentence):
            found.append(edge)
            continue
        word, start = sentence[t + offset][0], f"{offset:+d}:"
        found += [f"{start}word.lower={word.lower()}", f"{start}word.istitle={word.istitle()}"]
        found.append(f"{start}word.isupper={word.isupper()}")
        found += [f"{start}{name}={tag}" for name, tag in _tags(sentence[t + offset])]
    return found


def _tags(token: tuple[str, ...]) -> list[tuple[str, str]]:
    return [] if len(token) < 3 else [("postag", token[1]), ("postag[:2]", token[1][:2])]


def words(rows: Rows) -> Sentences:
    """Return the features of `features="words"`."""
    from dualgap.sequence import word_features

    return [word_features([token[:-1] for token in sentence]) for sentence in rows]


def column(at: int) -> Callable[[Rows], Sentences]:
    """Return a function that gives tokens one column as their only feature."""
    return lambda rows: [[[f"w={token[at]}"] for token in sentence] for sentence in rows]


def labels(rows: Rows) -> Labels:
    return [[token[-1] for token in sentence] for sentence in rows]


def nouns(rows: Rows) -> Labels:
    """Return the labels of noun chunks only."""
    return [[one if one.endswith("-NP") else "O" for one in own] for own in labels(rows)]


def spans(rows: Rows) -> Labels:
    """Return labels of names without the kind of name."""
    return [["O" if one == "O" else f"{one[0]}-NAME" for one in own] for own in labels(rows)]


def from_text(
    name: str, features: Any, n: int, of: Callable[[Rows], Labels] = labels
) -> Callable[[str], Data]:
    """Return a task with the first `n` training sentences and 1,000 test sentences of a text."""

    def data(part: str) -> Data:
        train, test = text(name, part)
        train, test = train[:n], test[:1000]
        return features(train), of(train), features(test), of(test)

    return data


def some_letters(part: str) -> Data:
    """Return the letters of a third of the training words and of 600 other words."""
    X, y, test, right = letters()
    if part == "held":
        test, right = X[1::9], y[1::9]
    return X[::3], y[::3], test[:600], right[:600]


def characters(line: str) -> list[list[str]]:
    """Return features of each character: its neighbours and itself, alone, in pairs and triples."""
    padded = f"___{line}___"
    found = []
    for i in range(3, len(line) + 3):
        own = [f"{d}={padded[i + d]}" for d in range(-3, 4)]
        own += [f"{d}:{d + 1}={padded[i + d : i + d + 2]}" for d in range(-2, 2)]
        found.append(own + [f"{d}:{d + 2}={padded[i + d : i + d + 3]}" for d in range(-2, 1)])
    return found


def segmentation(part: str) -> Data:
    """Return sentences without blanks, whose words are the chunks to find."""

    def read(rows: Rows) -> tuple[Sentences, Labels]:
        found = [[token[0] for token in sentence[:20]] for sentence in rows]
        labels = [
            [label for word in own for label in ["B-W"] + ["I-W"] * (len(word) - 1)]
            for own in found
        ]
        return [characters("".join(own)) for own in found], labels

    train, test = text("ud_ewt_pos", part)
    return *read(train[:800]), *read(test[:400])


def truecase(part: str) -> Data:
    """Return sentences in lower case; the labels say which characters were upper case."""

    def read(rows: Rows) -> tuple[Sentences, Labels]:
        lines = [" ".join(token[0] for token in sentence)[:150] for sentence in rows]
        lines = [line for line in lines if len(line.lower()) == len(line)]
        X = [
            [
                [f"{d}={padded[i + d]}" for d in range(-2, 3)]
                for padded in [f"__{line.lower()}__"]
                for i in range(2, len(line) + 2)
            ]
            for line in lines
        ]
        return X, [["U" if one.isupper() else "L" for one in line] for line in lines]

    train, test = text("ud_ewt_pos", part)
    return *read(train[:1500]), *read(test[:800])


def ends(part: str) -> Data:
    """Return runs of six sentences in lower case; the labels mark the last words of sentences."""

    def read(rows: Rows) -> tuple[Sentences, Labels]:
        X: Sentences = []
        y: Labels = []
        for start in range(0, len(rows) - 5, 6):
            run = rows[start : start + 6]
            line = ["_", *(token[0].lower() for sentence in run for token in sentence), "_"]
            near = zip(line, line[1:-1], line[2:], strict=False)
            X.append([[f"p={p}", f"w={w}", f"n={n}"] for p, w, n in near])
            y.append([one for s in run for one in ["N"] * (len(s) - 1) + ["E"]])
        return X, y

    train, test = text("ud_ewt_pos", part)
    return *read(train[:6000]), *read(test)


def hidden_markov(
    seed: int,
    n_labels: int,
    n_words: int,
    sizes: tuple[int, int, int],
    *,
    n_features: int = 1,
    sharp: float = 0.02,
    noise: float = 0.0,
) -> Callable[[str], Data]:
    """Return a task of a hidden Markov model.

    `sizes` are the numbers of training and test sentences and their mean length; `sharp` is the
    parameter of the Dirichlet distribution of each label's words; `noise` is the fraction of
    training labels that are drawn uniformly.
    """

    def data(part: str) -> Data:
        rng = np.random.default_rng([seed, part == "test"])
        moves = rng.dirichlet(np.full(n_labels, 0.3), n_labels).cumsum(1)
        emissions = rng.dirichlet(np.full(n_words, sharp), (n_features, n_labels)).cumsum(2)

        def draw(sums: Any) -> int:
            return min(len(sums) - 1, int(np.searchsorted(sums, rng.random())))

        def some(n: int) -> tuple[Sentences, Labels]:
            X: Sentences = []
            y: Labels = []
            for _ in range(n):
                states = [int(rng.integers(n_labels))]
                states += [0] * max(0, int(rng.poisson(sizes[2])) - 1)
                for t in range(1, len(states)):
                    states[t] = draw(moves[states[t - 1]])
                seen = [[f"{k}:{draw(own[s])}" for k, own in enumerate(emissions)] for s in states]
                X.append(seen)
                y.append([str(state) for state in states])
            return X, y

        (X, y), (test, right) = some(sizes[0]), some(sizes[1])
        noisy = [
            [str(rng.integers(n_labels)) if rng.random() < noise else one for one in own]
            for own in y
        ]
        return X, noisy, test, right

    return data


Task = tuple[Callable[[str], Data], str]
NAMED: dict[str, Task] = {
    "chunks": (from_text("conll2000", notebook, 1000), "f1"),
    "noun chunks": (from_text("conll2000", words, 1000, nouns), "f1"),
    "words to chunks": (from_text("conll2000", column(0), 4000), "f1"),
    "tags to chunks": (from_text("conll2000", column(1), 3000), "f1"),
    "names": (from_text("conll2002_es", notebook, 1000), "f1"),
    "names, 400 sentences": (from_text("conll2002_es", notebook, 400), "f1"),
    "name spans": (from_text("conll2002_es", words, 800, spans), "f1"),
    "parts of speech": (from_text("ud_ewt_pos", notebook, 2000), "tokens"),
    "parts of speech, words": (from_text("ud_ewt_pos", words, 1500), "tokens"),
    "words to parts of speech": (from_text("ud_ewt_pos", column(0), 5000), "tokens"),
    "sentence ends": (ends, "tokens"),
    "letters": (some_letters, "tokens"),
    "segmentation": (segmentation, "f1"),
    "truecase": (truecase, "tokens"),
}
GENERATED: dict[str, Task] = {
    "HMM, 10 labels": (hidden_markov(101, 10, 2000, (1000, 1000, 20)), "tokens"),
    "HMM, 50 labels": (hidden_markov(102, 50, 3000, (1500, 500, 20)), "tokens"),
    "HMM, short": (hidden_markov(103, 4, 500, (5000, 2000, 4), n_features=2, sharp=0.1), "tokens"),
    "HMM, long": (hidden_markov(104, 6, 500, (200, 50, 300), n_features=3, sharp=0.2), "tokens"),
    "HMM, 80 features": (
        hidden_markov(105, 5, 20, (200, 500, 15), n_features=80, sharp=30.0),
        "tokens",
    ),
    "label noise": (
        hidden_markov(106, 8, 300, (2000, 1000, 12), n_features=5, sharp=0.2, noise=0.15),
        "tokens",
    ),
}
TASKS: dict[str, Task] = GENERATED | NAMED
