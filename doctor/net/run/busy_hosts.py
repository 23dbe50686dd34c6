"""What one host has answered so far in a network test, and hosts that were too busy to answer in time. Pure.

What timed out on a busy host says nothing of the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.facts.peer_connections import LONGEST_TURN
from doctor.net.run.sessions import AttemptReport, ListenerReport, PaceReport, ProberMessage, SpeedReport

UNANSWERED = frozenset({"dropped", "unreachable"})
"""What an attempt comes to on a path that is broken."""
DECIDED = UNANSWERED | {"open"}
MOST_TRIES = 2
"""Of one flow, in the flow trial."""


class HostTrial:
    """What one host has answered so far."""

    def __init__(self) -> None:
        self.hello: dict[str, object] | None = None
        self.listeners: dict[int, ListenerReport] = {}
        """By place of the port."""
        self.has_listened = False
        self.attempts: dict[tuple[int, int], AttemptReport] = {}
        """By target and place of the port: the last one made."""
        self.done: set[int] = set()
        self.tries = Counter[tuple[int, bool]]()
        """How many attempts to a target, of all rounds, were answered, and how many were not."""
        self.flows: dict[tuple[int, int, int], list[AttemptReport]] = {}
        """By target, place of the port and source port: every attempt of the flow trial."""
        self.flows_busy = ""
        """What kept it from answering during the flow trial; empty where nothing did."""
        self.arrived: set[tuple[str, int, int]] | None = None
        """Caller's address and port, and the port here, of each call whose first packet came; all ever reported."""
        self.arrivals_reported = 0
        self.given_up: set[tuple[int, int]] | None = None
        """Port here and the caller's of each call that it closed on timeout or overload; None: it was not asked."""
        self.pace: PaceReport | None = None
        """As it answered when it was last asked."""
        self.busy = ""
        """What kept it from answering in time while the last attempts were made; empty where nothing did."""
        self.speeds: list[SpeedReport] = []
        self.measured: set[int] = set()
        """Numbers of the measurements that it has reported."""
        self.job: list[tuple[int, str]] | None = None
        self.programs: list[str] | None = None
        """Of the accelerators' own network, that it has."""
        self.serving: set[int] = set()
        self.called: dict[int, list[tuple[str, str, float]]] = {}
        """Label, output and seconds of the programs of each order."""
        self.devices: list[dict[str, object]] = []
        """What became of its devices' attempts: see `doctor.net.device_trials.DeviceTrial`."""
        self.faults: list[str] = []

    def take_attempt(self, place: int, attempt: AttemptReport, *, of_flow: bool, repeats: bool) -> None:
        """Takes in one attempt. ``of_flow``: it tries a flow, and decides no port; ``repeats``: of the flow trial."""
        if not of_flow:
            self.attempts[attempt.peer, place] = attempt
        if repeats:
            tries = self.flows.setdefault((attempt.peer, place, attempt.source_port), [])
            if len(tries) < MOST_TRIES:
                tries.append(attempt)
        elif attempt.outcome in DECIDED:
            self.tries[attempt.peer, attempt.outcome == "open"] += 1

    def open_address(self, target: int, ports: int) -> tuple[str, int] | None:
        """An address and port of the target that it has reached, the last of so many ports first."""
        tried = (self.attempts.get((target, place)) for place in reversed(range(ports)))
        return next(((report.address, report.port) for report in tried if report and report.outcome == "open"), None)

    def take_state(self, message: ProberMessage) -> None:
        """Takes in what a prober says of itself, its host, and the programs of the accelerators' own network."""
        if message.given_up is not None:
            self.given_up = set(message.given_up)
        self.hello = self.hello if message.hello is None else message.hello
        self.pace = self.pace if message.pace is None else message.pace
        self.job = self.job if message.job is None else message.job
        self.programs = self.programs if message.programs is None else message.programs
        if message.serving is not None:
            self.serving.add(message.serving)
        if message.called is not None:
            self.called[message.round] = message.called


