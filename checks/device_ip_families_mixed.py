from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.analysis.majority import most_common_value
from doctor.facts.hccn.device_addresses import DeviceAddresses, HccnConf, address_source, address_values
from doctor.facts.hccn.fleet import differing_npus, flatten_by_npu

ADVISORY = ("conf",)


@check(severity=ERROR, area="addresses", advisory=ADVISORY)
def device_ip_families_mixed(addresses: PerHost[DeviceAddresses], conf: PerHost[HccnConf] | None) -> Iterator[Finding]:
    """All device IPs are of one address family, IPv4 or IPv6.

    ## Why it matters
    HCCL takes one address family for a whole job and stops with `device ip family ... is not same as others`
    (EI0014) when two ranks differ.

    ## What to do
    Stop the jobs, and give NPU {npu} of {host} an address of the family of the others.
    - IPv4: `hccn_tool -i {npu} -ip -s address {address} netmask {netmask}`. {source}
    - IPv6: `hccn_tool -i {npu} -ip -inet6 -s ipv6_address {address} prefix_length {prefix}`. {source}

    ## Source
    HCCL's check of the rank table: one IP family for all ranks.
    """
    interfaces = flatten_by_npu(addresses)
    kinds = {host_npu: f"IPv{interface.version}" for host_npu, interface in interfaces.items()}
    prefix = most_common_value(item.network.prefixlen for item in interfaces.values() if item.version == 6)
    template = "{observed} address on NPU {npus}; {count} of {total} NPUs have {expected}"
    for finding in differing_npus(kinds, template, settings=["address", "netmask"], prefix=prefix):
        host, expected = finding.hosts[0], str(finding.values.get("expected", ""))
        file = conf.get(host) if conf else None
        finding.values.update(address_values(file, finding.values["npu"], addresses[host]), case=expected)
        if expected == "IPv6":  # the file has none
            finding.values.update(address=None, source=address_source(None))
        yield finding
