"""launch-ranks-contradict."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, run_check
from tests.checks.tables import list_messages

NAME = "launch-ranks-contradict"


def test_lightning_compares_hosts_and_devices() -> None:
    assert run_check(NAME, "lightning", machines=2, devices=8).status is Status.PASSED
    assert list_messages(run_check(NAME, "lightning", machines=4, devices=8)) == [
        (
            "run.sh:3 is for 4 hosts, and the launch is for 2 | observed --machines 4 (run.sh:3) | expected "
            "--nodes 2 (run.sh:2)"
        )
    ]
    assert run_check(NAME, "lightning", machines=2, devices=-1).status is Status.PASSED
    assert run_check(NAME, "lightning", {"launcher": "hydra"}, machines=4).status is Status.PASSED


def test_workers_of_msrun() -> None:
    counts = {"launcher": "msrun", "workers": 16, "local_workers": 6}
    assert run_check(NAME, "", counts).status is Status.FAILED
    assert run_check(NAME, "", {**counts, "local_workers": 8}).status is Status.PASSED


def test_processes_of_accelerate() -> None:
    assert run_check(NAME, "accelerate", {"world_size": 7}, ranks=7).status is Status.FAILED
    assert run_check(NAME, "accelerate", {"nodes": UNDECIDED}, ranks=7).status is Status.UNKNOWN
