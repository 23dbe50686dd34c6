"""Parses the record of one host, or reports why it cannot be evaluated with the fleet. Pure.

The host of a list that a record is of: by its name, its short name, or an address that it alone has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise

import msgspec

from doctor import __version__
from doctor.engine.addresses import means_own_host
from doctor.engine.fact import Visit
from doctor.engine.record import BadRun, HostRecord, Run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.names import is_address, normalize_host, short_name
from doctor.hosts.nodeset import InventoryError, validate_host


class HostIdentity(msgspec.Struct, frozen=True):
    """What one host is called."""

    name: str
    self_name: str = ""
    """What it calls itself."""
    addresses: tuple[str, ...] = ()


def match_hosts(expected: Sequence[str], identities: Sequence[HostIdentity]) -> dict[str, int]:
    """The index in ``identities`` of every expected host that has a record.

    Exact matches go first. A name or address that matches two records, or that two hosts of the list match, is not
    used: a guess could assign one host's record to another.
    """
    matches: dict[str, int] = {}
    for keys, alike in ((_names, _is_equal), (_all_names, _is_short_name), (_routable_addresses, _is_equal)):
        unmatched = [host for host in expected if host not in matches]
        used = set(matches.values())
        by_stem: dict[str, set[tuple[int, str]]] = defaultdict(set)
        for place, identity in enumerate(identities):
            if place not in used:
                for key in keys(identity):
                    by_stem[short_name(key)].add((place, key))
        candidates = {
            host: {place for place, key in by_stem.get(short_name(host), ()) if alike(normalize_host(host), key)}
            for host in unmatched
        }
        sure = {host: next(iter(places)) for host, places in candidates.items() if len(places) == 1}
        claims = Counter(sure.values())
        matches.update((host, place) for host, place in sure.items() if claims[place] == 1)
    return matches


def _names(identity: HostIdentity) -> Iterable[str]:
    return (normalize_host(identity.name),)


def _all_names(identity: HostIdentity) -> Iterable[str]:
    return (normalize_host(name) for name in (identity.name, identity.self_name) if name)


def _routable_addresses(identity: HostIdentity) -> Iterable[str]:
    addresses = (normalize_host(address.partition("%")[0]) for address in identity.addresses)
    return (address for address in addresses if not means_own_host(address))


def _is_equal(name: str, other: str) -> bool:
    return name == other


def _is_short_name(name: str, other: str) -> bool:
    """One is the other without its domain. If both have a domain, they differ in it and are two hosts."""
    if is_address(name) or is_address(other):
        return False
    return name == other or "." not in name or "." not in other


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
