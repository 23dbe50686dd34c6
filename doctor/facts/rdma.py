"""RDMA network adapters (InfiniBand and RoCE): their ports, addresses (GIDs), counters and quality of service."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.gpu import is_virtual_machine
from doctor.remote.runtime.reading import names_in, read_text

ROCE_V2 = "RoCE v2"


TOP = "/sys/class/infiniband"
ERROR_COUNTERS = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "local_link_integrity_errors"),
    *("excessive_buffer_overrun_errors", "packet_seq_err", "out_of_sequence", "local_ack_timeout_err"),
    *("rnr_nak_retry_err", "rx_icrc_encapsulated", "port_xmit_discards", "req_transport_retries_exceeded"),
    *("to_retransmits", "seq_err_naks_rcvd", "max_retry_exceeded", "unrecoverable_err", "oos_drop_count"),
    *("rx_roce_errors", "rx_roce_discards", "tx_rdma_ack_timeout", "req_rx_pkt_seq_err", "req_tx_retry_excd_err"),
    *("unresponsive_remote_events", "impaired_remote_conn_events", "requester_timeout", "requester_oos_nak"),
    *("responder_oos", "requester_retries_exceeded", "total_fatal_error", "rx_err_pkt", "tx_err_pkt"),
    *("ip4InTruncatedPkts", "ip6InTruncatedPkts", "ip4OutNoRoutes", "ip6OutNoRoutes"),
)
"""Counters that stand still on a sound network: of InfiniBand, mlx5, bnxt_re (to_retransmits to rx_roce_discards),
ionic, EFA (unresponsive_ and impaired_), MANA (requester_timeout to total_fatal_error), hns_roce (rx_err_pkt,
tx_err_pkt) and irdma. Those of irdma for discarded packets and repeated TCP segments grow on a sound network, too."""
PACKETS = ("port_rcv_packets", "rx_pkts", "rx_packets")
"""That came: of mlx5, bnxt_re and MANA."""
BUSY_COUNTERS = (*("roce_adp_retrans", "np_cnp_sent", "tx_cnp_pkts", "sent_cnps"), *PACKETS)
"""Counters of traffic and congestion, of the same drivers."""


def _read(*path: str) -> str:
    return str(read_text(os.path.join(*path), 4096).strip())


def _entries(*path: str) -> list[str]:
    return sorted(names_in(os.path.join(*path)), key=lambda name: (len(name), name))


def _counters(port: str) -> dict[str, int]:
    values = {}
    for folder in ("counters", "hw_counters"):
        for name in _entries(port, folder):
            if name in ERROR_COUNTERS or name in BUSY_COUNTERS:
                text = _read(port, folder, name)
                if text.isdigit():
                    values[name] = int(text)
    return values


def _addresses(port: str, ethernet: bool) -> list[list[object]]:
    table = []
    for index in _entries(port, "gids")[: 256 if ethernet else 8]:
        address = _read(port, "gids", index)
        if address.replace(":", "").strip("0"):
            attributes = os.path.join(port, "gid_attrs")
            table.append([int(index), address, _read(attributes, "types", index), _read(attributes, "ndevs", index)])
    return table


def _quality(device: str, interface: str) -> dict[str, str]:
    net = "/sys/class/net/" + interface
    values = {"trust": _read(net, "qos", "trust"), "traffic class": _read(TOP, device, "tc", "1", "traffic_class")}
    for role in ("roce_np", "roce_rp"):
        enabled = [_read(net, "ecn", role, "enable", priority) for priority in "01234567"]
        if any(enabled):
            values["ECN " + role] = "".join(enabled)
    return {name: value for name, value in values.items() if value}


def _port(name: str, number: str) -> dict[str, Any]:
    port = os.path.join(TOP, name, "ports", number)
    table = _addresses(port, _read(port, "link_layer") == "Ethernet")
    interface = next((str(row[3]) for row in table if row[3]), "")
    return {
        "number": int(number) if number.isdigit() else 0,
        "state": _read(port, "state"),
        "physical": _read(port, "phys_state"),
        "lid": _read(port, "lid"),
        "rate": _read(port, "rate"),
        "layer": _read(port, "link_layer"),
        "gids": table,
        "interface": interface,
        "mtu": _read("/sys/class/net", interface, "mtu") if interface else "",
        "quality": _quality(name, interface) if interface else {},
        "before": {},
        "after": {},
    }


def _adapter(name: str, machine: str, ports: list[dict[str, Any]]) -> dict[str, object]:
    device = os.path.join(TOP, name, "device")
    return {
        "name": name,
        "driver": os.path.basename(os.path.realpath(os.path.join(device, "driver"))),
        "vendor": _read(device, "vendor")[2:],
        "slot": os.path.basename(os.path.realpath(device)),
        "chip": _read(TOP, name, "sys_image_guid"),
        "pcie": [_read(device, file) for file in ("current_link_speed", "current_link_width", "max_link_width")],
        "machine": machine,
        "type": _read(TOP, name, "hca_type"),
        "node": _read(TOP, name, "node_type"),
        "board": _read(TOP, name, "board_id"),
        "firmware": _read(TOP, name, "fw_ver"),
        "virtual": os.path.exists(os.path.join(device, "physfn")),
        "ports": ports,
    }


def read_rdma(arguments: ProbeArguments) -> list[dict[str, object]]:
    """Runs on the host: every adapter and port of /sys/class/infiniband; counters are read twice, a second apart."""
    names = sorted(os.listdir(TOP))[:128] if os.path.isdir(TOP) else []
    machine = " ".join(_read("/sys/class/dmi/id", name) for name in ("sys_vendor", "product_name"))

    adapters = []
    active = []
    for name in names:
        ports = []
        for number in _entries(TOP, name, "ports"):
            port, values = os.path.join(TOP, name, "ports", number), _port(name, number)
            if "ACTIVE" in values["state"]:
                values["before"] = _counters(port)
                active.append((port, values))
            ports.append(values)
        adapters.append(_adapter(name, machine, ports))
    if active:
        time.sleep(1)
    for port, values in active:
        values["after"] = _counters(port)
    uptime = _read("/proc/uptime").split()
    for adapter in adapters:
        adapter["uptime"] = float(uptime[0]) if uptime else 0
    return adapters


class Gid(msgspec.Struct, frozen=True, array_like=True):
    """One address of a port."""

    index: int
    address: str
    kind: str
    """``RoCE v2``, ``IB/RoCE v1``; empty where its interface is in another network namespace."""
    interface: str

    @property
    def is_ipv4(self) -> bool:
        return self.address.startswith("0000:0000:0000:0000:0000:ffff:")


class RdmaPort(msgspec.Struct, frozen=True):
    """One port of an adapter, as the kernel shows it."""

    number: int
    state: str
    """``4: ACTIVE``, ``1: DOWN``, ``2: INIT``."""
    physical: str
    """``5: LinkUp``, ``2: Polling``, ``3: Disabled``."""
    rate: str
    """``400 Gb/sec (4X NDR)``."""
    layer: str
    """InfiniBand or Ethernet."""
    gids: tuple[Gid, ...] = ()
    interface: str = ""
    mtu: str = ""
    lid: str = ""
    """``0xd4b``: the address that a subnet manager gave the port since its driver started; 0x0 and 0xffff are none."""
    quality: dict[str, str] = {}
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    """The counters one second later."""

    @property
    def is_active(self) -> bool:
        return "ACTIVE" in self.state

    @property
    def has_link(self) -> bool:
        """A cable carries a signal, in any logical state of the port; one that waits for a subnet manager has one."""
        return "LinkUp" in self.physical or any(state in self.state for state in ("INIT", "ARMED"))

    @property
    def was_configured(self) -> bool:
        """A subnet manager has had it in its fabric since the host's driver started."""
        is_number = re.fullmatch("0x[0-9a-f]{1,8}", self.lid, re.ASCII) is not None
        return is_number and int(self.lid, 16) not in (0, 0xFFFF)

    @property
    def gigabits(self) -> float | None:
        match = re.match(r"([0-9.]+) Gb/sec", self.rate)
        return float(match[1]) if match and match[1].count(".") < 2 else None

    @property
    def growth(self) -> dict[str, int]:
        """Errors in the second between the two reads."""
        return {
            name: self.after[name] - self.before[name]
            for name in ERROR_COUNTERS
            if name in self.before and self.after.get(name, 0) > self.before[name]
        }


