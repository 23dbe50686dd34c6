"""The agents of a smoke run: how they are started on hosts, and the lines from and to all of them."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.collect.collector_request import no_answer_error
from doctor.engine.fact import Visit
from doctor.engine.quantities import seconds_text
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.remote.request import new_marker
from doctor.smoke.model import FailureKind
from doctor.smoke.protocol import AgentHello, AgentMessage, AgentOrder, End, Stay, encode_order, parse_message
from doctor.smoke.run.programs import AGENT, agent_request, own_python
from doctor.smoke.speed.link_speeds import slowest_line
from doctor.transport import CommandResult, RemoteSession, Transport
from doctor.transport.program import NO_ORDERS, STOOD_STILL, Connect, ProgramLost, ProgramSessions, start_session

Hear = Callable[[str, AgentMessage], None]
TICK = 0.02
"""Seconds that we sleep for at most while ranks run."""
STAY = 2.0
"""Seconds between two heartbeats to the agents, which end their ranks when the heartbeats stop."""
CLOSE_SECONDS = 1.5
FADES = 0.5
"""Of a wait for a CPU, seconds that a second takes away: after it, ranks have their limits' time to go on."""


class AgentEndpoint(msgspec.Struct, frozen=True):
    """One agent, and what it is in charge of."""

    host: str
    connect: Connect
    """Reaches it, starts it if need be, and sends it its request."""
    ranks: tuple[int, ...] = ()
    """Empty: all ranks of its host, by the plan."""
    address: str = ""
    """Of our own clock, when the message arrived."""


