"""The progress of the ranks of a smoke run, from their own events, and which ranks are overdue. No effects."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from doctor.engine.sanitize import last_line, strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.facts.smoke.first_stages import ConnectFailed, RankExited, RankFailed, RankJoined, TorchImported
from doctor.facts.smoke.training import LayoutBegun
from doctor.smoke.hang.exits import PAUSED, pause
from doctor.smoke.model import Failure, FailureKind, RankPause, SmokePlan
from doctor.smoke.protocol import GroupFormed, RankDone, RankEvent, StageFinished, StartingInterpreter
from doctor.transport.program import InvalidMessage

START = 60.0
"""Seconds for which an interpreter that is to import torch may do nothing at all. A slow import reads and computes: it
has until the budget ends."""
SPUN, SLOW_IMPORT = 20.0, 3.0
"""Seconds of CPU, and times the slowest import of the others, that an interpreter must have taken to be named when the
budget ends: it waited for nothing."""
JOIN = 20.0
"""Seconds of its own time that each rank has to join, in a small world, before its hosts are examined."""
JOIN_MINDSPORE = 60.0
"""The same where the scheduler that they meet at has to import MindSpore first."""
CONNECTION = 0.02
"""Seconds more for each connection that one CPU has to make: every rank connects to all others, all at once."""
LOOKS = 2
"""Examinations of ranks that are late to join after which a run on several hosts ends without a verdict of its own."""
TRY = 3.0
"""Seconds for which a rank may be refused by the master: its port was bound before any rank was started."""
SETTLE = 5.5
"""Seconds from the last import until every rank has tried to reach the master: an attempt takes 2 s at most."""
GRACE = 0.35
"""Seconds in which others may fail of the same cause."""
MOST_EVENTS = 200_000
"""Of one host; a healthy one sends a few thousand."""
TAIL_CHARS = 4000
"""Of an output that are read, from its end."""
MAX_FRAMES = 12
_FRAME = re.compile(r'  File "([^"]{1,300})", line (\d{1,7}), in (\S.{0,100})')
_TRACE_ENTRY = re.compile(r"(.{1,300}):(\d{1,7}) (.{1,100})")


OWN_PROBLEMS = ("name", "own")
"""Of an attempt to connect: they lie on the host that makes it, not on the master."""


class JoinAttempt(NamedTuple):
    """A rank could not connect to the master, since then."""

    problem: str
    text: str
    since: float


class ParentExit(NamedTuple):
    """The process that a host's ranks come from has ended."""

    kind: FailureKind
    text: str
    at: float


