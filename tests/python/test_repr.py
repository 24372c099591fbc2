"""The repr of an object is short: shapes instead of large arrays, no addresses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fitted import FITS
from sklearn.base import clone
from sklearn.datasets import load_iris

from dualgap import Chunks, MulticlassSVC
from dualgap.losses import StructuredHinge, WeightedTopK
from dualgap.structured import MulticlassModel, StructuredSVM

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, Y = load_iris(return_X_y=True)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (Chunks([X[:100], X[100:]]), "<Chunks: 150 rows and 4 columns in 2 chunks>"),
        (
            StructuredHinge([[0, 1], [2, 0]]),
            "StructuredHinge(costs=[[0, 1], [2, 0]])",
        ),
        (
            StructuredHinge(np.ones((150, 3)), per_row=True),
            "StructuredHinge(costs=<array of shape (150, 3)>, per_row=True)",
        ),
        (WeightedTopK([1.0, 0.0]), "WeightedTopK(weights=(1.0, 0.0))"),
        (MulticlassSVC(StructuredHinge(np.ones((9, 9)))), "array of shape (9, 9)"),
    ],
    ids=["chunks", "small-costs", "costs", "weights", "estimator"],
)
def test_reprs_summarise_large_arrays(shown: object, expected: str) -> None:
    assert expected in repr(shown)
    assert len(repr(shown)) < 120


def test_pieces_of_paths_show_their_interval_and_gap() -> None:
    pieces = [
        MulticlassSVC(fit_intercept=False).path(X, Y, 0.1, 1.0)[0],
        StructuredSVM(MulticlassModel()).path(X, Y, 0.1, 1.0)[0],
    ]
    for piece in pieces:
        assert repr(piece).startswith(f"{type(piece).__name__}(C_min=0.1, C_max=")
        assert "array" not in repr(piece)
        assert f"n_iter={piece.n_iter})" in repr(piece)


@pytest.mark.parametrize("name", FITS)
def test_a_loaded_model_is_printed_like_the_fitted_model(name: str, tmp_path: Path) -> None:
    estimator, X, y = FITS[name]
    fitted = clone(estimator).set_params(n_jobs=1, verbose=0)
    fitted.fit(*(X,) if y is None else (X, y))
    fitted.save(tmp_path / "model")
    loaded = type(fitted).load(tmp_path / "model")
    assert repr(loaded) == repr(fitted)
    assert " at 0x" not in repr(loaded)
