"""A rule that drops what one of two hosts opens to the other: what check and net say, and torchrun beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from doctor.facts.socket_peers import FleetSockets
from doctor.job import LaunchConfig
from tests.checks.network import interfaces
from tests.conftest import PREPARED
from tests.hosts.fleet import merge
from tests.smoke.interpreter import ROOT, visible_folders

PROGRAM = (
    "import datetime, torch, torch.distributed as d\n"
    "d.init_process_group('gloo', timeout=datetime.timedelta(seconds=20))\n"
    "t = torch.ones(1)\nd.all_reduce(t)\nassert t == 2\n"
)
PORT = 29471


def torchrun(master: str, number: str) -> list[str]:
    line = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--master-addr"]
    return [sys.executable, *line, master, "--master-port", str(PORT), "--node-rank", number, "/tmp/t.py"]


def test_the_places_of_hosts_are_those_of_their_gloo_addresses() -> None:
    """As numbers, not as texts; with two addresses of a host it is not known which one a rank takes."""
    addresses = {"a": "10.9.0.20", "b": "10.9.0.3", "c": "10.9.0.100"}
    hosts = {name: interfaces(eth0=f"{address}/24") for name, address in addresses.items()}
    places = {}
    for value in ("eth0", "eth0,lo"):
        launch = LaunchConfig(launch_line="torchrun t.py --backend gloo", env={"GLOO_SOCKET_IFNAME": value})
        places[value] = FleetSockets(hosts, {}, launch, {}, {}).gloo_places()
    assert places == {"eth0": {"b": 0, "a": 1, "c": 2}, "eth0,lo": {}}


@pytest.mark.full
@pytest.mark.timeout(300)
def test_doctor_and_torchrun_agree_on_each_direction(make_fleet: Any) -> None:
    fleet = make_fleet(2, {"*": merge(PREPARED, {"shows": [*visible_folders()]})}, name="gd", subnet="10.93.0.0/16")
    smaller, greater = sorted(fleet.hosts, key=fleet.addresses.__getitem__)
    for host in fleet.hosts:
        fleet.write(host, "/tmp/t.py", PROGRAM)
    seen = {}
    for at, peer in ((greater, smaller), (smaller, greater)):
        rule = f"ip saddr {fleet.addresses[peer]} tcp dport 32768-60999 tcp flags & (syn | ack) == syn drop"
        table = f"table inet site {{\nchain c {{\ntype filter hook input priority 0\n{rule}\n}}\n}}"
        with fleet.broken(at, sh=f"nft -f - <<'END'\n{table}\nEND"):
            verdicts = [verdict(fleet, smaller, check) for check in ("firewall-blocks-job", "net-port-blocked")]
            seen[peer] = verdicts, runs(fleet, smaller, greater)
    assert seen == {smaller: ([True, True], True), greater: ([False, False], False)}


def verdict(fleet: Any, master: str, check: str) -> bool:
    """Whether the check passes."""
    command = "net" if check.startswith("net-") else "check"
    argv = [sys.executable, "-m", "doctor", command, ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--json"]
    line = torchrun(fleet.addresses[master], "0")
    done = fleet.run([*argv, "-s", check, "--", *line], cwd=ROOT, timeout=100)
    [outcome] = [row for row in json.loads(done.stdout)["outcomes"] if row["check"] == check]
    return str(outcome["status"]) == "passed"


def runs(fleet: Any, master: str, other: str) -> bool:
    """Whether the ranks of both hosts end well."""
    started = [
        subprocess.Popen(
            fleet.enter_argv(
                host, ["env", "OMP_NUM_THREADS=1", "timeout", "60", *torchrun(fleet.addresses[master], number)]
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number, host in (("0", master), ("1", other))
    ]
    return [process.wait(90) for process in started] == [0, 0]
