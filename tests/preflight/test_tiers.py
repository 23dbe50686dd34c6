"""How deep each tier looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from doctor import WARNING
from doctor.engine.catalog import load_checks, select_checks
from doctor.engine.quantities import parse_time_limit
from doctor.preflight.early_end import BUDGET
from doctor.preflight.options import TIERS, Tier, checks_of_tier, left_out
from tests.hosts.fleet import Fleet

ROOT = Path(__file__).resolve().parents[2]
TRANSLATED = "10.99.1.1"
"""An address of no host, which every host translates to that of the first."""


def test_each_tier_looks_at_all_that_the_one_before_does_and_at_more() -> None:
    """deep differs from smoke by what the run does: its device test gives the checks of it something to read."""
    checks = load_checks()
    quick, standard, smoke, deep = ({check.name for check in checks_of_tier(checks, tier)[0]} for tier in TIERS)
    assert quick < standard < smoke == deep == {check.name for check in checks}
    second = {fact for check in checks_of_tier(checks, "quick")[0] for fact in check.facts if fact.needs}
    assert all(fact.settles_doubt for fact in second)
    assert {check.area for check in checks if check.name in smoke - standard} == {"smoke"}
    assert BUDGET["quick"] < BUDGET["standard"] < BUDGET["smoke"] < BUDGET["deep"]


def test_what_a_quick_look_leaves_out_is_named() -> None:
    """The training run is told by the tier itself; a second look at hosts is not."""
    picked, remaining = checks_of_tier(load_checks(), "quick")
    assert "device-unreachable" in {check.name for check in remaining}
    assert "master-address-wrong" in {check.name for check in picked}
    assert not set(picked) & set(remaining)
    assert checks_of_tier(load_checks(), "standard")[1] == []


@pytest.mark.parametrize(
    ("tier", "select", "needs"),
    [
        ("quick", ["peer-unreachable", "disk-full"], {"peer-unreachable": "--tier standard"}),
        ("standard", ["peer-unreachable", "disk-full"], {}),
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
    assert {check.severity for check in remaining if not any(fact.needs for fact in check.facts)} == {WARNING}
    assert {"optics-out-of-range", "fec-off"} <= {check.name for check in remaining}


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("90s", 90), ("1.5m", 90), ("1h", 3600), ("2M", 120)])
def test_a_time(text: str, expected: float) -> None:
    assert parse_time_limit(text) == expected


@pytest.mark.parametrize("text", ["", "s", "0", "-1s", "nan", "inf", "25h", "2d", "1 0", "1e9"])
def test_no_time(text: str) -> None:
    assert parse_time_limit(text) is None


@pytest.mark.hosts
def test_a_quick_look_at_hosts_sees_a_wrong_master_address(make_fleet: Callable[..., Fleet]) -> None:
    """Where it is the address of none, a second look says whether it is translated; the line names what is left out."""
    fleet = make_fleet(2, shm="4g", name="tq", subnet="10.96.0.0/16")
    first = fleet.addresses[fleet.hosts[0]]
    for host in fleet.hosts:
        chain = "add chain ip n out { type nat hook output priority -100; }"
        rule = f"add rule ip n out ip daddr {TRANSLATED} dnat to {first}"
        fleet.enter(host, f"ip route add 10.99.0.0/16 dev eth0; nft 'add table ip n; {chain}; {rule}'")
    expected = {
        "no-such.invalid": ("FAIL", "why=master-address-unresolved:tq[0001-0002] left-out=connectivity:2,"),
        "10.99.99.99": ("FAIL", "why=master-address-wrong:tq[0001-0002] "),
        "127.0.0.1": ("FAIL", "why=master-address-wrong:tq[0001-0002] left-out=connectivity:2,"),
        first: ("OK", "nodes=2/2 left-out=connectivity:2,devices:"),
        TRANSLATED: ("OK", "nodes=2/2 left-out=connectivity:2,devices:"),
    }
    launchers = ("DOCTOR_", "SLURM_", "RANK", "OMPI_", "WORLD_", "MASTER_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    for master, (word, part) in expected.items():
        job = {"MASTER_ADDR": master, "MASTER_PORT": "29571", "WORLD_SIZE": "2"}
        words = ["preflight", ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--tier", "quick"]
        line = fleet.run([sys.executable, "-m", "doctor", *words], env={**clean, **job}, cwd=ROOT).stdout
        assert line.startswith(f"doctor preflight: {word} ") and part in line, (master, line)
