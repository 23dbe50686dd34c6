"""Temperatures and error counters of links, as the kernel and the vendors' tools show them on this host."""

from __future__ import annotations

import os
import re
import subprocess
import time
from glob import glob

from doctor.smoke.programs.cpu_quota import small_file

LINK_ERRORS = ("rx_errors", "tx_errors", "rx_crc_errors", "tx_carrier_errors")
"""Of a network card, in /sys/class/net/NIC/statistics: Linux, Documentation/ABI/testing/sysfs-class-net-statistics."""
PORT_ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "packet_seq_err",
    "out_of_sequence",
    "local_ack_timeout_err",
)
"""Of an RDMA port; in their folder and that of the adapter's own: Documentation/ABI/stable/sysfs-class-infiniband."""
TOOLS = {
    "cuda": ["nvidia-smi", "--query-gpu=temperature.gpu", "--format=csv,noheader,nounits"],
    "npu": ["npu-smi", "info"],
}
"""By device type: what prints the temperature of each device."""
TOOL_SECONDS = 20.0
"""A tool that takes longer is ended."""
MOST_PRINTED = 65536
NPU_ROW = re.compile(r"^\|\s*(\d{1,3})\s+\S[^|]*\|\s*[A-Za-z]+\s*\|\s*[\d.]{1,8}\s+(\d{1,3})\s", re.M)
"""``| 0     910B3  | OK   | 95.7   36   0 / 0 |``: number of the card, and its temperature behind its power."""


def sensor_temperatures() -> dict[str, float]:
    """By chip of /sys/class/hwmon, such as ``coretemp``: degrees Celsius, of its sensors the hottest."""
    hottest: dict[str, float] = {}
    for path in sorted(glob("/sys/class/hwmon/hwmon*/temp*_input"))[:512]:
        text, chip = small_file(path).strip(), small_file(os.path.dirname(path) + "/name").strip()[:30]
        if re.match(r"-?\d{1,7}\Z", text) and chip:
            hottest[chip] = max(hottest.get(chip, -273.0), int(text) / 1000)
    return hottest


def link_errors() -> dict[str, int]:
    """Counts since the host began, by link and counter: ``eth0 rx_errors``, ``mlx5_0/1 symbol_error``."""
    patterns: list[tuple[str, str, tuple[str, ...]]] = [("/sys/class/net/*/device", "", LINK_ERRORS)]
    patterns += [("/sys/class/infiniband/*/ports/*", folder, PORT_ERRORS) for folder in ("/counters/", "/hw_counters/")]
    counts: dict[str, int] = {}
    for pattern, folder, names in patterns:
        for place in sorted(glob(pattern))[:128]:
            parts = place.split("/")
            link = parts[4] + ("/" + parts[6] if len(parts) > 6 else "")
            top = os.path.dirname(place) + "/statistics/" if parts[-1] == "device" else place + folder
            for name in names:
                text = small_file(top + name).strip()
                if re.match(r"\d{1,19}\Z", text):
                    counts[f"{link} {name}"] = int(text)
    return counts


def printed_temperatures(device: str, text: str) -> dict[str, float]:
    r"""Of a vendor's tool, by device.

    >>> printed_temperatures("cuda", "41\n[N/A]\n")
    {'GPU 0': 41.0}
    """
    if device == "npu":
        return {f"NPU {number}": float(heat) for number, heat in NPU_ROW.findall(text)[:64]}
    lines = enumerate(line.strip() for line in text.splitlines()[:64])
    return {f"GPU {number}": float(line) for number, line in lines if re.match(r"\d{1,3}\Z", line)}


class Sensors:
    """What changes on this host while ranks work. A tool is started, and its answer taken when it has come."""

    def __init__(self, device: str) -> None:
        self.device, self.before = device, link_errors()
        self.tool: subprocess.Popen[str] | None = None
        self.tool_began, self.printed = 0.0, dict[str, float]()

    def ask(self) -> None:
        """Starts the tool for this host's devices; it takes seconds, for which nothing here may wait."""
        self.collect()
        if self.device not in TOOLS or self.tool:
            return
        try:
            self.tool = subprocess.Popen(
                TOOLS[self.device],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
        except OSError:
            return
        self.tool_began = time.monotonic()

    def collect(self) -> None:
        """Takes the tool's answer, if it has come."""
        if not self.tool or not self.tool.stdout:
            return
        if self.tool.poll() is not None:
            self.printed = printed_temperatures(self.device, self.tool.stdout.read(MOST_PRINTED))
        elif time.monotonic() - self.tool_began > TOOL_SECONDS:
            self.tool.kill()
            self.tool.wait()
        else:
            return
        self.tool.stdout.close()
        self.tool = None

    def read(self) -> tuple[dict[str, float], dict[str, int]]:
        """Degrees Celsius by sensor, and errors of links since the last time; those that stand still are left out."""
        self.collect()
        now, before = link_errors(), self.before
        self.before = now
        grown = {name: count - before[name] for name, count in now.items() if count > before.get(name, count)}
        return {**sensor_temperatures(), **self.printed}, dict(list(grown.items())[:16])

    def end(self) -> None:
        """Ends a tool that still runs."""
        if self.tool:
            self.tool.kill()
            self.tool.wait()
            self.tool = None
