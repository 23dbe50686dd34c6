"""A job over three real hosts, of which one gets a slower network than in its earlier runs: part and host are named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.fleet import INSIDE, Fleet
from tests.smoke.interpreter import visible_folders
from tests.watch.test_watched_hosts import LIMIT, ROOT, WATCH, Host, Job

pytestmark = [pytest.mark.hosts, pytest.mark.torch, pytest.mark.timeout(4 * LIMIT)]
PROGRAM = Path(__file__).with_name("programs") / "paced.py"
SLOWER = "tc qdisc add dev eth0 root tbf rate 2mbit burst 16kb latency 800ms"

ONCE_MORE = """
from doctor.history.paces import PaceFolder
with PaceFolder.opened({"XDG_STATE_HOME": "/tmp"}, create=False) as folder:
    (job,) = folder.jobs()
    folder.add(job, folder.runs(job)[0])
"""
"""The kept run, as if it had been made twice."""


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(3, {"*": {"shows": visible_folders()}}, name="op", subnet="10.97.0.0/16", shm="256m")


def run(job: Job) -> Host:
    """The leading host, which has the report."""
    command = [*WATCH, "--data", "off", "--", sys.executable, str(PROGRAM), "30"]
    return job.run([command] * 3, XDG_STATE_HOME="/tmp", DOCTOR_HISTORY="on")[0]


def test_a_network_that_is_slower_is_named(fleet: Fleet) -> None:
    job = Job(fleet, fleet.hosts, 1)
    assert "training-slowed-down" not in run(job).findings
    fleet.enter(fleet.hosts[0], [sys.executable, "-c", ONCE_MORE], env={**INSIDE, "PYTHONPATH": str(ROOT)})
    slow = fleet.hosts[2]
    fleet.enter(slow, SLOWER)
    try:
        report = run(job)
    finally:
        fleet.enter(slow, "tc qdisc del dev eth0 root")
    (found,) = [outcome for outcome in report.report["outcomes"] if outcome["check"] == "training-slowed-down"]
    assert "over the network of" in found["findings"][0]["message"], found
    assert found["findings"][0]["hosts"] == [slow], found
