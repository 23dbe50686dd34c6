"""Which hosts to look at: from a node set, a hostfile, a rank table, Slurm, or this host alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.hosts.nodeset import (
    MAX_HOSTS,
    InventoryError,
    canonical_host,
    expand_nodeset,
    printable_excerpt,
    validate_host,
)

__all__ = ["Inventory", "InventoryError", "Options", "take"]

HINT = (
    "to look at more hosts, name them: 'node[01-16]', --hostfile FILE or --rank-table FILE; "
    "in a Slurm job they are found"
)

ReadFile = Callable[[str], str]


class Options(msgspec.Struct, frozen=True):
    """The command line's part; None where an option was not given. An option given empty is an error."""

    hosts: str | None = None
    """HOSTS or ``--hosts``; several are joined with commas."""
    hostfile: str | None = None
    rank_table: str | None = None
    exclude: str | None = None


class Inventory(msgspec.Struct, frozen=True):
    """The hosts of a run."""

    hosts: tuple[str, ...]
    """In the order given."""
    source: str
    """In words: ``64 hosts from SLURM_JOB_NODELIST``."""
    slots: dict[str, int] = {}
    """Ranks per host, where the source says so."""
    local: bool = False
    """Nothing was named: this host alone, without SSH."""
    notes: tuple[str, ...] = ()
    fleet: tuple[str, ...] = ()
    """The names of the whole fleet, where ``hosts`` are only some of it."""


class _Named(msgspec.Struct, frozen=True):
    """Hosts as one source names them."""

    hosts: Sequence[str]
    places: Sequence[str]
    """Of each host, for messages."""
    source: str
    slots: dict[str, int] = {}
    notes: tuple[str, ...] = ()


def take(options: Options, environ: Mapping[str, str], read_file: ReadFile) -> Inventory:
    """The hosts of the first source that is there: the options in their order, then the environment.

    Raises: InventoryError.
    """
    named = _first(options, environ, read_file)
    if named is None:
        alone = _Named(["localhost"], ["this host"], "this host alone", notes=(HINT,))
        return _less(alone, options.exclude, local=True)
    _once(named)
    return _less(named, options.exclude)


def _first(options: Options, environ: Mapping[str, str], read_file: ReadFile) -> _Named | None:
    if options.hosts is not None:
        return _node_set(options.hosts, "the command line")
    if options.hostfile is not None:
        return _hostfile(options.hostfile, read_file)
    if options.rank_table is not None:
        return _rank_table(options.rank_table, read_file)
    if environ.get("DOCTOR_HOSTS"):
        return _node_set(environ["DOCTOR_HOSTS"], "DOCTOR_HOSTS")
    if environ.get("DOCTOR_HOSTFILE"):
        return _hostfile(environ["DOCTOR_HOSTFILE"], read_file, ", named by DOCTOR_HOSTFILE")
    if environ.get("SLURM_JOB_NODELIST"):
        return _node_set(environ["SLURM_JOB_NODELIST"], "SLURM_JOB_NODELIST")
    if environ.get("RANK_TABLE_FILE"):
        return _rank_table(environ["RANK_TABLE_FILE"], read_file, ", named by RANK_TABLE_FILE")
    return None


def _node_set(text: str, source: str) -> _Named:
    hosts = expand_nodeset(text, source)
    return _Named(hosts, [source] * len(hosts), source)


def _hostfile(path: str, read_file: ReadFile, named_by: str = "") -> _Named:
    from doctor.hosts import hostfile

    lines = hostfile.parse_hostfile(_read(path, read_file, "a hostfile"), path)
    notes = [f"{line.location}: not used: {', '.join(line.unused_settings)}" for line in lines if line.unused_settings]
    return _Named(
        [line.host for line in lines],
        [line.location for line in lines],
        f"hostfile {printable_excerpt(path, 200)} ({hostfile.file_form(lines)}){named_by}",
        {line.host: line.slots for line in lines if line.slots is not None},
        tuple(notes[:3]) + ((f"{len(notes) - 3} more lines like that",) if len(notes) > 3 else ()),
    )


def _rank_table(path: str, read_file: ReadFile, named_by: str = "") -> _Named:
    from doctor.job import NotARankTable, read_rank_table

    text, name = _read(path, read_file, "a rank table"), printable_excerpt(path, 200)
    try:
        servers = read_rank_table(path, text).servers
    except NotARankTable as error:
        raise InventoryError(f"{name}: {error}; expected a rank table of version 1.0 or 1.2") from None
    if not servers:
        raise InventoryError(f"{name}: lists no host; expected server_list or group_list with entries")
    places = [f"{name}: {server.path}" for server in servers]
    hosts = [
        validate_host(server.host_ip or server.server_id, place) for server, place in zip(servers, places, strict=True)
    ]
    slots = {host: len(server.ranks) for host, server in zip(hosts, servers, strict=True) if server.ranks}
    return _Named(hosts, places, f"rank table {name}{named_by}", slots)


def _read(path: str, read_file: ReadFile, what: str) -> str:
    try:
        return read_file(path)
    except UnicodeDecodeError:
        why = "is not UTF-8 text"
    except (OSError, ValueError) as error:
        why = printable_excerpt(getattr(error, "strerror", None) or str(error))
    raise InventoryError(f"{printable_excerpt(path, 200)}: {why}; expected {what} that can be read")


def _once(named: _Named) -> None:
    if len(named.hosts) > MAX_HOSTS:
        raise InventoryError(f"{named.source}: names {len(named.hosts)} hosts; expected at most {MAX_HOSTS}")
    first: dict[str, str] = {}
    for host, place in zip(named.hosts, named.places, strict=True):
        if canonical_host(host) in first:
            where = f", first in {first[canonical_host(host)]}" if first[canonical_host(host)] != place else ""
            raise InventoryError(f"{place}: {host} is there twice{where}; expected every host once")
        first[canonical_host(host)] = place


def _less(named: _Named, exclude: str | None, local: bool = False) -> Inventory:
    """The inventory without what ``-x`` excludes."""
    out = {canonical_host(host) for host in expand_nodeset(exclude, "--exclude")} if exclude is not None else set()
    hosts = tuple(host for host in named.hosts if canonical_host(host) not in out)
    source = named.source if local else f"{_count(len(named.hosts))} from {named.source}"
    if not hosts:
        raise InventoryError(f"--exclude: leaves nothing of {source}; expected at least one host")
    strangers = sorted(out - {canonical_host(host) for host in named.hosts})
    notes = named.notes
    if strangers:
        notes += (f"--exclude: not among the hosts: {', '.join(strangers[:8])}{', ...' if len(strangers) > 8 else ''}",)
    if len(hosts) < len(named.hosts):
        source += f", less {len(named.hosts) - len(hosts)} excluded"
    return Inventory(
        hosts, source, {h: n for h, n in named.slots.items() if canonical_host(h) not in out}, local, notes
    )


def without(inventory: Inventory, exclude: str | None) -> Inventory:
    """The inventory less the hosts that ``--exclude`` names. Raises: InventoryError."""
    named = _Named(inventory.hosts, (), inventory.source.partition(" from ")[2], inventory.slots, inventory.notes)
    return _less(named, exclude) if exclude is not None else inventory


def _count(hosts: int) -> str:
    return "1 host" if hosts == 1 else f"{hosts} hosts"
