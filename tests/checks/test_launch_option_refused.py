"""launch-option-refused."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.engine.record import LaunchOptions
from doctor.engine.result import Status
from doctor.environment.job_environment import launches_of_job_script, of_launch_line
from doctor.environment.launch_trials import launch_trial
from doctor.job import LaunchConfig
from doctor.job.training.assemble import LaunchText
from doctor.session.lint_files import launches_of
from tests.checks.launch_lines import config, run_check
from tests.checks.run_check import advice


def test_an_option_that_the_launcher_refuses() -> None:
    outcome = run_check("launch-option-refused", config("torchrun --nnodes four --master-port 0x t.py"))
    assert {finding.values["option"] for finding in outcome.findings} == {"--nnodes", "--master-port"}
    assert run_check("launch-option-refused", config("torchrun t.py")).status is Status.PASSED


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("torchrun --nnodes 2 --node_rank 2 t.py", "--node-rank"),
        ("torchrun --nnodes 1:3 --node_rank 2 t.py", ""),
        ("torchrun --nnodes 2 --node_rank 1 t.py", ""),
        ("torchrun --node_rank 1 t.py", ""),  # of one host, torchrun does not read it
        ("accelerate launch --num_machines 2 --machine_rank 2 --main_process_ip a t.py", "--machine-rank"),
    ],
)
def test_the_number_of_a_host_that_the_line_does_not_start(line: str, option: str) -> None:
    outcome = run_check("launch-option-refused", config(line))
    assert [finding.values["option"] for finding in outcome.findings] == ([option] if option else [])


def test_without_a_launch_line_there_is_nothing_to_judge() -> None:
    assert run_check("launch-option-refused", LaunchConfig()).status is Status.SKIPPED


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--node_rank=$UNSET", Status.UNKNOWN),
        ("--node_rank $UNSET", Status.UNKNOWN),
        ('--node_rank "$UNSET"', Status.UNKNOWN),
        ("--node_rank=${UNSET:?give the number}", Status.UNKNOWN),
        ("--node_rank $NODE_RANK", Status.PASSED),  # each host has its own
        ("--node_rank $MLP_ROLE_INDEX", Status.PASSED),
        ("--node_rank $machine_rank", Status.PASSED),
        ("--nproc_per_node $MLP_WORKER_GPU --master_port $MLP_WORKER_0_PORT", Status.PASSED),  # not in its sample
        ("--nproc_per_node $SLURM_GPUS_ON_NODE", Status.PASSED),
        ("--nproc_per_node $UNSET", Status.UNKNOWN),
        ("--nproc_per_node $((UNSET * 2))", Status.UNKNOWN),
        ("--node_rank=${UNSET:-1}", Status.PASSED),
        ("--node_rank=${UNSET:-7}", Status.FAILED),
        ("--node_rank=$SLURM_NODEID", Status.PASSED),  # of srun, for each host
        ("--rdzv_id=$(uuidgen)", Status.PASSED),
        ("$UNSET", Status.UNKNOWN),
        ("--node_rank=$EMPTY", Status.FAILED),
        ('--node_rank "$EMPTY"', Status.FAILED),
        ("--node_rank $EMPTY", Status.FAILED),  # the word vanishes, and the next is the value
        ('--nnodes "$EMPTY"', Status.FAILED),
    ],
)
def test_a_variable_in_the_line_of_a_job_script(tmp_path: Path, words: str, status: Status) -> None:
    """As bash and torchrun do it: an empty word is ``invalid int value: ''`` (torchrun of PyTorch 2.13)."""
    script = tmp_path / "run.sh"
    script.write_text(f"EMPTY=\ntorchrun --nnodes 2 {words} --master_addr n1 train.py\n")
    (launch,), _ = launches_of([str(script)], [], LaunchOptions(), {})
    assert run_check("launch-option-refused", LaunchConfig.from_options(launch)).status is status


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("torchrun --rdzv_backend nccl t.py", "--rdzv-backend"),  # that of a process group
        ("torchrun --rdzv_backend mine t.py", ""),  # a plugin may have any name
        ("torchrun -nproc_per_node 8 t.py", "-nproc_per_node"),
        ("torchrun --rdzv_endpoint $(head):port t.py", "--rdzv-endpoint"),
        ("torchrun --rdzv_endpoint $(head):$PORT t.py", ""),
        ("torchrun --rdzv_endpoint [2001:db8::dead]:29400 t.py", ""),
        ("torchrun --rdzv_endpoint MASTER_ADDR:29500 t.py", "--rdzv-endpoint"),
        ("torchrun --nnodes 2 --master_addr HEAD_NODE_IP t.py", "--master-addr"),
        ("torchrun --nnodes 2 --master_addr head_node t.py", ""),
        ("srun -nodes=2 python t.py", "-nodes"),
        ("srun -N2 -n4 python t.py", ""),
        ("bash -c 'torchrun t.py'", ""),
        ("export $MASTER_ADDR=n1\ntorchrun t.py", "export"),
        ("NAME=NCCL_DEBUG\nexport $NAME=INFO\ntorchrun t.py", ""),  # its own way to a name
        ("for NAME in A B; do export $NAME=1; done\ntorchrun t.py", ""),
        ("X=$(date)\nexport ${X}=1\ntorchrun t.py", ""),
    ],
)
def test_words_that_were_meant_for_another_place(tmp_path: Path, words: str, option: str) -> None:
    (tmp_path / "run.sh").write_text(f"{words}\n")
    (launch,), _ = launches_of([str(tmp_path / "run.sh")], [], LaunchOptions(), {})
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch))
    assert [finding.values["option"] for finding in outcome.findings] == ([option] if option else [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("#SBATCH -J x\n{}\nset -e\n", []),
        ("#SBATCH -J x\nset -e\n{}\n", ["#SBATCH --nodes=2"]),
        ("#SBATCH -J x\n\n# a remark\n{}\n", []),
        ("#SBATCH -J x\nset -e\n#{}\n", []),  # switched off
        ("set -e\n{}\n", []),  # no job of Slurm
        ("set -e\n{}\necho $SLURM_JOB_ID\n", ["#SBATCH --nodes=2"]),
        ("#SBATCH -J x\ncat >other.sh <<END\n{}\nEND\n", []),
        ("#PBS -N x\ncd $PBS_O_WORKDIR\n#PBS -l select=2\n", ["#PBS -l select=2"]),
        ("#BSUB -J x\nset -e\n#BSUB -n 16\n", []),  # bsub reads all lines
    ],
)
def test_a_directive_behind_the_first_command(tmp_path: Path, text: str, told: list[str]) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/bash\n" + text.format("#SBATCH --nodes=2") + "torchrun t.py\n")
    (launch,), _ = launches_of([str(script)], [], LaunchOptions(), {})
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch))
    findings = [finding for finding in outcome.findings if finding.values["option"].startswith("#")]
    assert [finding.values["expected"] for finding in findings if finding.is_warning] == told
    assert not told or f"Write `{told[0]}` above the first" in advice("launch-option-refused", outcome)


C10D = "--nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint n1:29400"


@pytest.mark.parametrize(
    ("line", "option"),
    [
        (f"torchrun {C10D} --rdzv-conf is_host=0 t.py", "--rdzv-conf"),
        (f"srun -N 2 torchrun --nnodes 2 {C10D} --rdzv-conf a=1,is_host=No t.py", "--rdzv-conf"),
        (f"torchrun --nnodes 2 {C10D} --rdzv-conf is_host=0 t.py", ""),  # the other host's line may open it
        (f"torchrun {C10D} --rdzv-conf is_host=1,join_timeout=600 t.py", ""),
        (f"torchrun {C10D} --rdzv-conf is_host=maybe t.py", "--rdzv-conf"),
        (f"torchrun {C10D} --rdzv-conf is_host t.py", "--rdzv-conf"),
        (f"torchrun {C10D} --rdzv-conf join_timeout=10m t.py", "--rdzv-conf"),
        ("torchrun --rdzv-conf join_timeout=10m t.py", ""),  # the static backend does not read it
        ("torchrun --redirects 9 t.py", "--redirects"),
        ("torchrun --tee 0:1,1:3 --redirects 3 t.py", ""),
        ("torchrun -m tools/train.py", "--module"),
        ("torchrun -m train.py", "--module"),
        ("torchrun --numa-binding sockets t.py", "--numa-binding"),
        ("torchrun --numa-binding socket t.py", ""),
        ("torchrun --local-ranks-filter 0,a t.py", "--local-ranks-filter"),
        ("torchrun --local-ranks-filter 0,1 t.py", ""),
        ("torchrun --rdzv-endpoint n1 t.py", "--rdzv-endpoint"),
        ("torchrun --rdzv-endpoint n1:29500 t.py", ""),
        ("torchrun --rdzv-backend c10d --rdzv-endpoint n1 t.py", ""),
        ("torchrun --rdzv-backend=$B --rdzv-endpoint n1 t.py", ""),
        ("torchrun --standalone --rdzv-endpoint n1 t.py", ""),
        ("torchrun -m tools.train", ""),
        ("accelerate launch --num_process 8 t.py", "--num_process"),
        ("accelerate launch --num_processes 8 --num_machines 1 --gpu_ids 0,1 t.py", "--gpu-ids"),
        ("accelerate launch --num_processes 2 --num_machines 1 --gpu_ids 0,1 t.py", ""),
        ("accelerate launch --num_processes 8 --num_machines 1 --gpu_ids all t.py", ""),
    ],
)
def test_what_ends_the_launcher_on_all_hosts(line: str, option: str) -> None:
    outcome = run_check("launch-option-refused", config(line))
    errors = [finding.values["option"] for finding in outcome.findings if not finding.is_warning]
    assert errors == [name for name in [option] if name]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("torchrun --standalone --local-addr 192.0.2.77 t.py", "--local-addr"),
        ("torchrun --standalone --local-addr 127.0.0.1 t.py", ""),
        ("torchrun --local-addr 192.0.2.77 t.py", ""),  # the static backend does not announce it
        ("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1 --local-addr 192.0.2.77 t.py", ""),
        ("taskset -c 7000-7001 true", "taskset: failed to set"),
        ("taskset -c 0,7000 true", ""),
        ("exec nice -n 5 taskset -c 7000 python3 t.py", "taskset: failed to set"),
        ("env -i FOLDER/torchrun t.py", ""),
        ("env -i torchrun t.py", "torchrun: not found"),
        ("env -i PATH=FOLDER torchrun t.py", ""),
        ("timeout 1h torchrun t.py", ""),
        ("timeout 1x torchrun t.py", "timeout: invalid time interval"),
        ("chrt -f 500 torchrun t.py", "chrt: unsupported priority"),
        ("prlimit --nofile=1024 torchrun t.py", ""),
        ("nohup setsid stdbuf -oL torchrun t.py", ""),
        ("time env -u HOME torchrun t.py", ""),
        ("time -p torchrun t.py", ""),
        ("time -p nice -n 5 taskset -c 0 torchrun t.py", ""),
        ("exec -a train env -u HOME torchrun t.py", ""),
        ("command -p torchrun t.py", ""),
        ("time -p taskset -c 7000 torchrun t.py", "taskset: failed to set"),
        ("nice nice torchrun t.py", ""),
    ],
)
def test_what_ends_the_launcher_here(line: str, told: str) -> None:
    argv = line.replace("FOLDER", os.path.dirname(sys.executable)).split()
    launch = of_launch_line(argv, {"PATH": os.environ["PATH"]}, tries=True, is_next=True)
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch.complete(LaunchOptions())))
    said = [str(finding.values.get("option", finding.values["observed"])) for finding in outcome.findings]
    assert told in said[0] if told else said == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("taskset -c 7000 torchrun t.py", "taskset: failed to set"),
        ("A=1 time -p nice -n x python3 -m torch.distributed.run t.py", "nice: invalid adjustment"),
        ("taskset -c 0 python3 BIN/torchrun t.py", ""),
        ("module load hpc\ntaskset -c 0 torchrun-of-module t.py\nnice torchrun t.py", ""),
        ("source env.sh\nenv -i torchrun t.py", ""),  # it may have set a PATH
        ("env -i torchrun t.py", "torchrun: not found"),
        ("if true; then taskset -c 7000 torchrun t.py; fi", "taskset: failed to set"),
        ("taskset -c $CPUS torchrun t.py", ""),
        ("docker run image taskset -c 7000 torchrun t.py", ""),
        ("absent-here taskset -c 7000 torchrun t.py", "absent-here: command not found"),
        ("#SBATCH --nodes=1\ntaskset -c 7000 torchrun t.py", ""),  # it runs on another host
    ],
)
def test_what_stands_before_a_launcher_of_a_job_script_is_tried_where_the_script_runs(
    text: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/bash\n" + text.replace("BIN", os.path.dirname(sys.executable)))
    for is_next in (True, False):
        launch = launches_of_job_script(str(tmp_path / "job.sh"), {"PATH": os.environ["PATH"]}, is_next=is_next)[0]
        said = [trial.value for trial in launch.complete(LaunchOptions()).option_problems if trial.kind == "trial"]
        assert [text for text in said if told in text] == said
        assert len(said) == (is_next and told != "")


ENDED = [
    "set -e\nulimit -n 99999999999\nLAUNCH",
    "ulimit -n 99999999999 && LAUNCH",
    "export PATH=/absent/bin\nLAUNCH",
    "set -e\nsource /absent/env.sh\nLAUNCH",
    "set -euo pipefail\n. ./absent.sh\nLAUNCH",
    "set -e\nf() {\n  source /absent/x.sh\n}\nf\nLAUNCH",
    "set -u\necho $NO_SUCH_NAME\nLAUNCH",
    "set -o nounset\nX=$NO_SUCH_NAME\nLAUNCH",
    "LAUNCH > absent/run.log 2>&1",
    "LAUNCH &> absent/run.log",
    "nohup LAUNCH > absent/run.log 2>&1 &\nwait",
    "LAUNCH < /absent/input",
    "set -e\nhostname > /absent/log\nLAUNCH",
    "set -e\nexec > /absent/log\nLAUNCH",
    "python3.99 -m torch.distributed.run t.py",
    "cd /absent && LAUNCH",
    "cd /absent || exit 1\nLAUNCH",
    "cd /absent || { echo no; exit 1; }\nLAUNCH",
    "set -e\ncd absent\nLAUNCH",
    "exit 0\nLAUNCH",
    "exec echo\nLAUNCH",
    "set -e\nset_up_all\nLAUNCH",
    "set_up_all || exit 1\nLAUNCH",
    "set_up_all && LAUNCH",
    "set -e\n./absent.sh\nLAUNCH",
    "[ -f absent.yaml ] || exit 1\nLAUNCH",
    "test -d /absent || { echo no; exit 1; }\nLAUNCH",
    "set -e\n[ -s absent ]\nLAUNCH",
    "go() {\nLAUNCH\n}\necho done",
    "source functions.sh\nset -e\nset_up_all\nLAUNCH",
]
REACHED = [
    "ulimit -n 99999999999\nLAUNCH",
    "set -e\nulimit -n 99999999999 || true\nLAUNCH",
    "set -e\nulimit -n $(ulimit -Hn)\nLAUNCH",
    "source /absent/env.sh\nLAUNCH",
    "set -e\nif source /absent/env.sh; then echo; fi\nLAUNCH",
    "set -e\n[ -f /absent/x.sh ] && source /absent/x.sh\nLAUNCH",
    "set -e\nset +e\nsource /absent/x.sh\nLAUNCH",
    "( set -e; true )\nsource /absent/x\nLAUNCH",
    "set -e\nf() {\n  source /absent/x.sh\n  true\n}\nf || true\nLAUNCH",
    "set -e\nf() {\n  source /absent/x.sh\n}\nLAUNCH",
    "set -e\necho 'export A=1' > env.sh\nsource ./env.sh\nLAUNCH",
    "set -e\nsource beside.sh\nLAUNCH",
    "set -e\n! cd /absent\nLAUNCH",
    "set -e\n> bin/x\ncd bin\nLAUNCH",
    "set -e\nf() {\n  cd bin\n}\nf > bin/x\nLAUNCH",
    "set -e\nsource moves.sh\nsource ../beside.sh\nLAUNCH",
    "cd /absent && echo ok\nLAUNCH",
    "set -e\nmkdir -p made\ncd made\nLAUNCH",
    "install -d made\nLAUNCH > made/run.log",
    "L=made/a\nmkdir -p $L\nLAUNCH &> $L/x",
    "LAUNCH 2>&1 | tee /absent/log",
    "exec > /absent/log\nLAUNCH",
    "echo a > /absent/x\nLAUNCH",
    "export PATH=/absent/bin\nsource beside.sh\nLAUNCH",
    "set -u\nprintf -v LOG %s x\necho $LOG ${OTHER:-} ${OTHER+x} $RANDOM $HOSTNAME\nLAUNCH",
    'set -u\n: ${NAME:=2}\nA=()\necho $NAME "${A[@]}"\nLAUNCH',
    "set -u\nif true; then N=3; fi\necho $N '$NO_SUCH_NAME'\nLAUNCH",
    "set -u\nsource ./beside.sh\necho $BESIDE\nLAUNCH",
    "set -u\necho $NO_SUCH_NAME | cat\nLAUNCH",
    "u() { echo; exit 1; }\n[ $# -gt 5 ] && u\nLAUNCH",
    "(exit 1)\nLAUNCH",
    "LAUNCH\nexit 0\ntorchrun --nnodes four old.py",
    "exec LAUNCH",
    "set_up_all\nLAUNCH",
    "set -e\nset_up_all || true\nLAUNCH",
    "set -e\nif set_up_all; then echo; fi\nLAUNCH",
    "set -e\nset_up_all() { true; }\nset_up_all\nLAUNCH",
    "set -e\nset_up_all() { false; }\nset_up_all() { true; }\nset_up_all\nLAUNCH",
    "shopt -s expand_aliases\nset -e\nalias set_up_all=true\nset_up_all\nLAUNCH",
    "mkdir tools\ncp /bin/true tools/aid\nexport PATH=$PWD/tools:$PATH\nset -e\naid\nLAUNCH",
    "set -e\nPATH=$PWD:$PATH\ncp /bin/true aid\naid\nLAUNCH",
    "touch made.yaml\n[ -f made.yaml ] || exit 1\nLAUNCH",
    "[ -f job.sh ] || exit 1\nLAUNCH",
    "[ ! -f /absent ] || exit 1\nLAUNCH",
    "[ -f /absent ] && exit 1\nLAUNCH",
    "[ -d /absent ] || mkdir -p made\nLAUNCH",
    "[ -f /absent -o -f job.sh ] || exit 1\nLAUNCH",
    "set -e\n[ -f job.sh ]\nLAUNCH",
    "go() {\nLAUNCH\n}\ntrap go EXIT",
    "go() {\nLAUNCH\n}\nfor step in go; do $step; done",
    "go() {\nLAUNCH\n}\neval go",
    "go() {\nLAUNCH\n}\nexport -f go\nbash -c go",
    "go() {\nLAUNCH\n}\n[ $# = 9 ] || go",
    "other() {\ntorchrun --nnodes four old.py\n}\nLAUNCH",
    "source functions.sh\nset -e\nof_file\nLAUNCH",
    "source functions.sh\nstart t.py",
]


@pytest.mark.parametrize(("text", "is_reached"), [*((t, False) for t in ENDED), *((t, True) for t in REACHED)])
def test_what_ends_a_job_script_before_its_launch_line_ends_it_in_bash(
    text: str, is_reached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    Path("beside.sh").write_text(f"export BESIDE=1 PATH={folder}:$PATH\n")
    Path("moves.sh").write_text("cd bin\n")
    Path("functions.sh").write_text('of_file() { export A=1; }\nstart() { torchrun "$@"; }\n')
    (folder / "torchrun").write_text(f"#!/bin/sh\n: > {tmp_path}/reached\n")
    (folder / "torchrun").chmod(0o755)
    Path("job.sh").write_text("#!/bin/bash\n" + text.replace("LAUNCH", "torchrun t.py") + "\n")
    environ = {"PATH": f"{folder}:/usr/bin:/bin"}
    launch = launches_of_job_script("job.sh", environ, lambda line: [LaunchText(line)], read_here, is_next=True)[0]
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch.complete(LaunchOptions())))
    subprocess.run(["bash", "job.sh"], env=environ, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    assert (Path("reached").exists(), bool(outcome.findings)) == (is_reached, not is_reached)


@pytest.mark.parametrize("is_run_by_sh", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        *("A=(--standalone)\nLAUNCH", "set -euo pipefail\nLAUNCH", "function f { LAUNCH; }\nf"),
        *("LAUNCH\nset -o pipefail", "cat <<E\nset -o pipefail\nE\nLAUNCH"),
        *("LAUNCH\nA=(1)", '[ -n "$BASH_VERSION" ] || exec bash "$0"\nA=(1)\nLAUNCH', "cat <<E\nA=(1)\nE\nLAUNCH"),
        *("f() { LAUNCH; }\nf", ". ./beside.sh\nset -eu\nLAUNCH", 'echo "set -o pipefail"\nLAUNCH'),
    ],
)
def test_the_sh_of_a_script_is_asked_whether_it_takes_the_text(
    text: str, is_run_by_sh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("beside.sh").write_text("export A=1\n")
    Path("torchrun").write_text(f"#!/bin/sh\n: > {tmp_path}/reached\n")
    Path("torchrun").chmod(0o755)
    Path("job.sh").write_text("#!/bin/sh\n" + text.replace("LAUNCH", "torchrun t.py") + "\n")
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    with subprocess.Popen(["/bin/sh" if is_run_by_sh else "/bin/cat"], stdin=subprocess.PIPE) as parent:
        monkeypatch.setattr(os, "getppid", lambda: parent.pid)
        launch = launches_of_job_script("job.sh", environ, lambda line: [LaunchText(line)], read_here, is_next=True)[0]
    findings = run_check("launch-option-refused", LaunchConfig.from_options(launch.complete(LaunchOptions()))).findings
    subprocess.run(["/bin/sh", "job.sh"], env=environ, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    is_refused = not Path("reached").exists()
    assert [finding.is_warning for finding in findings] == [not is_run_by_sh] * is_refused


SUDO = """#!/bin/sh
[ "$1" = -n ] || exit 9
shift
case $1 in
-u) shift 2 ;;
-s) shift; exec /bin/sh -c "$*" ;;
-k) echo "sudo: a password is required" >&2; exit 1 ;;
esac
[ "$1" = env ] || export PATH=PLAIN
exec "$@"
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sudo torchrun t.py", "torchrun: not found"),
        ("sudo -u other torchrun t.py", "torchrun: not found"),
        ("sudo env PATH=VENV torchrun t.py", ""),
        ("sudo VENV/torchrun t.py", ""),
        ("sudo VENV/broken t.py", "/absent/python3: Permission denied"),
        ("sudo python3 t.py", "No module named torch"),
        ("sudo python3 other.py", ""),
        ("sudo VENV/python3 t.py", ""),
        ("sudo -s VENV/torchrun t.py", ""),
        ("sudo -s torchrun-absent t.py", "torchrun-absent: not found"),
        ("sudo -k torchrun t.py", None),
        ("sudo nice VENV/torchrun t.py", ""),
    ],
)
def test_what_another_user_finds(line: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    venv, plain = tmp_path / "venv", tmp_path / "plain"
    texts = {
        venv / "sudo": SUDO.replace("PLAIN", f"{plain}:/usr/bin:/bin"),
        venv / "python3": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        venv / "torchrun": f"#!{venv}/python3\n",
        venv / "broken": "#!/absent/python3\n",
        plain / "python3": f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n',
    }
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    Path("t.py").write_text('"""A training."""\n\nimport os\nfrom torch import distributed\n')
    Path("other.py").write_text("import os\n")
    text, environ = line.replace("VENV", str(venv)), {"PATH": f"{venv}:/usr/bin:/bin"}
    Path("job.sh").write_text(f"#!/bin/bash\n{text}\n")
    launches = [of_launch_line(text.split(), environ, tries=True, is_next=True)]
    if not re.search("broken|absent", line):  # of a script no launch line
        launches.append(launches_of_job_script("job.sh", environ, is_next=True)[0])
    for launch in launches:
        trials = LaunchConfig.from_options(launch.complete(LaunchOptions())).problems_of("trial", "waits")
        assert [trial[2] for trial in trials] == ([] if told == "" else [told or ""])


def test_a_word_apart_in_a_directive(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --nodes 2 4\nulimit -n 9000\nsrun python t.py\n")
    (launch,), _ = launches_of([str(tmp_path / "job.sh")], [], LaunchOptions(), {})
    (finding,) = run_check("launch-option-refused", LaunchConfig.from_options(launch)).findings
    assert (finding.values["option"], finding.values["observed"]) == ("#SBATCH", "4")


def read_here(path: str) -> str | None:
    return Path(path).read_text() if Path(path).exists() else None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("* true\n", ""),
        ("# all\n0-2 true %t\n3 \\\n true\n", ""),
        ("0,1,2,3 true", ""),
        ("0-2 true\n", "tasks"),
        ("0-3 ./absent\n", "./absent: not found"),
        ("0-3 absent-program\n", "absent-program: not found"),
        (f"0-3 {sys.executable} absent.py\n", "absent.py: not found"),
    ],
)
def test_the_programs_of_several_tasks(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text(text)
    argv = ["srun", "-n", "4", "--multi-prog", str(tmp_path / "tasks")]
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    launch = of_launch_line(argv, environ, tries=True, is_next=True).complete(LaunchOptions())
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch))
    found = [finding.values["observed" if ":" in told else "option"] for finding in outcome.findings]
    assert found == [told if ":" in told else "--multi-prog" for _ in [told] if told]


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("srun -N 2 torchrun --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint n1:1 t.py", "Add `--nnodes 2`"),
        ("torchrun --nproc-per-node 8 python t.py", "as in `torchrun train.py`"),
        ("accelerate launch --num_machines 2 --num_processes 4 t.py", "Add `--main_process_ip <address>`"),
    ],
)
def test_the_remedy_says_what_to_write(line: str, remedy: str) -> None:
    todo = advice("launch-option-refused", run_check("launch-option-refused", config(line)))
    assert remedy in todo
    assert todo.casefold().count("add `") <= 1