class StageProgress:
    """How far each rank has come, by the events of all hosts."""

    def __init__(self, plan: SmokePlan, began: float, cpus: Mapping[str, int] = {}) -> None:
        """``cpus``: CPUs of each host that its ranks may use."""
        self.plan, self.began = plan, began
        self.ranks = plan.ranks_by_host
        self.events: dict[str, list[RankEvent]] = {host: [] for host in self.ranks}
        loads = [len(ranks) / max(1, cpus.get(host, len(ranks))) for host, ranks in self.ranks.items()]
        join = JOIN if plan.library == "torch" else JOIN_MINDSPORE
        self.join_limit = round(join + CONNECTION * plan.world * max(loads, default=0.0), 1)
        """Seconds of its own time that each rank has to join."""
        self.examine_at = self.join_limit
        """The same, after which the hosts of ranks that have not joined are examined the next time."""
        self.looks = 0
        """How often they were examined."""
        self.starting: dict[str, list[tuple[str, StartingInterpreter]]] = {}
        """Of each agent: its host, with interpreters that do nothing and have not imported everything yet."""
        self._parent_keys = {host: -1 - number for number, host in enumerate(self.ranks)}
        self.imports: dict[str, float] = {}
        """Seconds that the import took, the slowest of each host."""
        self._loaded: set[int] = set()
        self.last_import = began
        self.join_attempts: dict[int, JoinAttempt] = {}
        self.joined: set[int] = set()
        self.done: set[int] = set()
        self.reached: dict[str, float] = {}
        self.finished: dict[str, set[int]] = {}
        self.groups: dict[int, tuple[str, tuple[int, ...]]] = {0: ("world", tuple(range(plan.world)))}
        self.layout: dict[int, int] = {}
        self.errors: dict[int, str] = {}
        """Last words; under ``-1 - number of the host`` those of the process that its ranks come from."""
        self.stacks: dict[int, str] = {}
        """Tracebacks of errors, innermost call first, under the same keys."""
        self.kernel_logs: dict[int, str] = {}
        self.parent_exits: dict[str, ParentExit] = {}
        self.event_types: set[type[RankEvent]] = set()
        """Of the events of all hosts."""

    def add_event(self, host: str, event: RankEvent, now: float) -> None:
        """Takes in what a rank of ``host`` emitted. Raises: InvalidMessage, for what it cannot have emitted."""
        if event.rank != -1 and event.rank not in self.ranks[host]:
            raise InvalidMessage(filled("an event of rank {0}, which does not run there", event.rank))
        if len(self.events[host]) >= MOST_EVENTS:
            raise InvalidMessage(filled("more than {0} events", MOST_EVENTS))
        self.events[host].append(event)
        self.event_types.add(type(event))
        match event:
            case TorchImported():
                self._torch_imported(host, event, now)
            case ConnectFailed():
                self.join_attempts[event.rank] = JoinAttempt(event.problem, strip_control_chars(event.text, 300), now)
            case RankJoined():
                self.joined.add(event.rank)
                self.join_attempts.pop(event.rank, None)
            case GroupFormed():
                self._group_formed(event)
            case StageFinished():
                self._finish(event.stage, event.rank, now)
            case LayoutBegun():
                self.layout[event.rank] = event.layout
            case RankDone():
                self.done.add(event.rank)
                self._finish("teardown", event.rank, now)
            case RankFailed():
                text = filled("{0}: {1}", event.kind, event.text) if event.text else event.kind
                self.errors[self._key(host, event.rank)] = strip_control_chars(text, 600)
                entries = filter(None, map(_TRACE_ENTRY.fullmatch, event.trace))  # innermost first
                self.stacks[self._key(host, event.rank)] = _stack([match.groups() for match in entries])
            case RankExited():
                self._rank_exited(host, event, now)

    def _torch_imported(self, host: str, event: TorchImported, now: float) -> None:
        self.imports[host] = max(self.imports.get(host, 0.0), event.seconds)
        self._loaded |= set(self.ranks[host]) if event.rank == -1 else {event.rank}
        self.last_import = now

    def _group_formed(self, event: GroupFormed) -> None:
        if not all(0 <= rank < self.plan.world for rank in event.ranks):
            raise InvalidMessage("a process group of unknown ranks")
        self.groups[event.gid] = (strip_control_chars(event.name, 60), event.ranks)

    def _finish(self, stage: str, rank: int, now: float) -> None:
        ranks = self.finished.setdefault(stage, set())
        ranks.add(rank)
        if len(ranks) == self.plan.world:
            self.reached.setdefault(stage, round(now - self.began, 3))

    def _rank_exited(self, host: str, event: RankExited, now: float) -> None:
        key = self._key(host, event.rank)
        if event.log:
            self.kernel_logs[key] = strip_control_chars(event.log, 300)
        if event.tail:
            self.errors.setdefault(key, last_line(event.tail[-TAIL_CHARS:]))
            _, found, body = event.tail[-TAIL_CHARS:].rpartition("Traceback (most recent call last):")
            self.stacks[key] = self.stacks.get(key) or (innermost_first(body) if found else "")
        started = bool(self._loaded & set(self.ranks[host]))
        if event.rank == -1 and (event.status or not started):
            status_text = filled("the parent process of its ranks: {0}", describe_wait_status(event.status))
            status_text = joined("", (status_text, ", before it had imported torch" * (not event.status)))
            text = joined(": ", filter(None, (status_text * started, self.errors.get(key, "")))) or status_text
            self.parent_exits.setdefault(host, ParentExit("dead" if started else "not-started", text, now))

    def _key(self, host: str, rank: int) -> int:
        return rank if rank >= 0 else self._parent_keys[host]

    def keys(self, ranks: Iterable[int]) -> list[int]:
        """The keys of `errors`, `stacks` and `kernel_logs` that concern these ranks: theirs, then their parents'."""
        in_plan = [rank for rank in ranks if 0 <= rank < self.plan.world]
        parents = dict.fromkeys(self._key(self.plan.host_of(rank), -1) for rank in in_plan)
        return [*in_plan, *parents]

    def overdue(self, now: float, own_time: Mapping[int, float], late: float = 0.0) -> Failure | None:
        """Ranks that could not start or join by what they, or the kernels of their hosts, say; or the spent budget.

        To be late is no fault. `late_to_join` are ranks to be examined.

        Args:
            now: by `time.monotonic`.
            own_time: by rank: seconds of its own time in the rendezvous, without those in which it could not run.
            late: seconds that agents waited for a CPU.
        """
        if self.parent_exits:
            return self._parent_exit_failure(now)
        everyone = set(range(self.plan.world))
        if everyone - self._loaded:
            return self._standstill_at_start(late) or self._budget_failure(now)
        waiting = everyone - self.joined
        refused = {rank for rank in waiting if rank in self.join_attempts}
        settled = refused and now - max(self.join_attempts[rank].since for rank in refused) > TRY
        if (settled and now - self.last_import > SETTLE) or (
            refused and min(own_time.get(rank, 0.0) for rank in refused) > self.join_limit
        ):
            return self._never_joined(refused, certain=bool(settled))
        return self._budget_failure(now)

    def late_to_join(self, own_time: Mapping[int, float]) -> Failure | None:
        """A failure without culprits, of ranks that have not joined after the limit; None before the next look is due.

        Where one of them could not run, all wait for it.
        """
        waiting = set(range(self.plan.world)) - self.joined
        if not waiting or min(own_time.get(rank, 0.0) for rank in waiting) <= self.examine_at:
            return None
        self.examine_at += self.join_limit
        self.looks += 1
        text = filled("did not join within {0} s, waits for CPUs and disks left out", f"{self.join_limit:g}")
        failure = self._make_failure("never-joined", (), text, "rendezvous", limit=self.join_limit)
        return msgspec.structs.replace(failure, waiting_ranks=tuple(sorted(waiting)))

    @property
    def is_for_a_trial(self) -> bool:
        """Nothing showed why ranks are late, though they had time enough: runs without the job's variables may."""
        several = len(self.ranks) > 1 or self.plan.keep is not None
        return several and self.looks >= (LOOKS if self.plan.keep is None else 1)

    def stops_at_start(self, seconds: float) -> Iterator[tuple[int, RankPause]]:
        """Ranks whose interpreters are stopped or frozen, and did nothing for longer than this."""
        for host, row in self._starting_rows():
            if row.state in PAUSED and row.idle > seconds:
                yield from ((rank, RankPause(row.idle, row.state)) for rank in self._ranks_of([(host, row)]))

    def _starting_rows(self) -> list[tuple[str, StartingInterpreter]]:
        return [row for of_agent in self.starting.values() for row in of_agent]

    def _standstill_at_start(self, late: float) -> Failure | None:
        """Interpreters that are stopped or frozen, or did nothing for too long."""
        idle = [(host, row) for host, row in self._starting_rows() if row.idle > START + late]
        paused = [(host, row) for host, row in idle if row.state in PAUSED]
        if paused:
            kind, text = pause({row.state for _, row in paused})
            failure = self._make_failure(kind, self._ranks_of(paused), text, "start", certain=True)
            states = dict.fromkeys(failure.culprit_ranks, "an interpreter that had not imported torch yet")
            return msgspec.structs.replace(failure, states=states)
        if not idle:
            return None
        text = filled("the interpreter did nothing for {0} s, before it had imported torch", f"{START:g}")
        functions = {strip_control_chars(row.waits_for, 64) for _, row in idle} - {""}
        if functions:
            text = joined("", (text, filled(", sleeping in {0}", ", ".join(sorted(functions)[:4]))))
        return self._make_failure("not-started", self._ranks_of(idle), text, "start", limit=START)

    def _ranks_of(self, rows: Iterable[tuple[str, StartingInterpreter]]) -> list[int]:
        ranks = [self.ranks[host] if row.rank < 0 else (row.rank,) for host, row in rows]
        return [rank for some in ranks for rank in some if rank not in self._loaded]

    def _parent_exit_failure(self, now: float) -> Failure | None:
        """All that fall for the same reason do so at about the same time."""
        first = min(self.parent_exits.values(), key=lambda parent_exit: parent_exit.at)
        if now - first.at < GRACE:
            return None
        alike = {host: fall.text for host, fall in self.parent_exits.items() if fall.kind == first.kind}
        ranks = [rank for host in alike for rank in self.ranks[host]]
        text = joined("; ", sorted(set(alike.values()))[:4])
        return self._make_failure(first.kind, ranks, text, "start" if first.kind == "not-started" else "", certain=True)

    @property
    def stage(self) -> str:
        """The first that not every rank has finished."""
        return next((stage for stage in self.plan.stages if stage not in self.reached), "")

    def _budget_failure(self, now: float) -> Failure | None:
        if now - self.began <= self.plan.budget:
            return None
        stage = self.stage
        behind = set(range(self.plan.world)) - self.finished.get(stage, set())
        if len(behind) == self.plan.world:
            behind = set()  # where no rank has finished the stage, none is more likely the culprit than others
        text = filled("the budget of {0} s was spent", f"{self.plan.budget:g}")
        if spinning := self.spinning_at_start():
            return spinning
        failure = self._make_failure("budget", behind, text, stage, limit=self.plan.budget)
        return msgspec.structs.replace(failure, evidence=tuple(self.still_importing()))

    def spinning_at_start(self) -> Failure | None:
        """Interpreters that have run for much longer than torch's import takes the others, and have not done it."""
        least = max(SPUN, SLOW_IMPORT * max(self.imports.values(), default=math.inf))
        spun = [(host, row) for host, row in self._starting_rows() if row.cpu > least]
        ranks = self._ranks_of(spun)
        if not ranks:
            return None
        text = "the interpreter ran for {0} s and had not imported torch, which took the others {1} s at most"
        text = filled(text, f"{min(row.cpu for _, row in spun):.0f}", f"{max(self.imports.values()):.0f}")
        return self._make_failure("not-started", ranks, text, "start", self.plan.budget)

    def still_importing(self) -> list[str]:
        """Sentences about the hosts whose interpreters have not imported everything yet: to be late is no fault."""
        ran = {host: row.cpu for of_agent in self.starting.values() for host, row in of_agent}
        hosts = dict.fromkeys(place.host for place in self.plan.places if place.rank not in self._loaded)
        text = "On {0} the interpreter had not imported everything yet{1}."
        return [
            filled(text, host, filled(", after {0} s on a CPU", f"{ran[host]:.0f}") if host in ran else "")
            for host in list(hosts)[:4]
        ]

    def _never_joined(self, refused: set[int], certain: bool) -> Failure:
        """Blames who reported an error of its own; the master's host when all others did, or most hosts."""
        texts = dict.fromkeys(self.join_attempts[rank].text for rank in sorted(refused))
        text, culprits, master = joined("; ", texts), refused, self.plan.host_of(0)
        unreached = all(self.join_attempts[rank].problem not in OWN_PROBLEMS for rank in refused)
        others, most = len({self.plan.host_of(rank) for rank in refused} - {master}), len(self.plan.ranks_by_host) - 1
        itself = not refused.isdisjoint(self.ranks[master])
        everywhere = refused.union(self.ranks[master]) >= set(range(self.plan.world))
        if unreached and len(texts) == 1 and (everywhere or 2 * others > most + 1):
            culprits = {*self.ranks[master], *(refused if others == 1 and not itself else ())}
            if itself:
                text = joined("", (text, "; its own ranks do not reach it either"))
            elif others == 1:
                text = joined("", (text, "; no third host shows which of the two it is"))
            elif others:
                text = filled("{0} of the {1} other hosts do not reach {2}: {3}", others, most, master, text)
        limit = 0.0 if certain else self.join_limit
        failure = self._make_failure("never-joined", culprits, text, "rendezvous", limit, certain)
        return msgspec.structs.replace(failure, unreached=others > 0 and culprits == set(self.ranks[master]))

    def _make_failure(
        self, kind: FailureKind, ranks: Iterable[int], text: str, stage: str, limit: float = 0.0, certain: bool = False
    ) -> Failure:
        culprits = tuple(sorted(ranks))
        waiting_ranks = tuple(sorted(set(range(self.plan.world)).difference(culprits)))
        certainty = "certain" if certain else "timeout"
        return Failure(kind, culprits, waiting_ranks, (), certainty, stage, text=text, limit=limit)  # type: ignore[arg-type]

    @property
    def complete(self) -> bool:
        return len(self.done) == self.plan.world

    def layout_name(self, ranks: Iterable[int]) -> str:
        """Name of the layout that the first of these ranks was training, or the empty string."""
        numbers = (self.layout.get(rank, -1) for rank in ranks)
        return next((self.plan.layouts[number].name for number in numbers if 0 <= number < len(self.plan.layouts)), "")


def describe_wait_status(status: int) -> str:
    """A wait status in words."""
    return (
        filled("killed by signal {0}", status & 127) if status & 0x7F else filled("exit status {0}", status >> 8 & 255)
    )


def innermost_first(body: str) -> str:
    r"""The frames of a traceback, innermost call first.

    >>> innermost_first('  File "t.py", line 9, in <module>\n    run()\n  File "t.py", line 3, in run\n')
    'File "t.py", line 3 in run\nFile "t.py", line 9 in <module>'
    """
    frames = [_FRAME.match(line) for line in body.splitlines()]
    return _stack([match.groups() for match in frames if match][::-1])


def _stack(frames: Sequence[Sequence[str]]) -> str:
    lines = [f'File "{path}", line {number} in {name}' for path, number, name in frames[:MAX_FRAMES]]
    return "\n".join(strip_control_chars(line, 400) for line in lines)
