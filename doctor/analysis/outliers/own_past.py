"""A job's step time against that of its own earlier runs: the longer part of the step, its rank and its host. Pure.

Noise model: as in `earlier`. The usual step time of a run is one figure; those of earlier runs have a range that one
healthy run in a thousand leaves. Of two to four runs the range is not known, and a step must take half as long again:
no rate can be stated there. The part, the rank and the host only explain what the step time has shown, and are named
where they make up half of it or more.

What a rank waits for a CPU is the host's, not the job's: what has been added to it since is taken off. Beside another
load the same work also takes longer by shared caches and cores, by two times at most (`BUSY_RATIO` leaves room).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median

import msgspec

from doctor.analysis.outliers.peers import BUSY_RATIO, BUSY_SHARE
from doctor.analysis.values.value_defect import describe
from doctor.engine.quantities import seconds_text
from doctor.engine.result import Finding
from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled
from doctor.engine.watch_summary import PaceComparison, PacePart, PathPace, RankPace, RunPace, SlowDown

CHECK = "training-slowed-down"
LEAST_RUNS = 2
"""Earlier runs without which nothing is said: a single one may have been an odd one."""
LEAST_STEPS = 12
"""Of a run."""
SHARE = 0.5
"""Of what a step has become longer by, that a part must make up to be named."""
FLOOR = 0.02
"""Of a usual step: a part that was shorter may vary by any factor."""
TRIFLE = 0.001
"""Of what a step has become longer by: a round trip that has grown by less, a thousand of them do not explain."""
PATH_SHARE = 0.25
"""Of what the slowest path's round trip has grown by, from which on another one is slow, too."""
MORE_CALLS = 1.5
"""Times as many collectives as before, from which on they are the reason, unless each of them takes so much longer."""
INTERPRETER = 0.001
"""Seconds: one thread after another has Python's interpreter for 5 ms where all of them want it."""
MOST_RESENT = 0.01
"""Share of resent segments from which on a path loses packets."""
OWN_PARTS: tuple[PacePart, ...] = ("input", "compute")
TEMPLATES: Mapping[PacePart, str] = {
    "input": "a step takes {now}, and {usual} in {runs} earlier runs of this job: {who} waits {seconds} for its input; "
    "before: {before}",
    "compute": "a step takes {now}, and {usual} in {runs} earlier runs of this job: {who} computes for {seconds}; "
    "before: {before}",
    "network": "a step takes {now}, and {usual} in {runs} earlier runs of this job: the data of collectives takes "
    "{seconds}, and took {before}, over the network of {where}",
    "interpreter": "a step takes {now}, and {usual} in {runs} earlier runs of this job: other threads of {who} keep "
    "Python's interpreter (GIL), and each return to it takes {seconds}; before: {before}",
    "calls": "a step takes {now}, and {usual} in {runs} earlier runs of this job: it has {calls} collectives, and had "
    "{usual_calls}; their data take {seconds}, and took {before}",
    "unsplit": "a step takes {now}, and {usual} in {runs} earlier runs of this job: it is computing or the network, "
    "{seconds} of {who}, which was {before}",
    "": "a step takes {now}, and {usual} in {runs} earlier runs of this job; no part of it alone is the reason",
}  # fmt: skip
FAR = 2.0
"""Times the longest step of earlier runs: one beyond it may be slow, also where their range is wider."""
FEW, FEW_RATIO = 5, 1.5
"""Fewer values than so many tell nothing of how much they differ: gloo on a quiet host repeats itself to a third."""
LEAST_RATIO = 1.15
"""Times below the median, at least, from which on a figure is below the range."""
MOST_APART = 100.0
"""As logarithms; values that differ by more are nonsense, and no number can hold their range."""


class UsualRange(msgspec.Struct, frozen=True):
    """The usual range of a figure for which more is better."""

    median: float
    spread: float
    """One standard deviation, as a factor; 1.0 where it is not known."""
    lowest: float
    """What is below it is not usual."""
    count: int


