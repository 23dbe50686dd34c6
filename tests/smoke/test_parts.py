"""Runs of some hosts of a launched job: who takes part as which rank, and what the report says of their numbers."""

from __future__ import annotations

import pytest

from doctor.engine.sanitize import number_ranges
from doctor.environment.job_context import detect
from doctor.smoke.model import Failure, SmokeRun
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.rendezvous.link import Hello
from doctor.smoke.rendezvous.parts import (
    absent_failure,
    blame_fewer,
    blame_kept_out,
    build_launched_plan,
    numbering_notes,
    on_hosts,
    plan_of_part,
    result_without_run,
    with_host_names,
)
from doctor.smoke.results.to_facts import describe_failure
from doctor.smoke.triage.conduct import cell_result

LEADER = detect({"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "w0", "MASTER_PORT": "29500"}, as_rank=True)
HELLOS = with_host_names([Hello(rank, 8, f"w{rank // 2}", 100 + rank, local=rank % 2) for rank in range(8)])


def test_ranks_of_some_hosts_are_numbered_anew_and_meet_at_the_first_of_them() -> None:
    part = on_hosts(HELLOS, ("w3", "w1"))
    assert {rank: (hello.rank, hello.world, hello.host) for rank, hello in part.items()} == {
        2: (0, 4, "w1"),
        3: (1, 4, "w1"),
        6: (2, 4, "w3"),
        7: (3, 4, "w3"),
    }
    plan = plan_of_part(LEADER, part, SmokeOptions())
    assert [(place.rank, place.host, place.local) for place in plan.places] == [
        (0, "w1", 0),
        (1, "w1", 1),
        (2, "w3", 0),
        (3, "w3", 1),
    ]
    assert (plan.world, plan.master_addr, plan.master_port, plan.job_ranks) == (4, "", 0, (2, 3, 6, 7))


@pytest.mark.parametrize(
    ("hosts", "job_ranks"), [(("w0", "w1", "w2", "w3"), ()), (("w0", "w1"), ()), (("w0", "w2"), (0, 1, 4, 5))]
)
def test_with_the_jobs_rank_0_they_meet_where_the_job_does(hosts: tuple[str, ...], job_ranks: tuple[int, ...]) -> None:
    plan = plan_of_part(LEADER, on_hosts(HELLOS, hosts), SmokeOptions())
    assert (plan.master_addr, plan.master_port, plan.job_ranks) == ("w0", 29500, job_ranks)
    numbers = f"they are ranks {number_ranges(job_ranks, ', ')} of the job"
    note = f"without the hosts that were left out the ranks are numbered anew: {numbers}"
    assert numbering_notes(plan) == (note,) * bool(job_ranks)


def test_hosts_of_one_name_stay_apart_in_every_part() -> None:
    hellos = with_host_names([Hello(rank, 4, "node", 100 + rank, boot=f"boot{rank // 2}") for rank in range(4)])
    assert [hello.host for hello in hellos.values()] == ["node", "node", "node~2", "node~2"]
    part = on_hosts(hellos, ("node~2",))
    assert plan_of_part(LEADER, part, SmokeOptions()).ranks_by_host == {"node~2": (0, 1)}


def test_what_failed_in_a_cell_is_told_with_the_jobs_ranks() -> None:
    plan = plan_of_part(LEADER, on_hosts(HELLOS, ("w1", "w3")), SmokeOptions())
    failure = Failure("dead", (3,), (0, 1, 2), stage="training", text="signal 9")
    run = SmokeRun(plan, (failure,), "trouble")
    assert describe_failure(run, failure) == "rank 7 (w3) dead in training, signal 9"
    assert cell_result(run).named == ("w3",)


def test_who_is_late_for_a_cell_is_not_held_against_its_host_and_who_has_ended_is() -> None:
    part = on_hosts(HELLOS, ("w1", "w3"))
    plan = plan_of_part(LEADER, part, SmokeOptions())
    late = absent_failure(part, {2, 3, 6}, {2, 3, 6, 7}, 20.0)
    assert (late.kind, late.culprit_ranks, late.waiting_ranks) == ("budget", (), (3,))
    assert cell_result(SmokeRun(plan, (late,), "trouble")).state == "unfinished"
    ended = absent_failure(part, {2, 3, 6}, {2, 3, 6}, 20.0)
    assert (ended.kind, ended.culprit_ranks) == ("never-joined", (3,))
    assert cell_result(SmokeRun(plan, (ended,), "trouble")).named == ("w3",)


@pytest.mark.parametrize(
    ("came", "local_world", "limit", "blamed"),
    [
        ((0, 1, 2, 3, 4), 2, 30.0, (5, 6, 7)),
        ((0, 1, 2, 3), 2, 30.0, ()),
        ((0, 1), 2, 30.0, ()),
        ((0, 1, 2, 4), 2, 30.0, (3, 5, 6, 7)),
        ((0, 2), 2, 30.0, (1, 3)),
        ((0,), 8, 30.0, (1, 2, 3, 4, 5, 6, 7)),
        ((0, 1), 2, 0.0, (2, 3, 4, 5, 6, 7)),
        ((0, 1, 2, 3, 4, 5), 2, 30.0, (6, 7)),
        ((0, 1, 2, 3, 4, 5), 1, 30.0, ()),
        ((0, 1, 2, 3, 4, 5, 6), 1, 30.0, (7,)),
    ],
    ids=[
        "three of eight",
        "half",
        "all but the leader's host",
        "three",
        "half, and two",
        "one host",
        "known why",
        "a host of two",
        "two hosts",
        "a host of one",
    ],
)
def test_the_silence_of_half_of_all_ranks_or_of_several_hosts_accuses_nobody_whose_host_is_not_heard(
    came: tuple[int, ...], local_world: int, limit: float, blamed: tuple[int, ...]
) -> None:
    hellos = [
        Hello(rank, 8, f"w{rank // local_world}", 100 + rank, local=rank % local_world, local_world=local_world)
        for rank in came
    ]
    plan = build_launched_plan(LEADER, hellos, (), SmokeOptions())
    absent = tuple(rank for rank in range(8) if rank not in came)
    failure = Failure("never-joined", absent, tuple(range(8)), limit=limit, text="no connection")
    found = blame_fewer(failure, plan)
    assert (found.culprit_ranks, found.waiting_ranks) == (
        blamed,
        tuple(rank for rank in range(8) if rank not in blamed),
    )
    assert ("either side may be cut off" in found.text) == (blamed != absent)


def test_an_interrupt_says_nothing_of_the_processes() -> None:
    plan = plan_of_part(LEADER, on_hosts(HELLOS, ("w1", "w3")), SmokeOptions())
    failure = Failure("never-joined", (3,), (0, 1, 2))
    reasons = []
    for failures in ((failure,), ()):
        trial = result_without_run(plan, failures, 1.0, (), "its processes did not meet").run.environment_trial
        assert trial is not None
        reasons.append(trial.untried)
    interrupted = "a run without the job's variables was not tried: the run was interrupted"
    assert reasons == ["its processes did not meet", interrupted]


def absent(*ranks: int) -> Failure:
    text = "no connection within 30 s"
    return Failure("never-joined", ranks, certainty="timeout", stage="rendezvous", text=text, limit=30.0)


class TestKeptOut:
    """Where the leader's host answers no new connection, it is the one: not who cannot get in."""

    hellos = list(HELLOS.values())
    plan = build_launched_plan(LEADER, hellos[:7], (), SmokeOptions())

    def test_two_hosts_that_had_come_get_no_answer_any_more(self) -> None:
        failure = blame_kept_out(absent(7), self.plan, {"w1": False, "w2": False})
        assert (failure.culprit_ranks, failure.waiting_ranks) == ((0, 1), (7,))
        sentence = "w0 gives w1, w2 no answer to a new connection, though they have come before"
        assert failure.text == f"{sentence}: no connection within 30 s"
        assert failure.unreached

    def test_of_one_such_host_either_end_may_be_the_cause(self) -> None:
        failure = blame_kept_out(absent(7), self.plan, {"w1": False})
        assert (failure.culprit_ranks, failure.unreached) == ((), False)
        assert failure.text.startswith("w0 gives w1 no answer to a new connection, though it has come before: ")

    @pytest.mark.parametrize("answered", [{}, {"w1": True, "w2": True}, {"w1": True, "w2": False}])
    def test_where_one_is_answered_or_none_could_ask_the_absent_rank_is_named(self, answered: dict[str, bool]) -> None:
        assert blame_kept_out(absent(7), self.plan, answered) == blame_fewer(absent(7), self.plan)
        assert blame_fewer(absent(7), self.plan).culprit_ranks == (7,)
