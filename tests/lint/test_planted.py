"""Mistakes that need no host to be seen, planted in launches as people write them: each is told, and it alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded

SOUND = {
    "nproc_per_node": "8", "nnodes": "4", "node_rank": "$NODE_RANK", "master_addr": "n1", "master_port": "6000",
}  # fmt: skip
MODEL = {
    "tensor-model-parallel-size": "4", "pipeline-model-parallel-size": "2", "num-layers": "32", "hidden-size": "4096",
    "num-attention-heads": "32", "micro-batch-size": "1", "global-batch-size": "32",
}  # fmt: skip
STYLES = ("line", "string", "array", "command", "command array", "srun", "exported", "positional")
"""How the launch is kept: options in the line, in a string or an array; the whole launcher in a variable; in the text
of a shell under srun, or in variables that this shell inherits; with the master as an argument of the script."""
PLANTED: dict[str, tuple[str, dict[str, str | None], dict[str, str], str]] = {
    "layers": ("launch-model-not-divisible", {}, {"pipeline-model-parallel-size": "4", "num-layers": "30"}, ""),
    "heads": ("launch-model-not-divisible", {}, {"num-attention-heads": "30"}, ""),
    "batch": ("launch-batch-not-divisible", {}, {"global-batch-size": "33"}, ""),
    "ranks": ("launch-ranks-not-divisible", {}, {"tensor-model-parallel-size": "8", "pipeline-model-parallel-size": "3",
              "num-layers": "36"}, ""),
    "master": ("master-address-local", {"master_addr": "localhost"}, {}, ""),
    "no master": ("master-address-local", {"master_addr": None}, {}, ""),
    "node rank": ("launch-option-refused", {"node_rank": "4"}, {}, ""),
    "option": ("launch-option-refused", {"nproc_per_node": None, "nproc-pernode": "8"}, {}, ""),
    "port": ("launch-option-refused", {"master_port": "66000"}, {}, ""),
    "count": ("launch-option-refused", {"nnodes": "four"}, {}, ""),
    "misspelt": ("launch-variable-misspelt", {}, {}, "export HCCL_CONECT_TIMEOUT=1800"),
    "base port": ("launch-settings-invalid", {}, {}, "export HCCL_IF_BASE_PORT=65530"),
    "devices": ("launch-settings-invalid", {}, {}, "export ASCEND_RT_VISIBLE_DEVICES=0,0,1,2,3,4,5,6"),
    "table": ("rank-table-path-relative", {}, {}, "export RANK_TABLE_FILE=conf/hccl.json"),
    "device twice": ("visible-devices-wrong", {}, {}, "export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,6"),
    "spaces after export": ("launch-option-refused", {}, {}, "export HCCL_CONNECT_TIMEOUT = 600"),
    "spaces": ("launch-option-refused", {}, {}, "HCCL_CONNECT_TIMEOUT = 600"),
    "root's port": ("launch-settings-invalid", {"master_port": "22"}, {}, ""),
    "interface as adapter": ("launch-settings-invalid", {}, {}, "export NCCL_IB_HCA=eth0,eth1"),
    "adapters apart": ("launch-settings-invalid", {}, {}, 'export NCCL_IB_HCA="mlx5_0 mlx5_1"'),
    "device range": ("launch-settings-invalid", {}, {}, "export CUDA_VISIBLE_DEVICES=0-7"),
    "interface by address": ("launch-settings-invalid", {}, {}, "export GLOO_SOCKET_IFNAME=10.1.0.0/16"),
    "allocator": ("launch-settings-invalid", {}, {}, "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:true"),
    "value behind export": ("launch-option-refused", {}, {}, "export NCCL_DEBUG INFO"),
    "adapters with ;": ("launch-option-refused", {}, {}, "export NCCL_IB_HCA=mlx5_0;mlx5_1"),
    "no fi": ("launch-option-refused", {}, {}, 'if [ -d /data ]; then\n  echo "no data"'),
    "micro batch 0": ("launch-settings-contradict", {}, {"micro-batch-size": "0"}, ""),
    "layers in words": ("launch-settings-contradict", {}, {"num-layers": "thirty"}, ""),
    "rates": ("launch-settings-contradict", {}, {"lr": "1e-5", "min-lr": "1e-4"}, ""),
    "option of another launcher": ("launch-option-refused", {"nnodes": None, "num_nodes": "4"}, {}, ""),
    "read under another name": ("launch-variable-misspelt", {"master_addr": "$MASTER_ADR"}, {}, "MASTER_ADDR=n1"),
}  # fmt: skip


def script(style: str, changes: dict[str, str | None], model: dict[str, str], export: str) -> str:
    """A job script of Megatron's kind."""
    launch = {name: value for name, value in {**SOUND, **changes}.items() if value is not None}
    if style == "positional" and "master_addr" not in changes:
        launch["master_addr"] = "$1"
    options = " ".join(f"--{name} {value}" for name, value in launch.items())
    program = "pretrain_gpt.py " + " ".join(f"--{name} {value}" for name, value in {**MODEL, **model}.items())
    lines = {
        "line": f"torchrun {options} {program}",
        "string": f'DISTRIBUTED_ARGS="{options}"\ntorchrun $DISTRIBUTED_ARGS {program}',
        "array": f'DISTRIBUTED_ARGS=({options})\ntorchrun "${{DISTRIBUTED_ARGS[@]}}" {program}',
        "command": f'LAUNCHER="python -m torch.distributed.run {options}"\n$LAUNCHER {program}',
        "command array": f'CMD=(torchrun {options})\n"${{CMD[@]}}" {program}',
        "srun": f'LAUNCHER="torchrun {options}"\nsrun bash -c "$LAUNCHER {program}"',
        "exported": f'export LAUNCHER="torchrun {options}" CMD="{program}"\nsrun bash -c \'$LAUNCHER $CMD\'',
        "positional": f"torchrun {options} {program}",
    }
    return f"#!/bin/bash\n{export}\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n{lines[style]}\n"


