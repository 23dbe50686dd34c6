from collections import defaultdict
from collections.abc import Iterator, Mapping

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.hccn.device_addresses import DeviceAddresses, HccnConf, address_source, configured_address
from doctor.facts.hccn.fleet import Npu, flatten_by_npu, format_npus

ADVISORY = ("conf",)


@check(severity=ERROR, area="addresses", advisory=ADVISORY)
def device_ip_conflict(addresses: PerHost[DeviceAddresses], conf: PerHost[HccnConf] | None) -> Iterator[Finding]:
    """Every NPU in the fleet has a unique device IP.

    ## Why it matters
    Two NPUs with the same address receive each other's traffic: HCCL hangs while it sets up its links, or one rank
    times out (EI0006) while all the others look healthy. Between hosts nothing else notices it: hccn_tool compares an
    address only with those of its own host.

    ## What to do
    On {owner}, while no job runs: `hccn_tool -i {npu} -ip -s address {address} netmask {netmask}`. {source}

    ## Source
    The driver's public source: hccn_tool refuses an address that another NPU of the same host has, and compares
    no others. HCCL's rank table rules: a device_ip is unique in the whole table.
    """
    interfaces = flatten_by_npu(addresses)
    if not interfaces:
        raise Skip("no NPU has a device IP")
    owners: dict[object, list[Npu]] = defaultdict(list)
    for host_npu, interface in interfaces.items():
        owners[interface.ip].append(host_npu)
    for ip, claims in sorted(owners.items(), key=str):
        if len(claims) > 1:
            owner, npu, address, netmask = _likely_wrong(claims, addresses, conf or {}, str(ip))
            yield Finding(
                "{ip} is the device IP of {owners}; expected one NPU",
                hosts=list(dict.fromkeys(host for host, _ in claims)),
                ip=ip,
                npu=npu,
                owner=owner,
                address=address,
                netmask=netmask,
                owners=format_npus(claims),
                settings=["address", "netmask"],
                source=address_source(address),
            )


def _likely_wrong(
    claims: list[Npu], addresses: Mapping[str, DeviceAddresses], conf: Mapping[str, HccnConf], ip: str
) -> tuple[str, int, object, object]:
    """The NPU whose own file has another address, else the last; with that address and its netmask."""
    found = [(host, npu, *configured_address(conf.get(host), npu, addresses[host])) for host, npu in claims]
    host, npu, address, netmask = next((one for one in found if one[2] and str(one[2]) != ip), found[-1])
    return host, npu, None if str(address) == ip else address, netmask
