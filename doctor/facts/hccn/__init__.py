"""The state of every NPU's network port from hccn_tool, and its settings in /etc/hccn.conf."""

from doctor.facts.hccn.conf import HccnConf
from doctor.facts.hccn.device_addresses import (
    Address,
    DetectAddresses,
    DeviceAddresses,
    DeviceGateways,
    Interface,
    Vnic,
    VnicAddresses,
)
from doctor.facts.hccn.link_state import (
    DeviceFec,
    DeviceHealth,
    DeviceLinks,
    DeviceMtu,
    DeviceSpeed,
    LinkHistory,
    LinkRecord,
)
from doctor.facts.hccn.neighbour import Neighbour, Neighbours
from doctor.facts.hccn.optics import OpticalModule, Optics
from doctor.facts.hccn.super_pod import SuperDevice, SuperDevices, SuperPodId
from doctor.facts.hccn.tls import TlsSwitches
from doctor.facts.hccn.traffic import DevicePfc, DeviceTrafficClasses, PortCounters, PortGrowth
from doctor.facts.hccn.ub_ports import UbPorts

__all__ = [
    "Address",
    "DetectAddresses",
    "DeviceAddresses",
    "DeviceFec",
    "DeviceGateways",
    "DeviceHealth",
    "DeviceLinks",
    "DeviceMtu",
    "DevicePfc",
    "DeviceSpeed",
    "DeviceTrafficClasses",
    "HccnConf",
    "Interface",
    "LinkHistory",
    "LinkRecord",
    "Neighbour",
    "Neighbours",
    "OpticalModule",
    "Optics",
    "PortCounters",
    "PortGrowth",
    "SuperDevice",
    "SuperDevices",
    "SuperPodId",
    "TlsSwitches",
    "UbPorts",
    "Vnic",
    "VnicAddresses",
]
