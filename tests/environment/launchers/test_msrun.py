"""MindSpore's msrun: its ranks, and its scheduler, which is none."""

from __future__ import annotations

from tests.environment.contexts import context, fields, launcher_sample, rank_context, summary

EXAMPLE = launcher_sample("msrun")
SCHEDULER = {**EXAMPLE, "MS_ROLE": "MS_SCHED", "MS_NODE_ID": "sched", "RANK_ID": "0"}


def test_a_rank() -> None:
    detected = rank_context(EXAMPLE)
    expected = {
        "launcher": "msrun",
        "is_scheduler_process": False,
        "rank": 5,
        "world_size": 8,
        "device": 5,
        "leader_addresses": ("10.0.0.1",),
        "leader_address_source": "MS_SCHED_HOST",
        "leader_port": 8118,
        "leads_ranks": False,
        "launchers": ("msrun",),
        "problems": (),
    }
    assert fields(detected, expected) == expected


def test_the_scheduler_leads_although_its_rank_id_is_0() -> None:
    scheduler = rank_context(SCHEDULER)
    expected = {"is_scheduler_process": True, "rank": None, "leads_ranks": True, "problems": ()}
    assert fields(scheduler, expected) == expected
    assert rank_context({**EXAMPLE, "RANK_ID": "0"}).leads_ranks is False


def test_the_context_of_a_rank() -> None:
    detected = context(EXAMPLE)
    assert summary(detected) == ("msrun, rank 5 of 8", "msrun", "local")
    expected = {"kind": "msrun", "rank": 5, "local_rank": None, "shares_host": True}
    assert fields(detected, expected) == expected


def test_the_context_of_the_scheduler() -> None:
    detected = context(SCHEDULER)
    assert summary(detected) == ("msrun's scheduler", "msrun", "local")
    expected = {"is_scheduler_process": True, "rank": None, "leads_fleet": False}
    assert fields(detected, expected) == expected


def test_the_launch_id_is_the_jobs() -> None:
    launch_id = rank_context(EXAMPLE).launch_id
    others = {"MS_ROLE": "MS_SCHED", "RANK_ID": "0", "MS_SCHED_HOST": "elsewhere"}
    assert rank_context({**EXAMPLE, **others}).launch_id == launch_id
    assert rank_context({**EXAMPLE, "MS_SCHED_PORT": "8119"}).launch_id != launch_id
