"""rank-table-server-repeated."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import a1, legacy, list_messages, run_check

NAME = "rank-table-server-repeated"


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["n1", "n1"], "the server_id n1 appears twice: server_list[0] and server_list[1]"),
        (["", "n1"], 'server_list[0] has an empty server_id | observed "" | expected the host\'s address or name'),
        (
            ["127.0.1.1", "n1"],
            "on every host, 127.0.1.1 refers to that host itself | expected the host's own address or name",
        ),
        (
            ["localhost", "n1"],
            "on every host, localhost refers to that host itself | expected the host's own address or name",
        ),
        (["::", "n1"], "on every host, :: refers to that host itself | expected the host's own address or name"),
        (
            ["ip6-localhost", "n1"],
            "on every host, ip6-localhost refers to that host itself | expected the host's own address or name",
        ),
    ],
)
def test_ids_that_mean_no_one_host(ids: list[str], message: str) -> None:
    value = a1(2)
    for server, name in zip(value["server_list"], ids, strict=True):
        server["server_id"] = name
    assert list_messages(run_check(NAME, value)) == [message]


def test_64_characters_and_one_more() -> None:
    value = a1(1)
    value["server_list"][0]["server_id"] = "n" * 64
    assert run_check(NAME, value).status is Status.PASSED
    value["server_list"][0]["server_id"] = "n" * 65
    assert list_messages(run_check(NAME, value))[0].endswith("| expected at most 64 characters")


def test_one_host_may_be_called_anything() -> None:
    value = a1(1)
    value["server_list"][0]["server_id"] = "127.0.0.1"
    assert run_check(NAME, value).status is Status.PASSED


def test_pods_of_one_host_are_fine() -> None:
    value = legacy(2, 4)
    for pod in value["group_list"][0]["instance_list"]:
        pod["server_id"] = "n1"
    assert run_check(NAME, value).status is Status.PASSED


def test_missing_ids_are_no_repetition() -> None:
    value = a1(2)
    for server in value["server_list"]:
        del server["server_id"]
    assert run_check(NAME, value).status is Status.UNKNOWN
