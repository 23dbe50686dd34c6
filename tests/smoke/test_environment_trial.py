"""Whether a failure of a smoke run is laid at a variable of the job: only where it comes and goes with it."""

from __future__ import annotations

from collections.abc import Callable

from doctor.smoke.model import EnvironmentTrial
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.run.environment_trial import explain_by_environment
from doctor.smoke.run.result import SmokeResult
from tests.checks.broken_off import trouble
from tests.checks.smoke import ran

VARIABLES = {"GLOO_SOCKET_IFNAME": "docker0", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "1"}


def explained(fails: Callable[[set[str]], bool]) -> tuple[EnvironmentTrial | None, int]:
    """The trial of a failed run whose repetitions fail where ``fails`` says so, given the variables that are kept."""
    kept: list[set[str]] = []

    def repeat(options: SmokeOptions) -> SmokeResult:
        kept.append(set(options.keep or ()))
        return SmokeResult(ran(4, 2, trouble("dead", 2)) if fails(kept[-1]) else ran(4, 2), {})

    failed = SmokeResult(ran(4, 2, trouble("dead", 2, stage="collectives")), {})
    result = explain_by_environment(failed, SmokeOptions(variables=VARIABLES), repeat)
    return result.run.environment_trial, len(kept)


def test_a_failure_that_comes_and_goes_with_one_variable_is_laid_at_it() -> None:
    trial, _ = explained(lambda kept: "GLOO_SOCKET_IFNAME" in kept)
    assert trial and trial.passes and trial.culprits == ("GLOO_SOCKET_IFNAME",)


def test_a_failure_that_does_not_come_back_is_laid_at_no_variable() -> None:
    assert explained(lambda kept: False) == (None, 2)


def test_a_failure_without_the_variables_is_not_theirs() -> None:
    trial, runs = explained(lambda kept: True)
    assert trial and not trial.passes and runs == 1
