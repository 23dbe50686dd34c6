"""The roll call of a launched job: who is waited for, what is told of whom, and the plan of those that came."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.environment.job_context import JobContext
from doctor.smoke.model import Failure
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.rendezvous.link import Hello, RelayedError
from doctor.smoke.rendezvous.parts import build_launched_plan, names_by_rank
from doctor.smoke.rendezvous.roll_call import RECONSIDER_SECONDS, SETTLE_SECONDS, status

PATIENCE = 30.0


def leader(**changes: Any) -> JobContext:
    values = {"leader_addresses": ("w1",), "leader_address_source": "MASTER_ADDR", "leader_port": 29500, **changes}
    return JobContext(launcher="environment", rank=0, world_size=4, **values)


def card(rank: int, world: int = 4, host: str = "w1", **more: Any) -> Hello:
    return Hello(rank, world, host, more.pop("pid", 100 + rank), boot=more.pop("boot", "b1"), **more)


def cards(*ranks: int, world: int = 4) -> list[Hello]:
    return [card(rank, world) for rank in ranks]


def trouble(
    hellos: list[Hello], mails: list[RelayedError] | None = None, quiet: float = 99.0, waited: float = 99.0
) -> Failure:
    result = status(leader(), hellos, mails or [], quiet, waited, PATIENCE)
    assert isinstance(result, Failure)
    assert (result.kind, result.stage) == ("never-joined", "rendezvous")
    return result


class TestTheRollCall:
    def test_is_complete_as_soon_as_all_are_there(self) -> None:
        assert status(leader(), cards(3, 1, 0, 2), [], 0.0, 0.1, PATIENCE) == "complete"

    def test_waits_for_those_that_may_still_come(self) -> None:
        assert status(leader(), cards(0, 1, 2), [], 20.0, 29.0, PATIENCE) == "wait"

    def test_names_those_that_did_not_come(self) -> None:
        failure = trouble(cards(0, 3))
        assert (failure.culprit_ranks, failure.certainty, failure.limit) == ((1, 2), "timeout", PATIENCE)
        assert failure.text.startswith(
            "no connection within 30 s: not started, directed elsewhere by MASTER_ADDR, or blocked"
        )

    def test_does_not_wait_for_one_that_says_why_it_cannot_come(self) -> None:
        mail = RelayedError(card(2, host="w2"), "name", "MASTER_ADDR=w9 does not resolve: Name or service not known")
        assert status(leader(), cards(0, 1, 3), [mail], RECONSIDER_SECONDS - 0.5, 4.0, PATIENCE) == "wait"
        failure = trouble(cards(0, 1, 3), [mail], quiet=RECONSIDER_SECONDS + 0.1, waited=4.0)
        assert (failure.culprit_ranks, failure.certainty, failure.text) == ((2,), "evidence", mail.text)

    def test_waits_for_the_others_when_only_some_say_why(self) -> None:
        mail = RelayedError(card(2), "refused", "MASTER_ADDR=w9 refuses")
        assert status(leader(), cards(0, 1), [mail], 20.0, 20.0, PATIENCE) == "wait"
        failure = trouble(cards(0, 1), [mail])
        assert failure.culprit_ranks == (2, 3)
        assert failure.text.startswith("rank 2: MASTER_ADDR=w9 refuses; rank 3: no connection within 30 s")

    def test_forgets_what_a_rank_said_that_came_after_all(self) -> None:
        mail = RelayedError(card(2), "refused", "MASTER_ADDR=w1 refuses")
        assert status(leader(), cards(0, 1, 2, 3), [mail], 0.0, 1.0, PATIENCE) == "complete"


class TestAnotherIdeaOfTheWorld:
    def test_the_minority_is_named_once_nobody_else_comes(self) -> None:
        hellos = [*cards(0, 1, 3), card(2, world=5)]
        assert status(leader(), hellos, [], SETTLE_SECONDS / 2, 1.0, PATIENCE) == "wait"
        failure = trouble(hellos, quiet=SETTLE_SECONDS + 0.1, waited=2.0)
        assert (failure.culprit_ranks, failure.certainty) == ((2,), "certain")
        assert failure.text == "the world size differs: rank 2 of a world of 5; ranks 0-1, 3 of a world of 4"

    def test_even_if_it_is_the_leader(self) -> None:
        failure = trouble([card(0, world=2), *cards(1, 2, 3)])
        assert failure.culprit_ranks == (0,)

    def test_a_tie_blames_both(self) -> None:
        assert trouble([*cards(0, 1), card(2, 8), card(3, 8)]).culprit_ranks == (0, 1, 2, 3)


def test_a_rank_that_is_there_twice() -> None:
    failure = trouble([*cards(0, 1, 3), card(1, host="w2", pid=7)])
    assert failure.culprit_ranks == (1,)
    assert failure.text == "rank 1 exists 2 times: process 7 on w2 and process 101 on w1; no process is rank 2"


def test_another_version_of_doctor() -> None:
    failure = trouble([*cards(0, 1, 2), card(3, host="w2", version="other")])
    assert (failure.culprit_ranks, "a different version of doctor" in failure.text, "w2" in failure.text) == (
        (3,),
        True,
        True,
    )


def test_of_two_versions_of_doctor_none_is_the_right_one() -> None:
    failure = trouble([card(0, world=2), card(1, world=2, host="w2", version="other")])
    assert (failure.culprit_ranks, failure.text.partition(":")[0]) == (
        (0, 1),
        "different versions of doctor, none of them on most ranks",
    )


def test_variables_that_cannot_be_so() -> None:
    failure = trouble([*cards(0, 1, 3), card(-1, host="w2", problems=("RANK='x', expected a whole number",))])
    assert (failure.culprit_ranks, failure.text) == ((2,), "a process on w2: RANK='x', expected a whole number")
    failure = trouble([*cards(0, 1, 3), card(2, problems=("LOCAL_RANK='x', expected a whole number",))])
    assert (failure.culprit_ranks, failure.text) == ((2,), "rank 2 on w1: LOCAL_RANK='x', expected a whole number")


def test_what_a_process_says_is_shown_plainly() -> None:
    failure = trouble([*cards(0, 1, 3), card(2, host="\x1b[31mw\n2", problems=("\x07bell",))])
    assert failure.text == "rank 2 on w 2: bell"


class TestThePlan:
    def test_has_every_rank_where_it_is(self) -> None:
        hellos = [card(0), card(2), card(1, host="w2", boot="b2"), card(3, host="w2", boot="b2")]
        plan = build_launched_plan(leader(), hellos, [], SmokeOptions(steps=2))
        assert [(place.rank, place.host, place.local) for place in plan.places] == [
            (0, "w1", 0),
            (1, "w2", 0),
            (2, "w1", 1),
            (3, "w2", 1),
        ]
        assert (plan.backend, plan.master_addr, plan.master_port, plan.steps) == ("gloo", "w1", 29500, 2)

    def test_meets_elsewhere_where_the_launcher_listens_itself(self) -> None:
        assert (
            build_launched_plan(leader(leader_port_in_use=True), cards(0, 1, 2, 3), [], SmokeOptions()).master_port == 0
        )

    def test_goes_by_the_leaders_address_where_no_variable_names_it(self) -> None:
        assert (
            build_launched_plan(
                leader(leader_address_source="SLURM_STEP_NODELIST"), cards(0, 1, 2, 3), [], SmokeOptions()
            ).master_addr
            == ""
        )

    def test_takes_the_devices_that_every_rank_has(self) -> None:
        hellos = [card(rank, counts={"npu": 8}, local=rank, device=rank) for rank in range(4)]
        plan = build_launched_plan(leader(), hellos, [], SmokeOptions())
        assert (plan.backend, [place.device for place in plan.places]) == ("hccl", [0, 1, 2, 3])
        mixed = [*hellos[:3], card(3)]
        assert build_launched_plan(leader(), mixed, [], SmokeOptions()).backend == "gloo"

    def test_a_rank_that_sees_one_device_alone_takes_that(self) -> None:
        hellos = [card(rank, counts={"gpu": 1}, local=rank) for rank in range(4)]
        assert [place.device for place in build_launched_plan(leader(), hellos, [], SmokeOptions()).places] == [
            0,
            0,
            0,
            0,
        ]

    def test_guesses_the_host_of_a_rank_that_did_not_come_from_its_neighbours(self) -> None:
        hellos = [card(0, local_world=2), card(2, host="w2", boot="b2", local_world=2)]
        plan = build_launched_plan(leader(), hellos, [], SmokeOptions())
        assert [place.host for place in plan.places] == ["w1", "w1", "w2", "w2"]

    def test_says_that_a_host_is_unknown_rather_than_guess_wrong(self) -> None:
        plan = build_launched_plan(
            leader(), cards(0, 1, 2), [RelayedError(card(5, host="w3"), "name", "x")], SmokeOptions()
        )
        assert [place.host for place in plan.places] == ["w1", "w1", "w1", "unknown", "unknown", "w3"]

    def test_a_layout_that_does_not_fit_is_refused(self) -> None:
        with pytest.raises(ValueError, match="expected 4"):
            build_launched_plan(leader(), cards(0, 1, 2, 3), [], SmokeOptions(layouts=("dp=3",)))


def test_hosts_of_one_name_are_told_apart() -> None:
    hellos = [card(0, host="localhost"), card(1, host="localhost", boot="b2"), card(2, host="localhost")]
    assert names_by_rank(hellos) == {0: "localhost", 1: "localhost~2", 2: "localhost"}
