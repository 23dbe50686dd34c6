"""Three levels of real hosts: ``--transport tree`` reports what ``--transport ssh`` does, also past a dead gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import Fleet

pytestmark = pytest.mark.hosts
ROOT = Path(__file__).resolve().parents[2]
CLIENT = "Host *\n User root\n IdentityFile /root/.ssh/id\n IdentitiesOnly yes\n"


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(6, name="tr", subnet="10.94.0.0/16")


@pytest.fixture(autouse=True)
def gateways(fleet: Fleet) -> None:
    """The first four may enter the others, and only those that they know."""
    for host in fleet.hosts[:4]:
        fleet.write(host, "/root/.ssh/id", (fleet.directory / "id_ed25519").read_text(), mode="600")
        fleet.write(host, "/root/.ssh/known_hosts", fleet.known_hosts.read_text())
        fleet.write(host, "/root/.ssh/config", CLIENT)
    first, second, leaves = (",".join(fleet.hosts[start : start + 2]) for start in (0, 2, 4))
    (fleet.directory / "topology.conf").write_text(f"[routes]\nadmin: {first}\n{first}: {second}\n{second}: {leaves}\n")


def report(fleet: Fleet, *arguments: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "doctor", "check", ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--json"]
    done = fleet.run([*argv, "--select", "listen-queue-short", *arguments], cwd=ROOT)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return {name: value for name, value in document.items() if name not in ("seconds", "started", "notes", "run")}


def tree(fleet: Fleet) -> tuple[str, ...]:
    return ("--transport", "tree", "--gateways", str(fleet.directory / "topology.conf"))


def test_the_report_is_the_same_and_a_dead_gateway_changes_only_its_own_line(fleet: Fleet) -> None:
    assert report(fleet, *tree(fleet))["outcomes"] == report(fleet)["outcomes"]


@pytest.mark.parametrize("dead", [(0,), (2,), (4,), (0, 3)], ids=["first level", "second level", "leaf", "both levels"])
def test_of_dead_hosts_at_any_level_the_rest_is_reached_another_way(fleet: Fleet, dead: tuple[int, ...]) -> None:
    names = {fleet.hosts[place] for place in dead}
    with fleet.broken(sorted(names), fault="refuse"):
        assert unreached(report(fleet, *tree(fleet))).keys() == names


def test_where_all_gateways_of_a_level_are_dead_their_hosts_are_unknown_and_the_gateway_is_named(fleet: Fleet) -> None:
    """Nothing is said against a host that no gateway was left for."""
    with fleet.broken(fleet.hosts[2:4], fault="refuse"):
        reasons = unreached(report(fleet, *tree(fleet)))
    assert reasons.keys() == set(fleet.hosts[2:])
    for leaf in fleet.hosts[4:]:
        assert "not reached: the gateway" in reasons[leaf] and any(name in reasons[leaf] for name in fleet.hosts[2:4])


def unreached(document: dict[str, Any]) -> dict[str, str]:
    """The message of each host that was not reached."""
    [outcome] = [entry for entry in document["outcomes"] if entry["check"] == "host-unreachable"]
    return {host: finding["message"] for finding in outcome["findings"] for host in finding["hosts"]}
