"""What the network test tries: which ports, at which address of each host, between which pairs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Absent, Fact, Unreadable
from doctor.engine.record import HostRecord
from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.gpu import GpuCards
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.pings import DevicePings
from doctor.facts.interfaces import Interfaces, same_address
from doctor.facts.master_address import host_of_master
from doctor.facts.names import HostNames, is_loopback
from doctor.facts.npu import NpuInventory
from doctor.facts.rdma import RdmaPorts
from doctor.facts.socket_peers import FleetSockets
from doctor.facts.switch_neighbours import SwitchNeighbours
from doctor.job import LaunchConfig
from doctor.net.device_trials import HostDevices, devices_of
from doctor.net.host_groups import MAX_GROUPS, HostGroup, group_by, switches_of_topology
from doctor.net.matrix import EPHEMERAL, MAX_PORTS, TestedPort
from doctor.net.prober.listener import IN_UPPER_HALF
from doctor.net.schedule import Schedule, full, quick

ACCELERATORS: tuple[type[Fact], ...] = (NpuInventory, GpuCards, OtherAccelerators)
INPUT_FACTS: tuple[type[Fact], ...] = (Interfaces, HostNames, SwitchNeighbours, *ACCELERATORS)
"""Facts of the first round that the plan is made of."""
DEVICE_FACTS: tuple[type[Fact], ...] = (DeviceAddresses, RdmaPorts)
"""Those that the attempts between accelerators need."""
DEVICE_CHECK = "net-device-path-broken"
"""The check of those attempts."""

Mode = Literal["quick", "full"]


class NetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a network test."""

    mode: Mode = "quick"
    seed: int = 1
    """Of the quick schedule."""
    budget: float = 60.0
    """Seconds for all of it."""
    attempt_seconds: float = 3.5
    """For an answer to one attempt: the kernel sends a lost first packet again after 1 and 3 seconds."""
    speeds: bool = True
    """In mode full: measure latency and throughput."""
    force: bool = False
    """Measure speeds although a job runs on the hosts."""
    devices: bool = True
    """In mode full: have NPUs and RDMA adapters try each other. See `tries_devices`."""
    topology: str = ""
    """The text of Slurm's topology.conf, if there is one."""


class HostEndpoint(msgspec.Struct, frozen=True):
    """Where one host listens."""

    host: str
    addresses: dict[str, str]
    """By purpose of a port; a purpose that is left out is not listened for. Never empty texts."""
    wildcard: tuple[str, ...] = ()
    """Purposes whose listener takes all addresses, as the job's does."""
    held: tuple[str, ...] = ()
    """Every address of the host's interfaces that are no loopback."""
    devices: HostDevices = HostDevices()
    itself: tuple[str, ...] = ()
    """Purposes at which ranks of the host connect to the host itself."""

    def bind_address(self, purpose: str) -> str:
        """What the listener binds: the empty string for all addresses."""
        return "" if purpose in self.wildcard else self.addresses[purpose]


class NetPlan(msgspec.Struct, frozen=True):
    """A network test before it begins. Hosts and ports are numbered by their places."""

    endpoints: tuple[HostEndpoint, ...]
    ports: tuple[TestedPort, ...]
    schedule: Schedule
    left_out: dict[str, str]
    """Hosts that cannot take part, and why."""
    groups: tuple[HostGroup, ...] = ()
    """Hosts on one switch, by topology.conf, else by LLDP, and in one subnet."""
    gloo_places: dict[str, int] = {}
    """Of `FleetSockets`, where Gloo alone carries the job."""

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(endpoint.host for endpoint in self.endpoints)

    def attempts_of(self, host: int) -> Iterator[tuple[int, list[int]]]:
        """Whom a host connects to, itself among them where its ranks do, and on which ports, by their places."""
        to_itself = [place for place, port in enumerate(self.ports) if port.purpose in self.endpoints[host].itself]
        yield from [(host, to_itself)] if to_itself else ()
        yield from self.targets(host)

    def targets(self, host: int) -> Iterator[tuple[int, list[int]]]:
        """Which others a host connects to, in its order, and on which ports, by their places; where one listens."""
        for number, target in self.schedule.partners(host):
            purposes = self.endpoints[target].addresses
            places = [
                place for place in self.schedule.ports_of(host, target, number) if self.ports[place].purpose in purposes
            ]
            yield target, places


