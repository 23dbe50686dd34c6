"""Lists of hosts, as launchers, schedulers and shells read them. All is pure but `write_node_lists`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from doctor.engine.sanitize import printable_excerpt
from doctor.engine.texts import filled, joined

if TYPE_CHECKING:
    from doctor.preflight.spares import SpareSelection

_FOLDABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*|[0-9][0-9.]*", re.ASCII)
"""What a node set may hold: no IPv6 address."""
_ENDS_IN_NUMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*[0-9]", re.ASCII)
"""What Slurm can fold: it takes no brackets with letters behind them."""


class NodeListError(Exception):
    """One line: why hosts cannot be written in a format, and what was expected."""


def format_plain(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    """One host per line."""
    return "".join(f"{host}\n" for host in hosts)


def format_comma(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    """All hosts on one line, with commas."""
    return ",".join(hosts) + "\n" if hosts else ""


def format_folded(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    """A ClusterShell node set. It has an order of its own: for the inventory's, take another format."""
    return _line(_fold(hosts, _FOLDABLE))


def format_openmpi(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    """Without ``slots`` where they are not known: Open MPI then counts the host's cores."""
    return "".join(f"{host} slots={slots[host]}\n" if slots.get(host) else f"{host}\n" for host in hosts)


def format_deepspeed(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    """A hostfile of DeepSpeed. Raises: NodeListError when the slots of a host are unknown."""
    unknown = [host for host in hosts if not slots.get(host)]
    if unknown:
        raise NodeListError(
            filled("deepspeed needs the slots of {0}; expected --ranks-per-host N", printable_excerpt(unknown[0]))
        )
    return format_openmpi(hosts, slots)


def format_slurm_exclude(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    """As ``sbatch --exclude`` and ``scontrol update ExcNodeList=`` take it."""
    return _line(_fold(hosts, _ENDS_IN_NUMBER, last_only=True))


def format_k8s_cordon(hosts: Sequence[str], slots: Mapping[str, int]) -> str:
    """A shell script that cordons the hosts with kubectl."""
    lines = [f"kubectl cordon {shlex.quote(host)}\n" for host in hosts]
    return "".join(["# Keeps new pods away from these hosts; kubectl uncordon reverts it.\n", *lines]) if hosts else ""


Render = Callable[[Sequence[str], Mapping[str, int]], str]

COMMON_FORMATS: dict[str, Render] = {"plain": format_plain, "comma": format_comma, "folded": format_folded}
NODE_FORMATS: dict[str, Render] = {"openmpi": format_openmpi, "deepspeed": format_deepspeed}
BAD_HOST_FORMATS: dict[str, Render] = {"slurm-exclude": format_slurm_exclude, "k8s-cordon": format_k8s_cordon}
RANK_TABLE = "ranktable"
FORMATS = (*COMMON_FORMATS, *NODE_FORMATS, *BAD_HOST_FORMATS, RANK_TABLE)


def render(node_format: str, hosts: Sequence[str], slots: Mapping[str, int] | None = None, table: str = "") -> str:
    """``hosts`` in a format of `FORMATS`; no hosts are an empty text. ``table``: the reduced rank table itself.

    Raises: NodeListError.
    """
    if node_format == RANK_TABLE:
        if not table:
            raise NodeListError("there is no rank table to reduce; expected --rank-table FILE or RANK_TABLE_FILE")
        return table
    return {**COMMON_FORMATS, **NODE_FORMATS, **BAD_HOST_FORMATS}[node_format](hosts, slots or {})


def format_conflict(node_format: str, nodes: str, bad: str) -> str:
    """Why the format does not fit the requested files, or the empty string."""
    if (node_format in NODE_FORMATS or node_format == RANK_TABLE) and not nodes:
        return filled("--node-format {0} is for the list of healthy hosts; expected --write-nodes FILE", node_format)
    if node_format in BAD_HOST_FORMATS and not bad:
        return filled("--node-format {0} is for the list of bad hosts; expected --write-bad FILE", node_format)
    return ""


class NodeListOptions(Protocol):
    """Options of the node list files."""

    @property
    def write_nodes(self) -> str: ...
    @property
    def write_bad(self) -> str: ...
    @property
    def node_format(self) -> str: ...


def write_node_lists(selection: SpareSelection, options: NodeListOptions) -> list[str]:
    """Writes both files atomically. Returns a line for each that could not be written.

    A format that is for one of the files alone leaves the other plain. The nodes are those to start on: without as
    many as are needed, the file is empty, so that no launcher starts on too few.
    """
    from doctor.session.output_files import write_output

    lines = []
    for option, path, text in _texts(selection, options):
        try:
            write_output(path, text().encode(), mode=0o644)
        except NodeListError as why:
            lines.append(filled("{0} {1}: {2}; it was not written", option, printable_excerpt(path, 200), why))
        except OSError as error:
            lines.append(
                filled(
                    "{0} {1}: {2}; it was not written", option, printable_excerpt(path, 200), error.strerror or error
                )
            )
    return lines


def _texts(selection: SpareSelection, options: NodeListOptions) -> Iterator[tuple[str, str, Callable[[], str]]]:
    form = options.node_format
    if options.write_nodes:
        yield "--write-nodes", options.write_nodes, lambda: _nodes(selection, options.write_nodes, form)
    if options.write_bad:
        bad_host_format = form if form in COMMON_FORMATS or form in BAD_HOST_FORMATS else "plain"
        yield "--write-bad", options.write_bad, lambda: render(bad_host_format, tuple(selection.excluded))


def _nodes(selection: SpareSelection, path: str, form: str) -> str:
    if form == RANK_TABLE:
        return _table(selection, path)
    from doctor.rank_table.build import slots_of

    hosts = selection.hosts if selection.enough else ()
    return render("plain" if form in BAD_HOST_FORMATS else form, hosts, slots_of(selection.run))


def _table(selection: SpareSelection, path: str) -> str:
    """The table for the hosts to start on, once our own checks have passed it. Raises: NodeListError."""
    from doctor.rank_table.build import reduce_verified
    from doctor.rank_table.reduce import ReductionError

    if not selection.enough or not selection.hosts:
        raise NodeListError(joined("; ", selection.obstacles) or "no host is healthy")
    try:
        return render(RANK_TABLE, selection.hosts, table=reduce_verified(selection.run, selection.hosts, path))
    except ReductionError as why:
        raise NodeListError(str(why)) from None


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
