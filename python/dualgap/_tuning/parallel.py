"""Series of fits on several threads. They run concurrently because the core releases the GIL."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_threads(
    series: Callable[[_Item, Event, Callable[[_Result], None]], None],
    items: Sequence[_Item],
    n_threads: int,
) -> Generator[_Result, None, None]:
    """Yield the results of `series` for all items, each as soon as it is ready.

    Parameters
    ----------
    series : callable
        Called as ``series(item, stop, emit)``; calls `emit` with each result. The event `stop` is
        set if the caller was interrupted or another item raised an exception; the series should
        then end soon.
    items : sequence
        Items, started in this order.
    n_threads : int
        Number of items that run concurrently.
    """
    stop = Event()
    ready: SimpleQueue[tuple[str, Any]] = SimpleQueue()

    def run(item: _Item) -> None:
        try:
            series(item, stop, lambda result: ready.put(("result", result)))
            ready.put(("end", None))
        except BaseException as error:
            ready.put(("error", error))

    with ThreadPoolExecutor(n_threads) as pool:
        try:
            for item in items:
                pool.submit(run, item)
            n_running = len(items)
            while n_running:
                kind, value = ready.get()
                if kind == "error":
                    raise value
                if kind == "result":
                    yield value
                else:
                    n_running -= 1
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