_RDMA_MODULES = {
    "mlx5_core": "mlx5_ib",
    "mlx4_core": "mlx4_ib",
    "bnxt_en": "bnxt_re",
    "hns3": "hns_roce_hw_v2",
    "mana": "mana_ib",
    "ionic": "ionic_rdma",
    "cxgb4": "iw_cxgb4",
    "qede": "qedr",
    **dict.fromkeys(("ice", "i40e", "idpf"), "irdma"),
}
"""The kernel module of RDMA by the driver of the PCI function (drivers/infiniband/hw of Linux), where they are two."""


class RdmaDevice(msgspec.Struct, frozen=True):
    """One adapter."""

    name: str
    type: str
    board: str
    firmware: str
    ports: tuple[RdmaPort, ...]
    virtual: bool = False
    """A virtual function (SR-IOV) of another adapter."""
    uptime: float = 0.0
    """Seconds since the host was started, in which its counters were counted; 0 in older records."""
    node: str = ""
    """``1: CA``, ``4: RNIC`` (iWARP), ``7: <unknown>`` (EFA); empty in older records.

    Source: Linux, drivers/infiniband/core/sysfs.c, node_type_show.
    """

    driver: str = ""
    """Of its PCI function, such as ``mlx5_core``; empty in older records, and ``driver`` for a software adapter."""
    vendor: str = ""
    """PCI vendor, such as ``15b3``; empty in older records, and for a software adapter."""

    slot: str = ""
    """Its PCI address, as ``0000:08:00.0``; empty in older records."""
    chip: str = ""
    """The GUID that all functions of one adapter have (sys_image_guid of sysfs-class-infiniband)."""
    pcie: tuple[str, str, str] = ("", "", "")
    """Speed (``16.0 GT/s PCIe``), lanes and most lanes of its PCIe link; empty texts where the kernel shows none."""
    machine: str = ""
    """Vendor and product of the machine, as its firmware has them."""

    @property
    def pcie_link(self) -> str:
        """``x8 at 16.0 GT/s PCIe``; empty where not known, as for a virtual function, and in a virtual machine, whose
        bridge may show a link of its own.
        """
        speed, lanes, _ = self.pcie
        is_known = re.match(r"[0-9.]{1,6} GT/s", speed) and re.fullmatch("[1-9][0-9]?", lanes)
        return (
            filled("x{0} at {1}", lanes, speed)
            if is_known and not self.virtual and not is_virtual_machine(self.machine)
            else ""
        )

    @property
    def lacks_lanes(self) -> bool:
        """Its PCIe link has fewer lanes than the adapter may have."""
        _, lanes, most = self.pcie
        return bool(self.pcie_link and re.fullmatch("[1-9][0-9]?", most) and int(lanes) < int(most))

    @property
    def pcie_gigabits(self) -> float:
        """What its PCIe link carries, in Gbit/s; 0 where the link is not known."""
        rate = float(self.pcie[0].partition(" ")[0]) if self.pcie_link else 0.0
        return rate * int(self.pcie[1] or 0) * (0.8 if rate <= 5 else 128 / 130) if rate else 0.0

    def is_half_of(self, other: RdmaDevice) -> bool:
        """Both are links of one adapter to the host, on two buses: its lanes are divided (Socket Direct)."""
        buses = {device.slot.rpartition(":")[0] for device in (self, other)}
        return bool(self.chip.strip("0:")) and self.chip == other.chip and len(buses - {""}) == 2

    @property
    def module(self) -> str:
        """The kernel module that makes it an RDMA adapter; empty where it is not known."""
        return _RDMA_MODULES.get(self.driver, self.driver) if self.vendor else ""

    @property
    def has_connections(self) -> bool:
        """Whether two programs of verbs can connect a pair of queues (RC) by themselves.

        EFA has none, and iWARP connects by its connection manager alone.
        """
        return self.node in ("", "1: CA") and all(port.layer in ("InfiniBand", "Ethernet") for port in self.ports)