class Channels(ProgramSessions):
    """All agents, by name: a host's, or one of several on it."""

    poll_seconds = TICK

    def __init__(self, endpoints: Mapping[str, AgentEndpoint], marker: str) -> None:
        self.endpoints = dict(endpoints)
        self.on_message: Hear = lambda name, line: None
        """Is given every line that was understood, as `pump` takes it in."""
        self._replies: dict[str, dict[str, AgentMessage]] = {}
        self._ticked = time.monotonic()
        self.hellos: dict[str, AgentHello] = {}
        self.hello_times: dict[str, float] = {}
        """Our clock when they came."""
        self.leftover_processes: dict[str, list[tuple[int, str, str]]] = {}
        """What an agent could not end, by its farewell."""
        self.output_before_hello: dict[str, str] = {}
        """Output of a host before the agent's first message."""
        self.silent_seconds = dict.fromkeys(endpoints, 0.0)
        """Seconds without a message, less those for which this process itself was suspended."""
        self.cpu_wait = 0.0
        """Seconds that we or an agent stood still lately, or waited for a CPU; it fades."""
        connect = {name: endpoint.connect for name, endpoint in endpoints.items()}
        super().__init__(AGENT.name, connect, marker, encode_order(Stay()))
        self.stay_seconds = STAY

    def pump(self, seconds: float | None = None) -> None:
        super().pump(seconds)
        now = time.monotonic()
        gap, self._ticked = now - self._ticked, now
        self.cpu_wait = max(self.cpu_wait - FADES * gap, gap - 0.1, 0.0)
        for name in self.silent_seconds:
            self.silent_seconds[name] += min(gap, 0.1)

    def drop(self, name: str) -> None:
        """Continues without an agent: further messages are dropped. It is ended with the others."""
        del self.endpoints[name]
        del self.silent_seconds[name]
        self.hellos.pop(name, None)
        self.lost.pop(name, None)

    def _handle(self, name: str, received: bytes | RemoteSession | ProgramLost) -> None:
        if name in self.endpoints or not isinstance(received, (bytes, ProgramLost)):
            super()._handle(name, received)
        elif isinstance(received, ProgramLost):
            self._sessions.pop(name, None)

    def take_noise(self, name: str, line: bytes) -> None:
        """What a host printed before its agent began is kept."""
        if name not in self.hellos:
            self.output_before_hello[name] = strip_control_chars(line)

    def take_message(self, name: str, data: bytes) -> None:
        self.silent_seconds[name] = 0.0
        line = parse_message(data)
        self.on_message(name, line)
        if line.hello:
            self.hellos[name] = line.hello
            self.hello_times.setdefault(name, time.time())
        for key in ("stacks", "sockets", "probes", "pressure"):
            if getattr(line, key) is not None:
                self._replies.setdefault(key, {})[name] = line
        if line.bye:
            self.leftover_processes[name] = line.bye.left
        self.cpu_wait = max(self.cpu_wait, min(line.late, 15.0))

    def loss(self) -> tuple[FailureKind, list[str], str]:
        """Of agents that no message comes from any more: the kind of failure, which of them it names, and its text.

        An agent that no order reached says nothing against its host, and names none where this process stood still.
        """
        lost = self.lost
        ended = [name for name in lost if lost[name].kind != NO_ORDERS]
        if ended:
            return "silent", ended, joined("; ", (filled("{0}: {1}", name, lost[name].text) for name in ended[:4]))
        text = joined("; ", dict.fromkeys(why.text for why in lost.values()))
        return "unobserved", [] if self.stood_still > STOOD_STILL else list(lost), text

    def send(self, name: str, order: AgentOrder) -> None:
        """Does nothing where the agent is gone; the inbox reports that."""
        self.send_line(name, encode_order(order))

    def query(self, key: str, orders: Mapping[str, AgentOrder], seconds: float) -> dict[str, AgentMessage]:
        """The answers, of those agents that answered in time."""
        self._replies.pop(key, None)
        sent_orders = {name: order for name, order in orders.items() if name in self.hellos and name not in self.lost}
        for name, order in sent_orders.items():
            self.send(name, order)
        self.wait(
            lambda: sent_orders.keys() <= self._replies.get(key, {}).keys() | self.lost.keys(),
            time.monotonic() + seconds,
        )
        return self._replies.get(key, {})

    def close(self, grace: float = 0.5) -> None:
        """Has every agent end all that it started, and closes the sessions."""
        for name in self._sessions:
            self.send(name, End())
        deadline = time.monotonic() + CLOSE_SECONDS
        ended = {name for name, lost in self.lost.items() if lost.kind != "error"}
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            while time.monotonic() < deadline and not self._sessions.keys() <= self.leftover_processes.keys() | ended:
                self.pump()
                ended |= self.lost.keys()
        super().close(grace)

    def host_addresses(self) -> dict[str, list[str]]:
        """The IP addresses that the agents of each host have reported, loopback included."""
        addresses: dict[str, list[str]] = {endpoint.host: [] for endpoint in self.endpoints.values()}
        for name, hello in self.hellos.items():
            addresses[self.endpoints[name].host] += [ip for interface in hello.addresses.values() for ip in interface]
        return addresses

    def peer_address(self, name: str) -> str:
        """The address at which another host than this agent's reached the controller; empty where none did."""
        host = self.endpoints[name].host
        return next((other.address for other in self.endpoints.values() if other.host != host and other.address), "")

    def line_speeds(self) -> dict[str, int]:
        """By host: Mb/s of its slowest interface; without those where it is not known."""
        return {
            self.endpoints[name].host: speed
            for name, hello in self.hellos.items()
            if (speed := slowest_line(hello.speeds, hello.addresses))
        }

    def leftover_notes(self) -> list[str]:
        """A note for each process that an agent could not end, at most four of a host."""
        text, notes = "{0}: process {1} ({2}) could not be killed: state {3}", []
        for name, processes in self.leftover_processes.items():
            notes += [
                filled(text, name, pid, strip_control_chars(command, 60), state)
                for pid, state, command in processes[:4]
            ]
        return notes

    def answered_visit(self, name: str, sent: float, local: bool) -> Visit:
        """The visit of a host whose agent said hello. ``sent``: seconds by the controller's clock."""
        hello = self.hellos[name]
        return Visit(
            sent=sent,
            received=self.hello_times[name],
            began=hello.now,
            ended=hello.now,
            python=hello.python,
            uid=hello.uid,
            name=hello.host,
            local=local,
        )

    def failed_visit(self, name: str, timeout: float, local: bool) -> Visit:
        """A visit without an answer, in the same words as when the collector makes it. ``timeout``: seconds."""
        lost = self.lost.get(name)
        if lost is None:
            return Visit("timeout", filled("the command did not end within {0}", seconds_text(timeout)), local=local)
        if lost.code is None:
            return Visit(lost.kind, lost.text, lost.hint, local=local)
        output = self.output_before_hello.get(name, "").encode()
        why = no_answer_error(CommandResult(lost.code, output, lost.err, 0.0, 0.0), begun=False)
        return Visit(why.kind, why.text, local=local)

    def unanswered_visit(self, name: str, blamed: bool, local: bool) -> Visit:
        """A visit that a failed run left without an answer.

        ``blamed``: the failure names this host's ranks. One that another host's failure cut off had no time to answer:
        nothing is known of it, and nothing is held against it.
        """
        if not blamed:  # what became of it afterwards is our own doing
            return Visit("budget", "the smoke run ended before this host answered", local=local)
        lost = self.lost.get(name) or ProgramLost("it did not answer in time", "timeout")
        noise = self.output_before_hello.get(name, "")
        return Visit(
            lost.kind, filled("{0}{1}{2}", lost.text, "; its output: " if noise else "", noise), lost.hint, local=local
        )


