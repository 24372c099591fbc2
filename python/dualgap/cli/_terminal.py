"""What the commands share: notes on standard error, and exit codes."""

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
    """Turn what can go wrong outside our control into one line and an exit status.

    That nobody reads standard output any more (``| head``) is no error.
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
            # Errors of files have their names.
            text = f"{text}: standard output"
            _drop_output()
        with suppress(OSError):
            errors.print(f"[red]error:[/] {escape(text)}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)


def require_stdout() -> None:
    """Refuse to write results where standard output is closed.

    Raises
    ------
    OSError
        If it is.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")


def _open_streams() -> None:
    """Open the standard streams that are closed, so that no file takes their numbers.

    Notes would go into a model file that is number 2.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        # Without it, print writes notes to standard output.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _drop_output() -> None:
    """Discard what standard output still holds: the interpreter flushes it once more at its end."""
    if sys.stdout is not None:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
