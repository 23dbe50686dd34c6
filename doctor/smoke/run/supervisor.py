"""Starts a smoke run on all hosts, watches it from outside, and ends it: the controller's side. It imports no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.engine.sanitize import plain
from doctor.smoke import plan as planning
from doctor.smoke.hang.detector import Detector, Resend, joined
from doctor.smoke.hang.network_evidence import Addresses
from doctor.smoke.model import Plan, SmokeRun, Snapshot, Trouble, TroubleKind
from doctor.smoke.plan import Wish
from doctor.smoke.protocol import Line, NotUnderstood, read_event
from doctor.smoke.results import to_facts as records
from doctor.smoke.run import programs
from doctor.smoke.run.bootstrap import request
from doctor.smoke.run.channels import TICK, Gone, Party, Talk
from doctor.smoke.run.connect import Call, call, marker
from doctor.smoke.run.diagnose import inquire
from doctor.smoke.run.progress import Progress
from doctor.transport import Conversation, Said, Transport
from doctor.transport.messages import seconds

HELLO = 30.0
"""Seconds for a host to be reached and to start its agent."""
VISIT = 60.0
"""The same, when a host that takes longer is left out."""
ANSWER = 10.0
"""Seconds for an agent that is there to answer."""
SILENT = 1.0
"""Seconds without a line after which a host is silent: agents say something five times a second."""
SILENT_HERE = 5.0
"""On this machine no network can be cut, and an agent that waits for a CPU is not gone."""
WARMUP = 30.0
"""Seconds that accelerators may take to connect a group's ranks, and to compile what a first step needs."""
FEED = 0.05
"""Seconds between two looks of the detector when nothing new came."""
STAY = 2.0
"""Seconds between two words to agents, which end their ranks when they hear none for long."""
MARGIN = 30.0
"""Seconds that an agent lives longer than the budget, should the controller vanish without a trace."""

Told = Callable[[str, float], None]
Met = Callable[[str, HostRecord], None]


def _quietly(stage: str, seconds: float) -> None:
    pass


def _nobody(host: str, record: HostRecord) -> None:
    pass


class Smoked(msgspec.Struct, frozen=True):
    """A run, and what each host said."""

    run: SmokeRun
    records: dict[str, HostRecord]
    stopped: BaseException | None = None
    """What interrupted it, if it was."""


class Ready(msgspec.Struct, frozen=True):
    """An agent that waits for its request, in a process that a launcher has started."""

    host: str
    ranks: tuple[int, ...]
    conversation: Conversation
    address: str


def smoke(
    hosts: Mapping[str, int],
    transport: Transport,
    wish: Wish,
    *,
    local: bool = False,
    within: tuple[str, ...] = (),
    told: Told = _quietly,
) -> Smoked:
    """Trains on these hosts (name -> slots, 0 where the inventory does not say) and says what came of it.

    ``told`` hears of each stage that all ranks have finished. An interrupt ends the run; what came so far is returned.

    Raises: ValueError, when the hosts do not allow what was wished for.
    """
    return _Run(call(hosts, transport, wish.master_port, local=local, within=within), wish, told=told).whole()


def carry_out(
    called: Call, wish: Wish, told: Told = _quietly, met: Met = _nobody, meanwhile: Iterator[object] = iter(())
) -> Smoked:
    """Like `smoke`, on hosts that were called already; those that cannot be reached are left out, and told so.

    ``met`` hears of each host that answered, or will not. ``meanwhile``: work in small pieces, for the time in which
    hosts start and import torch; all of it is done before this returns.
    """
    return _Run(called, wish, told=told, met=met, meanwhile=meanwhile, spare=True).whole()


def adopt(plan: Plan, ready: Sequence[Ready], told: Told = _quietly) -> Smoked:
    """Trains on the ranks that a launcher has started, by a plan that is settled but for the port."""
    mark = marker()
    parties = {
        f"{one.host} rank {one.ranks[0]}": Party(one.host, _greeting(one, mark, plan), one.ranks, one.address)
        for one in sorted(ready, key=lambda one: one.ranks)
    }
    return _Run(Call(parties, mark, {}, "", False), Wish(budget=plan.budget), plan, told=told).whole()


def _greeting(one: Ready, mark: str, plan: Plan) -> Talk:
    def talk() -> Conversation:
        one.conversation.send(request(mark, 0 in one.ranks, plan.master_port) + b"\n")
        return one.conversation

    return talk


_OVER = object()