TIMED_OUT = frozenset({"dropped", "silent", "sends-stall", "receives-stall"})
"""Outcomes of attempts that waited for an answer until their time was over."""
PROGRAM_LATE = TIMED_OUT - {"dropped"}
"""Those that a kernel had answered, and a program did not; unless a size was found from which on packets are lost."""
CLOSED = "cut"
"""The outcome of one that the other side closed before a word was said."""
WAITED_SHARE = 0.5
"""Of its time a prober waited for a CPU."""
STOLEN_SHARE = 0.3
"""Of the host's CPU time the hypervisor took."""
LEAST_SECONDS = 1.0
"""Below which the shares prove nothing."""

GAVE_UP = "it closed connections that it had no time or room for"
"""Of a host that is not busy by what it measured."""

Cell = tuple[int, int, int]
"""Source, target and place of the port."""


def busy_text(pace: PaceReport | None) -> str:
    """What kept a host from answering, in words; the empty string where nothing did.

    >>> busy_text(PaceReport(seconds=4.0, longest=2.5))
    'its programs did not run for 2.5 s at a stretch'
    """
    if pace is None:
        return "it did not say in time whether its programs run"
    parts = []
    if pace.longest >= LONGEST_TURN:
        parts.append(filled("its programs did not run for {0} s at a stretch", f"{pace.longest:.1f}"))
    if pace.seconds >= LEAST_SECONDS and pace.waited >= WAITED_SHARE * pace.seconds:
        parts.append(filled("they waited for a CPU for {0} of the time", f"{pace.waited / pace.seconds:.0%}"))
    if pace.seconds >= LEAST_SECONDS and pace.stolen >= STOLEN_SHARE:
        parts.append(filled("the hypervisor took {0} of its CPU time", f"{pace.stolen:.0%}"))
    return ", ".join(parts)


def undecided(trials: Mapping[int, HostTrial]) -> dict[Cell, int]:
    """The attempts that timed out because of a busy host, with that host's number; ``trials`` by number.

    A busy host with which as many attempts were answered as timed out did answer: there the network is to blame. What
    a program owed says nothing however many others it answered.
    """
    owed = {
        (source, target, place): target if attempt.outcome == CLOSED or trials[target].busy else source
        for source, trial in trials.items()
        for (target, place), attempt in trial.attempts.items()
        if target in trials and _was_owed(attempt, trial, trials[target])
    }
    return {**_late(trials), **owed}


def _was_owed(attempt: AttemptReport, source: HostTrial, target: HostTrial) -> bool:
    """Whether the target's kernel has answered, and its program, or the source's that reads, had no time or no room."""
    if attempt.outcome == CLOSED:
        return (attempt.port, attempt.source_port) in (target.given_up or ())
    return bool(source.busy or target.busy) and attempt.outcome in PROGRAM_LATE and not attempt.largest


def _late(trials: Mapping[int, HostTrial]) -> dict[Cell, int]:
    busy = {host for host, trial in trials.items() if trial.busy}
    if not busy:
        return {}
    late, answered = Counter[int](), Counter[int]()
    for source, target, _, outcome in _attempts(trials):
        counts = late if outcome in TIMED_OUT else answered
        counts.update({source, target} & busy)
    unproven = {host for host in busy if late[host] > answered[host]}
    return {
        (source, target, place): min({source, target} & unproven)
        for source, target, place, outcome in _attempts(trials)
        if outcome in TIMED_OUT and {source, target} & unproven
    }


def _attempts(trials: Mapping[int, HostTrial]) -> Iterator[tuple[int, int, int, str]]:
    for source, trial in trials.items():
        for (target, place), attempt in trial.attempts.items():
            if attempt.outcome not in ("local", "untried"):
                yield source, target, place, attempt.outcome


def busy_note(names: Mapping[str, str]) -> str:
    """One line on the busy hosts, by name what kept each."""
    some = joined(
        "; ", (filled("{0}: {1}", strip_control_chars(host, 60), text) for host, text in list(names.items())[:4])
    )
    more = filled("; and {0} more", len(names) - 4) if len(names) > 4 else ""
    return filled(
        "network test: hosts were too busy to answer in time ({0}{1}); what timed out there is unknown", some, more
    )
