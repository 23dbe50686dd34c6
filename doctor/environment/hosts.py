"""The hosts that a place names, and where two of its sources disagree about them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import msgspec

from doctor.engine.sanitize import printable
from doctor.environment.inventory import Options, take
from doctor.environment.mounted_rank_table import ReadFile, Table
from doctor.environment.platforms import Platform
from doctor.hosts.nodeset import InventoryError, canonical_host, expand_nodeset
from doctor.job import parse_address

OURS = ("DOCTOR_HOSTS", "DOCTOR_HOSTFILE")


class Named(msgspec.Struct, frozen=True):
    """The hosts of one source. None: it names none, or ``error`` says why they cannot be used."""

    hosts: tuple[str, ...] | None = None
    source: str = ""
    slots: dict[str, int] = {}
    error: str = ""
    conflicts: tuple[str, ...] = ()


def find_hosts(
    environ: Mapping[str, str], read_file: ReadFile, platform: Platform | None, table: Table | None
) -> Named:
    """The user's own variables win, then the platform's list, then the rank table; all that are there are compared."""
    ours = [_taken({name: environ[name]}, read_file) for name in OURS if name in environ][:1]
    theirs = [_expanded(platform.hosts, platform.source)] if platform and platform.hosts else []
    listed = [_of_table(table)] if table and (table.read or (not ours and not theirs)) else []
    found = [one for one in (*ours, *theirs, *listed) if one.hosts or one.error]
    chosen = found[0] if found else Named()
    good = [one for one in found if one.hosts]
    said = [_differ(first, other) for first, other in pairwise(good)]
    if platform and theirs and theirs[0].hosts and 0 < platform.nodes != len(theirs[0].hosts):
        said.append(f"the job has {platform.nodes} hosts, and {platform.source} names {len(theirs[0].hosts)}")
    return msgspec.structs.replace(chosen, conflicts=tuple(one for one in said if one))


def _taken(environ: Mapping[str, str], read_file: ReadFile) -> Named:
    try:
        found = take(Options(), environ, read_file)
    except InventoryError as error:
        return Named(error=str(error))
    return Named(found.hosts, found.source.partition(" from ")[2], found.slots)


def _expanded(text: str, source: str) -> Named:
    try:
        hosts = expand_nodeset(text, source)
    except InventoryError as error:
        return Named(error=str(error))
    once = {canonical_host(host): host for host in reversed(hosts)}
    if len(once) < len(hosts):
        return Named(error=f"{source}: names {len(hosts)} hosts, of which {len(once)} differ; expected every host once")
    return Named(tuple(hosts), source)


def _of_table(table: Table) -> Named:
    """One that is not complete names nobody yet: that is no error, and is waited for."""
    if table.error:
        return Named(error=f"rank table {printable(table.path)}: {table.error}; expected one that can be read")
    if table.waits:
        return Named()
    named = {"RANK_TABLE_FILE": table.path}
    found = _taken(named, lambda path: table.text)
    by = f", named by {table.variable}" if table.variable else ""
    return msgspec.structs.replace(found, source=f"rank table {printable(table.path)}{by}") if found.hosts else found


def _differ(first: Named, other: Named) -> str:
    """Names are compared with names alone: what is an address in one source may be a name in the other."""
    ours, theirs = (
        {canonical_host(host) for host in first.hosts or ()},
        {canonical_host(host) for host in other.hosts or ()},
    )
    if len(ours) != len(theirs):
        return f"{first.source} names {len(ours)} hosts, and {other.source} names {len(theirs)}"
    kinds = {parse_address(host) is None for host in ours | theirs}
    if len(kinds) > 1 or ours == theirs:
        return ""
    strangers = sorted(ours - theirs)
    shown = ", ".join(strangers[:4]) + (", ..." if len(strangers) > 4 else "")
    return f"{first.source} names {shown}, which {other.source} does not"
