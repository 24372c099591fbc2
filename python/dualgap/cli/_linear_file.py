"""Model files of `dualgap fit`: a linear classifier, and the format of its training rows."""

from __future__ import annotations

import copy
import io
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TypeAlias

from dualgap._estimator.saving import dump_model, pack, read_model
from dualgap._npz import refused_as, write_npz
from dualgap.logistic import LogisticRegression
from dualgap.multiclass import MulticlassSVC

LinearModel: TypeAlias = MulticlassSVC | LogisticRegression

_WHAT = "a model file of `dualgap fit`"


@dataclass(frozen=True)
class Training:
    """The row format that a model expects."""

    n_features: int
    # Index of the first feature in a LIBSVM file.
    first_index: int = 1
    # Names of the features in order, or None if the training file had no names.
    columns: list[str] | None = None
    # Name of the label column, which is not a feature.
    label: str | None = None

    def check(self) -> None:
        """Raise an error for values that `write_linear` would not have written."""
        names = self.columns
        good = (
            self.first_index in (0, 1)
            and (self.label is None or isinstance(self.label, str))
            and (
                names is None
                or (
                    isinstance(names, list)
                    and all(isinstance(name, str) for name in names)
                    and len(names) == len(set(names)) == self.n_features
                )
            )
        )
        if not good:
            msg = "invalid index of the first feature or column names"
            raise ValueError(msg)


def write_linear(path: Path, model: LinearModel, training: Training) -> None:
    """Write a fitted classifier to a file, or to standard output if the path is ``-``."""
    notes = asdict(training)
    # Equal data must give equal files, so leave out the history (with its times) and --quiet.
    model = copy.copy(model).set_params(verbose=None)
    del model.history_
    if str(path) != "-":
        write_npz(path, *pack(model, notes))
        return
    # An npz archive needs a seekable file.
    file = io.BytesIO()
    dump_model(file, model, notes)
    sys.stdout.buffer.write(file.getvalue())
    sys.stdout.buffer.flush()


def read_linear(path: Path) -> tuple[LinearModel, Training]:
    """Read a file that `write_linear` wrote, or standard input if the path is ``-``."""
    source: Path | IO[bytes] = path
    if str(path) == "-":
        source = io.BytesIO(sys.stdin.buffer.read())
    classes: list[type[LinearModel]] = [MulticlassSVC, LogisticRegression]
    model, notes = read_model(source, classes, _WHAT)
    with refused_as(path, _WHAT):
        # A file written by `save` has no notes.
        training = Training(**notes) if notes is not None else Training(model.n_features_in_)
        training.check()
        if training.n_features != model.n_features_in_:
            msg = "the number of features does not fit the model"
            raise ValueError(msg)
    return model, training
