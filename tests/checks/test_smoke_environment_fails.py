from __future__ import annotations

from typing import Any

from doctor.engine.result import Status
from doctor.smoke.model import OWN_CHOICE, EnvironmentTrial, SmokeRun
from tests.checks.broken_off import trouble
from tests.checks.smoke import findings_of, page, ran, run_check, started

NAME = "smoke_environment_fails"


def tried(*culprits: str, passes: bool = True, **more: Any) -> SmokeRun:
    values = {name: "docker0" for name in culprits if name != OWN_CHOICE}
    trial = EnvironmentTrial(passes, culprits, values, **more)
    return ran(4, 2, trouble("never-joined", 2), environment_trial=trial)


def test_a_run_that_comes_to_its_end() -> None:
    assert run_check(NAME, ran(4, 2)).status is Status.PASSED


def test_a_variable_that_chooses_the_wrong_interface() -> None:
    (finding,) = findings_of(NAME, tried("GLOO_SOCKET_IFNAME"))
    assert str(finding).endswith("it fails with GLOO_SOCKET_IFNAME=docker0")
    assert finding.hosts == ()
    assert "`unset GLOO_SOCKET_IFNAME`" in page(NAME, finding)


def test_the_librarys_own_choice() -> None:
    (finding,) = findings_of(NAME, tried(OWN_CHOICE))
    assert "GLOO_SOCKET_IFNAME is not set" in str(finding)
    assert "127.0.1.1" in page(NAME, finding)


def test_the_host_of_the_librarys_own_choice() -> None:
    failure = trouble("never-joined", 2, text="exit status 13: File name too long")
    (finding,) = findings_of(
        NAME, ran(4, 2, failure, environment_trial=EnvironmentTrial(True, (OWN_CHOICE,), hosts=("w1",)))
    )
    assert finding.hosts == ("w1",)
    assert str(finding).endswith("chooses on the host is not usable: exit status 13: File name too long")


def test_a_variable_of_one_host() -> None:
    assert findings_of(NAME, tried("NCCL_IB_DISABLE", hosts=("w2",)))[0].hosts == ("w2",)


def test_what_fails_without_the_variables_too_is_not_their_fault() -> None:
    outcome = run_check(NAME, tried(passes=False))
    assert outcome.unknown and not outcome.findings
    assert run_check(NAME, ran(4, 2, trouble("network", 2))).unknown


def test_no_host_is_accused_of_what_a_variable_does() -> None:
    run = tried("GLOO_SOCKET_IFNAME")
    outcome = run_check("smoke_rank_never_joined", run, started(run))
    assert outcome.unknown and not outcome.findings
