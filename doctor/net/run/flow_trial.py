"""Whether some flows of two hosts fail on every port alike, as where one of several equal paths is broken. Pure.

A switch or a bond chooses the path of a connection by a hash of addresses and ports (ECMP: RFC 2992; Linux,
bonding.rst, xmit_hash_policy). Where one path is broken, the same flow fails each time, and others pass each time. A
second attempt comes from another source port, and passes by chance. So where two hosts reach each other in part, flows
from several source ports are tried, and then the very same ones again: what is lost by chance does not repeat itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cached_property
from random import Random

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import filled
from doctor.net.plan import NetPlan
from doctor.net.run.busy_hosts import DECIDED, UNANSWERED, HostTrial

LEAST_TRIES = 8
"""Attempts from one host to another before their trial is decided on: of a fourth that fails, one in ten is missed."""
MOST_TARGETS = 8
"""Of one host, whose flows are tried."""
FLOWS = 32
"""To one target; a quarter of 32 that fails is missed once in 10,000 times."""
LEAST_FLOWS = 2
"""That fail each time, and that pass each time: one flow may be anything."""
CERTAIN_FLOWS = 4
"""The same where a host was busy: that the same 4 of 32 are late twice, in another order, is one chance in 35,960."""
HOPELESS_TRIES = 8
"""Attempts without an answer, beside none that had one, from which on no flow passes."""
ARRIVED_SHARE = 0.8
"""Of the flows that fail: their first packet arrived, and so it is the way back that is broken."""

Target = tuple[int, str, int, bool, int]
"""Host, address, port, whether full-size packets are tried, source port (0: the kernel's choice)."""


class SingleCalls:
    """What found no answer at hosts that answer others, one after another, until one to a host fails again.

    A rule that lets few calls a second pass stops no job: the kernel tries each call for two minutes (tcp(7)).
    """

    def __init__(self, results: Mapping[str, HostTrial], failed: Mapping[str, list[Target]]) -> None:
        answered = {target for result in results.values() for target, good in result.tries if good}
        calls = ((call[0], (host, call)) for host, made in failed.items() for call in made if call[0] in answered)
        self.pending = lists_by_key(calls)
        self.limited = set(self.pending)
        """Hosts that have answered each of theirs."""

    def take_next(self) -> dict[str, list[Target]]:
        """By source, a call to each of these hosts."""
        self._made = {target: calls.pop() for target, calls in self.pending.items()}
        self.pending = {target: calls for target, calls in self.pending.items() if calls}
        return lists_by_key(self._made.values())

    def keep_answered(self, failed: Mapping[str, list[Target]]) -> None:
        """Takes out the hosts to which the last call is among those that have failed again."""
        for target, (host, call) in self._made.items():
            if call in failed.get(host, ()):
                self.pending.pop(target, None)
                self.limited.discard(target)


class FlowTrial(msgspec.Struct, frozen=True, dict=True):
    """What became of the flows from one host to another; a flow is a place of a port, and a source port."""

    failing: tuple[tuple[int, int], ...] = ()
    """Each time."""
    passing: tuple[tuple[int, int], ...] = ()
    """Each time."""
    unsteady: tuple[tuple[int, int], ...] = ()
    """One time and not another."""

    @cached_property
    def blocked(self) -> frozenset[int]:
        """Places of ports that no flow reached, while others did reach another port."""
        reached = {place for place, _ in (*self.passing, *self.unsteady)}
        return frozenset({place for place, _ in self.failing} - reached) if self.passing else frozenset()

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """The flows that fail each time, and whose port is not to blame."""
        return tuple(flow for flow in self.failing if flow[0] not in self.blocked)

    @property
    def is_by_flow(self) -> bool:
        """Whether the flow decides, and not chance."""
        return not self.unsteady and min(len(self.lost), len(self.passing)) >= LEAST_FLOWS

    @property
    def is_certain(self) -> bool:
        """Whether the flow decides, however busy the hosts were."""
        return self.is_by_flow and min(len(self.lost), len(self.passing)) >= CERTAIN_FLOWS

    @property
    def text(self) -> str:
        """For a detail; call it where `is_by_flow`.

        >>> FlowTrial(((0, 40001), (0, 40007)), ((0, 40002), (0, 40003), (0, 40004))).text
        '2 of 5 source ports fail each time, such as 40001, and 3 pass each time, such as 40002'
        """
        lost, passing = self.lost, self.passing
        text = "{0} of {1} source ports fail each time, such as {2}, and {3} pass each time, such as {4}"
        return filled(text, len(lost), len(lost) + len(passing), lost[0][1], len(passing), passing[0][1])


def more_tries(plan: NetPlan, results: Mapping[str, HostTrial]) -> dict[str, list[Target]]:
    """More attempts, by source, to those whom it tried on few ports: from other source ports, `LEAST_TRIES` in all."""
    more: dict[str, list[Target]] = {}
    for number, host in enumerate(plan.hosts):
        for target, places in plan.targets(number):
            listening = _listening(plan, results, target, places)
            lacking = LEAST_TRIES - len(listening)
            more.setdefault(host, []).extend(
                listening[turn % len(listening)][1] for turn in range(lacking) if listening
            )
    return {host: targets for host, targets in more.items() if targets}


def flow_targets(plan: NetPlan, results: Mapping[str, HostTrial]) -> dict[str, list[Target]]:
    """The flows to try, by source: of pairs that reach each other in part, then of others of the same hosts."""
    suspected = {
        (number, target)
        for number, host in enumerate(plan.hosts)
        for target in range(len(plan.hosts))
        if target != number and results[host].tries[target, True] and results[host].tries[target, False]
    }
    ends = {host for pair in suspected for host in pair}
    chosen: dict[str, list[Target]] = {}
    for number, host in enumerate(plan.hosts):
        pairs = [(target, places) for target, places in plan.targets(number) if {number, target} & ends]
        tries = results[host].tries
        pairs = [pair for pair in pairs if tries[pair[0], True] or tries[pair[0], False] < HOPELESS_TRIES]
        pairs.sort(key=lambda pair: (number, pair[0]) not in suspected)
        for target, places in pairs[:MOST_TARGETS]:
            listening = _listening(plan, results, target, places)
            attempts = results[host].attempts
            failed = [
                item for item in listening if (target, item[0]) in attempts
                and attempts[target, item[0]].outcome in UNANSWERED
            ]  # fmt: skip
            others = [item for item in listening if item not in failed]
            taken = [*failed[:1], *others[-1:]]
            for _, attempt in taken:
                chosen.setdefault(host, []).extend([attempt] * (FLOWS // len(taken)))
    return chosen


def _listening(
    plan: NetPlan, results: Mapping[str, HostTrial], target: int, places: list[int]
) -> list[tuple[int, Target]]:
    """The places of these at which a target listens, each with an attempt to it."""
    endpoint, listeners = plan.endpoints[target], results[plan.hosts[target]].listeners
    return [
        (place, (target, endpoint.addresses[plan.ports[place].purpose], listeners[place].port, False, 0))
        for place in places
        if place in listeners and not listeners[place].problem and listeners[place].port
    ]


def flows_again(results: Mapping[str, HostTrial]) -> dict[str, list[Target]]:
    """The same flows once more, by source, to those of whose flows some failed and some passed.

    In another order: a busy host is late with those that come last, or first.
    """
    again: dict[str, list[Target]] = {}
    for host, result in results.items():
        for target, trial in flow_trials(result).items():
            if trial.lost and trial.passing:
                again.setdefault(host, []).extend(
                    (target, tries[0].address, tries[0].port, False, source)
                    for (to, _, source), tries in result.flows.items()
                    if to == target and len(tries) == 1
                )
    for host, targets in again.items():
        Random(host).shuffle(targets)
    return again


def flow_trials(result: HostTrial) -> dict[int, FlowTrial]:
    """What became of a host's flows, by target."""
    by_target: dict[int, dict[tuple[int, int], list[str]]] = {}
    for (target, place, source), tries in result.flows.items():
        outcomes = [attempt.outcome for attempt in tries]
        if source and outcomes and DECIDED.issuperset(outcomes):
            by_target.setdefault(target, {})[place, source] = outcomes
    return {target: _trial(flows) for target, flows in by_target.items()}


def _trial(flows: Mapping[tuple[int, int], list[str]]) -> FlowTrial:
    answers = {flow: {word == "open" for word in outcomes} for flow, outcomes in sorted(flows.items())}
    failing, passing = (tuple(flow for flow, all_ in answers.items() if all_ == {passed}) for passed in (False, True))
    return FlowTrial(failing, passing, tuple(flow for flow, all_ in answers.items() if len(all_) > 1))


def lossy_flows(plan: NetPlan, results: Mapping[str, HostTrial]) -> dict[tuple[int, int], FlowTrial]:
    """By source and target: the trials in which the flow decides; between hosts that were busy, with more evidence."""
    busy = _busy(plan, results)
    return {
        (number, target): trial
        for number, host in enumerate(plan.hosts)
        for target, trial in flow_trials(results[host]).items()
        if (trial.is_certain if {number, target} & busy else trial.is_by_flow)
        and all(len(results[host].flows[target, at, source]) > 1 for at, source in (*trial.lost, *trial.passing))
    }


def undecided_flows(plan: NetPlan, results: Mapping[str, HostTrial]) -> dict[tuple[int, int], int]:
    """By source and target: the busy host that keeps a trial from deciding, though flows failed each time.

    Where flows come and go packets are lost: the kernel answers the first one, however long a program waits for a CPU.
    """
    busy, decided = _busy(plan, results), lossy_flows(plan, results)
    return {
        (number, target): min({number, target} & busy)
        for number, host in enumerate(plan.hosts)
        for target, trial in flow_trials(results[host]).items()
        if trial.lost and not trial.unsteady and {number, target} & busy and (number, target) not in decided
    }


def _busy(plan: NetPlan, results: Mapping[str, HostTrial]) -> set[int]:
    return {number for number, host in enumerate(plan.hosts) if results[host].flows_busy}


def is_open(result: HostTrial, target: int, place: int) -> bool:
    """Whether at least half of the flows to a port of a target were answered, so that the port is not to blame."""
    outcomes = [
        attempt.outcome == "open"
        for (to, at, _), tries in result.flows.items()
        if (to, at) == (target, place)
        for attempt in tries
        if attempt.outcome in DECIDED
    ]
    return len(outcomes) >= HOPELESS_TRIES and 2 * sum(outcomes) >= len(outcomes)


def has_arrived(trial: FlowTrial, ports: Mapping[int, int], arrivals: Set[tuple[int, int]]) -> bool:
    """Whether the target saw the first packets of the flows that fail, so that it is the way back that is broken.

    ``ports``: the target's, by place. ``arrivals``: source port and port of each call of that source that came.
    """
    lost = trial.lost
    number = sum((source, ports.get(place, 0)) in arrivals for place, source in lost)
    return bool(lost) and number >= ARRIVED_SHARE * len(lost)
