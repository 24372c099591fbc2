"""Reading of labelled rows: LIBSVM format, NumPy arrays, CSV, Parquet."""

from __future__ import annotations

import bz2
import gzip
import io
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap._libsvm import read_libsvm
from dualgap._npz import UNREADABLE, check_header, read_npz
from dualgap._sparse import checked_csr
from dualgap.cli._frames import RefusedError, read_frame, tidy
from dualgap.cli._linear_file import Training

FORMATS = ("libsvm", "npy", "npz", "csv", "parquet")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Number of rows checked at a time.
_PIECE = 1 << 12


@dataclass(frozen=True)
class Source:
    """A file of rows and the options for reading it.

    Parameters
    ----------
    path : Path
        The file; ``-`` is standard input.
    form : str, optional
        One of `FORMATS`; by default chosen by the file's extension.
    separator : str, optional
        Field separator of CSV files; by default a comma, or a tab in ``.tsv`` files.
    label : str, optional
        Name of the label column (CSV, Parquet); by default as in the training file, else the first
        of the names label, target, class and y that is a column.
    labels : Path, optional
        A file that contains only the labels: npy, or text with one per line.
    """

    path: Path
    form: str | None = None
    separator: str | None = None
    label: str | None = None
    labels: Path | None = None


@dataclass(frozen=True)
class Table:
    """Rows, labels if present, and notes for the user."""

    X: Any
    y: NDArray[Any] | None
    training: Training
    notes: tuple[str, ...] = ()


def suffixes(path: Path) -> list[str]:
    """Return the extensions of a file name in lower case, without compression suffixes."""
    return [suffix.lower() for suffix in path.suffixes if suffix.lower() not in (".gz", ".bz2")]


