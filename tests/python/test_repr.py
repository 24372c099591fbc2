"""The repr of an object is short: shapes instead of large arrays, no addresses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from dualgap import Chunks, MulticlassSVC
from dualgap.losses import StructuredHinge, WeightedTopK
from dualgap.structured import MulticlassModel, StructuredSVM

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
def test_objects_are_printed_in_short(shown: object, expected: str) -> None:
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
