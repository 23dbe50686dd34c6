from collections import defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.facts.gpu import GpuCards
from doctor.facts.interfaces import Interfaces, export_commands, usable_names
from doctor.facts.limits import RdmaAdapters
from doctor.facts.names import HostNames
from doctor.facts.npu import NpuInventory
from doctor.facts.socket_choice import SocketChoice, interface_state, nccl_choices
from doctor.facts.socket_peers import FleetSockets, fleet_sockets, is_of_daemons, unused_names
from doctor.job import LaunchConfig
from doctor.job.variables import ADDRESSES, HCCL_ADDRESS, OPENMPI_INTERFACES

ONE_HOST = "only one host: any interface of its own will do"


@check(severity=WARNING, area="connectivity", single_host=ONE_HOST)
def interface_doubtful(
    interfaces: PerHost[Interfaces],
    names: PerHost[HostNames],
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    adapters: PerHost[RdmaAdapters] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """No communication library takes an interface that leads only to the host's own containers.

    ## Why it matters
    Such an interface leads to none of the other hosts: docker0, cni0, a bridge of virtual machines, a veth. One host
    cannot determine whether other hosts have a route to its network: without one the job hangs until a timeout, with
    one it runs through a software bridge. A library that chooses for itself may take another interface after the
    next installation of a container engine. Open MPI sends over all interfaces at once: where docker0 has one address
    on all hosts, each connects to itself, and MPI's first message hangs. NCCL without RDMA sends over all interfaces
    that its variable takes, up to 16: one of them that is down on a host, or docker0, is slow or leads nowhere.

    ## What to do
    {exports} `ip -br address` on {host} lists the interfaces; `ip route` shows which one leads to the other hosts.

    ## In a container
    The container of {host} has interfaces of its own. Start it again with the machine's, `docker run --network host`, a
    pod with `hostNetwork: true`; or name the interface of its own that the others reach. {exports}

    ## Source
    HCCL documentation, HCCL_SOCKET_IFNAME; NCCL documentation, NCCL_SOCKET_IFNAME; UCX documentation, UCX_NET_DEVICES;
    Open MPI documentation, btl_tcp_if_include. Interfaces of container engines are recognised by how their names begin
    (docker, br-, virbr, veth, cni, flannel, cali and others); bonds, VLANs, macvlans and bridges of other names are
    network interfaces like any. What Open MPI does is judged by its sources, `opal/mca/btl/tcp` of 4.1 and 5.0 and
    `opal/mca/reachable/weighted`, and measured with 4.1.4 and 5.0; where it depends on the release, on IPv6 in the
    build, or on which host connects first, the verdict is unknown. This verdict can be wrong where the addresses
    behind such a bridge are routed between the hosts, as some Kubernetes networks do; and for Open MPI where the
    program sends nothing by MPI: one whose ranks have MASTER_ADDR, or MindSpore's variables, is not judged.
    """
    if len(interfaces) < 2:
        raise Skip(ONE_HOST)
    fleet = fleet_sockets(interfaces, names, launch, npus, gpus)
    found: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for host, choice in _container_bridges(fleet):
        what = filled("{0} uses {1}, chosen by {2}", choice.library, choice.interface, choice.source)
        found[what, choice.setting, "it leads only to the host's own containers", choice.interface].append(host)
    for host, choice, reason in _further_interfaces(fleet, {host for host, own in (adapters or {}).items() if own}):
        what = filled("{0} uses {1}, chosen by {2}", choice.library, choice.interface, choice.source)
        found[what, choice.setting, reason, choice.interface].append(host)
    traffic = fleet.openmpi_traffic()
    for fault in traffic.faults if traffic else ():
        reason = filled("{0}; a program that sends by MPI hangs or ends", fault.reason)
        what = filled("Open MPI sends over {0}", fault.interface)
        found[what, OPENMPI_INTERFACES[0], reason, fault.interface] += fault.hosts
    for setting in ADDRESSES:
        address = "" if setting == HCCL_ADDRESS and not npus else launch.env.get(setting, "")
        owner = fleet.holder(address) if address and not launch.env_by_host else ""
        if owner:
            others = [host for host in interfaces if host != owner]
            found[
                filled("{0} is {1}", setting, address), setting, filled("it is the address of {0}", owner), address
            ] += others
    for host in interfaces:
        for variable, name in unused_names(fleet.environ(host), interfaces[host]):
            if fleet.uses_openmpi and variable in OPENMPI_INTERFACES:
                continue  # interface-setting-wrong reports it
            found[filled("{0} names {1}", variable, name), variable, "there is no such interface", name].append(host)
    if traffic and not found:
        traffic.raise_doubt()
    for (what, setting, reason, observed), hosts in found.items():
        yield Finding(
            "{what}: {reason}",
            hosts=hosts,
            what=what,
            reason=reason,
            setting=setting,
            observed=observed,
            expected=usable_names(interfaces[hosts[0]]),
            exports=export_commands(setting, interfaces),
        )


def _container_bridges(fleet: FleetSockets) -> Iterator[tuple[str, SocketChoice]]:
    for number, choices in enumerate(fleet.choices):
        if is_of_daemons(choices):
            continue  # interface-unreachable judges them
        errors = {one.host for one in fleet.unreachable(number)}
        for host, choice in choices.items():
            link = fleet.interfaces[host].link(choice.interface)
            if host not in errors and link and link.is_container_bridge:
                yield host, choice


def _further_interfaces(fleet: FleetSockets, with_rdma: set[str]) -> Iterator[tuple[str, SocketChoice, str]]:
    """Where NCCL's sockets send over several interfaces: a bridge among them, and one that is down on a host."""
    hosts = {host: interfaces for host, interfaces in fleet.interfaces.items() if host in fleet.gpus}
    taken = {
        host: choices
        for host, interfaces in hosts.items()
        if host not in with_rdma or fleet.environ(host).get("NCCL_IB_DISABLE") == "1"
        if (choices := nccl_choices(fleet.environ(host), interfaces))
    }
    for host, choices in taken.items():
        for choice in choices[1:]:
            link = hosts[host].link(choice.interface)
            if link and link.is_container_bridge:
                yield host, choice, "it leads only to the host's own containers"
        names = {choice.interface for choice in choices}
        others = {other.interface: other for name, peers in taken.items() if name != host for other in peers}
        for name, choice in others.items():
            state = interface_state(name, hosts[host]) if name not in names else ""
            if state:
                yield host, choice, filled("interface {0} {1} here, and other hosts send over it", name, state)
