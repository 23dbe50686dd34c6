"""Trials of programs with other people's libraries under `doctor watch --data`, and how their outcomes are counted."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.watch.campaign import PYTHON, Finding, Result, Trial, bare_numbers, conduct, plan, programs_of, trials
from tests.watch.data_campaign import Ranks
from tests.watch.job_faults import FAULTS, LIBRARIES, TORCH

SAMPLE = [("fsdp2", "no step"), ("dtensor_tp", "batch inside tp"), ("replicas", "raise")]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    pytest.importorskip("torch")
    started = Ranks()
    yield started
    started.close()


@pytest.mark.sample
@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("program", "fault"), SAMPLE)
def test_a_fault_of_the_users_side_is_named(ranks: Ranks, program: str, fault: str) -> None:
    result = conduct(plan(program, fault, 0), ranks)
    assert result.verdict in {"right", "one of"} and not result.accused, result
    assert result.exit_code == 10


@pytest.mark.torch
@pytest.mark.timeout(600)
def test_a_healthy_program_has_no_finding_and_computes_the_same(ranks: Ranks) -> None:
    """Its parameters are scattered over the ranks first: who receives has no input that a call could be sized by."""
    trial = plan("dtensor_tp", "", 0)
    result = conduct(trial, ranks)
    assert (result.verdict, result.exit_code) == ("right", 0), result
    assert result.numbers == bare_numbers(trial, ranks)


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("program", "fault"), [(program, fault) for fault in FAULTS for program in programs_of(fault) if program in TORCH]
)
def test_every_fault_in_every_program_of_torch_alone(ranks: Ranks, program: str, fault: str) -> None:
    result = conduct(plan(program, fault, 1), ranks)
    assert result.verdict in {"right", "one of"} and not result.accused, result


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.skipif(not PYTHON, reason="DOCTOR_PROGRAMS_PYTHON names no interpreter with the libraries")
@pytest.mark.parametrize("program", sorted(LIBRARIES))
def test_a_healthy_program_of_each_library(program: str) -> None:
    started = Ranks(PYTHON or sys.executable, *LIBRARIES[program])
    for seed in range(2):
        trial = plan(program, "", seed)
        result = conduct(trial, started)
        assert result.verdict == "right", result
        assert result.numbers == bare_numbers(trial, started)
    started.close()


# How outcomes are counted


def result_of(*findings: Finding, fault: str = "sleep", world: int = 3) -> Result:
    trial = Trial("fsdp2", fault, world, 1, 2, 3, {})
    return Result(trial, findings, (), (1,) * world, 10, 1.0, [], (), False)


BLOCKED = Finding("smoke-rank-blocked", (1,), False, "")


def test_the_class_and_the_rank_alone_are_right() -> None:
    assert result_of(BLOCKED).verdict == "right" and not result_of(BLOCKED).accused


def test_the_rank_among_several_that_are_possible_is_one_of() -> None:
    result = result_of(BLOCKED._replace(ranks=(0, 1), tie=True))
    assert result.verdict == "one of" and not result.accused


@pytest.mark.parametrize(
    "finding", [BLOCKED._replace(ranks=(2,)), BLOCKED._replace(ranks=(0, 1)), BLOCKED._replace(check="smoke-rank-died")]
)
def test_another_rank_or_class_is_wrong(finding: Finding) -> None:
    assert result_of(finding).verdict == "wrong"


@pytest.mark.parametrize("ranks", [(2,), (0, 1)])
def test_an_innocent_rank_that_is_named_for_certain_is_accused(ranks: tuple[int, ...]) -> None:
    assert result_of(BLOCKED, BLOCKED._replace(ranks=ranks)).accused


def test_a_hook_that_failed_is_not_right() -> None:
    failed = result_of(fault="")._replace(codes=(0, 0, 0), notes=("Rank 1: the hook: recording scatter_ failed",))
    assert failed.verdict == "wrong"
    assert failed._replace(notes=()).verdict == "right"


def test_no_finding_of_a_fault_is_undecided_and_any_of_a_healthy_job_is_wrong() -> None:
    assert result_of().verdict == "undecided"
    assert result_of(BLOCKED, fault="").verdict == "wrong"


def test_trials_follow_from_the_seed_and_cover_every_fault() -> None:
    planned = trials(len(FAULTS) * len(TORCH), 4, 7, "")
    assert planned == trials(len(FAULTS) * len(TORCH), 4, 7, "")
    possible = {fault for fault in FAULTS if programs_of(fault)}
    assert {trial.fault for trial in planned} == possible | {""}
    assert all(0 <= trial.bad < trial.world and trial.bad != trial.pair for trial in planned)
