"""Attempts of the accelerators' own network, from device to device: programs, what they print, and what it means. Pure.

NPUs ping the NPU of the same number with ``hccn_tool -ping``. RDMA adapters write to the adapter of the same name with
``ib_write_bw`` of perftest, else with ``ibv_rc_pingpong`` of libibverbs, else with ``rping`` of librdmacm; one end
serves, the other calls. The first two exchange the adapters' addresses over TCP before anything goes over RDMA: what
fails there says nothing of RDMA. rping connects over RDMA, to the IPv4 address of the adapter.

Sources: outputs in linux-rdma/perftest issues 132, 228, 262 and 393; rdma-core, libibverbs/examples/rc_pingpong.c and
librdmacm/examples/rping.c; linux-rdma mailing list, runs of rping over siw, rxe and cxgb4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address
from typing import Any, Literal

import msgspec

from doctor.engine.fact import PerHost
from doctor.engine.sanitize import last_line, strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.pings import DevicePings, packet_counts
from doctor.facts.hccn.tool import refusal_text
from doctor.facts.network_test import NetworkAnswer
from doctor.facts.rdma import ROCE_V2, RdmaPort, RdmaPorts

MAX_TRIALS = 20_000
"""Of one host, that are read."""
MAX_DETAIL = 160
MESSAGE_BYTES, MESSAGES = 65536, 500
RDMA_PROGRAMS = ("ib_write_bw", "ibv_rc_pingpong", "rping")
"""The first that both hosts have is taken."""
PINGS = 10
"""Of one call of rping."""
RETRIED = ("is busy", "Couldn't connect to", "RDMA_CM_EVENT_REJECTED")
"""What a program prints while a lock is held, or the other end does not listen yet."""

TrialResult = Literal["worked", "failed", "unknown"]


class HostDevices(msgspec.Struct, frozen=True):
    """The devices of one host that have a network of their own."""

    npus: Mapping[int, str] = {}
    """Address by number."""
    rdma: Mapping[str, int | None] = {}
    """By adapter and port, such as ``mlx5_0:1``: the GID index that the program is given; None: its own choice."""
    rdma_addresses: Mapping[str, str] = {}
    """IPv4 address of such a port, where one of its GIDs holds it."""
    untried: tuple[str, ...] = ()
    """Adapters that `RDMA_PROGRAMS` cannot try: EFA and iWARP."""
    answered: frozenset[tuple[int, str]] = frozenset()
    """Number of an NPU and address of another that answered all of its packets in the second round."""


class DeviceTrial(msgspec.Struct, frozen=True):
    """One attempt from a device of a host to that of another."""

    source: str
    target: str
    """Hosts, by name."""
    device: str
    """``NPU 3``, or adapter and port."""
    result: TrialResult
    detail: str = ""
    gigabits: float = 0.0
    """A second; 0 where it was not measured."""


def devices_of(
    addresses: DeviceAddresses | None,
    adapters: RdmaPorts | None,
    environ: Mapping[str, str],
    pings: DevicePings | None = None,
) -> HostDevices:
    """The devices of a host that can be tried: NPUs with an address, RDMA ports that are active.

    pings: those of the second round, where it had any.
    """
    npus = {npu: str(address.ip) for npu, address in addresses.by_npu.items()} if addresses else {}
    others = tuple(device.name for device in adapters.devices if not device.has_connections) if adapters else ()
    ports = {
        name: port for name, port in (adapters.ports if adapters else {}).items() if name.split(":")[0] not in others
    }
    index = environ.get("NCCL_IB_GID_INDEX", "")[:4]
    of_job = int(index) if index.isascii() and index.isdigit() else None
    active = {name: port for name, port in ports.items() if port.is_active}
    held = {name: address for name, port in active.items() if (address := _ipv4_address(port))}
    answered = {(ping.npu, ping.address) for ping in (pings.pings if pings else ()) if 0 < ping.sent == ping.received}
    indices = {name: _gid_index(port, of_job) for name, port in active.items()}
    return HostDevices(npus, indices, held, answered=frozenset(answered), untried=others)


def _ipv4_address(port: RdmaPort) -> str:
    """That of its first RoCE v2 GID with one; the empty string where it has none."""
    for gid in port.gids:
        if gid.kind == ROCE_V2 and gid.is_ipv4:
            try:
                return str(IPv6Address(gid.address).ipv4_mapped or "")
            except ValueError:
                continue
    return ""


def _gid_index(port: RdmaPort, of_job: int | None) -> int | None:
    """Of RoCE: as the job says, else the first RoCE v2 address over IPv4, which fits most networks."""
    if port.layer != "Ethernet":
        return None
    indices = (gid.index for gid in port.gids if gid.kind == ROCE_V2 and gid.is_ipv4)
    return of_job if of_job is not None else next(indices, None)


def answered_pings(source: HostDevices, target: HostDevices) -> list[int]:
    """The NPUs whose pings the second round had answered, from one end or the other."""
    return [
        npu
        for npu in sorted(source.npus.keys() & target.npus.keys())
        if (npu, target.npus[npu]) in source.answered or (npu, source.npus[npu]) in target.answered
    ]


def ping_calls(source: HostDevices, target: HostDevices) -> list[tuple[str, list[str]]]:
    """Label and command line of each ping from an NPU to that of the same number that nothing has answered yet.

    Between addresses of two families there is no way to try: `device-ip-families-mixed` reports them.
    """
    calls = []
    for npu in sorted((source.npus.keys() & target.npus.keys()).difference(answered_pings(source, target))):
        address = target.npus[npu]
        if (":" in address) != (":" in source.npus[npu]):
            continue
        options = ["-inet6", "-g", "ipv6_address"] if ":" in address else ["-g", "address"]
        calls.append((f"NPU {npu}", ["hccn_tool", "-i", str(npu), "-ping", *options, address]))
    return calls


def rdma_command(program: str, port: str, gid_index: int | None, tcp_port: int, address: str = "") -> list[str]:
    """The command line of one end; without an address the one that serves."""
    device, _, number = port.partition(":")
    command = [program, "-d", device, "-i", number or "1", "-p", str(tcp_port)]
    command += ["-s", str(MESSAGE_BYTES), "-n", str(MESSAGES)]
    if program == "ib_write_bw":
        command += ["-F", "--report_gbits"]
    if gid_index is not None:
        command += ["-x" if program == "ib_write_bw" else "-g", str(gid_index)]
    return [*command, address] if address else command


def rping_command(tcp_port: int, target: str, source: str = "") -> list[str]:
    """The command line of one end; with the address that it comes from the one that calls."""
    ends = ["-c", "-I", source] if source else ["-s"]
    return ["rping", *ends, "-a", target, "-p", str(tcp_port), "-C", str(PINGS), "-v", "-V"]


_ROW = re.compile(rf"^[ \t]*{MESSAGE_BYTES}[ \t]+\d+[ \t]+([\d.]{{1,20}})[ \t]+([\d.]{{1,20}})", re.M)
_PINGPONG = re.compile(r"^\d+ bytes in [\d.]{1,20} seconds = ([\d.]{1,20}) Mbit/sec", re.M)
_FAILED = re.compile(
    r"Failed to modify QP|Unable to Connect the HCA|Completion with error|Failed status|remote address: .*\n.*Couldn't"
    r"|Couldn't read remote|Failed to complete|retry counter exceeded|link layer"
)
"""The adapters know each other's addresses, or could not take one, and data did not pass."""
_PING_DATA = re.compile(r"^ping data: rdma-ping-\d", re.M)
_RPING = re.compile(
    r"^(?:ping data: |cma event |rdma_[a-z_]{1,40}: |waiting for addr/route|cq completion failed|data mismatch!"
    r"|client DISCONNECT EVENT|wait for [A-Z_]{1,40} state)",
    re.M,
)
_RPING_FAILED = re.compile(
    r"^(?:data mismatch!|cq completion failed status|cma event RDMA_CM_EVENT_(?:UNREACHABLE|CONNECT_ERROR),"
    r"|cma event RDMA_CM_EVENT_(?:ADDR|ROUTE)_ERROR, error -110\b)",
    re.M,
)
"""Data is wrong, or does not pass; the other end, the neighbour or the route does not answer (110: ETIMEDOUT)."""
_NO_TRIAL = re.compile(
    r"Couldn't connect to|not found|Unable to find|Did not detect|Failed to get IB devices|Couldn't (?:allocate|create"
    r"|get|init|open)|Unable to (?:open|create|init)|Permission denied|No such file|command not found"
)


