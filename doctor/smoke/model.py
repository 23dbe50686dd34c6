"""Data of a smoke run: the plan, observations of a rank, and failures. Frozen values."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal

import msgspec

from doctor.engine.fact import Absent
from doctor.engine.grouping import lists_by_key
from doctor.engine.record import HostRecord
from doctor.engine.smoke_failures import FailureKind as FailureKind
from doctor.engine.smoke_summary import Backend as Backend
from doctor.engine.smoke_summary import Failure as Failure
from doctor.smoke.programs.recorder_page import STAGES as STAGES
from doctor.smoke.programs.recorder_page import UNBOUND_SIZE

OWN_CHOICE = "interface"
"""Stands among variables for an interface that nothing sets, so that the library chooses it."""


class Layout(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one model is spread over the ranks: pp x dp x tp, tp fastest."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    zero: bool = False
    """ZeRO-1: the optimizer's state is sharded over dp."""
    accumulate: int = 1
    """Micro-batches whose gradients are added before one reduction."""
    recompute: bool = False
    """Activations are computed again in the backward pass."""

    @property
    def name(self) -> str:
        """Such as ``dp2 tp2``, ``dp4 zero1``."""
        sizes = [f"{word}{size}" for word, size in (("pp", self.pp), ("dp", self.dp), ("tp", self.tp)) if size > 1]
        extras = [("zero1", self.zero), (f"acc{self.accumulate}", self.accumulate > 1), ("recompute", self.recompute)]
        return " ".join([*(sizes or ["serial"]), *(word for word, enabled in extras if enabled)])

    @property
    def world(self) -> int:
        return self.dp * self.tp * self.pp


GroupRule = Literal["", "halves"]
UNKNOWN_HOST = "unknown"
"""Stands for the host of a rank that never reported."""


class RankPlacement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one rank runs."""

    rank: int
    host: str
    local: int = 0
    """Its number on the host, from 0."""
    device: int = -1
    """Number of its NPU or GPU on the host; -1 for a CPU."""
    ordinal: int = -1
    """The device's number for the libraries: its place among those that the rank's environment shows it."""


class SmokeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a user settles, and each rank must know."""

    library: Literal["torch", "mindspore"] = "torch"
    """What the ranks train with."""
    steps: int = 3
    """Steps of each layout that are compared with the reference run."""
    seed: int = 1
    max_bytes: int = 1 << 20
    master_addr: str = ""
    """As the hosts get it; each resolves it by itself."""
    master_port: int = 0
    """0: the first host picks a free one."""
    timeout: float = 75.0
    """Seconds: the process groups' own timeout, and HCCL's, for this run alone."""
    budget: float = 120.0
    """Seconds for all stages together."""
    python: str = ""
    """The job's interpreter; empty: the host's own rule."""
    soak: float = 0.0
    """Seconds of the soak stage, beyond the budget."""
    device_seconds: float = 0.0
    """Seconds of the devices stage, beyond the budget; 0: without it."""
    interface: str = ""
    """GLOO_SOCKET_IFNAME and its like; empty: as ``environment`` says."""
    environment: Literal["job", "clean"] = "job"
    """job: the variables of the job are in force, and the library chooses the interface; clean: none are, and it is the
    one on the way to the master."""
    variables: dict[str, str] = {}
    """Of the job, as the controller has them."""
    keep: tuple[str, ...] | None = None
    """The only variables in force, for a trial; `OWN_CHOICE` is the library's own choice of the interface.
    ``NAME=value`` is in force where the variable has this value."""


class SmokePlan(SmokeSettings, frozen=True, omit_defaults=True, dict=True):
    """All settings for agents and workers. It is sent to them as JSON, and stored in the saved run."""

    backend: Backend
    places: tuple[RankPlacement, ...]
    layouts: tuple[Layout, ...]
    stages: tuple[str, ...] = STAGES
    learn_steps: int = 10
    group_rule: GroupRule = ""
    """Which groups the product allows: see `doctor.smoke.programs.process_groups`."""
    job_ranks: tuple[int, ...] = ()
    """Of some hosts of a launched job: the job's number of each rank; empty: the same."""

    @property
    def world(self) -> int:
        return len(self.places)

    @cached_property
    def ranks_by_host(self) -> dict[str, tuple[int, ...]]:
        """The ranks of each host, both in plan order. It is computed once: a large run reads it for every message."""
        ranks = lists_by_key((place.host, place.rank) for place in self.places)
        return {host: tuple(numbers) for host, numbers in ranks.items()}

    @property
    def patience(self) -> float:
        """Seconds for which a rank may be late in all kinds of waits: four fifths of its groups' own limit.

        A job outlives less; behind the whole limit the others have given up, and their sockets show nothing. An agent
        that says nothing has as long, where its host may only be stopped.
        """
        return 0.8 * self.timeout

    def host_of(self, rank: int) -> str:
        return self.places[rank].host


