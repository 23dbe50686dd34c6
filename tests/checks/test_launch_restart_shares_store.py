"""launch-restart-shares-store."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.engine.evaluate import evaluate_check
from doctor.engine.result import Outcome, Status
from doctor.facts.python_env import PythonEnv
from doctor.job import LaunchConfig
from doctor.job.training import TrainingJob, TrainingLaunch
from tests.checks import run_check
from tests.checks.launches import UNDECIDED, launched
from tests.checks.tables import list_messages

NAME = "launch-restart-shares-store"


def outcome(torch: str | None = "2.13.0", **settings: Any) -> Outcome:
    """Of a launch with 3 restarts and the static rendezvous, on two hosts with this torch; None: no host is known."""
    merged = {"restarts": 3, "rdzv_backend": "static", "own_store": "0", **settings}
    training = TrainingLaunch((TrainingJob(launched(**merged)),))
    packages = {"torch": torch} if torch else {}
    python = PythonEnv("/usr/bin/python3", "3.11.7", packages, finds_torch=True)
    hosts = {"n1": [python], "n2": [python]} if torch is not None else {}
    launch = LaunchConfig.from_environment({})
    intent = {TrainingLaunch: training, LaunchConfig: launch}
    return evaluate_check(run_check.check(NAME), tuple(hosts), run_check.Facts(hosts), intent)


def test_the_static_rendezvous_shares_the_store_from_torch_2_6_on() -> None:
    expected = (
        "when torchrun at run.sh:2 restarts ranks, they read the addresses of the failed attempt (torch 2.6.0+cpu)"
        " | observed static rendezvous | expected c10d rendezvous with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
    )
    assert list_messages(outcome("2.6.0+cpu")) == [expected]


@pytest.mark.parametrize("torch", ["2.6.0", "2.6.0a0+ecf3bae40a.nv25.01", "2.13.0+cpu", "3.0"])
def test_versions_that_share_it(torch: str) -> None:
    assert outcome(torch).status is Status.FAILED


@pytest.mark.parametrize("torch", ["2.1.0", "2.5.1+cu124", "1.13.1"])
def test_up_to_torch_2_5_each_attempt_has_its_own_keys(torch: str) -> None:
    assert outcome(torch).status is Status.PASSED


@pytest.mark.parametrize(
    ("settings", "fails"),
    [
        ({"restarts": 0}, False),
        ({"rdzv_backend": "c10d"}, True),
        ({"rdzv_backend": "c10d", "own_store": "1"}, False),
        ({"rdzv_backend": "c10d", "own_store": "true"}, True),  # torch compares with 1
        ({"rdzv_backend": "static", "own_store": "1"}, True),  # the static rendezvous does not read it
        ({"rdzv_backend": "etcd"}, False),
        ({"launcher": "accelerate"}, True),
    ],
)
def test_what_decides(settings: dict[str, Any], fails: bool) -> None:
    assert (outcome(**settings).status is Status.FAILED) is fails


@pytest.mark.parametrize("torch", [None, "", "unknown"])
def test_without_a_version_restarts_are_not_judged(torch: str | None) -> None:
    assert outcome(torch).status is Status.UNKNOWN
    assert outcome(torch, restarts=0).status is Status.PASSED


@pytest.mark.parametrize("name", ["restarts", "rdzv_backend", "own_store"])
def test_a_value_that_a_shell_computes_is_not_guessed(name: str) -> None:
    settings: dict[str, Any] = {"rdzv_backend": "c10d", name: UNDECIDED}
    assert outcome(**settings).status is Status.UNKNOWN


def test_other_launchers() -> None:
    assert outcome(launcher="deepspeed").status is Status.SKIPPED
