"""The hosts of a job, and where two sources of them disagree. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from doctor.engine.bounded_read import ReadFile
from doctor.engine.sanitize import first_names, printable
from doctor.engine.texts import filled, joined
from doctor.environment.host_list import HostList, JobHosts, RunCommand, in_files, read_host_lists, run_command
from doctor.environment.inventory import USER_VARIABLES, HostSelection, resolve_hosts
from doctor.environment.launchers import launchers
from doctor.environment.mounted_rank_table import MountedRankTable
from doctor.environment.scheduler import Allocation
from doctor.environment.variables import EnvironmentVariables
from doctor.hosts.nodeset import InventoryError, canonical_host
from doctor.job import parse_address


def find_job_hosts(
    environ: Mapping[str, str],
    read_file: ReadFile,
    allocation: Allocation | None,
    table: MountedRankTable | None,
    run: RunCommand = run_command,
) -> JobHosts:
    """The user's own variables win, then the scheduler's list, a launcher's hostfile, the rank table.

    All sources are compared.
    """
    of_user = [_from_variable({name: environ[name]}, read_file) for name in USER_VARIABLES if name in environ][:1]
    of_user = [msgspec.structs.replace(hosts, is_of_user=True) for hosts in of_user]
    of_scheduler = [_from_lists(allocation.host_lists, read_file, run)] if allocation else []
    of_launcher = []
    if not any(hosts.hosts or hosts.error for hosts in of_scheduler):
        of_launcher = [_from_lists(launcher_hostfiles(environ), read_file, run)]
    other_sources = any(hosts.hosts or hosts.error for hosts in (*of_user, *of_scheduler, *of_launcher))
    of_table = [_from_table(table)] if table and (table.content or not other_sources) else []
    sources = [hosts for hosts in (*of_user, *of_scheduler, *of_launcher, *of_table) if hosts.hosts or hosts.error]
    usable = [source for source in sources if source.hosts]
    conflicts = [_difference(first, second) for first, second in pairwise(usable)]
    if allocation and of_scheduler:
        conflicts.append(_wrong_count(allocation, of_scheduler[0]))
    problems = [hosts.problem for hosts in (*of_scheduler, *of_launcher) if hosts.problem]
    chosen = sources[0] if sources else JobHosts(problem=joined("; ", problems))
    return msgspec.structs.replace(chosen, conflicts=tuple(text for text in conflicts if text))


def _from_variable(environ: Mapping[str, str], read_file: ReadFile) -> JobHosts:
    try:
        inventory = resolve_hosts(HostSelection(), environ, read_file)
    except InventoryError as error:
        return JobHosts(error=str(error))
    return JobHosts(inventory.hosts, inventory.source.partition(" from ")[2], inventory.slots)


def launcher_hostfiles(environ: Mapping[str, str]) -> list[HostList]:
    """The default hostfiles of launchers, as their variables name them."""
    variables = EnvironmentVariables(environ)
    names = [name for launcher in launchers() for name in launcher.hostfiles]
    return in_files(variables, *names, ranks=True)


def _from_lists(lists: Sequence[HostList], read_file: ReadFile, run: RunCommand) -> JobHosts:
    try:
        return read_host_lists(lists, read_file, run)
    except InventoryError as error:
        return JobHosts(error=str(error))


def _from_table(table: MountedRankTable) -> JobHosts:
    """A table that is not complete names no hosts yet: that is no error, and is waited for."""
    if table.error:
        return JobHosts(
            error=filled("rank table {0}: {1}; expected one that can be read", printable(table.path), table.error)
        )
    if table.is_pending:
        return JobHosts()
    hosts = _from_variable({"RANK_TABLE_FILE": table.path}, lambda path: table.text)
    named_by = filled(", named by {0}", table.variable) if table.variable else ""
    source = f"rank table {printable(table.path)}{named_by}"
    return msgspec.structs.replace(hosts, source=source) if hosts.hosts else hosts


def _wrong_count(allocation: Allocation, hosts: JobHosts) -> str:
    if not hosts.hosts or allocation.node_count in (None, len(hosts.hosts)):
        return ""
    return filled("the job has {0} hosts, and {1} names {2}", allocation.node_count, hosts.source, len(hosts.hosts))


def _difference(first: JobHosts, second: JobHosts) -> str:
    """Names are compared with names alone: a host may have its address in one source and its name in the other."""
    listed, others = (
        {canonical_host(host) for host in first.hosts or ()},
        {canonical_host(host) for host in second.hosts or ()},
    )
    if len(listed) != len(others):
        return filled("{0} names {1} hosts, and {2} names {3}", first.source, len(listed), second.source, len(others))
    are_names = {parse_address(host) is None for host in listed | others}
    if len(are_names) > 1 or listed == others:
        return ""
    absent = sorted(listed - others)
    return filled("{0} names {1}, which {2} does not", first.source, first_names(absent), second.source)
