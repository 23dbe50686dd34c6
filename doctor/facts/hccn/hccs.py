"""The second round's, inside A3 super pods: whether NPUs of different hosts reach each other over HCCS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, PerHost, ProbeAnswer, Unreadable, ask
from doctor.engine.sanitize import last_line
from doctor.engine.texts import filled
from doctor.facts.hccn.device_addresses import VnicAddresses
from doctor.facts.hccn.pings import PING_SECONDS, ping_partners, run_hccn_tool
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.hccn.tool import raise_known_refusal

PING_OPTIONS = ["-hccs_ping", "-g", "address"]


class HccsPing(msgspec.Struct, frozen=True, order=True):
    """Packets from one NPU to the HCCS address of another host's."""

    npu: int
    address: str
    sent: int
    received: int
    planes: tuple[str, ...]
    """Results of the plane check that are not 0x0."""


class HccsPings(Fact, frozen=True):
    r"""Results of ``hccn_tool -hccs_ping`` from each NPU to the same NPU of some other hosts of its super pod.

    The tool ends with status 0 and `Cmd executed successfully!` when every packet is lost: the count decides.

    Raw output, as JSON::

        [[3, "192.1.2.0", "device 3 PING 192.1.2.199\n\nThis pkt ping success!\nrecv seq 0, time = 25.250us, L1 plane check result = 0x0\n\n1 packets transmitted, 1 received, 0.00% packets loss\n"]]
    """  # noqa: E501

    probe = ask(run_hccn_tool, root=True, timeout=PING_SECONDS + 15)
    needs = (VnicAddresses, SuperPodId)

    pings: tuple[HccsPing, ...]

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
        pings, unread = [], {}
        for npu, address, text in answer.json():
            match = re.search(r"(?m)^(\d+) packets transmitted, (\d+) received", text)
            if match:
                planes = set(re.findall(r"L1 plane check result = (\w+)", text)) - {"0x0"}
                pings.append(HccsPing(npu, address, int(match[1]), int(match[2]), tuple(sorted(planes))))
            else:
                unread[filled("HCCS ping from NPU {0} to {1}", npu, address)] = _failure_reason(text)
        if not pings:
            raise Unreadable.of_each(unread, "no NPU was pinged")
        return cls(pings=tuple(pings), unread=unread)


def _failure_reason(text: str) -> str:
    try:
        raise_known_refusal(text)
    except Absent as why:
        return str(why)
    return last_line(text) or "hccn_tool printed nothing"
