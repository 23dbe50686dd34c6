"""Seeded changes on real hosts, one alone or all alike: each is told first, and nothing where nothing changed."""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import sampling
from tests.history.seeded_changes import CHANGES, PREPARE, HostChange
from tests.hosts.fleet import Fleet

ROOT = Path(__file__).resolve().parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("DOCTOR_", "SLURM_", "RANK_"))}
QUICK = ("--select", "python3-missing")


class Observer:
    """Asks what has changed on four hosts."""

    def __init__(self, fleet: Fleet, state: Path) -> None:
        self.fleet, self.env = fleet, {**CLEAN, "XDG_STATE_HOME": str(state), "PYTHONPATH": str(ROOT)}

    def ask(self, *arguments: str, line: Sequence[str] = (), cwd: Path = ROOT) -> tuple[int, str]:
        hosts = ",".join(self.fleet.hosts)
        argv = [sys.executable, "-m", "doctor", "changes", hosts, "-F", str(self.fleet.ssh_config), *arguments]
        done = self.fleet.run([*argv, *(["--", *line] if line else [])], env=self.env, cwd=cwd, timeout=200)
        return done.returncode, done.stdout or done.stderr

    def changes(self, *arguments: str, line: Sequence[str] = (), cwd: Path = ROOT) -> list[dict[str, Any]]:
        code, text = self.ask(*arguments, "--json", line=line, cwd=cwd)
        assert code == 0, text
        return list(json.loads(text)["changes"])


@pytest.fixture(scope="module")
def observer(fleet_a2: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Observer:
    return Observer(fleet_a2, tmp_path_factory.mktemp("state"))


def put_in(fleet: Fleet, change: HostChange) -> tuple[str, ...]:
    """The hosts that are changed."""
    hosts = fleet.hosts if change.everywhere else fleet.hosts[1:2]
    for host in hosts:
        fleet.enter(host, change.script)
    return hosts


@pytest.fixture(scope="module")
def before(observer: Observer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved run of the prepared hosts; hosts that are made anew have the same settings."""
    saved = tmp_path_factory.mktemp("before") / "run.json"
    with observer.fleet.broken(observer.fleet.hosts, PREPARE):
        assert observer.ask("--no-history", "--save", str(saved), *QUICK)[0] in (0, 78)
    return saved


def told_first(observer: Observer, before: Path, change: HostChange) -> str:
    """What is wrong with the answer; empty where the change is told first, with its hosts.

    No other is told, but for the file that the change was written to.
    """
    fleet = observer.fleet
    with fleet.broken(fleet.hosts, PREPARE):
        hosts = put_in(fleet, change)
        changes = observer.changes("--no-history", "--since", str(before), *QUICK)
    rows = [(entry["category"], entry["name"], tuple(entry["hosts"])) for entry in changes]
    written = {("files", path, hosts) for path in re.findall(r"/(?:etc|root)/[\w./-]+", change.script)}
    is_first = rows[:1] == [(change.category, change.name, hosts)] and set(rows[1:]) <= written
    return "" if is_first else f"{change}: {changes[:4]}"


SAMPLE = random.Random(sampling.commit()).sample(CHANGES, 2)


@pytest.mark.parametrize("change", SAMPLE, ids=lambda change: change.name)
def test_a_change_is_told_first(change: HostChange, observer: Observer, before: Path) -> None:
    assert told_first(observer, before, change) == ""


@pytest.mark.full
@pytest.mark.parametrize("start", range(0, len(CHANGES), 8))
def test_each_change_is_told_first(start: int, observer: Observer, before: Path) -> None:
    assert [why for change in CHANGES[start : start + 8] if (why := told_first(observer, before, change))] == []


@pytest.mark.full
def test_ten_quiet_runs_tell_nothing(observer: Observer, before: Path) -> None:
    with observer.fleet.broken(observer.fleet.hosts, PREPARE):
        quiet = [observer.changes("--no-history", "--since", str(before), *QUICK) for _ in range(10)]
    assert quiet == [[]] * 10


def test_a_kernel_setting_that_all_hosts_changed_alike(observer: Observer) -> None:
    """The history is the memory: what worked, what has changed since, and that nothing else is told."""
    fleet = observer.fleet
    code, text = observer.ask()
    assert (code, "later runs are compared" in text) == (78, True), text
    assert observer.changes() == []
    with fleet.broken(fleet.hosts):
        for host in fleet.hosts:
            fleet.enter(host, "echo 7 >/proc/sys/net/ipv4/tcp_retries2; echo 64 >/proc/sys/net/core/somaxconn")
        code, text = observer.ask()
        assert code == 0
        lines = text.splitlines()
        assert lines[2] == "  1. sysctl net.core.somaxconn: 4096 -> 64, on all 4 hosts"
        assert lines[3] == "     read by listen-queue-short, which found something now"
        command = "`sysctl -w net.core.somaxconn=4096`"
        assert lines[4] == f"     if it is not intended, set it back, as root on all 4 hosts: {command}"
        assert lines[6] == "  2. sysctl net.ipv4.tcp_retries2: 15 -> 7, on all 4 hosts"
        assert len(lines) == 8, text
        again = observer.changes()
        assert [change["name"] for change in again] == ["net.core.somaxconn", "net.ipv4.tcp_retries2"]
