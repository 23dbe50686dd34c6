"""rank-table-a1-layout."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from tests.checks.tables import a1, a3, lab, list_messages, run_check

NAME = "rank-table-a1-layout"


@pytest.mark.parametrize("count", [3, 5, 6, 7])
def test_counts_that_form_no_group(count: int) -> None:
    (finding,) = list_messages(run_check(NAME, a1(1, count), "A1"))
    assert finding.startswith(
        f"the rank table lists {count} devices of it: 0, 1 and 2" if count == 3 else "the rank table"
    )
    assert finding.endswith("expected 1, 2, 4 or 8")


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_counts_that_do(count: int) -> None:
    assert run_check(NAME, a1(2, count), "A1").status is Status.PASSED


def test_across_the_halves() -> None:
    value = a1(1, 2)
    value["server_list"][0]["device"][1]["device_id"] = "4"
    (finding,) = list_messages(run_check(NAME, value, "A1"))
    assert finding.startswith("its devices in the rank table lie in both halves | observed [0, 4]")


def test_the_second_half_alone_is_fine() -> None:
    value = a1(1, 4)
    for number, device in enumerate(value["server_list"][0]["device"]):
        device["device_id"] = str(number + 4)
    assert run_check(NAME, value, "A1").status is Status.PASSED


def test_unequal_hosts() -> None:
    value = a1(2, 8)
    del value["server_list"][1]["device"][4:]
    (finding,) = list_messages(run_check(NAME, value, "A1"))
    assert finding.startswith("the rank table lists different numbers of devices: 4: 172.16.0.11, 8: 172.16.0.10")


def test_only_for_a1() -> None:
    assert run_check(NAME, a1(1, 3), "A2").status is Status.SKIPPED
    assert run_check(NAME, a1(1, 3)).status is Status.UNKNOWN
    assert run_check(NAME, a1(2, 8)).status is Status.PASSED  # it keeps the rule, which is sound on every family
    assert run_check(NAME, a3()).status is Status.SKIPPED  # version 1.2 is never A1
    assert run_check(NAME, lab(2), "A1").status is Status.PASSED
