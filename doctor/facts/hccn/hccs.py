"""The second round's, inside A3 super pods: whether NPUs of different hosts reach each other over HCCS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Answer, Fact, PerHost, Unreadable, ask
from doctor.facts.hccn.addresses import VnicAddresses
from doctor.facts.hccn.super_pod import SuperPod
from doctor.facts.hccn.tool import last_words, refuse
from doctor.facts.pings import SECONDS, call_tool, partners

WORDS = ["-hccs_ping", "-g", "address"]


class HccsPing(msgspec.Struct, frozen=True, order=True):
    """Packets from one NPU to the HCCS address of another host's."""

    npu: int
    address: str
    sent: int
    received: int
    planes: tuple[str, ...]
    """Results of the plane check that are not 0x0."""


class HccsPings(Fact, frozen=True):
    """What ``hccn_tool -hccs_ping`` said from each NPU to the same NPU of some other hosts of its super pod.

    The tool ends with status 0 and `Cmd executed successfully!` when every packet is lost: the count decides.
    """

    probe = ask(call_tool, root=True, timeout=SECONDS + 15)
    needs = (VnicAddresses, SuperPod)

    pings: tuple[HccsPing, ...]

    @classmethod
    def plan(cls, seen: Mapping[type[Fact], PerHost[Any]]) -> dict[str, Any]:
        vnics, pods = seen[VnicAddresses], seen[SuperPod]
        tasks: dict[str, Any] = {}
        for pod in sorted({one.id for one in pods.values()}):
            hosts = [host for host, one in pods.items() if one.id == pod and host in vnics]
            for host, peers in partners(hosts).items():
                calls = [
                    (npu, str(vnics[peer].by_npu[npu].address.ip), WORDS)
                    for npu in sorted(vnics[host].by_npu)
                    for peer in peers
                    if npu in vnics[peer].by_npu
                ]
                if calls:
                    tasks[host] = {"calls": calls, "seconds": SECONDS}
        return tasks

    @classmethod
    def read(cls, answer: Answer) -> HccsPings:
        pings, unread = [], {}
        for npu, address, text in answer.json():
            found = re.search(r"^(\d+) packets transmitted, (\d+) received", text, re.M)
            if found:
                planes = set(re.findall(r"L1 plane check result = (\w+)", text)) - {"0x0"}
                pings.append(HccsPing(npu, address, int(found[1]), int(found[2]), tuple(sorted(planes))))
            else:
                unread[f"HCCS ping from NPU {npu} to {address}"] = _why(text)
        if not pings:
            raise Unreadable(next(iter(unread.values()), "no NPU was pinged"))
        return cls(pings=tuple(pings), unread=unread)


def _why(text: str) -> str:
    try:
        refuse(text)
    except Absent as why:
        return str(why)
    return last_words(text) or "hccn_tool said nothing"
