"""Conducts a network test: all hosts listen, then connect as the schedule says, then measure, then all is closed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.net.matrix import PathSpeed
from doctor.net.plan import NetOptions, NetPlan, services_of
from doctor.net.run.busy_hosts import CLOSED, GAVE_UP, TIMED_OUT, HostTrial, busy_note, busy_text, undecided
from doctor.net.run.device_rounds import try_devices
from doctor.net.run.flow_trial import SingleCalls, Target, flow_targets, flows_again, more_tries, undecided_flows
from doctor.net.run.repeats import as_disturbed, is_certain, is_disturbed, path_beside, path_speed
from doctor.net.run.sessions import ListenerReport, ProberMessage, Probers, SpeedReport
from doctor.net.slow_paths import suspects
from doctor.transport import Transport
from doctor.transport.program import ProgramLost

START_SECONDS = 20.0
LISTEN_SECONDS = 10.0
MAX_CONFIRMATIONS = 256
"""Failed attempts of one host that are made a second time."""
FIRST, CONFIRMATION, PATIENT, MORE, FLOWS, FLOWS_AGAIN = 1, 2, 3, 4, 5, 6
PATIENT_FACTOR = 2.0
"""Times as long as any other an attempt waits that timed out where a host was busy."""
ALONE_SECONDS = 30.0
"""For attempts that are made one after another."""
SAMPLE_SECONDS = (0.5, 2.5)
"""After the start of the second attempts: when targets look which calls have arrived. The kernel forgets one as soon as
it finds no way back, which may be within 3 s."""
ANSWER_SECONDS = 5.0
"""For what a prober answers at once."""
ECHOES = 200
STREAMS = 4
MAX_SPEED_BYTES = 256 << 20
"""Of each measurement: what one pair of hosts puts on the network at a time."""
SPEED_SECONDS = 0.5
"""Of each measurement at most: latency, one stream, several."""
LEAST_SPEED_SECONDS = 0.05
REPETITIONS = (4, 3)
"""Of a path that looks slow, then of one that still does: one figure of a small fleet needs five measurements to be no
chance, and eight where two paths look so."""
MAX_SUSPECTS = 8


class NetTest(msgspec.Struct, frozen=True):
    """A network test as it was conducted."""

    plan: NetPlan
    results: dict[str, HostTrial]
    lost: dict[str, str]
    seconds: float
    stopped: BaseException | None = None
    notes: tuple[str, ...] = ()


PhaseCallback = Callable[[str, float], None]


class Conductor:
    """Sends each phase's orders and takes in what comes back."""

    def __init__(
        self,
        plan: NetPlan,
        options: NetOptions,
        transport: Transport,
        *,
        within: tuple[str, ...] = (),
        python: str = "",
        on_phase: PhaseCallback = lambda name, seconds: None,
    ) -> None:
        self.plan, self.options, self.on_phase = plan, options, on_phase
        self.began = time.monotonic()
        self.end = self.began + options.budget
        self.results = {host: HostTrial() for host in plan.hosts}
        self.notes: list[str] = []
        self._arrivals_asked: Counter[str] = Counter()
        self._places: dict[tuple[int, str, int], int] = {}
        """Of a port, by target, address and number."""
        self.probers = Probers(plan.hosts, transport, options.budget, within, python)
        self.probers.on_message = self._take

    def run(self) -> NetTest:
        """All phases; what interrupts them is in the result."""
        stopped: BaseException | None = None
        try:
            self._start()
            self._listen()
            self._connect(FIRST, self._first_targets())
            self._connect(MORE, more_tries(self.plan, self.results))
            self._confirm()
            self._try_flows()
            if self.options.mode == "full":
                busy = self._busy_hosts() if self.options.speeds and not self.options.force else {}
                if self.options.speeds:
                    self._measure(busy)
                if self.options.devices:
                    self.on_phase("devices", 0.0)
                    load = self.options.speeds and not busy
                    self.notes += try_devices(self.plan, self.results, self.probers, self.end, load=load)
        except (KeyboardInterrupt, SystemExit) as stop:
            stopped = stop
        finally:
            self.probers.close()
        seconds = time.monotonic() - self.began
        lost = {host: reason.text for host, reason in self.probers.lost.items()}
        return NetTest(self.plan, self.results, lost, seconds, stopped, tuple(self.notes))

    # -- what comes back

    def _take(self, host: str, message: ProberMessage) -> None:
        result = self.results[host]
        if message.listening is not None and not result.has_listened:
            self._take_listeners(host, message.listening)
        for attempt in (self.probers.verified(host, report) for report in message.attempts or ()):
            place = self._places.get((attempt.peer, attempt.address, attempt.port))
            if place is not None:
                result.take_attempt(place, attempt, of_flow=message.round > PATIENT, repeats=message.round > MORE)
        if message.done is not None:
            result.done.add(message.done)
        if message.arrived is not None:
            result.arrived = {*(result.arrived or ()), *message.arrived}
            result.arrivals_reported += 1
        result.take_state(message)
        if message.speed is not None:
            result.measured.add(message.round)
            if message.speed.single and 0 <= message.speed.host < len(self.plan.hosts):
                result.speeds.append(message.speed)
        if message.fault:
            result.faults.append(message.fault)

    def _take_listeners(self, host: str, reports: list[ListenerReport]) -> None:
        result, number = self.results[host], self.plan.hosts.index(host)
        endpoint = self.plan.endpoints[number]
        for (place, _, _), report in zip(services_of(endpoint, self.plan.ports), reports, strict=False):
            result.listeners[place] = report
            if not report.problem and report.port:
                address = endpoint.addresses[self.plan.ports[place].purpose]
                self._places[number, address, report.port] = place
        result.has_listened = True

    # -- the phases

    def _answering(self) -> list[str]:
        return [host for host in self.plan.hosts if host not in self.probers.lost]

    def _wait(self, ready: Callable[[HostTrial], bool], seconds: float, hosts: Collection[str] = ()) -> None:
        """Until each of these hosts (none: all) is ready, of those that still answer."""
        waiting, lost = hosts or self.plan.hosts, self.probers.lost
        deadline = min(time.monotonic() + seconds, self.end)
        self.probers.wait(lambda: all(host in lost or ready(self.results[host]) for host in waiting), deadline)

    def _start(self) -> None:
        self.on_phase("connect", 0.0)
        self._wait(lambda result: result.hello is not None, START_SECONDS)
        self._leave_out_twins()

    def _leave_out_twins(self) -> None:
        """Of two names that lead to one host the second: it could not listen beside the first."""
        first: dict[str, str] = {}
        for host, result in self.results.items():
            identity = str((result.hello or {}).get("network") or "")
            if identity and first.setdefault(identity, host) != host:
                text = filled("the host that answers is the one that answers as {0}", first[identity])
                self.probers.lost[host] = ProgramLost(text)

    def _listen(self) -> None:
        self.on_phase("listen", 0.0)
        for host, endpoint in zip(self.plan.hosts, self.plan.endpoints, strict=True):
            services = [(address, number) for _, address, number in services_of(endpoint, self.plan.ports)]
            self.probers.send(host, {"do": "listen", "services": services})
        self._wait(lambda result: result.has_listened, LISTEN_SECONDS)

    def _first_targets(self) -> dict[str, list[Target]]:
        """For each host its attempts, ports of one target together."""
        by_host: dict[str, list[Target]] = {}
        for number, host in enumerate(self.plan.hosts):
            targets = by_host[host] = []
            for target, places in self.plan.attempts_of(number):
                targets += self._listening_ports(target, places)
        return by_host

    def _listening_ports(self, target: int, places: list[int]) -> list[Target]:
        """The last of a host's ports, mostly the one that the kernel gave, is tried with full-size packets."""
        listeners = self.results[self.plan.hosts[target]].listeners
        open_ports = [(place, listeners[place]) for place in places if place in listeners]
        open_ports = [(place, report) for place, report in open_ports if not report.problem]
        addresses = self.plan.endpoints[target].addresses
        return [
            (target, addresses[self.plan.ports[place].purpose], report.port, place == open_ports[-1][0], 0)
            for place, report in open_ports
        ]

    def _confirm(self) -> None:
        """What failed is tried once more, and, where a host was too busy to answer, a third time with more patience."""
        failed = self._failed_targets()
        late = self._targets_with(TIMED_OUT)
        if late:
            self._read_pace()  # what it tells is of the first attempts
        self._connect(CONFIRMATION, failed, reporters=late)
        if late:
            self._note_busy()
        if undecided(self._trials()):
            self._connect(PATIENT, self._failed_targets(TIMED_OUT), patience=PATIENT_FACTOR)
            self._note_busy()
        self._try_one_by_one()
        self._ask_arrived(self._targets_with(TIMED_OUT))
        self._ask_given_up(self._targets_with({CLOSED}))
        blamed = {self.plan.hosts[number] for number in undecided(self._trials()).values()}
        if blamed:
            self.notes.append(busy_note({host: self.results[host].busy or GAVE_UP for host in sorted(blamed)}))

    def _try_one_by_one(self) -> None:
        calls, number = SingleCalls(self.results, self._failed_targets({"dropped"})), 0
        end = min(time.monotonic() + ALONE_SECONDS, self.end - self.options.attempt_seconds)
        while calls.pending and time.monotonic() < end:
            number -= 1
            self._connect(number, calls.take_next())
            calls.keep_answered(self._failed_targets())
        if calls.limited and not calls.pending:
            text = "network test: {0} answered some calls only one after another: a limit delays the start of a job"
            names = [strip_control_chars(self.plan.hosts[target], 60) for target in sorted(calls.limited)[:4]]
            self.notes.append(filled(text, ", ".join(names)))

    def _try_flows(self) -> None:
        """Whether some flows of two hosts fail on every port alike; the same flows again, where some passed."""
        targets = flow_targets(self.plan, self.results)
        if not targets or time.monotonic() + 2 * self.options.attempt_seconds + ANSWER_SECONDS > self.end:
            return
        reporters = {self.plan.hosts[target[0]] for of_host in targets.values() for target in of_host}
        self._read_pace()
        self._connect(FLOWS, targets, reporters=reporters)
        again = flows_again(self.results)
        self._connect(FLOWS_AGAIN, again, reporters=reporters)
        if again:
            self._ask_arrived(reporters)
        self._read_pace()
        for host, result in self.results.items():
            result.flows_busy = "" if host in self.probers.lost else busy_text(result.pace)
        unsure = {self.plan.hosts[number] for number in undecided_flows(self.plan, self.results).values()}
        if unsure:
            self.notes.append(busy_note({host: self.results[host].flows_busy for host in sorted(unsure)}))

    def _trials(self) -> dict[int, HostTrial]:
        return {number: self.results[host] for number, host in enumerate(self.plan.hosts)}

    def _failed_targets(self, outcomes: Collection[str] = ()) -> dict[str, list[Target]]:
        """The failed attempts once more: what was only late or lost by chance passes now. ``outcomes``: those alone."""
        failed: dict[str, list[Target]] = {}
        for host, result in self.results.items():
            again = []
            for (target, place), attempt in sorted(result.attempts.items()):
                if attempt.outcome not in ("open", "untried", "local") and attempt.outcome in (
                    outcomes or (attempt.outcome,)
                ):
                    bulk = place == max(self.results[self.plan.hosts[target]].listeners, default=-1)
                    again.append((target, attempt.address, attempt.port, bulk, 0))
            if again:
                failed[host] = again[:MAX_CONFIRMATIONS]
        return failed

    def _targets_with(self, outcomes: Collection[str]) -> set[str]:
        """Hosts to which attempts have come to one of these."""
        return {
            self.plan.hosts[target]
            for result in self.results.values()
            for (target, _), attempt in result.attempts.items()
            if attempt.outcome in outcomes
        }

    def _connect(
        self,
        number: int,
        targets: Mapping[str, list[Target]],
        *,
        reporters: Collection[str] = (),
        patience: float = 1.0,
    ) -> None:
        """Every host makes its attempts, at its own pace; all are over when the last has reported.

        ``reporters``: hosts that say now and then which calls have arrived.
        """
        if not targets:
            return
        self.on_phase("try", 0.0)
        total, seconds = max(1.0, self.end - time.monotonic() - 3.0), self.options.attempt_seconds * patience
        for host, host_targets in targets.items():
            order = {"do": "connect", "number": number, "seconds": seconds, "total": total}
            self.probers.send_targets(host, host_targets, order)
        finished = lambda: all(  # noqa: E731
            number in self.results[host].done or host in self.probers.lost for host in targets
        )
        began, deadline = time.monotonic(), min(time.monotonic() + total + 2.0, self.end)
        for after in SAMPLE_SECONDS if reporters else ():
            if not self.probers.wait(finished, min(began + after, deadline)):
                self._order_arrived(reporters)
        self.probers.wait(finished, deadline)

    def _order_arrived(self, hosts: Collection[str]) -> None:
        for host in hosts:
            self._arrivals_asked[host] += 1
            self.probers.send(host, {"do": "arrived"})

    def _ask_arrived(self, hosts: Collection[str]) -> None:
        """Where attempts had no answer: whether their first packet arrived, and so which direction loses packets."""
        if hosts:
            self._order_arrived(hosts)
            waiting = [host for host in hosts if host not in self.probers.lost]
            self.probers.wait(
                lambda: all(self.results[host].arrivals_reported >= self._arrivals_asked[host] for host in waiting),
                min(time.monotonic() + ANSWER_SECONDS, self.end),
            )

    def _ask_given_up(self, hosts: Collection[str]) -> None:
        """Where connections were closed before a word was said: whether the target did so itself, in need."""
        for host in hosts:
            self.probers.send(host, {"do": "given-up"})
        if hosts:
            self._wait(lambda result: result.given_up is not None, ANSWER_SECONDS, hosts)

    def _read_pace(self) -> None:
        """Asks every host how far it let its prober run since it was last asked."""
        for host, result in self.results.items():
            result.pace = None
            self.probers.send(host, {"do": "pace"})
        self._wait(lambda result: result.pace is not None, ANSWER_SECONDS)

    def _note_busy(self) -> None:
        """Which hosts were too busy to answer the last attempts; one that does not even answer this is."""
        self._read_pace()
        for host, result in self.results.items():
            result.busy = "" if host in self.probers.lost else busy_text(result.pace)

    # -- speeds

    def _measure(self, busy: Mapping[str, str]) -> None:
        """Each pair of the schedule, in both directions, one after the other: no host is in two pairs at a time."""
        self.on_phase("speed", 0.0)
        if busy:
            names = ", ".join(filled("{0} ({1})", host, text) for host, text in list(busy.items())[:4])
            self.notes.append(
                filled("network speeds were not measured: a job runs on {0}; --force measures all the same", names)
            )
            return
        schedule = self.plan.schedule
        seconds = min(SPEED_SECONDS, (self.end - time.monotonic() - 3.0) / max(1, schedule.rounds * 2 * 3) * 0.7)
        if seconds < LEAST_SPEED_SECONDS:
            self.notes.append("network speeds were not measured: the time budget is too short for all pairs")
            return
        for number in range(schedule.rounds):
            pairs = schedule.pairs(number)
            for forward in (True, False):
                self._measure_pairs(2 * number + forward, pairs if forward else [(b, a) for a, b in pairs], seconds)
        self._measure_again(2 * schedule.rounds, seconds)

    def _measure_again(self, number: int, seconds: float) -> None:
        """Paths that look slow, each alone and in turns: what was slow by chance is not slow again."""
        for repetitions in REPETITIONS:
            paths = suspects(self._speeds(), MAX_SUSPECTS)
            counted = dict.fromkeys(paths, 0)
            for turn in range(2 * repetitions):
                for path in paths:
                    if counted[path] >= repetitions:
                        continue
                    if time.monotonic() + 12 * seconds > self.end:
                        return
                    counted[path] += self._measure_beside(number, path, turn, paths, seconds)
                    number += 2

    def _measure_beside(
        self, number: int, path: tuple[int, int], turn: int, paths: Collection[tuple[int, int]], seconds: float
    ) -> bool:
        """Measures a path, after one that does not look slow; if that is slow as well, most figures do not count.

        Whether the measurement decides something.
        """
        beside = path_beside(path, self._speeds(), paths, turn)
        pairs = [(beside.source, beside.target), path] if beside else [path]
        measured = {pair: self._measure_alone(number + place, *pair, seconds) for place, pair in enumerate(pairs)}
        disturbed = beside is not None and any(
            is_disturbed(beside, path_speed(beside.source, report)) for report in measured[pairs[0]]
        )
        for (source, _), reports in measured.items():
            self.results[self.plan.hosts[source]].speeds += map(as_disturbed, reports) if disturbed else reports
        return not disturbed or any(map(is_certain, measured[path]))

    def _measure_alone(self, number: int, source: int, target: int, seconds: float) -> list[SpeedReport]:
        """The reports of one path, taken out of its source's."""
        reports = self.results[self.plan.hosts[source]].speeds
        before = len(reports)
        self._measure_pairs(number, [(source, target)], seconds)
        measured = reports[before:]
        del reports[before:]
        return measured

    def _speeds(self) -> list[PathSpeed]:
        places = {host: place for place, host in enumerate(self.plan.hosts)}
        return [path_speed(places[host], report) for host, result in self.results.items() for report in result.speeds]

    def _measure_pairs(self, number: int, pairs: list[tuple[int, int]], seconds: float) -> None:
        waiting: set[str] = set()
        for source, target in pairs:
            host = self.plan.hosts[source]
            to = self.results[host].open_address(target, len(self.plan.ports))
            if to is None or {host, self.plan.hosts[target]} & self.probers.lost.keys():
                continue
            order = {
                "do": "speed",
                "number": number,
                "target": [*to, target],
                "echoes": ECHOES,
                "seconds": seconds,
                "limit": MAX_SPEED_BYTES,
                "streams": STREAMS,
            }
            self.probers.send(host, order)
            waiting.add(host)
        if waiting:
            self._wait(lambda result: number in result.measured, 3 * seconds + 15.0, waiting)

    def _busy_hosts(self) -> dict[str, str]:
        """Hosts on which a job runs, and by what that is seen."""
        for host in self._answering():
            self.probers.send(host, {"do": "job"})
        self._wait(lambda result: result.job is not None, 5.0)
        busy = {}
        for host, result in self.results.items():
            held = {place: report for place, report in result.listeners.items() if report.owner}
            taken = [self.plan.ports[place].label for place, report in held.items() if not report.is_of_service]
            if result.job:
                pid, command = result.job[0]
                busy[host] = filled("{0}, pid {1}, has an accelerator open", strip_control_chars(command, 40), pid)
            elif taken:
                busy[host] = filled("port {0} is taken", taken[0])
        return busy