def lint(path: Path) -> tuple[int, set[str], dict[str, Any]]:
    """Exit code and the checks with findings."""
    command = [sys.executable, "-m", "doctor", "lint", str(path), "--json"]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(path.parent), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = preloaded.run(
        command, own_server=True, capture_output=True, text=True, env=environ, cwd=path.parent, timeout=100
    )
    report = json.loads(done.stdout)
    return done.returncode, {outcome["check"] for outcome in report["outcomes"] if outcome["findings"]}, report


@pytest.mark.parametrize("style", STYLES)
def test_a_sound_launch_has_no_finding(style: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(script(style, {}, {}, ""))
    code, findings, report = lint(path)
    assert (code in (0, 12), findings) == (True, set()), report


INNOCENT = (
    'NOTE="NPROC = 8"', "[ A = B ] || true", "export NCCL_IB_HCA=mlx5", "export NCCL_IB_HCA==mlx5_0:1,mlx5_1:1",
    "export NCCL_IB_HCA=^mlx5_bond_0", "export NCCL_IB_HCA=rocep1s0f1,roceP2p1s0f1", "export NCCL_IB_HCA=bnxt_re0,ib0",
    "export CUDA_VISIBLE_DEVICES=7,6,5,4,3,2,1,0", "MASTER_ADDRS=n1,n2\necho $MASTER_ADDR $MASTER_ADDRS",
    "if [ -n $FAST ]; then MASTER_ADR=n1; fi\nMASTER_ADDR=n1\necho $MASTER_ADR",
    "MASTER_ADDR=n1\necho ${MASTER_ADR:-n2} $MASTER_ADDR_2", "export NCCL_SOCKET_IFNAME=eth0.100,ib0:4000",
    "export CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "export CUDA_VISIBLE_DEVICES=NoDevFiles",
    "export PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True,roundup_power2_divisions:[256:1,>:8]'",
    "export NCCL_DEBUG NCCL_IB_DISABLE", "R=$(HF_HUB_OFFLINE=1 date)\necho $R", "GPU_1=0\necho $GPU_2",
    "f() {\n  for i in a; do\n    case $i in a|b) echo if ;; (c) ;; esac\n  done\n}\nf",
)  # fmt: skip


@pytest.mark.parametrize("export", INNOCENT)
def test_what_is_meant_as_it_is_has_no_finding(export: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(script("line", {}, {}, export))
    assert lint(path)[1] == set()


@pytest.mark.sample
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_told_in_every_style(name: str, style: str, tmp_path: Path) -> None:
    finds, changes, model, export = PLANTED[name]
    path = tmp_path / "run.sh"
    path.write_text(script(style, changes, model, export))
    code, findings, _ = lint(path)
    assert findings == {finds}
    assert code in (0, 10, 12)
