"""What lspci -vv printed, in the form of what doctor reads of the same devices from sysfs."""

from __future__ import annotations

import re
from typing import Any

CLASSES = {
    "3D controller": "0302",
    "VGA compatible controller": "0300",
    "Ethernet controller": "0200",
    "Infiniband controller": "0207",
    "Non-Volatile memory controller": "0108",
    "Processing accelerators": "1200",
}
VENDORS = {"NVIDIA": "10de", "Mellanox": "15b3", "Huawei": "19e5", "Advanced Micro": "1002", "Intel": "8086"}
_DEVICE = re.compile(r"(?m)^(?=(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] )")
_HEAD = re.compile(r"((?:[0-9a-f]{4}:)?([0-9a-f]{2}):\S+) ([^:]+): (.*)")


def pcie_links(text: str) -> dict[str, Any]:
    """The links; what the port above a device supports is not known where its bridge was not published.

    Devices of one name have one number in place of their id, which lspci does not print.
    """
    parts = _DEVICE.split(text)
    ports = {bus: _rate(part, "LnkCap") for part in parts for bus in re.findall(r"secondary=([0-9a-f]{2})", part)}
    links: list[list[Any]] = []
    names: list[str] = []
    for part in parts:
        head = _HEAD.match(part)
        if not head or head[3] not in CLASSES:
            continue
        names += [] if head[4] in names else [head[4]]
        vendor = next((number for name, number in VENDORS.items() if name in head[4]), "ffff")
        driver = re.search(r"driver in use: (\S+)", part)
        links.append(
            [
                head[1] if head[1].count(":") == 2 else "0000:" + head[1],
                f"{vendor}:{names.index(head[4]):04x}",
                CLASSES[head[3]],
                driver[1] if driver else "",
                _rate(part, "LnkSta") + _rate(part, "LnkCap"),
                ports.get(head[2], ["", ""]),
                ["active", "D0"],
                head[3] == "Infiniband controller",
            ]
        )
    return {"links": links, "machine": ""}


def _rate(part: str, row: str) -> list[str]:
    match = re.search(row + r":.*?Speed ([0-9.]+)GT/s.*?Width x(\d+)", part)
    return [match[2], f"{float(match[1])} GT/s PCIe"] if match else ["", ""]
