"""Option types for integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _Type = click.ParamType[int]
else:
    _Type = click.ParamType  # not generic in older versions of click


class Integer(_Type):
    """An integer with bounds that the help does not show, such as the core's limits."""

    name = "integer"

    def __init__(self, smallest: int, largest: int) -> None:
        self._bounds = smallest, largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert a text to an integer within the bounds."""
        number = int(click.INT.convert(value, param, ctx))
        smallest, largest = self._bounds
        if not smallest <= number <= largest:
            self.fail(f"{number} is not between {smallest} and {largest}", param, ctx)
        return number


# The core takes 32-bit counts.
COUNT = Integer(1, 2**31 - 1)
SEED = Integer(0, 2**32 - 1)
THREADS = Integer(-(2**31), 2**31 - 1)
