"""How deep each tier looks."""

from __future__ import annotations

import pytest

from doctor import WARNING
from doctor.engine.catalog import load_checks
from doctor.preflight.early_end import BUDGET, parse_duration
from doctor.preflight.tiers import TIERS, checks_of_tier


def test_each_tier_looks_at_all_that_the_one_before_does_and_at_more() -> None:
    """deep differs from smoke by what the run does: its device test gives the checks of it something to read."""
    known = load_checks()
    quick, standard, smoke, deep = ({one.name for one in checks_of_tier(known, tier)[0]} for tier in TIERS)
    assert quick < standard < smoke == deep == {one.name for one in known}
    assert not [one for one in checks_of_tier(known, "quick")[0] for fact in one.facts if fact.needs]
    assert {one.area for one in known if one.name in smoke - standard} == {"smoke"}
    assert BUDGET["quick"] < BUDGET["standard"] < BUDGET["smoke"] < BUDGET["deep"]


def test_what_a_quick_look_leaves_out_is_named() -> None:
    """The training run is told by the tier itself; a second look at hosts is not."""
    picked, left = checks_of_tier(load_checks(), "quick")
    assert "device-unreachable" in left
    assert not {one.name for one in picked} & set(left)
    assert checks_of_tier(load_checks(), "standard")[1] == []


def test_a_quick_look_fits_its_time_where_the_vendors_tool_is_slow() -> None:
    """Sixteen NPUs and eight cards, 0.2 s for each call: hccn_tool two at a time, npu-smi one after the other."""
    picked, left = checks_of_tier(load_checks(), "quick")
    calls = {fact for one in picked for fact in one.facts if fact.probe.lane == "hccn"}
    assert len(calls) * 16 * 0.2 / max(min(fact.probe.lanes for fact in calls), 1) < BUDGET["quick"] - 6
    smi = {fact for one in picked for fact in one.facts if fact.probe.lane == "npu-smi"}
    assert sum(9 if fact.probe.repeats else 1 for fact in smi) * 0.2 < BUDGET["quick"] - 6
    assert {one.severity for one in load_checks() if one.name in left and not any(f.needs for f in one.facts)} == {
        WARNING
    }
    assert {"optics-out-of-range", "fec-off"} <= set(left)


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("90s", 90), ("1.5m", 90), ("1h", 3600), ("2M", 120)])
def test_a_time(text: str, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "s", "0", "-1s", "nan", "inf", "25h", "1d", "1 0", "1e9"])
def test_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)
