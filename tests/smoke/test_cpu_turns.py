"""Ranks that share too few CPUs take turns; all others are scheduled as the job would be."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from doctor.smoke.programs.worker.processes import take_turns_on_cpus
from doctor.smoke.programs.worker.work_timing import CpuTour

CPUS = len(os.sched_getaffinity(0))


def in_a_process(action: Callable[[], int]) -> int:
    """What an action returns in a process of its own, which it may change."""
    pid = os.fork()
    if pid == 0:
        os._exit(action())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def policy_with(rank_count: int, before: int = os.SCHED_OTHER) -> int:
    """The scheduling policy of a rank that had this one, on a host with so many ranks."""

    def rank() -> int:
        os.sched_setscheduler(0, before, os.sched_param(0))
        take_turns_on_cpus(rank_count)
        return os.sched_getscheduler(0)

    return in_a_process(rank)


@pytest.mark.parametrize("rank_count", [CPUS, CPUS + 1, 100 * CPUS])
def test_ranks_that_share_cpus_do_not_interrupt_each_other(rank_count: int) -> None:
    assert policy_with(rank_count) == os.SCHED_BATCH


def test_ranks_with_cpus_for_themselves_and_their_threads_are_left_alone() -> None:
    def rank() -> int:
        os.sched_setaffinity(0, range(2))
        take_turns_on_cpus(1)
        return os.sched_getscheduler(0)

    if CPUS < 2:
        pytest.fail("two CPUs are needed")
    assert in_a_process(rank) == os.SCHED_OTHER


def test_a_policy_of_the_job_stays() -> None:
    assert policy_with(100 * CPUS, before=os.SCHED_IDLE) == os.SCHED_IDLE


def test_a_sandbox_that_forbids_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    take_turns_on_cpus(100 * CPUS)
    monkeypatch.delattr(os, "SCHED_BATCH")
    take_turns_on_cpus(100 * CPUS)


def test_a_rank_stays_on_its_cpus_where_a_sandbox_forbids_to_choose_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    tour = CpuTour.__new__(CpuTour)
    tour.rank, tour.cpus = 0, [0, 1]
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert not tour.move(0) and not tour.move(1)
    tour.end()
