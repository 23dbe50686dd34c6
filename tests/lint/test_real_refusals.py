"""What doctor says of options and values is what sbatch, torchrun's parser and PyTorch's allocator say."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.job.job_script.directives import read_directives, resources
from doctor.job.launch_line.read import read_launch_line
from doctor.job.variable_values import refused

pytestmark = pytest.mark.every

DIRECTIVES = {
    "--node=2": True, "--nodes=2": False, "--ntask=2": True, "--ntasks-per-nod=2": False, "--part=gpu": False,
    "--cpus=8": True, "--job=x": False, "--job_name=x": True, "--partion=x": True, "--queue=x": True,
    "--walltime=1": True,
        "--nodes 2 4": True, "--nodes= 2": True, "--comment=a b": True, "--comment='a b'": False, "nodes=2": True,
    "--mem=32 GB": True, "--mem=32GB": False, "--mem=32GBB": True, "--mem=1.5G": True, "--mem=4g": False,
    "--gres=gpu:8": False, "--gres=gpu:a100:8": False, "--gres=gpu8": True, "--gres=gpus:8": True, "--gres=gpu=8": True,
    "-N=2": True, "-N2": False, "--N 2": True, "-p=gpu -t=4": True, "--mpi=pmix": True, "--cpu-bind=none": True,
    "--kill-on-bad-exit=1": True, "--time=48h": True, "--time=48:00:00": False, "--nodes=2 # two": False,
    "--exclusiv": False, "--exclusive=true": True, "--exclusive=user": False,
    "--tasks-per-node=2": False, "--task-per-node=2": True,
}  # fmt: skip
"""By the text behind ``#SBATCH``: whether sbatch refuses it."""
OPTIONS = {
    "--nproc_per 8": False, "--nnode 1": False, "--max-res 3": False, "--standa": False, "--node-r 0": False,
    "--nodes 1": True, "--num_nodes 1": True, "--gpus-per-node 8": True, "--mast n1": True, "--run": False,
    "--nproc-per-nodes 8": True, "--rdzv_endpoints n1": True, "--master_adress n1": True, "--log_d x": False,
}  # fmt: skip
"""By what stands before torchrun's program: whether its parser refuses it. ``--run`` is one option of two spellings."""
ALLOCATOR = {
    "expandable_segments:True": False, "expandable_segments:true": True, "expandable_segments:1": True,
    "expandable_segments=True": True, "expandable_segments": True, "max_split_size_mb:10": True,
    "max_split_size_mb:20": False, "max_split_size_mb:-5": False, "max_split_size_mb: 128": False,
    "garbage_collection_threshold:1.5": True,
    "garbage_collection_threshold:0": True, "garbage_collection_threshold:0.8,max_split_size_mb:512": False,
    "max_split_size_mb:512;garbage_collection_threshold:0.8": True, "expandable_segments:True,": False,
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]": False, "pinned_use_background_threads:true": True,
}  # fmt: skip
"""By value of PYTORCH_ALLOC_CONF: whether PyTorch refuses it."""


def test_directives_are_refused_as_by_sbatch(tmp_path: Path) -> None:
    told = {text: bool(resources(read_directives([f"#SBATCH {text}"])).problems) for text in DIRECTIVES}
    assert told == DIRECTIVES
    if not shutil.which("sbatch"):
        pytest.skip("sbatch is not installed")
    settings = "ClusterName=x\nSlurmctldHost=localhost\nGresTypes=gpu\nSelectType=select/cons_tres\n"
    (tmp_path / "slurm.conf").write_text(f"{settings}MessageTimeout=1\nSlurmctldTimeout=1\n")
    environ = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    real = {}
    for text in DIRECTIVES:
        (tmp_path / "run.sh").write_text(f"#!/bin/bash\n#SBATCH {text}\ntrue\n")
        command = ["sbatch", "--test-only", str(tmp_path / "run.sh")]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        real[text] = "Unable to contact slurm controller" not in done.stderr  # a right script is to be submitted
    assert real == DIRECTIVES


@pytest.mark.torch
def test_options_are_refused_as_by_torchrun() -> None:
    run = pytest.importorskip("torch.distributed.run")
    told = {}
    real = {}
    for text in OPTIONS:
        line = read_launch_line(["torchrun", *text.split(), "train.py"], {})
        told[text] = any(problem.option.startswith("--") for problem in line.problems)
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                run.get_args_parser().parse_args([*text.split(), "train.py"])
                real[text] = False
            except SystemExit:
                real[text] = True
    real["--run"] = False  # Python before 3.12.8 takes its two spellings for two options
    assert (told, real) == (OPTIONS, OPTIONS)


@pytest.mark.torch
def test_allocator_options_are_refused_as_by_pytorch() -> None:
    told = {value: bool(refused({"PYTORCH_ALLOC_CONF": value}, "ends_nccl")) for value in ALLOCATOR}
    assert told == ALLOCATOR
    torch = pytest.importorskip("torch")
    if not hasattr(torch._C, "_accelerator_setAllocatorSettings"):
        pytest.skip("this PyTorch reads the options where it finds a GPU alone")
    program = (
        "import json, sys, torch\nfound = {}\nfor value in json.loads(sys.argv[1]):\n    try:\n"
        "        torch._C._accelerator_setAllocatorSettings(value)\n        found[value] = False\n"
        "    except RuntimeError:\n        found[value] = True\n    except ValueError:\n        found[value] = True\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(list(ALLOCATOR))], capture_output=True, text=True, timeout=100
    )
    assert json.loads(done.stdout) == ALLOCATOR, done.stderr
