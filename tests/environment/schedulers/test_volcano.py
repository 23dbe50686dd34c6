"""Volcano: the hosts of all kinds of task, and which of them this one is."""

from __future__ import annotations

from tests.environment.contexts import context, fields, scheduler_sample, summary

EXAMPLE = scheduler_sample("volcano")


def test_a_context() -> None:
    detected = context(EXAMPLE)
    assert summary(detected) == ("Volcano, host 1 of 3", "volcano", "local")
    expected = {"hosts": ("t-master-0.t", "t-worker-0.t", "t-worker-1.t"), "node_rank": 1, "node_count": 3}
    assert fields(detected, expected) == expected


def test_the_index_within_one_kind_of_task_is_the_hosts_only_where_there_is_one_kind() -> None:
    other_name = {**EXAMPLE, "HOSTNAME": "elsewhere"}
    assert context(other_name).node_rank is None
    only_workers = {name: value for name, value in other_name.items() if "MASTER" not in name}
    assert context({**only_workers, "VC_TASK_INDEX": "1"}).node_rank == 1
