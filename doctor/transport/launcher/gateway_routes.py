"""ClusterShell's topology.conf: through which gateways each host is reached.

https://clustershell.readthedocs.io/en/latest/tools/clush.html#tree-mode: a line ``gateways: hosts`` of ``[routes]``
names those that reach others by ssh; hosts that no line names are reached directly. The gateways of a line are equal:
hosts are divided among them, and each can stand in for another.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from doctor.engine.texts import filled

if TYPE_CHECKING:
    from ClusterShell.Topology import TopologyTree


class TopologyFileError(Exception):
    """The file cannot be used; the text says why."""


def topology_path(environ: Mapping[str, str]) -> str:
    """The file that clush would read; empty where there is none."""
    home = Path(environ.get("HOME", "/nonexistent"))
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    folders = [Path(environ["CLUSTERSHELL_CFGDIR"])] if environ.get("CLUSTERSHELL_CFGDIR") else []
    folders += [user / "clustershell", Path(sys.prefix, "etc/clustershell"), home / ".local/etc/clustershell"]
    paths = [folder / "topology.conf" for folder in (*folders, Path("/etc/clustershell"))]
    return next((str(path) for path in paths if path.is_file()), "")


class Router:
    """Chooses the gateways to hosts, those with the fewest hosts first; not those that are dead.

    Args:
        path: of the topology.conf.
        hosts: all that will be visited.
        this_name: of this machine, by which the file may name it.
    """

    def __init__(self, path: str, hosts: Sequence[str], this_name: str = "") -> None:
        tree = _read(path, this_name or os.uname().nodename)
        self.root_names = frozenset(map(str, tree.root.nodeset))
        self.dead: dict[str, str] = {}
        """Why each gateway that failed is of no use."""
        self._parents: dict[str, tuple[str, ...]] = {}
        targets, pending = set(hosts), [(group, tree.root) for group in tree.root.children()]
        while pending:
            group, parent = pending.pop()
            above = () if parent is tree.root else tuple(map(str, parent.nodeset))
            inner = bool(group.children())
            self._parents.update((name, above) for name in map(str, group.nodeset) if inner or name in targets)
            pending += [(child, group) for child in group.children()]

    def way(self, host: str, load: dict[str, int], chosen: dict[str, str]) -> tuple[str, ...] | None:
        """The gateways to a host, the nearest to us first; None where all of one level are dead.

        ``load`` counts what each gateway has, ``chosen`` keeps the gateway that leads to each.
        """
        gateways: list[str] = []
        while self._parents.get(host):
            if host not in chosen:
                alive = [name for name in self._parents[host] if self._alive(name)]
                if not alive:
                    return None
                chosen[host] = min(alive, key=lambda name: load.get(name, 0))
                load[chosen[host]] = load.get(chosen[host], 0) + 1
            host = chosen[host]
            gateways.insert(0, host)
        return tuple(gateways)

    def dead_above(self, host: str) -> dict[str, str]:
        """The dead gateways on all ways to a host, and why."""
        names, above = list(self._parents.get(host, ())), dict[str, str]()
        for name in names:
            above.update({name: self.dead[name]} if name in self.dead else {})
            names += [other for other in self._parents.get(name, ()) if other not in names]
        return above

    def _alive(self, name: str) -> bool:
        """Whether a gateway, and one on each level above it, can be used."""
        above = self._parents.get(name, ())
        return name not in self.dead and (not above or any(map(self._alive, above)))


def _read(path: str, this_name: str) -> TopologyTree:
    """The tree below this machine. Raises: TopologyFileError."""
    import configparser

    from ClusterShell.NodeSet import NodeSetException
    from ClusterShell.Topology import TopologyError, TopologyParser

    try:
        with open(path, encoding="utf-8") as file:
            file.read(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a file in the form of ClusterShell 1.6
            parser = TopologyParser(path)
        names = [this_name, this_name.partition(".")[0]]
        return parser.tree(next((name for name in names if _is_source(parser, name)), "") or _top(parser, this_name))
    except OSError as error:
        raise TopologyFileError(filled("{0}: {1}", path, error.strerror)) from None
    except TopologyFileError as error:
        raise TopologyFileError(filled("{0}: {1}", path, str(error))) from None
    except (TopologyError, NodeSetException, configparser.Error, UnicodeDecodeError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise TopologyFileError(filled("{0}: {1}", path, reason)) from None


def _is_source(parser: object, name: str) -> bool:
    return any(name in route.src for route in parser.graph._routing)  # type: ignore[attr-defined]


def _top(parser: object, this_name: str) -> str:
    """The machine above all others, whose part we take: a login node seldom bears the name of the file.

    Raises: TopologyFileError, when there are several.
    """
    routing = parser.graph._routing  # type: ignore[attr-defined]
    top = routing.aggregated_src - routing.aggregated_dst
    tops = {str(route.src) for route in routing if route.src & top}
    if not tops:
        raise TopologyFileError("no route found; expected lines such as admin: gateway[1-2] below [routes]")
    if len(tops) != 1:
        raise TopologyFileError(
            filled("the topology names no machine {0}, and {1} stand above all others", this_name, len(tops))
        )
    return str(next(iter(top)))
