"""The leader of a launched job: gathers its processes, has the ranks supervised, and sends the verdict to all."""

from __future__ import annotations

import contextlib
import queue
import select
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

import msgspec

from doctor.engine.sanitize import rank_names, strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.environment.job_context import JobContext
from doctor.job.variables import MASTER_PORT
from doctor.smoke.hang.network_evidence import UNTRIED, is_answer
from doctor.smoke.model import Failure, SmokePlan, SmokeResult
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.protocol import Probe
from doctor.smoke.rendezvous.link import Hello, LeaderListener, Member, RelayedError, leader_ports, listening_address
from doctor.smoke.rendezvous.parts import (
    absent_failure,
    blame_kept_out,
    build_launched_plan,
    numbering_notes,
    on_hosts,
    plan_of_part,
    result_without_run,
    with_host_names,
)
from doctor.smoke.rendezvous.relay import LeaderOrder, RelayedVerdict, RelayInbox
from doctor.smoke.rendezvous.roll_call import status
from doctor.smoke.run.channels import ReadyAgent, adopt_agents
from doctor.smoke.run.environment_trial import CannotRepeat, explain_by_environment
from doctor.smoke.run.mindspore_run import repeat_with_mindspore
from doctor.smoke.run.second_measurement import measure_again
from doctor.smoke.run.supervisor import StageCallback, run_on_launched
from doctor.smoke.triage.conduct import run_healthy, run_together, screen, with_screening
from doctor.smoke.triage.screening import Cell, needs_screening
from doctor.transport.conversation import LineSession
from doctor.transport.local import SocketChannel
from doctor.transport.peer_handshake import ForeignPeer, read_line, send_line

_POLL_SECONDS = 0.05
_LINE_SECONDS = 1.0
_RESTART_SECONDS = 20.0
"""For all processes to start their agents again."""
_MAX_MEMBERS = 1 << 16
"""Processes that are let in."""