class RdmaPorts(Fact, frozen=True):
    """The RDMA adapters that the job sees, with the state of their ports.

    Raw output, as JSON::

        [{"name": "mlx5_0", "type": "MT4129", "board": "MT_0000000838", "firmware": "28.39.1002", "ports": [
            {"number": 1, "state": "4: ACTIVE", "physical": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)",
             "layer": "InfiniBand", "gids": [[0, "fe80:0000:0000:0000:9c63:c003:00aa:a7f6", "IB/RoCE v1", ""]],
             "interface": "", "mtu": "", "quality": {}, "before": {"symbol_error": 0}, "after": {"symbol_error": 0}}]}]
    """

    probe = ask(read_rdma, requires="/sys/class/infiniband", job=True, timeout=20)

    devices: tuple[RdmaDevice, ...]

    @property
    def ports(self) -> dict[str, RdmaPort]:
        return {f"{device.name}:{port.number}": port for device in self.devices for port in device.ports}

    @property
    def missing_rails(self) -> frozenset[str]:
        """The one inactive adapter of eight or more of one board, each with one port and its own chip, or two of eight.

        Of four alike cards one may wait for its cable, and of a card with two ports one is often unused.
        """
        boards: dict[str, list[RdmaDevice]] = {}
        for device in self.devices:
            if device.board and not device.virtual and len(device.ports) == 1:
                boards.setdefault(device.board, []).append(device)
        dark = set()
        for alike in boards.values():
            inactive = [device.name for device in alike if not device.ports[0].is_active]
            chips = {device.chip for device in alike if device.chip.strip("0:")}
            if len(alike) == len(chips) >= 8 and len(inactive) <= 1 + (len(alike) == 8):
                dark.update(inactive)
        return frozenset(dark)

    @classmethod
    def read(cls, answer: ProbeAnswer) -> RdmaPorts:
        if "" in answer and answer[""].ended == "absent":
            raise Absent("the host has no RDMA adapter")
        devices = msgspec.convert(answer.json(), tuple[RdmaDevice, ...])
        if not devices:
            raise Absent("the host has no RDMA adapter")
        value = cls(devices=devices)
        rates = {name: port.rate for name, port in value.ports.items() if port.is_active and port.gigabits is None}
        unread = {name: filled("not a rate: {0}", strip_control_chars(rate, 40)) for name, rate in rates.items()}
        return msgspec.structs.replace(value, unread=unread)


def chosen_ports(setting: str, ports: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ports that a value of NCCL_IB_HCA chooses, and names in it that fit none.

    ``ports``: such as ``mlx5_0:1``; one without a number stands for all ports of its adapter.
    ``mlx5`` is a prefix, ``=mlx5_0:1,mlx5_1`` are exact names, ``^mlx5_3`` and ``^=mlx5_3:1`` exclude.
    """
    text = setting.strip()
    excludes = text.startswith("^")
    text = text.removeprefix("^")
    exact = text.startswith("=")
    names = [name.strip() for name in text.removeprefix("=").split(",") if name.strip()]
    fitting: set[str] = set()
    unmatched: list[str] = []
    for name in names:
        device, _, number = name.partition(":")
        matches = {
            port
            for port in ports
            if (port.partition(":")[0] == device if exact else port.startswith(device))
            and (not number or port.partition(":")[2] in ("", number))
        }
        if not matches:
            unmatched.append(name)
        fitting |= matches
    chosen = set(ports) - fitting if excludes else fitting
    return tuple(port for port in ports if port in chosen), () if excludes else tuple(unmatched)
