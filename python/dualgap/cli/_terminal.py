"""Exit codes and messages on standard error, shared by all commands."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.markup import escape

errors = Console(stderr=True, highlight=False)

_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn expected errors into one line on standard error and an exit status.

    A reader that closes standard output early (``| head``) is not an error.
    """
    _open_streams()
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        sys.exit(0)
    except (ArithmeticError, MemoryError, OSError, RuntimeError, TypeError, ValueError) as error:
        text = str(error) or repr(error)
        if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
            # An error for a named file already includes the name.
            text = f"{text}: standard output"
            _drop_output()
        with suppress(OSError):
            errors.print(f"[red]error:[/] {escape(text)}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)


def require_stdout() -> None:
    """Raise an error if standard output is closed.

    Raises
    ------
    OSError
        If standard output is closed.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")


def _open_streams() -> None:
    """Reopen closed standard streams, so that no other file gets their descriptors.

    Otherwise, messages could end up in a model file that got descriptor 2.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        # Without stderr, print would write messages to standard output.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _drop_output() -> None:
    """Discard pending standard output, which the interpreter would flush again on exit."""
    if sys.stdout is not None:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
