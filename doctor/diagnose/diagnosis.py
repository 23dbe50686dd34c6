"""What a diagnosis says: causes, the ranks that waited for them, and what is missing where nothing can be decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from doctor.diagnose.case import Case
from doctor.diagnose.events import Event, FileSummary
from doctor.diagnose.process import Process, name_of_local_rank
from doctor.engine.result import CheckName
from doctor.engine.texts import filled, joined

Confidence = Literal["certain", "likely", "possible"]
"""``certain``: a library or launcher names the rank, or the fault stands in its own log. ``likely``: the other ranks'
logs point at it. ``possible``: the best of several explanations."""
MAX_EVIDENCE = 4
MAX_CULPRITS = 8
ONE_OF_TWO = "one of two"
"""The rule of a cause that names two ranks where one is the culprit: the logs would be the same for the other."""
GROUNDS = {
    "local fault": "its own log shows the fault",
    "deciding line": "the line itself shows why the connection failed",
    "both ends": "the logs name both ends of the link, not which of them failed",
    "common target": "others report errors of their connections to it",
    "minority": "it reports something else than most ranks",
    "late": "it came long after the others",
    "behind in sequence": "the others are further in the sequence of collectives",
    "not joined": "the others waited for it at the start",
    "silence": "it wrote nothing while the others waited",
    "wait chain": "the others wait for it, and it waits for no other",
    "odd choice": "it chose something else at its start than the others",
    "restart": "it follows from how the launcher started the job again",
    "named by the cluster": "the message of a launcher, scheduler or driver names it",
    "named by the library": "the communication library names it",
    "named by the launcher": "the launcher names it",
    "named by the scheduler": "the scheduler names it",
    "named by watch": "doctor watch, which saw the ranks live, names it",
    "named by HCCL": "HCCL names it",
    "lone process": "it is the only process that the logs show, and no line is of a communication",
    "reported by ranks": "ranks report it, and it may follow from another fault",
    ONE_OF_TWO: "one of the two failed, and the logs do not show which",
}
"""By rule: on what grounds it names a cause, for people."""


class Culprit(msgspec.Struct, frozen=True):
    """A rank, device or host that a rule names; None and empty are not known."""

    rank: int | None = None
    host: str = ""
    device: int | None = None
    log: str = ""
    """A log of the process, where neither rank nor place is known."""
    label: str = ""
    """``pid 4711`` or ``pod trainer-0``, where a cluster names a process so, and its rank is not known."""

    @property
    def name(self) -> str:
        """``rank 3 (host n1, device 3)``; the process's log where nothing else is known."""
        host = filled("host {0}", self.host) if self.host else ""
        device = filled("device {0}", self.device) if self.device is not None else ""
        place = joined(", ", [word for word in (host, device) if word])
        if self.rank is None and self.label:
            return filled("{0} ({1})", self.label, place) if place else self.label
        if self.rank is None:
            return place or (filled("the process of {0}", self.log) if self.log else "a process of unknown rank")
        return filled("rank {0} ({1})", self.rank, place) if place else f"rank {self.rank}"


def culprit_of(process: Process) -> Culprit:
    """The process as a culprit."""
    if process.rank is not None or process.device is not None:
        return Culprit(process.rank, process.host, process.device)
    if process.local_rank is not None:
        return Culprit(host=process.host, label=name_of_local_rank(process.local_rank))
    label = f"pid {process.pid}" if process.pid else ""
    return Culprit(host=process.host, log="" if process.host else process.log, label=label)


def culprit_of_rank(case: Case, rank: int, host: str = "") -> Culprit:
    """A rank as a culprit, where its log shows it; ``host``: where the launcher says it was."""
    process = case.process_of_rank(rank)
    return Culprit(rank, host or (process.host if process else ""), process.device if process else None)


def sorted_culprits(culprits: Iterable[Culprit]) -> tuple[Culprit, ...]:
    """By rank and place, at most `MAX_CULPRITS`."""
    ordered = sorted(
        culprits, key=lambda end: (end.rank is None, end.rank or 0, end.host, end.device or 0, end.label, end.log)
    )
    return tuple(ordered[:MAX_CULPRITS])


def hosts_of(culprits: Iterable[Culprit]) -> tuple[str, ...]:
    """Their hosts as far as they are known, by name.

    >>> hosts_of([Culprit(1, "n2"), Culprit(0, "n1"), Culprit(3, "n2"), Culprit(4)])
    ('n1', 'n2')
    """
    return tuple(sorted({culprit.host for culprit in culprits if culprit.host}))


def names_of(culprits: Sequence[Culprit]) -> str:
    """The first four, with their places."""
    return joined(", ", (culprit.name for culprit in culprits[:4]))


class Cause(msgspec.Struct, frozen=True):
    """One cause, with the lines that prove it."""

    signature: str
    rule: str
    """The rule that names the culprits, such as ``local fault`` or ``behind in sequence``."""
    confidence: Confidence
    culprits: tuple[Culprit, ...]
    """Empty where the cause lies with the job as a whole, such as a deadlock."""
    summary: str
    """One sentence."""
    evidence: tuple[Event, ...]