def compare_pace(now: RunPace, earlier: Sequence[RunPace]) -> PaceComparison:
    """``earlier``: runs of the same job, in any order; those with other ranks are left out, and slow ones where there
    are enough others.
    """
    alike = [run for run in earlier if run.ranks.keys() == now.ranks.keys() and run.steps >= LEAST_STEPS]
    usual = [run for run in alike if not run.is_slow]
    runs = usual if len(usual) >= LEAST_RUNS else alike
    if len(runs) < LEAST_RUNS or now.steps < LEAST_STEPS:
        return PaceComparison(now, starved=_hidden(now))
    span = _span([step_time(run) for run in runs])
    step, past, longest = step_time(now), Past(runs), max(map(step_time, runs))
    if span is None or step <= min(span.longest, FAR * longest):
        hidden = [rank for rank in now.ranks if past.usual(rank, "cpu_wait") > SHARE * past.usual(rank, "step")]
        return PaceComparison(now, len(runs), (), tuple(hidden) or _hidden(now))
    starved = {rank: max(0.0, past.more(rank, "cpu_wait", now)) for rank in now.ranks}
    busy = tuple(rank for rank, seconds in starved.items() if seconds > BUSY_SHARE * step)
    effective = step - max(starved.values())
    is_far, is_beyond = effective > FAR * longest, effective > (BUSY_RATIO * span.usual if busy else span.longest)
    rows = tuple(_reasons(now, past, starved, SHARE * (effective - span.usual)))
    if not is_beyond:  # a part of its own that has left its range tells what the step's range does not
        rows = tuple(row for row in rows if is_far and not busy and row[0] in OWN_PARTS)
        if not rows:
            return PaceComparison(now, len(runs), (), busy, longest if is_far else 0)
    rows = rows or (("", (), (), 0.0, 0.0),)
    slow = tuple(
        SlowDown(part, step, span.usual, len(runs), ranks, hosts, seconds, before, *_calls(now, past))
        for part, ranks, hosts, seconds, before in rows
    )
    return PaceComparison(now, len(runs), slow, busy)


def _hidden(run: RunPace) -> tuple[int, ...]:
    """Ranks that wait for a CPU for so much of a step that their own work could be far slower unseen."""
    return tuple(rank for rank, pace in run.ranks.items() if pace.cpu_wait > SHARE * pace.step)


Reason = tuple[PacePart, tuple[int, ...], tuple[str, ...], float, float]
"""Part, ranks, hosts, seconds now and usual ones."""


def step_time(run: RunPace) -> float:
    """Of a usual step of the job: that of the middle rank."""
    return median([pace.step for pace in run.ranks.values()] or [0.0])


class Span:
    """Of seconds, as `UsualRange` of their inverse."""

    def __init__(self, rates: UsualRange) -> None:
        self.usual, self.longest = 1 / rates.median, 1 / rates.lowest


def _span(seconds: Sequence[float]) -> Span | None:
    rates = usual_range([1 / max(value, 1e-9) for value in seconds])
    return Span(rates) if rates else None


class Past:
    """Earlier runs, rank by rank."""

    def __init__(self, runs: Sequence[RunPace]) -> None:
        self.runs = runs
        self.least = FLOOR * median([step_time(run) for run in runs])

    def usual(self, rank: int, part: str) -> float:
        """Seconds of the part in the middle one of the runs."""
        return float(median([getattr(run.ranks[rank], part) for run in self.runs]))

    def more(self, rank: int, part: str, now: RunPace) -> float:
        """Seconds that the part takes more than it did usually."""
        return float(getattr(now.ranks[rank], part) - self.usual(rank, part))

    def is_longer(self, rank: int, part: str, seconds: float) -> bool:
        """Whether the seconds lie beyond what the part took in these runs."""
        span = _span([max(getattr(run.ranks[rank], part), self.least) for run in self.runs])
        return span is None or seconds > span.longest


