"""A real fault on a real host: new when it comes, there while it stays, gone only when somebody looked."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import Fleet

ROOT = Path(__file__).resolve().parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("DOCTOR_", "SLURM_", "RANK_"))}
CHECK = "listen-queue-short"
SOMAXCONN = "net.core.somaxconn"


class Operator:
    """Checks two hosts again and again, and asks for the history."""

    def __init__(self, fleet: Fleet, state: Path) -> None:
        self.fleet, self.env = fleet, {**CLEAN, "XDG_STATE_HOME": str(state)}

    def run(self, *arguments: str) -> dict[str, Any]:
        argv = [sys.executable, "-m", "doctor", *arguments, "--json"]
        done = self.fleet.run(argv, env=self.env, cwd=ROOT, timeout=200)
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    def ages(self, *hosts: str) -> list[tuple[str, int]]:
        """State and runs of each age that a check of these hosts tells."""
        arguments = ["check", ",".join(hosts), "-F", str(self.fleet.ssh_config), "--select", CHECK]
        (outcome,) = (outcome for outcome in self.run(*arguments)["outcomes"] if outcome["check"] == CHECK)
        return [(age["state"], age["runs"]) for finding in outcome["findings"] for age in finding["ages"]]

    def track(self) -> tuple[str, list[str | None]]:
        (track,) = self.run("history", CHECK)["tracks"]
        return track["kind"], track["states"]


@pytest.mark.hosts
def test_a_fault_that_comes_stays_and_goes(fleet_cpu: Fleet, tmp_path: Path) -> None:
    operator, (good, bad, *_) = Operator(fleet_cpu, tmp_path), fleet_cpu.hosts
    assert operator.ages(good, bad) == []
    with fleet_cpu.broken(bad, sysctl={SOMAXCONN: "128"}):
        assert operator.ages(good, bad) == [("new", 1)]
        assert operator.ages(good, bad) == [("present", 2)]
        assert operator.ages(good) == []
        assert operator.track() == ("came", ["clear", "warning", "warning", None])
    assert operator.ages(good, bad) == []
    assert operator.track() == ("went", ["clear", "warning", "warning", None, "clear"])
