"""Whether a failure of a smoke run is laid at a variable of the job: only where it comes and goes with it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from doctor.smoke.model import OWN_CHOICE, EnvironmentTrial, FailureKind, SmokeResult
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.run.environment_trial import CannotRepeat, explain_by_environment
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


@pytest.mark.parametrize("failing", [{0}, {1}, {1, 2}, {3}, {2, 3}])
def test_a_failure_that_comes_and_goes_by_itself_is_laid_at_no_variable(failing: set[int]) -> None:
    """Runs without and with all variables take turns, twice: a cable that is out for some seconds hits any of them."""
    numbers = count()
    trial, _ = explained(lambda kept: next(numbers) in failing)
    assert trial is None or not trial.passes


@pytest.mark.parametrize("kinds", [("dead", "network"), ("budget", "budget")], ids=["another way", "late"])
def test_a_failure_of_another_kind_is_laid_at_no_variable(kinds: tuple[FailureKind, FailureKind]) -> None:
    rest = list(kinds)

    def repeat(options: SmokeOptions) -> SmokeResult:
        return SmokeResult(ran(4, 2, trouble(rest.pop(0), 2)) if options.keep else ran(4, 2), {})

    failed = SmokeResult(ran(4, 2, trouble("dead", 2, stage="collectives")), {})
    result = explain_by_environment(failed, SmokeOptions(variables=VARIABLES), repeat)
    assert result.run.environment_trial is None


def test_a_failure_without_the_variables_is_not_theirs() -> None:
    trial, runs = explained(lambda kept: True)
    assert trial and not trial.passes and runs == 1


def different(fails: Callable[[set[str]], bool]) -> EnvironmentTrial:
    """The trial of a run on four hosts of which one has another value of its own than the rest."""
    values = {f"w{number} rank {number}": {"GLOO_SOCKET_IFNAME": "eth0"} for number in range(3)}
    values["w3 rank 3"] = {"GLOO_SOCKET_IFNAME": "docker0"}

    def repeat(options: SmokeOptions) -> SmokeResult:
        return SmokeResult(ran(4, 1, trouble("dead", 2)) if fails(set(options.keep or ())) else ran(4, 1), {})

    failed = SmokeResult(ran(4, 1, trouble("network", 2, stage="collectives")), {}, variables=values)
    trial = explain_by_environment(failed, SmokeOptions(), repeat).run.environment_trial
    assert trial and trial.culprits == ("GLOO_SOCKET_IFNAME",)
    return trial


def test_of_two_values_the_one_that_fails_alone_is_named_with_its_host() -> None:
    trial = different(lambda kept: bool(kept & {"GLOO_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME=docker0"}))
    assert (trial.values, trial.hosts) == ({"GLOO_SOCKET_IFNAME": "docker0"}, ("w3",))


def test_values_that_fail_together_alone_are_both_shown_and_no_host_is_picked() -> None:
    trial = different(lambda kept: "GLOO_SOCKET_IFNAME" in kept)
    assert trial.values == {"GLOO_SOCKET_IFNAME": "eth0 on 3 hosts, docker0 on 1 host"}
    assert trial.hosts == ()


@pytest.mark.parametrize(("stage", "tried"), [("native", "native"), ("collectives", "collectives"), ("training", "")])
def test_a_trial_has_the_stage_that_failed_if_variables_are_known_to_break_it(stage: str, tried: str) -> None:
    """DistributedDataParallel of torch 2.13 crashes with TORCH_DISTRIBUTED_DEBUG=DETAIL, after every other stage."""
    stages: list[tuple[str, ...]] = []

    def repeat(options: SmokeOptions) -> SmokeResult:
        stages.append(options.stages)
        return SmokeResult(ran(4, 2, trouble("dead", 2, stage=stage)) if options.keep else ran(4, 2), {})

    failed = SmokeResult(ran(4, 2, trouble("dead", 2, stage=stage)), {})
    explain_by_environment(failed, SmokeOptions(variables=VARIABLES), repeat)
    assert set(stages) == ({("start", "rendezvous", tried, "teardown")} if tried else set())


@pytest.mark.parametrize(("number", "text", "runs"), [(51, "closed by peer", 0), (1, "closed by peer", 2), (51, "", 2)])
def test_addresses_on_which_calls_were_made_reach_each_other(number: int, text: str, runs: int) -> None:
    """Nothing is tried for the choice of an interface; where no error tells, large packets may be lost on it."""
    made = list[SmokeOptions]()

    def repeat(options: SmokeOptions) -> SmokeResult:
        made.append(options)
        return SmokeResult(ran(4, 2), {})

    broken = trouble("network", stage="collectives", seq=number, text=f"Connection {text}" if text else "")
    explain_by_environment(SmokeResult(ran(4, 2, broken), {}), SmokeOptions(), repeat)
    assert len(made) == runs


def test_why_there_was_no_trial_is_said() -> None:
    def repeat(options: SmokeOptions) -> SmokeResult:
        raise CannotRepeat("the process of rank 1 did not come again")

    failed = SmokeResult(ran(4, 2, trouble("dead", 2, stage="collectives")), {})
    trial = explain_by_environment(failed, SmokeOptions(variables=VARIABLES), repeat).run.environment_trial
    assert trial and not trial.passes and trial.untried == "the process of rank 1 did not come again"


REFUSED = "exit status 13: [enforce fail at gloo/transport/tcp/socket.cc:142] connect: Network is unreachable"
OWN = "exit status 13: File name too long"


def hosts_of_choice(*guilty: int, first: tuple[int, ...] = (), **more: Any) -> tuple[str, ...]:
    """Of four hosts of one rank, those named where the library's own choice of an interface makes the run fail."""
    failure = trouble("never-joined", *guilty, **{"stage": "rendezvous", **more})

    def repeat(options: SmokeOptions) -> SmokeResult:
        return SmokeResult(ran(4, 4, failure) if options.keep else ran(4, 4), {})

    failed = SmokeResult(ran(4, 4, failure.blaming(first or guilty)), {})
    trial = explain_by_environment(failed, SmokeOptions(), repeat).run.environment_trial
    assert trial and trial.culprits == (OWN_CHOICE,)
    return trial.hosts


def test_the_host_whose_library_finds_no_address_is_named() -> None:
    assert hosts_of_choice(1, text=OWN) == ("w2",)


def test_the_host_that_no_other_connects_to_is_named() -> None:
    assert hosts_of_choice(0, 1, 3, text=REFUSED) == ("w3",)
    assert hosts_of_choice(0, 3, first=(1,), text=REFUSED) == ("w3",)


@pytest.mark.parametrize(
    ("guilty", "more"),
    [
        ((0, 1), {"text": REFUSED}),  # two of the others remain
        ((0, 1, 2, 3), {"text": OWN}),
        ((0, 1, 3), {"text": REFUSED, "evidence": (f"its last error output: {OWN}",)}),
        ((1,), {"text": "exit status 13: Connection closed by peer [10.0.0.2]:5"}),
        ((1,), {"text": "exit status 13: it gave up: timed out"}),
        ((1,), {"text": OWN, "certainty": "timeout"}),
        ((1,), {"text": ""}),
    ],
)
def test_no_host_is_named_by_an_error_that_another_rank_may_cause(guilty: tuple[int, ...], more: Any) -> None:
    assert hosts_of_choice(*guilty, **more) == ()
