from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.engine.addresses import is_plain_address, plain_address
from doctor.engine.grouping import lists_by_key
from doctor.facts.gpu import GpuCards
from doctor.facts.rdma import RdmaDevice, RdmaPorts, chosen_ports
from doctor.job import LaunchConfig

ADVISORY = ("gpus",)
ONE_HOST = "only one host: no other can have its addresses"


@check(severity=ERROR, area="addresses", single_host=ONE_HOST, advisory=ADVISORY)
def rdma_address_repeated(
    adapters: PerHost[RdmaPorts], gpus: PerHost[GpuCards] | None, launch: LaunchConfig
) -> Iterator[Finding]:
    """No RoCE port has an address that a port of another host has.

    ## Why it matters
    What is sent to such an address reaches one of the two hosts, or the sender itself. Connections of NCCL wait or
    fail: `ibv_modify_qp failed`, `Got completion with error 12`. SSH and TCP pass, since they use another network.

    ## What to do
    On {host}, give {interface} an address of its own: `ip -brief address show dev {interface}` shows those that it has,
    and `ip address del {address} dev {interface}` takes one away. `grep -rnwF {address} /etc/netplan /etc/network
    /etc/NetworkManager /etc/systemd/network /etc/sysconfig 2>/dev/null` prints the file that sets it at boot. A
    link-local address (fe80) follows from the hardware address: `ethtool -P {interface}` shows the one that the card
    was made with.

    ## Source
    `gids` of /sys/class/infiniband/NAME/ports (Linux ABI, sysfs-class-infiniband) of active RoCE ports, in the host's
    own network namespace. Ports of one adapter (`sys_image_guid`), as two containers of one machine show them, are not
    compared. It is a warning where the hosts have no NVIDIA GPUs, or NCCL does not take the port (NCCL_IB_HCA,
    NCCL_IB_DISABLE). The verdict can be wrong where two networks that are not connected use the same addresses.
    """
    places = lists_by_key(
        (str(plain_address(gid.address)), (host, device, port.interface))
        for host, own in adapters.items()
        for device in own.devices
        for port in device.ports
        if port.is_active and port.layer == "Ethernet" and device.chip
        for gid in port.gids
        if gid.kind and is_plain_address(gid.address)
    )
    for address, holders in sorted(places.items()):
        hosts = {host: (device, interface) for host, device, interface in holders}
        if len(hosts) > 1 and len({device.chip for device, _ in hosts.values()}) == len(hosts):
            host = max(hosts)
            finding = Finding(
                "{ports} have one address, {address}",
                hosts=list(hosts),
                host=host,
                ports=[filled("{0} of {1}", device.name, host) for host, (device, _) in hosts.items()],
                holder=min(hosts),
                address=address,
                interface=hosts[host][1],
                expected="one host for each address",
            )
            used = [_is_used(host, device, adapters[host], launch) for host, (device, _) in hosts.items()]
            yield finding.as_warning(not all(used) or not any(gpus and host in gpus for host in hosts))


def _is_used(host: str, device: RdmaDevice, own: RdmaPorts, launch: LaunchConfig) -> bool:
    """Whether NCCL takes a port of the adapter."""
    env = launch.environ_of(host)
    chosen = chosen_ports(env["NCCL_IB_HCA"], own.ports)[0] if env.get("NCCL_IB_HCA") else own.ports
    return env.get("NCCL_IB_DISABLE") != "1" and any(name.partition(":")[0] == device.name for name in chosen)
