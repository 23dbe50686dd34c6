"""The interruption of work on hosts: what is under way is finished, and nothing else is begun."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from doctor.engine.interrupts import STOP_SIGNALS


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
