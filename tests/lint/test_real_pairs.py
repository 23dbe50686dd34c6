"""What `doctor lint` tells of a script is what ends the real job: bash, torchrun, mpirun and ssh run both sides."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from doctor.environment.outer_launcher import outer_tasks
from doctor.job.job_script.read import read_job_script
from tests.hosts.fleet import Fleet
from tests.hosts.slurm import Cluster, needs_mpirun, needs_slurm
from tests.lint.pairs import side

pytestmark = [pytest.mark.every]
PROGRAM = "import torch.distributed as d\nd.init_process_group('gloo')\nd.barrier()\nd.destroy_process_group()\n"
ONE = "export WORLD_SIZE=1 RANK=0 MASTER_PORT=@P\n"
MPIRUN = "mpirun --allow-run-as-root "
RUN = "timeout 100 torchrun --nproc_per_node 1 "
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
PAIRS = {
    "an address without export": ONE + "@[@|export @]MASTER_ADDR=127.0.0.1\npython t.py\n",
    "a port beyond 65535": ONE
    + "export MASTER_ADDR=127.0.0.1 MASTER_PORT=@[$((65000 + 8 * 100 + 7))@|@P@]\npython t.py\n",
    "a product without arithmetic": ONE
    + "G=1\nexport MASTER_ADDR=127.0.0.1 WORLD_SIZE=@[1*$G@|$((1*G))@]\npython t.py\n",
    "a comment within a line": "torchrun --nnodes 1 \\\n"
    "@[# --max-restarts 3 \\@|--max-restarts 0 \\@]\n--nproc_per_node 1 t.py\n",
    "a test without blanks": 'NODE_RANK=1\nif [ @["$NODE_RANK"=="0"@|"$NODE_RANK" == "0"@] ]; then exit 1; fi\n',
    "one port twice": f"{RUN} --master_port @P t.py & a=$!\n{RUN} --master_port @[@P@|@Q@] t.py & wait $! && wait $a\n",
    "text in single quotes": "A=127.0.0.1\nbash -c @['@|\"@]"
    + RUN + "--rdzv_backend c10d --rdzv_endpoint $A:@P t.py@['@|\"@]\n",
    "fewer numbers of a here-string": 'IFS=, read -ra H <<< "a@[@|,b@]"\n[ ${#H[@]} = 2 ] && exec true\n'
    + RUN.replace("100", "10")
    + "--nnodes 2 --node_rank 0 --master_addr 127.0.0.1 --master_port @P t.py\n",
}  # fmt: skip
OF_MPIRUN = {
    "slots of a hostfile": "printf '%s slots=%s\\n' localhost @[2@|4@] > hosts\n"
    + MPIRUN
    + "-np 4 --hostfile hosts true\n",
    "slots of named hosts": MPIRUN + "-np 3 -H localhost:@[2@|3@] true\n",
}
"""A script that ends with an error on its left side alone."""


def free_ports() -> list[str]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return [str(server.getsockname()[1]) for server in (one, other)]


def ends_well(text: str, folder: Path, *, is_good: bool) -> bool:
    first, second = free_ports()
    (folder / "t.py").write_text(PROGRAM)
    (folder / "run.sh").write_text(side(text, is_good=is_good).replace("@P", first).replace("@Q", second))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {"PATH": path, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "run.sh"], cwd=folder, env=environ, capture_output=True, timeout=240, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("name", PAIRS)
def test_the_mistake_ends_the_job_and_its_twin_runs(name: str, tmp_path: Path) -> None:
    assert [ends_well(PAIRS[name], tmp_path, is_good=good) for good in (False, True)] == [False, True]


@needs_mpirun
@pytest.mark.parametrize("name", OF_MPIRUN)
def test_mpirun_refuses_more_ranks_than_slots(name: str, tmp_path: Path) -> None:
    assert [ends_well(OF_MPIRUN[name], tmp_path, is_good=good) for good in (False, True)] == [False, True]


@pytest.mark.hosts
def test_a_login_within_a_loop_takes_its_list(make_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    """And what single quotes hide from the script is empty on the other host.

    The command there reads its input to the end: one that ends before has taken it, or has not.
    """
    fleet = make_fleet(2, name="sin")
    (tmp_path / "list").write_text("\n".join(fleet.hosts) + "\n")
    login = f'ssh @[@|-n @]-F {fleet.ssh_config} "$h" "cat >/dev/null; hostname"'
    script = f"while read -r h; do {login}; done < {tmp_path}/list\n"
    script += f"A=n1\nssh -F {fleet.ssh_config} {fleet.hosts[0]} <<@['E'@|E@]\necho =$A=\nE\n"
    printed = [fleet.run(["bash", "-c", side(script, is_good=good)]).stdout.split() for good in (False, True)]
    assert printed == [[fleet.hosts[0], "=="], [*fleet.hosts, "=n1="]]


@needs_slurm
@pytest.mark.hosts
@pytest.mark.timeout(300)
def test_the_gpus_that_the_directives_tell_are_those_that_slurm_gives(make_fleet: Callable[..., Fleet]) -> None:
    """Where a step may have others it is unknown. The GPUs are other devices of each host."""
    requests = ["--gres=gpu:4", "--gpus-per-node=4", "--gpus-per-task=2", "--gpus=8"]
    steps = ["", "--gres=gpu:2", "--gres=none", "--gpus=1", "-G2", "--gres-flags=enforce-binding", "--exact"]
    cluster = Cluster(make_fleet(2, name="gpus"), gpus=DEVICES)
    told: dict[tuple[str, str], tuple[int | None, str]] = {}
    try:
        for request in requests:
            head = f"#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=1 -D /tmp -o printed {request}\n"
            line = "srun -N1 -n1 {} bash -c '{}'\n"
            lines = [line.format(step, f"echo ={step}=$SLURM_GPUS_ON_NODE=") for step in steps]
            (cluster.folder / "run.sh").write_text(head + "".join(lines))
            cluster.run("sbatch", "--wait", str(cluster.folder / "run.sh"))
            printed = dict(
                re.findall("(?m)^=(.*)=([0-9]*)=$", cluster.fleet.read(cluster.fleet.hosts[0], "/tmp/printed"))
            )
            for step, number in printed.items():
                launch = line.format(step, "torchrun --nproc_per_node $SLURM_GPUS_ON_NODE t.py")
                call = read_job_script(head + launch).job_line.innermost
                told[request, step] = (call.ranks_per_node if call else 0, number)
    finally:
        cluster.end()
    assert [pair for pair in told.values() if pair[0] is not None and str(pair[0]) != pair[1]] == []
    assert {told[request, step] for request in requests[:2] for step in (steps[0], *steps[-2:])} == {(4, "4")}
    assert told[requests[0], "--gres=gpu:2"] == (None, "2")


@needs_slurm
@pytest.mark.hosts
@pytest.mark.timeout(300)
def test_one_task_on_two_hosts_starts_once(make_fleet: Callable[..., Fleet]) -> None:
    cluster = Cluster(make_fleet(2, name="task"))
    try:
        for tasks, starts in (("--ntasks=1", 1), ("--ntasks-per-node=1", 2)):
            head = f"#!/bin/bash\n#SBATCH -N 2 {tasks} -D /tmp -o printed\n"
            (cluster.folder / "run.sh").write_text(f"{head}srun hostname\n")
            cluster.run("sbatch", "--wait", str(cluster.folder / "run.sh"))
            printed = cluster.fleet.read(cluster.fleet.hosts[0], "/tmp/printed").split()
            assert sum(word in cluster.fleet.hosts for word in printed) == starts
            script = read_job_script(f"{head}srun torchrun --nnodes 2 t.py\n")
            assert outer_tasks(script.launch_lines[0], script.resources) == (starts, True)
    finally:
        cluster.end()
