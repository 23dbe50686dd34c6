"""One rank of a real run goes wrong: the text that is put behind the worker's, and the run with it.

The fault hits one call of one step of the training in one layout. What it does is named by its function in ``TEXT``.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from doctor.smoke import plan
from doctor.smoke.hang.detector import Detector
from doctor.smoke.model import STAGES, SmokeRun
from doctor.smoke.run import programs, supervisor
from doctor.transport.local import Local

TEXT = '''

class Fault:
    """When it strikes: at a call of a step, counted round by as many as the step before had."""

    def __init__(self, rank, layout, step, nth, kind, mark, folder):
        self.rank, self.layout, self.step, self.nth, self.kind = rank, layout, step, nth, kind
        self.mark, self.folder = mark, folder
        self.at, self.seen, self.counts, self.struck = -1, 0, {}, False

    def hits(self, comm):
        step = comm.recorder.step
        if comm.rank != self.rank or self.at != self.layout or self.struck:
            return False
        self.counts[step] = self.counts.get(step, 0) + 1
        usual = self.counts.get(step - 1, 0) - (self.opening if step == 1 else 0)
        return step == self.step and self.counts[step] == 1 + self.nth % max(1, usual)

    def strikes(self):
        self.struck = True
        with open(self.mark, "w") as file:
            file.write(repr(time.monotonic()))


# What it does instead of the call: (comm, call) -> whether the call is to be made all the same.

def skip(comm, call):
    return False

def sleep(comm, call):
    time.sleep(1e6)

def spin(comm, call):
    while True:
        pass

def hold(comm, call):
    """A loop in C that keeps the GIL."""
    (10**9) ** (10**8)

def read(comm, call):
    os.read(os.pipe()[0], 1)

def wait_input(comm, call):
    comm.recorder.mark("input")
    time.sleep(1e6)

def stop(comm, call):
    os.kill(os.getpid(), signal.SIGSTOP)
    return True

def join_cgroup():
    with open(FAULT.folder + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))

def freeze(comm, call):
    join_cgroup()
    FAULT.strikes()
    with open(FAULT.folder + "/freezer.state", "w") as file:
        file.write("FROZEN")
    return True

def run_out(comm, call):
    """Of memory."""
    join_cgroup()
    with open(FAULT.folder + "/memory.limit_in_bytes", "w") as file:
        file.write(str(48 << 20))
    FAULT.strikes()
    return bytearray(1 << 30)

def kill(comm, call):
    os.kill(os.getpid(), signal.SIGKILL)

def fail(comm, call):
    raise ValueError("bad batch")

def quit_early(comm, call):
    os._exit(0)

def sized(comm, call, numel, dtype):
    op, tensor, group, peer = call
    make = lambda count: torch.ones(count, dtype=dtype or tensor.dtype)
    if op == "all_reduce":
        comm.all_reduce(make(numel), group)
    elif op == "all_gather":
        comm.all_gather(make(numel * len(group)), make(numel), group)
    elif op == "reduce_scatter":
        comm.reduce_scatter(make(numel // len(group)), make(numel), group)
    else:
        getattr(comm, op)(make(numel), peer)

def shape(comm, call):
    op, tensor, group, peer = call
    sized(comm, call, tensor.numel() + 24, None)

def other_dtype(comm, call):
    sized(comm, call, call[1].numel(), torch.float64)

def other_op(comm, call):
    op, tensor, group, peer = call
    group = group or comm.world
    if op == "all_reduce":
        comm.all_gather(tensor.new_empty(tensor.numel() * len(group)), tensor, group)
    else:
        comm.all_reduce(torch.ones(tensor.numel()), group)

def other_root(comm, call):
    op, tensor, group, peer = call
    ranks = group.ranks
    comm.broadcast(tensor, ranks[(ranks.index(peer) + 1) % len(ranks)], group)

def extra(comm, call):
    sized(comm, call, 24, None)
    return True

def order(comm, call):
    """A collective of another group first."""
    mine = [group for group in comm.groups.values() if comm.rank in group.ranks and group is not call[2]]
    comm.all_reduce(torch.ones(5), mine[FAULT.nth % len(mine)])
    return True

# What must not alarm anybody.

def pause(comm, call):
    time.sleep(0.3)
    return True

def stop_for_a_moment(comm, call):
    """Stopped from outside, and continued."""
    me = os.getpid()
    if os.fork() == 0:
        os.kill(me, signal.SIGSTOP)
        time.sleep(0.12)
        os.kill(me, signal.SIGCONT)
        os._exit(0)
    return True


def strike_at_calls(call):
    def struck(self, op, tensor, group, function, root=-1, number=None):
        FAULT.opening = getattr(FAULT, "opening", 0) + (op in ("barrier", "broadcast") and self.recorder.step == 0)
        hit = FAULT.kind is other_root and op == "broadcast" and self.rank == FAULT.rank and FAULT.at == FAULT.layout
        if (hit and not FAULT.struck) or (FAULT.kind is not other_root and FAULT.hits(self)):
            FAULT.strikes()
            if not FAULT.kind(self, (op, tensor, group, root)):
                return None
        return call(self, op, tensor, group, function, root, number)

    return struck


def know_the_layout(train_layout):
    def known(ctx, index, layout):
        FAULT.at, FAULT.counts, FAULT.opening = index, {}, 0
        if FAULT.kind == "leave" and (ctx.rank, index) == (FAULT.rank, FAULT.layout):
            ctx.plan = dict(ctx.plan, steps=FAULT.step)
            model = train_layout(ctx, index, layout)
            ctx.plan = dict(ctx.plan, steps=STEPS)
            FAULT.strikes()
        else:
            model = train_layout(ctx, index, layout)
        FAULT.at = -1
        return model

    return known


def slow_down(make_batch):
    """Not one moment but every step from some step on."""
    def slowed(ctx, model, rng, step, dropout):
        if (ctx.rank, FAULT.at) == (FAULT.rank, FAULT.layout) and step >= FAULT.step:
            time.sleep({"straggle": 0.08, "tire": 0.03 * step}.get(FAULT.kind, 0.0))
        return make_batch(ctx, model, rng, step, dropout)

    return slowed


def other(*_):
    return True


if FAULT["kind"] not in ("leave", "straggle", "tire"):
    FAULT["kind"] = globals()[FAULT["kind"]]
FAULT = Fault(**FAULT)
if not isinstance(FAULT.kind, str):
    TracedComm.run_traced = strike_at_calls(TracedComm.run_traced)
train_layout = know_the_layout(train_layout)
make_batch = slow_down(make_batch)
'''

KINDS: dict[str, set[str]] = {
    "skip": {"mismatch", "order", "left"},
    "shape": {"mismatch"},
    "other_dtype": {"mismatch"},
    "other_op": {"mismatch", "order"},
    "other_root": {"mismatch"},
    "extra": {"mismatch"},
    "order": {"order", "mismatch"},
    "sleep": {"blocked"},
    "read": {"blocked"},
    "spin": {"busy"},
    "hold": {"busy"},
    "wait_input": {"input"},
    "stop": {"stopped"},
    "freeze": {"frozen"},
    "kill": {"dead"},
    "run_out": {"dead"},
    "fail": {"dead"},
    "quit_early": {"left"},
    "leave": {"left"},
}
"""What each fault may be called. A call left out, or made out of order, ends as whatever shows first."""

HARMLESS = ("none", "pause", "stop_for_a_moment", "straggle", "tire")

CGROUPS = {"freeze": Path("/sys/fs/cgroup/freezer"), "run_out": Path("/sys/fs/cgroup/memory")}
LAYOUTS = ("dp", "tp", "pp", "zero1", "dpxtp", "3d", "acc")
STEPS = 5
SHORT = ("start", "rendezvous", "training", "teardown")
COMMON_STAGES = tuple(stage for stage in STAGES if stage not in ("native", "soak", "devices"))


class Trial(NamedTuple):
    """One fault, or none, in one run."""

    fault: str
    world: int
    layout: str
    rank: int
    step: int
    nth: int
    alone: bool
    """Whether the plan has this layout alone, or others before and behind it."""

    @property
    def rest(self) -> tuple[str, ...]:
        return () if self.alone else (f"dp={self.world}",)


class Result(NamedTuple):
    trial: Trial
    run: SmokeRun
    seconds: float
    """From the fault to the verdict; 0.0 for none."""
    total: float

    @property
    def right(self) -> bool:
        if self.trial.fault in HARMLESS:
            return self.run.ended == "complete" and not self.run.failures
        kinds = [(trouble.kind, trouble.culprit_ranks) for trouble in self.run.failures]
        return any(kinds == [(kind, (self.trial.rank,))] for kind in KINDS[self.trial.fault])


def layout(name: str, world: int) -> str | None:
    """The layout as the command line takes it; None where the world is too small for it."""
    half = world // 2
    if (name in ("tp", "pp", "dpxtp", "3d") and world % 2) or (name == "tp" and world == 6):
        return None
    known_values = {
        "dp": (2, f"dp={world}"),
        "tp": (2, f"tp={world}"),
        "pp": (2, f"pp=2,dp={half}"),
        "zero1": (2, f"dp={world},zero=1"),
        "dpxtp": (4, f"dp={half},tp=2"),
        "3d": (8, f"pp=2,dp={world // 4},tp=2"),
        "acc": (2, f"dp={world},acc=2"),
    }
    least, text = known_values[name]
    return text if world >= least else None


def possible(fault: str, world: int, name: str) -> bool:
    """Whether a layout has what the fault needs, and the guilty rank can be told at all."""
    if layout(name, world) is None or (fault in CGROUPS and not usable(fault)):
        return False
    if fault == "other_root":  # nobody was root before: only a majority tells
        return name in ("dp", "zero1", "acc") and world > 2
    if fault == "order":  # two groups that differ
        return name in ("dpxtp", "3d") or (name == "pp" and world > 2)
    if fault == "skip":  # a message that nobody takes harms nobody
        return name not in ("pp", "3d")
    return True


def usable(fault: str) -> bool:
    return CGROUPS[fault].is_dir() and os.access(CGROUPS[fault], os.W_OK)


def trials(
    count: int, seed: int, faults: tuple[str, ...] = tuple(KINDS), worlds: tuple[int, ...] = (2, 3, 4, 6, 8)
) -> Iterator[Trial]:
    """Seeded; every fault as often as every other."""
    rng = Random(seed)
    for number in range(count):
        fault = faults[number % len(faults)]
        if fault in CGROUPS and not usable(fault):
            fault = "kill"
        while True:
            world, name = rng.choice(worlds), rng.choice(LAYOUTS)
            if possible(fault, world, name):
                break
        step = rng.randrange(2 if fault == "leave" else 1, STEPS)
        yield Trial(fault, world, name, rng.randrange(world), step, rng.randrange(60), rng.random() < 0.5)


def carry_out(trial: Trial, stages: tuple[str, ...] = SHORT) -> Result:
    """The run, by the real supervisor, agent and worker, all on this machine."""
    chosen = layout(trial.layout, trial.world)
    assert chosen
    layouts = (chosen, *trial.rest)
    wish = plan.SmokeOptions(backend="gloo", ranks_per_host=trial.world, layouts=layouts, steps=STEPS, timeout=30.0)
    verdicts: list[float] = []

    class Timed(Detector):
        def feed(self, *args: Any, **more: Any) -> Any:
            trouble = super().feed(*args, **more)
            if trouble:
                verdicts.append(time.monotonic())
            return trouble

    build_plan = plan.build_plan

    def build_staged_plan(*args: Any) -> Any:
        return msgspec.structs.replace(build_plan(*args), stages=stages)

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, cgroup(trial.fault) as group:
        mark = Path(folder) / "mark"
        text = programs.worker() + source(trial, mark, group)
        with (
            mock.patch.object(programs, "worker", lambda: text),
            mock.patch.object(supervisor, "Detector", Timed),
            mock.patch.object(plan, "build_plan", build_staged_plan),
            contextlib.closing(Local()) as transport,
        ):
            smoked = supervisor.smoke({"here": trial.world}, transport, wish, local=True)
        struck = float(mark.read_text()) if mark.exists() else 0.0
    seconds = verdicts[0] - struck if verdicts and struck else 0.0
    return Result(trial, smoked.run, seconds, time.monotonic() - began)


def source(trial: Trial, mark: Path, group: Path | None) -> str:
    kind = "other" if trial.fault == "none" else trial.fault
    fault = dict(trial._asdict(), kind=kind, layout=0, mark=str(mark), folder=str(group or ""))
    for name in ("fault", "world", "alone"):
        del fault[name]
    return f"\n\nSTEPS = {STEPS}\nFAULT = {fault!r}\n{TEXT}"


@contextlib.contextmanager
def cgroup(fault: str) -> Iterator[Path | None]:
    """A control group for the guilty rank, thawed and removed afterwards."""
    if fault not in CGROUPS:
        yield None
        return
    folder = CGROUPS[fault] / f"doctor-test-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    try:
        yield folder
    finally:
        if fault == "freeze":
            (folder / "freezer.state").write_text("THAWED")
        end = time.monotonic() + 5
        while (folder / "cgroup.procs").read_text() and time.monotonic() < end:
            time.sleep(0.02)
        folder.rmdir()


def worth_showing(result: Result) -> str:
    """One line, and what a wrong verdict said."""
    trial, troubles = result.trial, result.run.failures
    line = f"{trial.fault} at rank {trial.rank} of {trial.world}, {trial.layout}, step {trial.step}, call {trial.nth}: "
    message = ", ".join(f"{trouble.kind} {trouble.culprit_ranks}" for trouble in troubles) or result.run.ended
    line += f"{message} after {result.seconds:.2f} s"
    return line if result.right else f"WRONG {line}\n  {troubles} {result.run.notes}"
