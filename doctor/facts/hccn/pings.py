"""The second round's: whether NPUs of different hosts reach each other over their own network, and over HCCS."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.fact import Fact, PerHost, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import filled
from doctor.facts.hccn.device_addresses import DeviceAddresses, VnicAddresses
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.hccn.tool import refusal_text

MAX_PEERS = 4
PING_SECONDS = 40
IPV4_OPTIONS = ("-g", "address")
IPV6_OPTIONS = ("-inet6", "-g", "ipv6_address")


def run_hccn_tool(arguments: ProbeArguments) -> Any:
    """Runs hccn_tool with each of the fact's calls, one after another, for it takes a lock."""
    import subprocess

    task = arguments[arguments["asked"]]  # type: ignore[literal-required]
    end = time.monotonic() + task["seconds"]
    replies = []
    for npu, address, options in task["calls"]:
        text = "not run: the time limit was reached"
        while time.monotonic() < end:
            try:
                done = subprocess.run(
                    ["hccn_tool", "-i", str(npu), *options, address],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=10,
                )
            except subprocess.TimeoutExpired:
                text = "no answer in 10 s"
                break
            except OSError:
                text = "hccn_tool is not here: nothing was tried"
                break
            text = done.stdout[:4000].decode("utf-8", "replace")
            if "is busy" not in text:  # another caller holds its lock
                break
            time.sleep(0.1)
        replies.append([npu, address, text])
    return replies


class Ping(msgspec.Struct, frozen=True, order=True):
    """Packets from one NPU to the address of another host's."""

    npu: int
    address: str
    sent: int
    received: int
    planes: tuple[str, ...] = ()
    """Results of the plane check that are not 0x0; over HCCS alone."""


_COUNTS = re.compile(r"\b(\d{1,9}) packets transmitted, (\d{1,9}) received")


def packet_counts(text: str) -> tuple[int, int] | None:
    """Packets sent and received by a ping of hccn_tool, whose exit status says neither; None where it has no count.

    >>> packet_counts("3 packets transmitted, 2 received, 33.33% packet loss")
    (3, 2)
    """
    match = _COUNTS.search(text)
    return (int(match[1]), int(match[2])) if match else None


def _read_pings(answer: ProbeAnswer, kind: str) -> tuple[tuple[Ping, ...], dict[str, str]]:
    """The pings with a count, and why others have none."""
    pings, unread = [], {}
    for npu, address, text in answer.json():
        if counts := packet_counts(text):
            planes = set(re.findall(r"L1 plane check result = (\w+)", text)) - {"0x0"}
            pings.append(Ping(npu, address, *counts, tuple(sorted(planes))))
        else:
            unread[filled("{0} from NPU {1} to {2}", kind, npu, address)] = refusal_text(text, 200)
    return tuple(pings), unread


class DevicePings(Fact, frozen=True):
    r"""Results of `hccn_tool -ping` from each NPU to the same NPU of some other hosts.

    Of the exit status nothing is made: it is 1 for a lost packet and for a broken tool alike. The count of
    packets received decides (driver source, ds_net_ext.c).

    Raw output, as JSON::

        [[3, "29.1.0.2", "device 3 PING 29.1.0.2\nrecv seq=0,time=1.4ms\n3 packets transmitted, 3 received, 0.00% packet loss\n"]]
    """  # noqa: E501

    probe = ask(run_hccn_tool, timeout=PING_SECONDS + 15)
    needs = (DeviceAddresses,)

    pings: tuple[Ping, ...]

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> dict[str, object]:
        addresses = fleet_facts[DeviceAddresses]
        return {
            host: {"calls": calls, "seconds": PING_SECONDS}
            for host, peers in ping_partners(list(addresses)).items()
            if (calls := list(_ping_calls(addresses[host], [addresses[peer] for peer in peers])))
        }

    @classmethod
    def read(cls, answer: ProbeAnswer) -> DevicePings:
        pings, unread = _read_pings(answer, "ping")
        return cls(pings=pings, unread=unread)


def ping_partners(hosts: Sequence[str]) -> dict[str, list[str]]:
    """The hosts that each host pings: those 1, 2, 4, 8 places on, round and round.

    Each host is pinged by as many as it pings, which distinguishes one deaf host from one deaf link; the cost per host
    does not grow with the fleet.
    """
    count = len(hosts)
    steps = [step for step in (1 << power for power in range(MAX_PEERS)) if step < count]
    return {host: [hosts[(place + step) % count] for step in steps] for place, host in enumerate(hosts)}


def _ping_calls(
    host_addresses: DeviceAddresses, peers: Sequence[DeviceAddresses]
) -> Iterator[tuple[int, str, list[str]]]:
    """Between addresses of two families there is no way to try: `device-ip-families-mixed` reports them."""
    for npu, interface in sorted(host_addresses.by_npu.items()):
        for peer in peers:
            if npu in peer.by_npu and peer.by_npu[npu].version == interface.version:
                address = str(peer.by_npu[npu].ip)
                yield npu, address, ["-ping", *(IPV6_OPTIONS if ":" in address else IPV4_OPTIONS)]


PING_OPTIONS = ["-hccs_ping", "-g", "address"]


class HccsPings(Fact, frozen=True):
    r"""Results of ``hccn_tool -hccs_ping`` from each NPU to the same NPU of some other hosts of its super pod.

    The tool ends with status 0 and `Cmd executed successfully!` when every packet is lost: the count decides.

    Raw output, as JSON::

        [[3, "192.1.2.0", "device 3 PING 192.1.2.199\n\nThis pkt ping success!\nrecv seq 0, time = 25.250us, L1 plane check result = 0x0\n\n1 packets transmitted, 1 received, 0.00% packets loss\n"]]
    """  # noqa: E501

    probe = ask(run_hccn_tool, root=True, timeout=PING_SECONDS + 15)
    needs = (VnicAddresses, SuperPodId)

    pings: tuple[Ping, ...]

    @classmethod
    def plan(cls, fleet_facts: Mapping[type[Fact], PerHost[Any]]) -> dict[str, object]:
        vnics, pods = fleet_facts[VnicAddresses], fleet_facts[SuperPodId]
        tasks: dict[str, object] = {}
        for pod in sorted({super_pod.id for super_pod in pods.values()}):
            hosts = [host for host, super_pod in pods.items() if super_pod.id == pod and host in vnics]
            for host, peers in ping_partners(hosts).items():
                calls = [
                    (npu, str(vnics[peer].by_npu[npu].address.ip), PING_OPTIONS)
                    for npu in sorted(vnics[host].by_npu)
                    for peer in peers
                    if npu in vnics[peer].by_npu
                ]
                if calls:
                    tasks[host] = {"calls": calls, "seconds": PING_SECONDS}
        return tasks

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HccsPings:
        pings, unread = _read_pings(answer, "HCCS ping")
        if not pings:
            raise Unreadable.of_each(unread, "no NPU was pinged")
        return cls(pings=pings, unread=unread)
