"""A fleet that is cut between its hosts, on real hosts: check names the parts and accuses no host of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.net.injected_faults import SSH_PASSES, Expectation, InjectedFault, injected, rules

ROOT = Path(__file__).parents[2]
UNKNOWN, MOST_TRIES = 12, 5
SELECTED = ("--select", "peer-unreachable")


def cut(fleet: Any, *parts: Sequence[str]) -> InjectedFault:
    """The bridge passes SSH, and nothing else between the parts."""
    members = [", ".join(fleet.addresses[host] for host in part) for part in parts]
    pairs = [(one, other) for one in members for other in members if one != other]
    lines = [f"ip saddr {{ {one} }} ip daddr {{ {other} }} drop" for one, other in pairs]
    expected = Expectation(frozenset({"peer-unreachable"}), frozenset(fleet.hosts))
    return InjectedFault("cut", expected, {"": rules(*SSH_PASSES, *lines, kind="bridge", hook="forward")})


def doctor(fleet: Any, command: str, *more: str) -> tuple[int, str]:
    """Once more where a host was too busy for a verdict: then the attempts are unknown, in whole or in part."""
    argv = [sys.executable, "-m", "doctor", command, ",".join(fleet.hosts), "-F", str(fleet.ssh_config), *SELECTED]
    for _ in range(MOST_TRIES):
        done = fleet.run([*argv, *more], cwd=ROOT, timeout=110)
        assert done.stdout, done.stderr
        if done.returncode != UNKNOWN and "did not run for" not in done.stdout and "one-of-them-did" not in done.stdout:
            break
    return done.returncode, done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("sizes", "named"),
    [((2, 2), 4), pytest.param((2, 1, 1), 4, marks=pytest.mark.full), pytest.param((3, 1), 1, marks=pytest.mark.full)],
)
def test_the_parts_are_named_and_beside_a_majority_the_others(fleet_cpu: Any, sizes: Sequence[int], named: int) -> None:
    hosts, parts = list(fleet_cpu.hosts), []
    for size in sizes:
        parts.append(hosts[:size])
        hosts = hosts[size:]
    with injected(fleet_cpu, cut(fleet_cpu, *parts)):
        code, text = doctor(fleet_cpu, "check", "--json")
        outcomes = {item["check"]: item for item in json.loads(text)["outcomes"]}
        [finding] = outcomes["peer-unreachable"]["findings"]
        assert (code, len(finding["hosts"])) == (10, named), finding
        assert finding["values"].get("cut_parts", [parts[0]])[0] == parts[0]
        code, line = doctor(fleet_cpu, "preflight", "--need", "2")
        left_out = "sb0004" if sizes == (3, 1) else "sb[0003-0004]"
        assert (code, f" nodes={sizes[0]}/4 bad={left_out} " in line) == (0, True), line
        assert doctor(fleet_cpu, "preflight", "--need", "4")[0] == 10
        code, line = doctor(fleet_cpu, "preflight")
        bad = " bad=sb0004 " if sizes == (3, 1) else ""
        assert (code, bad in line, " bad=" in line) == (10, True, bool(bad)), line
    assert doctor(fleet_cpu, "check")[0] == 0
