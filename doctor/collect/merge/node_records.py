"""Parses the record of one host, or reports why it cannot be evaluated with the fleet. Pure."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import msgspec

from doctor import __version__
from doctor.engine.fact import Visit
from doctor.engine.record import BadRun, HostRecord, Run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.hosts.nodeset import InventoryError, validate_host


class NodeFileRecord(msgspec.Struct, frozen=True):
    """One host's own record."""

    name: str
    location: str
    """The file, and the line in it."""
    run: Run
    began: datetime

    @property
    def record(self) -> HostRecord:
        return self.run.hosts[self.name]


class UnusableFile(msgspec.Struct, frozen=True):
    """A file that cannot be judged by."""

    host: str
    """Source of the name; empty if unknown."""
    location: str
    reason: str


class NodeFiles(msgspec.Struct, frozen=True):
    """All that was found."""

    records: tuple[NodeFileRecord, ...]
    unusable: tuple[UnusableFile, ...] = ()


CLOCK_STEP = 60.0
"""Seconds by which a host's clock may be set while it is read."""


def _check_times(visit: Visit, began: float, seconds: float) -> None:
    """Raises: BadRun when the host was read at another time than the run says: by its own clock, it was then."""
    times = (began, visit.sent, visit.began, visit.ended, visit.received, began + seconds)
    if not all(later - earlier > -CLOCK_STEP for earlier, later in pairwise(times)):
        raise BadRun("its host was not read when its run began; expected the times that doctor node wrote")


def parse_node_record(run: Run, location: str) -> NodeFileRecord:
    """The record of a run. Raises: BadRun when `doctor node` did not write it, or it cannot be merged."""
    if run.version != __version__:
        raise BadRun(
            filled(
                "written by version {0} of doctor; expected {1}",
                strip_control_chars(run.version, 60) or "unknown",
                __version__,
            )
        )
    if len(run.hosts) != 1:
        raise BadRun(filled("contains {0} hosts; expected only the host that doctor node ran on", len(run.hosts)))
    ((name, record),) = run.hosts.items()
    if not (record.visit.local or record.visit.failure):
        raise BadRun("not written by doctor node on the host itself")
    try:
        validate_host(name, "the file")
        began = datetime.fromisoformat(run.started.replace("Z", "+00:00"))
    except (InventoryError, ValueError) as error:
        raise BadRun(filled("not written by doctor node: {0}", strip_control_chars(str(error)))) from None
    if run.launch.by_host:
        raise BadRun("not written by doctor node: only doctor merge writes `launch.by_host`")
    if began.tzinfo is None:
        raise BadRun("not written by doctor node: its start time has no time zone")
    if not record.visit.failure:
        _check_times(record.visit, began.timestamp(), run.seconds)
    return NodeFileRecord(name, location, run, began)
