"""What timed out at a host that was too busy is unknown; what a busy host failed beside its answers is not."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import pytest

from doctor import PerHost
from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.facts.network_test import NetworkAnswer
from doctor.facts.peer_connections import NO_ROOM
from doctor.net.findings import localized
from doctor.net.matrix import TestedPort
from doctor.net.plan import HostEndpoint, NetOptions, NetPlan
from doctor.net.prober.socket_loop import Pace
from doctor.net.run.busy_hosts import HostTrial, busy_text, undecided
from doctor.net.run.conduct import NetTest
from doctor.net.run.network_round import with_net_answers
from doctor.net.run.sessions import AttemptReport, ListenerReport, PaceReport
from doctor.net.schedule import full

HOSTS, PORTS = 4, 2
STOOD_STILL = busy_text(PaceReport(seconds=4.0, longest=3.0))


def trials(late: Collection[tuple[int, int]], busy: Collection[int], outcome: str = "dropped") -> dict[int, HostTrial]:
    """All pairs on two ports: those from and to as ``late`` says timed out, the others were answered."""
    created = {}
    for source in range(HOSTS):
        trial = created[source] = HostTrial()
        trial.has_listened, trial.busy = True, STOOD_STILL if source in busy else ""
        for place in range(PORTS):
            trial.listeners[place] = ListenerReport("", 0, 30000 + place, "", {})
            for target in set(range(HOSTS)) - {source}:
                word = outcome if (source, target) in late else "open"
                report = AttemptReport(target, f"10.0.0.{target}", 30000 + place, word, "", 3.5, 0, 0)
                trial.attempts[target, place] = report
    return created


EVERY = {(source, target) for source in range(HOSTS) for target in range(HOSTS) if source != target}
OF_LAST = {pair for pair in EVERY if HOSTS - 1 in pair}


@pytest.mark.parametrize("outcome", ["dropped", "silent", "sends-stall", "receives-stall"])
def test_where_all_hosts_are_too_busy_nothing_is_known(outcome: str) -> None:
    host_trials = trials(EVERY, range(HOSTS), outcome)
    assert {cell[:2] for cell in undecided(host_trials)} == EVERY
    assert len(undecided(host_trials)) == len(EVERY) * PORTS


def test_one_busy_host_excuses_its_own_attempts_alone() -> None:
    results = undecided(trials(OF_LAST | {(0, 1)}, [HOSTS - 1]))
    assert {cell[:2] for cell in results} == OF_LAST
    assert set(results.values()) == {HOSTS - 1}


def test_a_busy_host_that_answers_the_others_excuses_nothing() -> None:
    assert not undecided(trials({(0, HOSTS - 1)}, [HOSTS - 1]))


@pytest.mark.parametrize("outcome", ["refused", "stranger", "no-route", "other-host"])
def test_an_answer_is_never_excused(outcome: str) -> None:
    assert not undecided(trials(EVERY, range(HOSTS), outcome))


def test_what_the_target_itself_had_no_time_for_is_unknown_however_much_it_answered() -> None:
    host_trials = trials({(0, 1)}, [], "cut")
    assert not undecided(host_trials)
    host_trials[1].given_up = {(30000, 40001), (30001, 40002)}
    for place, source_port in ((0, 40001), (1, 40003)):
        report = AttemptReport(1, "10.0.0.1", 30000 + place, "cut", "", 3.5, 0, 0, source_port)
        host_trials[0].attempts[1, place] = report
    assert undecided(host_trials) == {(0, 1, 0): 1}


@pytest.mark.parametrize("outcome", ["silent", "sends-stall", "receives-stall"])
def test_what_a_busy_program_did_not_answer_is_unknown_however_much_it_answered(outcome: str) -> None:
    """Its kernel did: the network carried packets both ways. Or the answer came, and a busy source read it too late.

    Measured with 64 healthy hosts at a load of 56: "something else answers", of hosts that ran, by six that did not.
    """
    for busy in (0, 1):
        assert undecided(trials({(0, 1)}, [busy], outcome)) == {(0, 1, place): busy for place in range(PORTS)}


def test_a_size_that_was_found_to_pass_is_proof_on_a_busy_host() -> None:
    host_trials = trials({(0, 1)}, [1], "sends-stall")
    for cell in ((1, 0), (1, 1)):
        host_trials[0].attempts[cell] = msgspec.structs.replace(host_trials[0].attempts[cell], largest=1400)
    assert not undecided(host_trials)


def test_hosts_that_ran_are_blamed() -> None:
    assert not undecided(trials(EVERY, []))


def test_a_host_is_busy_by_what_it_measured() -> None:
    assert busy_text(PaceReport(seconds=3.6, longest=0.15, waited=0.4)) == ""
    assert busy_text(PaceReport(seconds=0.2, longest=0.15, waited=0.15, stolen=0.9)) == ""
    assert busy_text(PaceReport(seconds=4.0, longest=0.9, waited=2.4, stolen=0.4)) == (
        "they waited for a CPU for 60% of the time, the hypervisor took 40% of its CPU time"
    )
    assert busy_text(None) == "it did not say in time whether its programs run"


def test_a_prober_measures_its_turns() -> None:
    pace = Pace()
    pace.turn()
    pace.last -= 2.0  # as if it had not run since
    pace.turn()
    report = PaceReport(**pace.report())
    assert 2.0 <= report.longest < 60.0
    assert report.seconds < 60.0
    assert 0.0 <= report.stolen <= 1.0
    pace.restart()
    pace.turn()
    assert pace.report()["longest"] < 2.0


def recorded(host_trials: dict[int, HostTrial]) -> PerHost[NetworkAnswer]:
    names = [f"n{number}" for number in range(HOSTS)]
    endpoints = [HostEndpoint(name, {"ephemeral": f"10.0.0.{number}"}) for number, name in enumerate(names)]
    ports = tuple(TestedPort("ephemeral", place) for place in range(PORTS))
    plan = NetPlan(tuple(endpoints), ports, full(HOSTS, PORTS), {})
    test = NetTest(plan, {name: host_trials[number] for number, name in enumerate(names)}, {}, 1.0)
    records = with_net_answers({name: HostRecord(Visit(), {}) for name in names}, test, NetOptions(mode="full"))
    return FactCache(records).fleet(NetworkAnswer)


@pytest.mark.parametrize(("busy", "causes"), [(range(HOSTS), 0), ((), 1)])
def test_the_records_say_unknown_and_why(busy: Collection[int], causes: int) -> None:
    answers = recorded(trials(EVERY, busy))
    assert len(localized(answers).causes) == causes
    why = answers["n1"].unread.get("network test", "")
    assert bool(why) == bool(busy)
    assert ("on n0, its programs did not run for 3.0 s" in why) == bool(busy)


@pytest.mark.parametrize(("dead", "causes"), [((), 0), ((3,), 1)])
def test_what_a_kernel_had_no_room_for_is_unknown_and_the_table_is_named(dead: Collection[int], causes: int) -> None:
    """A host that no other one reaches is a finding beside it."""
    host_trials = trials({(source, target) for source, target in EVERY if {source, target} & {0, *dead}}, ())
    for (target, place), attempt in host_trials[0].attempts.items():
        untried = msgspec.structs.replace(attempt, outcome="untried", detail="ENOBUFS")
        host_trials[0].attempts[target, place] = untried
    for source in set(range(1, HOSTS)) - set(dead):
        for place in range(PORTS):
            to_first = host_trials[source].attempts[0, place]
            host_trials[source].attempts[0, place] = msgspec.structs.replace(to_first, outcome="open")
    answers = recorded(host_trials)
    assert [cause.accused for cause in localized(answers).causes] == [set(dead)] * causes
    assert NO_ROOM in answers["n0"].unread.get("network test", "")


@pytest.mark.parametrize(("held", "causes"), [((), 1), (("10.0.0.9",), 0)])
def test_a_host_with_the_address_of_one_that_was_not_reached_is_not_judged_by_its_calls(
    held: tuple[str, ...], causes: int
) -> None:
    """It may call from that address: the answers go to the other host. `duplicate-address` names both."""
    names = [f"n{number}" for number in range(HOSTS)]
    endpoints = [
        HostEndpoint(name, {"ephemeral": f"10.0.0.{number}"}, (), (f"10.0.0.{number}", *held) if not number else ())
        for number, name in enumerate(names)
    ]
    ports = tuple(TestedPort("ephemeral", place) for place in range(PORTS))
    plan = NetPlan(tuple(endpoints), ports, full(HOSTS, PORTS), {"n9": "not reached"})
    host_trials = trials({(0, 1), (0, 2), (0, 3)}, ())
    test = NetTest(plan, {name: host_trials[number] for number, name in enumerate(names)}, {}, 1.0)
    records = {name: HostRecord(Visit(), {}) for name in names}
    records["n9"] = HostRecord(Visit("lost", "closed", address="10.0.0.9"), {})
    answered = with_net_answers(records, test, NetOptions(mode="full"))
    answers = FactCache({name: answered[name] for name in names}).fleet(NetworkAnswer)
    assert len(localized(answers).causes) == causes