def format_of(path: Path) -> str:
    """Guess a file's format from its extension; the default is LIBSVM."""
    names = {".npy": "npy", ".npz": "npz", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
    return names.get("".join(suffixes(path)[-1:]), "libsvm")


@contextmanager
def open_rows(path: Path) -> Iterator[IO[bytes]]:
    """Open a file without its byte order mark, decompressed if needed; ``-`` is standard input."""
    ending = path.suffix.lower()
    with ExitStack() as closing:
        file: Any
        if str(path) == "-":
            file = io.BytesIO(sys.stdin.buffer.read())
        elif ending == ".gz":
            file = closing.enter_context(gzip.open(path, "rb"))
        elif ending == ".bz2":
            file = closing.enter_context(bz2.open(path, "rb"))
        else:
            file = closing.enter_context(open(path, "rb"))
        if file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
            file.seek(0)
        yield file


def read_table(source: Source, like: Training | None = None, *, need_labels: bool = True) -> Table:
    """Read rows and labels.

    Parameters
    ----------
    source : Source
        The file.
    like : Training, optional
        Row format of the training file, for prediction. Named columns are put into its order, and
        its label column is not used as a feature.
    need_labels : bool, default=True
        Whether a file without labels raises an error.

    Raises
    ------
    ValueError
        If the file cannot be used. The message names the file and, if possible, row and column.
    """
    path, kind = source.path, source.form or format_of(source.path)
    try:
        if kind == "libsvm":
            table = _libsvm(path, like)
        elif kind in ("npy", "npz"):
            table = _arrays(path)
        else:
            table = _frame(source, kind, like, need=need_labels and source.labels is None)
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        if isinstance(error, RefusedError):
            raise
        names = {"libsvm": "in LIBSVM format, 'label index:value ...'"}
        names |= {"npy": "a readable NumPy file", "npz": "a readable NumPy file"}
        what = names.get(kind, f"a readable {kind} file")
        msg = f"{path}: not {what} ({str(error) or repr(error)})"
        raise ValueError(msg) from error
    if source.labels is not None:
        table = replace(table, y=_labels(source.labels))
    if table.y is None and need_labels:
        msg = f"{path}: no labels; pass a file of labels with --labels"
        raise ValueError(msg)
    if table.y is not None and len(table.y) != table.X.shape[0]:
        msg = f"{path}: {table.X.shape[0]} rows, but {len(table.y)} labels"
        raise ValueError(msg)
    _check_values(path, table)
    return table


def _libsvm(path: Path, like: Training | None) -> Table:
    with open_rows(path) as file:
        # Features that the training file lacks have no weight, so they are dropped.
        known = (None, None) if like is None else (like.first_index, like.n_features)
        X, y, first = read_libsvm(file, *known)
    if X.shape[0] == 0:
        raise RefusedError(f"{path}: the file has no rows")
    return Table(X, tidy(y), Training(X.shape[1], first))


def _arrays(path: Path) -> Table:
    if str(path) != "-" and not (path.suffix in (".gz", ".bz2") or _is_zip(path)):
        # Memory-mapped, because the file may be larger than memory.
        with open(path, "rb") as file:
            check_header(file, path.stat().st_size)
        return _table(path, np.load(path, allow_pickle=False, mmap_mode="r"), None)
    with open_rows(path) as file:
        # Read as a whole, because seeking in compressed files is slow.
        content = io.BytesIO(file.read())
    if not content.getvalue().startswith(b"PK"):
        check_header(content, len(content.getvalue()))
        content.seek(0)
        return _table(path, np.load(content, allow_pickle=False), None)
    arrays = read_npz(content, compressed=True)
    if {"format", "shape", "data"} <= set(arrays):
        return _table(path, _sparse(arrays), None)
    if "X" not in arrays:
        raise RefusedError(
            f"{path}: no array X found; save arrays X and y, or use scipy.sparse.save_npz"
        )
    y = arrays.get("y")
    return _table(path, arrays["X"], None if y is None else tidy(y))


def _is_zip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _sparse(arrays: dict[str, NDArray[Any]]) -> sp.csr_array:
    """Rebuild a matrix saved by scipy.sparse.save_npz; check it before compiled code reads it."""
    form, (n_rows, n_columns) = arrays["format"].item().decode(), arrays["shape"].tolist()
    data = arrays["data"]
    if form == "csr":
        return checked_csr(data, arrays["indices"], arrays["indptr"], (n_rows, n_columns))
    if form == "csc":
        turned = checked_csr(data, arrays["indices"], arrays["indptr"], (n_columns, n_rows))
        return sp.csr_array(turned.T)
    if form == "coo":
        # This constructor checks every index.
        matrix = sp.coo_array((data, (arrays["row"], arrays["col"])), (n_rows, n_columns))
        return sp.csr_array(matrix)
    msg = f"sparse format {form!r} is not supported; save the matrix as CSR"
    raise ValueError(msg)


def _table(path: Path, X: Any, y: NDArray[Any] | None) -> Table:
    if X.ndim != 2 or X.dtype.kind not in "iufb":
        msg = f"{path}: X must be a matrix of numbers, got shape {X.shape} of {X.dtype}"
        raise RefusedError(msg)
    if y is not None and y.ndim != 1:
        raise RefusedError(f"{path}: y must have one label per row, got shape {y.shape}")
    return Table(X, y, Training(X.shape[1]))


def _frame(source: Source, kind: str, like: Training | None, *, need: bool) -> Table:
    path = source.path
    separator = source.separator or ("\t" if suffixes(path)[-1:] == [".tsv"] else ",")
    label = source.label
    known = None if like is None else like.columns
    with open_rows(path) as file:
        frame = read_frame(file, path, kind, separator)
    label = frame.labels_column(label, None if like is None else like.label, known, need=need)
    y = None if label is None else frame.take_labels(label)
    notes = frame.arrange(known)
    training = Training(len(frame.names), columns=frame.names, label=label)
    return Table(frame.numbers(), y, training, notes)


def _labels(path: Path) -> NDArray[Any]:
    if format_of(path) == "npy":
        try:
            with open(path, "rb") as file:
                check_header(file, path.stat().st_size)
            y = np.load(path, allow_pickle=False)
        except UNREADABLE as error:
            msg = f"{path}: not a readable NumPy file ({error})"
            raise ValueError(msg) from error
        if y.ndim != 1:
            msg = f"{path}: must be an array with one label per row, got shape {y.shape}"
            raise ValueError(msg)
        return tidy(y)
    try:
        with open_rows(path) as file:
            text = file.read().decode()
    except (EOFError, UnicodeError) as error:
        msg = f"{path}: not a text file with one label per line"
        raise ValueError(msg) from error
    # Not str.splitlines, which also splits at characters that labels may contain.
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    empty = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if empty is not None:
        msg = f"{path}: line {empty}: missing label"
        raise ValueError(msg)
    try:
        return tidy(np.array(lines, dtype=np.float64))
    except ValueError:
        return np.array(lines)


def _check_values(path: Path, table: Table) -> None:
    """Raise an error that locates the first value or label that is not finite."""
    if table.y is not None and table.y.dtype.kind == "f" and not np.isfinite(table.y).all():
        row = int(np.flatnonzero(~np.isfinite(table.y))[0])
        msg = f"{path}: row {row + 1}: labels must be finite, got {table.y[row]}"
        raise ValueError(msg)
    X, names = table.X, table.training.columns
    if sp.issparse(X):
        if np.isfinite(X.data).all():
            return
        at = int(np.flatnonzero(~np.isfinite(X.data))[0])
        row = int(np.searchsorted(X.indptr, at, side="right")) - 1
        column, value = int(X.indices[at]), X.data[at]
    else:
        pieces = (X[start : start + _PIECE] for start in range(0, len(X), _PIECE))
        start = next(
            (n * _PIECE for n, piece in enumerate(pieces) if not np.isfinite(piece).all()), None
        )
        if start is None:
            return
        row, column = (int(n[0]) for n in np.nonzero(~np.isfinite(X[start : start + _PIECE])))
        row += start
        value = X[row, column]
    place = repr(names[column]) if names else str(column + table.training.first_index)
    msg = f"{path}: row {row + 1}, column {place}: values must be finite, got {value}"
    raise ValueError(msg)
