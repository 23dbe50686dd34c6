"""Whether the hosts of a job can connect to one another at the addresses that a communication library takes. Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

import msgspec

from doctor.engine.check import once_per_fleet
from doctor.engine.fact import Unreadable
from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import filled
from doctor.facts.gpu import GpuCards
from doctor.facts.interfaces import Interfaces
from doctor.facts.memory import accelerator_count
from doctor.facts.names import HostNames, normalize_host
from doctor.facts.npu import NpuInventory
from doctor.facts.openmpi_fleet import OpenmpiTraffic
from doctor.facts.openmpi_sockets import openmpi_choices
from doctor.facts.socket_choice import (
    SocketChoice,
    gloo_choices,
    hccl_choice,
    mindspore_choice,
    nccl_choice,
    tensorpipe_choice,
)
from doctor.job import LaunchConfig
from doctor.job.variables import GLOO_INTERFACE, HCCL_ADDRESS, MINDSPORE_ADDRESS, OPENMPI_INTERFACES

MAX_NETWORKS = 64
"""Networks of one fleet that are compared with each other; of more, those of the most hosts."""
_TREE_WIDTH = 64
"""Daemons of Open MPI that connect to one other: ``routed_radix``, and PRRTE's ``rml_base_radix``."""


class FleetSockets(msgspec.Struct, frozen=True, dict=True):
    """What is known of all hosts: the input of the choices."""

    interfaces: Mapping[str, Interfaces]
    names: Mapping[str, HostNames]
    launch: LaunchConfig
    npus: Mapping[str, NpuInventory]
    gpus: Mapping[str, GpuCards]

    def environ(self, host: str) -> dict[str, str]:
        return self.launch.environ_of(host)

    @property
    def uses_gloo(self) -> bool:
        """Without an accelerator, and not with MindSpore, gloo is all that there is.

        Ranks of Open MPI may send by MPI alone, where nothing tells them the address of torch's store.
        """
        by_mpi = self.uses_openmpi and not self.launch.master_addr
        nothing_else = not (self.npus or self.gpus or by_mpi) and self.launch.framework != "mindspore"
        return nothing_else or self.launch.is_gloo_alone(True)

    @property
    def uses_openmpi(self) -> bool:
        """The launch line starts the ranks with Open MPI's mpirun, whose messages go over its own connections."""
        return "openmpi" in self.launch.launchers

    @cached_property
    def choices(self) -> list[dict[str, SocketChoice]]:
        """By host, for each library that the job uses; several times for one with several addresses on a host."""
        return list(self._choices())

    def gloo_places(self) -> dict[str, int]:
        """By host, the place of its Gloo address among those of all hosts, the smallest first; of several none."""
        of_gloo = [chosen for chosen in self.choices if any(choice.library == "Gloo" for choice in chosen.values())]
        keys = {host: _key(choice.address) for host, choice in of_gloo[0].items() if choice.address} if of_gloo else {}
        ordered = sorted(keys, key=keys.__getitem__) if len(of_gloo) == 1 else []
        return {host: place for place, host in enumerate(ordered)}

    @cached_property
    def _faults(self) -> dict[int, list[Unreachable]]:
        return {}

    def unreachable(self, number: int) -> list[Unreachable]:
        """The hosts whose address in `choices` keeps the job from starting. Raises: Unreadable."""
        if number not in self._faults:
            self._faults[number] = unreachable(self.choices[number], self.interfaces)
        return self._faults[number]

    def _choices(self) -> Iterator[dict[str, SocketChoice]]:
        yield from self._gloo()
        hosts = self.interfaces
        hccl = {host: self._without_shared_address(host, HCCL_ADDRESS) for host in hosts if host in self.npus}
        yield {host: hccl_choice(environ, hosts[host]) for host, environ in hccl.items()}
        yield {host: nccl_choice(self.environ(host), hosts[host]) for host in hosts if host in self.gpus}
        yield {host: choice for host in hosts for choice in tensorpipe_choice(self.environ(host), hosts[host])}
        for variable in OPENMPI_INTERFACES if self.uses_openmpi else ():
            yield {
                host: choice
                for host in hosts
                for choice in openmpi_choices(self.environ(host), hosts[host])
                if choice.variable == variable
            }
        mindspore = {host: self._without_shared_address(host, MINDSPORE_ADDRESS) for host in hosts}
        yield {host: choice for host in hosts for choice in mindspore_choice(mindspore[host], hosts[host])}

    def openmpi_traffic(self) -> OpenmpiTraffic | None:
        """Over which interfaces Open MPI's messages do not get through.

        None where the job's variables show that the ranks send through torch or MindSpore, and where one interface is
        named, which `choices` have.
        """
        if not self.uses_openmpi or self.launch.framework == "mindspore" or self.launch.master_addr:
            return None
        environs = {host: self.environ(host) for host in self.interfaces}
        named = {
            host
            for host, environ in environs.items()
            for choice in openmpi_choices(environ, self.interfaces[host])
            if choice.variable == OPENMPI_INTERFACES[0]
        }
        if named == set(environs):
            return None
        return OpenmpiTraffic.of(environs, self.interfaces)

    def _gloo(self) -> Iterator[dict[str, SocketChoice]]:
        if not (self.uses_gloo or any(GLOO_INTERFACE in self.environ(host) for host in self.interfaces)):
            return
        by_host = {
            host: gloo_choices(self.environ(host), interfaces, self.names.get(host))
            for host, interfaces in self.interfaces.items()
        }
        for number in range(max(map(len, by_host.values()), default=0)):
            yield {host: choices[number] for host, choices in by_host.items() if number < len(choices)}

    def _without_shared_address(self, host: str, variable: str) -> dict[str, str]:
        """Without the caller's HCCL_IF_IP where it is the address of one of the hosts: each host has its own."""
        environ = self.environ(host)
        address = environ.get(variable, "")
        if address and host not in self.launch.env_by_host and self.holder(address):
            return {name: value for name, value in environ.items() if name != variable}
        return environ

    def ranks_on(self, host: str) -> int:
        """Ranks of one host: as the job is launched, else one an accelerator; 0: not known."""
        stated = self.launch.ranks_per_host
        launched = stated.get(host) if isinstance(stated, Mapping) else stated
        return launched or accelerator_count(self.npus.get(host), self.gpus.get(host))

    def holder(self, address: str) -> str:
        """A host that has the address; empty where none has it, or all have it, such as that of loopback."""
        owners = _holders(self.interfaces).get(normalize_host(address), [])
        return owners[0] if 0 < len(owners) < len(self.interfaces) else ""


