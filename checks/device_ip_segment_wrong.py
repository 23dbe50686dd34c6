from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.analysis.majority import most_common_value
from doctor.facts.hccn.device_addresses import DeviceAddresses, DeviceGateways, HccnConf, address_values
from doctor.facts.hccn.fleet import (
    Npu,
    address_use,
    families,
    flatten_by_npu,
    group_by_host,
    require_port_use,
    tie_finding,
)
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.npu import NpuProduct
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

Network = IPv4Network | IPv6Network
CAUSES = {
    "device-ip-refused": ("npu",),
}
ADVISORY = ("conf",)


@check(severity=ERROR, area="addresses", follows_from=CAUSES, advisory=ADVISORY)
def device_ip_segment_wrong(
    addresses: PerHost[DeviceAddresses],
    products: PerHost[NpuProduct],
    gateways: PerHost[DeviceGateways] | None,
    pods: PerHost[SuperPodId] | None,
    reach: PerHost[Reachability],
    conf: PerHost[HccnConf] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """The device IPs lie in the segments that the product's network plan requires.

    ## Why it matters
    An NPU in another segment, without a gateway out of it, reaches none of its peers. HCCL hangs while it sets up its
    links and times out minutes later, and only on the ranks that talk to that NPU.

    ## What to do
    On {host}, while no job runs, an address in {expected}: `hccn_tool -i {npu} -ip -s address {address} netmask
    {netmask}`. {source}
    - A routed network: give it its gateway instead: `hccn_tool -i {npu} -gateway -s gateway GATEWAY`.

    ## Source
    The vendor's configuration guides. A1 in SMP mode: NPUs 0/4, 1/5, 2/6 and 3/7 share a segment, 0 to 3 each have
    their own, and a position has the same one on all hosts; in AMP mode all are in one. A2, and A3 between super
    pods: one segment for all is enough, and a segment for each position (hosts joined fibre by fibre, or by a switch
    for each position) is met too. Which of the plans is meant is read from the addresses: one segment that holds
    more than half of the NPUs is the plan for all; otherwise it is the most common segment of each position. Where
    most NPUs have a gateway in their own segment, the network counts as routed, and their segments are not checked.
    """
    use = address_use(addresses, launch, products, reach, pods)
    family = families(launch, products)
    for product in ("A1", "A2", "A3"):
        hosts = {host: addresses[host] for host, used in use.items() if used and family[host] == product}
        networks = {
            host_npu: interface.network
            for host_npu, interface in flatten_by_npu(hosts).items()
            if interface.version == 4
        }
        routed = {host_npu for host_npu, net in networks.items() if _has_local_gateway(host_npu, net, gateways)}
        excused = routed if 2 * len(routed) > len(networks) else set()  # a way out is no use where there is none back
        stray = {host_npu: net for host_npu, net in networks.items() if host_npu not in excused}
        for finding in _stray_findings(networks, stray, 4 if product == "A1" else 64):
            host, segment = finding.hosts[0], finding.values["expected"]
            own_segment = segment if isinstance(segment, IPv4Network) else None
            file = conf.get(host) if conf else None
            usable = address_values(file, finding.values["npu"], addresses[host], own_segment)
            finding.values.update(usable if own_segment else {**usable, "address": None, "source": ""})
            finding.values["case"] = "A flat network" if usable["address"] else ""
            yield finding
    require_port_use(use, [host for host in addresses if addresses[host].by_npu], "NPUs have device IPs")
    judged = [
        address_interface for host, used in use.items() if used for address_interface in addresses[host].by_npu.values()
    ]
    if not any(interface.version == 4 for interface in judged):
        raise Skip("no NPU has an IPv4 address, and the rules are for IPv4")


def _has_local_gateway(host_npu: Npu, network: Network, gateways: Mapping[str, DeviceGateways] | None) -> bool:
    """Whether the NPU has a gateway next door; one whose gateway could not be read is not accused."""
    host, npu = host_npu
    host_gateways = gateways.get(host) if gateways else None
    if host_gateways is None:
        return gateways is not None
    return host_gateways.by_npu[npu] in network if npu in host_gateways.by_npu else npu not in host_gateways.unset


def _stray_findings(networks: Mapping[Npu, Network], stray: Mapping[Npu, Network], positions: int) -> Iterator[Finding]:
    """``stray``: those of ``networks`` that must lie in the plan's segment, for no gateway leads out of theirs."""
    flat = most_common_value(networks.values())
    if flat and 2 * sum(net == flat for net in networks.values()) > len(networks):
        yield from _outside_findings(stray, dict.fromkeys(range(positions), flat), positions)
        return
    plan: dict[int, Network] = {}
    undecided: dict[Npu, Network] = {}
    for place in range(positions):
        here = {host_npu: net for host_npu, net in networks.items() if host_npu[1] % positions == place}
        expected = most_common_value(here.values())
        if expected:
            plan[place] = expected
        elif stray.keys() & here.keys():
            undecided |= here
    if undecided:
        yield tie_finding(undecided, expected="one segment for each position")
    yield from _outside_findings(stray, plan, positions)
    if positions == 4:
        yield from _shared_findings(networks, plan)


def _outside_findings(stray: Mapping[Npu, Network], plan: Mapping[int, Network], positions: int) -> Iterator[Finding]:
    wrong = {}
    for host_npu, observed in stray.items():
        expected = plan.get(host_npu[1] % positions, observed)
        if not observed.overlaps(
            expected
        ):  # those that overlap differ by their netmask, which device-netmask-differs reports
            wrong[host_npu] = (observed, expected)
    for host, (observed, expected), npus in group_by_host(wrong):
        yield Finding(
            "segment {observed} on NPU {npus}; expected {expected} (no gateway leads there)",
            hosts=[host],
            npu=npus[0],
            npus=npus,
            settings=["address", "netmask"],
            observed=observed,
            expected=expected,
        )


def _shared_findings(networks: Mapping[Npu, Network], plan: Mapping[int, Network]) -> Iterator[Finding]:
    for place, net in plan.items():
        twin = next((other for other in range(place) if plan.get(other) == net), None)
        if twin is not None:
            npus = [twin, place, twin + 4, place + 4]
            yield Finding(
                "NPU {npus} share segment {observed}; expected {twin} and {far_twin} in another segment than the rest",
                hosts=list(dict.fromkeys(host for (host, npu), at in networks.items() if npu in npus and at == net)),
                npu=place,
                npus=npus,
                settings=["address", "netmask"],
                twin=twin,
                far_twin=twin + 4,
                observed=net,
                expected="a segment that no other position has",
            )
