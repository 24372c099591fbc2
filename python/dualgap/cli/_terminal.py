"""What the commands share: notes on standard error, and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

errors = Console(stderr=True, highlight=False)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn what can go wrong outside our control into one line and an exit status.

    That nobody reads standard output any more (``| head``) is no error.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more when it ends; that must not fail again.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        sys.exit(0)
    except (ArithmeticError, MemoryError, OSError, RuntimeError, TypeError, ValueError) as error:
        errors.print(f"[red]error:[/] {escape(str(error) or repr(error))}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)
