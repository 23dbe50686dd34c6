"""The speeds of a network test, as measurements of paths: slow hosts, links and directions. Pure.

Hosts that wait for their CPUs send less and answer later, on every network. So the rate at which packets arrive while
they do, and the quickest round trip, are compared before throughput and usual latency; these two count only where the
programs of both ends ran when they could (`MOST_WAITED`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from statistics import median, median_low
from typing import Literal

import msgspec

from doctor.analysis.outliers.pairs import SLOW_END, SLOW_LINK, Path, PathJudge, PathOutlier, PathTime, PlaceKind, Way
from doctor.engine.grouping import lists_by_key
from doctor.net.matrix import PathSpeed

SpeedFigure = Literal["arrival rate", "least latency", "throughput", "latency", "retransmissions"]
LEAST_RATIO: dict[SpeedFigure, tuple[float, float]] = {
    "arrival rate": (SLOW_END, SLOW_LINK),
    "least latency": (1.5, 2.0),
    "throughput": (SLOW_END, SLOW_LINK),
    "latency": (1.5, 2.0),
    "retransmissions": (5.0, 10.0),
}
"""How many times slower than the others a host, and a link or direction, is at least. Latency grows with the distance,
which is no fault."""
RATES: tuple[SpeedFigure, ...] = ("arrival rate", "throughput")
"""More is better."""
EXPLAINS: dict[SpeedFigure, tuple[SpeedFigure, ...]] = {
    "least latency": ("least latency", *RATES),
    "retransmissions": ("retransmissions", *RATES, "latency"),
}
"""What follows from a figure where it is that of a host, or of the same path: TCP sends a window in each round trip,
and halves it after a loss. Differences of the figure itself between a host's links do too, as jitter makes them."""
CERTAIN: dict[SpeedFigure, SpeedFigure] = {"throughput": "arrival rate", "latency": "least latency"}
"""The figure that says the same, and that a busy host does not change."""
MOST_WAITED = 0.1
"""The share of its time that a program may have waited for a CPU, for throughput and usual latency to count."""
SEVERE_RATIO = 4.0
"""Times slower than elsewhere from which on a path is an error: a collective is as slow as its slowest path, so a job
that spends a third of its time in communication takes twice as long (1 + (4 - 1) / 3)."""
SEVERE_SECONDS = 0.1
"""What a path's latency adds to one collective at least, to be an error: of 2 log2(hosts) messages, one after another,
as a tree of so many hosts sends them. A step has some dozens of collectives."""
LEAST_LOSS = 5e-3
"""Segments sent again, as a share of all, below which no host is reported for losing packets."""
USUAL_LOSS = 1e-3
"""What a sound network loses at most: what is compared with where all paths lose much, or there is no other."""
TIMES_LOST = 3
"""Measurements at different times; each shows it."""
SEGMENT_BYTES = 1448


class SlowPath(PathOutlier, frozen=True, kw_only=True):
    """One slow host, link or direction, by one figure."""

    figure: SpeedFigure
    value: float
    """Its middle value: bytes a second, seconds, or the share of segments sent again."""
    peer_value: float
    compared: bool = True
    """Whether ``peer_value`` is that of other paths, and not what is usual on any network."""
    slows_severely: bool = False
    """A figure that follows from it would be an error."""

    @property
    def confidence(self) -> float:
        """1 less the chance: 0.999 at least."""
        return 1 - self.chance

    def is_severe(self, hosts: int) -> bool:
        """Whether a job on so many hosts would be slowed down so much that it is better not started there.

        By figures alone that a busy host does not change. Losses count by what they do to TCP's throughput, which falls
        with their square root (Mathis, Semke, Mahdavi, Ott: The macroscopic behavior of the TCP congestion avoidance
        algorithm, 1997).
        """
        if self.slows_severely:
            return True
        if self.figure == "least latency":
            return 2 * math.log2(hosts) * (self.value - self.peer_value) >= SEVERE_SECONDS
        ratio = math.sqrt(self.ratio) if self.figure == "retransmissions" else self.ratio
        return self.figure not in CERTAIN and ratio >= SEVERE_RATIO


