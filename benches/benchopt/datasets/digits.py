"""scikit-learn's digits: 1,797 rows, 64 columns, 10 classes."""

from __future__ import annotations

from typing import Any

from benchopt import BaseDataset
from sklearn.datasets import load_digits


class Dataset(BaseDataset):
    name = "digits"
    requirements = ["scikit-learn"]

    def get_data(self) -> dict[str, Any]:
        X, y = load_digits(return_X_y=True)
        return {"X": X / 16.0, "y": y}
