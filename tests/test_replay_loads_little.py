"""A saved run is evaluated with the modules that it needs: what only some runs have is loaded with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from doctor.engine.fact import Output, Visit
from doctor.engine.record import SCHEMA, HostRecord, Run
from doctor.facts.kernel import ListenQueues
from doctor.facts.network_test import NetworkAnswer
from tests.node_files import NO_ACCELERATORS

ROOT = Path(__file__).parents[1]
NEVER = {"collect", "diagnose", "environment", "fix", "history", "net", "preflight", "smoke", "transport", "watch"}
"""Packages that a replay of one check of hosts has no use for."""
CODE = """
import os, sys
from doctor.cli.main import main
sys.argv = ["doctor", "check", "--from", sys.argv[1], "--select", "listen-queue-short"]
main()
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "doctor"))
"""


def loaded(tmp_path: Path, somaxconn: int) -> tuple[str, set[str]]:
    """The report of a run on a host with this queue, and the modules of doctor that its replay loads."""
    queues = {path: Output(out=f"{somaxconn}\n") for path in ListenQueues.probe.paths}
    visit = Visit(began=1.0, ended=2.0, sent=1.0, received=2.0, python="3.11.2", uid=0, name="w1")
    record = HostRecord(visit, {"ListenQueues": queues, **NO_ACCELERATORS})
    path = tmp_path / "run.json"
    path.write_bytes(msgspec.json.encode(Run(SCHEMA, "1 host", "2026-01-01T00:00:00Z", 1.0, {"w1": record})))
    run = subprocess.run([sys.executable, "-c", CODE, str(path)], cwd=ROOT, capture_output=True, text=True, check=True)
    report, _, modules = run.stdout.rstrip().rpartition("\n")
    return report, set(modules.split())


@pytest.mark.parametrize(("somaxconn", "most", "verdict"), [(4096, 73, "HEALTHY"), (16, 84, "WARNINGS")])
def test_one_check_of_a_saved_run_loads_few_modules(tmp_path: Path, somaxconn: int, most: int, verdict: str) -> None:
    """With a finding come its page, its causes and what fixes it."""
    report, modules = loaded(tmp_path, somaxconn)
    assert report.splitlines()[-1].startswith(verdict)
    assert len(modules) <= most, sorted(modules)
    assert not {name.split(".")[1] for name in modules if "." in name} & NEVER


def test_the_name_by_which_a_run_has_a_network_test_is_that_of_the_fact() -> None:
    record = HostRecord(Visit(), {NetworkAnswer.output_name(): {}})
    assert Run(SCHEMA, "", "", 0.0, {"w1": record}).tried_network
