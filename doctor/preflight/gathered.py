"""What a preflight knows: the value that is evaluated in the end, and the progress of those who gather it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from doctor.preflight.options import Tier
from doctor.session.output_files import EventStreams

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.record import HostRecord
    from doctor.environment.inventory import Inventory
    from doctor.environment.job_context import JobContext
    from doctor.preflight.deadline import Heartbeat
    from doctor.session.replay import Examination


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What was gathered. Fields are filled in this order; those that were not reached are empty."""

    tier: Tier
    skipped: tuple[str, ...] = ()
    """What DOCTOR_SKIP leaves out: names of checks, or ``all``."""
    context: JobContext | None = None
    notes: tuple[str, ...] = ()
    catalog: tuple[Check, ...] = ()
    selected_checks: tuple[Check, ...] = ()
    left_out: Mapping[Check, str] = msgspec.field(default_factory=dict)
    """Checks that were selected and do not run, and why."""
    excluded: tuple[str, ...] = ()
    """The areas of the checks that the tier leaves out, one each."""
    inventory: Inventory | None = None
    hosts_unknown: str = ""
    """Why this host alone, or too few hosts, were checked, although the job may have more; then nothing is healthy."""
    examination: Examination | None = None
    evaluation_end: float = float("inf")
    """When evaluations must have ended, by the monotonic clock."""

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.inventory.hosts if self.inventory else ()

    @property
    def is_alone(self) -> bool:
        """Whether this host alone is checked."""
        return self.inventory is not None and self.inventory.local

    def with_notes(self, *notes: str) -> Gathered:
        return msgspec.structs.replace(self, notes=(*self.notes, *notes))


class NotReady(Exception):
    """Nothing can be evaluated: the platform has not described the job, or this host's leader has no verdict."""

    def __init__(self, text: str, cause: str) -> None:
        super().__init__(text)
        self.cause = cause
        """One word for the status line."""


class VerdictSender(Protocol):
    """Passes this process's verdict on to the others of its host, or of its gang; at its end they stop waiting."""

    def __enter__(self) -> VerdictSender: ...

    def __exit__(self, *_: object) -> None: ...

    def announce(self, code: int, line: str, until: float) -> None:
        """Sends exit code and line, not beyond ``until``."""
        ...


class GatherProgress:
    """What is known so far, for whoever ends the run early: a signal, the deadline's thread, an exception.

    The thread that gathers replaces ``gathered`` as a whole, so that others read a consistent value at every moment.
    """

    def __init__(self, gathered: Gathered, heartbeat: Heartbeat, on_lead: Callable[[], None] = lambda: None) -> None:
        """``on_lead`` is called once this process, and no other of its host, is to report."""
        self.gathered = gathered
        self.heartbeat = heartbeat
        self.on_lead = on_lead
        self.records: dict[str, HostRecord] = {}
        """Of the hosts that have answered, or failed to."""
        self.leader: VerdictSender | None = None
        self.events = EventStreams()
        self.pending: NotReady | None = None
        """What the platform has not described yet, while it is waited for."""

    def update(self, **fields: Any) -> Gathered:
        """Fields of `Gathered` that are known now."""
        self.gathered = msgspec.structs.replace(self.gathered, **fields)
        return self.gathered

    def add_notes(self, *notes: str) -> None:
        self.gathered = self.gathered.with_notes(*notes)

    def keep_record(self, host: str, record: HostRecord) -> None:
        self.records[host] = record

    def aliases(self) -> list[str]:
        return [record.visit.name for record in list(self.records.values())]