OPENMPI = """#!/bin/sh
case "$*" in
*"-np 9 /bin/true") printf -- "------\\nThere are not enough slots available in the system\\n"; exit 0 ;;
"-np"*) echo "mpirun has detected an attempt to run as root." >&2; exit 1 ;;
*cores*) printf 'The specified binding policy is not recognized:\\n\\n  Policy: cores\\n' >&2; exit 1 ;;
*/bin/true) ;;
*) printf ' Data for JOB [1,1]\\n\\n =====   JOB MAP   =====\\n' ;;
esac
"""
SRUN = """#!/bin/sh
case "$*" in
*" /bin/true") ;;
*) echo started >"$0.started"; exit 0 ;;
esac
case "$*" in
*map_ldom*--help*) exit 0 ;;
*sideways*) printf 'srun: error: unrecognized --cpu-bind argument\\nsrun: fatal: Failed\\n' >&2; exit 1 ;;
*taken*) echo "srun: error: Unable to create step for job 5: Requested nodes are busy" >&2; exit 1 ;;
*slow*) sleep 60 ;;
esac
"""


@pytest.fixture
def launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """mpirun and srun on the PATH, which say what Open MPI 4.1.4 and Slurm 22.05 say."""
    for name, text in (("orterun", OPENMPI), ("srun", SRUN)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "mpirun").symlink_to("orterun")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


