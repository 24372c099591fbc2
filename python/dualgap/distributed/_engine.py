"""Interface of the engines that hold partitions and run rounds on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dualgap._validation import FloatArray
from dualgap.distributed._partition import Part, Summary
from dualgap.distributed._plan import Order, Plan, Solution

FAN_IN = 4
"""Number of partial results that the tree reduction adds at a time."""

Source = Callable[[], Part]
"""A function that reads a partition. It is called again if the partition's worker is lost."""


class Engine(Protocol):
    """Holds partitions, and runs the coordinator's rounds on them."""

    def describe(self, fingerprints: bool) -> list[Summary]:
        """Read and summarise all partitions; `fingerprints` costs a further pass over the rows."""

    def solve(
        self, numbers: list[int], plan: Plan, order: Order, consensus: FloatArray
    ) -> Solution:
        """Run one round on these partitions; return the results, added up in a fixed order."""

    def each(self, numbers: list[int], work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run ``work(part, *arguments)`` where each of these partitions is; return the results."""

    def close(self, run: str, *, cancel: bool) -> None:
        """Drop the state of a run; `cancel` also stops tasks in progress."""


def tree(items: list[Any], combine: Callable[[list[Any]], Any]) -> Any:
    """Combine neighbouring items until one is left.

    The order of the combinations depends only on the number of items.
    """
    while True:
        groups = [items[at : at + FAN_IN] for at in range(0, len(items), FAN_IN)]
        items = [combine(group) for group in groups]
        if len(items) == 1:
            return items[0]
