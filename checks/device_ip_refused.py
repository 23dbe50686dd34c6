from collections.abc import Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any

from doctor import ERROR, Finding, Skip, check, filled
from doctor.facts.hccn.device_addresses import DeviceAddresses, HccnConf
from doctor.facts.hccn.super_pod import SuperPodId
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
            is_host_address = _is_host_address(interface)
            if is_host_address and not _reserved_segment(interface.ip, closed):
                continue
            usable = _usable_settings(_interface(conf.by_npu.get(npu, {})) if conf else None, closed)
            yield from _reserved_segment_findings(npu, interface.ip, closed, "device IP", usable)
            if not is_host_address:
                yield Finding(
                    "NPU {npu} has the device IP {observed}, which is not a host address in {segment}; expected one",
                    npu=npu,
                    observed=interface.ip,
                    segment=interface.network,
                    settings=ADDRESS_SETTINGS,
                    **usable,
                )
    for npu, ip in sorted(wished.items()):
        live = addresses.by_npu.get(npu)
        if live is None or live.ip != ip:
            remedy = "Correct the address in the file, which is applied at the next start."
            if live:
                remedy = filled(
                    "Enter the address that the NPU has now, for the next start: `{0}`.",
                    f"sed -i.bak 's/^address_{npu}=.*/address_{npu}={live.ip}/' /etc/hccn.conf",
                )
            usable = _usable_settings(live if isinstance(live, IPv4Interface) else None, closed)
            yield from _reserved_segment_findings(npu, ip, closed, "address in /etc/hccn.conf", usable, remedy)


def _reserved_segment_findings(
    npu: int, ip: IPv4Address, closed: list[str], role: str, usable: Mapping[str, str], remedy: str = ""
) -> Iterator[Finding]:
    segment = _reserved_segment(ip, closed)
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


def _reserved_segment(ip: IPv4Address, closed: list[str]) -> str:
    """The one that holds the address; empty for none."""
    return next((network for network in closed if ip in _network(network)), "")


_network = lru_cache(IPv4Network)


def _is_host_address(interface: IPv4Interface) -> bool:
    net = interface.network
    return net.prefixlen >= 31 or interface.ip not in (net.network_address, net.broadcast_address)


def _usable_settings(interface: IPv4Interface | None, closed: list[str]) -> dict[str, Any]:
    """Address and netmask for the command; both empty, which is not known, where the NPU may not have them either."""
    if interface is None or not _is_host_address(interface) or _reserved_segment(interface.ip, closed):
        return {"address": "", "netmask": ""}
    return {"address": str(interface.ip), "netmask": str(interface.netmask)}


def _interface(settings: Mapping[str, str]) -> IPv4Interface | None:
    try:
        return IPv4Interface(f"{_address(settings)}/{settings.get('netmask', '')}")
    except ValueError:
        return None


def _address(settings: Mapping[str, str]) -> IPv4Address | None:
    try:
        return IPv4Address(settings.get("address", ""))
    except ValueError:
        return None
