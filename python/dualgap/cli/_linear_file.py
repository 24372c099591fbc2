"""Model files of linear classifiers: plain arrays and JSON."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dualgap._estimator import relative_gap
from dualgap._npz import dump_npz, read_meta, read_npz, refused_as, write_npz
from dualgap.losses import Loss
from dualgap.multiclass import MulticlassSVC

_FORMAT = 2
_KIND = "MulticlassSVC"
_PARAMETERS = ("C", "smoothing", "fit_intercept", "intercept_scaling", "tol")


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


def write_linear(path: Path, model: MulticlassSVC, training: Training) -> None:
    """Write a fitted classifier to a file, or to standard output if the path is ``-``."""
    loss = model.loss
    assert isinstance(loss, Loss)
    meta = {
        "format": _FORMAT,
        "kind": _KIND,
        "loss": {"name": loss.name, **loss.parameters()},
        "first_index": training.first_index,
        "columns": training.columns,
        "label": training.label,
        "parameters": {name: getattr(model, name) for name in _PARAMETERS},
    }
    arrays = {
        "classes": model.classes_,
        "coef": model.coef_,
        "intercept": model.intercept_,
        "certificate": np.array([model.objective_, model.dual_objective_, model.null_objective_]),
    }
    if str(path) != "-":
        write_npz(path, meta, arrays)
        return
    # Writing an npz file needs a seekable file.
    file = io.BytesIO()
    dump_npz(file, meta, arrays)
    sys.stdout.buffer.write(file.getvalue())
    sys.stdout.buffer.flush()


def read_linear(path: Path) -> tuple[MulticlassSVC, Training]:
    """Read a file of `write_linear`, or standard input if the path is ``-``."""
    source: Path | IO[bytes] = path
    if str(path) == "-":
        source = io.BytesIO(sys.stdin.buffer.read())
    with refused_as(path, "a model file of `dualgap fit`"):
        arrays = read_npz(source)
        meta = read_meta(arrays, format=_FORMAT, kind=_KIND)
        parameters = {name: meta["parameters"][name] for name in _PARAMETERS}
        loss = Loss(**meta["loss"])
        loss.parameters()
        model = MulticlassSVC(loss, **parameters)
        model._check_parameters()
        _restore(model, arrays)
        training = Training(
            model.n_features_in_, meta["first_index"], meta["columns"], meta["label"]
        )
        training.check()
        return model, training


def _restore(model: MulticlassSVC, arrays: dict[str, NDArray[Any]]) -> None:
    classes, coef, intercept = (arrays[name] for name in ("classes", "coef", "intercept"))
    certificate = arrays["certificate"]
    fits = (
        classes.ndim == 1
        and len(classes) >= 2
        and intercept.shape == classes.shape
        and coef.ndim == 2
        and len(coef) == len(classes)
        and certificate.shape == (3,)
        and coef.dtype == intercept.dtype == certificate.dtype == np.float64
        # Strictly increasing, which also rules out NaN.
        and bool((classes[1:] > classes[:-1]).all())
        and all(bool(np.isfinite(array).all()) for array in (coef, intercept, certificate))
    )
    if not fits:
        msg = "the arrays have inconsistent shapes or types, or non-finite values"
        raise ValueError(msg)
    model.classes_, model.coef_, model.intercept_ = classes, coef, intercept
    model.n_features_in_ = coef.shape[1]
    model.objective_, model.dual_objective_, model.null_objective_ = map(float, certificate)
    model.duality_gap_ = model.objective_ - model.dual_objective_
    model.relative_gap_ = relative_gap(model.duality_gap_, model.objective_)
