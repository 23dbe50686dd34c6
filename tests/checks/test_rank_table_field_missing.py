"""rank-table-field-missing."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.tables import a1, a3, lab, legacy, list_messages, run_check

NAME = "rank-table-field-missing"


def test_missing_fields_are_told_by_place() -> None:
    value = a1(2, 4)
    for server in value["server_list"]:
        del server["device"][2]["rank_id"]
    del value["server_list"][1]["server_id"]
    assert list_messages(run_check(NAME, value)) == [
        "rank_id is missing: server_list[0].device[2].rank_id and server_list[1].device[2].rank_id",
        "server_id is missing: server_list[1].server_id",
    ]


def test_values_of_another_kind() -> None:
    value = a1(1, 4)
    value["server_list"][0]["device"][0]["rank_id"] = "first"
    value["server_list"][0]["device"][1]["device_id"] = None
    value["server_list"][0]["device"][2] = "3"
    assert list_messages(run_check(NAME, value)) == [
        (
            "device: not what the form requires, at server_list[0].device[2]"
            " | observed ['a text'] | expected an object in braces {}"
        ),
        (
            "device_id: not what the form requires, at server_list[0].device[1].device_id"
            " | observed ['null'] | expected a text"
        ),
        (
            "rank_id: not what the form requires, at server_list[0].device[0].rank_id"
            " | observed ['first'] | expected a whole number from 0"
        ),
    ]


def test_long_lists_are_cut() -> None:
    value = a1(8, 8)
    for server in value["server_list"]:
        for device in server["device"]:
            del device["rank_id"]
    (finding,) = list_messages(run_check(NAME, value))
    assert finding.endswith("and 56 more") and len(finding) < 500


def test_the_old_forms() -> None:
    twins = legacy(2)
    for pod in twins["group_list"][0]["instance_list"]:
        pod["pod_name"] = "tf-0"
    (finding,) = list_messages(run_check(NAME, twins))
    assert "pod_name: not what the form requires" in finding and "a unique name" in finding
    double = lab(1, 2)
    double["group_list"][0]["instance_list"][0]["devices"] *= 2
    assert "one device a rank_id" in list_messages(run_check(NAME, double))[0]
    on_host = {**lab(), "para_plane_nic_location": "host"}
    assert list_messages(run_check(NAME, on_host))[0].endswith("| observed ['host'] | expected device")


def test_server_count_may_be_missing_in_version_1_2_only() -> None:
    for value, status in ((a1(), Status.FAILED), (a3(), Status.PASSED)):
        del value["server_count"]
        assert run_check(NAME, value).status is status
