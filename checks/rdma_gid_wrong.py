from collections import Counter
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.facts.rdma import RdmaPort, RdmaPorts, chosen_ports
from doctor.job import LaunchConfig


@check(severity=ERROR, area="addresses")
def rdma_gid_wrong(adapters: PerHost[RdmaPorts], launch: LaunchConfig) -> Iterator[Finding]:
    """NCCL_IB_GID_INDEX names an address of the same kind on every RoCE port that NCCL uses.

    ## Why it matters
    The connection between two ranks fails or times out where the index has no address, or one of another kind:
    `ibv_modify_qp failed`, `Got completion with error 12`. The order of the addresses depends on when the interface got
    them, and in a container only those of its own network namespace can be used.

    ## What to do
    On {host}: `show_gids` lists the addresses. Unset NCCL_IB_GID_INDEX: from NCCL 2.21 on the address is found by
    NCCL_IB_ADDR_FAMILY and NCCL_IB_ROCE_VERSION_NUM. With an older NCCL, take down {interface} and up again, so that
    its IPv4 address gets the usual index.

    ## Source
    NCCL User Guide, NCCL_IB_GID_INDEX; NVIDIA/nccl issues 426, 551 and 769; `gids` and `gid_attrs/types` of
    /sys/class/infiniband/NAME/ports: the type of an address in another network namespace cannot be read.
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
        usual = Counter(kind for kind in kinds.values() if kind).most_common(1)
        norm = usual[0][0] if usual and usual[0][1] > len(kinds) / 2 else ""
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


def _kind(port: RdmaPort, index: int) -> str:
    """RoCE version and IP version of an address; empty where there is none that can be used."""
    gid = next((gid for gid in port.gids if gid.index == index and gid.kind), None)
    return filled("{0} over {1}", gid.kind, "IPv4" if gid.is_ipv4 else "IPv6") if gid else ""