IN_JOB = {"SLURM_JOB_ID": "5"}
SIDEWAYS = "unrecognized --cpu-bind argument Failed"
WAITS = "Unable to create step for job 5: Requested nodes are busy"
TRIALS = [
    ("mpirun -np 2 python t.py", {}, "--allow-run-as-root"),
    ("timeout 9 mpirun -np 2 python t.py", {}, "--allow-run-as-root"),
    ("mpirun --allow-run-as-root -np 2 python t.py", {}, ""),
    ("mpirun --allow-run-as-root -np 9 python t.py", {}, "There are not enough slots available in the system"),
    ("mpirun --bind-to cores -np 2 python t.py", {}, "--bind-to"),  # by the table of options
    ("mpirun $OPTIONS -np 2 python t.py", {}, ""),
    ("./absent/mpirun -np 2 python t.py", {}, "./absent/mpirun: not found"),
    ("./absent/torchrun t.py", {}, ""),  # each host has it, or not
    ("sudo -u job mpirun -np 2 python t.py", {}, ""),
    ("docker run image mpirun -np 2 python t.py", {}, ""),
    ("srun -n 2 python t.py", IN_JOB, ""),
    ("srun --cpu-bind=map_ldom:sideways -n 2 python t.py", IN_JOB, SIDEWAYS),
    ("srun --cpu-bind=map_ldom:sideways -n 2 python t.py", {}, SIDEWAYS),
    ("srun -J taken -n 2 python t.py", IN_JOB, WAITS),
    ("srun --output=/nowhere/at/all/%j.out -n 2 python t.py", IN_JOB, "--output"),
    ("srun --input=/nowhere/at/all -n 2 python t.py", IN_JOB, "--input"),
    ("srun -n 2 python t.py", {**IN_JOB, "SLURM_STDERRMODE": "/nowhere/at/all/x"}, "--error"),
    ("srun --output=/etc/hosts/%j.out -n 2 python t.py", IN_JOB, "--output"),  # no folder
    ("srun --output=/nowhere/%x/%j.out -n 2 python t.py", IN_JOB, ""),
    ("srun --cpu-bind=map_ldom:sideways --task-prolog=/p --epilog=/e -n 2 python t.py", IN_JOB, SIDEWAYS),
    ("srun --cpu-bind=map_ldom:sideways --pty -n 2 python t.py", IN_JOB, ""),  # runs more than the program
    ("srun --cpu-bind=map_ldom:sideways --container-image=x -n 2 python t.py", IN_JOB, ""),
    ("srun --cpu-bind=map_ldom:sideways -n 2 python t.py", {**IN_JOB, "SLURM_STEP_ID": "0"}, ""),  # a task of a step
    ("srun --cpu-bind=map_ldom:sideways -n 2 python t.py", {**IN_JOB, "SLURM_STEP_ID": "4294967290"}, SIDEWAYS),
]  # fmt: skip