class AgentSession:
    """Agents that were called, by name, and what they were called with."""

    def __init__(
        self, endpoints: Mapping[str, AgentEndpoint], marker: str, slots: Mapping[str, int], python: str, local: bool
    ) -> None:
        self.began, self.started = time.monotonic(), time.time()
        self.endpoints, self.slots, self.python, self.local = dict(endpoints), slots, python, local
        self.channels = Channels(endpoints, marker)


def start_agents(
    hosts: Mapping[str, int],
    transport: Transport,
    port: int = 0,
    *,
    local: bool = False,
    within: tuple[str, ...] = (),
    python: str = "",
) -> AgentSession:
    """Starts an agent on each of these hosts (name -> slots, 0 where the inventory has none).

    ``port``: the rendezvous port of the ranks; 0 leaves it to the first host. Never waits, and never raises for a host.
    ``python``: tried last, where a host has no other.
    """
    marker = new_marker()

    def endpoint(number: int, host: str) -> AgentEndpoint:
        first = agent_request(marker, not number, port)
        own = sys.executable if local else ""
        request = AGENT.request(marker, first, interpreter=own, within=within, candidate=python)
        return AgentEndpoint(host, lambda: start_session(transport, host, request))

    endpoints = {host: endpoint(number, host) for number, host in enumerate(hosts)}
    return AgentSession(endpoints, marker, hosts, own_python() if local else "", local)


class ReadyAgent(msgspec.Struct, frozen=True):
    """An agent that waits for its request, in a process that a launcher has started."""

    host: str
    ranks: tuple[int, ...]
    conversation: RemoteSession
    address: str


def adopt_agents(ready: Sequence[ReadyAgent], port: int = 0) -> AgentSession:
    """Sends their request to agents that a launcher has started. ``port``: see `start_agents`. Never waits."""
    marker = new_marker()

    def connector(agent: ReadyAgent) -> Connect:
        def talk() -> RemoteSession:
            agent.conversation.send(agent_request(marker, 0 in agent.ranks, port) + b"\n")
            return agent.conversation

        return talk

    endpoints = {
        f"{agent.host} rank {agent.ranks[0]}": AgentEndpoint(agent.host, connector(agent), agent.ranks, agent.address)
        for agent in sorted(ready, key=lambda candidate: candidate.ranks)
    }
    return AgentSession(endpoints, marker, {}, "", False)
