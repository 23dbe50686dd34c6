"""How the events of one stage come out of a host's record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, Union

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, smoke
from doctor.engine.texts import filled


class RankEvent(msgspec.Struct, frozen=True, tag_field="ev"):
    """One line that a rank printed. A number that is None was not finite."""

    rank: int
    """-1 for the process that the host's ranks are forked from."""

    @property
    def tag(self) -> str:
        """The kind of event, as it stands in the line."""
        return str(self.__struct_config__.tag)


E = TypeVar("E", bound=RankEvent)
One = TypeVar("One", bound=RankEvent)
F = TypeVar("F", bound="StageFact")


class ExpectedEvents(msgspec.Struct, frozen=True, array_like=True):
    """What a rank has to report in a stage: with less, there is not all that is to be judged."""

    tags: str
    """Of the events, such as ``begin`` or ``checked|wrong``."""
    least: int
    rank: int = -1
    """The one that reports it; -1: each."""


class RankReport(msgspec.Struct, Generic[E], frozen=True):
    """What the supervisor kept of one stage on one host."""

    reached: bool
    events: tuple[E, ...] = ()
    why: str = ""
    """Why the stage was not reached."""
    because: str = ""
    """The check that holds the root cause."""
    planned: bool = True
    """False: the run was to do without this stage, or the host has no rank in it."""
    ranks: tuple[int, ...] = ()
    """The ranks that were to report here."""
    expected: tuple[ExpectedEvents, ...] = ()

    def unread_ranks(self, stage: str) -> dict[str, str]:
        """The ranks that did not report all that was expected of them in this stage, for `Fact.unread`."""
        counts = Counter((event.rank, event.tag) for event in self.events)
        reporting_ranks = {rank for rank, _ in counts}
        nothing = filled("it reported nothing in the {0} stage", stage)
        unread = {rank: nothing for rank in self.ranks if rank not in reporting_ranks}
        for tags, least, only in map(msgspec.structs.astuple, self.expected):
            for rank in (rank for rank in self.ranks if only in (rank, -1)):
                count = sum(counts[rank, tag] for tag in tags.split("|"))
                if count < least:
                    reason = "in the {0} stage it reported {1} of {2} events of kind {3}"
                    unread.setdefault(rank, filled(reason, stage, count, least, tags.replace("|", " / ")))
        return {f"rank {rank}": why for rank, why in unread.items()}


class StageFact(Fact, frozen=True):
    """Base of the facts that are made of what a host's ranks emit in one stage."""

    probe = smoke()

    stage: ClassVar[str]
    event_types: ClassVar[tuple[type[RankEvent], ...]]
    """What ranks emit in the stage: the only list of it, in the order of the fact's fields, which hold them."""
    every_rank: ClassVar[bool] = False
    """Every rank has something to report: one that reported nothing is unread."""

    @classmethod
    def read_report(cls, answer: ProbeAnswer) -> RankReport[RankEvent]:
        """What the host's ranks emitted. Raises like `decode_report`."""
        return decode_report(answer, cls)

    @classmethod
    def read(cls: type[F], answer: ProbeAnswer) -> F:
        """Each type's events in the field of its place. Raises like `decode_report`."""
        report = cls.read_report(answer)
        names = [name for name in cls.__struct_fields__ if name not in StageFact.__struct_fields__]
        fields = {name: events_of_type(report.events, kind) for name, kind in zip(names, cls.event_types, strict=True)}
        return cls(**fields, unread=report.unread_ranks(cls.stage))


@cache
def _report_decoder(event_types: tuple[type[RankEvent], ...]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(RankReport[Union[event_types]])  # type: ignore[valid-type]  # noqa: UP007


def decode_report(answer: ProbeAnswer, fact: type[StageFact]) -> RankReport[RankEvent]:
    """The stage's events. Raises: Absent when it was not planned, Unreadable when it was not reached."""
    try:
        report: RankReport[RankEvent] = _report_decoder(fact.event_types).decode(answer.text())
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError) as error:
        raise Unreadable(filled("the ranks' reports cannot be parsed: {0}", error)) from None
    if not report.planned:
        raise Absent(report.why or filled("the smoke run did not include the {0} stage", fact.stage))
    if not report.reached:
        raise Unreadable(report.why or filled("the smoke run did not reach the {0} stage", fact.stage), report.because)
    if not report.events:
        raise Unreadable(filled("the host's ranks reported nothing in the {0} stage", fact.stage))
    return report


def events_of_type(events: Iterable[RankEvent], kind: type[One]) -> tuple[One, ...]:
    """The events of one kind, in the order in which they came."""
    return tuple(event for event in events if isinstance(event, kind))
