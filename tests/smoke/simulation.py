"""Ranks that train in virtual time: programs of calls, a clock that jumps, and the snapshots that agents would send.

A program is a generator of acts. Collectives end when those have come in that they need, as gloo's do; a place of a
sequence that is called in two ways never ends.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from doctor.smoke.hang.detector import Detector, joined_snapshots
from doctor.smoke.model import Collective, Failure, Layout, Snapshot

CHANNELS = 1_000_000


class Act(NamedTuple):
    """One thing that a rank does: `do` is a state, ``call``, ``stage``, ``step``, ``stop``, ``wake`` or ``end``."""

    do: str
    seconds: float = 0.0
    group: int = 0
    op: str = ""
    dtype: str = ""
    numel: int = 0
    root: int = -1
    text: str = ""
    share: float = 0.0
    """Of the time, that the rank waits for a CPU."""
    cpu: float = 0.0


FOR_EVER = 1e9
Program = Iterator[Act]


class Groups:
    """The process groups of some layouts, numbered as the worker does: equal members, equal group."""

    def __init__(self, world: int, layouts: Sequence[Layout]) -> None:
        self.world = world
        self.numbers: dict[tuple[int, ...], int] = {tuple(range(world)): 0}
        self.names = {0: "world"}
        for layout in layouts:
            for rank in range(world):
                for axis in ("tp", "dp"):
                    self.add(axis, self.members(layout, rank, axis))

    def add(self, axis: str, members: tuple[int, ...]) -> None:
        if len(members) > 1 and members not in self.numbers:
            self.numbers[members] = len(self.numbers)
            self.names[self.numbers[members]] = f"{axis} {members[0]}-{members[-1]}"

    @staticmethod
    def members(layout: Layout, rank: int, axis: str) -> tuple[int, ...]:
        tp, dp = layout.tp, layout.dp
        if axis == "tp":
            return tuple(range(rank - rank % tp, rank - rank % tp + tp))
        first = rank // (tp * dp) * tp * dp + rank % tp
        return tuple(range(first, first + tp * dp, tp))

    def number(self, layout: Layout, rank: int, axis: str) -> int:
        return self.numbers[self.members(layout, rank, axis)]


def training(
    groups: Groups, layouts: Sequence[Layout], rank: int, rng: Random, steps: int = 4, work: float = 0.01
) -> Program:
    """What one healthy rank does, from the start to the end."""
    yield Act("start", rng.uniform(0.2, 1.5))
    for stage in ("rendezvous", "training", "learning"):
        yield Act("stage", text=stage)
        for layout in layouts if stage == "training" else layouts[-1:] if stage == "learning" else ():
            yield Act("step", 0)
            if layout.dp > 1:
                group = groups.number(layout, rank, "dp")
                yield Act("call", 0, group, "broadcast", "float32", 999, groups.members(layout, rank, "dp")[0])
            for step in range(steps):
                yield Act("step", step)
                yield Act("input", work * rng.uniform(0.1, 0.5))
                yield from one_step(groups, layout, rank, rng, work * (10 if step == 0 else 1))
        yield Act("compute", work)
        yield Act("call", 0, 0, "barrier")
    yield Act("stage", text="teardown")
    yield Act("call", 0, 0, "barrier")
    yield Act("done", rng.uniform(0.0, 0.1))
    yield Act("end", text="exit status 0")


def one_step(groups: Groups, layout: Layout, rank: int, rng: Random, work: float) -> Program:  # noqa: C901 - one step in one place
    """Forward and backward over two micro-batches of a pipeline, then the gradient."""
    world, ahead = groups.world, layout.dp * layout.tp
    stage = rank // ahead
    batches = 2 if layout.pp > 1 else 1

    def layers() -> Program:
        for _ in range(2):
            yield Act("compute", work * rng.uniform(0.5, 1.5))
            if layout.tp > 1:
                yield Act("call", 0, groups.number(layout, rank, "tp"), "all_reduce", "float32", 128)

    def hop(op: str, peer: int) -> Act:
        low, high = (rank, peer) if op == "send" else (peer, rank)
        return Act("call", 0, CHANNELS + low * world + high, op, "float32", 64, peer)

    for _ in range(batches):
        if stage > 0:
            yield hop("recv", rank - ahead)
        yield from layers()
        if stage < layout.pp - 1:
            yield hop("send", rank + ahead)
    for _ in range(batches):
        if stage < layout.pp - 1:
            yield hop("recv", rank + ahead)
        yield from layers()
        if stage > 0:
            yield hop("send", rank - ahead)
    if layout.dp > 1:
        group = groups.number(layout, rank, "dp")
        if layout.zero:
            yield Act("call", 0, group, "reduce_scatter", "float32", 1000)
            yield Act("call", 0, group, "all_gather", "float32", 500)
        else:
            yield Act("call", 0, group, "all_reduce", "float32", 1000)
    yield Act("call", 0, 0, "all_reduce", "float32", 4)


class Runner:
    """One rank: where it is in its program, and what an onlooker sees."""

    def __init__(self, rank: int, program: Program) -> None:
        self.rank, self.program = rank, program
        self.stamp, self.since, self.state, self.stage, self.step = 1, 0.0, "start", "start", 0
        self.act = Act("start")
        self.seq: dict[int, int] = {}
        self.fresh: list[Collective] = []
        self.process, self.dead, self.error, self.secondary = "R", "", "", False
        self.wakes = 0
        """Wake-ups with an older number are void."""


class Simulation:
    """Runs all ranks, and shows them to a detector."""

    def __init__(
        self,
        world: int,
        groups: Groups,
        programs: Sequence[Program],
        rng: Random,
        *,
        per_host: int = 2,
        delay: float = 0.0,
        loss: float = 0.0,
        transfer: float = 0.002,
        breaks: bool = True,
        silent: Callable[[int, float], bool] = lambda group, now: False,
    ) -> None:
        """`delay`: most seconds that a host's lines are late; `loss`: share of looks that a host misses.
        `breaks`: whether ranks that wait for a dead one end, too. `silent`: groups whose bytes do not arrive."""
        self.world, self.groups, self.rng = world, groups, rng
        self.ranks = [Runner(rank, program) for rank, program in enumerate(programs)]
        self.per_host, self.delay, self.loss, self.longest = per_host, delay, loss, transfer
        self.breaks, self.silent = breaks, silent
        self.members = {number: members for members, number in groups.numbers.items()}
        self.now = 0.0
        self.events: list[tuple[float, int, int, int]] = []
        self.places: dict[tuple[int, int], dict[int, Act]] = {}
        self.count = itertools.count()
        self.fault_at: float | None = None
        for runner in self.ranks:
            self.advance(runner)

    # ---- the ranks

    def wake(self, runner: Runner, after: float) -> None:
        runner.wakes += 1
        if after < FOR_EVER / 2:
            heapq.heappush(self.events, (self.now + after, next(self.count), runner.rank, runner.wakes))

    def until(self, end: float) -> None:
        while self.events and self.events[0][0] <= end:
            self.now, _, rank, number = heapq.heappop(self.events)
            if self.ranks[rank].wakes == number and not self.ranks[rank].dead:
                self.advance(self.ranks[rank])
        self.now = end

    def advance(self, runner: Runner) -> None:
        """To the next act that takes time."""
        for act in runner.program:
            if act.do == "stage":
                runner.stage, runner.step = act.text, 0
            elif act.do == "step":
                runner.step = int(act.seconds)
            elif act.do == "mark":
                self.fault_at = self.now
            elif act.do in ("stop", "freeze"):
                runner.process = "T" if act.do == "stop" else "F"
                return self.wake(runner, act.seconds)
            elif act.do == "end":
                return self.end(runner, act.text, act.op, False)
            else:
                return self.enter(runner, act) if act.do == "call" else self.work(runner, act)
            runner.process = "R"
        return None

    def show(self, runner: Runner, state: str, act: Act) -> None:
        runner.process = "R"
        runner.stamp, runner.since, runner.state, runner.act = runner.stamp + 1, self.now, state, act

    def work(self, runner: Runner, act: Act) -> None:
        self.show(runner, act.do, act)
        self.wake(runner, act.seconds / (1 - act.share))

    def end(self, runner: Runner, method: str, error: str, secondary: bool) -> None:
        runner.dead, runner.error, runner.secondary = method, error, secondary
        runner.stamp, runner.wakes = runner.stamp + 1, runner.wakes + 1
        if not self.breaks or runner.state == "done":
            return
        for other in self.ranks:
            if other.state == "collective" and not other.dead and runner.rank in self.of(other.act.group):
                self.fall(other)

    def fall(self, other: Runner) -> None:
        """The rank's connection to a dead one closed."""
        self.end(other, "exit status 13", "Connection closed by peer", True)

    # ---- collectives

    def of(self, group: int) -> tuple[int, ...]:
        return divmod(group - CHANNELS, self.world) if group >= CHANNELS else self.members[group]

    def enter(self, runner: Runner, act: Act) -> None:
        seq = runner.seq[act.group] = runner.seq.get(act.group, 0) + 1
        runner.fresh.append(
            Collective(act.group, seq, act.op, act.dtype, act.numel, act.root, runner.step, runner.stage)
        )
        self.show(runner, "collective", act)
        members = self.of(act.group)
        if self.breaks and any(self.ranks[m].dead and self.ranks[m].state != "done" for m in members):
            return self.fall(runner)
        place = self.places.setdefault((act.group, seq), {})
        place[runner.rank] = act
        if len({(a.op if a.op != "recv" else "send", a.dtype, a.numel) for a in place.values()}) > 1:
            return None
        if not self.silent(act.group, self.now):
            self.release(place, members, runner)
        return None

    def release(self, place: Mapping[int, Act], members: Sequence[int], received: Runner) -> None:
        """Lets those go that have all they need, now that one more came."""
        took = self.rng.uniform(0.1, 1.0) * self.longest
        for rank, act in place.items():
            free = len(place) == len(members)
            if act.op == "broadcast":
                mine, now = act.root == rank, received.rank in (rank, act.root)
                free = (mine and received.rank == rank) or (not mine and act.root in place and now)
            elif act.op == "send":
                free = received.rank == rank
            elif act.op == "recv":
                free = len(place) == 2
            if free:
                self.wake(self.ranks[rank], took * self.rng.uniform(0.5, 1.0))

    # ---- what agents see

    def snapshot(self, runner: Runner) -> Snapshot:
        age = self.now - runner.since
        calls, runner.fresh = tuple(runner.fresh), []
        act = runner.act
        inside = runner.state == "collective"
        return Snapshot(
            rank=runner.rank,
            stamp=runner.stamp,
            state=runner.state,  # type: ignore[arg-type]
            stage=runner.stage,
            step=runner.step,
            group=act.group if inside else 0,
            seq=runner.seq[act.group] if inside else 0,
            op=act.op if inside else "",
            dtype=act.dtype,
            numel=act.numel,
            root=act.root,
            age=age,
            effective=age * (1 - act.share),
            cpu=age * act.cpu,
            process="X" if runner.dead else runner.process if age > 0.05 else "R",
            entered=dict(runner.seq),
            calls=calls,
            dead=runner.dead,
            error=runner.error,
            secondary=runner.secondary,
        )

    def watch(self, detector: Detector, seconds: float, tick: float = 0.05, **more: Any) -> Failure | None:
        """Feeds the detector until it has a trouble, or all is over. Lines of a host come late, but in order.
        `more` goes to `feed`, functions by what they give at the time."""
        for number, name in self.groups.names.items():
            detector.learn_group(number, name, self.of(number))
        hosts = range(-(-self.world // self.per_host))
        on_the_way: list[tuple[float, int, list[Snapshot]]] = []
        arrived = dict.fromkeys(hosts, 0.0)
        snapshots: dict[int, Snapshot] = {}
        end = self.now + seconds
        while self.now < end:
            self.until(self.now + tick)
            for host in hosts:
                if self.rng.random() >= self.loss:
                    arrived[host] = max(arrived[host], self.now + self.rng.uniform(0, self.delay))
                    runners = self.ranks[host * self.per_host : (host + 1) * self.per_host]
                    heapq.heappush(on_the_way, (arrived[host], next(self.count), [self.snapshot(r) for r in runners]))
            unread: set[int] = set()
            while on_the_way and on_the_way[0][0] <= self.now:
                for snap in heapq.heappop(on_the_way)[2]:
                    snapshots[snap.rank] = joined_snapshots(snapshots.get(snap.rank), snap, snap.rank in unread)
                    unread.add(snap.rank)
            trouble = detector.feed(
                snapshots,
                self.now,
                **{key: value(self.now) if callable(value) else value for key, value in more.items()},
            )
            if trouble:
                return trouble
            if len(snapshots) == self.world and all(s.dead and s.state == "done" for s in snapshots.values()):
                return None
        return None


# ---- faults: a program that goes wrong at one place

Fault = Callable[[Act, "Spot"], Iterator[Act]]


class Spot(NamedTuple):
    """What a fault may use."""

    others: Sequence[int]
    """Groups of the rank other than the call's."""
    rng: Random


def skip(act: Act, spot: Spot) -> Program:
    yield from ()


def shape(act: Act, spot: Spot) -> Program:
    yield act._replace(numel=act.numel + 17)


def dtype(act: Act, spot: Spot) -> Program:
    yield act._replace(dtype="float64")


def other_op(act: Act, spot: Spot) -> Program:
    yield act._replace(op="all_gather" if act.op != "all_gather" else "all_reduce")


def other_root(act: Act, spot: Spot) -> Program:
    yield act._replace(root=act.root + 1)


def extra(act: Act, spot: Spot) -> Program:
    yield act._replace(op="all_reduce", dtype="float32", numel=33, root=-1)
    yield act


def swap(act: Act, spot: Spot) -> Program:
    """Another group's collective first, where there is one."""
    if spot.others:
        yield Act("call", 0, spot.rng.choice(spot.others), "all_reduce", "float32", 3)
    yield act


def sleep(act: Act, spot: Spot) -> Program:
    yield Act("compute", FOR_EVER)


def spin(act: Act, spot: Spot) -> Program:
    yield Act("compute", FOR_EVER, cpu=1.0)


def starve_input(act: Act, spot: Spot) -> Program:
    yield Act("input", FOR_EVER)


def stop(act: Act, spot: Spot) -> Program:
    yield Act("compute", 0.001)
    yield Act("stop", FOR_EVER)


def freeze(act: Act, spot: Spot) -> Program:
    yield Act("freeze", FOR_EVER)


def kill(act: Act, spot: Spot) -> Program:
    yield Act("end", text="signal 9")


def fail(act: Act, spot: Spot) -> Program:
    yield Act("end", text="exit status 13", op="ValueError: bad batch")


def quit_early(act: Act, spot: Spot) -> Program:
    yield Act("end", text="exit status 0")


def faulty(program: Program, fault: Fault, step: int, nth: int, others: Sequence[int], rng: Random) -> Program:
    """The program, with the fault in place of the n-th call of this step of the first layout."""
    stage, at = "", -1
    held: list[Act] = []
    for act in program:
        if held and act.do in ("stage", "step"):
            yield from struck(held, fault, nth, others, rng)
            break
        stage = act.text if act.do == "stage" else stage
        at = int(act.seconds) if act.do == "step" else at
        if stage == "training" and at == step and act.do != "step":
            held.append(act)
        else:
            yield act
    yield act
    yield from program


def struck(acts: Sequence[Act], fault: Fault, nth: int, others: Sequence[int], rng: Random) -> Program:
    places = [place for place, act in enumerate(acts) if act.do == "call" and act.op != "barrier"]
    place = places[nth % len(places)]
    yield from acts[:place]
    yield Act("mark")
    yield from fault(acts[place], Spot([group for group in others if group != acts[place].group], rng))
    yield from acts[place + 1 :]


def leaves(program: Program, step: int) -> Program:
    """Leaves the loop of the first layout at this step."""
    stage, at, removed, layouts = "", -1, False, 0
    for act in program:
        if act.do == "stage":
            stage, at = act.text, -1
        if act.do == "step" and stage == "training":
            layouts += act.seconds == 0 and at != 0
            at = int(act.seconds)
        inside = stage == "training" and layouts == 1 and at >= step
        if inside and not removed:
            yield Act("mark")
            removed = True
        if not inside or (act.do == "call" and act.op == "barrier"):
            yield act


def wearied(program: Program, rng: Random, longest: float) -> Program:
    """The program on a host with too much to do: slow at times, short of CPU, now and then stopped for a moment."""
    for act in program:
        if act.do in ("compute", "input"):
            seconds = act.seconds * rng.choice([1, 1, 1, 3]) + (rng.random() < 0.02) * rng.uniform(0, longest)
            act = act._replace(seconds=seconds, share=rng.choice([0, 0, 0.5, 0.9]))
        yield act
        if rng.random() < 0.01:
            yield Act("stop", rng.uniform(0, 0.12))


def layouts_of(world: int) -> dict[str, Layout]:
    """The ways to split this many ranks."""
    layouts = {
        "dp": Layout(dp=world),
        "tp": Layout(tp=world),
        "zero1": Layout(dp=world, zero=True),
        "pp": Layout(pp=2, dp=world // 2),
        "dpxtp": Layout(dp=world // 2, tp=2),
        "3d": Layout(dp=world // 4, tp=2, pp=2),
    }
    return {name: layout for name, layout in layouts.items() if layout.world == world}


def fleet(world: int, layouts: Sequence[Layout], seed: int, **more: Any) -> tuple[Groups, list[Program]]:
    """Healthy programs of all ranks."""
    groups = Groups(world, layouts)
    return groups, [training(groups, layouts, rank, Random(seed * 1000 + rank), **more) for rank in range(world)]
