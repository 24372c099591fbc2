"""Files in LIBSVM format from the folder DUALGAP_DATA."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchopt import BaseDataset
from sklearn.datasets import load_svmlight_file


class Dataset(BaseDataset):
    name = "libsvm"
    requirements = ["scikit-learn"]
    parameters = {"file": ["letter.scale", "satimage.scale", "dna.scale", "news20"]}

    def skip(self) -> tuple[bool, str | None]:
        if not self._path().is_file():
            return True, f"no file {self._path()}; set DUALGAP_DATA"
        return False, None

    def get_data(self) -> dict[str, Any]:
        X, y = load_svmlight_file(self._path())
        return {"X": X, "y": y}

    def _path(self) -> Path:
        return Path(os.environ.get("DUALGAP_DATA", "")) / self.file
