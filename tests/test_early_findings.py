"""Of a large run the first errors are shown while other hosts have still to answer."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.engine.result import ERROR
from doctor.session import early_findings
from doctor.session.early_findings import MOST_FINDINGS, EarlyFindings
from tests.hosts.fleet import Fleet
from tests.node_files import NO_ACCELERATORS

VISIT = Visit(began=1.0, ended=2.0, sent=1.0, received=2.0, python="3.11.2", uid=0, name="w1")
HEALTHY = HostRecord(VISIT, NO_ACCELERATORS)
REFUSED = HostRecord(Visit("refused", "connection refused"))


def shown(records: dict[str, HostRecord], config: Path | None = None) -> list[str]:
    lines: list[str] = []
    early = EarlyFindings(load_checks(), config, lines.append)
    for host, record in records.items():
        early.step(host, record)
    return lines


def test_a_host_that_cannot_be_reached_is_named_at_once_and_one_is_enough() -> None:
    [line] = shown({"w1": HEALTHY, "w2": REFUSED, "w3": REFUSED})
    assert line.startswith("so far: w2: ") and "connection refused" in line and line.endswith("(host-unreachable)")


def test_healthy_hosts_are_not_mentioned() -> None:
    assert shown({f"w{number}": HEALTHY for number in range(40)}) == []


def test_what_a_file_waives_is_not_shown(tmp_path: Path) -> None:
    config = tmp_path / "doctor.toml"
    config.write_text('[[waive]]\ncheck = "host-unreachable"\nreason = "in repair"\nuntil = 2099-01-01\n')
    assert shown({"w2": REFUSED}, config) == []


def test_the_time_of_the_cpu_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_findings, "SECONDS", 0.0)
    assert shown({"w2": REFUSED}) == []


def test_only_checks_of_one_host_and_its_first_answer_are_tried() -> None:
    early = EarlyFindings(load_checks(), None, print)
    early.step("w1", HEALTHY)
    assert early.checks and all(check.severity is ERROR for check in early.checks)
    assert {"host-unreachable", "python3-missing"} <= {check.name for check in early.checks}
    assert not {"device-ip-conflict", "firewall-blocks-job"} & {check.name for check in early.checks}
    assert MOST_FINDINGS > 0


@pytest.mark.full
def test_the_first_finding_is_on_the_screen_before_the_last_host_answers() -> None:
    """Real hosts; one takes all its time."""
    fleet = Fleet.up(17, {"sb0017": {"fault": "hang"}, "sb0003": {"fault": "refuse"}})
    try:
        near, far = pty.openpty()
        argv = [
            sys.executable,
            "-m",
            "doctor",
            "check",
            "sb[0001-0017]",
            "-F",
            str(fleet.ssh_config),
            "--timeout",
            "40",
        ]
        environ = {**os.environ, "TERM": "xterm", "LANG": "C.UTF-8"}
        run = subprocess.Popen(fleet.argv(argv), stdout=subprocess.PIPE, stderr=far, env=environ, text=True)
        os.close(far)
        text = b""
        while b"so far: sb0003: " not in text:
            text += os.read(near, 4096)
        assert run.poll() is None and b"17 of 17" not in text
        report, _ = run.communicate(timeout=200)
        assert run.returncode == 10 and "sb0003" in report and "sb0017" in report
        os.close(near)
    finally:
        fleet.down()
