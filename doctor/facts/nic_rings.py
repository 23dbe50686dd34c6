"""The receive rings of a host's network cards, and the packets that found no room in them."""

from __future__ import annotations

import _socket
import time
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.remote.runtime.netlink import driver_values
from doctor.remote.runtime.reading import matching_paths, read_text


def _counters(name: str) -> list[int]:
    folder = "/sys/class/net/" + name + "/statistics/"
    names = ("rx_packets", "rx_missed_errors", "rx_fifo_errors")
    texts = [read_text(folder + counter, 64).strip() for counter in names]
    packets, *lost = [int(text) if text.isdigit() else 0 for text in texts]
    return [packets, max(lost)]


def read_rings(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the receive ring of each physical network card; its counters a second later if it may be full.

    The ring is asked for with ETHTOOL_GRINGPARAM (0x10), as ``ethtool -g`` does.
    """
    asking = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    cards: dict[str, Any] = {}
    for path in sorted(matching_paths("/sys/class/net/*/device"))[:256]:
        name = path.split("/")[4]
        ring = driver_values(asking, name, [0x10] + [0] * 8)
        if ring and ring[1]:
            cards[name] = {"current": ring[5], "maximum": ring[1], "before": _counters(name)}
    asking.close()
    full = [name for name, card in cards.items() if card["current"] < card["maximum"] and card["before"][1]]
    if full:
        time.sleep(1)
    for name in full:
        cards[name]["after"] = _counters(name)
    return cards


class _Card(msgspec.Struct, frozen=True):
    """What `read_rings` returns of one card."""

    current: int
    maximum: int
    before: tuple[int, int]
    after: tuple[int, int] | None = None


class ReceiveRing(msgspec.Struct, frozen=True):
    """One card's ring of buffers for packets that arrive."""

    current: int
    """Buffers."""
    maximum: int
    """That the card can have."""
    packets: int = 0
    """Received since the card was started."""
    dropped: int = 0
    """That found no buffer."""
    growth: int = 0
    """Of ``dropped``, within the second in which they were watched."""


class NicRings(Fact, frozen=True):
    """The receive rings of the host's physical network cards, of those whose driver tells them.

    Raw output, as JSON; counters are packets and drops::

        {"ens1f0np0": {"current": 1024, "maximum": 8192, "before": [81422871, 9120], "after": [81423004, 9120]},
         "eno1": {"current": 4096, "maximum": 4096, "before": [1200, 0]}}
    """

    probe = ask(read_rings, requires="/sys/class/net")

    rings: dict[str, ReceiveRing]
    """By interface."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NicRings:
        cards = msgspec.convert(answer.json(), dict[str, _Card])
        if not cards:
            raise Absent("no physical network card whose driver reports the size of its ring")
        return cls(
            rings={
                name: ReceiveRing(
                    card.current,
                    card.maximum,
                    *(card.after or card.before),
                    growth=max(0, card.after[1] - card.before[1]) if card.after else 0,
                )
                for name, card in cards.items()
            }
        )
