"""Visits every host at once and brings back what was said, within a budget that holds."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from doctor.collect.protocol import Ask, Sheet, unframe
from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.transport import Transport, Unreached

MARGIN = 1.5
"""Seconds that a host's collector gets less than we wait for it, so that a slow tool costs its own answer alone."""

Progress = Callable[[str, HostRecord], None]


class Limits(msgspec.Struct, frozen=True):
    """Seconds."""

    timeout: float = 60.0
    """For a host's answer, once connected."""
    budget: float = 0.0
    """For the whole round; 0 is none."""
    workers: int = 256


def gather(
    hosts: Sequence[str],
    transport: Transport,
    ask: Ask | Mapping[str, Ask],
    limits: Limits,
    local: bool = False,
    progress: Progress = lambda host, record: None,
) -> dict[str, HostRecord]:
    """One visit to each host; ``ask`` is for all, or each host's own.

    What has not answered at the budget's end is a record that says so.

    An interrupt (``KeyboardInterrupt`` or `SystemExit` from a signal handler) passes through `Partial`.
    """
    round_ = _Round(hosts, transport, ask, limits, local)
    records: dict[str, HostRecord] = {}
    try:
        for host, record in round_.results():
            records[host] = record
            progress(host, record)
    except (KeyboardInterrupt, SystemExit) as stop:
        transport.close()
        raise Partial(_complete(hosts, records, "the run was interrupted before it answered"), stop) from None
    if len(records) < len(hosts):
        transport.close()
    return _complete(hosts, records, f"no answer within the budget of {limits.budget:g} s")


class Partial(Exception):
    """The run was interrupted; ``records`` holds what had come, and says *unknown* for the rest."""

    def __init__(self, records: dict[str, HostRecord], stop: BaseException) -> None:
        super().__init__(str(stop))
        self.records, self.stop = records, stop


def _complete(hosts: Sequence[str], records: dict[str, HostRecord], text: str) -> dict[str, HostRecord]:
    return {host: records.get(host, HostRecord(Visit("budget", text))) for host in hosts}


class _Round:
    def __init__(
        self, hosts: Sequence[str], transport: Transport, ask: Ask | Mapping[str, Ask], limits: Limits, local: bool
    ) -> None:
        self.transport, self.limits, self.local = transport, limits, local
        if isinstance(ask, Ask):
            self.sheets = dict.fromkeys(hosts, Sheet(ask))
        else:
            self.sheets = {host: Sheet(ask[host]) for host in hosts}
        self.todo: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[tuple[str, HostRecord]] = queue.SimpleQueue()
        self.count = len(hosts)
        self.end = time.monotonic() + limits.budget if limits.budget else float("inf")
        for host in hosts:
            self.todo.put(host)
        for _ in range(min(limits.workers, len(hosts))):
            threading.Thread(target=self.work, daemon=True).start()

    def results(self) -> Iterator[tuple[str, HostRecord]]:
        for _ in range(self.count):
            try:
                # Short waits: an interrupt is only seen between them on some systems.
                yield self.wait()
            except queue.Empty:
                return

    def wait(self) -> tuple[str, HostRecord]:
        while True:
            left = self.end - time.monotonic()
            if left <= 0:
                raise queue.Empty
            try:
                return self.done.get(timeout=min(left, 0.5))
            except queue.Empty:
                continue

    def work(self) -> None:
        while True:
            try:
                host = self.todo.get_nowait()
            except queue.Empty:
                return
            self.done.put((host, self.visit(host)))

    def visit(self, host: str) -> HostRecord:
        left = self.end - time.monotonic()
        seconds = min(self.limits.timeout, left)
        sheet = self.sheets[host].letter(max(seconds - MARGIN, 0.5))
        try:
            said = self.transport.run(host, sheet.command, sheet.stdin, seconds)
            return unframe(said, sheet.marker, self.local)
        except Unreached as stop:
            return HostRecord(Visit(stop.kind, stop.text, stop.hint, local=self.local))
        except Exception as error:  # noqa: BLE001 - the rim: one host's surprise must not end the run
            return HostRecord(Visit("error", f"{type(error).__name__}: {error}", local=self.local))
