"""rank-table-ranks-interleave."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.tables import a1, list_messages, run_check

NAME = "rank-table-ranks-interleave"


def test_the_documentation_s_counter_example() -> None:
    value = a1(2, 4)
    value["server_list"][0]["device"][3]["rank_id"] = "7"
    for number, device in enumerate(value["server_list"][1]["device"]):
        device["rank_id"] = str(3 + number)
    outcome = run_check(NAME, value)
    assert list_messages(outcome) == ["ranks 0 to 7 of 172.16.0.10 and 3 to 6 of 172.16.0.11 are interleaved"]
    assert outcome.findings[0].hosts == ("172.16.0.10", "172.16.0.11")


def test_hosts_in_another_order_are_fine() -> None:
    value = a1(3, 2)
    value["server_list"].reverse()
    assert run_check(NAME, value).status is Status.PASSED
