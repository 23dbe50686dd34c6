"""Whether the NPUs encrypt the connections between them."""

from __future__ import annotations

import re

from doctor.engine.fact import Answer, Fact
from doctor.facts.hccn.tool import each_npu, hccn, missing, there, told


class TlsSwitches(Fact, frozen=True):
    """Whether TLS is on, for every NPU."""

    probe = hccn("-tls -g", root=True)

    by_npu: dict[int, bool]
    expired: tuple[int, ...] = ()
    """NPUs whose certificate has expired."""
    bare: tuple[int, ...] = ()
    """NPUs that have no certificate, and so do not show a switch."""

    @classmethod
    def read(cls, answer: Answer) -> TlsSwitches:
        seen, unread = each_npu(answer, told(_tls, "No certificate found"))
        known = there(seen)
        return cls(
            by_npu={npu: on for npu, (on, _) in known.items()},
            expired=tuple(npu for npu, (_, expired) in known.items() if expired),
            bare=missing(seen),
            unread=unread,
        )


def _tls(text: str) -> tuple[bool, bool]:
    """Switch, and whether the certificate has expired (older drivers do not say)."""
    (switch,) = re.findall(r"\btls switch\[([01])\]", text)
    expiration = re.findall(r"\btls expiration status\[(\d+)\]", text)
    return switch == "1", "2" in expiration
