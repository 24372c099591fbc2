"""Fits to rows in chunks equal fits to rows in memory, and do not copy the rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from full_disk import run_on_small_disk

from dualgap import Chunks, PolynomialNetworkClassifier, PolynomialNetworkRegressor
from dualgap._validation import check_rows, core_rows

# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def data(n: int = 3000, *, sparse: bool = False) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X: Any = rng.normal(size=(n, 6)) * (rng.random((n, 6)) < (0.2 if sparse else 1.0))
    y = np.array(["no", "yes"])[(X[:, 0] * X[:, 1] > 0.1).astype(int)]
    return (sp.csr_array(X) if sparse else X), y


def model(**parameters: Any) -> PolynomialNetworkClassifier:
    return PolynomialNetworkClassifier(4, max_iter=5, tol=0.0, random_state=0, **parameters)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("refit", ["output", "full"])
@pytest.mark.parametrize("spill", [False, True])
def test_a_stream_of_chunks_gives_the_model_of_all_rows(
    sparse: bool, refit: str, spill: bool, tmp_path: Path
) -> None:
    X, y = data(sparse=sparse)
    weights = np.linspace(0.5, 1.5, len(y))

    def stream() -> Iterator[tuple[Any, Any]]:
        for start in range(0, len(y), 700):
            yield X[start : start + 700], y[start : start + 700]

    rows, labels = Chunks.from_pairs(stream(), spill=tmp_path if spill else None)
    assert rows.shape == X.shape
    whole = model(reoptimize=refit).fit(X, y, weights)
    chunked = model(reoptimize=refit).fit(rows, labels, weights)
    assert np.array_equal(whole.components_, chunked.components_)
    assert np.array_equal(whole.decision_function(X), chunked.decision_function(X))
    assert chunked.n_features_in_ == 6
    assert list(tmp_path.iterdir()) == [], "the files have no name"


def test_memory_mapped_rows_are_read_in_place(tmp_path: Path) -> None:
    X, y = data()
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert np.shares_memory(Chunks([mapped]).chunks[0], mapped)
    fitted = model(n_jobs=1).fit(mapped, y)
    assert np.shares_memory(core_rows(check_rows(fitted, mapped, reset=False)), mapped)
    assert np.array_equal(fitted.components_, model().fit(X, y).components_)


def test_chunks_give_the_same_model_for_several_targets() -> None:
    X, _ = data()
    targets = X[:, :2] * X[:, 2:4]
    whole = PolynomialNetworkRegressor(4, random_state=0).fit(X, targets)
    chunked = PolynomialNetworkRegressor(4, random_state=0).fit(Chunks([X[:9], X[9:]]), targets)
    assert np.array_equal(whole.predict(X), chunked.predict(X))


def test_errors_name_the_invalid_chunk() -> None:
    X, y = data(40)
    with pytest.raises(ValueError, match="chunks: must contain at least one"):
        Chunks([])
    with pytest.raises(ValueError, match=r"chunks: all .* chunk 1 has 5 and chunk 0 has 6"):
        Chunks([X, X[:, :5]])
    with pytest.raises(ValueError, match="NaN"):
        Chunks([X, X * np.nan])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model().fit(Chunks([X]), y[:-1])
    with pytest.raises(ValueError, match="validation_fraction: Chunks cannot be split"):
        model(validation_fraction=0.5).fit(Chunks([X]), y)


SPILL = """
import os
import numpy as np
import scipy.sparse as sp
from dualgap import Chunks

for rows in (np.ones((1000, 40)), sp.random_array((1000, 80), density=0.5, format="csr")):
    for make in (
        lambda: Chunks([rows] * 9, spill="."),
        lambda: Chunks.from_pairs([(rows, np.ones(1000))] * 9, spill="."),
    ):
        try:
            make()
        except OSError as error:
            print(error)
        print(os.listdir("."), os.statvfs(".").f_bfree > 200)
"""


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    result = run_on_small_disk(SPILL, tmp_path)
    assert result.returncode == 0, result
    # No file is left in the folder or on the disk.
    assert result.stdout == "[Errno 28] No space left on device: '.'\n[] True\n" * 4, result
