"""Paths of input and output files, and a check that no output overwrites an input."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click


class Input(click.Path):
    """A file that a command reads."""


class Output(click.Path):
    """A file that a command writes."""


IN = Input(exists=True, dir_okay=False, path_type=Path, allow_dash=True)
OUT = Output(dir_okay=False, path_type=Path, allow_dash=True)


class FileCommand(click.Command):
    """A command that raises an error if an output file is one of its input files.

    The types `Input` and `Output` mark its arguments and options as inputs and outputs.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Check the files, then run the command."""
        inputs = self._files(ctx, Input)
        outputs = self._files(ctx, Output)
        for paths, stream, name in (
            (inputs, sys.stdin, "standard input"),
            (outputs, sys.stdout, "standard output"),
        ):
            if stream is None and any(str(path) == "-" for path in paths.values()):
                raise click.ClickException(f"{name} is closed")
        refuse_overwriting(inputs, outputs)
        return super().invoke(ctx)

    def _files(self, ctx: click.Context, kind: type[click.Path]) -> dict[str, Path]:
        found = {}
        for param in self.params:
            value = ctx.params.get(param.name or "")
            if isinstance(param.type, kind) and value is not None:
                is_argument = isinstance(param, click.Argument)
                found[param.human_readable_name if is_argument else param.opts[-1]] = value
        return found


def refuse_overwriting(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Raise an error if an output is the same file as an input or another output.

    The comparison recognises different paths to the same file.

    Parameters
    ----------
    inputs, outputs : dict of str to path
        Paths, keyed by their names in error messages; ``-`` is standard input or output.

    Raises
    ------
    click.UsageError
        If an output path refers to the same file as another path.
    """
    known = {
        identity: name
        for name, path in inputs.items()
        for given in _read_with(Path(path))
        if (identity := _identity(given, 0)) is not None
    }
    for name, path in outputs.items():
        identity = _identity(Path(path), 1)
        if identity is None:
            continue
        if identity in known:
            msg = f"{name} would overwrite {known[identity]} ({path}); choose another file"
            raise click.UsageError(msg)
        known[identity] = name


def _read_with(path: Path) -> Iterable[Path]:
    """Return the files to which a path refers: itself, or the tables in a folder."""
    if str(path) == "-" or not path.is_dir():
        return [path]
    return [file for file in path.iterdir() if file.suffix in _TABLES]


_TABLES = {".base", ".csv", ".dat", ".data", ".inter", ".item", ".test", ".user"}


def _identity(path: Path, descriptor: int) -> object:
    """Return device and inode of a file, or the path of a missing file; None for a pipe."""
    try:
        found = os.fstat(descriptor) if str(path) == "-" else os.stat(path)
    except OSError:
        return None if str(path) == "-" else os.path.realpath(path)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
