"""The NPUs' network ports after a reboot: the driver sets them to what /etc/hccn.conf says.

``hccn_tool -s`` writes the port and the file; what the file does not hold is lost. Where ``udhcpc_enable_N`` is set,
DHCP gives the address, and nothing is known before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from doctor.engine.fact import Unreadable
from doctor.facts.hccn.device_addresses import (
    DetectAddresses,
    DeviceAddresses,
    DeviceGateways,
    HccnConf,
    configured_as,
    configured_interface,
    configured_value,
)
from doctor.facts.hccn.link_state import DeviceFec
from doctor.facts.hccn.traffic import TlsSwitches

T = TypeVar("T")


def _each(
    conf: HccnConf | None, npus: set[int], parse: Callable[[dict[str, str]], T | None]
) -> tuple[dict[int, T], tuple[int, ...], dict[str, str]]:
    """What the file sets, by NPU; the NPUs for which it sets nothing; the NPUs that cannot be read, and why."""
    values, unset, unread = dict[int, T](), list[int](), dict(conf.unread if conf else {})
    for npu in sorted(npus):
        settings = conf.by_npu.get(npu, {}) if conf else {}
        try:
            value = configured_value(settings, parse)
        except Unreadable as why:
            unread[f"NPU {npu}"] = str(why)
            continue
        if value is None:
            unset.append(npu)
        else:
            values[npu] = value
    return values, tuple(unset), unread


def device_addresses(conf: HccnConf | None, now: DeviceAddresses) -> DeviceAddresses:
    """Address and netmask as the file gives them."""
    values, unset, unread = _each(conf, {*now.by_npu, *now.unset}, configured_interface)
    return DeviceAddresses(by_npu=dict(values), unset=unset, unread=unread)


def device_gateways(conf: HccnConf | None, now: DeviceGateways) -> DeviceGateways:
    """As the file gives them."""
    values, unset, unread = _each(conf, {*now.by_npu, *now.unset}, configured_as("gateway"))
    return DeviceGateways(by_npu=dict(values), unset=unset, unread=unread)


def detect_addresses(conf: HccnConf | None, now: DetectAddresses) -> DetectAddresses:
    """As the file gives them."""
    values, unset, unread = _each(conf, {*now.by_npu, *now.unset}, configured_as("netdetect"))
    return DetectAddresses(by_npu=dict(values), unset=unset, unread=unread)


def tls_switches(conf: HccnConf | None, now: TlsSwitches) -> TlsSwitches:
    """As the file says; without a line as now, for the board keeps its own. Raises: Unreadable without a file."""
    if conf is None:
        raise Unreadable("there is no /etc/hccn.conf, from which the driver sets the NPUs at boot")

    def switched(settings: dict[str, str]) -> bool | None:
        return settings["tls_enable"] == "1" if settings.get("tls_enable") else None

    values, unset, unread = _each(conf, set(now.by_npu), switched)
    return msgspec.structs.replace(now, by_npu={**values, **{npu: now.by_npu[npu] for npu in unset}}, unread=unread)


def error_correction(conf: HccnConf | None, now: DeviceFec) -> DeviceFec:
    """As the file says; without a line it is the driver's or the switch port's choice, as now where that is none.

    Raises: Unreadable.
    """
    values, unset, unread = _each(conf, set(now.by_npu), lambda settings: settings.get("encoding") or None)
    held = {npu: now.by_npu[npu] for npu in unset if now.by_npu[npu] == "no"}
    if len(held) < len(unset):
        raise Unreadable("/etc/hccn.conf sets no forward error correction: what the port starts with is not known")
    return DeviceFec(by_npu={**values, **held}, unread=unread)
