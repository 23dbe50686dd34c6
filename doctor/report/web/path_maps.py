"""What went on between pairs: the network test's attempts and speeds, and the smoke run's exchanges. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TypedDict

from doctor.engine.language import localized, phrase
from doctor.engine.quantities import bytes_text
from doctor.engine.report_parts import NetSummary
from doctor.engine.smoke_summary import SmokeSummary
from doctor.engine.texts import filled
from doctor.net.matrix import FAILING, OUTCOMES
from doctor.report.layout.formatting import clean, run_lengths, short_number

MAX_LAYER_CHARS = 1_000_000
"""Characters of the letters of all ports together, as runs; ports beyond stand in the JSON report."""
MAX_PAIRS = 100_000
"""Pairs with a speed that a map takes; of more there is none."""
MAX_BYTES = 1 << 50
_WORST_FIRST = FAILING + "!?vo."
_UNKNOWN_LETTER = re.compile(f"[^{re.escape(''.join(OUTCOMES))}-]", re.DOTALL)
_FIGURES = (
    ("latency_median", "latency, median", "s", 1.0),
    ("latency_p99", "latency, 99th percentile", "s", 1.0),
    ("throughput_single", "throughput of one stream", "B/s", -1.0),
    ("throughput_multi", "throughput of several streams", "B/s", -1.0),
    ("arrival_single", "rate at which packets arrive", "B/s", -1.0),
    ("retransmissions", "segments sent again", "", 1.0),
)
"""Field of `doctor.net.matrix.PathSpeed`, title, unit, and whether more is worse (1) or better (-1)."""


class MapLayer(TypedDict, total=False):
    """One layer of a map: letters of attempts, or values of pairs in units of ``scale``."""

    name: str
    cells: str
    """Letters of all cells, row by row, as runs."""
    unit: str
    worse: float
    """1: more is worse; -1: more is better."""
    scale: float
    pairs: list[float]
    """Of few pairs: source, target and value, one after the other."""
    dense: str
    """Values of all cells, row by row, with commas between them."""


class PathMap(TypedDict, total=False):
    """What went on between the pairs of ``labels``, as the page's script reads it."""

    title: str
    labels: list[str]
    layers: list[MapLayer]
    letters: dict[str, str]
    """Meaning of each letter."""
    failing: str
    """Letters of what failed."""
    cut: bool
    """There was no room for all layers."""
    symmetric: bool


def network_map(summary: NetSummary, hosts: Sequence[str]) -> PathMap:
    """``labels`` are the hosts; a layer has the outcome of each attempt as runs of letters, or pairs with a value."""
    count = len(summary.hosts)
    ports = [[_UNKNOWN_LETTER.sub("?", row) for row in rows] for rows in summary.rows]
    layers: list[MapLayer] = []
    labels = [clean(f"{purpose} {number}" if number else purpose, 60) for purpose, number in summary.ports]
    if len(labels) > 1:
        layers.append({"name": localized("worst of all ports"), "cells": run_lengths(_worst(ports, count))})
    room = MAX_LAYER_CHARS
    for label, rows in zip(labels, ports, strict=True):
        cells = run_lengths(_without_diagonal(rows))
        room -= len(cells)
        if room >= 0:
            layers.append({"name": label, "cells": cells})
    for field, name, unit, worse in _FIGURES:
        pairs = [
            (_place(speed.get("source"), count), _place(speed.get("target"), count), value)
            for speed in summary.speeds
            if (value := speed.get(field)) is not None
        ]
        layers += _value_layer(localized(name), unit, worse, pairs, count)
    return {
        "title": localized("network test"),
        "labels": [clean(hosts[place], 100) for place in summary.hosts],
        "layers": layers,
        "letters": {letter: localized(outcome.value) for letter, outcome in OUTCOMES.items()},
        "failing": FAILING,
        "cut": room < 0,
    }


def pair_map(summary: SmokeSummary) -> PathMap | None:
    """The same of the smoke run's exchanges between two ranks; None where none was measured."""
    if not summary.pair_speeds:
        return None
    ranks = sorted({rank for pair in summary.pair_speeds for rank in (pair.low, pair.high)})
    places = {rank: number for number, rank in enumerate(ranks)}
    layers: list[MapLayer] = []
    for number in sorted({pair.bytes for pair in summary.pair_speeds if pair.bytes <= MAX_BYTES}, reverse=True):
        chosen = [pair for pair in summary.pair_speeds if pair.bytes == number and pair.seconds > 0]
        both = [(places[pair.low], places[pair.high], pair.bytes / pair.seconds) for pair in chosen]
        values = [*both, *((high, low, value) for low, high, value in both)]
        layers += _value_layer(
            phrase("exchanges of {size}, each way", size=bytes_text(number)), "B/s", -1.0, values, len(ranks)
        )
    names = {rank: filled("rank {0} ({1})", rank, place) for rank, place in enumerate(summary.placements)}
    labels = [clean(names.get(rank, f"rank {rank}"), 100) for rank in ranks]
    drawn: PathMap = {
        "title": localized("smoke run"),
        "labels": labels,
        "layers": layers,
        "letters": {},
        "failing": "",
        "symmetric": True,
    }
    return drawn if layers else None


def _value_layer(
    name: str, unit: str, worse: float, pairs: Iterable[tuple[int, int, float]], count: int
) -> list[MapLayer]:
    """One layer, or none where nothing was measured. Its values are in units of ``scale``: of all cells, row by row, or
    of few pairs as source, target and value, one after the other.
    """
    measured = [
        (source, target, value)
        for source, target, value in pairs
        if 0 <= source < count and 0 <= target < count and math.isfinite(value) and value >= 0
    ]
    if not measured or len(measured) > MAX_PAIRS:
        return []
    scale = _scale([value for _, _, value in measured])
    layer: MapLayer = {"name": name, "unit": unit, "worse": worse, "scale": scale}
    if len(measured) * 3 < count * count:
        cells = [
            number for source, target, value in measured for number in (source, target, short_number(value / scale))
        ]
        return [{**layer, "pairs": cells}]
    texts = [""] * (count * count)
    for source, target, value in measured:
        texts[source * count + target] = f"{short_number(value / scale)}"
    return [{**layer, "dense": ",".join(texts)}]


def _scale(values: Sequence[float]) -> float:
    """The power of 1,000 in which most values have few digits."""
    middle = sorted(values)[len(values) // 2]
    return 10.0 ** (3 * math.floor(math.log10(middle) / 3)) if middle > 0 else 1.0


def _place(number: float | None, count: int) -> int:
    """The place of a host, or -1 for what is none."""
    return int(number) if number is not None and 0 <= number < count and float(number).is_integer() else -1


def _without_diagonal(rows: Sequence[str]) -> str:
    """All rows in one text; the place of a host with itself repeats its neighbour, so that runs go on."""
    if len(rows) < 2:
        return "".join(rows)
    filled = [row[:place] + (row[place - 1] if place else row[1]) + row[place + 1 :] for place, row in enumerate(rows)]
    return "".join(filled)


def _worst(ports: Sequence[Sequence[str]], count: int) -> str:
    """The worst outcome of each pair over all ports."""
    rank = {letter: number for number, letter in enumerate(_WORST_FIRST)}
    rows = []
    for source in range(count):
        different = sorted({rows_of_port[source] for rows_of_port in ports})
        row = different[0]
        for other in different[1:]:
            row = "".join(
                mine if rank.get(mine, 99) <= rank.get(theirs, 99) else theirs
                for mine, theirs in zip(row, other, strict=True)
            )
        rows.append(row)
    return _without_diagonal(rows)