def input_facts(options: NetOptions) -> tuple[type[Fact], ...]:
    """Facts of the first round that a test needs, for any selection of checks."""
    return (*INPUT_FACTS, *DEVICE_FACTS) if options.mode == "full" and options.devices else INPUT_FACTS


def tries_devices(checks: Iterable[Check]) -> bool:
    """Whether a check needs what NPUs and RDMA adapters try among themselves, for `NetOptions.devices`."""
    return any(check.name == DEVICE_CHECK for check in checks)


def plan_network_test(records: Mapping[str, HostRecord], launch: LaunchConfig, options: NetOptions) -> NetPlan:
    """The plan for all hosts that were reached, from the facts of the first round."""
    cache = FactCache(records)
    by_host, names = cache.fleet(Interfaces), cache.fleet(HostNames)
    fleet = FleetSockets(by_host, names, launch, cache.fleet(NpuInventory), cache.fleet(GpuCards))
    device_addresses, adapters = cache.fleet(DeviceAddresses), cache.fleet(RdmaPorts)
    pings = cache.fleet(DevicePings)
    chosen = _chosen_addresses(fleet)
    ports = tested_ports(launch, npus=any(inventory.devices for inventory in fleet.npus.values()))
    master = host_of_master([*records], names, by_host, launch)
    endpoints: list[HostEndpoint] = []
    left_out, general_of = dict[str, str](), dict[str, str]()
    for host, record in records.items():
        interfaces = fleet.interfaces.get(host)
        if record.visit.failure or interfaces is None:
            left_out[host] = record.visit.text or "its network interfaces could not be read"
            continue
        default = _default_address(interfaces, record.visit.address)
        addresses = chosen.get(host, {})
        general = next((addresses[library] for library in ("HCCL", "NCCL", "Gloo") if library in addresses), default)
        if not general:
            left_out[host] = "it has no address that another host could reach"
            continue
        general_of[host] = general
        by_purpose = {port.purpose: general for port in ports}
        if "Gloo" in addresses:
            by_purpose.update(dict.fromkeys(EPHEMERAL, addresses["Gloo"]))
        rendezvous = "scheduler" if "scheduler" in by_purpose else "master"
        if master and host != master:
            del by_purpose[rendezvous]
        elif master and interfaces.holder(launch.master_of(host)):
            by_purpose[rendezvous] = launch.master_of(host)
        held = tuple(entry.address for entry in interfaces.addresses if not is_loopback(entry.address))
        devices = devices_of(device_addresses.get(host), adapters.get(host), launch.environ_of(host), pings.get(host))
        to_itself = _purposes_within(fleet, host, (rendezvous,) if host == master else ())
        endpoints.append(HostEndpoint(host, by_purpose, (rendezvous,), held, devices, to_itself))
    schedule = schedule_for(options.mode, len(endpoints), len(ports), options.seed)
    groups = _groups(options.topology, general_of, fleet.interfaces, cache.fleet(SwitchNeighbours))
    places = fleet.gloo_places() if launch.is_gloo_alone(_may_have_accelerators(cache)) else {}
    return NetPlan(tuple(endpoints), ports, schedule, left_out, groups[:MAX_GROUPS], places)


def _may_have_accelerators(cache: FactCache) -> bool:
    """Whether one of the hosts has an accelerator, or it is not known that it has none."""
    facts = (cache.get(host, fact) for host in cache.records for fact in ACCELERATORS)
    return any(isinstance(fact, Unreadable) or not isinstance(fact, Absent) for fact in facts)


