"""Runs the collector on all hosts in parallel, within a fixed time budget."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.collect.collector_request import CollectOptions, parse_response, templates_of
from doctor.engine.fact import Visit
from doctor.engine.quantities import number_text
from doctor.engine.record import HostRecord, SharedOutputs
from doctor.engine.texts import filled
from doctor.remote.request import Request
from doctor.transport import CommandResult, KeepsCommands, Transport, TransportError
from doctor.transport.program import visit_hosts

MARGIN = 1.5
"""Seconds by which a collector's time limit is below ours, so that a slow tool loses only its own answer."""

RecordCallback = Callable[[str, HostRecord], None]


class TimeLimits(msgspec.Struct, frozen=True):
    """Seconds."""

    timeout: float = 60.0
    """For a host's answer, once connected."""
    budget: float = 0.0
    """For the whole round; 0 is none."""
    workers: int = 256


def gather(
    hosts: Sequence[str],
    transport: Transport,
    options: CollectOptions | Mapping[str, CollectOptions],
    limits: TimeLimits,
    local: bool = False,
    progress: RecordCallback = lambda host, record: None,
) -> dict[str, HostRecord]:
    """One visit to each host; ``options`` is for all, or each host's own.

    What has not answered at the budget's end is a record that says so; its connections stay open until the caller
    closes the transport, so that another round can go on with the hosts that answered.

    An interrupt (``KeyboardInterrupt`` or `SystemExit` from a signal handler) passes through `RunInterrupted`.
    """
    gc.freeze()  # what was loaded until now stays, and need not be searched for garbage
    visits = _Round(hosts, transport, options, limits, local)
    records: dict[str, HostRecord] = {}

    def take(host: str, record: HostRecord) -> None:
        records[host] = record
        progress(host, record)

    try:
        visit_hosts(hosts, transport, visits.visit, limits.workers, take, visits.deadline)
    except (KeyboardInterrupt, SystemExit) as stop:
        raise RunInterrupted(
            _with_unanswered(hosts, records, "the run was interrupted before the host answered"), stop
        ) from None
    return _with_unanswered(hosts, records, filled("no answer within {0} s", number_text(limits.budget)))


class RunInterrupted(Exception):
    """The run was interrupted; ``records`` holds the answers so far; the rest is *unknown*."""

    def __init__(self, records: dict[str, HostRecord], interrupt: BaseException) -> None:
        super().__init__(str(interrupt))
        self.records, self.interrupt = records, interrupt


def _with_unanswered(hosts: Sequence[str], records: dict[str, HostRecord], text: str) -> dict[str, HostRecord]:
    return {host: records.get(host, HostRecord(Visit("budget", text))) for host in hosts}


class _Round:
    def __init__(
        self,
        hosts: Sequence[str],
        transport: Transport,
        options: CollectOptions | Mapping[str, CollectOptions],
        limits: TimeLimits,
        local: bool,
    ) -> None:
        self.transport, self.limits, self.local = transport, limits, local
        self.shared = SharedOutputs()
        self.options = dict.fromkeys(hosts, options) if isinstance(options, CollectOptions) else options
        self.templates = templates_of(self.options)
        self.deadline = time.monotonic() + limits.budget if limits.budget else float("inf")

    def exchange(self, host: str, request: Request, seconds: float) -> CommandResult:
        """With the collector of an earlier round, if it waits. Raises: Unreached."""
        if isinstance(self.transport, KeepsCommands):
            return self.transport.run_kept(host, request, seconds)
        return self.transport.run(host, request.command, request.stdin, seconds)

    def address(self, host: str) -> str:
        """By which SSH connected to a host, or tried to; empty where that is not known."""
        address: str = getattr(self.transport, "reached", {}).get(host, "")
        return address

    def visit(self, host: str) -> HostRecord:
        remaining = self.deadline - time.monotonic()
        seconds = min(self.limits.timeout, remaining)
        request = self.templates[host].request(max(seconds - MARGIN, 0.5), self.options[host].own)
        try:
            result = self.exchange(host, request, seconds)
            return parse_response(result, request.marker, self.local, self.address(host), self.shared)
        except TransportError as stop:
            # Time that the budget cut short is not the host's fault: it is unknown, and not unreachable.
            kind = "budget" if stop.kind == "timeout" and seconds < self.limits.timeout else stop.kind
            return HostRecord(Visit(kind, stop.text, stop.hint, local=self.local, address=self.address(host)))
        except Exception as error:  # noqa: BLE001 - the rim: one host's surprise must not end the run
            return HostRecord(Visit("error", f"{type(error).__name__}: {error}", local=self.local))