class _Stop(Exception):
    """The run is over, for this trouble; None: it is complete."""

    def __init__(self, trouble: Trouble | None) -> None:
        super().__init__(trouble)
        self.trouble = trouble


class _Run:
    """Agents meet, ranks start, the detector watches, everything ends."""

    def __init__(
        self,
        called: Call,
        wish: Wish,
        plan: Plan | None = None,
        *,
        told: Told,
        met: Met = _nobody,
        meanwhile: Iterator[object] = iter(()),
        spare: bool = False,
    ) -> None:
        self.began, self.started = called.began, called.started
        self.parties, self.wish, self.slots = called.parties, wish, called.slots
        self.hosts = tuple(dict.fromkeys(party.host for party in self.parties.values()))
        self.plan, self.python, self.local = plan, called.python, called.local
        self.told, self.met, self.meanwhile, self.spare = told, met, meanwhile, spare
        self.missed: dict[str, HostRecord] = {}
        """Hosts that were left out."""
        self.progress: Progress | None = None
        self.detector: Detector | None = None
        self.addresses = Addresses({})
        self.snapshots: dict[int, Snapshot] = {}
        self.pending: dict[int, Snapshot] = {}
        self.resends: dict[str, list[Resend]] = {}
        self.fed = self.spoke = 0.0
        self.ended: Literal["complete", "trouble", "budget", "interrupted"] = "complete"
        self.troubles: tuple[Trouble, ...] = ()
        self.notes: list[str] = []
        self.shown: set[str] = set()
        self.channels = called.channels
        self.channels.hear = self.hear

    def whole(self) -> Smoked:
        stopped: BaseException | None = None
        try:
            self.go()
        except (KeyboardInterrupt, SystemExit) as stop:
            self.ended, stopped = "interrupted", stop
        finally:
            self.channels.close()
        for _ in self.meanwhile:
            pass
        return msgspec.structs.replace(self.result(), stopped=stopped)

    def go(self) -> None:
        """Until the run is complete or something stops it."""
        try:
            self.meet()
            self.start()
            while True:
                self.pump()
                self.check(time.monotonic())
        except _Stop as stop:
            if stop.trouble:
                self.ended = "budget" if stop.trouble.kind == "budget" else "trouble"
                self.troubles = (stop.trouble,)
                if self.plan and self.progress:
                    found = inquire(stop.trouble, self.plan, self.channels, self.progress, self.addresses)
                    self.troubles = (found,)

    # -- before the ranks

    def pump(self) -> None:
        """Takes in what has come. When nothing has, there is other work to do."""
        busy = next(self.meanwhile, _OVER) is not _OVER
        self.channels.pump(0 if busy else TICK)

    def meet(self) -> None:
        """Until every agent has said hello. Raises: _Stop."""
        channels, shown = self.channels, set[str]()
        while set(self.parties) - set(channels.hellos) - set(channels.gone if self.spare else ()):
            self.pump()
            for name in {*channels.hellos, *channels.gone} - shown:
                shown.add(name)
                self.met(self.parties[name].host, self.visited(name))
            if (channels.gone and not self.spare) or time.monotonic() - self.began > (VISIT if self.spare else HELLO):
                break
        absent = [name for name in self.parties if name not in channels.hellos]
        if channels.gone.keys() & channels.hellos.keys() or (absent and not self.spare):
            raise _Stop(self.not_met())
        if absent:
            self.leave_out(absent)
        if self.plan is None:
            self.plan = planning.make({host: self.as_planned(host) for host in self.hosts}, self.wish)

    def leave_out(self, absent: Sequence[str]) -> None:
        """Goes on without these. Raises: _Stop."""
        if len(absent) == len(self.parties):
            raise _Stop(self.not_met())
        first = next(iter(self.parties))
        for name in absent:
            self.missed[self.parties[name].host] = self.visited(name)
            self.channels.forget(name)
            del self.parties[name]
        self.hosts = tuple(host for host in self.hosts if host not in self.missed)
        if first not in absent:
            return
        # The ranks meet at the first host, which another one is now.
        name = next(iter(self.parties))
        del self.channels.hellos[name]
        self.channels.tell(name, {"do": "prepare", "listen": True, "port": self.wish.master_port})
        limit = time.monotonic() + ANSWER
        while name not in self.channels.hellos:
            self.pump()
            if self.channels.gone or time.monotonic() > limit:
                raise _Stop(self.not_met())

    def as_planned(self, host: str) -> planning.Host:
        hello, slots = self.channels.hellos.get(host), self.slots.get(host, 0)
        return planning.Host(hello.devices, slots, hello.server) if hello else planning.Host(slots=slots)

    def guess(self) -> Plan:
        """A plan to speak of when not every host is there."""
        wish = msgspec.structs.replace(self.wish, backend="gloo", devices=(), layouts=())
        return planning.make({host: self.as_planned(host) for host in self.hosts}, wish)

    def not_met(self) -> Trouble:
        self.plan = self.plan or self.guess()
        gone = self.channels.gone
        absent = [name for name in self.parties if name in gone or not (gone or name in self.channels.hellos)]
        texts = [f"{name}: {gone[name].text if name in gone else 'no answer in time'}" for name in absent]
        return self.blame("not-started", absent, "; ".join(texts[:4]), stage="start")

    def start(self) -> None:
        """Sends every agent its orders. Raises: _Stop."""
        assert self.plan
        self.progress = Progress(self.plan, self.began)
        self.detector = Detector(
            self.plan.world,
            warmup=0.0 if self.plan.backend == "gloo" else WARMUP,
            hosts=tuple(place.host for place in self.plan.places),
        )
        self.addresses = Addresses(self.known_addresses())
        first = next(name for name in self.parties if 0 in self.ranks_of(name))
        hello = self.channels.hellos[first]
        if hello.port_error:
            text = f"nothing can listen where the ranks are to meet: {hello.port_error}"
            raise _Stop(Trouble("never-joined", (0,), tuple(range(1, self.plan.world)), stage="rendezvous", text=text))
        self.plan = msgspec.structs.replace(
            self.plan,
            master_port=hello.port or self.plan.master_port,
            master_addr=self.plan.master_addr or self.parties[first].address,
        )
        orders = self.orders()
        for name in self.parties:
            mine = self.ranks_of(name)
            self.channels.tell(name, dict(orders, mine=mine, hosts_store=name == first))
            self.channels.quiet[name] = 0.0  # agents that wait for their orders say nothing

    def known_addresses(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {host: [] for host in self.hosts}
        for name, hello in self.channels.hellos.items():
            found[self.parties[name].host] += [one for known in hello.addresses.values() for one in known]
        return found

    def ranks_of(self, name: str) -> tuple[int, ...]:
        assert self.plan
        party = self.parties[name]
        return party.ranks or tuple(place.rank for place in self.plan.places if place.host == party.host)

    def orders(self) -> dict[str, Any]:
        assert self.plan
        adopted = any(party.ranks for party in self.parties.values())
        return {
            "do": "start",
            "plan": planning.spelled_out(self.plan),
            "worker": "" if adopted else programs.program(self.plan.stages),
            "master": [self.plan.master_addr, self.plan.master_port],
            "python": self.plan.python or self.python,
            "start": "exec" if adopted or self.plan.backend == "hccl" else "fork",
            "seconds": self.plan.budget + MARGIN,
        }

    # -- while they run

    def check(self, now: float) -> None:
        """Raises: _Stop."""
        assert self.progress and self.detector and self.plan
        channels = self.channels
        if channels.gone:
            texts = [f"{name}: {gone.text}" for name, gone in channels.gone.items()]
            raise _Stop(self.blame("silent", list(channels.gone), "; ".join(texts[:4])))
        if self.pending or now - self.fed >= FEED:
            self.fed = now
            evidence = [resend for resends in self.resends.values() for resend in resends]
            trouble = self.detector.feed(self.snapshots, now, channels.late, evidence)
            self.pending.clear()
            if trouble:
                raise _Stop(trouble)
        if self.progress.complete:
            raise _Stop(None)
        if now - self.spoke > STAY:
            self.spoke = now
            for name in self.parties:
                channels.tell(name, {"do": "stay"})
        limit = SILENT_HERE if self.local else SILENT
        silent = [name for name, seconds in channels.quiet.items() if seconds > limit + channels.late]
        if silent:
            text = f"nothing was heard of {_named(silent)} for {limit:g} s"
            raise _Stop(self.blame("silent", silent, text, limit=limit))
        overdue = self.progress.overdue(now)
        if overdue:
            raise _Stop(overdue)

    def blame(self, kind: TroubleKind, names: Sequence[str], text: str, stage: str = "", limit: float = 0.0) -> Trouble:
        """A trouble of whole agents, in this stage or the one that is under way."""
        assert self.plan
        guilty = tuple(rank for name in names for rank in self.ranks_of(name))
        victims = tuple(place.rank for place in self.plan.places if place.rank not in guilty)
        certainty: Literal["timeout", "certain"] = "timeout" if limit else "certain"
        stage = stage or (self.progress.stage if self.progress else "start")
        return Trouble(kind, guilty, victims, (), certainty, stage, text=text, limit=limit, seconds=limit)

    def hear(self, name: str, line: Line) -> None:
        """Raises: NotUnderstood."""
        host = self.parties[name].host
        if line.event and self.progress:
            self.hear_event(host, line.event)
        if line.snaps is not None:
            self.resends[name] = [
                Resend(rank, self.addresses.host(peer, host), unacked, again)
                for rank, peer, _, unacked, again in line.evidence
            ]
            for snap in line.snaps:
                self.hear_snapshot(name, snap)
        if line.fault:
            self.notes.append(f"{name}: {plain(line.fault, 300)}")

    def hear_event(self, host: str, raw: msgspec.Raw) -> None:
        assert self.progress and self.detector
        event, whole = read_event(raw)
        self.progress.hear(host, event, whole, time.monotonic())
        if event.ev == "group":
            self.detector.learn_group(event.gid, *self.progress.groups[event.gid])
        for stage, took in self.progress.reached.items():
            if stage not in self.shown:
                self.shown.add(stage)
                self.told(stage, took)

    def hear_snapshot(self, name: str, snap: Snapshot) -> None:
        if not self.plan or snap.rank not in self.ranks_of(name):
            raise NotUnderstood(f"a snapshot of rank {snap.rank}, which does not run there")
        before = self.snapshots.get(snap.rank)
        if before:
            # Agents tell of the groups that changed.
            snap = msgspec.structs.replace(snap, entered={**before.entered, **snap.entered})
        self.pending[snap.rank] = self.snapshots[snap.rank] = joined(self.pending.get(snap.rank), snap)

    # -- afterwards

    def result(self) -> Smoked:
        plan = self.plan or self.guess()
        progress = self.progress or Progress(plan, self.began)
        left = [
            f"{name}: process {pid} ({plain(command, 60)}) could not be ended: state {state}"
            for name, processes in self.channels.left.items()
            for pid, state, command in processes[:4]
        ]
        run = SmokeRun(
            plan=plan,
            troubles=self.troubles,
            ended=self.ended,
            reached=progress.reached,
            groups=progress.groups,
            seconds=round(time.monotonic() - self.began, 3),
            import_seconds=max(progress.imports.values(), default=0.0),
            notes=tuple(dict.fromkeys([*self.notes, *left])),
        )
        told = {host: self.record(run, progress, host) for host in self.hosts}
        return Smoked(run, {**told, **self.missed})

    def record(self, run: SmokeRun, progress: Progress, host: str) -> HostRecord:
        name = next(name for name, party in self.parties.items() if party.host == host)
        visited = self.visited(name)
        if visited.visit.trouble:
            return visited
        return HostRecord(visited.visit, records.outputs(run, host, progress.events.get(host, []), progress.kinds))

    def visited(self, name: str) -> HostRecord:
        """How a host was reached, without what it had to say."""
        hello, channels = self.channels.hellos.get(name), self.channels
        if hello:
            visit = Visit(
                sent=self.started,
                received=channels.met[name],
                began=hello.now,
                ended=hello.now,
                python=hello.python,
                uid=hello.uid,
                name=hello.host,
                local=self.local,
            )
            return HostRecord(visit)
        noise = channels.noise.get(name, "")
        if self.spare:
            return HostRecord(unanswered(channels.gone.get(name), noise, self.local))
        gone = channels.gone.get(name, Gone("it did not answer in time", "timeout"))
        text = f"{gone.text}{'; it said: ' if noise else ''}{noise}"
        return HostRecord(Visit(gone.kind, text, gone.hint, local=self.local))


def unanswered(gone: Gone | None, noise: str, local: bool) -> Visit:
    """A visit that came to nothing, in the same words as when the collector makes it."""
    from doctor.collect.protocol import no_answer

    if gone is None:
        return Visit("timeout", f"the command did not end within {seconds(VISIT)}", local=local)
    if gone.code is None:
        return Visit(gone.kind, gone.text, gone.hint, local=local)
    why = no_answer(Said(gone.code, noise.encode(), gone.err, 0.0, 0.0), begun=False)
    return Visit(why.kind, why.text, local=local)


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