class Leader:
    """Used in a ``with``, it answers processes that connect; at its end it sends the result to all of them."""

    def __init__(self, context: JobContext, key: bytes) -> None:
        """Raises: OSError, when none of the ports is free."""
        self.context, self.exit_code = context, 12
        self._attempt = 0
        self._inbox: queue.SimpleQueue[Member] = queue.SimpleQueue()
        self._admitted: list[Member] = []
        """All that the listener has let in, and that were not turned away since: they wait for the verdict."""
        self._members: list[Member] = []
        self._agent_members: list[Member] = []
        self._hellos: Mapping[int, Hello] = {}
        """Of all ranks of the job, by rank."""
        self._part: Mapping[int, Hello] = {}
        """Of the ranks that take part in the run: see `on_hosts`."""
        self._relayed_errors: dict[tuple[str, int], RelayedError] = {}
        self._began = self._last_arrival = time.monotonic()
        self._relay_inbox = RelayInbox(key)
        ports, address = leader_ports(key, context.leader_port), listening_address(context)
        self._listener = LeaderListener(key, ports, self._arrive, address)

    def __enter__(self) -> Leader:
        return self  # a signal that comes in here would keep __exit__ from whom a listener has let in

    def abandon(self) -> None:
        """In a process that has forked off the leader."""
        self._listener.abandon()
        self._relay_inbox.abandon()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self._relay_inbox.close(self.exit_code)
        for member in self._admitted:
            if member.hello.use == "wait":
                with contextlib.suppress(OSError):
                    member.link.settimeout(_LINE_SECONDS)
                    send_line(member.link, RelayedVerdict(self.exit_code))
            member.link.close()

    def run_smoke(self, options: SmokeOptions, patience: float, on_stage: StageCallback) -> SmokeResult:
        """Raises: ValueError, when the ranks do not allow what was wished for."""
        self._listener.open()
        failure = self._gather(patience)
        hellos, relayed_errors = [member.hello for member in self._members], list(self._relayed_errors.values())
        if failure:
            return self._failed_result(failure, hellos, relayed_errors, options)
        # Every rank has its variables of its own, this process's rank too.
        options = msgspec.structs.replace(options, variables={})
        plan = build_launched_plan(self.context, hellos, (), options)
        self._hellos = with_host_names(hellos)
        self._part = self._hellos
        screening = None
        if needs_screening(len(plan.ranks_by_host), options.cell_size):
            try:
                screening = screen(tuple(plan.ranks_by_host), options, self._run_cells, on_stage)
            except (KeyboardInterrupt, SystemExit) as stop:
                stopped = self._without_run(plan, (), _notes(hellos))
                return msgspec.structs.replace(stopped, stopped=stop)

            def run(hosts: Cell, settled: SmokeOptions) -> SmokeResult:
                self._part = on_hosts(self._hellos, hosts)
                self._recall(self._part)
                return self._train_and_explain(settled, on_stage)

            result = run_healthy(options, screening, run)
        else:
            result = self._train_and_explain(options, on_stage)
        result = with_screening(result, screening, options) if screening else result
        notes = dict.fromkeys([*result.run.notes, *numbering_notes(result.run.plan), *_notes(hellos)])
        return msgspec.structs.replace(result, run=msgspec.structs.replace(result.run, notes=tuple(notes)))

    def _train_and_explain(self, options: SmokeOptions, on_stage: StageCallback) -> SmokeResult:
        """The run of those who take part, and what further ones say of it."""
        result = self._train(self._part, options, on_stage)
        if result.stopped:
            return result
        port = plan_of_part(self.context, self._part, options).master_port
        result, options = repeat_with_mindspore(result, options, self._train_again)
        result = explain_by_environment(result, options, self._train_again, {MASTER_PORT: str(port)} if port else {})
        return measure_again(result, options, self._train_again)

    def _train(
        self, part: Mapping[int, Hello], options: SmokeOptions, on_stage: StageCallback = lambda *_: None
    ) -> SmokeResult:
        """One run of these ranks, on the agents that have come. ``part``: see `on_hosts`."""
        plan = plan_of_part(self.context, part, options)
        arrived = {member.hello.rank: member for member in self._agent_members if member.hello.rank in part}
        if len(arrived) < len(part):
            living = {member.hello.rank for member in self._members}
            return self._without_run(plan, (absent_failure(part, arrived, living, _RESTART_SECONDS),))
        ready = []
        for rank, member in arrived.items():
            host, number = part[rank].host, part[rank].rank
            ready.append(ReadyAgent(host, (number,), _session(host, member), member.address))
        return run_on_launched(plan, ready, options, on_stage)

    def _run_cells(self, cells: Sequence[Cell], options: SmokeOptions) -> list[SmokeResult]:
        """Runs of the ranks of some hosts each, at the same time."""
        parts = {cell: on_hosts(self._hellos, cell) for cell in cells}
        self._recall({rank: hello for part in parts.values() for rank, hello in part.items()})
        return run_together(cells, lambda cell: self._train(parts[cell], options))

    def _recall(self, part: Mapping[int, Hello]) -> None:
        """Has the processes of these ranks start their agents for another run, and waits for those that live."""
        self._attempt += 1
        self._agent_members.clear()
        for member in self._members:
            if member.hello.rank in part:
                with contextlib.suppress(OSError):  # its end is noticed below
                    send_line(member.link, LeaderOrder(attempt=self._attempt, rank=part[member.hello.rank].rank))
        deadline = time.monotonic() + _RESTART_SECONDS
        while time.monotonic() < deadline:
            arrived = {member.hello.rank for member in self._agent_members}
            if not any(member.hello.rank in part and member.hello.rank not in arrived for member in self._members):
                return
            self._collect_arrivals()

    def _train_again(self, options: SmokeOptions) -> SmokeResult:
        """A further run of the same ranks, whose processes start new agents. Raises: CannotRepeat, ValueError."""
        self._recall(self._part)
        arrived = {member.hello.rank for member in self._agent_members}
        absent = [rank for rank in self._part if rank not in arrived]
        if absent:
            text = "no further run could be made: the process of {0} did not come again"
            raise CannotRepeat(filled(text, rank_names(absent)))
        return self._train(self._part, options)

    # ---- gathering

    def _gather(self, patience: float) -> Failure | None:
        """Until all have come, or it is clear that they will not."""
        while True:
            self._collect_arrivals()
            now = time.monotonic()
            hellos = [member.hello for member in self._members]
            state = status(
                self.context,
                hellos,
                list(self._relayed_errors.values()),
                now - self._last_arrival,
                now - self._began,
                patience,
            )
            if isinstance(state, Failure):
                return state
            if state == "complete" and len(self._agent_members) == len(self._members):
                return None
            if now - self._began > patience + _LINE_SECONDS:
                late = {hello.rank for hello in hellos} - {member.hello.rank for member in self._agent_members}
                text = "it connected, but did not open its second connection"
                ranks = tuple(sorted(late))
                return Failure(
                    "never-joined", ranks, certainty="timeout", stage="rendezvous", text=text, limit=patience
                )

    def _collect_arrivals(self) -> None:
        """Takes in who and what has come, waiting a moment for it."""
        with contextlib.suppress(queue.Empty):
            member = self._inbox.get(timeout=_POLL_SECONDS)
            while True:
                self._admit(member)
                member = self._inbox.get_nowait()
        while relayed_error := self._relay_inbox.receive():
            self._add_relayed_error(relayed_error)
        for member in self._readable_members():
            self._read_member(member)

    def _arrive(self, member: Member) -> None:
        """In the thread of its handshake: a signal may end the main thread with a member that it has just taken."""
        self._admitted.append(member)
        self._inbox.put(member)

    def _admit(self, member: Member) -> None:
        if len(self._members) >= _MAX_MEMBERS or member.hello.rank >= _MAX_MEMBERS:
            self._turn_away(member)
            return
        if member.hello.use == "lines" and member.hello.attempt != self._attempt:  # too late for its run
            self._turn_away(member)
            return
        (self._agent_members if member.hello.use == "lines" else self._members).append(member)
        self._last_arrival = time.monotonic()

    def _turn_away(self, member: Member) -> None:
        member.link.close()
        self._admitted.remove(member)

    def _readable_members(self) -> list[Member]:
        poll = select.poll()
        by_file = {member.link.fileno(): member for member in self._members}
        for file in by_file:
            poll.register(file, select.POLLIN)
        return [by_file[file] for file, _ in poll.poll(0)] if by_file else []

    def _read_member(self, member: Member) -> None:
        """A process passes on what another one of its host has to say, or has ended."""
        try:
            self._add_relayed_error(
                msgspec.json.decode(read_line(member.link, time.monotonic() + _LINE_SECONDS), type=RelayedError)
            )
        except (OSError, ForeignPeer, msgspec.MsgspecError, UnicodeError, RecursionError):
            self._turn_away(member)
            self._members.remove(member)
            for other in [
                candidate
                for candidate in self._agent_members
                if (candidate.hello.rank, candidate.hello.pid) == (member.hello.rank, member.hello.pid)
            ]:
                self._turn_away(other)
                self._agent_members.remove(other)
            text = "it connected, and ended before all ranks had connected"
            self._add_relayed_error(RelayedError(member.hello, "other", text))

    def _add_relayed_error(self, relayed_error: RelayedError) -> None:
        sender = (relayed_error.hello.host, relayed_error.hello.pid)
        if sender not in self._relayed_errors and len(self._relayed_errors) < _MAX_MEMBERS:
            self._last_arrival = time.monotonic()
        if sender in self._relayed_errors or len(self._relayed_errors) < _MAX_MEMBERS:
            self._relayed_errors[sender] = relayed_error

    # ---- when they cannot be gathered

    def _failed_result(
        self, failure: Failure, hellos: Sequence[Hello], relayed_errors: Sequence[RelayedError], options: SmokeOptions
    ) -> SmokeResult:
        plan = build_launched_plan(self.context, hellos, relayed_errors, msgspec.structs.replace(options, layouts=()))
        failure = msgspec.structs.replace(
            failure, waiting_ranks=tuple(range(plan.world)), seconds=round(time.monotonic() - self._began, 3)
        )
        answered = self._answered_hosts(plan) if failure.limit and not self.context.is_scheduler_process else {}
        return self._without_run(plan, (blame_kept_out(failure, plan, answered),), _notes(hellos))

    def _answered_hosts(self, plan: SmokePlan) -> dict[str, bool]:
        """By other host that has come: whether a new connection from there is answered here now.

        That of a process that came, and whose second connection did not, was not.
        """
        hosts = {member.hello.rank: plan.host_of(member.hello.rank) for member in self._members}
        agents = {hosts[member.hello.rank]: member for member in self._agent_members if member.hello.rank in hosts}
        others = set(hosts.values()) - {plan.host_of(0)}
        ready = [
            ReadyAgent(host, (agents[host].hello.rank,), _session(host, agents[host]), agents[host].address)
            for host in sorted(others & agents.keys())
        ]
        targets = [(address, self._listener.port) for address in self.context.leader_addresses]
        answered = answered_hosts(ready, targets) if ready and targets else {}
        return {**dict.fromkeys(others - agents.keys(), False), **answered}

    def _without_run(self, plan: SmokePlan, failures: tuple[Failure, ...], notes: Iterable[str] = ()) -> SmokeResult:
        return result_without_run(plan, failures, round(time.monotonic() - self._began, 3), notes, self._untried())

    def _untried(self) -> str:
        """Why a job whose processes do not meet cannot be tried without the variables that say where they meet."""
        source, port = self.context.leader_address_source, self.context.leader_port
        names = joined(" and ", filter(None, (source, MASTER_PORT if port and source == "MASTER_ADDR" else "")))
        return filled(
            "a run without the job's variables cannot be tried: its processes did not find each other by {0}",
            names or "what the launcher has told them",
        )


