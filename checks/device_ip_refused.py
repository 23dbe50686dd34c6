from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any

from doctor import ERROR, Finding, Skip, check
from doctor.facts.hccn import DeviceAddresses, HccnConf, SuperPodId
from doctor.facts.npu import NpuProduct

VIRTUAL_SEGMENTS = {
    "A1": ("192.168.1.0/24", "192.168.2.0/24"),
    "A2": ("192.168.1.0/24", "192.168.2.0/24"),
    "A3": ("192.168.1.0/24",),
}
"""Segments of the virtual ports between host and NPUs."""
SMP_SEGMENTS = ("192.168.3.0/24", "192.168.4.0/24", "192.168.5.0/24")
SUPER_POD_SEGMENT = "192.0.0.0/8"
SERVER_INDEX_LIMIT = 48
"""Server indices of a super pod are below this."""
ADDRESS_SETTINGS = ["address", "netmask"]


@check(severity=ERROR, area="addresses")
def device_ip_refused(
    addresses: DeviceAddresses, product: NpuProduct, conf: HccnConf | None, pod: SuperPodId | None
) -> Iterator[Finding]:
    """No device IP is one that the driver reserves or refuses.

    ## Why it matters
    The driver's virtual ports, and the HCCS addresses of a super pod, use fixed segments. A device IP among them takes
    their traffic, or is refused when /etc/hccn.conf is applied at the next start: then the NPU has no address.

    ## What to do
    {remedy}

    Choose another address: `hccn_tool -i {npu} -ip -s address {address} netmask {netmask}`. 10.0.0.0/8 and
    172.16.0.0/12 are reserved on no product.

    ## Source
    The driver's public source, where hccn_tool sets an address: 192.168.1.0/24 on every product, 192.168.2.0/24 on
    A1 and A2, 192.168.3.0/24 to 192.168.5.0/24 on A1 in SMP mode, all of 192.0.0.0/8 for an A3 host that is in a
    super pod; never the segment's own or its broadcast address. A1 counts as SMP here when its NPUs lie in more than
    one segment.
    """
    wished = {npu: ip for npu, settings in (conf.by_npu if conf else {}).items() if (ip := _address(settings))}
    if not addresses.by_npu and not wished:
        raise Skip("no NPU has a device IP")
    closed = [*VIRTUAL_SEGMENTS.get(product.family, ())]
    if product.family == "A1" and len({interface.network for interface in addresses.by_npu.values()}) > 1:
        closed += SMP_SEGMENTS
    if product.family == "A3" and pod is not None and pod.server_index < SERVER_INDEX_LIMIT:
        closed.append(SUPER_POD_SEGMENT)
    for npu, interface in addresses.by_npu.items():
        if isinstance(interface, IPv4Interface):
            usable = _usable_settings(conf.by_npu.get(npu, {}) if conf else {}, closed)
            yield from _reserved_segment_findings(npu, interface.ip, closed, "device IP", usable)
            net = interface.network
            if net.prefixlen < 31 and interface.ip in (net.network_address, net.broadcast_address):
                template = (
                    "NPU {npu} has the device IP {observed}, which is not a host address in {segment}; expected one"
                )
                yield Finding(
                    template, npu=npu, observed=interface.ip, segment=net, settings=ADDRESS_SETTINGS, **usable
                )
    for npu, ip in sorted(wished.items()):
        live = addresses.by_npu.get(npu)
        if live is None or live.ip != ip:
            remedy = "Correct the address in the file, which is applied at the next start."
            if live:
                remedy = f"Correct the file, which is applied at the next start; the NPU has `address_{npu}={live.ip}`."
            in_use = {"address": str(live.ip), "netmask": str(live.netmask)} if isinstance(live, IPv4Interface) else {}
            usable = _usable_settings(in_use, closed)
            yield from _reserved_segment_findings(npu, ip, closed, "address in /etc/hccn.conf", usable, remedy)


def _reserved_segment_findings(
    npu: int, ip: IPv4Address, closed: list[str], role: str, usable: Mapping[str, str], remedy: str = ""
) -> Iterator[Finding]:
    segment = next((network for network in closed if ip in IPv4Network(network)), "")
    if segment:
        template = "NPU {npu} has {observed} as its {what}; expected one outside {segment}, which the driver reserves"
        yield Finding(
            template,
            npu=npu,
            observed=ip,
            what=role,
            segment=segment,
            settings=ADDRESS_SETTINGS,
            remedy=remedy,
            **usable,
        )


def _usable_settings(settings: Mapping[str, str], closed: list[str]) -> dict[str, Any]:
    """Address and netmask of these settings where they are complete and not reserved; else both empty: not known."""
    try:
        interface = IPv4Interface(f"{_address(settings)}/{settings.get('netmask', '')}")
    except ValueError:
        return {"address": "", "netmask": ""}
    net = interface.network
    edges = (net.network_address, net.broadcast_address) if net.prefixlen < 31 else ()
    if interface.ip in edges or any(interface.ip in IPv4Network(network) for network in closed):
        return {"address": "", "netmask": ""}
    return {"address": str(interface.ip), "netmask": str(interface.netmask)}


def _address(settings: Mapping[str, str]) -> IPv4Address | None:
    try:
        return IPv4Address(settings.get("address", ""))
    except ValueError:
        return None
