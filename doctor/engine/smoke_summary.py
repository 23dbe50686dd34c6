"""A smoke run in figures, as a report shows it: frozen values, with no judgement in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from doctor.engine.smoke_failures import FailureKind as FailureKind

Backend = Literal["gloo", "nccl", "hccl"]


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stopped a run: one cause, the culprit ranks, and the ranks that only waited."""

    kind: FailureKind
    culprit_ranks: tuple[int, ...] = ()
    """Ranks."""
    waiting_ranks: tuple[int, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Pairs of hosts (from, to) that bytes do not get through between."""
    certainty: Literal["certain", "evidence", "timeout", "likely"] = "certain"
    """certain: follows from what was recorded; evidence: the system's counters say so; timeout: an adaptive limit;
    likely: the job was ended during a long wait, before any limit was over."""
    stage: str = ""
    layout: str = ""
    step: int = 0
    group: str = ""
    """Name of the process group."""
    seq: int = 0
    op: str = ""
    numel: int = 0
    dtype: str = ""
    text: str = ""
    """The cause as text: an error message, ``signal 9``."""
    calls: dict[int, str] = {}
    """The call of each rank concerned: ``all_reduce of 128 float32 in dp2, number 7``."""
    states: dict[int, str] = {}
    limit: float = 0.0
    """Seconds of the adaptive limit that was passed; 0 where none was needed."""
    seconds: float = 0.0
    """Seconds from the culprit rank's last sign of progress to this verdict."""
    stacks: dict[int, str] = {}
    """Python stacks, innermost call first."""
    evidence: tuple[str, ...] = ()
    """Plain sentences: sockets, probes, kernel log."""
    ages: dict[int, float] = {}
    """Seconds before this verdict at which each rank concerned entered the collective that it is in, or left its last
    one, or ended."""
    parts: tuple[tuple[str, ...], ...] = ()
    """Of a fleet that is cut: the hosts that reach each other. None of these parts holds more than half of them."""
    unreached: bool = False
    """Ranks of other hosts could not join because they did not reach the host of the culprit ranks."""

    @property
    def culprits_differ(self) -> bool:
        """The culprit ranks made different calls: it is not known which of them is wrong, or each is for itself."""
        return len({self.calls[rank] for rank in self.culprit_ranks if rank in self.calls}) > 1

    @property
    def may_pass(self) -> bool:
        """Nothing but time speaks for it, and no link that bytes do not get through on: a rank that pauses goes on."""
        verdict = (self.kind, self.certainty)
        return verdict == ("blocked", "evidence") or (verdict == ("network", "timeout") and not self.links)

    @property
    def concerned(self) -> list[int]:
        """The culprit ranks and those that wait."""
        return sorted({*self.culprit_ranks, *self.waiting_ranks})

    def blaming(self, ranks: Iterable[int], **changes: Any) -> Failure:
        """This failure with these culprit ranks, and with all others that it knows as waiting.

        >>> Failure("network", (0, 1), (2,)).blaming([2], text="it left").waiting_ranks
        (0, 1)
        """
        culprits = tuple(sorted(ranks))
        waiting = tuple(rank for rank in self.concerned if rank not in culprits)
        return msgspec.structs.replace(self, culprit_ranks=culprits, waiting_ranks=waiting, **changes)


class RankEnvironment(msgspec.Struct, frozen=True):
    """What some ranks run on: equal for all of them."""

    torch: str
    numpy: str
    python: str
    device: str
    ranks: tuple[int, ...]


class StageTime(msgspec.Struct, frozen=True):
    """One stage that every rank has finished."""

    name: str
    seconds: float


class LayoutResult(msgspec.Struct, frozen=True):
    """One layout of the training, beside the same training in one process."""

    layout: str
    steps: int
    """Compared with the reference run."""
    error: float | None
    """The largest relative difference of a loss from the reference run's; None when nothing was compared."""
    losses: tuple[float | None, ...] = ()
    """Of each step, over the whole batch; None where it was not finite."""


class CollectiveSpeed(msgspec.Struct, frozen=True):
    """Speed of one collective: algbw and busbw as nccl-tests define them, from the median of the repeats."""

    op: str
    group: str
    ranks: int
    bytes: int
    seconds: float
    algbw: float
    """Bytes a second."""
    busbw: float


class SoakErrors(msgspec.Struct, frozen=True):
    """Wrong results of one collective on one rank in the soak stage."""

    rank: int
    op: str
    wrong: int
    calls: int


class SoakLink(msgspec.Struct, frozen=True):
    """Wrong results by where their first wrong element should have come from, in the soak stage."""

    source: int
    """Rank."""
    rank: int
    """That has the wrong result."""
    wrong: int


class HostTemperature(msgspec.Struct, frozen=True):
    """The hottest sensor of a host."""

    host: str
    celsius: float


class LinkErrors(msgspec.Struct, frozen=True):
    """An error counter of a link that grew."""

    host: str
    counter: str
    """Link and counter: ``eth0 rx_errors``, ``mlx5_0/1 symbol_error``."""
    count: int
    """That it grew by."""


class SoakMinute(msgspec.Struct, frozen=True):
    """An interval of the soak stage: a minute, less in a short soak, more in a long one."""

    start: float
    """Seconds since the stage began."""
    seconds: float
    calls: int
    """Collectives of each rank that were compared; of them wrong, on all ranks together."""
    wrong: int
    work: float = 0.0
    """Seconds of the same piece of work: the median of the ranks' medians; 0 where too few were timed."""
    slowest_rank: int = -1
    slowest_work: float = 0.0
    busbw: float = 0.0
    """Of all_reduce over all ranks, bytes a second, as nccl-tests define it."""
    temperatures: tuple[HostTemperature, ...] = ()
    """Of the hosts that show any."""
    link_errors: tuple[LinkErrors, ...] = ()


class SoakFigures(msgspec.Struct, frozen=True):
    """The soak stage: how often collectives ran, and how often which of them was wrong where."""

    seconds: float
    calls: dict[str, int]
    """Of each collective, on the rank that did most."""
    errors: tuple[SoakErrors, ...] = ()
    links: tuple[SoakLink, ...] = ()
    minutes: tuple[SoakMinute, ...] = ()


class DeviceRate(msgspec.Struct, frozen=True):
    """One kind of work on all devices of one model, in the device test."""

    test: str
    """Such as ``product bfloat16``, ``memory``."""
    model: str
    unit: Literal["FLOPS", "B/s"]
    """FLOPS: operations a second, of whole numbers in int8."""
    median: float
    """Of the devices' own medians, in units."""
    slowest: float
    slowest_rank: int
    ranks: int
    """Devices that were measured."""


class PairSpeed(msgspec.Struct, frozen=True):
    """How quickly two ranks exchange data, both directions at once, in the pairs stage."""

    low: int
    """The lower rank."""
    high: int
    bytes: int
    """That each sends."""
    seconds: float
    """Of one exchange: the lower quartile, as the checks compare it."""


class SmokeSummary(msgspec.Struct, frozen=True):
    """What ran, which stages finished, and the failure that ended it."""

    backend: Backend
    hosts: dict[str, int]
    """Ranks of each host, in plan order."""
    ended: Literal["complete", "trouble", "budget", "interrupted"]
    seconds: float
    import_seconds: float
    stages: tuple[StageTime, ...] = ()
    unfinished_stages: tuple[str, ...] = ()
    """Stages that not every rank finished."""
    layouts: tuple[LayoutResult, ...] = ()
    environments: tuple[RankEnvironment, ...] = ()
    collective_speeds: tuple[CollectiveSpeed, ...] = ()
    failures: tuple[Failure, ...] = ()
    placements: tuple[str, ...] = ()
    """Of each rank: ``node2, NPU 3``."""
    notes: tuple[str, ...] = ()
    device_speeds: tuple[DeviceRate, ...] = ()
    """Empty without that stage."""
    soak: SoakFigures | None = None
    """None without that stage."""
    reference_losses: tuple[float | None, ...] = ()
    """Of each step of the reference run; None where it was not finite."""
    learning_losses: tuple[float | None, ...] = ()
    """Of each step of the learning stage; None where a rank's was not finite."""
    pair_speeds: tuple[PairSpeed, ...] = ()
    """Of every pair that was measured; empty without that stage."""
    watched: bool = False
    """The ranks are those of a user's own program: it has no stages, and no reference run."""
    library: Literal["torch", "mindspore"] = "torch"
    """The ranks' library. On CPUs, MindSpore has a backend of its own, which stands as ``gloo`` above."""

    @property
    def world_size(self) -> int:
        return sum(self.hosts.values())