class _Figure:
    """All measurements of one figure, and what the judge says of them."""

    def __init__(self, figure: SpeedFigure, speeds: Sequence[PathSpeed]) -> None:
        self.figure = figure
        self.raw: dict[Path, list[float]] = {}
        series: dict[str, dict[Path, list[float]]] = {}
        for speed in speeds:
            path = (speed.source, speed.target)
            for name, value in _values(figure, speed):
                series.setdefault(name, {}).setdefault(path, []).append(_log(figure, value))
                self.raw.setdefault(path, []).append(value)
        times = [time for paths in series.values() for time in _path_times(paths)]
        judge = PathJudge(times, LEAST_RATIO[figure], apart=True, figures=len(LEAST_RATIO))
        outliers, doubtful = judge.outliers() if len(judge.ends) > 2 else ((), ())
        self.outliers = [outlier for outlier in outliers if self._matters(outlier.paths)]
        self.doubtful = [outlier for outlier in doubtful if self._matters(outlier.paths)]

    def _middle(self, paths: Iterable[Path]) -> float:
        values = [value for path in paths for value in self.raw.get(path, ())]
        return median(values) if values else 0.0

    def _matters(self, paths: Iterable[Path]) -> bool:
        """Retransmissions matter from a share of all segments on."""
        return self.figure != "retransmissions" or self._middle(paths) >= LEAST_LOSS

    def slow_path(self, outlier: PathOutlier) -> SlowPath:
        value = self._middle(outlier.paths)
        peer_value = value * outlier.ratio if self.figure in RATES else value / outlier.ratio
        if outlier.kind == "host":  # 0 where only its own paths count, and one way is slower than the other
            peer_value = self._middle(path for path in self.raw if outlier.hosts[0] not in path) or peer_value
        return SlowPath(**msgspec.structs.asdict(outlier), figure=self.figure, value=value, peer_value=peer_value)


def slow_paths(speeds: Sequence[PathSpeed]) -> tuple[SlowPath, ...]:
    """The slow hosts, then the slow links and directions of the others; slowest first.

    A path that was measured again stands in ``speeds`` again. With fewer than three hosts the result is empty: there is
    nothing to compare with.
    """
    named: list[SlowPath] = []
    rest, slow = list(speeds), _outliers(speeds)
    while hosts := [outlier for outlier in slow if outlier.kind == "host"]:
        # What a slow host did to its paths says nothing of their other ends: those are judged again without it.
        (worst,) = max(hosts, key=lambda outlier: outlier.ratio / LEAST_RATIO[outlier.figure][0]).hosts
        named += [outlier for outlier in slow if worst in outlier.hosts]
        rest = [speed for speed in rest if worst not in (speed.source, speed.target)]
        slow = _outliers(rest)
    named = _without_effects([*named, *slow])
    named += [path for path in _lossy(speeds, named) if path.confirmed]
    return tuple(sorted(named, key=lambda outlier: (outlier.kind != "host", -outlier.ratio, outlier.hosts)))


def _lossy(speeds: Sequence[PathSpeed], named: Sequence[SlowPath]) -> Iterator[SlowPath]:
    """What loses `LEAST_LOSS` or more, without a comparison, and has no host of ``named``.

    Confirmed: two paths of it, or the only one, show it each of `TIMES_LOST` times.
    """
    named_hosts = {host for path in named if path.figure == "retransmissions" for host in path.hosts}
    rest: dict[Path, list[float]] = {}
    for speed in speeds:
        if not named_hosts & {speed.source, speed.target}:
            losses = [loss for _, loss in _values("retransmissions", speed)]
            rest.setdefault((speed.source, speed.target), []).extend(losses)
    rest = {path: losses for path, losses in rest.items() if losses}
    lossy = {path for path, losses in rest.items() if median_low(losses) >= LEAST_LOSS}
    sure = {path for path in lossy if len(rest[path]) >= TIMES_LOST and min(rest[path]) >= LEAST_LOSS}
    for kind, hosts, way, paths in _places_of(lossy, rest):
        if lossy >= paths > set():
            lossy = lossy - paths
            losses = [loss for path in paths for loss in rest[path]]
            logs, certain = (math.log(median(losses)), math.log(USUAL_LOSS)), len(sure & paths) >= min(2, len(paths))
            outlier = PathOutlier(kind, hosts, way, *logs, 0.0, len(losses), tuple(paths), len(paths), certain)
            yield SlowPath(
                **msgspec.structs.asdict(outlier),
                figure="retransmissions",
                value=median(losses),
                peer_value=USUAL_LOSS,
                compared=False,
            )


def _places_of(
    lossy: Set[Path], measured: Collection[Path]
) -> Iterator[tuple[PlaceKind, tuple[int, ...], Way, Set[Path]]]:
    """Places that explain lossy paths, the largest first, and their paths.

    The fleet where more than three quarters of the paths are lossy, a host where all of its paths of one way are, else
    each path, as where the paths of two hosts cross.
    """
    ends: list[tuple[Way, int]] = [("both", 0), ("both", 1), ("outbound", 0), ("inbound", 1)]
    of_hosts = lists_by_key(((way, path[place]), path) for way, place in ends for path in measured)
    hosts_lost = {host: {*paths} for host, paths in of_hosts.items() if len(paths) > 1 and lossy >= {*paths}}
    blamed_for = {(end, path) for (_, end), paths in hosts_lost.items() for path in paths}
    if 4 * len(lossy) > 3 * len(measured) > 6:
        yield "fleet", tuple(sorted({end for path in measured for end in path})), "both", lossy
    for (way, end), paths in hosts_lost.items():
        if not any((other, path) in blamed_for for path in paths for other in path if other != end):
            yield "host", (end,), way, paths
    yield from (("link", path, "both", {path, path[::-1]}) for path in sorted(lossy) if path < path[::-1])
    yield from (("direction", path, "both", {path}) for path in sorted(lossy))


