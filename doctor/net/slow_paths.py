"""Slow hosts, links and directions among paths that are alike by construction. Pure.

Speeds are compared as logarithms, with a robust two-way fit (median polish: J. W. Tukey, "Exploratory Data Analysis",
1977): a level, an effect of each source, an effect of each target. Whether a deviation is chance is decided by ranks
and counts alone, so that heavy tails of the noise do not matter:

- a host is slow when so many of its paths are among the slower quarter, or half, of all, that a random order (the
  hypergeometric distribution) would do it with a chance of `FALSE_ALARM_RATE` at most, for all hosts, paths and figures
  together (Bonferroni);
- a link or direction is slow when each of its measurements ranks so high among those of all paths that the product of
  these chances is as small. One measurement never suffices; `suspects` names the pairs to measure again.

Both assume that measurements of one path at different times disturb each other no more than those of different paths.
A slow path is also slower by a ratio that matters (`LEAST_RATIO`), and a host by five times the spread of the hosts.

Hosts that wait for their CPUs send less and answer later, whatever the network carries. So the rate at which packets
arrive while they do, and the quickest round trip, are compared before throughput and usual latency; these two count
only where the programs of both ends ran when they could (`MOST_WAITED`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Literal

import msgspec

from doctor.net.matrix import PathSpeed

SpeedFigure = Literal["arrival rate", "least latency", "throughput", "latency", "retransmissions"]
FALSE_ALARM_RATE = 0.001
"""The chance at most that a fleet without any slow path is accused of one."""
LEAST_RATIO: dict[SpeedFigure, tuple[float, float]] = {
    "arrival rate": (1.5, 2.0),
    "least latency": (1.5, 2.0),
    "throughput": (1.25, 2.0),
    "latency": (1.5, 2.0),
    "retransmissions": (5.0, 10.0),
}
"""How many times slower than the others a host, and a link or direction, is at least."""
RATES: tuple[SpeedFigure, ...] = ("arrival rate", "throughput")
"""More is better."""
CERTAIN: dict[SpeedFigure, SpeedFigure] = {"throughput": "arrival rate", "latency": "least latency"}
"""The figure that says the same, and that a busy host does not change."""
MOST_WAITED = 0.1
"""The share of its time that a program may have waited for a CPU, for throughput and usual latency to count."""
LEAST_LOSS = 5e-3
"""Segments sent again, as a share of all, below which nobody is accused of losing packets."""
SEGMENT_BYTES = 1448
HOST_SPREADS = 5.0
LEAST_PATHS_OF_HOST = 3
"""One way: where all of so many lose packets, it is the host."""
_TOPS = (4, 2)
"""The slower quarter, and the slower half."""

Path = tuple[int, int]
"""Source and target."""


PlaceKind = Literal["host", "link", "direction"]
Way = Literal["both", "inbound", "outbound"]


class SlowPath(msgspec.Struct, frozen=True):
    """One slow host, link or direction."""

    kind: PlaceKind
    hosts: tuple[int, ...]
    """One host; of a link the lower one first; of a direction the source first."""
    way: Way
    """Of a host: as a target, as a source, or both."""
    figure: SpeedFigure
    ratio: float
    """Times slower than the others."""
    value: float
    """Its middle value: bytes a second, seconds, or the share of segments sent again."""
    peer_value: float
    chance: float
    """That a fleet in which nothing is slow shows this anywhere; at most `FALSE_ALARM_RATE`."""
    measured: int
    """Measurements that it rests on."""

    @property
    def confidence(self) -> float:
        """1 less the chance: 0.999 at least."""
        return 1 - self.chance


class _Figure:
    """All measurements of one figure as logarithms, larger is slower, each series less its own middle."""

    def __init__(self, figure: SpeedFigure, speeds: Sequence[PathSpeed]) -> None:
        self.figure = figure
        self.raw: dict[Path, list[float]] = {}
        series: dict[str, dict[Path, list[float]]] = {}
        for speed in speeds:
            path = (speed.source, speed.target)
            for name, value in _values(figure, speed):
                log = -math.log(value) if figure in RATES else math.log(value)
                series.setdefault(name, {}).setdefault(path, []).append(log)
                self.raw.setdefault(path, []).append(value)
        self.series = {name: _centred(paths) for name, paths in series.items()}
        self.paths = sorted({path for paths in self.series.values() for path in paths})
        hosts = {host for path in self.paths for host in path}
        self.hosts = sorted(hosts)
        self.tests = len(LEAST_RATIO) * (6 * len(hosts) + 3 * len(self.paths) // 2)
        """For each figure: a host both ways and each way by two counts, each path, each pair."""

    def without(self, hosts: set[int]) -> dict[str, dict[Path, list[float]]]:
        return {
            name: {path: logs for path, logs in paths.items() if not hosts & set(path)}
            for name, paths in self.series.items()
        }

    def middle(self, paths: Iterable[Path]) -> float:
        values = [value for path in paths for value in self.raw.get(path, ())]
        return median(values) if values else 0.0

    def matters(self, paths: Iterable[Path]) -> bool:
        """Retransmissions matter from a share of all segments on."""
        return self.figure != "retransmissions" or self.middle(paths) >= LEAST_LOSS


def slow_paths(speeds: Sequence[PathSpeed]) -> tuple[SlowPath, ...]:
    """The slow hosts, then the slow links and directions of the others; slowest first.

    A path that was measured again stands in ``speeds`` again. Of fewer than three hosts nothing is told: there is
    nothing to compare with.
    """
    outliers: list[SlowPath] = []
    for name in LEAST_RATIO:
        figure = _Figure(name, speeds)
        if len(figure.hosts) < 3:
            continue
        hosts = list(_slow_hosts(figure))
        outliers += hosts
        excluded = {host for outlier in hosts for host in outlier.hosts}
        outliers += (path for path, _ in _slow_pairs(figure, excluded) if path.chance <= FALSE_ALARM_RATE)
    outliers = [outlier for outlier in outliers if not _named_already(outlier, outliers)]
    return tuple(sorted(outliers, key=lambda outlier: (outlier.kind != "host", -outlier.ratio, outlier.hosts)))


def _named_already(outlier: SlowPath, outliers: Sequence[SlowPath]) -> bool:
    """Whether the figure that says the same, and is more certain, names one of its hosts."""
    certain = CERTAIN.get(outlier.figure)
    return any(other.figure == certain and {*other.hosts} & {*outlier.hosts} for other in outliers)


def suspects(speeds: Sequence[PathSpeed], limit: int = 16) -> tuple[Path, ...]:
    """Paths that look slow and were measured too seldom to say so: to be measured again, worst first."""
    worst: dict[Path, float] = {}
    for name in LEAST_RATIO:
        figure = _Figure(name, speeds)
        if len(figure.hosts) < 3:
            continue
        excluded = {host for outlier in _slow_hosts(figure) for host in outlier.hosts}
        for outlier, paths in _slow_pairs(figure, excluded):
            if outlier.chance > FALSE_ALARM_RATE:
                worst.update((path, max(outlier.ratio, worst.get(path, 0.0))) for path in paths)
    return tuple(sorted(worst, key=lambda path: (-worst[path], path))[:limit])


def _values(figure: SpeedFigure, speed: PathSpeed) -> Iterator[tuple[str, float]]:
    if figure == "arrival rate":
        rates = (("single", speed.arrival_single), ("multi", speed.arrival_multi))
        yield from ((name, value) for name, value in rates if value)
    elif figure == "least latency":
        if speed.latency_least:
            yield "least", speed.latency_least
    elif figure in CERTAIN and speed.waited > MOST_WAITED:
        return
    elif figure == "throughput":
        rates = (("single", speed.throughput_single), ("multi", speed.throughput_multi))
        yield from ((name, value) for name, value in rates if value)
    elif figure == "latency":
        if speed.latency_median:
            yield "median", speed.latency_median
    elif speed.retransmissions is not None and (speed.bytes >= 100 * SEGMENT_BYTES or speed.retransmissions >= 10):
        yield "loss", (speed.retransmissions + 0.5) / max(speed.bytes / SEGMENT_BYTES, speed.retransmissions + 0.5)


def _centred(paths: Mapping[Path, Sequence[float]]) -> dict[Path, list[float]]:
    # By the first measurement of each path: only suspects are measured again.
    level = median(logs[0] for logs in paths.values())
    return {path: [log - level for log in logs] for path, logs in paths.items()}


# -- hosts


def _slow_hosts(figure: _Figure) -> Iterator[SlowPath]:
    """The slowest host, then the slowest of the others, while one stands out."""
    excluded: set[int] = set()
    while len(figure.hosts) - len(excluded) >= 3:
        rest = figure.without(excluded)
        candidates = [outlier for host in figure.hosts if host not in excluded for outlier in _host(figure, rest, host)]
        usual = _spread_of_hosts(rest)
        clear = [outlier for outlier in candidates if math.log(outlier.ratio) >= HOST_SPREADS * usual]
        if not clear:
            return
        worst = min(clear, key=lambda outlier: (outlier.chance, -outlier.ratio))
        excluded.update(worst.hosts)
        yield worst


def _host(figure: _Figure, series: Mapping[str, Mapping[Path, Sequence[float]]], host: int) -> Iterator[SlowPath]:
    ways: list[tuple[Way, SlowPath]] = []
    sides: tuple[tuple[Literal["inbound", "outbound"], int], ...] = (("outbound", 0), ("inbound", 1))
    for way, side in sides:
        mine = {path for paths in series.values() for path in paths if path[side] == host}
        outlier = _host_way(figure, series, host, mine, way)
        if outlier is not None:
            ways.append((way, outlier))
    every = {path for paths in series.values() for path in paths if host in path}
    both = _host_way(figure, series, host, every, "both")
    if both is not None:
        # Either side looks slow, though it may have too few paths to tell by itself.
        others = median(_pooled(series, (path for path in figure.paths if host not in path)))
        halves = [median(_pooled(series, (path for path in every if path[side] == host))) for side in (0, 1)]
        if min(halves) - others >= math.log(LEAST_RATIO[figure.figure][0]):
            yield both
            return
    yield from (outlier for _, outlier in ways)


def _host_way(
    figure: _Figure,
    series: Mapping[str, Mapping[Path, Sequence[float]]],
    host: int,
    mine: set[Path],
    way: Way,
) -> SlowPath | None:
    counts: list[list[float]] = [[1.0] for _ in _TOPS]
    hits = [0] * len(_TOPS)
    logs: list[float] = []
    peers: list[float] = []
    for paths in series.values():
        others = [logs[0] for path, logs in paths.items() if path not in mine]
        mine_logs = [paths[path][0] for path in mine if path in paths]
        if not others or not mine_logs:
            continue
        ranked = sorted([*others, *mine_logs], reverse=True)
        for place, share in enumerate(_TOPS):
            top = max(len(ranked) // share, min(len(mine_logs), len(ranked) - 1))
            hits[place] += sum(value >= ranked[top - 1] for value in mine_logs)
            counts[place] = _sum_of(counts[place], _drawn(len(ranked), len(mine_logs), top))
        logs += mine_logs
        peers += others
    if not logs:
        return None
    more = median(logs) - median(peers)
    chance = min(math.fsum(count[hit:]) for count, hit in zip(counts, hits, strict=True)) * figure.tests
    if more < math.log(LEAST_RATIO[figure.figure][0]) or chance > FALSE_ALARM_RATE or not figure.matters(mine):
        return None
    others_paths = [path for path in figure.paths if host not in path]
    return SlowPath(
        "host",
        (host,),
        way,
        figure.figure,
        math.exp(more),
        figure.middle(mine),
        figure.middle(others_paths),
        chance,
        len(logs),
    )


def _spread_of_hosts(series: Mapping[str, Mapping[Path, Sequence[float]]]) -> float:
    """How much hosts that are alike differ: the median deviation of their middle values, as a standard deviation."""
    by_host: dict[int, list[float]] = {}
    for paths in series.values():
        for path, logs in paths.items():
            for host in path:
                by_host.setdefault(host, []).append(logs[0])
    middles = [median(logs) for logs in by_host.values()]
    level = median(middles)
    return 1.4826 * median(abs(middle - level) for middle in middles)


def _pooled(series: Mapping[str, Mapping[Path, Sequence[float]]], paths: Iterable[Path]) -> list[float]:
    chosen = list(paths)
    return [values[path][0] for values in series.values() for path in chosen if path in values] or [0.0]


@lru_cache(maxsize=1024)
def _drawn(total: int, marked: int, top: int) -> tuple[float, ...]:
    """The chance of each number of ``marked`` paths among the ``top`` of ``total``, all orders being as likely.

    >>> [round(chance, 3) for chance in _drawn(4, 2, 2)]
    [0.167, 0.667, 0.167]
    """
    every = _log_choose(total, top)
    return tuple(
        math.exp(_log_choose(marked, hits) + _log_choose(total - marked, top - hits) - every)
        if 0 <= top - hits <= total - marked
        else 0.0
        for hits in range(marked + 1)
    )


def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _sum_of(counts: Sequence[float], other: Sequence[float]) -> list[float]:
    """The distribution of the sum of two independent numbers."""
    joint = [0.0] * (len(counts) + len(other) - 1)
    for first, chance in enumerate(counts):
        for second, more in enumerate(other):
            joint[first + second] += chance * more
    return joint


# -- links and directions


def _slow_pairs(figure: _Figure, excluded: set[int]) -> Iterator[tuple[SlowPath, tuple[Path, ...]]]:
    """Every link or direction that is slower by a ratio that matters, with its chance, and its paths.

    Of a host that is slow itself: those that are slower than its others by as much. Losses come in bursts, so that the
    few paths of a host of a small fleet do not tell its effect: they are compared as they are. Where all paths to or
    from a host lose packets it is the host.
    """
    bursts = figure.figure == "retransmissions"
    rest = figure.without(excluded if bursts else set())
    series = {name: dict(paths) if bursts else _polished(paths) for name, paths in rest.items() if len(paths) >= 3}
    ranked = {name: sorted(logs[0] for logs in paths.values()) for name, paths in series.items()}
    least = math.log(LEAST_RATIO[figure.figure][1])
    slower: dict[Path, tuple[float, list[float]]] = {}
    slow: set[Path] = set()
    for path in figure.paths:
        logs = [(name, log) for name, paths in series.items() for log in paths.get(path, ())]
        middle = median(log for _, log in logs) if logs else 0.0
        if middle >= least / 2:
            slower[path] = (middle, [_upper_share(ranked[name], log) for name, log in logs])
        if middle >= least and min(log for _, log in logs) >= least / 2:
            slow.add(path)
    more = {path: middle for path, (middle, _) in slower.items()} if bursts else {}
    for kind, hosts, way, paths in _places(figure, slow, excluded, more):
        if not figure.matters(paths):
            continue
        shares = [share for path in paths for share in slower[path][1]]
        ratio = math.exp(sum(slower[path][0] for path in paths) / len(paths))
        value = figure.middle(paths)
        peer_value = value * ratio if figure.figure in RATES else value / ratio
        chance = min(1.0, max(shares) ** len(shares) * figure.tests)
        yield SlowPath(kind, hosts, way, figure.figure, ratio, value, peer_value, chance, len(shares)), paths


def _places(
    figure: _Figure, slow: Collection[Path], excluded: set[int], more: Mapping[Path, float]
) -> Iterator[tuple[PlaceKind, tuple[int, ...], Way, tuple[Path, ...]]]:
    """What the slow paths have in common: each once, as a host with all of its paths, a link, or a direction.

    ``more``: of paths that are slower than most, by how much, where those of a host are to be taken together. They are
    the host's when all of one side are among them, and their middle one is slow enough for a host: the losses of
    each vary too much for every path to be slow by itself.
    """
    remaining, left = set(slow), dict(more)
    least = math.log(LEAST_RATIO[figure.figure][0])
    sides_by_host: dict[int, tuple[list[Path], list[Path]]] = {}
    for path in figure.paths if more else ():
        for side, host in enumerate(path if not excluded & set(path) else ()):
            sides_by_host.setdefault(host, ([], []))[side].append(path)
    # The host with the slowest paths first: those that it explains are no other host's.
    slowness = {
        host: sum(more.get(path, 0.0) for side in sides for path in side) for host, sides in sides_by_host.items()
    }
    for host in sorted(sides_by_host, key=lambda host: (-slowness[host], host)):
        sides = sides_by_host[host]
        full = [
            len(side) >= LEAST_PATHS_OF_HOST
            and all(path in left for path in side)
            and median(left[path] for path in side) >= least
            for side in sides
        ]
        if any(full):
            paths = tuple(path for side, is_full in zip(sides, full, strict=True) if is_full for path in side)
            remaining.difference_update(paths)
            for path in paths:
                del left[path]
            yield "host", (host,), "both" if all(full) else "outbound" if full[0] else "inbound", paths
    for path in sorted(remaining):
        back = path[::-1]
        if back not in remaining:
            yield "direction", path, "both", (path,)
        elif path < back:
            yield "link", path, "both", (path, back)


def _polished(paths: Mapping[Path, Sequence[float]]) -> dict[Path, list[float]]:
    """The logarithms less the effects of their sources and targets: two rounds of the median polish."""
    rest = {path: list(logs) for path, logs in paths.items()}
    for side in (0, 1, 0, 1):
        by_host: dict[int, list[float]] = {}
        for path, logs in rest.items():
            by_host.setdefault(path[side], []).append(logs[0])
        # Of one or two paths, the path itself would be the effect.
        effects = {host: median(logs) for host, logs in by_host.items() if len(logs) > 2}
        rest = {path: [log - effects.get(path[side], 0.0) for log in logs] for path, logs in rest.items()}
    return rest


def _upper_share(ranked: Sequence[float], log: float) -> float:
    """The share of all paths that are at least as slow; never 0."""
    return max(1, len(ranked) - bisect_left(ranked, log)) / len(ranked)
