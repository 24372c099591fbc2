"""Output of predictions as plain lines, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualgap._files import replacing

FORMATS = ("text", "csv", "json")


@dataclass(frozen=True)
class Predictions:
    """The best labels of each row, best first, and optionally scores or probabilities."""

    best: NDArray[Any]
    classes: NDArray[Any]
    # Scores or probabilities of all classes, by row and class.
    values: NDArray[np.float64] | None
    # The kind of these values.
    kind: Literal["score", "probability"] = "score"

    def write(self, path: Path, form: str | None) -> None:
        """Write to a file, or to standard output if the path is ``-``.

        The default format is plain text for a single label per row, without scores, and CSV
        otherwise.
        """
        with_scores = self.values is not None and self.kind == "score"
        simple = not with_scores and self.best.shape[1] == 1
        lines = {"text": self._text, "csv": self._csv, "json": self._json}
        pieces = lines[form or ("text" if simple else "csv")]()
        if str(path) != "-":
            with replacing(path) as file:
                file.writelines(piece.encode() for piece in pieces)
            return
        sys.stdout.buffer.writelines(piece.encode() for piece in pieces)
        sys.stdout.buffer.flush()

    def _text(self) -> Iterator[str]:
        labels = [str(label) for label in self.classes]
        broken = next((label for label in labels if len(label.splitlines()) > 1), None)
        if broken is not None:
            msg = f"the label {broken!r} contains a line break; use --format csv or json"
            raise ValueError(msg)
        if self.values is None:
            yield from (f"{label}\n" for label in self.best[:, 0])
            return
        # This is the format of LIBLINEAR's predict -b 1.
        blank = next((label for label in labels if len(label.split()) != 1), None)
        if blank is not None:
            msg = f"the label {blank!r} contains a blank; use --format csv or json"
            raise ValueError(msg)
        yield f"{' '.join(['labels', *labels])}\n"
        for label, values in zip(self.best[:, 0], self.values, strict=True):
            yield f"{' '.join([str(label), *_numbers(values)])}\n"

    def _csv(self) -> Iterator[str]:
        n_best = self.best.shape[1]
        header = ["label"] if n_best == 1 else [f"label_{n}" for n in range(1, n_best + 1)]
        if self.values is not None:
            header += [f"{self.kind}_{label}" for label in self.classes]
        yield _line(header)
        for row, labels in enumerate(self.best):
            values = [] if self.values is None else _numbers(self.values[row])
            yield _line([*map(str, labels), *values])

    def _json(self) -> Iterator[str]:
        names = [str(label) for label in self.classes]
        yield "["
        for row, labels in enumerate(self.best):
            record: dict[str, Any] = {"labels": labels.tolist()}
            if self.values is not None:
                name = {"score": "scores", "probability": "probabilities"}[self.kind]
                record[name] = dict(zip(names, self.values[row].tolist(), strict=True))
            yield f"{',' if row else ''}\n{json.dumps(record, ensure_ascii=False)}"
        yield "\n]\n"


def _numbers(values: NDArray[np.float64]) -> list[str]:
    return [f"{value:.9g}" for value in values]


def _line(fields: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()
