"""Generated rows: few columns, sparse columns, and columns of different scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "simulated"
    requirements = ["scipy"]
    parameters = {"kind": ["dense", "sparse", "scales"], "n_samples": [2000], "n_classes": [8, 2]}

    def get_data(self) -> dict[str, Any]:
        rng = np.random.default_rng(0)
        n_columns = 2000 if self.kind == "sparse" else 40
        X = rng.normal(size=(self.n_samples, n_columns))
        if self.kind == "sparse":
            X *= rng.random(X.shape) < 0.02
        scores = X @ rng.normal(size=(n_columns, self.n_classes))
        scores += scores.std() * rng.normal(size=scores.shape)
        if self.kind == "scales":
            X *= np.geomspace(1e-2, 1e2, n_columns)
        return {"X": sp.csr_array(X) if self.kind == "sparse" else X, "y": scores.argmax(axis=1)}
