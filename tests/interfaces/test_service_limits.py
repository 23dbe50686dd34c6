"""The limits of a real process of a service's name, on hosts of their own, and what the check says of a job of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.fleet import Fleet

pytestmark = [pytest.mark.hosts]
ROOT = Path(__file__).resolve().parents[2]
NAME = "open-files-limit-low"


@pytest.mark.parametrize(("service", "variable"), [("pbs_mom", "PBS_JOBID"), ("sbatchd", "LSB_JOBID")])
def test_the_host_whose_service_has_a_low_limit(service: str, variable: str, make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet(2, name="srv")
    for host, limit in zip(fleet.hosts, (65535, 48), strict=True):
        start = (
            f"cp /bin/sleep /root/{service}; ulimit -n {limit}; setsid /root/{service} 600 </dev/null >/dev/null 2>&1 &"
        )
        fleet.enter(host, start)
    command = [sys.executable, "-m", "doctor", "check", ",".join(fleet.hosts), "-F", str(fleet.ssh_config)]
    command += ["--select", NAME, "--json", "--", "mpirun", "-np", "2", "python3", "/root/train.py"]
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
    observed = []
    for more in ({variable: "17"}, {}):
        report = json.loads(fleet.run(command, env={**environ, **more}, cwd=ROOT).stdout)
        (outcome,) = [outcome for outcome in report["outcomes"] if outcome["check"] == NAME]
        findings = [finding for finding in outcome["findings"] if finding["values"].get("service") == service]
        observed.append([(host, finding["values"]["observed"]) for finding in findings for host in finding["hosts"]])
    assert observed == [[(fleet.hosts[1], 48)], []]
