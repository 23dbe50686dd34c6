"""`doctor check` through srun and through mpirun, against SSH, on the same hosts in the same run.

Run as root: python tests/bench/carriers.py [HOSTS] [ROUNDS]. The contenders take turns; a ratio is to SSH.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.hosts.fleet import INSIDE, Fleet  # noqa: E402
from tests.hosts.slurm import Cluster  # noqa: E402


def main() -> None:
    hosts, rounds = (int(word) for word in [*sys.argv[1:], *("16", "5")[len(sys.argv) - 1 :]])
    fleet = Fleet.up(hosts, {"*": {"shm": "4g"}}, name="bcr", subnet="10.83.0.0/16")
    cluster = Cluster(fleet)
    try:
        environ = {**INSIDE, **cluster.allocate(), "PYTHONPATH": str(ROOT)}
        environ["OMPI_MCA_plm_rsh_agent"] = f"ssh -F {fleet.ssh_config}"
        check = [sys.executable, "-m", "doctor", "check", ",".join(fleet.hosts), "--json"]
        contenders = {
            "ssh": [*check, "-F", str(fleet.ssh_config)],
            "slurm": [*check, "--transport", "slurm"],
            # As on a login node: within the job mpirun would start its daemons by srun.
            "mpi": ["env", "-u", "SLURM_JOB_ID", "-u", "SLURM_JOB_NODELIST", *check, "--transport", "mpi"],
        }
        took: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(rounds + 1):  # the first is to warm up
            for name, contender in contenders.items():
                began = time.perf_counter()
                done = fleet.run(contender, env=environ, cwd=ROOT, timeout=120)
                took[name].append(time.perf_counter() - began)
                assert done.returncode in (0, 10, 12), done.stderr
        ssh = statistics.median(took["ssh"][1:])
        print(f"{hosts} hosts, {os.cpu_count()} cores, median of {rounds}")
        for name, times in took.items():
            median = statistics.median(times[1:])
            print(f"{name:6} {median:6.2f} s  {median / ssh:.2f} of ssh")
    finally:
        cluster.end()
        fleet.down()


if __name__ == "__main__":
    main()
