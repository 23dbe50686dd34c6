"""`doctor rank-table` over real SSH: what it writes is healthy on the same hosts; what it cannot know it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checks.tables import sdid
from tests.hosts.fleet import Fleet

pytestmark = pytest.mark.hosts
ROOT = Path(__file__).resolve().parents[1]
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("DOCTOR_", "SLURM_", "RANK_", "HCCL_", "MS_", "MINDSPORE_"))
}


def doctor(fleet: Fleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "doctor", *arguments, "-F", str(fleet.ssh_config)]
    done = fleet.run(argv, env=CLEAN, cwd=ROOT, timeout=100)
    assert "Traceback" not in done.stderr
    return done


def make(fleet: Fleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    return doctor(fleet, "rank-table", ",".join(fleet.hosts), *arguments)


def ranks_judged(fleet: Fleet, table: Path) -> dict[str, str]:
    """What each check of ranks came to on the same hosts, none of which found anything, not even a warning."""
    arguments = ["check", ",".join(fleet.hosts), "--rank-table", str(table), "--select", "ranks", "--strict", "--json"]
    done = doctor(fleet, *arguments)
    assert done.returncode == 0, done.stdout
    return {outcome["check"]: outcome["status"] for outcome in json.loads(done.stdout)["outcomes"]}


def test_a2(fleet_a2: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "hccl.json"
    done = make(fleet_a2, "--out", str(file))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr == f"doctor: rank table: version 1.0, 4 hosts, 32 NPUs of the A2 family, in {file}\n"
    assert file.stat().st_mode & 0o777 == 0o644
    responses = ranks_judged(fleet_a2, file)
    assert responses["rank-table-address-differs"] == responses["rank-table-device-missing"] == "passed"
    assert make(fleet_a2).stdout == file.read_text()


def test_a3(fleet_a3: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "hccl.json"
    done = make(fleet_a3, "--devices", "0-3", "--out", str(file))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    table = json.loads(file.read_text())
    assert table["version"] == "1.2"
    last = table["server_list"][-1]["device"]
    assert [entry["super_device_id"] for entry in last] == [str(sdid(3, npu)) for npu in range(4)]
    assert [entry["rank_id"] for entry in last] == ["12", "13", "14", "15"]
    responses = ranks_judged(fleet_a3, file)
    assert responses["rank-table-super-pod-wrong"] == responses["rank-table-super-device-differs"] == "passed"


@pytest.mark.parametrize(
    ("broken", "code", "line", "summary"),
    [
        ("rm /run/npu/3/ip", 10, "NPU 3 has no device IP; expected one (device-ip-unset)", "wrong"),
        ("echo 'ip 9 err the port is asleep' >/run/npu/3/fail", 12, "NPU 3: the port is asleep", "unknown"),
    ],
)
def test_where_one_npu_has_no_address_or_does_not_tell_it_there_is_no_table(
    fleet_a2: Fleet, tmp_path: Path, broken: str, code: int, line: str, summary: str
) -> None:
    file, bad = tmp_path / "hccl.json", fleet_a2.hosts[1]
    with fleet_a2.broken(bad, sh=broken):
        done = make(fleet_a2, "--out", str(file))
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines() == [
        f"doctor: {bad}: {line}",
        f"doctor: no rank table was written: something is {summary} on 1 of 4 hosts",
    ]
    assert list(tmp_path.iterdir()) == []
