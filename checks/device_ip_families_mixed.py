from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.hccn import DeviceAddresses
from doctor.facts.hccn.fleet import differing_npus, flatten_by_npu


@check(severity=ERROR, area="addresses")
def device_ip_families_mixed(addresses: PerHost[DeviceAddresses]) -> Iterator[Finding]:
    """All device IPs are of one address family, IPv4 or IPv6.

    ## Why it matters
    HCCL takes one address family for a whole job and stops with `device ip family ... is not same as others`
    (EI0014) when two ranks differ.

    ## What to do
    Give NPU {npu} of {host} an address of the same family as the others:
    `hccn_tool -i {npu} -ip -s address ADDRESS netmask NETMASK`, or for IPv6
    `hccn_tool -i {npu} -ip -inet6 -s ipv6_address ADDRESS prefix_length N`.

    ## Source
    HCCL's check of the rank table: one IP family for all ranks.
    """
    kinds = {host_npu: f"IPv{interface.version}" for host_npu, interface in flatten_by_npu(addresses).items()}
    yield from differing_npus(kinds, "{observed} address on NPU {npus}; {count} of {total} NPUs have {expected}")
