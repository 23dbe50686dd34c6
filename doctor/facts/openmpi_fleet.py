"""Which connections of Open MPI's own messages fail between the hosts of a job. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from doctor.engine.fact import Unreadable
from doctor.engine.texts import filled
from doctor.facts.interfaces import Interfaces
from doctor.facts.openmpi_sockets import BUILDS, Build, TcpModules, dead_connections, has_carrier, tcp_modules

_MOST_GROUPS = 32
"""Of hosts with the same networks, that are compared with each other."""


class OpenmpiFault(msgspec.Struct, frozen=True):
    """One interface whose connections fail."""

    interface: str
    reason: str
    hosts: tuple[str, ...]


class OpenmpiTraffic(msgspec.Struct, frozen=True):
    """What fails, and what may fail, by Open MPI's release and build."""

    faults: tuple[OpenmpiFault, ...]
    """Where every build has a connection that surely fails: those of the first build."""
    doubt: str
    """Without a fault: why a build may hang all the same; empty where none does."""

    @classmethod
    def of(cls, environs: Mapping[str, Mapping[str, str]], interfaces: Mapping[str, Interfaces]) -> OpenmpiTraffic:
        """The verdict about hosts with these variables and interfaces."""
        has_ipv6 = any(
            entry.is_ipv6 and not entry.is_link_local and entry.interface != "lo"
            for interface in interfaces.values()
            for entry in interface.addresses
        )
        faults: tuple[OpenmpiFault, ...] = ()
        doubts, sound = [], 0
        for build in BUILDS:
            if build.has_ipv6 and not has_ipv6:
                continue
            certain, possible = _faults(build, environs, interfaces)
            faults = faults or certain
            sound += not certain
            if certain or possible:
                first = (certain or possible)[0]
                race = "" if certain else ", unless the peer connects first"
                doubts.append(
                    filled("with {0} {1} does not connect: {2}{3}", build.label, first.interface, first.reason, race)
                )
        if not sound:
            return cls(faults, "")
        return cls((), doubts[0] if doubts else "")

    def raise_doubt(self) -> None:
        """Raises: Unreadable where it depends on Open MPI's build or on which host is first."""
        if self.doubt:
            raise Unreadable(filled("whether a program that sends by MPI hangs cannot be known here: {0}", self.doubt))


def _faults(
    build: Build, environs: Mapping[str, Mapping[str, str]], interfaces: Mapping[str, Interfaces]
) -> tuple[tuple[OpenmpiFault, ...], tuple[OpenmpiFault, ...]]:
    """Those that are certain, and those that depend on which host connects first."""
    modules = {
        host: host_modules
        for host in interfaces
        if (host_modules := tcp_modules(environs[host], interfaces[host], build)) is not None
    }
    groups = list(_alike(modules, interfaces).values())[:_MOST_GROUPS]
    certain: dict[tuple[str, str], list[str]] = {}
    possible: dict[tuple[str, str], list[str]] = {}
    for hosts in groups:
        for others in groups:
            pair = next(((first, other) for first in hosts[:1] for other in others if first != other), None)
            if not pair:
                continue
            host, peer = pair
            sides = (modules[host], interfaces[host], modules[peer], interfaces[peer])
            for dead in dead_connections(*sides, peer, build):
                owners = [host for host in hosts if interfaces[host].link(dead.interface)] or hosts
                (certain if dead.is_certain else possible).setdefault((dead.interface, dead.reason), owners)
    return _as_faults(certain), _as_faults(possible)


def _as_faults(hosts_by_fault: Mapping[tuple[str, str], list[str]]) -> tuple[OpenmpiFault, ...]:
    return tuple(OpenmpiFault(name, reason, tuple(hosts)) for (name, reason), hosts in hosts_by_fault.items())


def _alike(
    modules: Mapping[str, TcpModules], interfaces: Mapping[str, Interfaces]
) -> dict[tuple[object, ...], list[str]]:
    """Hosts whose interfaces are alike: networks, carriers, and the addresses that several hosts have."""
    owners: dict[str, int] = defaultdict(int)
    for host_modules in modules.values():
        for address in {entry.address for module in host_modules.created for entry in module.entries}:
            owners[address] += 1
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for host, host_modules in modules.items():
        entries = [entry for module in host_modules.created for entry in module.entries]
        order = tuple(module.interface for module in host_modules.listed)
        key = [
            (entry.network, has_carrier(interfaces[host], entry.interface))
            + ((entry.address,) if owners[entry.address] > 1 else ())
            for entry in entries
        ]
        groups[order, tuple(key)].append(host)
    return groups