def _session(host: str, member: Member) -> LineSession:
    return LineSession(host, SocketChannel(member.link))


def _notes(hellos: Sequence[Hello]) -> list[str]:
    return [strip_control_chars(note, 300) for hello in hellos for note in hello.notes[:4]]


HELLO, PROBE, ANSWER = 5.0, 1.5, 2.0
"""Seconds for agents to begin, for a new connection, and for their answer behind it."""
ATTEMPTS = 2


def answered_hosts(ready: Sequence[ReadyAgent], targets: Sequence[tuple[str, int]]) -> dict[str, bool]:
    """By host of these agents: whether any of the targets answered it, in two attempts. The agents end behind it.

    A refusal is an answer. Hosts whose agents do not say are left out.
    """
    session = adopt_agents(ready)
    channels = session.channels
    answered: dict[str, bool] = {}
    try:
        deadline = time.monotonic() + HELLO
        channels.wait(lambda: session.endpoints.keys() <= channels.hellos.keys() | channels.lost.keys(), deadline)
        for _ in range(ATTEMPTS):
            orders = {
                name: Probe(list(targets), PROBE)
                for name, endpoint in session.endpoints.items()
                if name in channels.hellos and not answered.get(endpoint.host)
            }
            for name, line in channels.query("probes", orders, PROBE + ANSWER).items():
                results = [result for _, _, result, _ in line.probes or () if result != UNTRIED]
                if results:
                    answered[session.endpoints[name].host] = any(is_answer(result) for result in results)
    finally:
        channels.close()
    return answered