Word = Annotated[str, msgspec.Meta(max_length=200)]
Number = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 62)]
Seconds = Annotated[float, msgspec.Meta(ge=-1.0, lt=1e10)]
"""What hosts say is not trusted, and bounded."""
MOST_CALLS = 1024
"""Of one rank in one line: as many as its page holds."""


class Collective(msgspec.Struct, frozen=True, array_like=True):
    """One collective as a rank entered it. A send and its recv are one two-member group, named ``p2p 0>1``."""

    group: Number
    seq: Number
    """From 1, counted by this rank in this group."""
    op: Word
    dtype: Word
    numel: Number
    root: Number
    """Global rank of the root or the peer; -1 for none."""
    step: Number
    stage: Word

    @property
    def takes_any_size(self) -> bool:
        """Whether each rank may give another number of elements."""
        return self.numel >= UNBOUND_SIZE

    @property
    def elements(self) -> int:
        """How many this rank gives."""
        return self.numel - UNBOUND_SIZE if self.takes_any_size else self.numel

    @property
    def common_size(self) -> int:
        """The elements that every rank must give; 0 where each may give another number."""
        return 0 if self.takes_any_size else self.numel


State = Literal["start", "input", "compute", "collective", "done"]


class RankMoment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rank as its host sees it at one moment. Ages are seconds by the host's own clock."""

    stamp: Number
    """Grows with every change of the black box: equal stamps mean that nothing happened in between."""
    state: Word
    stage: Word
    step: Number = 0
    group: Number = 0
    seq: Number = 0
    op: Word = ""
    dtype: Word = ""
    numel: Number = 0
    root: Number = -1
    age: Seconds = 0.0
    """Since the stamp last changed."""
    effective: Seconds = 0.0
    """``age`` less the time that its threads were runnable and waited for a CPU, and 10 s of waiting for a disk."""
    cpu: Seconds = 0.0
    """CPU seconds of the main thread since the stamp last changed."""
    process: Word = "R"
    """State letter of /proc/PID/stat; F: frozen by a cgroup; X: gone."""
    entered: dict[Number, Number] = {}
    """Collectives that it has entered, by group."""
    calls: Annotated[tuple[Collective, ...], msgspec.Meta(max_length=2 * MOST_CALLS)] = ()
    """Entered since the last snapshot, oldest first."""
    dead: Word = ""
    """How it ended: ``signal 9``, ``exit status 1``; empty while it lives."""
    error: str = ""
    """Its own last error, if it told one before it ended."""
    oom: bool | None = None
    """The kernel's log or the cgroup says that it was killed for memory; False: the kernel killed nothing for
    memory on the host; None: not known."""
    waits_for: Word = ""
    """The kernel function that it sleeps in, if /proc/PID/wchan tells."""


class Snapshot(RankMoment, frozen=True, kw_only=True):
    """The same of a rank of a smoke run, or of a watched one, as the judge of hangs takes it."""

    rank: int
    state: State
    idle: float = -1.0
    """Seconds since its connections last carried a byte, of a rank that waits in a collective; -1 where not known."""
    secondary: bool = False
    """The error is of the kind that follows from another rank's end (a closed connection, a timeout)."""


class EnvironmentTrial(msgspec.Struct, frozen=True):
    """A failed run, repeated in short without the job's variables."""

    passes: bool
    """The run without them went well."""
    culprits: tuple[str, ...] = ()
    """The variables that make it fail; `OWN_CHOICE` for none that should be set."""
    values: dict[str, str] = {}
    """Of these variables."""
    hosts: tuple[str, ...] = ()
    """Where they are set; empty: for all."""
    runs: int = 0
    untried: str = ""
    """Why no run could be made without them."""


