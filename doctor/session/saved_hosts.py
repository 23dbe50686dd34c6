"""The hosts that a saved run is about and has no record of: they are unknown, and never left out. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord, Run
from doctor.engine.result import THIS_HOST_ALONE

NO_RECORD = "the saved run names it and has no record of it"


def with_listed_hosts(run: Run, names: Iterable[str]) -> Run:
    """The run with an unknown host for each of ``names``, by which it calls its hosts, that it holds no record of.

    A run of one host alone names its fleet, and is about no other host.

    >>> from doctor.engine.record import SCHEMA
    >>> list(with_listed_hosts(Run(SCHEMA, "2 hosts", "", 0.0, {}), ("n1", "n2")).hosts)
    ['n1', 'n2']
    """
    named = dict.fromkeys(names)
    listed = [name for name in named if name and name not in run.hosts]
    if not listed or _is_of_this_host_alone(run):
        return run
    from doctor.collect.merge.hosts import HostIdentity, match_hosts

    others = [HostIdentity(host, run.hosts[host].visit.name) for host in run.hosts.keys() - named.keys()]
    known = match_hosts(listed, others)
    absent = [name for name in listed if name not in known]
    records = dict.fromkeys(absent, HostRecord(Visit("no-file", NO_RECORD)))
    return msgspec.structs.replace(run, hosts={**run.hosts, **records}) if absent else run


def _is_of_this_host_alone(run: Run) -> bool:
    local = all(record.visit.local for record in run.hosts.values())
    return len(run.hosts) == 1 and local and run.source.startswith(THIS_HOST_ALONE)
