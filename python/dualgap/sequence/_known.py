"""Token labels that are known before a prediction."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap._validation.copies import listed


def known_codes(
    known: Any, offsets: NDArray[np.int64], classes: NDArray[Any], flat: bool
) -> NDArray[np.int32]:
    """Return the index of each token's known label, or -1 for None.

    Raises
    ------
    ValueError
        If the number of sentences is wrong, a sentence does not have one entry per token, or an
        entry is neither None nor a label of the model.
    """
    ends = offsets.tolist()
    entries = listed(known, "known")
    if flat and len(entries) == ends[-1]:
        entries = [entries[start:end] for start, end in pairwise(ends)]
    if len(entries) != len(ends) - 1:
        n, kind = (ends[-1], "rows") if flat else (len(ends) - 1, "sentences")
        msg = f"known: must have an entry for each of {n} {kind}, got {len(entries)}"
        raise ValueError(msg)
    sentences = [list(labels) for labels in entries]
    number = {label: code for code, label in enumerate(classes.tolist())}
    number[None] = -1
    for at, (labels, (start, end)) in enumerate(zip(sentences, pairwise(ends), strict=True)):
        if len(labels) != end - start:
            msg = f"known: sentence {at} has {len(labels)} entries and {end - start} tokens"
            raise ValueError(msg)
        for token, label in enumerate(labels):
            if not isinstance(label, Hashable) or label not in number:
                msg = (
                    f"known: sentence {at}, token {token}: {label!r} is not a label of the model; "
                    "use one of classes_, or None"
                )
                raise ValueError(msg)
    codes = [number[label] for label in chain.from_iterable(sentences)]
    return np.array(codes, dtype=np.int32)
