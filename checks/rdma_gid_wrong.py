from collections.abc import Iterator, Mapping

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.analysis.majority import tied
from doctor.engine.grouping import lists_by_key
from doctor.facts.interfaces import Interfaces
from doctor.facts.rdma import ROCE_V2, RdmaPort, RdmaPorts, chosen_ports
from doctor.job import LaunchConfig

NETWORKS = ("interfaces",)
"""Whether the ports of the hosts are in one subnet."""


@check(severity=ERROR, area="addresses", advisory=NETWORKS)
def rdma_gid_wrong(
    adapters: PerHost[RdmaPorts], interfaces: PerHost[Interfaces] | None, launch: LaunchConfig
) -> Iterator[Finding]:
    """NCCL_IB_GID_INDEX names an address of one kind, which can be routed where it must, on every RoCE port of NCCL.

    ## Why it matters
    The connection between two ranks fails or times out where the index has no address, or one of another kind:
    `ibv_modify_qp failed`, `Got completion with error 12`. The order of the addresses depends on when the interface got
    them, and in a container only those of its own network namespace can be used.

    ## What to do
    On {host}: `show_gids` lists the addresses. In the job's script: `unset NCCL_IB_GID_INDEX`; from NCCL 2.21 on the
    address is found by NCCL_IB_ADDR_FAMILY and NCCL_IB_ROCE_VERSION_NUM. With an older NCCL, take down {interface} and
    up again, so that its IPv4 address gets the usual index.

    ## Source
    NCCL User Guide, NCCL_IB_GID_INDEX; NVIDIA/nccl issues 426, 551 and 769; `gids` and `gid_attrs/types` of
    /sys/class/infiniband/NAME/ports: the type of an address in another network namespace cannot be read. RoCE v1 frames
    are no IP packets, and link-local addresses (fe80) are not routed (RFC 4291): both are wrong only where the ports of
    the hosts share no IPv4 subnet.
    """
    chosen: dict[str, dict[str, tuple[RdmaPort, int]]] = {}
    for host, own in adapters.items():
        env = launch.environ_of(host)
        index = env.get("NCCL_IB_GID_INDEX", "")
        if not index.isdecimal() or env.get("NCCL_IB_DISABLE") == "1":
            continue
        names = chosen_ports(env["NCCL_IB_HCA"], own.ports)[0] if env.get("NCCL_IB_HCA") else tuple(own.ports)
        for name in names:
            port = own.ports[name]
            if port.is_active and port.layer == "Ethernet":
                chosen.setdefault(name, {})[host] = (port, int(index[:6]))
    if not chosen:
        raise Skip("NCCL_IB_GID_INDEX is not set, or no RoCE port is active")
    for name, ports in chosen.items():
        kinds = {host: _kind(port, index) for host, (port, index) in ports.items()}
        groups = lists_by_key((kind, host) for host, kind in kinds.items() if kind)
        usual = max(groups, key=lambda kind: len(groups[kind]), default="")
        norm = usual if usual and len(groups[usual]) > len(kinds) / 2 else ""
        for host, kind in kinds.items():
            if not kind or (norm and kind != norm):
                yield Finding(
                    "index {index} of {port} is {observed}; expected {expected}",
                    hosts=[host],
                    index=ports[host][1],
                    port=name,
                    interface=ports[host][0].interface or "the interface",
                    observed=kind or "no address of this network namespace",
                    expected=norm or "an address",
                )
        if len(groups) > 1 and not norm:
            interface = next(iter(ports.values()))[0].interface or "the interface"
            yield tied(dict(sorted(groups.items())), port=name, interface=interface)
        yield from _unroutable(name, ports, interfaces or {})


def _unroutable(
    name: str, ports: dict[str, tuple[RdmaPort, int]], interfaces: Mapping[str, Interfaces]
) -> Iterator[Finding]:
    """Ports in several subnets whose index names RoCE v1 or a link-local address, which no router passes on."""
    networks = {
        host: interfaces[host].networks_of(port.interface) for host, (port, _) in ports.items() if host in interfaces
    }
    if len(networks) < len(ports) or not all(networks.values()) or set.intersection(*networks.values()):
        return
    for host, (port, index) in ports.items():
        gid = next((gid for gid in port.gids if gid.index == index and gid.kind), None)
        is_local = gid is not None and gid.address.startswith("fe80:")
        if gid and (is_local or gid.kind != ROCE_V2):
            yield Finding(
                "index {index} of {port} is {observed}, and the ports are in several subnets; expected {expected}",
                hosts=[host],
                index=index,
                port=name,
                interface=port.interface or "the interface",
                observed="a link-local address" if is_local else gid.kind,
                expected="RoCE v2 with an address of the subnet",
            )


def _kind(port: RdmaPort, index: int) -> str:
    """RoCE version and IP version of an address; empty where there is none that can be used."""
    gid = next((gid for gid in port.gids if gid.index == index and gid.kind), None)
    return filled("{0} over {1}", gid.kind, "IPv4" if gid.is_ipv4 else "IPv6") if gid else ""
