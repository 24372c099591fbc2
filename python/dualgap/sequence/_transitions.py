"""Rules for adjacent labels, and for the first and the last label of a sentence."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap.sequence.schemes import is_iob1, label_parts

Codes = NDArray[np.uint8]

FORBIDDEN, WEIGHTED, FREE = 0, 1, 2

_INSIDE = {"I", "E", "L"}
_ENDS = {"E", "L", "S", "U", "O"}
# Maximum number of sentences that an error message about forbidden labels shows.
_SHOWN = 3


def transition_codes(
    transitions: Any, classes: NDArray[Any], boundaries: bool, seen: NDArray[np.bool_]
) -> Codes:
    """Encode the rules for transitions (from, to), first and last labels in the core's format.

    `seen` contains the transitions that occur in training.
    """
    n = len(classes)
    codes = np.full((n + 2, n), WEIGHTED, dtype=np.uint8)
    if isinstance(transitions, str):
        if transitions == "seen":
            codes[:n][~seen] = FREE
        elif transitions in ("bio", "bioes"):
            codes[~_scheme(transitions, classes)] = FORBIDDEN
        elif transitions != "all":
            msg = (
                'transitions: must be "all", "seen", "bio", "bioes", a mask or pairs of labels, '
                f"got {transitions!r}"
            )
            raise ValueError(msg)
    else:
        codes[:n][~_mask(transitions, classes)] = FORBIDDEN
    if not boundaries:
        codes[n:][codes[n:] == WEIGHTED] = FREE
    return codes.ravel()


def _mask(transitions: Any, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the mask of allowed transitions, given as a mask or as pairs of labels."""
    n = len(classes)
    if isinstance(transitions, set | frozenset) or (
        isinstance(transitions, list | tuple) and all(isinstance(p, tuple) for p in transitions)
    ):
        mask = np.zeros((n, n), dtype=bool)
        place = {label: index for index, label in enumerate(classes.tolist())}
        for pair in transitions:
            if len(pair) != 2 or any(label not in place for label in pair):
                msg = f"transitions: {pair!r} is not a pair of labels that occur in training"
                raise ValueError(msg)
            mask[place[pair[0]], place[pair[1]]] = True
        return mask
    mask = np.asarray(transitions)
    if mask.shape != (n, n) or mask.dtype != bool:
        msg = (
            f"transitions: a mask must be a boolean array of shape ({n}, {n}), a row and a column "
            f"for each class in sorted order, got {mask.dtype} of shape {mask.shape}"
        )
        raise ValueError(msg)
    return mask


def _scheme(scheme: str, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the transitions, first labels and last labels that a chunk scheme allows."""
    parts = [label_parts(label, scheme) for label in classes.tolist()]
    allowed = np.zeros((len(parts) + 2, len(parts)), dtype=bool)
    for to, (after, kind) in enumerate(parts):
        inside = after in _INSIDE
        for start, (before, other) in enumerate(parts):
            if scheme == "bio":
                allowed[start, to] = not inside or (before in {"B", "I"} and kind == other)
            else:
                open_chunk = before not in _ENDS
                allowed[start, to] = (inside and kind == other) if open_chunk else not inside
        allowed[-2, to] = not inside
        allowed[-1, to] = scheme == "bio" or after in _ENDS
    return allowed


def check_labels(
    codes: Codes,
    classes: NDArray[Any],
    numbers: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    scheme: Any,
) -> None:
    """Raise an error if sentences have forbidden labels; the message shows the first."""
    n = len(classes)
    table = codes.reshape(n + 2, n) == FORBIDDEN
    filled = np.flatnonzero(np.diff(offsets) > 0)
    sentence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    inner = np.flatnonzero(sentence[1:] == sentence[:-1]) + 1
    first, last = offsets[:-1][filled], offsets[1:][filled] - 1
    after = inner[table[numbers[inner - 1], numbers[inner]]]
    begins = first[table[n][numbers[first]]]
    ends = last[table[n + 1][numbers[last]]]
    wrong = [
        *((at, f"{classes[numbers[at]]} after {classes[numbers[at - 1]]}") for at in after),
        *((at, f"{classes[numbers[at]]} at the beginning") for at in begins),
        *((at, f"{classes[numbers[at]]} at the end") for at in ends),
    ]
    if not wrong:
        return
    by_sentence = {int(sentence[at]): what for at, what in sorted(wrong, reverse=True)}
    shown = sorted(by_sentence.items())[:_SHOWN]
    places = ", ".join(f"sentence {number} has {what}" for number, what in shown)
    advice = ""
    if isinstance(scheme, str):
        advice = '; set invalid="repair" or invalid="drop"'
        labels = classes[numbers].tolist()
        if scheme == "bio" and is_iob1(labels[a:b] for a, b in pairwise(offsets.tolist())):
            advice += " (the labels are IOB1; a repair converts them to BIO)"
    msg = (
        f"y: `transitions` forbids the labels of {len(by_sentence)} of {len(offsets) - 1} "
        f"sentences: {places}{advice}"
    )
    raise ValueError(msg)


def seen_transitions(
    numbers: NDArray[np.uint32], offsets: NDArray[np.int64], n_classes: int
) -> NDArray[np.bool_]:
    """Return which transitions occur in the labels."""
    seen = np.zeros((n_classes, n_classes), dtype=bool)
    sentence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    inner = np.flatnonzero(sentence[1:] == sentence[:-1]) + 1
    seen[numbers[inner - 1], numbers[inner]] = True
    return seen