@once_per_fleet
def fleet_sockets(
    interfaces: Mapping[str, Interfaces],
    names: Mapping[str, HostNames],
    launch: LaunchConfig,
    npus: Mapping[str, NpuInventory] | None,
    gpus: Mapping[str, GpuCards] | None,
) -> FleetSockets:
    """The same object for all checks."""
    return FleetSockets(interfaces, names, launch, npus or {}, gpus or {})


@once_per_fleet
def _holders(interfaces: Mapping[str, Interfaces]) -> dict[str, list[str]]:
    return lists_by_key(
        (address, host)
        for host, entry in interfaces.items()
        for address in {normalize_host(address.address) for address in entry.addresses}
    )


def decided_by_rank_table(choice: SocketChoice, launch: LaunchConfig) -> bool:
    """With a rank table HCCL takes the hosts' addresses from it, unless a variable is set."""
    return choice.library == "HCCL" and not choice.variable and bool(launch.rank_table_path)


class Unreachable(msgspec.Struct, frozen=True):
    """An address that other hosts cannot connect to."""

    host: str
    choice: SocketChoice
    reason: str
    kind: str
    """loopback, shared, family, carrier or route."""


def unreachable(chosen: Mapping[str, SocketChoice], interfaces: Mapping[str, Interfaces]) -> list[Unreachable]:
    """The hosts whose address keeps a job of these hosts from starting.

    Gloo connects each pair of ranks once, from the rank with the greater address to that with the smaller one; a
    loopback address that only its own host would have to reach does no harm. In the other libraries any host may
    connect to any other; of Open MPI's daemons most connect to that of mpirun alone.

    Raises: Unreadable when nothing is wrong but for what depends on rules for policy routing, on the router of a
    default route, or on Open MPI's release. Measured with PyTorch 2.13, where a host takes the address of a bridge of
    its own and the other has a default route alone: Gloo fails, or runs where the router has a route to that bridge.
    """
    used = {host: choice for host, choice in chosen.items() if choice.address}
    if len(used) < 2:
        return []
    faults = [*_families(used), *_loopback(used), *_shared(used, interfaces), *_without_carrier(used, interfaces)]
    faults += _link_local(used, interfaces)
    blamed = {fault.host for fault in faults}
    rest = {host: choice for host, choice in used.items() if host not in blamed and not choice.is_loopback}
    faults += _routes(rest, interfaces)
    return _of_daemons(faults, used, interfaces) if is_of_daemons(used) else faults


def is_of_daemons(chosen: Mapping[str, SocketChoice]) -> bool:
    """The choices are those of Open MPI's daemons, not of its ranks."""
    return any(choice.variable == OPENMPI_INTERFACES[1] for choice in chosen.values())


