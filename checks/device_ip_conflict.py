from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.hccn import DeviceAddresses
from doctor.facts.hccn.fleet import Npu, flatten_by_npu, format_npus


@check(severity=ERROR, area="addresses")
def device_ip_conflict(addresses: PerHost[DeviceAddresses]) -> Iterator[Finding]:
    """Every NPU in the fleet has a unique device IP.

    ## Why it matters
    Two NPUs with the same address receive each other's traffic: HCCL hangs while it sets up its links, or one rank
    times out (EI0006) while all the others look healthy. hccn_tool compares an address only with those of its own host,
    so nothing else notices two hosts with the same addresses.

    ## What to do
    Give one of them a free address: `hccn_tool -i {npu} -ip -s address ADDRESS netmask NETMASK`.

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
            yield Finding(
                "{ip} is the device IP of {owners}; expected one NPU",
                hosts=list(dict.fromkeys(host for host, _ in claims)),
                ip=ip,
                npu=claims[-1][1],
                owners=format_npus(claims),
                settings=["address", "netmask"],
                observed=len(claims),
                expected=1,
            )
