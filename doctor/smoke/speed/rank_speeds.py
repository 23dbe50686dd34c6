"""The speeds that ranks reported, prepared for comparison, and their words. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from statistics import median

from doctor.analysis.outliers.pairs import PathOutlier
from doctor.analysis.outliers.peers import (
    MIN_TIMES,
    SLOW,
    OwnWork,
    Straggler,
    WorkPart,
    by_attempt,
    find_confirmed_stragglers,
    stragglers_by_part,
)
from doctor.engine.check import Skip
from doctor.engine.fact import Unreadable
from doctor.engine.grouping import lists_by_key
from doctor.engine.quantities import number_text, seconds_text
from doctor.engine.texts import filled
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.further_stages import SmokePace, SmokePairs
from doctor.smoke.model import SmokeRun
from doctor.smoke.speed.link_speeds import compare_pairs

ALIKE = 1.1
"""Slow in two respects, and by less than this apart: one cause."""
CROWDED, CROWDED_SLOW = 0.5, 1.5
"""Share of its time that the median rank waits for a CPU from which on only what takes so many times as long is slow:
whoever had the CPU has emptied its caches, and more often those of one rank than of another."""
MOST_SURE = 0.9999
"""More is not said: the ranks' noise is not as well known as that."""


def slow_ranks(
    kind: WorkPart, paces: Mapping[str, SmokePace], starts: Mapping[str, SmokeStart] | None, run: SmokeRun
) -> dict[int, Straggler]:
    """The slow ranks among those with the same kind of device, the slowest first.

    Of a watched run the times are those of a whole training, and a rank is slow by one part of its own work; otherwise
    those of a moment, or of several, and each of these has to show that a rank is slow. Raises: Skip when no rank has a
    peer; Unreadable when there are too few times to say anything.
    """
    watched, waited = run.watched, [use.waited for use in run.cpu_quotas.values()]
    least = CROWDED_SLOW if waited and median(waited) >= CROWDED else SLOW
    measured: dict[int, dict[int, tuple[float, ...]]] = {}
    watched_work = {
        event.rank: OwnWork(event.input, event.compute, event.starved)
        for fact in paces.values()
        for event in fact.paced
    }
    for fact in paces.values():
        for event in fact.paced:
            part = "compute" if watched else kind  # of a step that waits for no input both are known
            measured.setdefault(event.rank, {}).setdefault(event.attempt, getattr(event, part))
    times = {rank: attempts for rank, attempts in measured.items() if len(attempts.get(0, ())) >= MIN_TIMES}
    if measured and not times:
        raise Unreadable(filled("no rank reported {0} or more times of its {1}", MIN_TIMES, kind))
    groups: dict[str, list[int]] = {}
    devices = devices_of(starts or {})
    for rank in times:
        groups.setdefault(devices.get(rank, ""), []).append(rank)
    if all(len(group) < 2 for group in groups.values()):
        raise Skip("no two ranks compute on the same kind of device")
    slow: dict[int, Straggler] = {}
    for group in groups.values():
        if watched:
            slow |= stragglers_by_part({rank: watched_work[rank] for rank in group})[kind]
        else:
            slow |= find_confirmed_stragglers(by_attempt({rank: times[rank] for rank in group}), least)
    return dict(sorted(slow.items(), key=lambda item: -item[1].ratio))


def input_only(
    slow_input: Mapping[int, Straggler],
    paces: Mapping[str, SmokePace],
    starts: Mapping[str, SmokeStart] | None,
    run: SmokeRun,
) -> dict[int, Straggler]:
    """Those that are not as slow in computing: a slow CPU is not the input's fault."""
    try:
        computing = slow_ranks("compute", paces, starts, run)
    except Unreadable:
        computing = {}
    return {
        rank: slow
        for rank, slow in slow_input.items()
        if rank not in computing or slow.ratio > ALIKE * computing[rank].ratio
    }


def devices_of(starts: Mapping[str, SmokeStart]) -> dict[int, str]:
    """What each rank computes on: the device's name."""
    return {event.rank: event.device.name for start in starts.values() for event in start.joined}


def by_host(run: SmokeRun, slow: Collection[int]) -> list[tuple[str, list[int], bool]]:
    """Host, its slow ranks, and whether these are all that it has (of several). One finding each."""
    hosts = dict.fromkeys(map(run.plan.host_of, slow))
    ranks_by_host = {host: sorted(set(slow).intersection(run.plan.ranks_by_host[host])) for host in hosts}
    return [(host, ranks, len(ranks) == len(run.plan.ranks_by_host[host]) > 1) for host, ranks in ranks_by_host.items()]


def compare_links(pairs: Mapping[str, SmokePairs]) -> Iterator[tuple[PathOutlier, int, str]]:
    """The slow ends and links, each once, with the size of the message, and words for when it was in the soak.

    Raises: Skip for fewer than three ends.
    """
    events = [event for fact in pairs.values() for event in fact.pairs]
    if len({end for event in events for end in (event.rank, event.peer)}) < 3:
        raise Skip("a single pair cannot be compared; a third host would show which end is slow")
    named: set[tuple[int, ...]] = set()
    for after, measured in sorted(lists_by_key((event.after, event) for event in events).items()):
        size = max(event.bytes for event in measured)
        when = filled(" after {0} of the repetition", seconds_text(after)) if after else ""
        for outlier in compare_pairs(event for event in measured if event.bytes == size):
            if outlier.hosts not in named:
                named.add(outlier.hosts)
                yield outlier, size, when


def describe_end(run: SmokeRun, rank: int) -> str:
    """A partner in the pairs' stage: a host, by its first rank, or one of several ranks of the only host."""
    host = run.plan.host_of(rank)
    return filled("{0} (rank {1})", host, rank) if len(run.plan.ranks_by_host) > 1 else f"rank {rank}"


def percent(confidence: float) -> str:
    """Rounded down.

    >>> percent(0.99567), percent(1.0)
    ('99.56 %', '99.99 %')
    """
    return f"{int(min(confidence, MOST_SURE) * 1e4) / 1e2:g} %"


def megabytes(size: int) -> str:
    """Such as ``1.05 MB``; small messages in bytes."""
    return f"{number_text(size / 1e6)} MB" if size >= 10**5 else filled("{0} bytes", size)
