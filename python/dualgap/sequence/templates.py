"""Feature templates in CRF++'s notation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Templates"]

Token = str | Sequence[str]

_MACRO = re.compile(r"%x\[(-?\d+),(\d+)\]")


@dataclass(frozen=True)
class Templates:
    """Feature templates, for one label (U) or for two adjacent labels (B).

    A line such as ``U05:%x[-1,0]/%x[0,1]`` makes one feature per token: ``%x[row,column]`` is
    replaced by the given column of the token `row` positions away. A token that is a string has
    only column 0. Positions before the sentence have the values ``_B-1``, ``_B-2``, and so on;
    positions after the sentence have the values ``_B+1``, ``_B+2``, and so on. A line ``B`` alone
    requests the transition weights, which every chain has. Empty lines, lines that begin with ``#``
    and a byte order mark are skipped.

    Parameters
    ----------
    lines : tuple of str
        The templates.
    n_columns : int
        The largest column index in the templates, plus one.

    Examples
    --------
    >>> templates = Templates.parse(["U0:%x[0,0]", "U1:%x[-1,0]/%x[0,0]", "B"])
    >>> templates.expand([["the"], ["cat"]])
    [['U0:the', 'U1:_B-1/the'], ['U0:cat', 'U1:the/cat']]
    """

    lines: tuple[str, ...]
    n_columns: int

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Templates:
        """Read templates.

        Raises
        ------
        ValueError
            If a line is not a template; the message names the line.
        """
        kept, width = [], 0
        for number, line in enumerate(lines, start=1):
            text = (line.removeprefix("\ufeff") if number == 1 else line).strip()
            if not text or text.startswith("#"):
                continue
            bare = _MACRO.sub("", text)
            if text[0] not in "UB" or "%x" in bare:
                msg = f"line {number}: {text!r} is not a template such as U01:%x[0,0] or B"
                raise ValueError(msg)
            width = max([width, *(int(column) + 1 for _, column in _MACRO.findall(text))])
            if text != "B":
                kept.append(text)
        return cls(tuple(dict.fromkeys(kept)), width)

    @property
    def on_transitions(self) -> bool:
        """Whether any template is for two adjacent labels."""
        return any(line[0] == "B" for line in self.lines)

    def expand(self, sentence: Sequence[Token]) -> list[list[str]]:
        """Return the features of each token of a sentence.

        Raises
        ------
        ValueError
            If a token has fewer columns than the templates use.
        """
        rows = [(token,) if isinstance(token, str) else token for token in sentence]
        width = min(map(len, rows), default=self.n_columns)
        if width < self.n_columns:
            msg = f"the templates need {self.n_columns} columns, got {width}"
            raise ValueError(msg)
        return [[self._fill(pieces, rows, t) for pieces in self._parts] for t in range(len(rows))]

    @cached_property
    def _parts(self) -> list[list[str]]:
        return [_MACRO.split(line) for line in self.lines]

    @staticmethod
    def _fill(pieces: list[str], sentence: Sequence[Sequence[str]], t: int) -> str:
        text = [pieces[0]]
        for at in range(1, len(pieces), 3):
            row = t + int(pieces[at])
            if row < 0:
                word = f"_B{row}"
            elif row >= len(sentence):
                word = f"_B+{row - len(sentence) + 1}"
            else:
                word = sentence[row][int(pieces[at + 1])]
            text += [word, pieces[at + 2]]
        return "".join(text)
