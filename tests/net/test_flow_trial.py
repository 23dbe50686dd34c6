"""Some flows of two hosts that fail whatever their port, told from a blocked port, chance, and a host that is down."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from zlib import crc32

import pytest

from doctor.engine.evaluate import FactCache
from doctor.engine.fact import PerHost, Visit
from doctor.engine.record import HostRecord
from doctor.facts.network_test import NetworkAnswer
from doctor.net.findings import located_failures
from doctor.net.matrix import TestedPort
from doctor.net.plan import HostEndpoint, NetOptions, NetPlan
from doctor.net.run.busy_hosts import HostTrial
from doctor.net.run.conduct import NetTest
from doctor.net.run.flow_trial import (
    FLOWS,
    LEAST_TRIES,
    MOST_TARGETS,
    SingleCalls,
    Target,
    flow_targets,
    flows_again,
    more_tries,
)
from doctor.net.run.network_round import with_net_answers
from doctor.net.run.sessions import AttemptReport, ListenerReport
from doctor.net.schedule import full

HOSTS = 5
FIRST_PORT = 30000
Passes = Callable[[int, int, int, int], bool]
"""Whether a connection passes: source, target, source port, port."""


def plan_of(hosts: int, ports: int) -> NetPlan:
    endpoints = [HostEndpoint(f"n{host}", {"hccl": f"10.0.0.{host}"}) for host in range(hosts)]
    tested = tuple(TestedPort("hccl", FIRST_PORT + place) for place in range(ports))
    return NetPlan(tuple(endpoints), tested, full(hosts, ports), {})


class Network:
    """The hosts of a test on a network that is simulated: the orders of the conductor, and what comes of them."""

    def __init__(self, passes: Passes, *, hosts: int = HOSTS, ports: int = 2, seed: int = 1) -> None:
        self.plan, self.passes, self.random = plan_of(hosts, ports), passes, Random(seed)
        self.trials = {host: HostTrial() for host in self.plan.hosts}
        self.connections = 0
        for number, trial in enumerate(self.trials.values()):
            trial.has_listened = True
            trial.hello = {"addresses": {"eth0": [f"10.0.0.{number}"]}}
            for place in range(ports):
                trial.listeners[place] = ListenerReport("", FIRST_PORT + place, FIRST_PORT + place, "", {})

    def carry_out(self, orders: dict[str, list[Target]], *, of_flow: bool, repeats: bool) -> None:
        for host, targets in orders.items():
            for target, address, port, _, source in targets:
                self.connections += 1
                number, source_port = self.plan.hosts.index(host), source or self.random.randrange(32768, 61000)
                word = "open" if self.passes(number, target, source_port, port) else "dropped"
                report = AttemptReport(target, address, port, word, "", 0.1, 0, 0, source_port)
                self.trials[host].take_attempt(port - FIRST_PORT, report, of_flow=of_flow, repeats=repeats)

    def first(self) -> dict[str, list[Target]]:
        return {
            host: [
                (target, self.plan.endpoints[target].addresses["hccl"], FIRST_PORT + place, False, 0)
                for target, places in self.plan.targets(number)
                for place in places
            ]
            for number, host in enumerate(self.plan.hosts)
        }

    def run(self) -> list[tuple[str, tuple[str, ...], str]]:
        """As `Conductor` does; class, hosts and place of each failure."""
        self.carry_out(self.first(), of_flow=False, repeats=False)
        self.carry_out(more_tries(self.plan, self.trials), of_flow=True, repeats=False)
        failed = {
            host: [target for target in targets if self._failed(host, target)] for host, targets in self.first().items()
        }
        self.carry_out(failed, of_flow=False, repeats=False)
        self.connections = 0
        self.carry_out(flow_targets(self.plan, self.trials), of_flow=True, repeats=True)
        self.carry_out(flows_again(self.trials), of_flow=True, repeats=True)
        self.answers = self.judged()
        classes = ("unavailable", "foreign", "large", "flows", "port", "path")
        return [
            (located_failure.kind, located_failure.hosts, located_failure.place)
            for located_failure in located_failures(self.answers, *classes)
        ]  # type: ignore[arg-type]

    def judged(self) -> PerHost[NetworkAnswer]:
        test = NetTest(self.plan, self.trials, {}, 1.0)
        records = {host: HostRecord(Visit(), {}) for host in self.plan.hosts}
        return FactCache(with_net_answers(records, test, NetOptions(mode="full"))).fleet(NetworkAnswer)

    def _failed(self, host: str, target: Target) -> bool:
        return self.trials[host].attempts[target[0], target[2] - FIRST_PORT].outcome != "open"


def chosen(*flow: int, paths: int = 4) -> bool:
    """Whether the hash of a flow chooses the path that is broken."""
    return crc32(repr(flow).encode()) % paths == 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("ports", [2, 5, 34])
def test_a_broken_path_to_a_host(ports: int, seed: int) -> None:
    victim = seed % HOSTS
    network = Network(lambda s, t, *flow: t != victim or not chosen(s, t, *flow, seed), ports=ports, seed=seed)
    assert network.run() == [("flows", (f"n{victim}",), f"to n{victim}")]


@pytest.mark.parametrize("seed", range(10))
def test_a_broken_path_between_two_hosts_that_was_seen(seed: int) -> None:
    network = Network(lambda s, t, *flow: (s, t) != (1, 3) or not chosen(*flow, seed, paths=2), seed=seed)
    assert network.run() == [("flows", ("n1", "n3"), "from n1 to n3")]


@pytest.mark.parametrize("seed", range(10))
def test_a_blocked_port_is_no_matter_of_flows(seed: int) -> None:
    network = Network(lambda s, t, source_port, port: not (t == 2 and port == FIRST_PORT), seed=seed)
    assert network.run() == [("port", ("n2",), "to n2")]


@pytest.mark.parametrize("seed", range(10))
def test_a_blocked_port_of_a_host_to_which_a_path_is_broken(seed: int) -> None:
    """Something passes, and more than a port fails; the port is named once the path is mended."""
    network = Network(lambda s, t, *flow: t != 2 or not (flow[1] == FIRST_PORT or chosen(s, *flow, seed)), seed=seed)
    assert network.run() == [("flows", ("n2",), "to n2")]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("lost", [0.05, 0.3, 0.5, 0.7, 0.95])
def test_connections_that_fail_by_chance_are_no_matter_of_flows(lost: float, seed: int) -> None:
    random = Random(f"{seed} {lost}")
    network = Network(lambda s, t, *flow: t != 1 or random.random() >= lost, seed=seed)
    assert "flows" not in {kind for kind, _, _ in network.run()}


def test_a_host_that_is_down_costs_no_trial_of_flows() -> None:
    network = Network(lambda s, t, *flow: 4 not in (s, t))
    assert network.run() == [("path", ("n4",), "to and from n4")]
    assert network.connections == 0


def test_a_healthy_network_costs_no_trial_of_flows() -> None:
    network = Network(lambda *flow: True)
    assert network.run() == []
    assert network.connections == 0
    assert {count for trial in network.trials.values() for count in trial.tries.values()} == {LEAST_TRIES}


def test_what_failed_twice_and_passes_from_most_source_ports_is_unknown() -> None:
    network = Network(lambda *flow: True)
    attempts, failed = network.trials["n0"], AttemptReport(1, "10.0.0.1", FIRST_PORT, "dropped", "", 3.5, 0, 0, 40000)
    network.passes = lambda s, t, source_port, port: (s, t, port) != (0, 1, FIRST_PORT) or bool(attempts.flows)
    network._failed = lambda host, target: False  # type: ignore[method-assign]
    for _ in range(2):
        attempts.take_attempt(0, failed, of_flow=False, repeats=False)
    network.carry_out(network.first(), of_flow=False, repeats=False)
    network.passes = lambda *flow: True
    network.carry_out(flow_targets(network.plan, network.trials), of_flow=True, repeats=True)
    answers = network.judged()
    assert answers["n0"].rows[0][1] == "?"
    assert "comes and goes" in str(answers["n0"].answer["attempts"])


BUSY = "its programs did not run for 3.0 s at a stretch"


def test_many_flows_that_fail_twice_in_another_order_prove_a_broken_path_to_a_busy_host() -> None:
    network = Network(lambda s, t, *flow: t != 2 or not chosen(s, *flow))
    network.trials["n2"].flows_busy = BUSY
    assert network.run() == [("flows", ("n2",), "to n2")]


@pytest.mark.parametrize(("failing", "letter"), [(2, "?"), (3, "?"), (4, "f"), (16, "f")])
def test_few_flows_that_fail_each_time_at_a_busy_host_are_unknown(failing: int, letter: str) -> None:
    lost = set(range(40000, 40000 + failing))
    network = Network(lambda s, t, source_port, port: (s, t) != (1, 2) or source_port not in lost, ports=1)
    for _ in range(2):
        flows = [(2, "10.0.0.2", FIRST_PORT, False, 40000 + number) for number in range(FLOWS)]
        network.carry_out({"n1": flows}, of_flow=True, repeats=True)
    network.trials["n1"].attempts[2, 0] = AttemptReport(2, "10.0.0.2", FIRST_PORT, "dropped", "", 3.5, 0, 0, 40000)
    network.trials["n2"].flows_busy = BUSY
    answer = network.judged()["n1"]
    assert answer.rows[0][2] == letter
    assert (BUSY in answer.busy_text) is (letter == "?")


def test_a_port_that_is_blocked_on_a_busy_host_is_named() -> None:
    network = Network(lambda s, t, source_port, port: not (t == 2 and port == FIRST_PORT))
    network.trials["n2"].flows_busy = BUSY
    assert network.run() == [("port", ("n2",), "to n2")]


def test_flows_are_tried_again_in_another_order() -> None:
    network = Network(lambda s, t, *flow: t != 2 or not chosen(s, *flow))
    network.run()
    for trial in network.trials.values():
        trial.flows = {flow: tries[:1] for flow, tries in trial.flows.items()}
        source_port = {flow: tries for flow, tries in trial.flows.items() if flow[0] == 2}
        trial.flows = source_port
    again = flows_again(network.trials)["n1"]
    before = [(place + FIRST_PORT, source) for _, place, source in network.trials["n1"].flows]
    after = [(port, source) for _, _, port, _, source in again]
    assert sorted(after) == sorted(before)
    assert after != before


def test_the_trial_of_a_large_fleet_is_bounded() -> None:
    network = Network(lambda s, t, *flow: t != 7 or not chosen(s, *flow), hosts=40)
    assert network.run() == [("flows", ("n7",), "to n7")]
    assert network.connections <= 2 * 40 * MOST_TARGETS * FLOWS


@pytest.mark.parametrize("is_limited", [True, False])
def test_a_host_that_answers_some_is_called_by_one_after_another_until_one_fails(is_limited: bool) -> None:
    """A limit of calls a second lets each pass that comes alone; of a blocked port one call more is tried."""
    trials = {"n0": HostTrial(), "n1": HostTrial(), "n2": HostTrial()}
    trials["n0"].tries[2, True] = 1
    blocked: list[Target] = [(2, "10.0.0.2", FIRST_PORT, False, 0), (1, "10.0.0.1", FIRST_PORT, False, 0)]
    failed = {"n0": blocked, "n1": blocked[:1]}
    calls, made = SingleCalls(trials, failed), []
    while calls.pending:
        step = calls.take_next()
        made += [(host, call[0]) for host, ones in step.items() for call in ones]
        calls.keep_answered({} if is_limited else failed)
    assert sorted(made) == ([("n0", 2), ("n1", 2)] if is_limited else [("n1", 2)])  # nothing of n1 was ever answered
    assert calls.limited == ({2} if is_limited else set())
