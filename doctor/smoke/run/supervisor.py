"""Starts a smoke run on all hosts, watches it from outside, and ends it: the controller's side. It imports no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from doctor.engine.record import HostRecord
from doctor.engine.sanitize import rank_names, strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.job.variables import communication
from doctor.smoke import plan as planning
from doctor.smoke.hang.describe import PAUSE, pause_sentences
from doctor.smoke.hang.detector import Detector, Resend, joined_snapshots
from doctor.smoke.hang.exits import PAUSED
from doctor.smoke.hang.network_evidence import AddressOwners
from doctor.smoke.hang.standstill import occupations
from doctor.smoke.model import Failure, FailureKind, QuotaUse, RankPause, SmokePlan, SmokeResult, SmokeRun, Snapshot
from doctor.smoke.plan import PlanHost, SmokeOptions
from doctor.smoke.protocol import AgentMessage, GroupFormed, Prepare, Start, parse_event
from doctor.smoke.results import to_facts as records
from doctor.smoke.run import programs
from doctor.smoke.run.channels import TICK, AgentSession, ReadyAgent, adopt_agents, start_agents
from doctor.smoke.run.failure_evidence import (
    ObservedRun,
    add_evidence,
    describe_pressure,
    explain_gave_up,
    late_failure,
    may_still_pass,
)
from doctor.smoke.run.progress import StageProgress
from doctor.smoke.run.silence import SilenceWatch
from doctor.transport import Transport
from doctor.transport.program import InvalidMessage

HELLO_TIMEOUT = 30.0
"""Seconds for a host to be reached and to start its agent."""
VISIT_TIMEOUT = 60.0
"""The same, when a host that takes longer is left out."""
ANSWER_TIMEOUT = 10.0
"""Seconds for an agent that is there to answer."""
WARMUP = 30.0
"""Seconds that accelerators may take to connect a group's ranks, and to compile what a first step needs."""
FEED_INTERVAL = 0.05
"""Seconds between two evaluations of the detector while no event arrives."""
AGENT_MARGIN = 30.0
"""Seconds that an agent lives longer than the budget, should the controller vanish without a trace."""

StageCallback = Callable[[str, float], None]
HostCallback = Callable[[str, HostRecord], None]


def _ignore(*_: object) -> None:
    pass


def smoke(
    hosts: Mapping[str, int],
    transport: Transport,
    options: SmokeOptions,
    *,
    local: bool = False,
    within: tuple[str, ...] = (),
    on_stage: StageCallback = _ignore,
) -> SmokeResult:
    """Trains on these hosts (name -> slots, 0 where the inventory has none); returns the result.

    ``on_stage`` is called for each stage that all ranks have finished. An interrupt ends the run; what came so far is
    returned.

    Raises: ValueError, when the hosts do not support the requested run.
    """
    session = start_agents(hosts, transport, options.master_port, local=local, within=within, python=options.python)
    return _Supervisor(session, options, on_stage=on_stage).run()


def run_on_agents(
    session: AgentSession,
    options: SmokeOptions,
    on_stage: StageCallback = _ignore,
    on_host: HostCallback = _ignore,
    meanwhile: Iterator[object] = iter(()),
) -> SmokeResult:
    """Like `smoke`, on hosts that were connected already; those that cannot be reached are left out and reported.

    ``on_host`` is called for each host that answered, or will not. ``meanwhile``: work for the time in which
    hosts start and import torch; all of it is done before this returns.
    """
    return _Supervisor(
        session, options, on_stage=on_stage, on_host=on_host, meanwhile=meanwhile, skip_unreachable=True
    ).run()


def run_on_launched(
    plan: SmokePlan, ready: Sequence[ReadyAgent], options: SmokeOptions, on_stage: StageCallback = _ignore
) -> SmokeResult:
    """Trains on the ranks that a launcher has started, by a plan of these options that is settled but for the port."""
    return _Supervisor(adopt_agents(ready, plan.master_port), options, plan, on_stage=on_stage).run()


_EXHAUSTED = object()


class _RunStopped(Exception):
    """The run is over, for this trouble; None: it is complete. ``explained``: what evidence there is has been added."""

    def __init__(self, failure: Failure | None, explained: bool = False) -> None:
        super().__init__(failure)
        self.failure, self.explained = failure, explained


