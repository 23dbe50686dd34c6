"""What out-of-memory-logged finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import log
from tests.checks.run_check import messages, run_check

KILLED = "Out of memory: Killed process 2954177 (python) total-vm:195G, anon-rss:120G, UID:0 pgtables:1kB"
IN_CGROUP = "Memory cgroup out of memory: Killed process 123 (pt_data_worker) total-vm:1kB"


def test_an_empty_log_and_one_of_last_week() -> None:
    assert messages(run_check("out-of-memory-logged", {"w1": [log()]})) == []
    assert messages(run_check("out-of-memory-logged", {"w1": [log(KILLED, age=7 * 86400)]})) == []


def test_the_last_one_is_named() -> None:
    outcome = run_check("out-of-memory-logged", {"w1": [log(KILLED, IN_CGROUP)]})
    assert messages(outcome) == [
        ("w1", "the OOM killer killed 2 processes in the last 24 hours, last pt_data_worker (123) 60 s ago")
    ]
    assert outcome.findings[0].values["limit"] == "of a cgroup"