def _reasons(now: RunPace, past: Past, starved: Mapping[int, float], least: float) -> Iterator[Reason]:
    keeping = [
        rank
        for rank, pace in now.ranks.items()
        # Who waits for a CPU comes back to the interpreter later, too.
        if starved[rank] <= min(BUSY_SHARE * pace.step, more := past.more(rank, "interpreter", now))
        and more >= max(INTERPRETER, SHARE * pace.interpreter)
        and past.more(rank, "step", now) - past.more(rank, "wait", now) - starved[rank] >= least
    ]
    if keeping:
        yield _reason("interpreter", keeping, now, past)
        return
    own = False
    for part in OWN_PARTS:
        ranks = [
            rank
            for rank, pace in now.ranks.items()
            if past.more(rank, part, now) - starved[rank] >= least and past.is_longer(rank, part, getattr(pace, part))
        ]
        if ranks:
            own = True
            yield _reason(part, ranks, now, past)
    if own:
        return
    if ranks := [rank for rank in now.ranks if past.more(rank, "network", now) >= least]:
        _, _, hosts, seconds, before = _reason("network", ranks, now, past)
        calls, usual = _calls(now, past)
        if 0 < MORE_CALLS * usual <= calls and seconds / calls <= MORE_CALLS * before / usual:
            yield "calls", (), hosts, seconds, before
        else:
            yield "network", (), _slow_hosts(now, past, seconds - before), seconds, before
    elif ranks := [rank for rank in now.ranks if past.more(rank, "unsplit", now) >= least]:
        yield _reason("unsplit", ranks, now, past)


def _reason(part: PacePart, ranks: Sequence[int], now: RunPace, past: Past) -> Reason:
    worst = max(ranks, key=lambda rank: past.more(rank, part, now))
    hosts = tuple(dict.fromkeys(now.ranks[rank].host for rank in ranks))
    named = () if len(ranks) == len(now.ranks) > 1 else tuple(sorted(ranks))
    return part, named, hosts, getattr(now.ranks[worst], part), past.usual(worst, part)


def _calls(now: RunPace, past: Past) -> tuple[int, int]:
    """Collectives of a step now, and in earlier runs, of the rank that has the most; 0: not known."""
    rank = max(now.ranks, key=lambda rank: now.ranks[rank].calls)
    return round(now.ranks[rank].calls), round(past.usual(rank, "calls"))


def _slow_hosts(now: RunPace, past: Past, growth: float) -> tuple[str, ...]:
    """The host whose paths all are slower than before, where no other path is; else the ends of the slow ones.

    A path between two hosts is slow where it is in one direction: a ring sends in one alone. Round trips count that
    have grown by half of what the slowest has, and are no trifle of the ``growth`` of a step.
    """
    host_of = {path.own_address: path.host for path in now.paths}
    before: dict[tuple[str, str], list[PathPace]] = {}
    for run in past.runs:
        hosts = {path.own_address: path.host for path in run.paths}
        for path in run.paths:
            before.setdefault((path.host, hosts.get(path.peer_address, path.peer_address)), []).append(path)
    seconds: dict[frozenset[str], float] = {}
    losing: set[frozenset[str]] = set()
    for path in now.paths:
        ends = path.host, host_of.get(path.peer_address, path.peer_address)
        if ends[0] == ends[1] or len(before.get(ends, ())) < LEAST_RUNS:
            continue
        pair = frozenset(ends)
        span = _span([one.round_trip for one in before[ends]])
        more = path.round_trip - span.usual if span is not None and path.round_trip > span.longest else 0.0
        seconds[pair] = max(seconds.get(pair, 0.0), more)
        if path.resent > MOST_RESENT and path.resent > 2 * max(run.resent for run in before[ends]):
            losing.add(pair)
    least = max(TRIFLE * growth, PATH_SHARE * max(seconds.values(), default=0.0))
    slow = [pair for pair, more in seconds.items() if more > least or pair in losing]
    names = {path.host for path in now.paths}
    shared = frozenset.intersection(*slow) & names if slow else frozenset()
    if len(shared) == 1 and not any(shared & pair for pair in seconds if pair not in slow):
        return tuple(shared)
    return tuple(sorted(frozenset().union(*slow) & names)) if slow else ()


