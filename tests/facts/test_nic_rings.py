"""The receive rings of network cards."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.nic_rings import NicRings, ReceiveRing, read_rings
from tests.facts.answers import learned
from tests.facts.garbage import ANYTHING, JSON, as_answer, value_of


def read_back(data: Any) -> Any:
    return learned(NicRings, {"": Output(out=json.dumps(data))})


def test_the_counters_of_the_second_read_count() -> None:
    cards = {
        "ens1f0": {"current": 1024, "maximum": 8192, "before": [100, 7], "after": [160, 9]},
        "eno1": {"current": 4096, "maximum": 4096, "before": [5, 0]},
    }
    assert read_back(cards) == NicRings(
        rings={"ens1f0": ReceiveRing(1024, 8192, 160, 9, 2), "eno1": ReceiveRing(4096, 4096, 5, 0)}
    )


def test_a_counter_that_was_set_back_is_no_growth() -> None:
    result = read_back({"ens1f0": {"current": 1, "maximum": 2, "before": [100, 7], "after": [1, 0]}})
    assert result.rings["ens1f0"].growth == 0


def test_a_host_without_such_a_card() -> None:
    result = read_back({})
    assert isinstance(result, Absent) and not isinstance(result, Unreadable)


@pytest.mark.parametrize("data", [[], {"a": 1}, {"a": {"current": "x", "maximum": 1, "before": [0, 0]}}])
def test_what_is_no_answer(data: Any) -> None:
    assert isinstance(read_back(data), Unreadable)


@given(ANYTHING | JSON.map(as_answer))
def test_arbitrary_answers(text: str) -> None:
    value_of(NicRings, text)


def test_the_cards_of_this_machine() -> None:
    """Those whose driver tells the ring."""
    for card in read_rings({}).values():
        assert 0 <= card["current"] <= card["maximum"]
