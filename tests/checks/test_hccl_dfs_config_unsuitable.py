"""hccl-dfs-config-unsuitable."""

from __future__ import annotations

import pytest

from doctor.job import LaunchConfig
from tests.checks.launch_lines import run_check


def list_findings(value: str | None) -> list[str]:
    environ = {} if value is None else {"HCCL_DFS_CONFIG": value}
    outcome = run_check("hccl-dfs-config-unsuitable", LaunchConfig.from_environment(environ))
    return [str(finding) for finding in outcome.findings]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "connection_fault_detection_time:30,cluster_heartbeat:on,stuck_detection:on,inconsistent_check:off",
        "inconsistent_check:first",
        "task_monitor_interval:0",
        "cluster_heartbeat:off,cluster_heartbeat:on",
        ":::,,,on",
    ],
)
def test_the_defaults_and_what_is_like_them_have_no_finding(value: str | None) -> None:
    assert list_findings(value) == []


@pytest.mark.parametrize("item", ["cluster_heartbeat", "stuck_detection"])
def test_a_detection_that_is_off_is_found(item: str) -> None:
    (text,) = list_findings(f"{item}:OFF , inconsistent_check:off")
    assert f"switches {item} off" in text


def test_a_probe_of_no_seconds_is_off() -> None:
    assert "connection_fault_detection_time off" in list_findings("connection_fault_detection_time:0")[0]


def test_the_consistency_check_costs_speed_and_memory() -> None:
    (text,) = list_findings("inconsistent_check:on")
    assert "5 %" in text and "10 GB" in text