@pytest.mark.parametrize(("line", "environ", "refused"), TRIALS)
def test_the_launcher_is_asked(launchers: Path, line: str, environ: dict[str, str], refused: str) -> None:
    variables = {**environ, "PATH": os.environ["PATH"]}
    launch = of_launch_line(shlex.split(line), variables, tries=True).complete(LaunchOptions())
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch))
    told = [str(finding.values.get("option", finding.values["observed"])) for finding in outcome.findings]
    assert told == ([refused] if refused else [])
    assert [finding.is_warning for finding in outcome.findings] == ([refused == WAITS] if refused else [])
    assert not (launchers / "srun.started").exists()
    if refused and not refused.startswith("-"):
        assert f"`{outcome.findings[0].values['trial']}` asks" in advice("launch-option-refused", outcome)
    quiet = of_launch_line(shlex.split(line), variables).complete(LaunchOptions())
    assert not any(problem.kind in ("trial", "needed") for problem in quiet.option_problems)


def test_no_hook_of_the_user_runs_in_the_trial(launchers: Path) -> None:
    line = of_launch_line(["srun", "--task-prolog", "/p", "python", "t.py"], {}).line
    assert line is not None
    trial = launch_trial(
        line, ["srun", "--task-prolog", "/p", "python", "t.py"], {**IN_JOB, "PATH": os.environ["PATH"]}
    )
    assert trial[-2:] == ["--task-prolog=/bin/true", "/bin/true"]


