"""How deep each tier looks."""

from __future__ import annotations

import pytest

from doctor import WARNING
from doctor.engine.catalog import load_checks, select_checks
from doctor.engine.quantities import parse_time_limit
from doctor.preflight.early_end import BUDGET
from doctor.preflight.tiers import TIERS, Tier, checks_of_tier, left_out


def test_each_tier_looks_at_all_that_the_one_before_does_and_at_more() -> None:
    """deep differs from smoke by what the run does: its device test gives the checks of it something to read."""
    checks = load_checks()
    quick, standard, smoke, deep = ({check.name for check in checks_of_tier(checks, tier)[0]} for tier in TIERS)
    assert quick < standard < smoke == deep == {check.name for check in checks}
    assert not [check for check in checks_of_tier(checks, "quick")[0] for fact in check.facts if fact.needs]
    assert {check.area for check in checks if check.name in smoke - standard} == {"smoke"}
    assert BUDGET["quick"] < BUDGET["standard"] < BUDGET["smoke"] < BUDGET["deep"]


def test_what_a_quick_look_leaves_out_is_named() -> None:
    """The training run is told by the tier itself; a second look at hosts is not."""
    picked, remaining = checks_of_tier(load_checks(), "quick")
    assert "device-unreachable" in remaining
    assert not {check.name for check in picked} & set(remaining)
    assert checks_of_tier(load_checks(), "standard")[1] == []


@pytest.mark.parametrize(
    ("tier", "select", "needs"),
    [
        ("quick", ["master-address-wrong", "disk-full"], {"master-address-wrong": "--tier standard"}),
        ("standard", ["master-address-wrong", "disk-full"], {}),
        ("standard", ["smoke-rank-died", "disk-full"], {"smoke-rank-died": "--tier smoke"}),
        ("quick", ["disk-full", "network"], {"network": "--tier standard --net quick"}),
        ("quick", ["connectivity"], {}),
        ("quick", [], {}),
    ],
)
def test_a_selected_check_that_the_tier_leaves_out_says_which_one_runs_it(
    tier: Tier, select: list[str], needs: dict[str, str]
) -> None:
    """Of an area that runs in part the notes name the rest."""
    candidates = select_checks(load_checks(), select)
    reasons = left_out(select, candidates, checks_of_tier(candidates, tier)[0]).values()
    assert set(reasons) == {f"{word} was selected, and needs {options}" for word, options in needs.items()}


def test_a_quick_look_fits_its_time_where_the_vendors_tool_is_slow() -> None:
    """Sixteen NPUs and eight cards, 0.2 s for each call: hccn_tool two at a time, npu-smi one after the other."""
    picked, remaining = checks_of_tier(load_checks(), "quick")
    calls = {fact for check in picked for fact in check.facts if fact.probe.lane == "hccn"}
    assert len(calls) * 16 * 0.2 / max(min(fact.probe.lanes for fact in calls), 1) < BUDGET["quick"] - 6
    smi = {fact for check in picked for fact in check.facts if fact.probe.lane == "npu-smi"}
    assert sum(9 if fact.probe.repeats else 1 for fact in smi) * 0.2 < BUDGET["quick"] - 6
    assert {
        check.severity for check in load_checks() if check.name in remaining and not any(f.needs for f in check.facts)
    } == {WARNING}
    assert {"optics-out-of-range", "fec-off"} <= set(remaining)


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("90s", 90), ("1.5m", 90), ("1h", 3600), ("2M", 120)])
def test_a_time(text: str, expected: float) -> None:
    assert parse_time_limit(text) == expected


@pytest.mark.parametrize("text", ["", "s", "0", "-1s", "nan", "inf", "25h", "2d", "1 0", "1e9"])
def test_no_time(text: str) -> None:
    assert parse_time_limit(text) is None
