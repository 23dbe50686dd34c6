"""Slow hosts, links and directions among paths that are alike by construction: one judge for all pairs. Pure.

The paths are measured against each other: no table says what a network should do. Times are compared as logarithms.

Noise model: a healthy measurement lies above the usual one of its peers by an excess whose tail is exponential, that is
a power law of the time itself; measured noise is mostly lighter. Its scale is the median excess of the peers, and never
less than `MIN_NOISE` or than what repeats of one path differ by. A scale that is estimated from few values is itself
uncertain, which the chance takes into account (`log_chance`). Where many peers were measured, their order tells as
much, for noise of any distribution. The false-alarm rate is that of a fleet: of all hosts, paths, ways and figures
together (Bonferroni).

Protocol: what looks slow is measured again, at other times, by turns with paths that do not (controls). A host or link
is slow when every time shows at least half of the excess, when so do its quickest exchanges, and when the excesses of
all times together are no chance. One measurement never suffices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import NormalDist, median, median_low
from typing import Literal

import msgspec

from doctor.analysis.outliers import FALSE_ALARM_RATE, difference_of_ends, log_chance
from doctor.engine.grouping import lists_by_key

SLOW_END, SLOW_LINK = 1.15, 1.5
"""How many times as long as on other paths the same data takes at least: to or from a slow host, over a slow link."""
MANY_PATHS = 6
"""So many paths of a host, measured at different times, confirm each other."""
MIN_NOISE = 0.04
"""Paths that are alike differ by so much, even where the repeats of each path differ by less."""
DISTURBED = 0.05
"""The share of single measurements that something disturbs, by a factor of any size."""
SUSPICIOUS = 0.2
"""Chance by noise alone, of one figure, below which a host or link is measured again."""
SUSPICIOUS_RATIO = 2.0
"""A link that is slower by so much is measured again in any case."""
CLEAR_RATIO = 2.0
"""A path that takes so many times as long as others at the same time is slow, even where all of them were disturbed."""
MIDDLE_END, MIDDLE_LINK = 1 / 4, 1 / 3
"""Shares of the excess of the quickest parts, that the middle ones show: what disturbs all paths makes it less."""
HOST_SPREADS = 4.0
"""Times the usual difference between hosts by which a slow host differs."""
MOST_SIGMAS, MOST_LOG = 37.0, 700.0
"""A chance, and a ratio, that no number can hold."""

Path = tuple[int, int]
"""Source and target; of paths without a direction the lower one first."""
PlaceKind = Literal["fleet", "host", "link", "direction"]
Way = Literal["both", "inbound", "outbound"]


class PathTime(msgspec.Struct, frozen=True):
    """One measurement of a path."""

    path: Path
    log: float
    """Logarithm of the time, or of what grows with it, less the usual one where series of several units are mixed."""
    quickest: float
    """The same of its quickest part: what disturbs a host leaves some parts alone."""
    number: int = 0
    """0 of the first measurement; larger for each that repeats what looks slow."""
    control: bool = False
    """Of a path that does not look slow, measured by turns with those that do."""
    middle: float | None = None
    """The same of its middle part, where it has many."""


class PathOutlier(msgspec.Struct, frozen=True):
    """One slow host, link or direction."""

    kind: PlaceKind
    hosts: tuple[int, ...]
    """One host; of a link the lower one first; of a direction the source first; of the fleet all."""
    way: Way
    """Of a host: as a target, as a source, or both."""
    log: float
    """Its usual time, as a logarithm."""
    peer_log: float
    chance: float
    """That a fleet in which nothing is slow shows this anywhere."""
    measured: int
    """Measurements that it rests on."""
    paths: tuple[Path, ...]
    slow_paths: int
    confirmed: bool = True
    """Whether measurements at two times at least show it."""
    is_suspicious: bool = False
    """To be measured again unless it is sure: noise alone makes it unlikely, or it is far slower."""

    @property
    def ratio(self) -> float:
        """Times slower than the others."""
        return math.exp(min(self.log - self.peer_log, MOST_LOG))

    @property
    def seconds(self) -> float:
        """Its usual time, and in `peer_seconds` that of the others, where the logarithms are those of seconds."""
        return math.exp(self.log)

    @property
    def peer_seconds(self) -> float:
        return math.exp(self.peer_log)

    @property
    def sigmas(self) -> float:
        """The chance, as standard deviations of a normal distribution."""
        return -NormalDist().inv_cdf(self.chance) if self.chance > 0 else MOST_SIGMAS

    @property
    def between(self) -> float:
        """The logarithm that lies in the middle between the two."""
        return (self.log + self.peer_log) / 2

    @property
    def is_sure(self) -> bool:
        return self.confirmed and self.chance <= FALSE_ALARM_RATE


class PathJudge:
    """Compares the paths of one fleet by one figure."""

    def __init__(
        self,
        times: Iterable[PathTime],
        least: tuple[float, float] = (SLOW_END, SLOW_LINK),
        *,
        directed: bool = True,
        apart: bool = False,
        noise: tuple[float, int] = (MIN_NOISE, 0),
        disturbed: float = DISTURBED,
        steady: float = 0.0,
        figures: int = 1,
    ) -> None:
        """``least``: the ratio of a slow host and of a slow link. ``apart``: first measurements are some time apart.

        ``noise``: what repeats of one path differ by, from how many of them. ``disturbed``: as `DISTURBED`. ``steady``:
        the share of its measurements that show a slow host: a busy one is as quick as others in between.
        ``figures``: how many are judged of the same fleet.
        """
        self.least_host, self.least_link = map(math.log, least)
        self.apart, self.noise, self.disturbed, self.steady = apart, noise, disturbed, steady
        self.first: dict[Path, list[float]] = {}
        self.quickest: dict[Path, float] = {}
        self.again: dict[Path, dict[int, list[float]]] = {}
        self.controls: dict[int, dict[Path, list[float]]] = {}
        self.middles: dict[bool, list[tuple[Path, float]]] = {False: [], True: []}
        """Of all that was measured again, of controls apart."""
        self._sort(times)
        self.usual = {
            path: median([*logs, *chain.from_iterable(self.again.get(path, {}).values())])
            for path, logs in self.first.items()
        }
        """Of all measurements of a path: those that it was measured by turns with tell more of it."""
        self.paths_of = lists_by_key((end, path) for path in self.first for end in path)
        self.ends = sorted(self.paths_of)
        self.ways: tuple[Way, ...] = ("both", "outbound", "inbound") if directed else ("both",)
        links = len(self.first) * 3 // 2 if directed else len(self.first)
        self.figures = figures
        self.tests = figures * (len(self.ways) * len(self.ends) + links)

    def _sort(self, times: Iterable[PathTime]) -> None:
        """First measurements, those that were made again, and those of paths that are not suspected."""
        for time in times:
            if time.number and time.middle is not None:
                self.middles[time.control].append((time.path, time.middle))
            if time.control:
                self.controls.setdefault(time.number, {}).setdefault(time.path, []).append(time.log)
            elif time.number:
                self.again.setdefault(time.path, {}).setdefault(time.number, []).append(time.log)
            else:
                self.first.setdefault(time.path, []).append(time.log)
                self.quickest[time.path] = min(time.quickest, self.quickest.get(time.path, math.inf))

    def outliers(self) -> tuple[tuple[PathOutlier, ...], tuple[PathOutlier, ...]]:
        """The slow hosts, links and directions; and what looks slow, and is to be measured again."""
        hosts, doubtful = self._slow_hosts()
        effects = self._effects(hosts)
        places = list(self._slow_places(effects))
        doubtful += [place for place in places if place.is_suspicious and not place.is_sure]
        links = [place for place in places if place.is_sure and self._ends_are_fast(effects, place)]
        of_host = list(self._hosts_of(places, links))
        hosts += of_host
        links = [place for place in links if not any({*place.paths} <= {*outlier.paths} for outlier in of_host)]
        return (*sorted(hosts, key=_by_ratio), *sorted(links, key=_by_ratio)), tuple(sorted(doubtful, key=_by_ratio))

    # -- hosts

    def _slow_hosts(self) -> tuple[list[PathOutlier], list[PathOutlier]]:
        """The slowest host, then the slowest of the others, while there is one; and those that are suspicious."""
        named: list[PathOutlier] = []
        while True:
            excluded = {host for outlier in named for host in outlier.hosts}
            rest = {path: logs for path, logs in self.first.items() if not excluded & set(path)}
            ordered = sorted(self.usual[path] for path in rest)
            candidates = [
                outlier for host in self.ends if host not in excluded for outlier in self._ways_of(rest, ordered, host)
            ]
            sure = [outlier for outlier in candidates if outlier.is_sure]
            if not sure:
                return named, [outlier for outlier in candidates if outlier.is_suspicious and not outlier.is_sure]
            named.append(min(sure, key=lambda outlier: (outlier.chance, -outlier.ratio)))

    def _ways_of(self, rest: Mapping[Path, list[float]], ordered: Sequence[float], host: int) -> list[PathOutlier]:
        by_way = {way: outlier for way in self.ways if (outlier := self._slow_host(rest, ordered, host, way))}
        both = by_way.pop("both", None)
        if both is None or len(self.ways) == 1:
            return [both] if both else [*by_way.values()]
        sides = [[log for path in both.paths if path[side] == host for log in rest[path]] for side in (0, 1)]
        excess = [median(side) - both.peer_log if side else 0.0 for side in sides]
        alike = min(excess) >= max(self.least_host, max(excess) / 2)
        likely = both.is_sure or both.chance <= min((outlier.chance for outlier in by_way.values()), default=1.0)
        return [both] if alike and likely else [*by_way.values()]

    def _slow_host(
        self, rest: Mapping[Path, list[float]], ordered: Sequence[float], host: int, way: Way
    ) -> PathOutlier | None:
        """``ordered``: the usual logarithms of all paths."""
        host_paths = tuple(path for path in self.paths_of[host] if path in rest and _belongs(path, host, way))
        if not 1 < len(host_paths) < len(rest):
            return None
        logs = [log for path in host_paths for log in rest[path]]
        usual = median_low(logs)
        # The middle of the others is not below this: of a large fleet few hosts need a closer look.
        if usual - ordered[(len(rest) - len(host_paths) - 1) // 2] < self.least_host:
            return None
        others = {path: values for path, values in rest.items() if not _belongs(path, host, way)}
        norm = median_low(self.usual[path] for path in others)
        more = usual - norm
        slow = sum(log > norm + more / 2 for log in logs)
        quick = median(self.quickest[path] for path in host_paths) - median(self.quickest[path] for path in others)
        if more < self.least_host or quick < more / 2:
            return None
        confirmations, counts = self._confirmations(rest, host_paths, norm, norm + more / 2)
        if min(confirmations, default=more) < more / 2:
            return None
        groups = [(logs, usual), ([*chain.from_iterable(others.values())], norm)]
        scale, _ = self._scale(groups)
        if more < HOST_SPREADS * difference_of_ends(others, host, scale):
            return None
        measured = len(logs) + sum(number for number, _ in counts)
        is_steady = slow + sum(number for _, number in counts) >= self.steady * measured
        if not is_steady or not self._is_slow_in_the_middle(host_paths, more * MIDDLE_END):
            return None
        noise, chance = self._chances([(len(logs), slow), *counts], more / 2, groups)
        slow_paths = sum(median_low(rest[path]) > norm + more / 2 for path in host_paths)
        confirmed = bool(confirmations) or (self.apart and len(host_paths) >= MANY_PATHS)
        suspicious = noise < self.figures * SUSPICIOUS
        return PathOutlier(
            "host", (host,), way, usual, norm, chance, measured, host_paths, slow_paths, confirmed, suspicious
        )

    def _confirmations(
        self, rest: Mapping[Path, list[float]], host_paths: Sequence[Path], norm: float, between: float
    ) -> tuple[list[float], list[tuple[int, int]]]:
        """By how much the middle path was slower than others each time; how many were measured, and how many slow.

        Empty where none was measured again as a suspect. A path that was not slow at one time is not measured at the
        next: it is as it was.
        """

        def usual_beside(number: int) -> float:
            controls = self.controls.get(number, {}).items()
            beside = [log for path, logs in controls if path not in host_paths for log in logs]
            return median(beside) if beside else norm

        again = {path: excess for path in host_paths if (excess := self._excess_again(path, norm, usual_beside))}
        if not again:
            return [], []
        numbers = range(max(map(len, again.values())))
        measured = [[times[number] for times in again.values() if number < len(times)] for number in numbers]
        counts = [
            (len(logs), sum(log > between - norm for log in logs))
            for paths in measured
            if 2 * len(paths) >= len(host_paths)  # fewer are no evidence of the host
            for logs in [[*chain.from_iterable(paths)]]
        ]
        for path in set(host_paths) - set(again):
            as_control = [log for _, paths in sorted(self.controls.items()) for log in paths.get(path, ())]
            again[path] = [[min(as_control, default=median_low(rest[path])) - norm]]
        middle = [
            median_low(median_low(times[min(number, len(times) - 1)]) for times in again.values()) for number in numbers
        ]
        return middle, counts

    def _excess_again(self, path: Path, norm: float, usual_beside: Callable[[int], float]) -> list[list[float]]:
        """By how much the path was slower each time it was measured again than both the norm and others at that time.

        ``usual_beside``: what others took then. Where it took `CLEAR_RATIO` times as long as they did, that they were
        disturbed, too, takes nothing away.
        """

        def excess(log: float, beside: float) -> float:
            return log - (norm if log - beside >= math.log(CLEAR_RATIO) else max(norm, beside))

        times = sorted(self.again.get(path, {}).items())
        return [[excess(log, usual_beside(number)) for log in logs] for number, logs in times]

    def _is_slow_in_the_middle(self, paths: Sequence[Path], least: float) -> bool:
        """Whether what was measured again shows this excess in its middle, too, where that is known.

        Where each exchange varies by a factor, the quickest ones of a few differ by chance.
        """
        ours = [log for path, log in self.middles[False] if path in paths]
        others = [log for path, log in self.middles[True] if path not in paths]
        return not (ours and others) or median(ours) - median(others) >= least

    def _effects(self, hosts: Sequence[PathOutlier]) -> dict[Path, float]:
        """What each path's measurements hold of the slow hosts it leads to or from, as logarithms."""
        effects = dict.fromkeys(self.first, 0.0)
        for outlier in hosts:
            for path in self.first:
                if _belongs(path, outlier.hosts[0], outlier.way):
                    effects[path] += outlier.log - outlier.peer_log
        return effects

    # -- links and directions

    def _slow_places(self, effects: Mapping[Path, float]) -> Iterator[PathOutlier]:
        """Links and directions that are slower by a ratio that matters, beside what their hosts explain."""
        if len(self.first) < 3:
            return
        rest = {path: [log - effects[path] for log in logs] for path, logs in self.first.items()}
        least = median_low(chain.from_iterable(rest.values())) + self.least_link / 2
        quickest = median_low(self.quickest[path] - effects[path] for path in rest)
        slow = {
            path: excess
            for path, logs in rest.items()
            if median_low(logs) >= least and (excess := self._excess_of_path(rest, effects, quickest, path))
        }
        for path in sorted(slow):
            back = path[::-1]
            if back in slow and back < path:
                continue
            paths = (path, back) if back in slow else (path,)
            yield self._slow_place(rest, effects, paths, [log for each in paths for log in slow[each]])

    def _excess_of_path(
        self, rest: Mapping[Path, list[float]], effects: Mapping[Path, float], quickest: float, path: Path
    ) -> list[float]:
        """By how much each of its measurements was slower than the others at that time; empty where one was not.

        ``quickest``: what the quickest part of a measurement usually takes.
        """
        others = [self.usual[other] - effects[other] for other in rest if other not in (path, path[::-1])]
        if not others:
            return []
        norm, effect = median_low(others), effects[path]

        def slowest_beside(number: int) -> float:
            return max(chain.from_iterable(self.controls.get(number, {}).values()), default=norm) + effect

        again = self._excess_again(path, norm + effect, slowest_beside)
        excess = [log - norm for log in rest[path]] + [*chain.from_iterable(again)]
        more = median_low(excess)
        quick = self.quickest[path] - effect - quickest
        is_slow = more >= self.least_link and min(*excess, quick) >= more / 2
        return excess if is_slow and self._is_slow_in_the_middle((path,), more * MIDDLE_LINK) else []

    def _slow_place(
        self,
        rest: Mapping[Path, list[float]],
        effects: Mapping[Path, float],
        paths: tuple[Path, ...],
        excess: Sequence[float],
    ) -> PathOutlier:
        beside = [path for path in rest if path not in (*paths, paths[0][::-1])]
        others = [log for path in beside for log in rest[path]]
        norm, more = median_low(self.usual[path] - effects[path] for path in beside), median_low(excess)
        noise, chance = self._chances([(len(excess), len(excess))], min(excess), [(others, norm)])
        norm += max(effects[path] for path in paths)
        directed = len(self.ways) > 1
        kind: PlaceKind = "direction" if directed and len(paths) == 1 else "link"
        times = sum(1 + len(self.again.get(path, ())) for path in paths)
        confirmed = times > (1 if self.apart else len(paths))
        return PathOutlier(
            kind,
            paths[0],
            "both",
            norm + more,
            norm,
            chance,
            len(excess),
            paths,
            len(paths),
            confirmed,
            more >= math.log(SUSPICIOUS_RATIO) or noise < self.figures * SUSPICIOUS,
        )

    def _ends_are_fast(self, effects: Mapping[Path, float], place: PathOutlier) -> bool:
        """Whether both ends are fast with most others: else it is no fault of what lies between them."""
        between = place.between - max(effects[path] for path in place.paths)
        for end in place.hosts:
            others = [path for path in self.paths_of[end] if not set(path) <= set(place.hosts)]
            if others and median_low(self.usual[path] - effects[path] for path in others) > between:
                return False
        return True

    def _hosts_of(self, places: Sequence[PathOutlier], links: Sequence[PathOutlier]) -> Iterator[PathOutlier]:
        """Hosts whose paths of one way are all slow, most of them surely, each for itself: the host is one cause."""
        by_path = {path: place for place in places for path in place.paths}
        for host in self.ends:
            for way in self.ways:
                paths = tuple(path for path in self.paths_of[host] if _belongs(path, host, way))
                parts = [by_path[path] for path in paths if path in by_path]
                if len(parts) == len(paths) and sum(part in links for part in parts) > max(1, len(paths) / 2):
                    part = min(parts, key=lambda part: (part.chance, part.log))
                    measured = sum(part.measured for part in parts)
                    of_host = {"hosts": (host,), "way": way, "paths": paths, "slow_paths": len(paths)}
                    yield msgspec.structs.replace(part, kind="host", measured=measured, **of_host)
                    break

    # -- chance

    def _scale(self, groups: Sequence[tuple[Sequence[float], float]]) -> tuple[float, int]:
        """How far healthy measurements lie above the middle one of their group; from how many values that is known."""
        above = [log - middle for logs, middle in groups for log in logs if log > middle]
        noise, repeats = self.noise
        return max(noise, median(above) / math.log(2) if above else 0.0), max(1, len(above)) + repeats

    def _chances(
        self, counts: Sequence[tuple[int, int]], excess: float, groups: Sequence[tuple[Sequence[float], float]]
    ) -> tuple[float, float]:
        """That noise alone shows this anywhere in a healthy fleet; that noise or disturbances do.

        ``counts``: measured, and above the norm by ``excess``, each time. ``groups``: as `_scale`; the last are the
        peers. By the noise model, or by the order of all measurements, each order being as likely: whichever is less.
        """
        above = sum(number for _, number in counts)
        ways = sum(math.log(math.comb(measured, number)) for measured, number in counts)
        peers, norm = groups[-1]
        as_slow = sum(log - norm >= excess for log in peers)
        order = math.log(math.comb(above + as_slow, above)) - math.log(math.comb(above + len(peers), above))
        noise = min(log_chance(above, excess, *self._scale(groups)), order)
        both = max(noise, above * math.log(self.disturbed))
        tests = math.log(2 * self.tests) + ways
        return math.exp(tests + noise), math.exp(min(tests + both, 0.0))


def _belongs(path: Path, host: int, way: Way) -> bool:
    return host in path if way == "both" else path[0 if way == "outbound" else 1] == host


def _by_ratio(outlier: PathOutlier) -> tuple[float, tuple[int, ...]]:
    return -outlier.ratio, outlier.hosts
