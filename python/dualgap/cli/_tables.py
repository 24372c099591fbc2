"""Labelled rows from files: LIBSVM format, NumPy arrays, CSV, Parquet."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import load_svmlight_file

FORMATS = ("libsvm", "npy", "npz", "csv", "parquet")
_LABEL_NAMES = ("label", "target", "class", "y")


@dataclass(frozen=True)
class Table:
    """Rows and, where the file has them, labels."""

    X: Any
    y: NDArray[Any] | None
    # Index of the first feature in a LIBSVM file.
    first_index: int = 1


def format_of(path: Path) -> str:
    """Guess a file's format from its name: LIBSVM unless it says otherwise."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in (".gz", ".bz2")]
    last = suffixes[-1] if suffixes else ""
    return {".npy": "npy", ".npz": "npz", ".csv": "csv", ".parquet": "parquet"}.get(last, "libsvm")


def read_table(
    path: Path,
    *,
    form: str | None = None,
    label: str | None = None,
    labels: Path | None = None,
    like: tuple[int, int] | None = None,
    need_labels: bool = True,
) -> Table:
    """Read rows and labels.

    Parameters
    ----------
    path : Path
        The file.
    form : str, optional
        One of `FORMATS`; by default what the name says.
    label : str, optional
        Name of the labels' column (CSV, Parquet); by default label, target, class or y.
    labels : Path, optional
        A file with the labels alone: npy, or text with one a line.
    like : tuple of int, optional
        For LIBSVM files: number of features and index of the first one in the training file.
    need_labels : bool, default=True
        Whether a file without labels is refused.
    """
    kind = form or format_of(path)
    if kind == "libsvm":
        table = _libsvm(path, like)
    elif kind in ("npy", "npz"):
        table = _arrays(path)
    else:
        table = _frame(path, kind, label, need=need_labels and labels is None)
    if labels is not None:
        table = Table(table.X, _labels(labels), table.first_index)
    if table.y is None and need_labels:
        msg = f"{path}: has no labels; give a file of labels with --labels"
        raise ValueError(msg)
    if table.y is not None and len(table.y) != table.X.shape[0]:
        msg = f"{path}: {table.X.shape[0]} rows, but {len(table.y)} labels"
        raise ValueError(msg)
    return table


def _libsvm(path: Path, like: tuple[int, int] | None) -> Table:
    try:
        X, y = load_svmlight_file(str(path), zero_based=True)
    except (ValueError, OverflowError, EOFError, UnicodeError) as error:
        msg = f"{path}: not in LIBSVM format, 'label index:value ...' ({error})"
        raise ValueError(msg) from error
    if X.shape[0] == 0:
        msg = f"{path}: has no rows"
        raise ValueError(msg)
    from_zero = X.shape[1] > 0 and X.indices.size > 0 and X.indices.min() == 0
    n_features, first = (X.shape[1] - (not from_zero), int(not from_zero)) if like is None else like
    if from_zero and first == 1:
        msg = f"{path}: has features with index 0, the training file began at 1"
        raise ValueError(msg)
    # Features that training did not see have no weight.
    width = max(X.shape[1], n_features + first)
    X = sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], width))
    return Table(X[:, first : first + n_features], _tidy(y), first)


def _arrays(path: Path) -> Table:
    try:
        if not zipfile.is_zipfile(path):
            return Table(_matrix(np.load(path, allow_pickle=False, mmap_mode="r"), path), None)
        with np.load(path, allow_pickle=False) as members:
            arrays = dict(members)
        if {"format", "shape", "data"} <= set(arrays):
            return Table(sp.csr_array(sp.load_npz(path)), None)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, FileNotFoundError):
            raise
        msg = f"{path}: not a readable NumPy file ({error})"
        raise ValueError(msg) from error
    if "X" not in arrays:
        msg = f"{path}: has no array X (and y), nor is it from scipy.sparse.save_npz"
        raise ValueError(msg)
    return Table(_matrix(arrays["X"], path), arrays.get("y"))


def _matrix(X: Any, path: Path) -> Any:
    if X.ndim != 2 or X.dtype.kind not in "iufb":
        msg = f"{path}: must hold a matrix of numbers, got shape {X.shape} of {X.dtype}"
        raise ValueError(msg)
    return X


def _frame(path: Path, kind: str, label: str | None, *, need: bool) -> Table:
    try:
        frame = pd.read_csv(path) if kind == "csv" else pd.read_parquet(path)
    except ImportError as error:
        msg = f"{path}: reading Parquet needs pyarrow: pip install pyarrow"
        raise ValueError(msg) from error
    except (ValueError, UnicodeError) as error:
        msg = f"{path}: not a readable {kind} file ({error})"
        raise ValueError(msg) from error
    frame.columns = frame.columns.astype(str)
    name = label or next((name for name in _LABEL_NAMES if name in frame.columns), None)
    if name is not None and name not in frame.columns and need:
        msg = f"{path}: has no column {name!r}, only {', '.join(frame.columns)}"
        raise ValueError(msg)
    if name is None and need:
        msg = f"{path}: name the labels' column with --label (columns: {', '.join(frame.columns)})"
        raise ValueError(msg)
    y = None
    if name is not None and name in frame.columns:
        y = frame.pop(name).to_numpy()
        if pd.isna(y).any():
            msg = f"{path}: column {name!r} has missing labels"
            raise ValueError(msg)
    words = [column for column in frame.columns if frame[column].dtype.kind not in "iufb"]
    if words:
        msg = f"{path}: not a number in column {words[0]!r}; encode it or leave it out"
        raise ValueError(msg)
    return Table(frame.to_numpy(dtype=np.float64), None if y is None else _tidy(y))


def _labels(path: Path) -> NDArray[Any]:
    if format_of(path) == "npy":
        try:
            y = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            msg = f"{path}: not a readable NumPy file ({error})"
            raise ValueError(msg) from error
        if y.ndim != 1:
            msg = f"{path}: must hold one label for each row, got shape {y.shape}"
            raise ValueError(msg)
        return _tidy(y)
    try:
        lines = path.read_text("utf-8").split()
    except UnicodeError as error:
        msg = f"{path}: not a text file with one label a line"
        raise ValueError(msg) from error
    try:
        return _tidy(np.array(lines, dtype=np.float64))
    except ValueError:
        return np.array(lines)


def _tidy(y: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers as integers, anything but numbers as text."""
    if y.dtype.kind == "f" and np.array_equal(y, np.trunc(y)) and np.abs(y).max(initial=0) < 2**53:
        return y.astype(np.int64)
    return y if y.dtype.kind in "iufb" else y.astype(np.str_)
