from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.engine.fact import Fact
from doctor.facts.network_test import NetworkAnswer
from tests.checks.net_answers import answers
from tests.checks.run_check import messages, run_check, skipped

NAME = "net-device-path-broken"
HOSTS = 4
ROWS = ["".join("-" if source == target else "o" for target in range(HOSTS)) for source in range(HOSTS)]


def tried(broken: dict[tuple[int, int], str], device: str = "mlx5_0:1") -> dict[str, list[Fact]]:
    """Four hosts whose adapters have all tried each other; ``broken``: the result of some paths."""
    facts: dict[str, list[Fact]] = {}
    for name, (answer,) in answers([ROWS] * 2).items():
        assert isinstance(answer, NetworkAnswer)
        devices: list[Any] = [
            {"target": target, "device": device, "result": result, "detail": "" if result == "worked" else "error 12"}
            for target in range(HOSTS)
            if target != answer.host
            for result in [broken.get((answer.host, target), "worked")]
        ]
        facts[name] = [msgspec.structs.replace(answer, answer={**answer.answer, "devices": devices})]
    return facts


def test_devices_that_reach_each_other_have_no_finding() -> None:
    outcome = run_check(NAME, tried({}))
    assert outcome.complete
    assert messages(outcome) == []


@pytest.mark.parametrize("device", ["mlx5_0:1", "NPU 3"])
def test_a_device_that_fails_with_all_is_named_alone(device: str) -> None:
    broken = {pair: "failed" for other in (0, 2, 3) for pair in ((1, other), (other, 1))}
    assert messages(run_check(NAME, tried(broken, device))) == [
        ("w2", f"{device} fails with 3 of 3 hosts: w1, w3 and w4 (error 12)")
    ]


def test_of_one_broken_path_both_ends_are_named() -> None:
    ((hosts, text),) = messages(run_check(NAME, tried({(0, 2): "failed"})))
    assert hosts == "w1 w3"
    assert "fails with 1 of 3 hosts" in text


def test_of_hosts_that_are_cut_in_two_none_is_accused() -> None:
    across = {(one, other): "failed" for one in range(HOSTS) for other in range(HOSTS) if (one < 2) != (other < 2)}
    assert messages(run_check(NAME, tried(across))) == [
        ("w1 w2 w3 w4", "mlx5_0:1 fails between w[1-2] and w[3-4]; none of them holds more than half of 4 hosts")
    ]


def test_what_could_not_start_is_unknown_and_accuses_nobody() -> None:
    outcome = run_check(NAME, tried({(0, 2): "unknown"}))
    assert messages(outcome) == []
    assert not outcome.complete
    assert "1 of 12 attempts say nothing, such as mlx5_0:1 of w1 to w3: error 12" in str(outcome.unknown)


def test_a_failure_does_not_hide_what_was_not_tried() -> None:
    outcome = run_check(NAME, tried({(0, 2): "failed", (1, 3): "unknown"}))
    assert [hosts for hosts, _ in messages(outcome)] == ["w1 w3"]
    assert "1 of 12 attempts say nothing, such as mlx5_0:1 of w2 to w4" in str(outcome.unknown)


def test_malformed_statements_are_left_out() -> None:
    facts = tried({})
    answer = facts["w1"][0]
    assert isinstance(answer, NetworkAnswer)
    lies = [{"target": 0, "device": "x", "result": "failed"}, {"target": 99}, 7, {"target": 1, "result": "bad"}]
    facts["w1"] = [msgspec.structs.replace(answer, answer={**answer.answer, "devices": lies})]
    assert messages(run_check(NAME, facts)) == []


def test_without_devices_it_does_not_apply() -> None:
    assert skipped(run_check(NAME, answers([ROWS] * 2))) == {
        "no NPU or RDMA adapter was tried; doctor net --net full tries them"
    }
