"""What one host has answered so far in a network test."""

from __future__ import annotations

from collections import Counter

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
