"""Launch lines of training frameworks' own commands: hosts and sizes as the framework makes them, nothing guessed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from doctor.engine.record import LaunchOptions
from doctor.environment.job_environment import of_launch_line
from doctor.job.job_script import read_job_script
from doctor.job.launch_line import LaunchCall
from doctor.job.training.host_slots import _of_deepspeed

Row = tuple[str, tuple[str, ...], int | None, int | None, int | None, str, str]
NODES = "env NPROC_PER_NODE=8 NNODES=2 NODE_RANK=0 MASTER_ADDR=n1 MASTER_PORT=29510"
ROWS: list[Row] = [
    # text, launchers, hosts, ranks on each, world size, where ranks meet, program
    ("tune run --nproc_per_node 4 --nnodes 2 full --config c", ("torchrun",), 2, 4, 8, "127.0.0.1:29500", "full"),
    ("tune run lora_finetune_single_device --config c", (), None, None, None, "", "lora_finetune_single_device"),
    ("tune cp llama3/8B .", (), None, None, None, "", "tune"),
    ("llamafactory-cli train a.yaml", ("torchrun",), 1, None, None, "", "llamafactory.launcher"),
    (f"{NODES} llamafactory-cli train a.yaml", ("torchrun",), 2, 8, 16, "n1:29510", "llamafactory.launcher"),
    ("env NPROC_PER_NODE=4 lmf train a.yaml", ("torchrun",), 1, 4, 4, "", "llamafactory.launcher"),
    ("env RDZV_ID=7 MASTER_PORT=1 lmf train a", ("torchrun",), None, None, None, "127.0.0.1:1", "llamafactory.launcher"),
    ("llamafactory-cli webui", (), None, None, None, "", "llamafactory-cli"),
    (f"{NODES} swift sft --model m", ("torchrun",), 2, 8, 16, "n1:29510", "swift.cli.sft"),
    ("env NNODES=2 MASTER_ADDR=n1 swift rlhf", ("torchrun",), 2, 1, 2, "n1:29500", "swift.cli.rlhf"),
    ("swift sft --model m", (), None, None, None, "", "swift.cli.sft"),
    ("swift deploy --model m", (), None, None, None, "", "swift"),
    ("env NNODES=2 NPROC_PER_NODE=8 ADDR=n1 PORT=1234 xtuner train c", ("torchrun",), 2, 8, 16, "n1:1234", "xtuner.tools.train"),
    ("xtuner train c", (), None, None, None, "", "xtuner.tools.train"),
    ("vllm serve m --tensor-parallel-size=8 -pp 2 --nnodes 2 --master-addr n1", ("torchrun",), 2, 8, 16, "n1:29501", "vllm.entrypoints.openai.api_server"),
    ("vllm serve m -tp 8", (), None, None, None, "", "vllm.entrypoints.openai.api_server"),
    ("sglang serve --tp 16 --nnodes 2 --dist-init-addr n1:5000", ("torchrun",), 2, 8, 16, "n1:5000", "sglang.launch_server"),
    ("flux run -N 2 -n 16 python3 t.py", ("flux",), 2, 8, 16, "", "t.py"),
    ("flux run -N 2 ./train", ("flux",), 2, 1, 2, "", "./train"),
    ("flux run -n 4 ./train", ("flux",), None, None, 4, "", "./train"),
    ("axolotl train c.yml", ("accelerate",), None, None, None, ":29500", "axolotl.cli.train"),
    ("axolotl train c.yml --launcher torchrun -- --nproc_per_node=8 --nnodes=2 --master_addr n1", ("torchrun",), 2, 8, 16, "n1:29500", "axolotl.cli.train"),
    ("axolotl train c.yml --launcher accelerate -- --num_processes 8 --num_machines 2 --main_process_ip n1", ("accelerate",), 2, 4, 8, "n1:29500", "axolotl.cli.train"),
    ("axolotl train --launcher python c.yml", (), None, None, None, "", "axolotl.cli.train"),
    ("axolotl preprocess c.yml", (), None, None, None, "", "axolotl"),
    ("colossalai run --nproc_per_node 8 --host n1,n2,n3 --master_addr n1 t.py", ("colossalai",), 3, 8, 24, "n1:29500", "t.py"),
    ("colossalai run --nproc_per_node 4 t.py", ("colossalai",), 1, 4, 4, ":29500", "t.py"),
    ("colossalai run --hostfile h --nproc_per_node 8 t.py", ("colossalai",), None, 8, None, ":29500", "t.py"),
    ("colossalai run --hostfile h --num_nodes 2 --nproc_per_node 8 t.py", ("colossalai",), 2, 8, 16, ":29500", "t.py"),
    ("colossalai check -i", (), None, None, None, "", "colossalai"),
    ("horovodrun -np 8 -H a:4,b:4 python t.py", ("horovodrun",), 2, 4, 8, "", "t.py"),
    ("horovodrun --min-np 2 --host-discovery-script d python t.py", ("horovodrun",), None, None, None, "", "t.py"),
    ("mpirun -np 16 --hostfile h python3 t.py", ("openmpi",), None, None, 16, "", "t.py"),
    ("srun -N 2 tune run --nproc_per_node 8 full --config c", ("srun", "torchrun"), 1, 8, 8, "127.0.0.1:None", "full"),
    # launchers that are not known: nothing is known of their hosts and ranks
    ("jsrun -n 4 -a 1 python3 t.py", (), None, None, None, "", "jsrun"),
    ("aprun -n 32 -N 8 ./a.out", (), None, None, None, "", "aprun"),
    ("torchx run dist.ddp -j 2x8 --script t.py", (), None, None, None, "", "torchx"),
    ("python3 train.py", (), None, None, None, "", "train.py"),  # it may start ranks itself
]  # fmt: skip


@pytest.mark.parametrize(("text", "launchers", "nodes", "ranks", "world", "master", "program"), ROWS)
def test_a_framework_s_launch_line(
    text: str, launchers: tuple[str, ...], nodes: int | None, ranks: int | None, world: int | None, master: str, program: str
) -> None:  # fmt: skip
    source = of_launch_line(shlex.split(text), {})
    options = source.complete(LaunchOptions())
    assert source.line and source.line.program == program
    assert (options.launchers, options.nodes, options.ranks_per_host, options.world_size) == (
        launchers,
        nodes,
        ranks,
        world,
    )
    port = options.master_port
    assert (f"{options.master_addr}:{port}" if options.master_addr or port else "") == master
    assert not {problem.option for problem in options.option_problems if problem.kind != "needed"}


def test_hosts_and_hostfiles_of_the_line(tmp_path: Path) -> None:
    source = of_launch_line(shlex.split("colossalai run --host n1,n2,n1 t.py"), {})
    assert (source.hosts, source.hostfile) == ("n1,n2", "")
    source = of_launch_line(shlex.split("horovodrun -np 4 --hostfile h t.py"), {})
    assert (source.hosts, source.hostfile) == ("", "h")


def test_a_variable_that_only_a_shell_computes_is_not_the_default() -> None:
    script = "export NPROC_PER_NODE=8\nexport NNODES=$(wc -l <hosts)\nFORCE_TORCHRUN=1 llamafactory-cli train a.yaml\n"
    line = read_job_script(script).job_line
    assert line and line.launchers[0].launcher == "torchrun"
    assert (line.nodes, line.ranks_per_node, line.world_size) == (None, 8, None)
    assert "$(wc -l <hosts)" in line.unresolved["torchrun nnodes"]
    line = read_job_script("NNODES=$X MASTER_ADDR=$Y NPROC_PER_NODE=4 swift sft --model m\n").job_line
    assert line and (line.nodes, line.launchers[0].master_addr) == (None, "")


def test_a_count_of_a_hostfile_stands_in_its_first_line() -> None:
    """Line 9, which the text ``h:10`` would precede."""
    call = LaunchCall(launcher="deepspeed", command="deepspeed", hostfile="h")
    settings = _of_deepspeed(call, [(number, f"w{number} slots=8") for number in range(9, 12)], "")
    assert {setting.where for setting in settings.values()} == {"h:9"}