class SpeedKey(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """What a speed is of; those with another key do not compare."""

    product: str
    """Model of the devices; ``CPU``."""
    backend: str
    torch: str
    """Such as 2.13."""
    op: str
    """A collective of all ranks, or ``exchange`` of two."""
    bytes: int
    ranks: int
    hosts: int

    @property
    def kind(self) -> tuple[str, str, str]:
        return self.product, self.backend, self.torch

    @property
    def size_text(self) -> str:
        """Such as ``all_reduce 1048576 8 2``: operation, bytes, ranks, hosts."""
        return f"{self.op} {self.bytes} {self.ranks} {self.hosts}"


class SpeedHistory(SpeedKey, frozen=True, forbid_unknown_fields=True):
    """One speed of one kind of fleet, in several runs."""

    values: tuple[float, ...]
    """Bytes a second: bus bandwidth, one value for each run, the latest last."""


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Speeds of good runs of a site."""

    VERSION: ClassVar[int] = 2

    series: tuple[SpeedHistory, ...] = ()
    version: int = VERSION


MIN_PERIODS = 10
"""Of a CPU quota; fewer prove nothing."""


class CpuSpin(msgspec.Struct, frozen=True, array_like=True):
    """A loop without a call that a rank was in, as it waited for a CPU for much of a stage."""

    ran: float
    seconds: float
    """Of them it ran ``ran``."""
    ends: tuple[float, ...]
    """Of the host's monotonic clock: when it went on after it had been stopped for 20 ms or more."""


class QuotaUse(msgspec.Struct, frozen=True, array_like=True):
    """How the CPU quota of a rank's control group was used while the rank ran; zeros where there is none."""

    periods: int = 0
    """Of 100 ms each as a rule, in which the group had work to do."""
    used_up: int = 0
    """Those of them that ended without any of the quota left."""
    seconds: float = 0.0
    """For which the group was held back, added up over its CPUs."""
    lost: float = 0.0
    """Share of the time in which the rank could have run that the quota held it back."""
    waited: float = 0.0
    """Share of its time that the rank waited for a CPU."""
    is_inferred: bool = False
    """``lost`` follows from the moments at which a loop of the rank was stopped: its host shows no quota."""
    beside_idle: bool = False
    """Most of its time it waited although CPUs of its host had nothing to do: its quota is not shown, or it may use
    few CPUs."""

    @property
    def share(self) -> float:
        """Of the periods, those in which the quota was used up; 0.0 where there were too few to tell."""
        return min(1.0, self.used_up / self.periods) if self.periods >= MIN_PERIODS else 0.0

    @property
    def most(self) -> float:
        """Of the shares that a quota, shown or not, may have taken."""
        return max(self.share, self.lost, self.waited * self.beside_idle)


class RankPause(msgspec.Struct, frozen=True, array_like=True):
    """Others waited for a rank, or it was stopped, and it went on."""

    seconds: float
    process: str = ""
    """Its state letter if it was stopped or frozen, as in `Snapshot.process`."""


class LeftOutHost(msgspec.Struct, frozen=True):
    """A host that failed in a screening, and that the run went on without."""

    host: str
    check: str
    """That reports its failure."""
    why: str
    round: int
    """From 1."""


class SmokeRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run as observed by the supervisor; the reports of each rank are in the hosts' facts."""

    absent: ClassVar = Absent("no smoke run; run doctor smoke for one")

    plan: SmokePlan
    failures: tuple[Failure, ...] = ()
    """The first is the cause of all that was not reached."""
    ended: Literal["complete", "trouble", "budget", "interrupted"] = "complete"
    reached: dict[str, float] = {}
    """Stages that every rank finished, with the seconds since the start when the last one did."""
    groups: dict[int, tuple[str, tuple[int, ...]]] = {}
    """Process groups by number: name and ranks."""
    seconds: float = 0.0
    environment_trial: EnvironmentTrial | None = None
    baseline: Baseline | None = None
    """Speeds of earlier runs to compare with."""
    speeds_again: dict[str, float] | None = None
    """Where something was slower than in the baseline: bytes a second of a second run on the same hosts, by operation,
    bytes, ranks and hosts; None where there was none."""
    import_seconds: float = 0.0
    """The slowest host's ``import torch``."""
    notes: tuple[str, ...] = ()
    pressure: dict[str, tuple[str, ...]] = {}
    """By host: sentences on what kept its ranks from running."""
    stops: dict[int, RankPause] = {}
    """By rank: the longest time that it was stopped or frozen, and went on."""
    cpu_quotas: dict[int, QuotaUse] = {}
    """By rank: what the CPU quota of its control group took; without ranks whose quota is not known."""
    line_speeds: dict[str, int] = {}
    """By host: Mb/s of its slowest interface that has an address; without hosts where that is not known."""
    watched: bool = False
    """The ranks are those of a user's own program (`doctor.watch`)."""
    left_out: tuple[LeftOutHost, ...] = ()
    """Of a large fleet: hosts that failed in its screening, and are not in the plan."""
    unused_devices: dict[str, str] = {}
    """By host: the kind of accelerators that it has and its environment hides, where the ranks ran on CPUs for that."""
    undecided: str = ""
    """Why ranks that were only looked at show nothing of what is wrong; empty where they show it."""

    def hosts(self, ranks: tuple[int, ...]) -> tuple[str, ...]:
        """The hosts of these ranks, in plan order, each once."""
        return tuple(dict.fromkeys(self.plan.host_of(rank) for rank in sorted(ranks)))


class SmokeResult(msgspec.Struct, frozen=True):
    """A run, and the output of each host."""

    run: SmokeRun
    records: dict[str, HostRecord]
    stopped: BaseException | None = None
    """What interrupted it, if it was."""
    variables: dict[str, dict[str, str]] = {}
    """By agent: the variables by which its environment sets how ranks communicate."""
