"""What every NPU's own network port says of itself through hccn_tool, and what /etc/hccn.conf wants of it."""

from doctor.facts.hccn.addresses import (
    Address,
    DetectAddresses,
    DeviceAddresses,
    DeviceGateways,
    Interface,
    Vnic,
    VnicAddresses,
)
from doctor.facts.hccn.conf import HccnConf
from doctor.facts.hccn.link import DeviceFec, DeviceHealth, DeviceLinks, DeviceMtu, DeviceSpeed, LinkHistory, LinkRecord
from doctor.facts.hccn.neighbour import Neighbour, Neighbours
from doctor.facts.hccn.optics import OpticalModule, OpticalReading, Optics
from doctor.facts.hccn.super_pod import SuperDevice, SuperDevices, SuperPodId
from doctor.facts.hccn.tls import TlsSwitches

__all__ = [
    "Address",
    "DetectAddresses",
    "DeviceAddresses",
    "DeviceFec",
    "DeviceGateways",
    "DeviceHealth",
    "DeviceLinks",
    "DeviceMtu",
    "DeviceSpeed",
    "HccnConf",
    "Interface",
    "LinkHistory",
    "LinkRecord",
    "Neighbour",
    "Neighbours",
    "OpticalModule",
    "OpticalReading",
    "Optics",
    "SuperDevice",
    "SuperDevices",
    "SuperPodId",
    "TlsSwitches",
    "Vnic",
    "VnicAddresses",
]
