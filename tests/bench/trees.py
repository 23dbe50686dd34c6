"""`doctor check` through trees: gateways of several levels, and Slurm's own, against SSH to the same hosts in one run.

    python tests/bench/trees.py gateways [HOSTS] [--all]    as root; levels of 1, 2 and 3 gateways above the hosts
    python tests/bench/trees.py slurm [HOSTS] [--all]       a slurmd in each host, their controller in the hub

Of each way: its wall time, the client's CPU time with that of its children, and how many hosts were not reached. One
check is asked for, all with --all. At the end a gateway is dead, or a node of Slurm's tree, and again with a budget.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.net import know_neighbours  # noqa: E402
from tests.hosts import slurm  # noqa: E402
from tests.hosts.fleet import INSIDE, Fleet  # noqa: E402

CLIENT = "Host *\n User root\n IdentityFile /root/.ssh/id\n IdentitiesOnly yes\n KexAlgorithms curve25519-sha256\n"
LEVELS = {1: (16,), 2: (4, 16), 3: (2, 8, 32)}
"""Gateways at each level, by the number of levels; each gateway is a host itself."""


def gateways(fleet: Fleet, levels: tuple[int, ...]) -> Path:
    """The first hosts of a fleet become gateways; the file says how the others are reached."""
    hosts, above, begun = list(fleet.hosts), "admin", 0
    lines = ["[routes]"]
    for count in levels:
        group = ",".join(hosts[begun : begun + count])
        lines.append(f"{above}: {group}")
        above, begun = group, begun + count
    lines.append(f"{above}: {','.join(hosts[begun:])}\n")
    file = fleet.directory / f"topology-{len(levels)}.conf"
    file.write_text("\n".join(lines))
    return file


def let_gateways_in(fleet: Fleet, count: int) -> None:
    for host in fleet.hosts[:count]:
        fleet.write(host, "/root/.ssh/id", (fleet.directory / "id_ed25519").read_text(), mode="600")
        fleet.write(host, "/root/.ssh/known_hosts", fleet.known_hosts.read_text())
        fleet.write(host, "/root/.ssh/config", CLIENT)


def measured(fleet: Fleet, name: str, arguments: list[str], environ: dict[str, str]) -> None:
    """Runs `doctor check` once, and prints what it took and whom it did not reach."""
    with tempfile.TemporaryFile("w+") as answer, tempfile.TemporaryFile("w+") as errors:
        argv = fleet.argv([sys.executable, "-m", "doctor", "check", ",".join(fleet.hosts), "--json", *arguments])
        began = time.monotonic()
        pid = os.posix_spawn(
            "/usr/bin/env",
            ["env", *argv],
            environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, answer.fileno(), 1), (os.POSIX_SPAWN_DUP2, errors.fileno(), 2)],
        )
        _, status, usage = os.wait4(pid, 0)
        wall = time.monotonic() - began
        answer.seek(0)
        errors.seek(0)
        text = answer.read()
        code = os.waitstatus_to_exitcode(status)
        if not text:
            print(f"{name}: exit code {code}: {errors.read()[-400:]}", flush=True)
            return
    unreached = [entry for entry in json.loads(text)["outcomes"] if entry["check"] == "host-unreachable"]
    reasons: Counter[str] = Counter()
    for finding in (finding for entry in unreached for finding in entry["findings"]):
        reasons[finding["message"]] += len(finding["hosts"])
    cpu, load = usage.ru_utime + usage.ru_stime, os.getloadavg()[0]
    size, count = usage.ru_maxrss / 1024, len(fleet.hosts)
    print(
        f"{name:28} {wall:6.1f} s, client {cpu:5.1f} s CPU ({cpu / count * 1000:.1f} ms a host), {size:.0f} MB,"
        f" {reasons.total()} not reached, exit code {code}, load {load:.0f}",
        flush=True,
    )
    for message, hosts in reasons.most_common(3):
        print(f"    {hosts}: {message[:200]}", flush=True)


def through_gateways(fleet: Fleet, selected: list[str], environ: dict[str, str]) -> None:
    ssh = ["-F", str(fleet.ssh_config), *selected]
    let_gateways_in(fleet, sum(LEVELS[3]))
    measured(fleet, "ssh", ssh, environ)
    for levels, counts in LEVELS.items():
        tree = ["--transport", "tree", "--gateways", str(gateways(fleet, counts))]
        measured(fleet, f"tree, {levels} levels {counts}", [*ssh, *tree], environ)
    dead = fleet.hosts[:1]
    with fleet.broken(dead, fault="refuse"):
        measured(fleet, "tree, 1 of the first 2 dead", [*ssh, *tree], environ)
        measured(fleet, "the same, --budget 20", [*ssh, *tree, "--budget", "20"], environ)
    let_gateways_in(fleet, 1)
    with fleet.broken(fleet.hosts[2 : 2 + LEVELS[3][1]], fault="refuse"):
        measured(fleet, "tree, second level dead", [*ssh, *tree], environ)


def through_slurm(fleet: Fleet, selected: list[str], environ: dict[str, str]) -> None:
    slurm._PATIENCE = 300.0
    cluster = slurm.Cluster(fleet, "TreeWidth=16\n")
    try:
        job = {**environ, **cluster.allocate()}
        measured(fleet, "ssh", ["-F", str(fleet.ssh_config), *selected], environ)
        step = ["--transport", "slurm", *selected]
        for _ in range(2):
            measured(fleet, "slurm", step, job)
        dead = fleet.hosts[len(fleet.hosts) // 2]
        cluster.signal(dead, "KILL")
        measured(fleet, f"slurm, slurmd of {dead} dead", step, job)
        measured(fleet, "the same, --budget 20", [*step, "--budget", "20"], job)
    finally:
        cluster.end()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tree", choices=["gateways", "slurm"])
    parser.add_argument("hosts", nargs="?", type=int, default=64)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    fleet = Fleet.up(options.hosts, {"*": {"shm": "4g"}}, name="btr", subnet="10.84.0.0/16")
    try:
        know_neighbours(fleet)
        with tempfile.TemporaryDirectory() as bytecode:
            environ = {**INSIDE, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": bytecode}
            selected = [] if options.all else ["--select", "listen-queue-short"]
            run = through_gateways if options.tree == "gateways" else through_slurm
            run(fleet, selected, environ)
    finally:
        fleet.down()


if __name__ == "__main__":
    main()