def pace_findings(report: PaceComparison) -> Iterator[Finding]:
    """One for each part that makes the job slower."""
    for row in report.slow:
        hosts = row.hosts or tuple(dict.fromkeys(pace.host for pace in report.now.ranks.values()))
        yield Finding(TEMPLATES[row.part], hosts=hosts, ranks=list(row.ranks), **_values(row))


def pace_lines(report: PaceComparison) -> list[str]:
    """What makes the job slower, each in a line."""
    return [filled("{0}: {1}", CHECK, filled(TEMPLATES[row.part], **_values(row))) for row in report.slow]


def pace_notes(report: PaceComparison) -> tuple[str, ...]:
    """What a report says beside: which parts a step has."""
    return (filled("a usual step takes {0}: {1}", *_split_of(report.now)),)


def undecided(report: PaceComparison) -> str:
    """Why it is not known whether the job has become slower; empty where it is."""
    if report.longest:
        text = "a step takes {0}, and {1} at most in {2} earlier runs of this job, too few for how much they differ"
        return filled(text, *map(seconds_text, (step_time(report.now), report.longest)), report.runs)
    text = "{0} waited for a CPU, which other programs of the host used: a slow-down of the job itself does not show"
    return filled(text, rank_names(report.starved)) if report.starved and not report.slow else ""


def _split_of(run: RunPace) -> tuple[str, str]:
    """Of the middle rank's: the step, and its parts."""
    ordered = sorted(run.ranks.values(), key=lambda pace: pace.step)
    pace: RankPace = ordered[(len(ordered) - 1) // 2]
    parts = (
        ("{0} input", pace.input),
        ("{0} compute", pace.compute),
        ("{0} waiting for other ranks", pace.wait),
        ("{0} network", pace.network),
        ("{0} compute or network", pace.unsplit),
    )
    text = ", ".join(filled(part, seconds_text(value)) for part, value in parts if value >= 0.005 * pace.step)
    return seconds_text(pace.step), text


def _values(row: SlowDown) -> dict[str, str | int]:
    return {
        "now": seconds_text(row.step),
        "usual": seconds_text(row.usual_step),
        "runs": row.runs,
        "who": describe(row.ranks),
        "seconds": seconds_text(row.seconds),
        "before": seconds_text(row.usual_seconds),
        "where": _place_of(row.hosts),
        "calls": row.calls,
        "usual_calls": row.usual_calls,
    }


def _place_of(hosts: Sequence[str]) -> str:
    """Whose network it is; what several share is said so."""
    if not hosts:
        return "the hosts; no path between two of them shows where"
    if len(hosts) == 1:
        return hosts[0]
    if len(hosts) == 2:
        return filled("{0} or {1}: it is on the path between them", *hosts)
    return filled("several hosts: {0}", ", ".join(hosts))


def usual_range(values: Sequence[float]) -> UsualRange | None:
    """The range of positive values; None without any, or where they are nonsense. By the median
    and the mean deviation from it, as logarithms.

    >>> usual_range([100.0, 101.0, 99.0, 100.0, 102.0]).lowest > 85
    True
    >>> round(usual_range([100.0, 120.0]).lowest)
    73
    """
    logs = [math.log(value) for value in values if math.isfinite(value) and value > 0]
    if not logs or max(logs) - min(logs) > MOST_APART:
        return None
    middle = median(logs)
    if len(logs) < FEW:
        return UsualRange(math.exp(middle), 1.0, math.exp(middle) / FEW_RATIO, len(logs))
    mean_deviation = fmean([abs(log - middle) for log in logs])
    # Of a normal distribution the deviation from the median is 0.8 standard deviations in the mean. One bad run among
    # the values moves it less than it moves the variance.
    spread = mean_deviation * math.sqrt(math.pi / 2) * len(logs) / (len(logs) - 1)
    # One healthy value in a thousand lies so many deviations away: Student's distribution, compared with simulations.
    deviations = (3.1 + 16 / (len(logs) - 1)) * math.sqrt(1 + 1.57 / len(logs))
    below = max(math.log(LEAST_RATIO), deviations * spread)
    return UsualRange(math.exp(middle), math.exp(spread), math.exp(middle - below), len(logs))
