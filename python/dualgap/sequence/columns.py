"""Reading of CoNLL files, which have one token per line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import IO, Any, TypeAlias

__all__ = ["read_conll"]

Source: TypeAlias = "str | os.PathLike[str] | IO[str] | IO[bytes]"

# The pattern lists spaces and tabs only, because a no-break space is part of a column.
_BLANKS = re.compile("[ \t]+")
_DOCUMENT = "-DOCSTART-"


def read_conll(
    source: Source,
    columns: int | Sequence[int] | None = None,
    *,
    separator: str | None = None,
    encoding: str = "utf-8",
) -> Iterator[list[Any]]:
    r"""Return an iterator over the sentences of a file with one token per line.

    An empty line ends a sentence. A line whose first column is ``-DOCSTART-`` ends a sentence and
    is not a token. A byte order mark is skipped, and lines may end with CR LF. Sentences are read
    on demand, so a file may be larger than memory.

    Parameters
    ----------
    source : path or file
        A path, or an open text or binary file, which is not closed.
    columns : int or sequence of int, optional
        Index of the column to return for each token, or indices of several columns; negative
        indices count from the last column. By default, all columns are returned.
    separator : str, optional
        The character between columns. By default, columns are separated by any number of spaces
        and tabs; a no-break space is part of a column.
    encoding : str, default="utf-8"
        Encoding of the file, unless it is opened as text.

    Returns
    -------
    iterator of lists of str, or of lists of tuples of str
        The tokens of each sentence: strings if `columns` is an integer, else tuples.

    Raises
    ------
    TypeError
        If `columns` contains anything other than integers.
    ValueError
        If lines differ in their number of columns, if a line lacks the given columns, or if the
        encoding is wrong. The message names the file and the line.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> from io import StringIO
    >>> file = StringIO("the DT B-NP\ncat NN I-NP\n\nruns VB O\n")
    >>> list(read_conll(file, columns=[0, -1]))
    [[('the', 'B-NP'), ('cat', 'I-NP')], [('runs', 'O')]]
    """
    if separator is not None and (len(separator) != 1 or separator in "\r\n"):
        msg = f"separator: must be a single character other than a line break, got {separator!r}"
        raise ValueError(msg)
    picks = columns if columns is None or isinstance(columns, int) else tuple(columns)
    if isinstance(picks, tuple) and not all(isinstance(pick, int) for pick in picks):
        msg = f"columns: must be column indices, counted from 0, got {columns!r}"
        raise TypeError(msg)
    return _sentences(source, picks, separator, encoding)


def _sentences(
    source: Source, columns: int | tuple[int, ...] | None, separator: str | None, encoding: str
) -> Iterator[list[Any]]:
    with _opened(source, encoding) as (name, file), _named(name, encoding):
        for sentence in read_columns(file, separator, () if columns is None else columns):
            if columns is None:
                yield [tuple(token) for token in sentence]
            elif isinstance(columns, int):
                yield [token[columns] for token in sentence]
            else:
                yield [tuple(token[column] for column in columns) for token in sentence]


@contextmanager
def _opened(source: Source, encoding: str) -> Iterator[tuple[str, Iterable[str]]]:
    """Open a file; yield its name and its lines."""
    if isinstance(source, str | os.PathLike):
        with open(source, encoding=encoding) as file:
            yield os.fspath(source), file
        return
    name = str(getattr(source, "name", "the file"))
    if isinstance(getattr(source, "mode", None), str) and "b" not in source.mode:
        yield name, source  # type: ignore[misc]
        return
    if isinstance(source.read(0), str):
        yield name, source  # type: ignore[misc]
        return
    text = TextIOWrapper(source, encoding=encoding)  # type: ignore[type-var]
    try:
        yield name, text
    finally:
        # The file belongs to the caller, who closes it.
        text.detach()


@contextmanager
def _named(name: str, encoding: str) -> Iterator[None]:
    """Add the file's name to the messages of errors in its lines."""
    try:
        yield
    except UnicodeError as error:
        msg = f"{name}: not {encoding} ({error}); set the encoding"
        raise ValueError(msg) from error
    except ValueError as error:
        msg = f"{name}: {error}"
        raise ValueError(msg) from error


def read_columns(
    lines: Iterable[str],
    separator: str | None = None,
    wanted: int | tuple[int, ...] = (),
) -> Iterator[list[list[str]]]:
    """Yield the tokens of each sentence; a token is the list of all its columns.

    Raises
    ------
    ValueError
        If lines differ in their number of columns, or if no line has the given columns. The message
        names the line or the columns.
    """
    sentence: list[list[str]] = []
    width = 0
    for number, line in enumerate(lines, start=1):
        columns = split_line(line, number, separator)
        if not columns or columns[0] == _DOCUMENT:
            if sentence:
                yield sentence
            sentence = []
            continue
        if width == 0:
            width = len(columns)
            _check_columns(wanted, width, number)
        if len(columns) != width:
            msg = f"line {number} has {len(columns)} columns, but earlier lines have {width}"
            raise ValueError(msg)
        sentence.append(columns)
    if sentence:
        yield sentence


def split_line(line: str, number: int, separator: str | None) -> list[str]:
    """Return the columns of a line; a byte order mark before line 1 is skipped."""
    if number == 1:
        line = line.removeprefix("\ufeff")
    text = line.strip(" \t\r\n")
    if not text:
        return []
    return _BLANKS.split(text) if separator is None else line.rstrip("\r\n").split(separator)


def _check_columns(wanted: int | tuple[int, ...], width: int, number: int) -> None:
    for column in (wanted,) if isinstance(wanted, int) else wanted:
        if not -width <= column < width:
            msg = f"columns: line {number} has {width} columns, so there is no column {column}"
            raise ValueError(msg)
