"""Values for the command that gives an NPU its address, as far as a host itself holds them."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv4Interface

from doctor.facts.hccn.conf import HccnConf
from doctor.facts.hccn.device_addresses import DeviceAddresses


def configured_address(
    conf: HccnConf | None, npu: int, addresses: DeviceAddresses
) -> tuple[IPv4Address | None, IPv4Address | None]:
    """Address and netmask of ``npu`` in /etc/hccn.conf, the netmask else of the host's other NPUs; None: not known.

    An address that another NPU of the host has in use is none that could be given.
    """
    settings = conf.by_npu.get(npu, {}) if conf else {}
    taken = {str(interface.ip) for other, interface in addresses.by_npu.items() if other != npu}
    address = _address(settings.get("address", ""))
    netmasks = {interface.netmask for interface in addresses.by_npu.values() if isinstance(interface, IPv4Interface)}
    common = netmasks.pop() if len(netmasks) == 1 else None
    usable = address if address and not address.is_unspecified and str(address) not in taken else None
    return usable, _address(settings.get("netmask", "")) or common


def _address(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except AddressValueError:
        return None