HAS_SRUN = bool(shutil.which("srun", path="/usr/bin:/bin"))


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("torchrun-absent t.py", False),  # no launcher that is known: it may be a function of the shell
        ("torchrum --nproc-per-node 2 t.py", True),
        ("python3.99 t.py", True),
        ("./absent t.py", True),
        ("absent t.py", False),
        ("numactl-absent -N 0 torchrun t.py", False),
        ("env PATH={} torchrun --no-python absent", True),
        ("env PATH={} torchrun --no-python ./absent", False),  # the hosts are asked
        ("setsid absent", False),
        ("time -p nohup torchrum t.py", True),
        ("torchrun t.py", True),
        ("env A=b torchrun t.py", True),
        ("env PATH={} torchrun t.py", False),
        ("conda run -n x torchrun t.py", False),
        ("docker run image torchrun t.py", False),
        ("msrun t.py", True),
        ("srun python3.99 t.py", HAS_SRUN),
        ("srun --export=ALL,PATH={} torchrun t.py", HAS_SRUN),
        ("env PATH=/usr/bin:/bin:{} srun torchrun t.py", False),
        ("srun --chdir={} torchrun t.py", False),
        ("srun --container-image=x torchrun t.py", False),
        ("srun --task-prolog=/p torchrun t.py", False),
        ("srun --multi-prog torchrun", False),
        ("/absent/torchrun t.py", False),  # the hosts are asked
    ],
)
def test_a_launcher_that_the_shell_does_not_have(line: str, is_told: bool, tmp_path: Path) -> None:
    """Of srun as Slurm 22.05 starts and refuses these lines."""
    (tmp_path / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "torchrun").chmod(0o755)
    argv, environ = shlex.split(line.format(tmp_path)), {"PATH": "/usr/bin:/bin"}
    launch = of_launch_line(argv, environ, tries=True, is_next=True).complete(LaunchOptions())
    outcome = run_check("launch-option-refused", LaunchConfig.from_options(launch))
    assert [finding.values["observed"].endswith("not found") for finding in outcome.findings].count(True) == is_told
    before = of_launch_line(argv, environ, tries=True).complete(LaunchOptions())
    assert "srun" in line or not any(problem.kind == "trial" for problem in before.option_problems)


