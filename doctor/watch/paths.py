"""How quickly the TCP connections of a rank carry its data: round trips and resent segments, by address of the peer."""

from __future__ import annotations

import socket
import struct
from collections import deque
from statistics import median

from doctor.engine.watch_summary import PathPace
from doctor.remote.runtime.netlink import diagnosed_tcp
from doctor.smoke.programs.agent.network import socket_inodes

MOST_SKIPPED = 16
"""Calls between two looks; fewer at the beginning."""
MOST_PATHS, MOST_SAMPLES = 64, 64
_ESTABLISHED = 1 << 1
_INFO = 2
_ROUND_TRIP, _RETRANSMITTED, _SEGMENTS_OUT = 68, 100, 136
"""Offsets in struct tcp_info of Linux (include/uapi/linux/tcp.h): tcpi_rtt, tcpi_total_retrans, tcpi_segs_out."""

PathRow = tuple[str, str, float, float]
"""Own address, that of the peer, seconds of a round trip, share of segments that were sent again."""


class RankPaths:
    """Of one rank: the newest samples of each pair of addresses."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], deque[tuple[float, float]]] = {}
        self._calls, self._gap, self._next = 0, 1, 1
        self._new_rows: tuple[PathRow, ...] = ()

    def look(self, pid: int) -> None:
        """Reads the kernel's figures of the rank's connections, now and then; nothing where it does not show them."""
        self._calls += 1
        if self._calls < self._next:
            return
        self._gap = min(2 * self._gap, MOST_SKIPPED)
        self._next = self._calls + self._gap
        inodes: set[str] = socket_inodes(pid)  # type: ignore[no-untyped-call]
        for family in (socket.AF_INET, socket.AF_INET6) if inodes else ():
            for inode, values, addresses in diagnosed_tcp(family, 1 << (_INFO - 1), _ESTABLISHED, 0.2):
                info = values.get(_INFO, b"")
                if inode in inodes and len(info) >= 140:
                    self._add(family, addresses, info)
        self._new_rows = self._rows()

    def _add(self, family: int, addresses: tuple[bytes, bytes], info: bytes) -> None:
        local, peer = (socket.inet_ntop(family, address).removeprefix("::ffff:") for address in addresses)
        microseconds, resent, sent = (
            struct.unpack_from("=I", info, at)[0] for at in (_ROUND_TRIP, _RETRANSMITTED, _SEGMENTS_OUT)
        )
        if local == peer or not sent or not microseconds:
            return
        if (local, peer) in self._samples or len(self._samples) < MOST_PATHS:
            samples = self._samples.setdefault((local, peer), deque(maxlen=MOST_SAMPLES))
            samples.append((microseconds / 1e6, min(resent / sent, 1.0)))

    def take_rows(self) -> tuple[PathRow, ...]:
        """Of each pair of addresses the middle one, once after each look that has read them; else none."""
        rows, self._new_rows = self._new_rows, ()
        return rows

    def _rows(self) -> tuple[PathRow, ...]:
        return tuple(
            (local, peer, median(trip for trip, _ in samples), median(share for _, share in samples))
            for (local, peer), samples in sorted(self._samples.items())
        )


def joined_paths(hosts_rows: dict[int, tuple[str, tuple[PathRow, ...]]]) -> tuple[PathPace, ...]:
    """Those of all ranks, by rank, with the host: one for each host and pair of addresses, the middle one."""
    gathered: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for host, rows in hosts_rows.values():
        for local, peer, trip, share in rows:
            gathered.setdefault((host, local, peer), []).append((trip, share))
    return tuple(
        PathPace(*key, median(trip for trip, _ in values), median(share for _, share in values))
        for key, values in sorted(gathered.items())
    )
