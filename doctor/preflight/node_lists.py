"""Lists of hosts, as launchers, schedulers and shells read them. All is pure but `write`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from doctor.hosts.nodeset import shown

if TYPE_CHECKING:
    from doctor.preflight.spares import Choice

_FOLDS = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*|[0-9][0-9.]*", re.ASCII)
"""What a node set may hold: no IPv6 address."""
_ENDS_IN_NUMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*[0-9]", re.ASCII)
"""What Slurm can fold: it takes no brackets with letters behind them."""


class NoNodeFile(Exception):
    """One line: why hosts cannot be written in a format, and what was expected."""


def plain(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    return "".join(f"{host}\n" for host in hosts)


def comma(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    return ",".join(hosts) + "\n" if hosts else ""


def folded(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    """A ClusterShell node set. It has an order of its own: for the inventory's, take another format."""
    return _line(_fold(hosts, _FOLDS))


def openmpi(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    """Without ``slots`` where they are not known: Open MPI then counts the host's cores."""
    return "".join(f"{host} slots={slots[host]}\n" if slots.get(host) else f"{host}\n" for host in hosts)


def deepspeed(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    unknown = [host for host in hosts if not slots.get(host)]
    if unknown:
        raise NoNodeFile(f"deepspeed needs the slots of {shown(unknown[0])}; expected --ranks-per-host N")
    return openmpi(hosts, slots)


def slurm_exclude(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    """As ``sbatch --exclude`` and ``scontrol update ExcNodeList=`` take it."""
    return _line(_fold(hosts, _ENDS_IN_NUMBER, last_only=True))


def k8s_cordon(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    lines = [f"kubectl cordon {shlex.quote(host)}\n" for host in hosts]
    return (
        "".join(["# Keeps new pods away from these hosts; kubectl uncordon takes it back.\n", *lines]) if hosts else ""
    )


Render = Callable[[Sequence[str], Mapping[str, int]], str]

ANY: dict[str, Render] = {"plain": plain, "comma": comma, "folded": folded}
OF_NODES: dict[str, Render] = {"openmpi": openmpi, "deepspeed": deepspeed}
OF_BAD: dict[str, Render] = {"slurm-exclude": slurm_exclude, "k8s-cordon": k8s_cordon}
RANK_TABLE = "ranktable"
FORMATS = (*ANY, *OF_NODES, *OF_BAD, RANK_TABLE)


def render(format: str, hosts: Sequence[str], slots: Mapping[str, int] | None = None, table: str = "") -> str:
    """``hosts`` in a format of `FORMATS`; no hosts are an empty text. ``table``: the reduced rank table itself.

    Raises: NoNodeFile.
    """
    if format == RANK_TABLE:
        if not table:
            raise NoNodeFile("there is no rank table to reduce; expected --rank-table FILE or RANK_TABLE_FILE")
        return table
    return {**ANY, **OF_NODES, **OF_BAD}[format](hosts, slots or {})


def misfit(format: str, nodes: str, bad: str) -> str:
    """Why the format is no use for the files that are asked for, or the empty string."""
    if (format in OF_NODES or format == RANK_TABLE) and not nodes:
        return f"--node-format {format} is for hosts to start on; expected --write-nodes FILE"
    if format in OF_BAD and not bad:
        return f"--node-format {format} is for bad hosts; expected --write-bad FILE"
    return ""


class Wanted(Protocol):
    """What the command line says of the files."""

    @property
    def write_nodes(self) -> str: ...
    @property
    def write_bad(self) -> str: ...
    @property
    def node_format(self) -> str: ...


def write(choice: Choice, wanted: Wanted, done: object = None) -> list[str]:
    """Writes both files whole or not at all. Returns a line for each that could not be written.

    A format that is for one of the files alone leaves the other plain. The nodes are those to start on: without as
    many as are needed, the file is empty, so that no launcher starts on too few.
    """
    from doctor.config.atomic_write import write_whole

    lines = []
    for option, path, text in _texts(choice, wanted):
        try:
            write_whole(path, text().encode(), mode=0o644)
        except NoNodeFile as why:
            lines.append(f"{option} {shown(path, 200)}: {why}; it was not written")
        except OSError as error:
            lines.append(f"{option} {shown(path, 200)}: {error.strerror or error}; it was not written")
    return lines


def _texts(choice: Choice, wanted: Wanted) -> Iterator[tuple[str, str, Callable[[], str]]]:
    form = wanted.node_format
    if wanted.write_nodes:
        yield "--write-nodes", wanted.write_nodes, lambda: _nodes(choice, wanted.write_nodes, form)
    if wanted.write_bad:
        of_bad = form if form in ANY or form in OF_BAD else "plain"
        yield "--write-bad", wanted.write_bad, lambda: render(of_bad, tuple(choice.left_out))


def _nodes(choice: Choice, path: str, form: str) -> str:
    if form == RANK_TABLE:
        return _table(choice, path)
    from doctor.rank_table.from_hosts import slots_of

    hosts = choice.hosts if choice.enough else ()
    return render("plain" if form in OF_BAD else form, hosts, slots_of(choice.run))


def _table(choice: Choice, path: str) -> str:
    """The table for the hosts to start on, once our own checks have passed it. Raises: NoNodeFile."""
    from doctor.rank_table.from_hosts import reduced
    from doctor.rank_table.reduce import NotReduced

    if not choice.enough or not choice.hosts:
        raise NoNodeFile("; ".join(choice.lines) or "no host is healthy")
    try:
        return render(RANK_TABLE, choice.hosts, table=reduced(choice.run, choice.hosts, path))
    except NotReduced as why:
        raise NoNodeFile(str(why)) from None


def _line(parts: Iterable[str]) -> str:
    text = ",".join(parts)
    return text + "\n" if text else ""


def _fold(hosts: Sequence[str], foldable: re.Pattern[str], last_only: bool = False) -> list[str]:
    """Those that can be folded in one node set, then the others."""
    safe = [host for host in hosts if foldable.fullmatch(host)]
    rest = [host for host in hosts if not foldable.fullmatch(host)]
    if len(safe) < 2:
        return safe + rest
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    nodes = NodeSet.fromlist(safe, resolver=RESOLVER_NOGROUP)
    if last_only:
        nodes.fold_axis = [-1]
    return [str(nodes), *rest]
