"""Paths of taggers over C, as intervals of C that are each certified by one dual point."""

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
    """An interval of C in which one tagger, with weights proportional to C, is certified.

    Attributes
    ----------
    C_min, C_max : float
        The interval.
    duality_gap : float
        Largest distance from the optimum in the interval, in units of the objective of
        `SequenceTagger`.
    relative_gap : float
        The gap relative to the objective of the tagger.
    n_iter : int
        Number of passes.
    """

    C_min: float
    C_max: float
    duality_gap: float
    relative_gap: float
    n_iter: int
    _tagger: Any = field(repr=False)

    def tagger(self, C: float) -> Any:
        """Return the certified `SequenceTagger` for a C of the interval.

        All taggers of the interval predict the same labels; larger C gives more extreme
        probabilities.

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
        """Return the best labels, as `SequenceTagger.predict` does; they do not depend on C."""
        return self._tagger.predict(X, lengths=lengths)

    def score(
        self,
        X: Sentences,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        lengths: ArrayLike | None = None,
    ) -> float:
        """Return the fraction of correctly labelled tokens, as `SequenceTagger.score` does."""
        return float(self._tagger.score(X, y, sample_weight, lengths=lengths))


def tagger_pieces(
    pieces: Iterable[Any],
    interval: tuple[float, float],
    largest: float,
    fitted: Callable[[FloatArray], Any],
) -> list[TaggerPiece]:
    """Convert the core's intervals of lambda, in descending order, to intervals of C."""
    return [
        TaggerPiece(start, end, gap, relative, n_iter, fitted(weights))
        for start, end, weights, gap, relative, n_iter in intervals(pieces, interval, largest)
    ]