@pytest.mark.parametrize(
    ("export", "environ", "is_told"),
    [
        ("NONE", {"MASTER_ADDR": "n1"}, True),
        ("NCCL_DEBUG", {"MASTER_ADDR": "n1"}, True),
        ("ALL,NCCL_DEBUG=INFO", {"MASTER_ADDR": "n1"}, False),
        ("MASTER_ADDR,MASTER_PORT", {"MASTER_ADDR": "n1"}, False),
        ("NONE,MASTER_ADDR=n2", {"MASTER_ADDR": "n1"}, False),
        ("NONE", {}, False),
    ],
)
def test_an_address_that_the_tasks_do_not_get(export: str, environ: dict[str, str], is_told: bool) -> None:
    outcome = run_check("launch-option-refused", config(f"srun --export={export} -n 2 python t.py", environ))
    assert [finding.is_warning for finding in outcome.findings] == [True] * is_told
    by_variable = config("srun -n 2 python t.py", {**environ, "SLURM_EXPORT_ENV": export})
    assert len(run_check("launch-option-refused", by_variable).findings) == is_told
    assert not is_told or "Add `--export ALL`" in advice("launch-option-refused", outcome)


def test_a_launcher_that_does_not_answer_is_unknown(launchers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doctor.environment.launch_trials._TRIAL_SECONDS", 0.5)
    variables = {**IN_JOB, "PATH": os.environ["PATH"]}
    launch = of_launch_line(["srun", "-J", "slow", "python", "t.py"], variables, tries=True).complete(LaunchOptions())
    assert run_check("launch-option-refused", LaunchConfig.from_options(launch)).status is Status.UNKNOWN


def test_another_mpi_is_not_asked(launchers: Path) -> None:
    """MPICH and Intel MPI map no ranks on trial."""
    (launchers / "orterun").rename(launchers / "hydra")
    (launchers / "mpirun").unlink()
    (launchers / "mpirun").symlink_to("hydra")
    launch = of_launch_line(["mpirun", "-np", "9", "python", "t.py"], {}, tries=True).complete(LaunchOptions())
    assert not run_check("launch-option-refused", LaunchConfig.from_options(launch)).findings


BEHIND = [
    ("msrun --worker_num=8 t.py --join=True --log_dir=x", {"--join": "True"}),
    ("torchrun t.py --nproc-per-node 8 --lr 3", {"--nproc-per-node": "8"}),
    ("torchrun t.py --standalone", {"--standalone": "before t.py"}),
    ("accelerate launch t.py --num_processes 8 --mixed_precision bf16", {"--num_processes": "8"}),
    ("mpirun --allow-run-as-root python3 t.py -np 8", {"-np": "8"}),
    ("srun python3 -m torch.distributed.run t.py --nnodes=2", {"--nnodes": "2"}),
    ("torchrun --nproc-per-node 8 t.py --nproc-per-node 8", {}),  # the program has it, too
    ("torchrun --nproc-per-node 8 t.py --num-nodes 2", {}),  # not torchrun's
    ("python3 -m sglang.launch_server --tp 2 --nnodes 2 --node-rank 0", {}),
    ("torchrun $MORE t.py --nnodes 2", {}),  # the launcher may have it
]


@pytest.mark.parametrize(("line", "options"), BEHIND)
def test_an_option_of_the_launcher_behind_the_program_is_given_to_the_program(
    line: str, options: dict[str, str]
) -> None:
    outcome = run_check("launch-option-refused", config(line))
    findings = {finding.values["option"]: finding.values["expected"] for finding in outcome.findings}
    assert findings.keys() == options.keys() and all(findings[name].startswith(text) for name, text in options.items())
    assert all(finding.is_warning for finding in outcome.findings)


@pytest.mark.parametrize(
    ("text", "message", "case"),
    [
        ("set -e\nfalse\ntorchrun t.py\n", "false in line 2; expected it behind line 3", "An end"),
        ("exit 0\ntorchrun t.py\n", "exit in line 1; expected it behind line 2", "An end"),
    ],
)
def test_a_script_that_does_not_reach_its_launch_line_is_told_so(
    text: str, message: str, case: str, tmp_path: Path
) -> None:
    """Nothing refuses an option there."""
    (tmp_path / "job.sh").write_text(text)
    launch = launches_of_job_script(str(tmp_path / "job.sh"), {"PATH": os.environ["PATH"]}, is_next=True)[0]
    (finding,) = run_check(
        "launch-option-refused", LaunchConfig.from_options(launch.complete(LaunchOptions()))
    ).findings
    assert str(finding) == f"the script does not reach the launch line: {message}"
    assert finding.values["case"] == case
