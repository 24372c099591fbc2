"""Series of fits on several threads. They run concurrently because the core releases the GIL."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Seconds after which a wait starts again. A signal that arrives just before the main thread blocks,
# or in another thread, does not end the wait; Python handles it only after the wait.
_TURN = 0.2


def result_of(future: Future[_Result]) -> _Result:
    """Return the result of a task on another thread; Ctrl-C always ends the wait."""
    while wait([future], timeout=_TURN).not_done:
        pass
    return future.result()


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
                try:
                    kind, value = ready.get(timeout=_TURN)
                except Empty:
                    continue
                if kind == "error":
                    raise value
                if kind == "result":
                    yield value
                else:
                    n_running -= 1
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
