"""Which hosts a run checks: from a node set, a hostfile, a rank table, the batch scheduler, or this host alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from doctor.engine.bounded_read import ReadFile, refusing_unreadable
from doctor.engine.sanitize import count_noun, first_names, printable_excerpt
from doctor.engine.texts import filled, joined
from doctor.environment.host_list import RunCommand, read_host_lists, run_command
from doctor.hosts import ansible, hostfile
from doctor.hosts.hostfile import HostLine
from doctor.hosts.nodeset import (
    MAX_HOSTS,
    HostLogin,
    InventoryError,
    canonical_host,
    expand_nodeset,
    expand_with_logins,
    validate_host,
)
from doctor.hosts.selection import HostSelection, PodAccess
from doctor.job import NotARankTable, read_rank_table

__all__ = ["HostSelection", "Inventory", "InventoryError", "resolve_hosts", "without"]

HINT = (
    "to check more hosts, name them: 'node[01-16]', --hostfile FILE or --rank-table FILE; "
    "in the job of a batch scheduler they are detected"
)
USER_VARIABLES = ("DOCTOR_HOSTS", "DOCTOR_HOSTFILE")
"""A user's own list of hosts: a node set, or the path of a hostfile. The first that is set counts."""

_MOST_NOTES = 3
_MOST_SHOWN = 8


class Inventory(msgspec.Struct, frozen=True):
    """The hosts of a run."""

    hosts: tuple[str, ...]
    """In the order given."""
    source: str
    """In words: ``64 hosts from SLURM_JOB_NODELIST``."""
    slots: dict[str, int] = {}
    """Ranks per host, where the source states them."""
    local: bool = False
    """Nothing was named: this host alone, without SSH."""
    notes: tuple[str, ...] = ()
    fleet: tuple[str, ...] = ()
    """The names of the whole fleet, where ``hosts`` are only some of it."""
    hosts_unknown: str = ""
    """Why the job may have more hosts than these; empty where it has not, or where the user chose this host alone."""
    logins: dict[str, HostLogin] = {}
    """Of hosts whose list names a user or a port."""
    pods: PodAccess | None = None
    """The way to hosts that are pods of Kubernetes."""

    @property
    def connection_words(self) -> tuple[str, ...]:
        """Options by which another command reaches the same hosts: of pods, and of a login that all hosts have."""
        if self.pods:
            given = [word for word in self.pods.kubectl[1:] if word.startswith(("--kubeconfig=", "--context="))]
            containers = {self.pods.containers.get(host, "") for host in self.hosts} if self.pods.containers else set()
            options = {
                "--namespace": self.pods.namespace,
                "--container": containers.pop() if len(containers) == 1 else "",
                "--node-image": self.pods.node_image,
            }
        else:
            given, logins = [], {self.logins.get(host) for host in self.hosts}
            user, port = (logins.pop() if len(logins) == 1 else None) or ("", 0)
            options = {"-l": user, "-p": str(port or "")}
        return (*given, *(word for option, value in options.items() if value for word in (option, value)))


class _SourceHosts(msgspec.Struct, frozen=True):
    """Hosts as one source names them."""

    hosts: Sequence[str]
    places: Sequence[str]
    """Of each host, for messages."""
    source: str
    slots: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    logins: dict[str, HostLogin] = {}


def resolve_hosts(
    selection: HostSelection, environ: Mapping[str, str], read_file: ReadFile, run: RunCommand = run_command
) -> Inventory:
    """The hosts of the first source that is set: the options in their order, then the environment.

    Raises: InventoryError.

    >>> resolve_hosts(HostSelection(hosts="n1,n2", exclude="n2"), {}, open).source
    '2 hosts from the command line, less 1 excluded'
    """
    source = _first_source(selection, environ, read_file, run)
    if source is None:
        local = _SourceHosts(["localhost"], ["this host"], "this host alone", notes=(HINT,))
        return _excluding(local, selection.exclude, local=True)
    _refuse_repeated(source)
    return _excluding(source, selection.exclude)


def _first_source(
    selection: HostSelection, environ: Mapping[str, str], read_file: ReadFile, run: RunCommand
) -> _SourceHosts | None:
    hosts = selection.nodes if selection.nodes is not None else selection.hosts
    if hosts is not None:
        return _node_set(hosts, "the command line")
    if selection.hostfile is not None:
        return _hostfile(selection.hostfile, read_file, run)
    if selection.rank_table is not None:
        return _rank_table(selection.rank_table, read_file)
    if environ.get("DOCTOR_HOSTS"):
        return _node_set(environ["DOCTOR_HOSTS"], "DOCTOR_HOSTS")
    if environ.get("DOCTOR_HOSTFILE"):
        return _hostfile(environ["DOCTOR_HOSTFILE"], read_file, run, ", named by DOCTOR_HOSTFILE")
    of_batch_job = _of_batch_job(environ, read_file, run)
    if of_batch_job:
        return of_batch_job
    if environ.get("RANK_TABLE_FILE"):
        return _rank_table(environ["RANK_TABLE_FILE"], read_file, ", named by RANK_TABLE_FILE")
    return None


