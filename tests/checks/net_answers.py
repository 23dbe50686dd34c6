"""The answers of a network test, as facts: rows of letters as in `doctor.net.matrix.LETTERS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.fact import Fact
from doctor.facts.network_test import NetworkAnswer

PORTS: tuple[tuple[str, int], ...] = (("master", 29500), ("ephemeral", 0))


def answers(
    rows: Sequence[Sequence[str]],
    ports: Sequence[tuple[str, int]] = PORTS,
    *,
    listeners: Mapping[int, list[dict[str, Any]]] | None = None,
    details: Mapping[int, list[dict[str, Any]]] | None = None,
    arrived: Mapping[int, list[tuple[int, int]]] | None = None,
) -> dict[str, list[Fact]]:
    """Hosts w1, w2, ...; ``rows``: for each port a row for each source. By number of a host: what else it says."""
    count = len(rows[0])
    names = tuple(f"w{number + 1}" for number in range(count))
    listening = [{"port": port, "state": "listening"} for port in range(len(ports))]
    result: dict[str, list[Fact]] = {}
    for host, name in enumerate(names):
        answer = {
            "rows": [port_rows[host] for port_rows in rows],
            "listeners": (listeners or {}).get(host, listening),
            "attempts": (details or {}).get(host, []),
            "arrived": [list(pair) for pair in (arrived or {}).get(host, [])],
        }
        fact = NetworkAnswer(host=host, hosts=names, ports=tuple(ports), mode="quick", seed=1, answer=answer)
        result[name] = [msgspec.structs.replace(fact)]
    return result


HEALTHY = answers([["-ooo", "o-oo", "oo-o", "ooo-"]] * 2)
