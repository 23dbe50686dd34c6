"""Parses the record of one host, or reports why it cannot be evaluated with the fleet. Pure."""

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
    """Source of the name; empty if unknown."""
    location: str
    reason: str


class NodeFiles(msgspec.Struct, frozen=True):
    """All that was found."""

    records: tuple[NodeFileRecord, ...]
    unusable: tuple[UnusableFile, ...] = ()


class _LaunchFields(msgspec.Struct, forbid_unknown_fields=True):
    """The keywords of `doctor.job.Launch.from_environment` that a run may hold."""

    environ: dict[str, str]
    framework: str = ""
    master_addr: str = ""
    master_port: int | None = None
    world_size: int | None = None
    ranks_per_host: dict[str, int] | int | None = None
    rank_table: str = ""
    python: str = ""
    product: str = ""


class _RankTableFields(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    text: str = ""
    error: str = ""
    link_target: str = ""


def parse_node_record(run: Run, location: str) -> NodeFileRecord:
    """The record of a run. Raises: BadRun when `doctor node` did not write it, or it cannot be merged."""
    if run.version != __version__:
        raise BadRun(f"written by version {run.version or 'unknown'} of doctor; expected {__version__}")
    if len(run.hosts) != 1:
        raise BadRun(f"contains {len(run.hosts)} hosts; expected only the host that doctor node ran on")
    ((name, record),) = run.hosts.items()
    if not (record.visit.local or record.visit.failure):
        raise BadRun("not written by doctor node on the host itself")
    try:
        validate_host(name, "the file")
        began = datetime.fromisoformat(run.started.replace("Z", "+00:00"))
        msgspec.convert(run.launch, _LaunchFields)
        if run.rank_table:
            msgspec.convert(run.rank_table, _RankTableFields)
    except (InventoryError, ValueError) as error:
        raise BadRun(f"not written by doctor node: {error}") from None
    if began.tzinfo is None:
        raise BadRun("not written by doctor node: its start time has no time zone")
    return NodeFileRecord(name, location, run, began)
