"""The settings and versions of a run as a record of the history holds them. Pure.

Hosts of a fleet have nearly all alike: a category of one fact stands there once, and of each further host only what
differs from it.
"""

from __future__ import annotations

import zlib

import msgspec

from doctor.engine.decoding import inflate
from doctor.engine.texts import filled
from doctor.report.diff.values import HostValues, RunValues

MAX_BYTES = 768 << 10
"""Bytes of the values in a record, compressed."""
MAX_DECODED_BYTES = 64 << 20
"""Bytes, decompressed, and as they are once each host has all of its values again."""

Values = dict[str, str]
Difference = dict[str, str | None]
"""By name, the value; None: this host has none."""


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    job: dict[str, Values]
    blocks: list[tuple[str, str, Values]]
    """Fact, category, and the values of the first host that has them."""
    differences: list[Difference]
    hosts: dict[str, list[tuple[int, int]]]
    """By host: numbers of blocks, and of the differences from them."""


class UnusableValues(Exception):
    """A record whose values cannot be read."""


def encode_values(values: RunValues) -> bytes:
    """The values of a run, compressed. Raises: ValueError where they are too large to be kept."""
    blocks: dict[tuple[str, str], tuple[int, Values]] = {}
    differences: dict[tuple[tuple[str, str | None], ...], int] = {(): 0}
    hosts: dict[str, list[tuple[int, int]]] = {}
    for host, by_fact in values.hosts.items():
        hosts[host] = numbers = []
        for fact, by_category in by_fact.items():
            for category, current in by_category.items():
                number, base = blocks.setdefault((fact, category), (len(blocks), current))
                numbers.append((number, differences.setdefault(_difference(base, current), len(differences))))
    kept = _Kept(
        values.job,
        [(fact, category, base) for (fact, category), (_, base) in blocks.items()],
        [dict(difference) for difference in differences],
        hosts,
    )
    data = zlib.compress(msgspec.msgpack.encode(kept), 6)
    if len(data) > MAX_BYTES:
        raise ValueError(filled("the settings of {0} hosts are larger than {1} kiB", len(hosts), MAX_BYTES >> 10))
    return data


def _difference(base: Values, current: Values) -> tuple[tuple[str, str | None], ...]:
    if base is current:
        return ()
    names = dict.fromkeys((*base, *current))
    return tuple((name, current.get(name)) for name in names if base.get(name) != current.get(name))


def decode_values(data: bytes, started: str, command: str, verdict: str) -> RunValues:
    """The values that `encode_values` made bytes of. Raises: UnusableValues."""
    try:
        kept = msgspec.msgpack.decode(inflate(data, MAX_DECODED_BYTES), type=_Kept)
        total, hosts = 0, dict[str, HostValues]()
        for host, numbers in kept.hosts.items():
            by_fact = hosts.setdefault(host, {})
            for block, difference in numbers:
                fact, category, base = kept.blocks[block]
                changed = kept.differences[difference]
                merged = {name: value for name, value in {**base, **changed}.items() if value is not None}
                by_fact.setdefault(fact, {})[category] = merged if changed else base
                total += len(merged) if changed else 1
                if total * 64 > MAX_DECODED_BYTES * 4:
                    raise UnusableValues("is too large")
    except (ValueError, msgspec.DecodeError, RecursionError, IndexError) as error:
        raise UnusableValues(type(error).__name__) from None
    return RunValues(started, command, verdict, hosts, kept.job)