class _Supervisor:
    """Agents meet, ranks start, the detector watches, everything ends."""

    def __init__(
        self,
        session: AgentSession,
        options: SmokeOptions,
        plan: SmokePlan | None = None,
        *,
        on_stage: StageCallback,
        on_host: HostCallback = _ignore,
        meanwhile: Iterator[object] = iter(()),
        skip_unreachable: bool = False,
    ) -> None:
        self.began, self.started = session.began, session.started
        self.endpoints, self.options, self.slots = session.endpoints, options, session.slots
        self.hosts = tuple(dict.fromkeys(endpoint.host for endpoint in self.endpoints.values()))
        self.plan, self.python, self.local = plan, session.python, session.local
        self.on_stage, self.on_host, self.meanwhile = on_stage, on_host, meanwhile
        self.skip_unreachable = skip_unreachable
        self.skipped_hosts: dict[str, HostRecord] = {}
        """Hosts that were left out."""
        self.progress: StageProgress | None = None
        self.detector: Detector | None = None
        self.addresses = AddressOwners({})
        self.snapshots, self.unread = dict[int, Snapshot](), set[int]()
        self.resends: dict[str, list[Resend]] = {}
        self.ended: Literal["complete", "trouble", "budget", "interrupted"] = "complete"
        self.failures: tuple[Failure, ...] = ()
        self.notes: list[str] = []
        self.pressure, self.cpu_quotas = dict[str, tuple[str, ...]](), dict[int, QuotaUse]()
        self.last_feed, self.reported_stages = 0.0, set[str]()
        self.pauses = dict[int, RankPause]()
        """By rank, of those that went on or may do so: the longest."""
        self.channels = session.channels
        self.channels.on_message = self.on_message

    def run(self) -> SmokeResult:
        stopped: BaseException | None = None
        try:
            self.supervise()
        except (KeyboardInterrupt, SystemExit) as stop:
            self.ended, stopped = "interrupted", stop
        finally:
            self.channels.close()
        for _ in self.meanwhile:
            pass
        return msgspec.structs.replace(self.result(), stopped=stopped)

    def supervise(self) -> None:
        """Until the run is complete or something stops it."""
        try:
            self.await_hellos()
            self.start()
            while True:
                self.pump()
                self.check_health(time.monotonic())
        except _RunStopped as stop:
            if not stop.failure and self.plan:
                self.pressure, self.cpu_quotas, notes = describe_pressure(self.channels, self.plan)
                self.notes += notes
                late = {rank: pause for rank, pause in self.pauses.items() if not pause.process}
                self.notes += [*pause_sentences(late, self.plan), *self.silence.sentences()]
            if stop.failure:
                self.ended = "budget" if stop.failure.kind == "budget" else "trouble"
                self.failures = (stop.failure,)
                if self.plan and self.progress and not stop.explained:
                    self.failures = (add_evidence(stop.failure, self.observed),)

    # -- before the ranks

    def pump(self) -> None:
        """Takes in what has come. When nothing has, there is other work to do."""
        busy = next(self.meanwhile, _EXHAUSTED) is not _EXHAUSTED
        self.channels.pump(0 if busy else TICK)

    def await_hellos(self) -> None:
        """Until every agent has said hello. Raises: _RunStopped."""
        channels, reported_agents = self.channels, set[str]()
        while set(self.endpoints) - set(channels.hellos) - set(channels.lost if self.skip_unreachable else ()):
            self.pump()
            for name in {*channels.hellos, *channels.lost} - reported_agents:
                reported_agents.add(name)
                self.on_host(self.endpoints[name].host, self.visit_record(name))
            if (channels.lost and not self.skip_unreachable) or time.monotonic() - self.began > (
                VISIT_TIMEOUT if self.skip_unreachable else HELLO_TIMEOUT
            ):
                break
        absent = [name for name in self.endpoints if name not in channels.hellos]
        if channels.lost.keys() & channels.hellos.keys() or (absent and not self.skip_unreachable):
            raise _RunStopped(self.start_failure())
        if absent:
            self.skip_hosts(absent)
        if self.plan is None:
            hosts = {host: self.plan_host(host) for host in self.hosts}
            if lacking := planning.lacking_devices(hosts, self.options.backend):
                self.plan = self.provisional_plan()
                text = joined("; ", list(lacking.values())[:4])
                raise _RunStopped(self.make_failure("not-started", list(lacking), text, stage="start"))
            self.plan = planning.build_plan(hosts, self.options)

    def skip_hosts(self, absent: Sequence[str]) -> None:
        """Goes on without these. Raises: _RunStopped."""
        if len(absent) == len(self.endpoints):
            raise _RunStopped(self.start_failure())
        first = next(iter(self.endpoints))
        for name in absent:
            self.skipped_hosts[self.endpoints[name].host] = self.visit_record(name)
            self.channels.drop(name)
            del self.endpoints[name]
        self.hosts = tuple(host for host in self.hosts if host not in self.skipped_hosts)
        if first not in absent:
            return
        # The ranks meet at the first host, which another one is now.
        name = next(iter(self.endpoints))
        del self.channels.hellos[name]
        self.channels.send(name, Prepare(listen=True, port=self.options.master_port))
        limit = time.monotonic() + ANSWER_TIMEOUT
        while name not in self.channels.hellos:
            self.pump()
            if self.channels.lost or time.monotonic() > limit:
                raise _RunStopped(self.start_failure())

    def plan_host(self, host: str) -> PlanHost:
        hello, slots = self.channels.hellos.get(host), self.slots.get(host, 0)
        if hello is None:
            return PlanHost(slots=slots)
        return PlanHost(hello.devices, slots, hello.server, hello.npu_model, hello.hidden + hello.unallocated)

    def provisional_plan(self) -> SmokePlan:
        """A plan for the report of a run in which a host is missing."""
        options = msgspec.structs.replace(self.options, backend="gloo", devices=(), layouts=())
        return planning.build_plan({host: self.plan_host(host) for host in self.hosts}, options)

    def start_failure(self) -> Failure:
        self.plan = self.plan or self.provisional_plan()
        lost = self.channels.lost
        absent = [name for name in self.endpoints if name in lost or not (lost or name in self.channels.hellos)]
        texts = [filled("{0}: {1}", name, lost[name].text if name in lost else "no answer in time") for name in absent]
        return self.make_failure("not-started", absent, joined("; ", texts[:4]), stage="start")

    def start(self) -> None:
        """Sends every agent its orders. Raises: _RunStopped."""
        assert self.plan
        cpus = {self.endpoints[name].host: hello.cpus for name, hello in self.channels.hellos.items()}
        self.progress = StageProgress(self.plan, self.began, cpus)
        self.detector = Detector(
            self.plan.world,
            self.plan.patience,
            warmup=WARMUP if self.plan.backend != "gloo" or self.plan.library != "torch" else 0.0,
            hosts=tuple(place.host for place in self.plan.places),
        )
        ranks = {name: self.ranks_of(name) for name in self.endpoints}
        self.silence = SilenceWatch(self.channels, ranks, self.detector.members, self.local, self.plan.patience)
        self.addresses = AddressOwners(self.channels.host_addresses())
        first = next(name for name in self.endpoints if 0 in ranks[name])
        hello = self.channels.hellos[first]
        if hello.port_error:
            text = filled("the rendezvous port cannot be opened: {0}", hello.port_error)
            failure = Failure("never-joined", (0,), tuple(range(1, self.plan.world)), stage="rendezvous", text=text)
            raise _RunStopped(failure)
        self.plan = msgspec.structs.replace(
            self.plan,
            master_port=hello.port or self.plan.master_port,
            master_addr=self.plan.master_addr or self.endpoints[first].address,
        )
        unallocated = {self.endpoints[name].host: each.unallocated for name, each in self.channels.hellos.items()}
        self.notes += planning.allocation_notes(self.plan, self.options, unallocated)
        self.notes += planning.buffer_notes(self.plan, {**self.channels.hellos[first].variables, **self.plan.variables})
        order = self.start_order()
        for name in self.endpoints:
            peer = self.channels.peer_address(name)
            agent_order = msgspec.structs.replace(order, mine=ranks[name], hosts_store=name == first, peer=peer)
            self.channels.send(name, agent_order)
            self.channels.silent_seconds[name] = 0.0  # agents that wait for their orders send nothing

    def ranks_of(self, name: str) -> tuple[int, ...]:
        assert self.plan
        endpoint = self.endpoints[name]
        return endpoint.ranks or self.plan.ranks_by_host.get(endpoint.host, ())

    def start_order(self) -> Start:
        """What all agents are sent, without what is one agent's: its ranks, and whether they meet on its host."""
        assert self.plan
        adopted = any(endpoint.ranks for endpoint in self.endpoints.values())
        return Start(
            plan=planning.plan_as_dict(self.plan),
            mine=(),
            worker="" if adopted else programs.program(self.plan.stages, self.plan.library),
            master=(self.plan.master_addr, self.plan.master_port),
            python=self.plan.python or self.python,
            hosts_store=False,
            # CUDA and CANN do not survive a fork: an import that asks for a device would end all ranks.
            start="exec" if adopted or self.plan.backend != "gloo" or self.plan.library != "torch" else "fork",
            seconds=self.plan.budget + AGENT_MARGIN,
        )

    # -- while they run

    def check_health(self, now: float) -> None:
        """Raises: _RunStopped."""
        assert self.progress and self.detector and self.plan
        channels = self.channels
        if channels.lost:
            raise _RunStopped(self.make_failure(*channels.loss()))
        if self.unread or now - self.last_feed >= FEED_INTERVAL:
            self.last_feed, suspects = now, self.silence.suspects
            evidence = [resend for name, some in self.resends.items() if name not in suspects for resend in some]
            failure = self.detector.feed(self.snapshots, now, channels.cpu_wait, evidence)
            self.unread.clear()
            for rank, pause in [*self.detector.pauses(PAUSE).items(), *self.progress.stops_at_start(PAUSE)]:
                self.pauses[rank] = max(self.pauses.get(rank, pause), pause, key=lambda each: each.seconds)
            # Conclusions from time or the network wait until a silent host is either lost or back.
            if failure and not (suspects and (failure.kind == "network" or failure.certainty == "timeout")):
                failure = explain_gave_up(failure, self.observed)
                of_time = failure.certainty == "timeout"
                is_first = failure.limit < self.plan.patience and may_still_pass(failure, self.observed)
                failure = add_evidence(failure, self.observed) if of_time and not is_first else failure
                if not self.detector.wait_on(failure):
                    raise _RunStopped(failure, of_time and not is_first)
        if self.progress.complete:
            raise _RunStopped(None)
        master = (self.plan.master_addr, self.plan.master_port)
        if silent := self.silence.evaluate(now, self.snapshots, self.addresses, master):
            raise _RunStopped(self.make_failure(silent.kind, silent.names, silent.text, limit=silent.limit))
        own_time = {snap.rank: snap.effective * (snap.process not in PAUSED) for snap in self.joining}
        overdue = self.progress.overdue(now, own_time, channels.cpu_wait)
        if overdue or (overdue := late_failure(own_time, self.observed)):
            if overdue.kind == "budget" and (late := self.detector.overdue(self.plan.timeout / 2)):
                text = filled("{0}, and {1} kept the others waiting", overdue.text, rank_names(late.culprit_ranks))
                overdue = msgspec.structs.replace(late, kind="budget", text=text)
            raise _RunStopped(overdue)

    @property
    def joining(self) -> list[Snapshot]:
        """The ranks that are to meet."""
        return [snap for snap in self.snapshots.values() if snap.stage == "rendezvous"]

    @property
    def observed(self) -> ObservedRun:
        """What evidence is gathered from, once the ranks are started."""
        assert self.plan and self.progress
        occupied = occupations(self.joining, self.plan.backend)
        if self.detector:
            occupied |= self.detector.transfer_rule.occupied
        finished = self.detector.finished if self.detector else ()
        return ObservedRun(self.plan, self.channels, self.progress, self.addresses, finished, occupied)

    def make_failure(
        self, kind: FailureKind, names: Sequence[str], text: str, stage: str = "", limit: float = 0.0
    ) -> Failure:
        """A trouble of whole agents, in this stage or the one that is under way."""
        assert self.plan
        culprits = tuple(rank for name in names for rank in self.ranks_of(name))
        waiting_ranks = tuple(sorted({place.rank for place in self.plan.places}.difference(culprits)))
        certainty: Literal["timeout", "certain"] = "timeout" if limit else "certain"
        stage = stage or (self.progress.stage if self.progress else "start")
        return Failure(kind, culprits, waiting_ranks, (), certainty, stage, text=text, limit=limit, seconds=limit)

    def on_message(self, name: str, line: AgentMessage) -> None:
        """Raises: InvalidMessage."""
        host = self.endpoints[name].host
        if foreign := line.claimed_ranks - {-1, *(self.ranks_of(name) if self.plan else ())}:
            raise InvalidMessage(filled("a message about rank {0}, which does not run there", min(foreign)))
        if line.event and self.progress:
            self.on_event(host, line.event)
        if line.snaps is not None:
            if self.progress:
                self.progress.starting[name] = [(host, interpreter) for interpreter in line.starting]
            self.resends[name] = [
                Resend(rank, self.addresses.host(peer, host), unacked, again)
                for rank, peer, _, unacked, again in line.evidence
            ]
            for snap in line.snaps:
                self.on_snapshot(snap)
        if line.fault:
            self.notes.append(f"{name}: {strip_control_chars(line.fault, 300)}")

    def on_event(self, host: str, raw: msgspec.Raw) -> None:
        assert self.progress and self.detector
        event = parse_event(raw)
        self.progress.add_event(host, event, time.monotonic())
        if isinstance(event, GroupFormed):
            self.detector.learn_group(event.gid, *self.progress.groups[event.gid])
        for stage, took in self.progress.reached.items():
            if stage not in self.reported_stages:
                self.reported_stages.add(stage)
                self.on_stage(stage, took)

    def on_snapshot(self, snap: Snapshot) -> None:
        rank = snap.rank
        self.snapshots[rank] = joined_snapshots(self.snapshots.get(rank), snap, rank in self.unread)
        self.unread.add(rank)

    # -- afterwards

    def result(self) -> SmokeResult:
        plan = self.plan or self.provisional_plan()
        variables = {name: communication(hello.variables) for name, hello in self.channels.hellos.items()}
        hidden = {self.endpoints[name].host: hello.hidden for name, hello in self.channels.hellos.items()}
        progress = self.progress or StageProgress(plan, self.began)
        run = SmokeRun(
            plan=plan,
            failures=self.failures,
            ended=self.ended,
            reached=progress.reached,
            groups=progress.groups,
            pressure=self.pressure,
            stops={rank: pause for rank, pause in self.pauses.items() if pause.process},
            cpu_quotas=self.cpu_quotas,
            line_speeds=self.channels.line_speeds(),
            baseline=self.options.baseline,
            unused_devices=planning.left_unused(plan, self.options, hidden),
            seconds=round(time.monotonic() - self.began, 3),
            import_seconds=max(progress.imports.values(), default=0.0),
            notes=tuple(dict.fromkeys([*self.notes, *self.channels.leftover_notes()])),
        )
        names = {endpoint.host: name for name, endpoint in reversed(self.endpoints.items())}
        host_records = {host: self.record(run, progress, host, names[host]) for host in self.hosts}
        return SmokeResult(run, {**host_records, **self.skipped_hosts}, variables=variables)

    def record(self, run: SmokeRun, progress: StageProgress, host: str, name: str) -> HostRecord:
        visited = self.visit_record(name)
        outputs = records.fact_outputs(run, host, progress.events.get(host, []), progress.event_types)
        return visited if visited.visit.failure else HostRecord(visited.visit, outputs)

    def visit_record(self, name: str) -> HostRecord:
        """How a host was reached, without its output."""
        if name in self.channels.hellos:
            return HostRecord(self.channels.answered_visit(name, self.started, self.local))
        if self.skip_unreachable:
            return HostRecord(self.channels.failed_visit(name, VISIT_TIMEOUT, self.local))
        culprits = {rank for failure in self.failures for rank in failure.culprit_ranks}
        blamed = not self.plan or not self.failures or bool(culprits & set(self.ranks_of(name)))
        return HostRecord(self.channels.unanswered_visit(name, blamed, self.local))
