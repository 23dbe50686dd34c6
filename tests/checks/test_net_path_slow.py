from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from doctor.engine.fact import Fact
from doctor.facts.interfaces import SendingDelay
from doctor.facts.network_test import NetworkAnswer
from doctor.net.slow_paths import SlowPath
from tests.checks.net_answers import answers
from tests.checks.network import interfaces
from tests.checks.run_check import advice, messages, run_check, skipped

NAME = "net-path-slow"
HOSTS = 8
ROWS = ["".join("-" if source == target else "o" for target in range(HOSTS)) for source in range(HOSTS)]


def measured(
    slow: dict[tuple[int, int], float],
    again: dict[tuple[int, int], int] | None = None,
    *,
    arrivals: bool = False,
    times: int = 3,
    hosts: int = HOSTS,
) -> dict[str, list[Fact]]:
    """Hosts with the speeds of all pairs, some of them so many times slower, and segments sent again."""
    facts: dict[str, list[Fact]] = {}
    for name, (answer,) in answers([[row[:hosts] for row in ROWS[:hosts]]] * 2).items():
        assert isinstance(answer, NetworkAnswer)
        speeds: list[dict[str, Any]] = []
        for target in set(range(hosts)) - {answer.host}:
            ratio = slow.get((answer.host, target), 1.0) * (1 + 0.01 * ((3 * answer.host + 5 * target) % 7))
            lost = (again or {}).get((answer.host, target), 0)
            speed = {
                "target": target,
                "latency_median": 1e-4,
                "throughput_single": 1e9 / ratio,
                "throughput_multi": 1.1e9 / ratio,
                "retransmissions": lost,
                "bytes": 1 << 28,
            }
            if arrivals:
                speed |= {"arrival_single": 1e9 / ratio, "arrival_multi": 1.1e9 / ratio}
            speeds += [speed] * (times if ratio > 1.5 or lost else 1)
        facts[name] = [msgspec.structs.replace(answer, answer={**answer.answer, "speeds": speeds})]
    return facts


def test_paths_that_are_alike_have_no_finding() -> None:
    outcome = run_check(NAME, measured({}))
    assert outcome.complete
    assert messages(outcome) == []


@pytest.mark.parametrize("name", [NAME, "net-packets-lost"])
def test_a_path_that_was_not_measured_is_unknown_unless_it_is_blocked(name: str) -> None:
    """The time ended before its turn, or its connections broke."""
    facts = measured({})
    ((answer,), *_) = facts.values()
    assert isinstance(answer, NetworkAnswer)
    rest = {**answer.answer, "speeds": answer.answer["speeds"][1:]}
    facts["w1"] = [msgspec.structs.replace(answer, answer=rest)]
    outcome = run_check(name, facts)
    assert messages(outcome) == []
    assert "speeds were not measured (ways: 1, first w1 to w2)" in str(outcome.unknown)
    blocked = {
        **rest,
        "rows": ["-d" + row[2:] for row in rest["rows"][:1]] + ["-d" + row[2:] for row in rest["rows"][1:]],
    }
    facts["w1"] = [msgspec.structs.replace(answer, answer=blocked)]
    assert run_check(name, facts).complete


def test_a_host_that_sends_slowly() -> None:
    outcome = run_check(NAME, measured({(2, target): 8.0 for target in range(HOSTS) if target != 2}))
    ((hosts, text),) = messages(outcome)
    assert hosts == "w3"
    assert "the throughput from w3 is 8" in text
    assert "grep -s . /sys/class/net/*/speed" in advice(NAME, outcome)


def test_one_slow_direction_that_was_slow_each_time() -> None:
    ((hosts, text),) = messages(run_check(NAME, measured({(1, 5): 8.0})))
    assert hosts == "w2 w6"
    assert "from w2 to w6" in text


def test_a_link_that_is_slow_both_ways() -> None:
    ((hosts, text),) = messages(run_check(NAME, measured({(1, 5): 8.0, (5, 1): 8.0})))
    assert hosts == "w2 w6"
    assert "between w2 and w6" in text


LIMIT = SendingDelay("eth0", "tbf", 0.0, 0.0, 25e6)
LATE = SendingDelay("eth0", "netem", 0.05, 0.0, 0.0)


@pytest.mark.parametrize(
    ("delay", "on", "way", "text"),
    [
        (LIMIT, ("w3",), "out", "; tbf on eth0 of w3 limits to 200 Mbit/s"),
        (LIMIT, ("w3",), "in", ""),  # it limits what w3 sends
        (LIMIT, ("w5",), "out", ""),  # of a host that is not slow
        (LATE, ("w3",), "out", "; netem on eth0 of w3 delays by 50 ms"),
        (LIMIT, tuple(f"w{number}" for number in range(1, 9)), "out", ""),  # every host has it
        (msgspec.structs.replace(LIMIT, interface="docker0"), ("w3",), "out", ""),
        (msgspec.structs.replace(LIMIT, rate=0.0), ("w3",), "out", ""),
    ],
)
def test_the_hosts_own_queueing_discipline_is_named(
    delay: SendingDelay, on: tuple[str, ...], way: str, text: str
) -> None:
    pairs = [(2, other) if way == "out" else (other, 2) for other in range(HOSTS) if other != 2]
    facts = measured(dict.fromkeys(pairs, 8.0))
    for number, (host, entries) in enumerate(facts.items(), start=1):
        cards = interfaces(eth0=f"10.0.0.{number}/24", docker0="172.17.0.1/16")
        facts[host] = [*entries, msgspec.structs.replace(cards, delays=(delay,) if host in on else ())]
    outcome = run_check(NAME, facts)
    ((hosts, message),) = messages(outcome)
    assert hosts == "w3"
    assert message.partition(" measurements)")[2] == text
    assert ("As root on w3: `tc qdisc del dev eth0 root` deletes it." in advice(NAME, outcome)) is bool(text)
    assert "  " not in advice(NAME, outcome).replace("\n  ", "")


def test_without_speeds_it_does_not_apply() -> None:
    assert skipped(run_check(NAME, answers([ROWS] * 2))) == {
        "no speeds were measured; doctor net --net full measures them"
    }


def test_a_path_that_halves_the_jobs_pace_is_an_error_by_what_a_busy_host_does_not_change() -> None:
    """The throughput of programs that may have waited for a CPU stays a warning, however low it is."""
    (usual,) = run_check(NAME, measured({(2, target): 8.0 for target in range(HOSTS) if target != 2})).findings
    assert usual.is_warning
    for ratio, severe in ((2.0, False), (8.0, True)):
        slow = measured({(2, target): ratio for target in range(HOSTS) if target != 2}, arrivals=True)
        (finding,) = run_check(NAME, slow).findings
        assert (finding.values["figure"], finding.is_warning) == ("arrival rate", not severe)


@pytest.mark.parametrize(("hosts", "seconds", "severe"), [(8, 0.05, True), (8, 0.001, False), (1024, 0.006, True)])
def test_latency_is_an_error_by_what_it_adds_to_a_collective_of_so_many_hosts(
    hosts: int, seconds: float, severe: bool
) -> None:
    outlier = ("host", (2,), "both", math.log(seconds), math.log(1e-4), 1e-6, 20, (), 7)
    assert SlowPath(*outlier, figure="least latency", value=seconds, peer_value=1e-4).is_severe(hosts) is severe


def test_two_hosts_have_no_other_way_to_compare_with() -> None:
    outcome = run_check(NAME, measured({}, hosts=2))
    assert "no other to compare with" in str(skipped(outcome))
