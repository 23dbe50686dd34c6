"""Groups of hosts that share a part of the network: a switch, a rack, a subnet, a plane. Pure.

Groups are given as data: what each host's LLDP neighbour is, its subnet, or Slurm's topology.conf; or they are read
from the matrix itself, the parts of a fleet that is cut. They decide nothing by themselves; they let many failures
between two of them be one cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from doctor.engine.bounded_read import read_bounded_text
from doctor.engine.errors import InputError
from doctor.engine.grouping import all_reached, lists_by_key
from doctor.engine.pairwise_blame import folded
from doctor.engine.sanitize import printable, strip_control_chars
from doctor.engine.texts import filled
from doctor.net.grid import Grid, mask_of, members

MAX_GROUPS = 512
MAX_CONF_BYTES = 1 << 20
MAX_SWITCHES = 2048
"""Lines that are read: each may lead to all others."""
PART = "hosts"
"""The kind of a part that the matrix itself shows: its hosts reach each other, and no other host."""
_LABELS = {"host": "host {0}", PART: "hosts {0}", "subnet": "subnet {0}", "switch": "switch {0}"}
"""By kind: a group in a sentence, so that its kind is translated."""
MOST_PARTS, MOST_PATTERNS = 16, 16
"""Parts of one port, and ports that connect the hosts differently: what is cut into more pieces is no cut."""
_EXPANSION_LIMIT, _MOST_NAMES = 10_000, 200_000
"""Names of one node set, and of all of a file: what stands behind is left out."""


class HostGroup(msgspec.Struct, frozen=True):
    """Hosts that share something."""

    kind: str
    """``switch``, ``rack``, ``subnet``, ``plane``, `PART`."""
    name: str
    hosts: tuple[int, ...]
    """By their place in the matrix, in order."""

    @property
    def label(self) -> str:
        return filled(_LABELS.get(self.kind, "{1} {0}"), self.name, self.kind)


def group_by(kind: str, names: Sequence[str | None]) -> tuple[HostGroup, ...]:
    """The groups of one kind, from a name for each host; None where it is not known. A group has two hosts at least.

    >>> [(group.label, group.hosts) for group in group_by("switch", ["leaf1", "leaf1", None, "leaf2"])]
    [('switch leaf1', (0, 1))]
    """
    members = lists_by_key((strip_control_chars(name, 60), host) for host, name in enumerate(names) if name)
    groups = [HostGroup(kind, name, tuple(hosts)) for name, hosts in members.items() if len(hosts) > 1]
    return tuple(groups[:MAX_GROUPS])


def switches_of_topology(text: str, hosts: Sequence[str]) -> tuple[HostGroup, ...]:
    """The switches of Slurm's topology.conf that two or more of ``hosts`` hang from, the lowest first.

    Lines are ``SwitchName=leaf1 Nodes=node[1-8]`` and ``SwitchName=spine Switches=leaf[1-4]``; names and options do not
    depend on case. What is not understood is left out. Source: https://slurm.schedmd.com/topology.conf.html

    >>> [group.label for group in switches_of_topology("SwitchName=s0 Nodes=n[0-1]", ["n0", "n1", "n2"])]
    ['switch s0']
    """
    places = {name.lower(): place for place, name in enumerate(hosts)}
    direct: dict[str, set[int]] = {}
    below: dict[str, set[str]] = {}
    left = _MOST_NAMES
    for fields in islice(_switch_lines(text), MAX_SWITCHES):
        name = fields["switchname"]
        nodes, switches = _expanded(fields.get("nodes", "")), _expanded(fields.get("switches", ""))
        direct.setdefault(name, set()).update(places[node.lower()] for node in nodes if node.lower() in places)
        below.setdefault(name, set()).update(switches)
        left -= len(nodes) + len(switches)
        if left < 0:
            break
    groups: list[HostGroup] = []
    for name in direct:
        members = set[int]().union(*(direct.get(switch, set()) for switch in all_reached([name], below)))
        if 1 < len(members) < len(hosts):
            groups.append(HostGroup("switch", printable(name, 60), tuple(sorted(members))))
    return tuple(sorted(groups, key=lambda group: (len(group.hosts), group.hosts))[:MAX_GROUPS])


def _switch_lines(text: str) -> Iterator[dict[str, str]]:
    for line in text[:MAX_CONF_BYTES].splitlines():
        assignments = (word.partition("=") for word in line.partition("#")[0].split())
        fields = {key.lower(): value for key, _, value in assignments}
        if fields.get("switchname"):
            yield fields


def _expanded(text: str) -> list[str]:
    """The names of a node set, by ClusterShell; nothing where it is none, or names a great many."""
    if not text or not re.fullmatch(r"[\w.,\[\]-]+", text) or re.search(r"[0-9]{7}", text):
        return []
    if "[" not in text:
        return [name for name in text.split(",") if name]
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        nodes = NodeSet(text)
        return [str(node) for node in nodes] if len(nodes) <= _EXPANSION_LIMIT else []
    except NodeSetException:
        return []


def partitions(opened: Grid, ports: Iterable[int]) -> list[list[int]]:
    """How the hosts hang together on each of ``ports``, as masks; each division once.

    Two hosts are in one part where attempts that worked lead from each of them to the other, be it by way of others
    (the strongly connected components); so a part is seen where a sample of the pairs was tried, and where the cut lets
    one direction through.
    """
    patterns = {tuple(opened.rows[port]): port for port in ports}
    return [
        list(_components(opened.rows[port], opened.by_target[port])) for port in list(patterns.values())[:MOST_PATTERNS]
    ]


def connected_parts(divisions: Iterable[Sequence[int]], hosts: Sequence[str]) -> tuple[HostGroup, ...]:
    """The parts of a fleet that is cut, in any of its ``partitions``: the largest sets in which all reach each other.

    A host for itself is no part, nor is what holds all hosts.

    >>> [part.label for part in connected_parts([[0b0011, 0b1100]], ["n1", "n2", "n3", "n4"])]
    ['hosts n[1-2]', 'hosts n[3-4]']
    """
    parts: dict[int, None] = {}
    for division in divisions:
        masks = [mask for mask in division if mask.bit_count() > 1]
        if 1 < len(masks) <= MOST_PARTS:
            parts.update(dict.fromkeys(masks))
    return tuple(_part(mask, hosts) for mask in parts)


def parts_without_majority(masks: Sequence[int], hosts: Sequence[str]) -> tuple[HostGroup, ...]:
    """All parts of a fleet that is cut into three or more, where no part holds more than half of the hosts; else none.

    A host for itself is a part like the others: that it is alone says nothing against it.

    >>> [part.label for part in parts_without_majority([0b00011, 0b01100, 0b10000], ["n1", "n2", "n3", "n4", "n5"])]
    ['hosts n[1-2]', 'hosts n[3-4]', 'host n5']
    >>> parts_without_majority([0b00111, 0b01000, 0b10000], ["n1", "n2", "n3", "n4", "n5"])
    ()
    """
    sizes = [mask.bit_count() for mask in masks]
    is_cut = 2 < len(masks) <= MOST_PARTS and 2 < 2 * max(sizes) <= sum(sizes)
    return tuple(_part(mask, hosts) for mask in masks) if is_cut else ()


def _part(mask: int, hosts: Sequence[str]) -> HostGroup:
    places = tuple(members(mask))
    return HostGroup(PART if len(places) > 1 else "host", folded([hosts[host] for host in places]), places)


def _components(rows: Sequence[int], by_target: Sequence[int]) -> Iterator[int]:
    """The strongly connected components of a graph, as masks; rows and columns are masks of neighbours."""
    waiting = mask_of(range(len(rows)))
    while waiting:
        start = waiting & -waiting
        mask = _reached(start, rows, waiting) & _reached(start, by_target, waiting)
        waiting &= ~mask
        yield mask


def _reached(start: int, rows: Sequence[int], within: int) -> int:
    reached = frontier = start
    while frontier:
        ahead = 0
        for host in members(frontier):
            ahead |= rows[host]
        frontier = ahead & within & ~reached
        reached |= frontier
    return reached


FILE = "topology.conf"
FOLDER = "/etc/slurm"


def topology_of(path: Path) -> str:
    """The text of the file that a user named. Raises: InputError."""
    try:
        return read_bounded_text(path, MAX_CONF_BYTES)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "is not text"
        raise InputError(filled("--topology {0}: {1}; expected Slurm's topology.conf", path, why)) from None


def slurm_topology(environ: Mapping[str, str]) -> str:
    """The text of the file beside slurm.conf, which SLURM_CONF names; empty where there is none.

    Source: https://slurm.schedmd.com/slurm.conf.html (SLURM_CONF), https://slurm.schedmd.com/topology.conf.html
    """
    named = environ.get("SLURM_CONF", "")
    folder = Path(named).parent if named else Path(FOLDER)
    try:
        return read_bounded_text(folder / FILE, MAX_CONF_BYTES)
    except (OSError, ValueError):
        return ""
