"""What slurmd-not-running finds."""

from __future__ import annotations

import pytest

from doctor.facts.container import HostContainer
from doctor.facts.interfaces import Interfaces
from doctor.facts.slurm import SlurmDaemon
from tests.checks.containers import view
from tests.checks.network import link
from tests.checks.run_check import job, messages, run_check, skipped

NAME = "slurmd-not-running"
JOB = job(SLURM_JOB_ID="7")


@pytest.mark.parametrize(
    ("daemon", "text"),
    [
        (SlurmDaemon(("S",), 6818, True), ""),
        (SlurmDaemon(("S", "Z"), 6818, True), ""),
        (SlurmDaemon(("S",), 0), ""),
        (SlurmDaemon((), 6818), "no slurmd runs; expected one that takes connections on port 6818"),
        (SlurmDaemon((), 6818, True), "no slurmd runs; expected one that takes connections on port 6818"),
        (SlurmDaemon(("T",), 6818, True), "slurmd is stopped (state T): it answers no request"),
        (SlurmDaemon(("S",), 6818), "slurmd runs, and its port 6818 takes no connections"),
    ],
)
def test_states_of_a_daemon(daemon: SlurmDaemon, text: str) -> None:
    assert messages(run_check(NAME, {"n1": [daemon]}, JOB)) == ([("n1", text)] if text else [])


@pytest.mark.parametrize(
    ("up", "answers", "is_unknown"), [(False, False, True), (False, True, False), (True, False, False)]
)
def test_no_daemon_is_accused_where_lo_is_down(up: bool, answers: bool, is_unknown: bool) -> None:
    """A host comes to its own addresses through lo alone."""
    lo = Interfaces(links=(link("lo", up=up),), addresses=(), routes=(), has_rules=False)
    outcome = run_check(NAME, {"n1": [SlurmDaemon(("S",), 6818, answers), lo]}, JOB)
    assert bool(outcome.unknown) is is_unknown
    assert bool(outcome.findings) is (up and not answers)
    assert not is_unknown or "`ip link set lo up`" in str(outcome.unknown["n1"])


def test_where_it_does_not_apply() -> None:
    absent = SlurmDaemon((), 6818)
    assert skipped(run_check(NAME, {"n1": [absent]})) == {"not in a job of Slurm"}
    assert skipped(run_check(NAME, {"n1": [absent, view(HostContainer)]}, JOB)) == {
        "a container does not show the processes of its host"
    }
    assert skipped(run_check(NAME, {"login": []}, JOB)) == {"no SlurmDaemon"}