def read_ping(text: str) -> tuple[TrialResult, str, float]:
    """Result, detail and gigabits of ``hccn_tool -ping``: the count of packets decides, not the exit status."""
    counts = packet_counts(text)
    if counts is None:
        return "unknown", refusal_text(text, MAX_DETAIL), 0.0
    sent, received = counts
    lost = filled("{0} of {1} packets came back", received, sent)
    return ("worked", "", 0.0) if sent == received != 0 else ("failed", lost, 0.0)


def read_rdma(text: str) -> tuple[TrialResult, str, float]:
    """The same of what the calling end of an RDMA program printed."""
    row, pingpong = _ROW.search(text), _PINGPONG.search(text)
    if row is not None:
        return "worked", "", _number(row[2])
    if pingpong is not None:
        return "worked", "", _number(pingpong[1]) / 1000
    failed = _FAILED.search(text)
    if failed is not None:
        return "failed", _line_at(text, failed.start()), 0.0
    refused = _NO_TRIAL.search(text)
    if refused is not None:
        return "unknown", _line_at(text, refused.start()), 0.0
    if _RPING.search(text):
        return _read_rping(text)
    if "remote address:" in text:
        return "failed", "no data passes: the program waited until its time was over", 0.0
    return "unknown", last_line(text, MAX_DETAIL) or "it printed nothing", 0.0


def _read_rping(text: str) -> tuple[TrialResult, str, float]:
    """The same of rping: data that is wrong or missing, and no answer to the call, are failures."""
    failed = _RPING_FAILED.search(text)
    if failed is not None:
        return "failed", _line_at(text, failed.start()), 0.0
    answered = len(_PING_DATA.findall(text))
    if answered >= PINGS:
        return "worked", "", 0.0
    if answered:
        return "failed", filled("{0} of {1} pings came back", answered, PINGS), 0.0
    return "unknown", _line_at(text, _RPING.search(text).start()), 0.0  # type: ignore[union-attr]


def _number(text: str) -> float:
    return float(text) if text.count(".") < 2 and text != "." else 0.0


def _line_at(text: str, start: int) -> str:
    begin, end = text.rfind("\n", 0, start) + 1, text.find("\n", start)
    return strip_control_chars(text[begin : end if end >= 0 else None].strip(), MAX_DETAIL)


def device_trials(answers: PerHost[NetworkAnswer]) -> Iterator[DeviceTrial]:
    """The attempts of all hosts; what is not of that form is left out."""
    for host, answer in answers.items():
        listed: Any = answer.answer.get("devices")
        for item in listed[:MAX_TRIALS] if isinstance(listed, list) else ():
            target = item.get("target") if isinstance(item, dict) else None
            if type(target) is not int or not 0 <= target < len(answer.hosts) or answer.hosts[target] == host:
                continue
            try:
                yield msgspec.convert({**item, "source": host, "target": answer.hosts[target]}, DeviceTrial)
            except msgspec.ValidationError:
                continue
