"""Choice of C on held-out sentences."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dualgap._validation import example_weights, resolve_seed
from dualgap._validation.copies import listed
from dualgap.sequence._sentences import check_count, read_lengths
from dualgap.sequence.metrics import label_score

# The values of C that are tried, as multiples of the default C.
_MULTIPLES = np.array([0.1, 1 / 3, 1.0, 10 / 3, 10.0])
_HELD_OUT = 0.15
# The search ends after this number of values of C that do not improve on the best score.
_PATIENCE = 2

Data = tuple[Any, Any, Any, Any]
"""Sentences, their labels, the weights of sentences, and the weights of tokens."""


def as_lists(X: Any, y: Any, token_weight: Any, lengths: Any) -> tuple[list[Any], list[Any], Any]:
    """Return lists with one element per sentence, so that sentences can be read repeatedly."""
    if lengths is None:
        weights = None if token_weight is None else listed(token_weight, "token_weight")
        return listed(X, "X"), listed(y, "y"), weights
    ends = read_lengths(lengths, X.shape[0])

    def split(rows: Any) -> list[Any]:
        return [rows[start:end] for start, end in pairwise(ends)]

    return split(X), split(y), None if token_weight is None else split(token_weight)


def try_values(
    tagger: Any, X: list[Any], y: list[Any], sample_weight: Any, token_weight: list[Any] | None
) -> dict[str, NDArray[np.float64]]:
    """Return the tried values of C in increasing order, and their scores.

    Each fit starts from the result of the fit with the next smaller C.
    """
    check_count(len(X), len(y))
    weights = example_weights(sample_weight, len(X))
    train, held = split(tagger, y, _HELD_OUT, 'C: "validation"')

    def part(values: Any) -> Any:
        return None if values is None else [values[i] for i in train]

    model = clone(tagger).set_params(C=None, callback=None, verbose=0, warm_start=False)
    model._quiet = True
    Cs: list[float] = []
    scores: list[float] = []
    own = None if weights is None else weights[train]
    given = part(X), part(y), own, part(token_weight), None
    for fitted in model._fits(given, _MULTIPLES, are_multiples=True):
        Cs.append(fitted.C_)
        scores.append(label_score([y[i] for i in held], fitted.predict([X[i] for i in held])))
        if len(scores) - 1 - int(np.argmax(scores)) >= _PATIENCE:
            break
    return {"C": np.array(Cs), "score": np.array(scores)}


def split(tagger: Any, y: list[Any], share: float, name: str) -> tuple[list[int], list[int]]:
    """Return the indices of training sentences and of held-out sentences.

    All labels of the held-out sentences occur in the training sentences.
    """
    order = np.random.default_rng(resolve_seed(tagger.random_state)).permutation(len(y))
    n_held = round(share * len(y))
    train = order[n_held:].tolist()
    # A token with an unknown label cannot be scored.
    known = {label for i in train for label in y[i]} - {None}
    held: list[int] = []
    for i in order[:n_held].tolist():
        (held if known.issuperset(y[i]) else train).append(i)
    if not held:
        msg = f"{name} needs more sentences to hold some out, got {len(y)}"
        raise ValueError(msg)
    return sorted(train), sorted(held)
