"""What a place that holds partitions does: read them, answer rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dualgap._validation import FloatArray
from dualgap.distributed._partition import Part, Summary
from dualgap.distributed._worker import Answer, Order, Plan

FAN_IN = 4
"""Answers that are added up at a time on the way to the sum."""

Source = Callable[[], Part]
"""How a partition is read; called again where its worker was lost."""


class Engine(Protocol):
    """What the coordinator asks of a place that holds partitions."""

    def describe(self, fingerprints: bool) -> list[Summary]:
        """Read all partitions; their fingerprints cost a pass over the bytes of the rows."""

    def ask(self, numbers: list[int], plan: Plan, order: Order, consensus: FloatArray) -> Answer:
        """One round: the answers of these partitions, added up in a fixed order."""

    def close(self, run: str, *, cancel: bool) -> None:
        """Drop what was kept; `cancel` also ends what is under way."""


def tree(items: list[Any], combine: Callable[[list[Any]], Any]) -> Any:
    """Combine neighbours until one is left; the order depends on the number of items alone."""
    while True:
        groups = [items[at : at + FAN_IN] for at in range(0, len(items), FAN_IN)]
        items = [combine(group) for group in groups]
        if len(items) == 1:
            return items[0]
