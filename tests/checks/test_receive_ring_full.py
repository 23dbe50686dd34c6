"""What receive-ring-full finds."""

from __future__ import annotations

import pytest

from doctor.facts.nic_rings import NicRings, ReceiveRing
from tests.checks.run_check import messages, run_check


def card(**more: int) -> NicRings:
    healthy = {"current": 1024, "maximum": 8192, "packets": 80_000_000, "dropped": 0}
    return NicRings(rings={"ens1f0": ReceiveRing(**{**healthy, **more})})


@pytest.mark.parametrize(
    "ring",
    [
        {},
        {"current": 256, "dropped": 7999},
        {"dropped": 900, "packets": 1000},
        {"current": 8192, "dropped": 5_000_000, "growth": 900},
        {"current": 0, "packets": 0},
    ],
    ids=["no drops", "one in 10,000 is not reached", "few", "at the maximum", "unused"],
)
def test_rings_that_are_large_enough_or_as_large_as_they_can_be(ring: dict[str, int]) -> None:
    assert messages(run_check("receive-ring-full", {"w1": [card(**ring)]})) == []


def test_drops_that_grow() -> None:
    text = (
        "ens1f0 dropped 3 packets within a second, expected 0: its receive ring was full; "
        "the ring has 1024 of 8192 buffers"
    )
    assert messages(run_check("receive-ring-full", {"w1": [card(dropped=40, growth=3)]})) == [("w1", text)]


def test_many_drops_since_the_host_was_started() -> None:
    outcome = run_check("receive-ring-full", {"w1": [card(dropped=8000)]})
    assert [text.partition(", expected")[0] for _, text in messages(outcome)] == [
        "ens1f0 dropped 8000 packets since the host was started"
    ]
