"""The hosts that a saved run is about and has no record of: they are unknown, and never left out. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord, Run
from doctor.engine.result import THIS_HOST_ALONE

NO_RECORD = "the saved run names it and has no record of it"


def with_listed_hosts(run: Run) -> Run:
    """The run with an unknown host for each one that it names and holds no record of; the same run where it names none.

    A run of one host alone names its fleet, and is about no other host.

    >>> from doctor.engine.record import SCHEMA, ProbeInputs
    >>> list(with_listed_hosts(Run(SCHEMA, "2 hosts", "", 0.0, {}, ProbeInputs(hosts=("n1", "n2")))).hosts)
    ['n1', 'n2']
    """
    listed = [name for name in dict.fromkeys(_listed(run)) if name and name not in run.hosts]
    if not listed or _is_of_this_host_alone(run):
        return run
    from doctor.collect.merge.hosts import HostIdentity, match_hosts

    others = [HostIdentity(host, run.hosts[host].visit.name) for host in run.hosts.keys() - {*_listed(run)}]
    known = match_hosts(listed, others)
    absent = [name for name in listed if name not in known]
    records = dict.fromkeys(absent, HostRecord(Visit("no-file", NO_RECORD)))
    return msgspec.structs.replace(run, hosts={**run.hosts, **records}) if absent else run


def _listed(run: Run) -> Iterator[str]:
    """Every name of a host of the fleet in a run, outside of its records."""
    yield from run.probe_inputs.hosts
    yield from run.launch.by_host
    if isinstance(run.launch.ranks_per_host, dict):
        yield from run.launch.ranks_per_host


def _is_of_this_host_alone(run: Run) -> bool:
    local = all(record.visit.local for record in run.hosts.values())
    return len(run.hosts) == 1 and local and run.source.startswith(THIS_HOST_ALONE)
