"""Whether the NPUs encrypt the connections between them."""

from __future__ import annotations

import re

from doctor.engine.fact import Fact, ProbeAnswer
from doctor.facts.hccn.tool import hccn_probe, parse_each_npu, parse_with, set_values


class TlsSwitches(Fact, frozen=True):
    """Whether TLS is on, for every NPU.

    Raw output, for NPU 0::

        dev_id:0, tls switch[0](0:disable, 1:enable), tls preconfigured[1](0:non-preset, 1:preset)
        dev_id:0, [pub cert] info:
                 start_time[Wed Feb 19 03:19:21 2020 GMT]
                 end_time[Sat Feb 16 03:19:21 2030 GMT]
                 tls expiration status[0](0:normal, 1:near expiration, 2:has expired)
    """

    probe = hccn_probe("-tls -g", root=True)

    by_npu: dict[int, bool]
    expired: tuple[int, ...] = ()
    """NPUs whose certificate has expired."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> TlsSwitches:
        switches, unread = parse_each_npu(answer, _parse_answer)
        states = set_values(switches)
        return cls(
            by_npu={npu: on for npu, (on, _) in states.items()},
            expired=tuple(npu for npu, (_, expired) in states.items() if expired),
            unread=unread,
        )


def _parse_tls(text: str) -> tuple[bool, bool]:
    """Switch, and whether the certificate has expired (older drivers do not say, newer ones of each certificate)."""
    (switch,) = re.findall(r"\btls switch\[([01])\]", text)
    expiration = re.findall(r"\btls expiration status\[(\d+)\]", text)
    certificates = text.count("] info:")
    if text.count("end_time[") < certificates or 0 < len(expiration) < certificates:
        raise ValueError
    return switch == "1", "2" in expiration


_parse_answer = parse_with(_parse_tls, "No certificate found")
