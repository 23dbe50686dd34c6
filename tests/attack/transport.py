"""Slurm jobs in which a node dies, hangs, is drained or no longer answers, under `doctor preflight`: each ends in time.

``python -m tests.attack.transport COUNT [--seed SEED]``, as root. Each attack is a job of its own on a real Slurm over
test hosts, with one fault on one node, one transport, and with spares or without. The verdict must name the node, keep
what the others said, and come within the budget; with spares the job may start on the rest.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.hosts import testbed
from tests.hosts.fleet import INSIDE, Fleet
from tests.hosts.slurm import ABSENT_PROGRAMS, Cluster

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 30.0
GRACE = 6.0
"""Seconds for a loaded machine to start and end the process."""
LINE = re.compile(r"doctor preflight: (\w+) nodes=(\d+)/(\d+) (.*)exit=(\d+) t=([\d.]+)s.*\n")
SELECT = ("--select", "kernel", "--select", "memory")
FAULTS = {
    "none": "",
    "slurmd-dies": "slurm",
    "slurmd-hangs": "slurm",
    "drained": "",
    "sshd-hangs": "ssh",
    "network-drops": "slurm ssh",
}
"""What each fault keeps from answering: the transports by which its node is not reached."""


class Attack(NamedTuple):
    """One job."""

    fault: str
    node: str
    transport: str
    need: int

    @property
    def blocks(self) -> bool:
        return self.transport in FAULTS[self.fault].split()


class Ground:
    """A Slurm over test hosts; one folder for what the jobs write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fleet = Fleet.up(4, {}, name="atk", subnet="10.109.0.0/16", shm="4g")
        self.cluster = Cluster(self.fleet)

    def close(self) -> None:
        self.cluster.end()
        self.fleet.down()

    @contextmanager
    def broken(self, attack: Attack) -> Iterator[None]:
        """The fault, for as long as the ``with`` lasts."""
        node = attack.node
        undo: Callable[[], object] = lambda: None  # noqa: E731
        if attack.fault == "slurmd-dies":
            self.cluster.signal(node, "KILL")
            undo = lambda: self.cluster.start_slurmd(node)  # noqa: E731
        elif attack.fault == "slurmd-hangs":
            self.cluster.signal(node, "STOP")
            undo = lambda: self.cluster.signal(node, "CONT")  # noqa: E731
        elif attack.fault == "drained":
            self.cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=attack")
            undo = lambda: self.cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")  # noqa: E731
        elif attack.fault == "sshd-hangs":
            pid = testbed.pid_of(testbed.load(self.fleet.directory), node)
            os.kill(pid, 19)
            undo = lambda: os.kill(pid, 18)  # noqa: E731
        elif attack.fault == "network-drops":
            rules = "add table inet a; add chain inet a i { type filter hook input priority 0; policy drop; }"
            self.fleet.enter(node, ["nft", rules])
            undo = lambda: self.fleet.enter(node, ["nft", "delete table inet a"])  # noqa: E731
        try:
            yield
        finally:
            undo()

    def preflight(self, attack: Attack, job: dict[str, str]) -> tuple[subprocess.CompletedProcess[str], float]:
        arguments = ["preflight", "--budget", f"{BUDGET:g}s", "--transport", attack.transport, *SELECT]
        arguments += ["-F", str(self.fleet.ssh_config)] if attack.transport == "ssh" else []
        arguments += ["--need", str(attack.need), "--write-nodes", str(self.folder / "nodes")] if attack.need else []
        environ = {**INSIDE, **job, "PYTHONPATH": str(ROOT)}
        began = time.monotonic()
        argv = [sys.executable, "-m", "doctor", *arguments]
        done = self.fleet.run(argv, env=environ, cwd=ROOT, timeout=BUDGET * 4)
        return done, time.monotonic() - began

    def run(self, attack: Attack) -> str:
        """One job from its allocation to its end. Returns what is wrong with it, or the empty string."""
        (self.folder / "nodes").unlink(missing_ok=True)
        self.cluster.wait()
        job = self.cluster.allocate()
        try:
            with self.broken(attack):
                done, seconds = self.preflight(attack, job)
        finally:
            self.cluster.run("scancel", job["SLURM_JOB_ID"])
        return self.wrong(attack, done, seconds)

    def wrong(self, attack: Attack, done: subprocess.CompletedProcess[str], seconds: float) -> str:
        line = LINE.fullmatch(done.stdout)
        if not line:
            return f"not one line: {done.stdout!r} {done.stderr[-500:]!r}"
        healthy, total, keys, code = int(line[2]), int(line[3]), line[4], int(line[5])
        if seconds > BUDGET + GRACE or float(line[6]) > BUDGET + 1:
            return f"{seconds:.1f} s: {line[0]}"
        if code != done.returncode or total != len(self.fleet.hosts):
            return f"exit code {done.returncode}: {line[0]}"
        sick = int(attack.blocks)
        if healthy != total - sick or bool(sick) != (attack.node in keys):
            return f"expected {total - sick} healthy nodes and {attack.node} named if not: {line[0]}"
        expected = {0} if not sick or attack.need else {10, 12}
        if code not in expected:
            return f"expected exit code {sorted(expected)}: {line[0]}"
        if attack.need:
            nodes = (self.folder / "nodes").read_text().split()
            if len(nodes) != attack.need or (sick and attack.node in nodes):
                return f"the list of nodes is {nodes}: {line[0]}"
        return ""


def campaign(count: int, seed: int) -> int:
    """``count`` jobs that follow from ``seed``. Returns how many did not end as they should."""
    if ABSENT_PROGRAMS or os.geteuid():
        print(f"needs root and Slurm; missing: {', '.join(ABSENT_PROGRAMS) or 'root'}", file=sys.stderr)
        return count
    rng, failed, slowest = random.Random(seed), 0, 0.0
    with tempfile.TemporaryDirectory(prefix="transport-") as name:
        ground = Ground(Path(name))
        try:
            for _ in range(count):
                attack = Attack(
                    rng.choice(list(FAULTS)),
                    rng.choice(ground.fleet.hosts),
                    rng.choice(("slurm", "ssh")),
                    rng.choice((0, 3)),
                )
                began = time.monotonic()
                description = ground.run(attack)
                slowest = max(slowest, time.monotonic() - began)
                failed += bool(description)
                if description:
                    print(f"{attack}: {description}", flush=True)
        finally:
            ground.close()
    print(f"{count} jobs, {failed} of them not as they should; the slowest took {slowest:.0f} s with its allocation")
    return failed


if __name__ == "__main__":
    from tests.attack.__main__ import main

    sys.exit(main(["transport", *sys.argv[1:]]))
