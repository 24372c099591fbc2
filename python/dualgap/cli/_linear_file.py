"""Linear classifiers in files of plain arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dualgap._npz import read_meta, read_npz, refused_as, write_npz
from dualgap.losses import Loss
from dualgap.multiclass import MulticlassSVC

_FORMAT = 1
_KIND = "MulticlassSVC"


def write_linear(path: Path, model: MulticlassSVC, loss: Loss, first_index: int) -> None:
    """Write a classifier fitted with `loss`, and the first index of its LIBSVM file."""
    meta = {
        "format": _FORMAT,
        "kind": _KIND,
        "loss": {"name": loss.name, **loss.parameters()},
        "first_index": first_index,
        "parameters": {
            name: getattr(model, name)
            for name in ("C", "smoothing", "fit_intercept", "intercept_scaling", "tol")
        },
    }
    arrays = {
        "classes": model.classes_,
        "coef": model.coef_,
        "intercept": model.intercept_,
        "certificate": np.array([model.objective_, model.dual_objective_, model.null_objective_]),
    }
    write_npz(path, meta, arrays)


def read_linear(path: Path) -> tuple[MulticlassSVC, int]:
    """Read what `write_linear` wrote."""
    with refused_as(path, "a model file of `dualgap fit`"):
        arrays = read_npz(path)
        meta = read_meta(arrays, format=_FORMAT, kind=_KIND)
        model = MulticlassSVC(Loss(**meta["loss"]), **meta["parameters"])
        model.classes_, model.coef_ = arrays["classes"], arrays["coef"]
        model.intercept_ = arrays["intercept"]
        n_classes = len(model.classes_)
        fits = (
            n_classes >= 2
            and model.classes_.shape == model.intercept_.shape
            and model.coef_.ndim == 2
            and len(model.coef_) == n_classes
            and model.coef_.dtype == model.intercept_.dtype == np.float64
        )
        if not fits:
            msg = "the arrays do not fit together"
            raise ValueError(msg)
        model.objective_, model.dual_objective_, model.null_objective_ = map(
            float, arrays["certificate"]
        )
        model.duality_gap_ = model.objective_ - model.dual_objective_
        model.n_features_in_ = model.coef_.shape[1]
        return model, int(meta["first_index"])
