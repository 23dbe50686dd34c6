"""rank-table-super-pod-wrong."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.tables import Json, a1, a3, list_messages, run_check

NAME = "rank-table-super-pod-wrong"


def changed(pod: int, **fields: Json) -> Json:
    value = a3(2, 2, 2)
    value["super_pod_list"][pod].update(fields)
    return value


def test_a_host_in_no_super_pod() -> None:
    outcome = run_check(NAME, changed(1, server_list=[{"server_id": "node_2"}]))
    assert list_messages(outcome) == ["no super pod lists node_3"]
    assert outcome.findings[0].hosts == ("node_3",)


def test_a_host_in_two_and_one_that_is_not_there() -> None:
    servers = [{"server_id": name} for name in ("node_2", "node_3", "node_1", "node_9")]
    assert list_messages(run_check(NAME, changed(1, server_list=servers))) == [
        "super pods list hosts that are not in server_list: node_9",
        "listed more than once: node_1",
    ]


def test_names() -> None:
    assert list_messages(run_check(NAME, changed(1, super_pod_id="0"))) == [
        "the super_pod_id 0 appears 2 times | expected a name, once",
    ]
    assert run_check(NAME, changed(1, super_pod_id="")).status is Status.FAILED


def test_hosts_of_a_super_pod_stand_together() -> None:
    value = a3(2, 2, 2)
    servers = value["server_list"]
    servers[1], servers[2] = servers[2], servers[1]
    assert list_messages(run_check(NAME, value)) == ["the hosts of super pods 0 and 1 are not adjacent in server_list"]


def test_healthy() -> None:
    assert run_check(NAME, a3()).status is Status.PASSED
    assert run_check(NAME, a1()).status is Status.SKIPPED
