"""Parallel work on many hosts, and its interruption."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TypeVar

from doctor.engine.interrupts import STOP_SIGNALS

ItemT = TypeVar("ItemT")
Result = TypeVar("Result")


class SignalGuard:
    """Within its ``with`` the first signal only sets ``event``, the second ends the program.

    Work under way can so be finished.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.code = 0
        """The exit code that the signal asks for; 0 while there was none."""

    def __enter__(self) -> SignalGuard:
        self._previous_handlers = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.code:
            raise SystemExit(128 + number)
        self.code = 128 + number
        self.event.set()


def parallel_map(
    items: Sequence[ItemT], work: Callable[[ItemT], Result], width: int, stop: threading.Event | None = None
) -> Iterator[tuple[ItemT, Result]]:
    """Every item with what ``work`` makes of it, as it comes; after ``stop`` none is begun. Raises what it raises."""
    todo: queue.SimpleQueue[ItemT] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[ItemT, Result] | BaseException | None] = queue.SimpleQueue()
    for item in items:
        todo.put(item)

    def run() -> None:
        try:
            while not (stop and stop.is_set()):
                item = todo.get_nowait()
                done.put((item, work(item)))
        except queue.Empty:
            pass
        except BaseException as error:  # noqa: BLE001 - it belongs to who iterates
            done.put(error)
        done.put(None)

    running = min(width, len(items))
    for _ in range(running):
        threading.Thread(target=run, daemon=True).start()
    while running:
        message = done.get()
        if message is None:
            running -= 1
        elif isinstance(message, BaseException):
            raise message
        else:
            yield message
