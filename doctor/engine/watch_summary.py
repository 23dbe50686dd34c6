"""What was seen of a watched program, as it is saved, evaluated and shown: frozen values."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

LossRule = Literal[
    "not-finite", "ends-not-finite", "diverged", "ranks-differ", "constant", "stalled", "spiked", "silent"
]  # fmt: skip
LOSS_RULES: tuple[LossRule, ...] = get_args(LossRule)
"""In the order in which they are shown."""
MIN_JUDGED = 72
"""Losses of one rank below which a healthy verdict says too little."""
MIN_COMPARED = 20
"""Steps on which ranks that print the same loss must have been compared."""


class LossVerdict(msgspec.Struct, frozen=True):
    """One thing that is wrong with a loss; `doctor.engine.loss_rules` has its check and its words."""

    kind: LossRule
    ranks: tuple[int, ...] = ()
    """Those that it is said of; empty for all, or where no rank is known."""
    step: int | None = None
    """Where it began."""
    values: dict[str, str | int | float] = {}
    """That fill its text."""
    is_over: bool = False
    """A later loss is well again."""


class LossCurve(msgspec.Struct, frozen=True):
    """The losses of one rank in figures."""

    rank: int | None
    """None where the lines name no rank."""
    losses: int
    """Lines that told one."""
    not_finite: int
    first_step: int | None
    last_step: int | None
    first: float | None
    """None: not finite."""
    last: float | None
    points: tuple[float | None, ...]
    """Means of equally many losses, at most 257; None where one of them was not finite."""
    resumed_at: int | None = None
    """The last step to which the run went back."""


class ResumeDifference(msgspec.Struct, frozen=True):
    """One thing that a training does not begin with as its checkpoint had it; `doctor.analysis.values.resumed` has its
    words.
    """

    kind: str
    level: Literal["error", "warning", "note"]
    ranks: tuple[int, ...] = ()
    """Empty: all of them."""
    values: dict[str, str | int | float] = {}


class ResumeReport(msgspec.Struct, frozen=True):
    """What a training that goes on from a checkpoint begins with."""

    step: int
    """At which the checkpoint was saved."""
    differences: tuple[ResumeDifference, ...] = ()
    uncompared: tuple[str, ...] = ()


class RankPace(msgspec.Struct, frozen=True):
    """Seconds of one rank's usual step, by what it spends them with."""

    rank: int
    host: str
    input: float = 0.0
    compute: float = 0.0
    wait: float = 0.0
    """For other ranks, in collectives."""
    network: float = 0.0
    """In collectives that all have entered."""
    unsplit: float = 0.0
    """Compute, or waiting for collectives: nothing shows which."""
    calls: float = 0.0
    """Collectives and messages; not seconds."""
    interpreter: float = 0.0
    """Until the main thread has Python's interpreter again, each time that it has let it go; part of the others."""
    cpu_wait: float = 0.0
    """In which its threads were ready and had no CPU; a part of the others."""

    @property
    def step(self) -> float:
        return self.input + self.compute + self.wait + self.network + self.unsplit


class PathPace(msgspec.Struct, frozen=True):
    """The connections of one host's ranks to one other address."""

    host: str
    own_address: str
    peer_address: str
    round_trip: float
    """Seconds, by the kernel's smoothed time of TCP."""
    resent: float = 0.0
    """Share of the segments that were sent again."""


class RunPace(msgspec.Struct, frozen=True):
    """How one run of a job went."""

    steps: int
    ranks: dict[int, RankPace]
    paths: tuple[PathPace, ...] = ()
    is_slow: bool = False
    """It was slower than the runs before it: those after it are not compared with it."""


PacePart = Literal["input", "compute", "network", "unsplit", "interpreter", "calls", ""]


class SlowDown(msgspec.Struct, frozen=True):
    """A part of a job's step that takes longer than in earlier runs."""

    part: PacePart
    """Empty: no part alone explains it."""
    step: float
    """Seconds of a step now."""
    usual_step: float
    runs: int
    """Earlier runs that it was compared with."""
    ranks: tuple[int, ...] = ()
    """Those whose part it is; empty: all of them, or not known."""
    hosts: tuple[str, ...] = ()
    """Of these ranks; of a network, the host whose paths are all slow, or the two ends of a path."""
    seconds: float = 0.0
    """Of the part, at most of these ranks; of ``interpreter``, each time."""
    usual_seconds: float = 0.0
    calls: int = 0
    """Collectives of a step, where there are more than before."""
    usual_calls: int = 0


class PaceComparison(msgspec.Struct, frozen=True):
    """A run's pace against that of earlier runs of the same job."""

    now: RunPace
    runs: int = 0
    """Earlier runs that it was compared with; 0: there were too few."""
    slow: tuple[SlowDown, ...] = ()
    starved: tuple[int, ...] = ()
    """Ranks that wait for a CPU: that explains why the job is slower, or would hide it."""
    longest: float = 0.0
    """Seconds, of earlier steps that differ too much to judge one that is far longer; 0: they do not."""


class WatchResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a saved run keeps of a watched program beside its ranks' events."""

    curves: tuple[LossCurve, ...] = ()
    verdicts: tuple[LossVerdict, ...] = ()
    source: Literal["output", "logs"] = "output"
    """Logs: they were given to be judged, so that too few losses are unknown, not skipped."""
    digests: dict[str, str] = {}
    """Of ``--data``: the lines that each process wrote, by its file's name."""
    hosts: dict[int, str] = {}
    """Of each rank that was seen."""
    resumed: ResumeReport | None = None
    """None: it goes on from no checkpoint whose marks are kept."""
    pace: PaceComparison | None = None
    """None: its ranks made too few steps."""
    compared: int = 0
    """Steps on which the losses of ranks that must print the same (``--same-loss``) were compared."""

    @property
    def losses(self) -> int:
        return sum(curve.losses for curve in self.curves)

    @property
    def is_decided(self) -> bool:
        """Whether there were enough losses for a healthy verdict to say something."""
        return any(curve.losses - curve.not_finite >= MIN_JUDGED for curve in self.curves)

    @property
    def ranks_were_compared(self) -> bool:
        """Whether that the ranks print the same loss was decided, however few losses each of them has."""
        return self.compared >= MIN_COMPARED