def alike_causes(causes: Sequence[Cause]) -> list[tuple[int, ...]]:
    """The indices of the causes, together those that the same lines prove: srun names three tasks at once."""
    groups: dict[object, list[int]] = {}
    for index, cause in enumerate(causes):
        lines = tuple((event.file, event.line) for event in cause.evidence)
        alone = index if not lines else ""
        groups.setdefault((cause.signature, cause.rule, cause.confidence, lines, alone), []).append(index)
    return [tuple(indices) for indices in groups.values()]


def one_of_two(signature: str, culprits: tuple[Culprit, Culprit], claim: str, evidence: tuple[Event, ...]) -> Cause:
    """The verdict where the logs show that one of two ranks is the culprit, and would be the same for the other."""
    ordered = tuple(sorted(culprits, key=lambda culprit: (culprit.rank is None, culprit.rank or 0, culprit.host)))
    return Cause(signature, ONE_OF_TWO, "possible", ordered, claim, evidence)


class Undecidable(msgspec.Struct, frozen=True):
    """No rule names a cause."""

    reason: str
    needed: tuple[str, ...]
    """Logs or settings that would decide."""


RECORDER = (
    "the flight records of the next run, with TORCH_FR_BUFFER_SIZE=2000 (before torch 2.8"
    " TORCH_NCCL_TRACE_BUFFER_SIZE) and TORCH_NCCL_DUMP_ON_TIMEOUT=1"
)
NEEDED_CALLS = (
    RECORDER,
    "set TORCH_DISTRIBUTED_DEBUG=DETAIL, but not with DDP over gloo (SIGSEGV): it prints calls, sizes and parameters",
)
"""What shows the collectives of all ranks. Pages of signatures that ask for DETAIL have its sentence as it is here."""


class Waiting(msgspec.Struct, frozen=True):
    """Ranks that reported the same consequence."""

    signature: str
    culprits: tuple[Culprit, ...]
    first: Event


class CheckedFinding(msgspec.Struct, frozen=True):
    """What a check finds on a suspect host now."""

    check: CheckName
    severity: str
    hosts: tuple[str, ...]
    text: str


class CheckReason(msgspec.Struct, frozen=True):
    """Why a check says nothing of the suspect hosts."""

    check: CheckName
    reason: str


class CheckedCause(msgspec.Struct, frozen=True):
    """The checks of one cause on its suspect hosts."""

    hosts: tuple[str, ...]
    findings: tuple[CheckedFinding, ...] = ()
    passed: tuple[CheckName, ...] = ()
    unknown: tuple[CheckReason, ...] = ()
    """Checks that could not be evaluated."""
    skipped: tuple[CheckReason, ...] = ()
    """Checks that do not apply."""
    reason: str = ""
    """Why nothing was checked."""


class EarlierAttempt(msgspec.Struct, frozen=True):
    """An attempt before the last one of a job, or a job before it in the same file."""

    diagnosis: Diagnosis
    is_job: bool
    """A job of its own, not an attempt that its launcher or scheduler started again."""
    same: bool
    """Its causes are those of the attempt after which its logs are shown, on the same ranks."""


class Diagnosis(msgspec.Struct, frozen=True):
    """The verdict over all files."""

    causes: tuple[Cause, ...]
    """The earliest first."""
    waiting: tuple[Waiting, ...]
    undecidable: Undecidable | None
    files: tuple[FileSummary, ...]
    world_size: int | None
    processes: int
    clocks_comparable: bool
    ended_well: bool
    """A line shows that the run ended well, and none shows a failure."""
    earlier: tuple[Diagnosis, ...] = ()
    """Other jobs whose logs lie beside these, the newest first."""
    attempts: tuple[EarlierAttempt, ...] = ()
    """Attempts of this job before the last one, and jobs before it in the same file, the newest first."""
    source: str = ""
    """Where the logs come from, in words; empty for files that lie here."""
    notes: tuple[str, ...] = ()
    """What a report says of where the logs come from."""
    unread: tuple[str, ...] = ()
    """Logs that could not be read, and why."""
    checked: tuple[CheckedCause, ...] = ()
    """What the hosts' state is now, for each of ``causes``; empty where nothing was checked."""

    @property
    def failed(self) -> bool:
        return bool(self.causes or self.waiting or self.undecidable)


def first_evidence(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events that a report quotes: at most `MAX_EVIDENCE`, no line twice, the earliest first."""
    chosen: dict[tuple[int, int], Event] = {}
    for event in events:
        chosen.setdefault((event.file, event.line), event)
    return tuple(list(chosen.values())[:MAX_EVIDENCE])


def keeps_waiting(who: str, count: int, call: str) -> str:
    """Of ranks that have not entered a call that others wait in; the same words as `doctor smoke` has for them."""
    if count == 1:
        return filled("{0} keeps the others waiting in {1}", who, call)
    return filled("{0} keep the others waiting in {1}", who, call)


def others_wait(number: int) -> str:
    """``1 other rank waits``, ``3 other ranks wait``."""
    return "1 other rank waits" if number == 1 else filled("{0} other ranks wait", number)
