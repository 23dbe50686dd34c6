"""The supervisor on agents without threads, processes or pauses: what healthy ranks send, a line of each agent a time.

For the cost of a run by its size: nothing here waits, so that all time is the supervisor's own.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from doctor.remote.request import new_marker
from doctor.smoke.model import SmokeResult
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.protocol import AgentHello, AgentOrder, encode_order
from doctor.smoke.run.channels import AgentEndpoint, AgentSession, Channels
from doctor.smoke.run.supervisor import run_on_agents
from doctor.transport import RemoteSession
from tests.smoke.scripted import Line, done, event, life

PER_HOST = 8
STAGES = ("start", "rendezvous", "collectives", "pairs", "training", "learning", "loader", "pace")
STEPS = 4


def agent_lines(number: int, world: int) -> list[Line]:
    """What the agent of one host sends: groups, snapshots of ranks in collectives of three groups, stages, the end."""
    mine, hosts = range(number * PER_HOST, (number + 1) * PER_HOST), world // PER_HOST
    lines = [*life(mine, ()), event(mine[0], "group", gid=1 + number, name=f"tp{PER_HOST}", ranks=list(mine))]
    if number == 0:
        columns = [list(range(local, world, PER_HOST)) for local in mine]
        lines += [event(local, "group", gid=1 + hosts + local, name="dp", ranks=columns[local]) for local in mine]
    for position, stage in enumerate(STAGES):
        for step in range(STEPS):
            lines.append({"snaps": [snapshot(rank, world, stage, step, position * STEPS + step + 1) for rank in mine]})
        lines += [event(rank, "stage", stage=stage) for rank in mine]
    return [*lines, *done(mine)]


def snapshot(rank: int, world: int, stage: str, step: int, seq: int) -> dict[str, object]:
    """A rank that waits in the world's collective, after one in each of its two groups."""
    groups = (1 + rank // PER_HOST, 1 + world // PER_HOST + rank % PER_HOST, 0)
    calls = [[group, seq, "all_reduce", "float32", 100, -1, step, stage] for group in groups]
    where = {"rank": rank, "stamp": seq, "state": "collective", "stage": stage, "step": step, "group": 0, "seq": seq}
    return {**where, "op": "all_reduce", "age": 0.2, "entered": dict.fromkeys(groups, seq), "calls": calls}


class ReplayedChannels(Channels):
    """Each `pump` takes in the next line of every agent."""

    def __init__(self, world: int) -> None:
        super().__init__({}, new_marker())
        hosts = [f"w{number}" for number in range(world // PER_HOST)]
        self.world = world
        self.endpoints = {host: AgentEndpoint(host, _never) for host in hosts}
        self.silent_seconds = dict.fromkeys(hosts, 0.0)
        self.replay = self._lines()

    def _lines(self) -> Iterator[None]:
        for number, host in enumerate(self.endpoints):
            addresses = {"eth0": [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"]}
            hello = AgentHello(host, 7, "3.9.2", 192, addresses, port=29400)
            self._take(host, {"hello": msgspec.to_builtins(hello)})
        yield
        by_host = {host: agent_lines(number, self.world) for number, host in enumerate(self.endpoints)}
        for position in range(max(map(len, by_host.values()))):
            for host, lines in by_host.items():
                if position < len(lines):
                    self._take(host, lines[position])
            yield

    def _take(self, host: str, line: object) -> None:
        self._handle(host, self._marker + b" " + msgspec.json.encode(line))

    def send(self, name: str, order: AgentOrder) -> None:
        encode_order(order)

    def pump(self, seconds: float | None = None) -> None:
        next(self.replay, None)
        self.silent_seconds = dict.fromkeys(self.endpoints, 0.0)


def _never() -> RemoteSession:
    raise AssertionError("a replayed agent is never reached")


def replay(world: int) -> SmokeResult:
    """A healthy run of so many ranks, eight a host."""
    session = AgentSession({}, new_marker(), {}, "", local=False)
    session.channels = channels = ReplayedChannels(world)
    session.endpoints, session.slots = dict(channels.endpoints), dict.fromkeys(channels.endpoints, PER_HOST)
    options = SmokeOptions(backend="gloo", ranks_per_host=PER_HOST, budget=1000.0, layouts=(f"dp={world}",))
    return run_on_agents(session, options)
