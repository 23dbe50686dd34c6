"""The same work on many hosts at once, in threads that an interrupt does not have to wait for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

One = TypeVar("One")
Result = TypeVar("Result")


def each(
    items: Sequence[One], work: Callable[[One], Result], width: int, stop: threading.Event | None = None
) -> Iterator[tuple[One, Result]]:
    """Every item with what ``work`` makes of it, as it comes. What ``work`` raises is raised here.

    After an interrupt, ``stop`` is set, what is under way comes to its end, and is still told: the interrupt is
    raised behind it. Without ``stop`` nothing more is waited for.
    """
    todo: queue.SimpleQueue[One] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[One, Result | BaseException]] = queue.SimpleQueue()
    for item in items:
        todo.put(item)

    def run() -> None:
        while True:
            try:
                item = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((item, work(item)))
            except BaseException as error:  # noqa: BLE001 - it belongs to who iterates
                done.put((item, error))

    for _ in range(min(width, len(items))):
        threading.Thread(target=run, daemon=True).start()
    interrupt: BaseException | None = None
    left = len(items)
    while left:
        try:
            item, result = done.get()
        except (KeyboardInterrupt, SystemExit) as error:
            if stop is None or interrupt is not None:
                raise
            stop.set()
            interrupt = error
            continue
        left -= 1
        if isinstance(result, BaseException):
            raise result
        yield item, result
    if interrupt is not None:
        raise interrupt
