"""What the commands share: notes on standard error, and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

errors = Console(stderr=True, highlight=False)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn what can go wrong outside our control into one line and an exit status."""
    try:
        yield
    except (OSError, ValueError, TypeError) as error:
        errors.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)
