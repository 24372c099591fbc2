"""Paths of taggers over C: intervals that one dual point certifies."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from dualgap._tuning.path import intervals, scale_at
from dualgap._validation import FloatArray
from dualgap.sequence._sentences import Sentences

__all__ = ["TaggerPiece"]


@dataclass(frozen=True, eq=False)
class TaggerPiece:
    """An interval of C on which one tagger, its weights scaled with C, is certified.

    Attributes
    ----------
    C_min, C_max : float
        The interval.
    duality_gap : float
        No tagger of the interval is farther from its optimum, in units of `SequenceTagger`'s
        objective.
    relative_gap : float
        The same in units of the tagger's own objective.
    n_iter : int
        Passes that it took.
    """

    C_min: float
    C_max: float
    duality_gap: float
    relative_gap: float
    n_iter: int
    _tagger: Any = field(repr=False)

    def tagger(self, C: float) -> Any:
        """Return the certified `SequenceTagger` for a C of the interval.

        All of them predict the same labels; probabilities grow more decided with C.

        Raises
        ------
        ValueError
            If C is not in the interval.
        """
        tagger = copy.copy(self._tagger)
        tagger.C = tagger.C_ = float(C)
        tagger._weights = tagger._weights.scaled(scale_at(C, self.C_min, self.C_max))
        return tagger

    def predict(self, X: Sentences, *, lengths: ArrayLike | None = None) -> Any:
        """Return the best labels, as `SequenceTagger.predict`, the same for each C."""
        return self._tagger.predict(X, lengths=lengths)

    def score(
        self,
        X: Sentences,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        lengths: ArrayLike | None = None,
    ) -> float:
        """Return the share of tokens whose label is right, as `SequenceTagger.score`."""
        return float(self._tagger.score(X, y, sample_weight, lengths=lengths))


def tagger_pieces(
    pieces: Iterable[Any],
    interval: tuple[float, float],
    largest: float,
    fitted: Callable[[FloatArray], Any],
) -> list[TaggerPiece]:
    """Return the core's pieces, given in lambda from `largest` down, as intervals of C."""
    return [
        TaggerPiece(start, end, gap, relative, n_iter, fitted(weights))
        for start, end, weights, gap, relative, n_iter in intervals(pieces, interval, largest)
    ]
