"""Test hosts that share one GPU, and `doctor smoke` over NCCL between them. Where a GPU is at hand, as root.

    python -m tests.smoke.gpu_hosts [--python PYTHON] [--jobs 2] [NAME ...]

Each host has namespaces of its own, and another name, so that NCCL takes the GPU for several. Nothing of the GPU's
settings is changed. Of each case: the exit code, the host with the fault, and what the report says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tests.preflight.gpu_stories import conduct

TESTBED = Path(__file__).parents[1] / "hosts/testbed.py"
FILES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
ALLOWED = "tcp dport 22 accept; tcp sport 22 accept"
INPUT = f"table inet f {{{{ chain c {{{{ type filter hook input priority 0; {ALLOWED}; {{0}};\n}}}}\n}}}}"


class Case(NamedTuple):
    """So many hosts, and what is wrong with one of them (from 0)."""

    hosts: int
    place: int = -1
    sick: dict[str, Any] = {}
    options: tuple[str, ...] = ()


CASES = {
    "healthy": Case(2),
    "four": Case(4),
    "native": Case(2, options=("--native", "--device-test")),
    "ifname": Case(3, 2, {"files": {"/etc/nccl.conf": "NCCL_SOCKET_IFNAME=eth9\n"}}),
    "drops": Case(3, 1, {"nft": INPUT.format("meta l4proto tcp drop")}),
    "rejects": Case(3, 2, {"nft": INPUT.format("meta l4proto tcp reject with tcp reset")}),
    "nofile": Case(3, 2, {"limits": {"nofile": [80, 80]}}),
    "shm": Case(3, 1, {"shm": "16m"}),
    "memlock": Case(3, 1, {"limits": {"memlock": [65536, 65536]}}),
    "protocol": Case(3, 1, {"files": {"/etc/nccl.conf": "NCCL_PROTO=LL\nNCCL_ALGO=Tree\n"}}),
    "rdma": Case(3, 2, {"files": {"/etc/nccl.conf": "NCCL_NET=IB\n"}}),
}


def devices() -> str:
    """Shell commands that make the files of the GPU in a host."""
    numbers = {path: os.stat(path).st_rdev for path in FILES if Path(path).exists()}
    made = (f"mknod -m 666 {path} c {os.major(number)} {os.minor(number)}" for path, number in numbers.items())
    return "; ".join(made)


def tell(name: str, python: str) -> str:
    """What came of a case."""
    case = CASES[name]
    own = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    shown = [path for path in own if "nvidia" in path and not path.startswith(("/proc", "/dev", "/sys"))]
    with tempfile.TemporaryDirectory(dir="/run") as folder:
        bed = [sys.executable, str(TESTBED), "--dir", f"{folder}/bed"]
        every = {"shows": shown, "setup": devices()}
        plan = {"*": every} | ({f"{name}{case.place + 1:04d}": case.sick} if case.sick else {})
        Path(folder, "plan.json").write_text(json.dumps(plan))
        make = ["up", str(case.hosts), "--name", name, "--shm", "2g", "--overrides", f"{folder}/plan.json"]
        subprocess.run([*bed, *make], check=True)
        hosts = ",".join(f"{name}{number + 1:04d}" for number in range(case.hosts))
        options = ["-F", f"{folder}/bed/ssh_config", "--backend", "nccl", "--python", python, "-f", "plain"]
        words = [sys.executable, "-m", "doctor", "smoke", hosts, *options, *case.options]
        ended = subprocess.run([*bed, "exec", "--", *words], capture_output=True, text=True, check=False)
        subprocess.run([*bed, "down"], check=True)
    culprit = f"{name}{case.place + 1:04d}" if case.sick else "none"
    lines = [
        line
        for line in (ended.stdout + ended.stderr).splitlines()
        if line.startswith(("FAIL", "warn", "smoke   cause"))
    ]
    return "\n   ".join([f"{name}: exit {ended.returncode}, the fault is on {culprit}", *lines[:4]])


if __name__ == "__main__":
    conduct(__doc__, CASES, tell, jobs=2)
