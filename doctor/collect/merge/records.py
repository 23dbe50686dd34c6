"""What one host left, understood: its own look at itself, or why it is none that can be judged with others. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from doctor import __version__
from doctor.engine.record import BadRun, HostRecord, Run
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
    """Whom it is named after; empty where nothing tells."""
    location: str
    reason: str


class NodeFiles(msgspec.Struct, frozen=True):
    """All that was found."""

    records: tuple[NodeFileRecord, ...]
    unusable: tuple[UnusableFile, ...] = ()


def parse_node_record(run: Run, location: str) -> NodeFileRecord:
    """The look that a run is. Raises: BadRun when it is not of `doctor node`, or cannot be judged with others."""
    if run.version != __version__:
        raise BadRun(f"made by version {run.version or 'unknown'} of doctor; expected {__version__}")
    if len(run.hosts) != 1:
        raise BadRun(f"holds {len(run.hosts)} hosts; expected the one that doctor node ran on")
    ((name, record),) = run.hosts.items()
    if not (record.visit.local or record.visit.failure):
        raise BadRun("not made by doctor node on the host itself")
    try:
        validate_host(name, "the file")
        began = datetime.fromisoformat(run.started.replace("Z", "+00:00"))
    except (InventoryError, ValueError) as error:
        raise BadRun(f"not made by doctor node: {error}") from None
    if run.launch.by_host:
        raise BadRun("not made by doctor node: `launch.by_host` is written by doctor merge alone")
    if began.tzinfo is None:
        raise BadRun("not made by doctor node: the time of its start has no zone")
    return NodeFileRecord(name, location, run, began)
