from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.facts.accelerators import OtherAccelerators
from doctor.facts.address_proofs import AddressProofs
from doctor.facts.agreed_addresses import agreed_addresses
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.job import agreed_blocks, find_blocks, format_ranges, job_ports
from doctor.facts.firewall.remedy import (
    MAX_ADDRESSES,
    allow_command,
    boot_files,
    boot_lines,
    fix_values,
    is_listable,
    persistence_note,
    undo_command,
)
from doctor.facts.firewall.routes import find_master, find_routes
from doctor.facts.gpu import GpuCards
from doctor.facts.hardware_addresses import HardwareAddresses
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import Listeners, ReservedPorts
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

ONE_HOST = "only one host: nothing crosses the network"
NOT_AGREED = ": no address of its peers is confirmed by SSH or by another host"
TOO_MANY = filled(
    ": its peers have more than {0} separate addresses; open the ports to the networks of your hosts", MAX_ADDRESSES
)
MANY_PORTS = 1000
OPENS = "It opens these ports to these hosts only; the firewall stays on."
NARROW = (
    "Where the site does not allow so many open ports: on all hosts, "
    '`sysctl -w net.ipv4.ip_local_port_range="50000 51999"` '
    "makes the kernel's range small; then check again, and open those ports alone."
)
WITNESS = ("hardware", "proofs")


@check(severity=ERROR, area="firewall", single_host=ONE_HOST, advisory=WITNESS)
def firewall_blocks_job(
    rules: FirewallRules,
    host_addresses: HostAddresses,
    addresses: PerHost[HostAddresses],
    names: HostNames,
    fleet_names: PerHost[HostNames],
    fleet: PerHost[Reachability],
    reserved: ReservedPorts,
    listeners: Listeners,
    npus: NpuInventory | None,
    gpus: GpuCards | None,
    accelerators: OtherAccelerators | None,
    hardware: PerHost[HardwareAddresses] | None,
    proofs: PerHost[AddressProofs] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """No firewall rule blocks the job's TCP connections between the hosts.

    ## Why it matters
    Ranks that cannot connect wait until a timeout of minutes, and the messages name a timeout, not the firewall. An
    open MASTER_PORT is not enough: Gloo, NCCL and HCCL listen on ports that the kernel assigns. With MASTER_ADDR given,
    MASTER_PORT is checked on that host only; without it, on every host. A job of torch without accelerators, or with
    `--backend gloo` in its launch line, needs one direction between two hosts: Gloo connects from the greater address
    to the smaller one.

    ## What to do
    As root on {host}: `{fix}` ({keep}). {opens} {narrow}

    ## Back again
    `{unfix}`

    ## In a container
    With the host's network (`--network host`, `hostNetwork: true`) the rules are those of the machine on which the
    container of {host} runs. There, as root: `{fix}` ({keep}). With a network of its own the rules come from inside the
    container, or from a network policy.

    ## Source
    The host's own rules of nftables, iptables, arptables and ebtables, followed for every address of the fleet and
    every port: MASTER_PORT; on hosts with NPUs HCCL's ports (HCCL_IF_BASE_PORT, 32 of them); ip_local_port_range
    without what is reserved or taken; and for what asks for the hardware addresses of hosts in one network (ARP, RFC
    826; IPv6 neighbour discovery, RFC 4861). eBPF programs, the network's own firewalls and security groups are not
    covered. Rules that cannot be read, or that depend on what is not known here (a rate, a user), are judged by the
    network test where one was made: all of its connections to and from the host passed, full-size packets too. It
    tries two of the ports that the kernel may give, and few connections: unread rules for a part of the ports, and
    limits that a larger job reaches, may stop it.
    """
    if len(addresses) < 2:
        raise Skip(ONE_HOST)
    master = find_master(launch.master_addr, names, host_addresses, addresses)
    ports = job_ports(launch, reserved, listeners, npus is not None, (gpus, accelerators) != (None, None))
    blocks = find_blocks(rules, find_routes(host_addresses, addresses, master), ports, master.host)
    agreed = agreed_addresses(fleet_names, addresses, fleet, hardware, proofs) if blocks else set()
    for block in blocks:
        count = sum(last - first for first, last in block.ports)
        remedy = next(iter(agreed_blocks([block], agreed)), None)
        manual = NOT_AGREED
        if remedy and not is_listable(remedy):
            remedy, manual = None, TOO_MANY
        values = fix_values(remedy) if remedy else {}
        is_new = block.stage == "new"
        yield Finding(
            "{manager} blocks {what} TCP ports {ports} {way} {peers}"
            if block.stage in ("new", "later")
            else "{manager} blocks {what} {way} {peers}: hosts do not learn each other's hardware addresses",
            manager=block.manager,
            what=block.traffic,
            ports=format_ranges(block.ports),
            way=("of" if block.ports else "to") if block.outgoing else "from",
            peers=block.peers,
            rules=block.rules,
            loses="later packets" if block.stage == "later" else "new connections",
            fix=allow_command(remedy) if remedy else manual,
            unfix=undo_command(remedy) if remedy else manual,
            keep=persistence_note(remedy) if remedy else "lost after a restart",
            opens=OPENS if is_new else "The firewall stays on.",
            narrow=NARROW if is_new and count > MANY_PORTS else "",
            table=block.positions[0].table.name,
            nft_table=f"{block.positions[0].table.family} {block.positions[0].table.name}",
            boot_files=boot_files(block),
            boot_lines=boot_lines(remedy) if remedy else [],
            method=values.get("method", []),
            sources=values.get("sources", []),
            nft_chain=values.get("nft_chain", []),
            nft_rule=values.get("nft_rule", []),
            nft_tag=values.get("nft_tag", []),
            iptables_tool=values.get("iptables_tool", []),
            iptables_rules=values.get("iptables_rules", []),
            ufw_ports=values.get("ufw_ports", []),
            device=values.get("device", []),
            rich_rules=values.get("rich_rules", []),
            observed=block.rules[0],
            expected="accepted",
        )
