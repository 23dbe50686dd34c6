"""What rdma-errors-many finds."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.checks.gpu_hosts import port, rdma
from tests.checks.run_check import messages, run_check

MONTH = 30 * 86400.0


def host(*counts: int, counter: str = "link_downed", uptime: float = MONTH) -> Any:
    """A host whose ports have counted so much."""
    return rdma(*(port(after={counter: count}) for count in counts), uptime=uptime)


def names(outcome: Any) -> list[tuple[str, str]]:
    return [(" ".join(finding.hosts), finding.values["port"]) for finding in outcome.findings]


def test_ports_alike_are_no_finding() -> None:
    quiet = {f"w{n}": [host(1, 2)] for n in range(4)}
    assert messages(run_check("rdma-errors-many", quiet)) == []
    restarted = {f"w{n}": [host(40, 41)] for n in range(4)}
    assert messages(run_check("rdma-errors-many", restarted)) == []


def test_a_link_that_flaps_daily_is_found() -> None:
    fleet = {f"w{n}": [host(1, 2)] for n in range(4)} | {"bad": [host(0, 412)]}
    assert names(run_check("rdma-errors-many", fleet)) == [("bad", "mlx5_1:1")]
    assert names(run_check("rdma-errors-many", {"w1": [host(1, 37)]})) == [("w1", "mlx5_1:1")]


def test_few_errors_in_a_long_time_and_few_ports_are_no_finding() -> None:
    assert names(run_check("rdma-errors-many", {"w1": [host(0, 37, uptime=400 * 86400.0)]})) == []
    assert names(run_check("rdma-errors-many", {"w1": [host(0, 9)]})) == []
    assert names(run_check("rdma-errors-many", {"w1": [host(0, 99, counter="symbol_error")]})) == []


def test_counters_of_congestion_and_older_records_are_not_judged() -> None:
    fleet = {f"w{n}": [host(0, 0)] for n in range(4)}
    busy = {"w9": [host(0, 99999, counter="out_of_sequence")]}
    assert names(run_check("rdma-errors-many", fleet | busy)) == []
    old = msgspec.structs.replace(
        host(0, 412), devices=tuple(msgspec.structs.replace(device, uptime=0.0) for device in host(0, 412).devices)
    )
    assert names(run_check("rdma-errors-many", fleet | {"w9": [old]})) == []


def test_a_host_that_was_started_today_is_not_taken_for_one_with_a_high_rate() -> None:
    fleet = {f"w{n}": [host(30, 30)] for n in range(4)} | {"new": [host(8, 8, uptime=600.0)]}
    assert names(run_check("rdma-errors-many", fleet)) == []