def _of_daemons(
    faults: Sequence[Unreachable], used: Mapping[str, SocketChoice], interfaces: Mapping[str, Interfaces]
) -> list[Unreachable]:
    """The faults of the hosts that others connect to: mpirun's, taken for the first, and those within its tree.

    A daemon listens at all addresses, and announces those of its list. Each connects to the one above it, of up to 64
    others to mpirun's; with 4.1 from any address, with 5 from one of its own list (measured: 4.1.4 and 5.0.11, where
    mpirun hangs). Sources: Open MPI 4.1,
    ``orte/mca/oob/tcp`` (``oob_tcp_component.c``, ``oob_tcp_listener.c``) and ``orte/mca/routed/radix``; PRRTE,
    ``src/rml/oob`` (``oob_tcp_connection.c``: ``bind``) and ``src/rml/routed_radix.c``.

    Raises: Unreadable where the addresses of other hosts alone have a fault.
    """
    above = list(interfaces)[: max(1, -(-(len(interfaces) - 1) // _TREE_WIDTH))]
    certain = [fault for fault in faults if fault.host in above]
    for host in above if not certain else ():
        address = used[host].address if host in used else ""
        others = {name: interface for name, interface in interfaces.items() if name in used and address}
        lost = [name for name, interface in others.items() if interface.leads_to(address) is False]
        if lost:
            reason = filled("{0} has no route to {1} of {2}", lost[0], address, host)
            alone = [fault for fault in faults if fault.host in lost]
            certain += alone or [Unreachable(host, used[host], reason, "route")]
    if faults and not certain:
        first = faults[0]
        raise Unreadable(
            filled(
                "Open MPI 5 starts no daemon on {0}, whose {1} it connects from ({2}); Open MPI 4.1 does, "
                "unless mpirun runs there",
                first.host,
                first.choice.interface,
                first.reason,
            )
        )
    return certain


@lru_cache(maxsize=1 << 16)
def _key(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def _connects(to: SocketChoice, by: SocketChoice) -> bool:
    return to.library != "Gloo" or _key(by.address) >= _key(to.address)


def _families(used: Mapping[str, SocketChoice]) -> Iterator[Unreachable]:
    versions = {host: 6 if ":" in choice.address else 4 for host, choice in used.items()}
    count = Counter(versions.values())
    if len(count) < 2:
        return
    least = min(count.values())
    for host, version in versions.items():
        if count[version] == least:
            yield Unreachable(
                host, used[host], filled("it is an IPv{0} address; others are IPv{1}", version, 10 - version), "family"
            )


def _loopback(used: Mapping[str, SocketChoice]) -> Iterator[Unreachable]:
    inside = [host for host, choice in used.items() if choice.is_loopback]
    greatest = max(
        ((_key(choice.address), host) for host, choice in used.items() if host not in inside), default=(b"", "")
    )
    for host in inside:
        harmed = len(inside) > 1 or used[host].library != "Gloo" or greatest[0] > _key(used[host].address)
        if harmed:
            yield Unreachable(host, used[host], "each host would connect to itself", "loopback")


def _shared(used: Mapping[str, SocketChoice], interfaces: Mapping[str, Interfaces]) -> Iterator[Unreachable]:
    owners = _holders(interfaces)
    users = lists_by_key(
        (normalize_host(choice.address), host) for host, choice in used.items() if not choice.is_loopback
    )
    for address, hosts in users.items():
        taken = set(hosts)
        others = [host for host in owners.get(address, ()) if host not in taken and host in used]
        harmed = len(hosts) > 1 or any(_connects(used[hosts[0]], used[other]) for other in others)
        if harmed:
            reason = filled("{0} hosts have this address", len({*owners.get(address, ()), *hosts}))
            yield from (Unreachable(host, used[host], reason, "shared") for host in hosts)


def _link_local(used: Mapping[str, SocketChoice], interfaces: Mapping[str, Interfaces]) -> Iterator[Unreachable]:
    """Gloo announces the number of its own interface with such an address. Measured with PyTorch 2.13: hosts connect
    where their interfaces have the same number, and else do not.
    """
    links = {host: interfaces[host].link(choice.interface) for host, choice in used.items() if host in interfaces}
    numbers = {link.index if link else 0 for link in links.values()}
    for host, choice in used.items() if len(numbers) != 1 or 0 in numbers else ():
        if choice.library == "Gloo" and ipaddress.ip_address(choice.address).is_link_local and ":" in choice.address:
            yield Unreachable(host, choice, "it is a link-local address, which has no meaning on other hosts", "family")


def _without_carrier(used: Mapping[str, SocketChoice], interfaces: Mapping[str, Interfaces]) -> Iterator[Unreachable]:
    """An interface that is down loses its address; one without a carrier still has the route to its network."""
    networks = {host: entry.network for host in used if (entry := interfaces[host].holder(used[host].address))}
    members = Counter(networks.values())
    for host, choice in used.items():
        link = interfaces[host].link(choice.interface)
        if link is None or link.is_loopback or link.is_running or choice.is_loopback:
            continue
        if not link.is_up:
            yield Unreachable(host, choice, filled("interface {0} is down", link.name), "carrier")
        elif members[networks.get(host, "")] > 1:
            yield Unreachable(host, choice, filled("interface {0} has no carrier", link.name), "carrier")


def _routes(used: Mapping[str, SocketChoice], interfaces: Mapping[str, Interfaces]) -> list[Unreachable]:
    groups = _networks(used, interfaces)
    of_daemons = is_of_daemons(used)
    faults: dict[str, Unreachable] = {}
    doubt = ""
    for host, hosts, peer, peers in _unsure_pairs(groups, used, interfaces):
        leads = interfaces[host].leads_to(used[peer].address)
        if leads is None:
            doubt = doubt or filled(
                "whether {0} has a route to {1} depends on policy routing", host, used[peer].address
            )
        elif interfaces[host].relies_on_router(used[peer].address) and interfaces[peer].is_off_default_route(
            used[peer].address
        ):
            doubt = doubt or filled(
                "whether {0} reaches {1} ({2} of {3}) depends on the router of its default route: try it "
                "with `doctor net`",
                host,
                used[peer].address,
                used[peer].interface,
                peer,
            )
        elif not leads:
            way_back = not of_daemons and bool(interfaces[peer].leads_to(used[host].address))
            for end in _at_fault((host, hosts), (peer, peers), way_back):
                if end not in faults:
                    reason = filled("{0} has no route to {1} of {2}", host, used[peer].address, peer)
                    faults[end] = Unreachable(end, used[end], reason, "route")
    if doubt and not faults:
        raise Unreadable(doubt)
    return list(faults.values())


def _unsure_pairs(
    groups: Mapping[str, Sequence[str]], used: Mapping[str, SocketChoice], interfaces: Mapping[str, Interfaces]
) -> Iterator[tuple[str, Sequence[str], str, Sequence[str]]]:
    """Host and peer, each with the hosts of its network, where the one connects to the other and may not reach it.

    Of another network the hosts with the least and the greatest address are tried; hosts with equal routes are alike.
    """
    ends = {network: (min(hosts, key=lambda h: _key(used[h].address)), max(hosts, key=lambda h: _key(used[h].address)))
            for network, hosts in groups.items()}  # fmt: skip
    for network, hosts in groups.items():
        alike = {interfaces[host].targets: host for host in hosts}
        for other, peers in ends.items():
            unsure = {
                targets
                for targets, host in alike.items()
                if other != network and not all(interfaces[host].surely_leads_to(used[peer].address) for peer in peers)
            }
            for host in hosts if unsure else ():
                for peer in dict.fromkeys(peers) if interfaces[host].targets in unsure else ():
                    if _connects(used[peer], used[host]):
                        yield host, hosts, peer, groups[other]


def _at_fault(source: tuple[str, Sequence[str]], target: tuple[str, Sequence[str]], way_back: bool) -> list[str]:
    """The host in the network of fewer hosts; of two alike the one without a route, or both where neither has one."""
    (host, hosts), (peer, peers) = source, target
    if len(hosts) != len(peers):
        return [host if len(hosts) < len(peers) else peer]
    return [host] if way_back else [host, peer]


def _networks(used: Mapping[str, SocketChoice], interfaces: Mapping[str, Interfaces]) -> dict[str, Sequence[str]]:
    """The hosts of each network, the network of the most hosts first."""
    groups: dict[str, list[str]] = defaultdict(list)
    for host, choice in used.items():
        entry = interfaces[host].holder(choice.address)
        if entry and not entry.is_link_local:
            groups[entry.network].append(host)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return dict(ordered[:MAX_NETWORKS])


def unused_names(environ: Mapping[str, str], interfaces: Interfaces) -> Iterator[tuple[str, str]]:
    """Variable and name of each interface that UCX or Open MPI is to use, and the host does not have.

    UCX goes on without it. Open MPI ends, where the job uses it at all: see `openmpi_choices`.
    """
    for variable in (*OPENMPI_INTERFACES, "UCX_NET_DEVICES"):
        for name in filter(None, environ.get(variable, "").split(",")):
            is_device = variable.startswith("UCX") and (":" in name or name == "all")
            if not (is_device or "/" in name or interfaces.link(name)):
                yield variable, name