def _purposes_within(fleet: FleetSockets, host: str, meeting: tuple[str, ...]) -> tuple[str, ...]:
    """Purposes at which ranks connect to their own host: ``meeting``, and others where it is known to have several."""
    return (*meeting, *(EPHEMERAL if fleet.ranks_on(host) > 1 else ()))


def _groups(
    topology: str,
    address_of: Mapping[str, str],
    interfaces: Mapping[str, Interfaces],
    neighbours: Mapping[str, SwitchNeighbours],
) -> tuple[HostGroup, ...]:
    """The hosts by switch and by subnet, where there are several. ``address_of``: of each host that takes part."""
    subnets = [_subnet(interfaces[host], address) for host, address in address_of.items()]
    switches = [_switch(neighbours.get(host), interfaces[host], address) for host, address in address_of.items()]
    of_topology = switches_of_topology(topology, list(address_of))
    return (
        *(of_topology or (group_by("switch", switches) if len(set(switches)) > 1 else ())),
        *(group_by("subnet", subnets) if len(set(subnets)) > 1 else ()),
    )


def _subnet(interfaces: Interfaces, address: str) -> str | None:
    """The network that one of a host's addresses is in."""
    return next((entry.network for entry in interfaces.addresses if same_address(entry.address, address)), None)


def _switch(neighbours: SwitchNeighbours | None, interfaces: Interfaces, address: str) -> str:
    """The switch behind the interface that holds the address; of a bond, of its ports. Empty: not known."""
    holder = interfaces.holder(address)
    if neighbours is None or holder is None:
        return ""
    ports = [link.name for link in interfaces.links if link.has_master]
    return neighbours.switch_of(holder.interface, [holder.interface.partition(".")[0], *ports])


def schedule_for(mode: str, hosts: int, ports: int, seed: int) -> Schedule:
    """The schedule of a test; the same for the same numbers."""
    return full(hosts, ports, seed=seed) if mode == "full" else quick(hosts, ports, seed)


def tested_ports(launch: LaunchConfig, *, npus: bool) -> tuple[TestedPort, ...]:
    """The host ports of the job: where the ranks meet, HCCL's where there are NPUs, and two that the kernel gives."""
    meeting = TestedPort("scheduler" if launch.framework == "mindspore" else "master", launch.master_port)
    hccl = [number for span in launch.hccl_ports for number in range(span.first, span.last + 1)] if npus else []
    hccl = [number for number in hccl if number != meeting.number][: MAX_PORTS - 3]
    return (meeting, *(TestedPort("hccl", number) for number in hccl), *map(TestedPort, EPHEMERAL))


def _chosen_addresses(fleet: FleetSockets) -> dict[str, dict[str, str]]:
    """By host and library: the address that it takes, where another host can reach it at all."""
    chosen: dict[str, dict[str, str]] = {}
    for choices in fleet.choices:
        for host, choice in choices.items():
            if choice.address and not choice.is_loopback:
                chosen.setdefault(host, {}).setdefault(choice.library, choice.address)
    return chosen


def _default_address(interfaces: Interfaces, reached: str) -> str:
    """The address by which the controller reached the host, else the first that another host may reach."""
    usable = []
    for entry in interfaces.addresses:
        link = interfaces.link(entry.interface)
        if link and link.is_running and not (link.is_loopback or entry.is_link_local or is_loopback(entry.address)):
            usable.append((link.is_container_bridge, entry.address))
    held = [address for _, address in usable if reached and same_address(address, reached)]
    return held[0] if held else min(usable, key=lambda pair: pair[0], default=(False, ""))[1]


def services_of(endpoint: HostEndpoint, ports: Sequence[TestedPort]) -> list[tuple[int, str, int]]:
    """(place of the port, address to bind, number or `IN_UPPER_HALF`) of each listener of a host."""
    return [
        (place, endpoint.bind_address(port.purpose), IN_UPPER_HALF if port.purpose == EPHEMERAL[1] else port.number)
        for place, port in enumerate(ports)
        if port.purpose in endpoint.addresses
    ]