def _without_effects(named: Sequence[SlowPath]) -> list[SlowPath]:
    """Each cause once: without what follows from another figure of them, whose error it makes one of the cause."""

    def follows(path: SlowPath, cause: SlowPath) -> bool:
        same = path.figure == cause.figure
        of_its_paths = {*cause.hosts} <= {*path.hosts} and (not same or path.kind != "host" == cause.kind)
        return of_its_paths and path.figure in EXPLAINS.get(cause.figure, ())

    effects = {cause: [path for path in named if follows(path, cause)] for cause in named}
    dropped = {path for paths in effects.values() for path in paths}
    return [
        msgspec.structs.replace(cause, slows_severely=any(path.is_severe(2) for path in effects[cause]))
        for cause in named
        if cause not in dropped
    ]


def _outliers(speeds: Sequence[PathSpeed]) -> list[SlowPath]:
    figures = [_Figure(name, speeds) for name in LEAST_RATIO]
    outliers = [figure.slow_path(outlier) for figure in figures for outlier in figure.outliers]
    return [outlier for outlier in outliers if not _named_already(outlier, outliers)]


def _named_already(outlier: SlowPath, outliers: Sequence[SlowPath]) -> bool:
    """Whether the figure that says the same, and is more certain, names one of its hosts."""
    certain = CERTAIN.get(outlier.figure)
    return any(other.figure == certain and {*other.hosts} & {*outlier.hosts} for other in outliers)


def suspects(speeds: Sequence[PathSpeed], limit: int = 16) -> tuple[Path, ...]:
    """Paths that look slow and were measured too seldom to say so: to be measured again, worst first."""
    worst: dict[Path, float] = {}
    for name in LEAST_RATIO:
        for outlier in _Figure(name, speeds).doubtful:
            worst.update((path, max(outlier.ratio, worst.get(path, 0.0))) for path in outlier.paths)
    worst.update((path, place.ratio) for place in _lossy(speeds, ()) if not place.confirmed for path in place.paths)
    return tuple(sorted(worst, key=lambda path: (-worst[path], path))[:limit])


def severe_doubts(speeds: Sequence[PathSpeed], hosts: int, certain: Sequence[SlowPath]) -> Iterator[SlowPath]:
    """What looks severely slow by a figure that busy hosts do not change, and was measured too seldom to say so.

    ``certain``: of `slow_paths`; their hosts are no doubt.
    """
    named = {host for path in certain for host in path.hosts}
    for figure in (_Figure(name, speeds) for name in LEAST_RATIO if name not in CERTAIN):
        paths = (figure.slow_path(outlier) for outlier in figure.doubtful)
        yield from (path for path in paths if not named & {*path.hosts} and path.is_severe(hosts))
    yield from (path for path in _lossy(speeds, certain) if not path.confirmed and path.is_severe(hosts))


def _log(figure: SpeedFigure, value: float) -> float:
    """Larger is slower."""
    return -math.log(value) if figure in RATES else math.log(value)


def _values(figure: SpeedFigure, speed: PathSpeed) -> Iterator[tuple[str, float]]:
    """The values of one figure, each with its series: those of one series are compared."""
    if figure in CERTAIN and speed.waited > MOST_WAITED:
        return
    if figure == "retransmissions":
        if speed.retransmissions is not None and (speed.bytes >= 100 * SEGMENT_BYTES or speed.retransmissions >= 10):
            lost = speed.retransmissions + 0.5
            yield "loss", lost / max(speed.bytes / SEGMENT_BYTES, lost)
        return
    series: dict[SpeedFigure, tuple[float | None, ...]] = {
        "arrival rate": (speed.arrival_single, speed.arrival_multi),
        "least latency": (speed.latency_least,),
        "throughput": (speed.throughput_single, speed.throughput_multi),
        "latency": (speed.latency_median,),
    }
    yield from ((str(number), value) for number, value in enumerate(series[figure]) if value)


def _path_times(paths: dict[Path, list[float]]) -> Iterator[PathTime]:
    # Less the level of the first measurements: only suspects are measured again.
    level = median(logs[0] for logs in paths.values())
    for path, logs in paths.items():
        for number, log in enumerate(logs):
            yield PathTime(path, log - level, log - level, number)
