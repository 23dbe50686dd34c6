"""The environment that a job will have, from each of its sources."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.engine.errors import InputError
from doctor.engine.record import LaunchOptions
from doctor.environment.job_environment import (
    JobEnvironment,
    launches_of_job_script,
    of_file,
    of_launch_line,
    of_process,
    of_this_shell,
)
from doctor.environment.launch_trials import starts_here
from doctor.environment.variables import parse_environment
from doctor.job import LaunchConfig
from doctor.job.launch_line import read_launch_line
from doctor.session.examine_options import ExamineOptions
from doctor.session.training_files import with_launch_line
from tests.examples import examples


def options(line: str, environ: dict[str, str] | None = None) -> LaunchOptions:
    return of_launch_line(shlex.split(line), environ or {}).complete(LaunchOptions())


def test_this_shell_changes_nothing() -> None:
    given_options = LaunchOptions(master_addr="n1")
    assert of_this_shell({"MASTER_ADDR": "x"}).complete(given_options) is given_options


MASTERS: list[tuple[str, str, int | None]] = [
    # torchrun ignores the variable MASTER_ADDR, and meets at 127.0.0.1 where nothing is given
    ("torchrun --nnodes 2 t.py", "127.0.0.1", 29500),
    ("torchrun --nnodes 2 --master-addr n1 --master-port 1234 t.py", "n1", 1234),
    ("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1 t.py", "n1", 29400),
    ("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint [fd00::1]:99 t.py", "fd00::1", 99),
    ("torchrun --nnodes 2 --rdzv-backend c10d t.py", "localhost", 29400),
    ("torchrun --standalone t.py", "", None),
    ("torchrun --nnodes 2 --rdzv-backend etcd-v2 --rdzv-endpoint etcd1:2379 t.py", "", None),  # no rank is there
    ("msrun --worker_num 16 t.py", "127.0.0.1", 8118),
    ("msrun --master_addr n1 --master_port 8119 t.py", "n1", 8119),
    ("deepspeed --master_port 29501 t.py", "", 29501),
    ("mpirun -np 2 python t.py", "", None),
]


@pytest.mark.parametrize(("line", "address", "port"), MASTERS)
def test_where_the_ranks_meet(line: str, address: str, port: int | None) -> None:
    launch_options = options(line, {"MASTER_ADDR": "elsewhere", "NCCL_DEBUG": "INFO"})
    assert (launch_options.master_addr, launch_options.master_port) == (address, port)
    assert launch_options.environ["NCCL_DEBUG"] == "INFO"
    assert launch_options.read_from == "the launch line"


def test_an_option_of_doctor_wins() -> None:
    launch_options = of_launch_line(["torchrun", "t.py"], {}).complete(LaunchOptions(master_addr="n9", master_port=7))
    assert (launch_options.master_addr, launch_options.master_port) == ("n9", 7)


def test_variables_of_the_line_and_of_the_shell() -> None:
    environ = {"NCCL_DEBUG": "WARN", "HCCL_BUFFSIZE": "200", "RANK": "3", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert options("env -u HCCL_BUFFSIZE NCCL_DEBUG=INFO torchrun t.py", environ).environ == {"NCCL_DEBUG": "INFO"}
    assert options("docker run -e NCCL_DEBUG img torchrun t.py", environ).environ == {"NCCL_DEBUG": "WARN"}
    assert options("mpirun -x HCCL_IF_IP=10.0.0.1 t", environ).environ["HCCL_IF_IP"] == "10.0.0.1"


def test_a_job_script(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(
        "#!/bin/bash\n#SBATCH -N 2 -t 10\nexport NCCL_DEBUG=INFO\nexport MASTER_ADDR=$(hostname)\n"
        'srun torchrun --nnodes 2 --rdzv-endpoint "$MASTER_ADDR:29400" t.py\n'
    )
    job_environment = launches_of_job_script(str(path), {})[0]
    launch = LaunchConfig.from_options(job_environment.complete(LaunchOptions()))
    set_by_slurm = dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), "2")
    assert (launch.nodes, launch.time_limit_s, launch.env) == (2, 600, {"NCCL_DEBUG": "INFO"} | set_by_slurm)
    assert launch.launchers == ("srun", "torchrun")
    assert "$(hostname)" in launch.unresolved_master()
    assert "line 5" in job_environment.label


@pytest.mark.parametrize(("directive", "step", "limit"), [("0", "60", 3600), ("10", "0", 600), ("0", "0", None)])
def test_a_limit_of_zero_is_none(tmp_path: Path, directive: str, step: str, limit: int | None) -> None:
    """sbatch(1): "A time limit of zero requests that no time limit be imposed"."""
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/bash\n#SBATCH --time={directive}\nsrun --time={step} torchrun t.py\n")
    assert launches_of_job_script(str(path), {})[0].time_limit_s == limit


SAVED = [
    "A=1\nB=x y\n",
    "A=1\0B=x y\0",
    'declare -x A="1"\ndeclare -x B="x y"\n',
    "export A='1'\nexport B='x y'\n",
    json.dumps({"A": "1", "B": "x y"}),
]


@pytest.mark.parametrize("text", SAVED)
def test_saved_environments(text: str, tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text(text)
    job_environment = of_file(str(path), {"DOCTOR_HOSTS": "n1", "NCCL_DEBUG": "x"})
    assert job_environment.environ == {"A": "1", "B": "x y", "DOCTOR_HOSTS": "n1"}


def test_what_env_prints_is_read_as_it_is(tmp_path: Path) -> None:
    environ = {"A": "1\n2", "B": "", "C": "x=y"}
    printed = subprocess.run(["env"], env=environ, capture_output=True, text=True, check=True).stdout
    assert parse_environment(printed, "f") == environ


@pytest.mark.parametrize("text", ["", "hello\n", "{", '{"A": 1}', '["A"]'])
def test_what_is_no_environment(text: str, tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        of_file(str(path), {})
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 78


@given(st.text(max_size=200))
@settings(max_examples=examples(100), deadline=None)
def test_arbitrary_saved_text(text: str) -> None:
    try:
        assert all(isinstance(value, str) for value in parse_environment(text, "f").values())
    except InputError as error:
        assert "\n" not in str(error)


def test_a_running_process() -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    environ = {"PATH": os.environ["PATH"], "GLOO_SOCKET_IFNAME": "eno7"}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, env=environ) as process:
        assert process.stdout
        process.stdout.readline()
        job_environment = of_process(process.pid, {"DOCTOR_HOSTS": "n1"})
        process.communicate(b"")
    assert job_environment.environ["GLOO_SOCKET_IFNAME"] == "eno7"
    assert job_environment.environ["DOCTOR_HOSTS"] == "n1"
    assert (job_environment.label, job_environment.enter) == (f"process {process.pid}", ())


def test_the_launch_line_of_a_process(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(b"A=1\0MASTER_ADDR=x\0")
    argv = ["/venv/bin/python", "/venv/bin/torchrun", "--nnodes", "2", "--master-addr", "n1", "t.py"]
    (tmp_path / "7" / "cmdline").write_bytes("\0".join([*argv, ""]).encode())
    job_environment = of_process(7, {}, tmp_path)
    launch = job_environment.complete(LaunchOptions())
    assert (launch.nodes, launch.master_addr, launch.launchers) == (2, "n1", ("torchrun",))
    assert any("namespaces" in note for note in job_environment.notes)


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(InputError, match="no such process"):
        of_process(2**30, {})


def test_nccl_meets_at_its_own_address() -> None:
    assert LaunchConfig.from_environment({"NCCL_COMM_ID": "[fd00::1]:99"}).master_addr == "fd00::1"
    launch = LaunchConfig.from_environment({"NCCL_COMM_ID": "n1:99"})
    assert (launch.master_addr, launch.master_port) == ("n1", 99)
    assert LaunchConfig.from_environment({"NCCL_COMM_ID": "n1:99", "MASTER_ADDR": "n2"}).master_addr == "n2"
    assert LaunchConfig.from_environment({"NCCL_COMM_ID": "n1"}).master_addr == ""


def test_hosts_of_the_line() -> None:
    assert of_launch_line(["mpirun", "-H", "a:8,b:8", "t"], {}).hosts == "a,b"
    assert of_launch_line(["mpirun", "--hostfile", "h", "t"], {}).hostfile == "h"
    assert JobEnvironment(environ={}).hosts == ""


@pytest.mark.parametrize(
    ("line", "environ", "here"),
    [
        ("mpirun -np 2 python t.py", {}, True),
        ("mpirun -np 2 -H localhost:2 python t.py", {}, True),
        ("mpiexec.hydra -n 2 python t.py", {}, True),
        ("deepspeed --num_gpus 2 t.py", {}, True),
        ("deepspeed --include localhost:0,1 t.py", {}, True),
        ("mpirun -np 2 -H n1,n2 python t.py", {}, False),
        ("mpirun -np 2 --hostfile h python t.py", {}, False),
        ("mpirun -np 2 -H $HOSTS python t.py", {}, False),
        ("mpirun -np 2 python t.py", {"OMPI_MCA_orte_default_hostfile": "/h"}, False),
        ("mpirun -np 2 python t.py", {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]"}, False),
        ("deepspeed --num_nodes 2 t.py", {}, False),
        ("deepspeed --num_nodes $N t.py", {}, False),
        ("deepspeed --hostfile h t.py", {}, False),
        ("deepspeed t.py", {"DLTS_HOSTFILE": "/h"}, False),
        ("srun -n 2 python t.py", {}, False),
        ("torchrun --nnodes 2 t.py", {}, False),
    ],
)
def test_a_launcher_without_hosts_starts_its_ranks_here(line: str, environ: dict[str, str], here: bool) -> None:
    job_environment = of_launch_line(shlex.split(line), environ)
    assert job_environment.starts_here is here
    assert job_environment.complete(LaunchOptions()).starts_here is here
    assert not here or not job_environment.hosts


@pytest.mark.parametrize(
    ("line", "environ", "by_login"),
    [
        ("torchrun --nnodes 2 t.py", {}, True),
        ("mpirun -H a,b python t.py", {}, True),
        ("srun torchrun t.py", {}, False),
        ("torchrun --nnodes 2 t.py", {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]"}, False),
        ("python t.py", {}, False),
    ],
)
def test_a_shell_on_each_host_starts_the_ranks(line: str, environ: dict[str, str], by_login: bool) -> None:
    assert with_launch_line(ExamineOptions(), of_launch_line(shlex.split(line), environ)).by_login is by_login


def test_deepspeed_has_a_hostfile_of_its_own(tmp_path: Path) -> None:
    call = read_launch_line(["deepspeed", "t.py"], {})
    assert not starts_here(call, {}, str(tmp_path))
