"""Ways in which public scripts start a training: each is read, or is named as not understood."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from doctor.engine.errors import InputError
from doctor.job.job_script import read_job_script
from doctor.job.launch_line import LaunchLine
from doctor.session.script_launches import NoTrainingError, launches_of_script

BY_MSRUN = 'bash scripts/msrun_launcher.sh "run_mindformer.py --config a.yaml"'
READ: dict[str, tuple[str, list[str], str, tuple[str, ...], int | None]] = {
    # text, launchers, program, arguments, world size
    "a profiler in a variable": (
        '$PREFIX "${PROFILER[@]}" python -m torch.distributed.run --nproc_per_node 8 t.py --a 1',
        ["torchrun"], "t.py", ("--a", "1"), 8,
    ),
    "ray job submit": (
        "ray job submit --address=http://127.0.0.1:8265 --runtime-env-json=\"{}\" -- python3 train.py --a 1",
        [], "train.py", ("--a", "1"), 1,
    ),
    "shifter": (
        "srun -n 8 shifter -V /a:/b --image=x bash -c 'source env.sh; python train.py'", ["srun"], "train.py", (), 8,
    ),
    "coverage": (
        "coverage run -a --data-file=/c -m torch.distributed.run --nproc_per_node=2 t.py --a 1",
        ["torchrun"], "t.py", ("--a", "1"), 2,
    ),
    "read of a here-document": (
        "read -d '' cmd <<EOF\npkg.train \\\n   --len $LEN\nEOF\ndeepspeed --num_nodes 1 --num_gpus 4 --module $cmd",
        ["deepspeed"], "pkg.train", ("--len", "$LEN"), 4,
    ),
    "cat of a here-document": (
        "CMD=$(cat <<EOF\ntorchrun --nproc_per_node 4 x.py # don't (\nEOF\n)\neval $CMD", ["torchrun"], "x.py", (), 4,
    ),
    "eval": ('eval "torchrun --nnodes 2 --nproc_per_node ${1:-8} x.py"', ["torchrun"], "x.py", (), 16),
    "megatron sft": (
        "NPROC_PER_NODE=2 megatron sft --model x", ["torchrun"], "swift.cli._megatron.sft", ("--model", "x"), 2,
    ),
    "MindFormers": (f"{BY_MSRUN} 4", ["msrun"], "run_mindformer.py", ("--config", "a.yaml"), 4),
    "MindFormers on 2 hosts": (
        f"{BY_MSRUN} 16 8 10.0.0.1 8118 $R out True 72", ["msrun"], "run_mindformer.py", ("--config", "a.yaml"), 16,
    ),
    "quotes beside a command substitution": (
        "L=\"torchrun --role \\$(tr -d '.') --nnodes 2 --nproc_per_node 8\"\nsrun bash -c \"$L train.py --x $(a)\"",
        ["srun", "torchrun"], "train.py", ("--x", "$(a)"), 16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_launch_is_read(name: str) -> None:
    text, launchers, program, arguments, world = READ[name]
    [line] = read_job_script(text).launch_lines
    assert [call.launcher for call in line.launchers] == launchers
    assert (line.program, line.arguments, line.world_size) == (program, arguments, world)


def test_the_arguments_of_a_function_are_not_those_of_the_script() -> None:
    [line] = read_job_script("run() { torchrun --nproc_per_node ${1:-8} t.py; }\ntrap run EXIT").launch_lines
    assert line.world_size is None
    [line] = read_job_script("run() { torchrun --nproc_per_node ${1:-8} t.py; }\nrun 4").launch_lines
    assert (line.world_size, line.conditional) == (4, False)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("run()\n{\n local n=$1\n torchrun --nproc-per-node $n t.py\n}\nrun 2\nrun 4", [2, 4]),
        ("function run { torchrun --nproc-per-node $N t.py; }\nN=6\nrun", [6]),
        ("inner() { torchrun --nproc-per-node $1 t.py; }\nouter() { inner 3; }\nouter", [3]),
        ("run() { shift; torchrun --nproc-per-node $1 t.py; }\nrun 2 4", [None]),
        ("run() { torchrun --nproc-per-node 2 t.py; run; }\nrun", [2, 2, 2, 2]),
        ("run() { torchrun --nproc-per-node 2 t.py; }\nrun() { torchrun --nproc-per-node 4 t.py; }\nrun", [2, 4]),
        (": ${N:=4}\ntorchrun --nproc-per-node $N t.py", [4]),
    ],
)
def test_the_body_of_a_function_runs_where_it_is_called(text: str, ranks: list[int | None]) -> None:
    assert [line.world_size for line in read_job_script(text).launch_lines] == ranks


def test_functions_that_call_each_other_many_times_are_bounded() -> None:
    text = "".join(f"f{n}() {{ {f'f{n + 1}; ' * 50} }}\n" for n in range(6)) + "f6() { torchrun t.py; }\nf0\n"
    began = time.process_time()
    read_job_script(text)
    assert time.process_time() - began < 5


def test_a_file_beside_the_script_is_followed_where_it_is_sourced() -> None:
    files = {"./env.sh": "N=4\nexport MASTER_ADDR=n1", "env.sh": "N=4\nexport MASTER_ADDR=n1"}
    for name in (
        '"$(dirname "$0")/env.sh"',
        "env.sh",
        "${BASH_SOURCE%/*}/env.sh",
        "$PWD/env.sh",
        '$(cd "$(dirname "$0")" && pwd)/env.sh',
    ):
        [line] = read_job_script(f"source {name}\ntorchrun --nproc-per-node $N t.py", read_file=files.get).launch_lines
        assert (line.world_size, line.environ) == (4, {"MASTER_ADDR": "n1"}), name
    for name in ("/etc/env.sh", "$HOME/env.sh", "missing.sh", "$(which env.sh)", "$(dirname /opt/x)/env.sh"):
        script = read_job_script(f". {name}\ntorchrun --nproc-per-node $N t.py", read_file=files.get)
        assert [(line.world_size, len(script.unread)) for line in script.launch_lines] == [(None, 1)], name


def test_what_an_argument_is_after_shift_is_not_known() -> None:
    [line] = read_job_script("shift\ntorchrun --nproc_per_node ${1:-8} t.py").launch_lines
    assert line.world_size is None


@pytest.mark.parametrize(
    "text",
    [
        "debugpy-run -m torch.distributed.run -p 5678 -- --nproc_per_node 2 t.py",
        "jsrun -n 4 python train.py",
        "srun ./wrapper torchrun --nproc_per_node 8 t.py",
        "python -m oneflow.distributed.launch --nnodes 2 t.py",
    ],
)
def test_a_launch_that_is_not_understood_is_named(text: str) -> None:
    assert [part.line for part in read_job_script(f"\n{text}").not_understood] == [2]


@pytest.mark.parametrize(
    "text",
    ["pip install deepspeed --upgrade", "pkill -f torchrun -9", "which torchrun", "torchrun t.py", "srun hostname"],
)
def test_what_starts_no_ranks_is_not_named(text: str) -> None:
    assert not read_job_script(text).not_understood


def launches(text: str, files: dict[str, str]) -> list[LaunchLine]:
    return [entry.line for entry in launches_of_script(text, "run.sh", {}, files.get)]


def test_the_script_that_a_script_runs_is_read_with_its_arguments() -> None:
    files = {"inner.sh": 'torchrun --nproc_per_node $1 "${@}"'}
    [line] = launches("srun -N 2 ./inner.sh --extra", {"./inner.sh": "torchrun --nnodes 2 --nproc_per_node 4 t.py $1"})
    assert ([call.launcher for call in line.launchers], line.arguments) == (["srun", "torchrun"], ("--extra",))
    [line] = launches("bash inner.sh 4", files)
    assert line.world_size == 4


def test_a_script_that_is_not_here_makes_the_program_unknown() -> None:
    [line] = launches("srun -N 2 ./inner.sh", {})
    assert "cannot be read here" in line.unresolved["program"]
    with pytest.raises(NoTrainingError):
        launches("bash clean.sh", {})


def test_text_that_no_shell_reads_names_its_line() -> None:
    with pytest.raises(InputError, match=r"run\.sh: no shell reads this: line 2"):
        launches("#!/bin/bash\nDATA=<your folder>\ntorchrun t.py\n", {})


def test_a_script_with_dos_line_breaks_is_no_sound_one(tmp_path: Path) -> None:
    """With and without a first line that names its shell; a configuration may have them."""
    (tmp_path / "ds.json").write_bytes(b'{"train_batch_size": 8,\r\n "train_micro_batch_size_per_gpu": 2}\r\n')
    for head in ("#!/bin/bash\r\n", ""):
        script = tmp_path / "run.sh"
        script.write_bytes(f"{head}export MASTER_ADDR=n1\r\ndeepspeed train.py --deepspeed ds.json\r\n".encode())
        command = [sys.executable, "-m", "doctor", "lint", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert (done.returncode, "a carriage return" in done.stderr) == (78, True), done
    script.write_bytes(script.read_bytes().replace(b"\r", b""))
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert "a carriage return" not in done.stderr and done.returncode != 78, done


def test_a_file_is_found_above_the_folder_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "shell" / "gpt").mkdir(parents=True)
    (tmp_path / "ds.json").write_text('{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2}')
    script = tmp_path / "shell" / "gpt" / "run.sh"
    script.write_text("deepspeed --num_nodes 1 --num_gpus 4 train.py --deepspeed ds.json\n")
    command = [sys.executable, "-m", "doctor", "lint", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, "launch-batch-not-divisible" in done.stdout) == (10, True), done.stdout


def test_the_node_rank_of_one_host_is_not_read_by_torchrun() -> None:
    one, two = ("torchrun --node-rank 1 t.py", "torchrun --nnodes 2 --node-rank 2 t.py")
    assert [len(read_job_script(text).launch_lines[0].problems) for text in (one, two)] == [0, 1]