def _of_batch_job(environ: Mapping[str, str], read_file: ReadFile, run: RunCommand) -> _SourceHosts | None:
    from doctor.environment.schedulers import batch_allocation

    allocation = batch_allocation(environ)
    if allocation is None:
        return None
    read = read_host_lists(allocation.host_lists, read_file, run)
    if read.problem:
        expected = "expected the job's list of hosts; without it, name the hosts with --hosts or --hostfile"
        raise InventoryError(filled("{0}: {1}; {2}", allocation.title, read.problem, expected))
    if read.hosts is None:
        return None
    return _SourceHosts(read.hosts, [read.source] * len(read.hosts), read.source, read.slots)


def _node_set(text: str, source: str) -> _SourceHosts:
    hosts, logins = expand_with_logins(text, source)
    return _SourceHosts(hosts, [source] * len(hosts), source, logins=logins)


def _ansible_inventory(path: str, run: RunCommand) -> list[HostLine]:
    try:
        return ansible.parse_inventory(run(ansible.inventory_command(path)), path)
    except OSError as error:
        name, reason = printable_excerpt(path, 200), printable_excerpt(str(error), 200)
        raise InventoryError(filled("{0}: an Ansible inventory, and {1}; expected a hostfile", name, reason)) from None


def _hostfile(path: str, read_file: ReadFile, run: RunCommand, named_by: str = "") -> _SourceHosts:
    text = _read(path, read_file, "a hostfile")
    if ansible.is_ansible_inventory(text, path):
        lines = _ansible_inventory(path, run)
    else:
        lines = hostfile.parse_hostfile(text, path)
    notes = [
        filled("{0}: not used: {1}", line.location, ", ".join(line.unused_settings))
        for line in lines
        if line.unused_settings
    ]
    more = len(notes) - _MOST_NOTES
    return _SourceHosts(
        [line.host for line in lines],
        [line.location for line in lines],
        filled("hostfile {0} ({1}){2}", printable_excerpt(path, 200), hostfile.file_form(lines), named_by),
        {line.host: line.slots for line in lines if line.slots is not None},
        (*notes[:_MOST_NOTES], *((filled("{0} more such lines", more),) if more > 0 else ())),
        {line.host: line.login for line in lines if line.login != HostLogin()},
    )


def _rank_table(path: str, read_file: ReadFile, named_by: str = "") -> _SourceHosts:
    text, name = _read(path, read_file, "a rank table"), printable_excerpt(path, 200)
    try:
        servers = read_rank_table(path, text).servers
    except NotARankTable as error:
        raise InventoryError(filled("{0}: {1}; expected a rank table of version 1.0 or 1.2", name, error)) from None
    if not servers:
        raise InventoryError(filled("{0}: lists no host; expected server_list or group_list with entries", name))
    places = [f"{name}: {server.path}" for server in servers]
    hosts = [
        validate_host(server.host_ip or server.server_id, place) for server, place in zip(servers, places, strict=True)
    ]
    slots = {host: len(server.ranks) for host, server in zip(hosts, servers, strict=True) if server.ranks}
    return _SourceHosts(hosts, places, f"rank table {name}{named_by}", slots)


def _read(path: str, read_file: ReadFile, expected: str) -> str:
    with refusing_unreadable(path, expected, InventoryError):
        return read_file(path)


def _refuse_repeated(source: _SourceHosts) -> None:
    """Raises: InventoryError for a host that is named twice, and for too many hosts."""
    if len(source.hosts) > MAX_HOSTS:
        raise InventoryError(
            filled("{0}: names {1} hosts; expected at most {2}", source.source, len(source.hosts), MAX_HOSTS)
        )
    first: dict[str, str] = {}
    for host, place in zip(source.hosts, source.places, strict=True):
        if canonical_host(host) in first:
            where = (
                filled(", first in {0}", first[canonical_host(host)]) if first[canonical_host(host)] != place else ""
            )
            raise InventoryError(filled("{0}: duplicate host {1}{2}; expected every host once", place, host, where))
        first[canonical_host(host)] = place


def _excluding(source: _SourceHosts, exclude: str | None, local: bool = False) -> Inventory:
    excluded = (
        {canonical_host(host) for host in expand_nodeset(exclude, "--exclude", groups=True)}
        if exclude is not None
        else set()
    )
    hosts = tuple(host for host in source.hosts if canonical_host(host) not in excluded)
    text = source.source if local else filled("{0} from {1}", count_noun(len(source.hosts), "host"), source.source)
    if not hosts:
        raise InventoryError(filled("--exclude: removes all of {0}; expected at least one host", text))
    unknown = sorted(excluded - {canonical_host(host) for host in source.hosts})
    notes = source.notes
    if unknown:
        notes += (filled("--exclude: not in the host list: {0}", first_names(unknown, _MOST_SHOWN)),)
    if len(hosts) < len(source.hosts):
        text = joined("", (text, filled(", less {0} excluded", len(source.hosts) - len(hosts))))
    slots = {host: number for host, number in source.slots.items() if canonical_host(host) not in excluded}
    return Inventory(hosts, text, slots, local, notes, logins=source.logins)


def without(inventory: Inventory, exclude: str | None) -> Inventory:
    """The inventory less the hosts that ``--exclude`` names. Raises: InventoryError."""
    if exclude is None:
        return inventory
    source = inventory.source.partition(" from ")[2]
    return _excluding(
        _SourceHosts(inventory.hosts, (), source, inventory.slots, inventory.notes, inventory.logins), exclude
    )
