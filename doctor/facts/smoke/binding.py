"""The CPUs on which each rank may run, as it begins."""

from __future__ import annotations

import re

import msgspec

from doctor.engine.fact import ProbeAnswer
from doctor.facts.smoke.events import RankEvent, StageFact, events_of_type


class RankBound(RankEvent, frozen=True, tag="bound"):
    """The CPUs of one rank, as lists such as ``0-3,8``. An empty list was not to be had."""

    cpus: str
    """On which the main thread may run, once the libraries are loaded and before the run moves it."""
    permitted: str
    """On which its control group would let it run."""


class CpuBinding(msgspec.Struct, frozen=True):
    """The CPUs of one rank, by number."""

    cpus: frozenset[int]
    permitted: frozenset[int]


class SmokeBinding(StageFact, frozen=True):
    """The CPUs on which the ranks of the host may run.

    Raw output, one line of a rank::

        {"cpus":"0-1","permitted":"0-63","ev":"bound","rank":0}
    """

    stage = "start"
    event_types = (RankBound,)
    every_rank = True

    by_rank: dict[int, CpuBinding] = {}

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SmokeBinding:
        report = cls.read_report(answer)
        by_rank, unread = {}, report.unread_ranks(cls.stage)
        for event in events_of_type(report.events, RankBound):
            cpus, permitted = cpu_numbers(event.cpus), cpu_numbers(event.permitted)
            if cpus and permitted:
                by_rank[event.rank] = CpuBinding(cpus, permitted)
            else:
                unread[f"rank {event.rank}"] = "the CPUs on which it may run are not known"
        return cls(by_rank=by_rank, unread=unread)


def cpu_numbers(text: str) -> frozenset[int]:
    """The CPUs of a list in ascending order; empty for a text that is none.

    >>> sorted(cpu_numbers("0-1,4")), sorted(cpu_numbers("4,0-1"))
    ([0, 1, 4], [])
    """
    numbers: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part, re.ASCII)
        if not ends or (numbers and int(ends[1]) <= numbers[-1]):
            return frozenset()
        numbers += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return frozenset(numbers)
