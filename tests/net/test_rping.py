"""RDMA adapters of hosts that have rping alone, which is emulated: no machine of these tests has an RDMA adapter."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.gpu import EMULATED
from tests.net.campaign import findings_of

pytestmark = [pytest.mark.hosts, pytest.mark.full]
ROOT = Path(__file__).parents[2]


WITHOUT_OTHERS = """\
for name in ib_write_bw ibv_rc_pingpong; do
  while path=$(command -v $name); do rm "$path"; hash -r; done
done; true"""


def tried(fleet: Any) -> tuple[list[str], list[tuple[str, list[str], str]]]:
    """Notes on coverage, and findings, of the device part of a full test."""
    arguments = [sys.executable, "-m", "doctor", "net", ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--json"]
    done = fleet.run([*arguments, "--select", "net-device-path-broken"], cwd=ROOT, timeout=300)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    return [note for note in report["notes"] if "RDMA" in note], findings_of(report)


@pytest.mark.parametrize("state", ["completion", "unreachable"])
def test_an_adapter_whose_data_does_not_pass(fleet_gpu: Any, state: str) -> None:
    victim = fleet_gpu.hosts[2]
    for number, host in enumerate(fleet_gpu.hosts, 1):
        fleet_gpu.write(host, "/usr/local/bin/rping", (EMULATED / "rping").read_text(), "755")
        addresses = " ".join(f"&& ip addr add 10.{96 + place}.0.{number}/24 dev eth0" for place in range(2))
        fleet_gpu.enter(host, f"{WITHOUT_OTHERS} {addresses}")
    assert tried(fleet_gpu) == (["RDMA writes between all pairs: 24 of 24 decided"], [])
    fleet_gpu.enter(victim, f"mkdir -p /run/rdma; echo {state} >/run/rdma/mlx5_1")
    _, ((check, hosts, message),) = tried(fleet_gpu)
    assert (check, hosts) == ("net-device-path-broken", [victim])
    assert "mlx5_1:1" in message
