"""Launch scripts and configurations, sound unless a parameter makes them otherwise."""

from __future__ import annotations

import json
from typing import Any

Options = dict[str, Any]

MEGATRON: Options = {
    "tensor-model-parallel-size": 4,
    "pipeline-model-parallel-size": 2,
    "num-layers": 32,
    "hidden-size": 4096,
    "num-attention-heads": 32,
    "seq-length": 4096,
    "max-position-embeddings": 8192,
    "micro-batch-size": 1,
    "global-batch-size": 64,
    "train-iters": 1000,
    "lr": "1.5e-4",
    "bf16": None,
}


def options_of(changes: Options) -> list[str]:
    """``--name value``; None is a flag, and False leaves the option out."""
    merged = {**MEGATRON, **changes}
    return [
        f"--{name}" + ("" if value is None else f" {value}") for name, value in merged.items() if value is not False
    ]


def megatron(changes: Options | None = None, nodes: object = 2, ranks: object = 8, style: str = "array") -> str:
    """A job script for Megatron-LM or MindSpeed, with its options in an array, in a string, or in the line."""
    options = options_of(changes or {})
    launch = f"torchrun --nproc-per-node {ranks} --nnodes {nodes} --node-rank $NODE_RANK --master-addr $MASTER_ADDR"
    head = "#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    if style == "array":
        listed = "\n".join(f"    {option}" for option in options)
        return f'{head}GPT_ARGS=(\n{listed}\n)\n{launch} pretrain_gpt.py "${{GPT_ARGS[@]}}" --data-path "$DATA"\n'
    if style == "string":
        listed = " \\\n".join(f"    {option}" for option in options)
        return f'{head}GPT_ARGS="\n{listed}\n"\n{launch} pretrain_gpt.py $GPT_ARGS --data-path "$DATA"\n'
    listed = " \\\n".join(f"    {option}" for option in options)
    return f"{head}{launch} \\\n  pretrain_gpt.py \\\n{listed}\n"


def megatron_variables(tensor: int = 2, pipeline: int = 4, nodes: int = 2, ranks: int = 8) -> str:
    """Sizes in variables, the number of ranks computed, and a scheduler's directives."""
    return f"""#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
TP={tensor}
PP={pipeline}
NPUS_PER_NODE={ranks}
NNODES=$SLURM_NNODES
WORLD_SIZE=$(($NPUS_PER_NODE*$NNODES))
DISTRIBUTED_ARGS="--nproc_per_node $NPUS_PER_NODE --nnodes $NNODES"
srun torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \\
    --tensor-model-parallel-size ${{TP}} --pipeline-model-parallel-size ${{PP}} \\
    --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \\
    --micro-batch-size 2 --global-batch-size 32 --fp16
"""


DEEPSPEED: Options = {
    "train_batch_size": 256,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "overlap_comm": True},
}


def deepspeed(changes: Options | None = None) -> str:
    """A configuration of DeepSpeed; None leaves a key out."""
    merged = {**DEEPSPEED, **(changes or {})}
    return json.dumps({name: value for name, value in merged.items() if value is not None}, indent=2)


def deepspeed_run(nodes: int = 2, ranks: int = 8, arguments: str = "", program: str = "train.py") -> str:
    """A script that starts DeepSpeed with a configuration."""
    return (
        "#!/bin/bash\nset -e\n"
        f"deepspeed --num_nodes {nodes} --num_gpus {ranks} --master_port 29600 {program} "
        f"--deepspeed --deepspeed_config ds.json {arguments}\n"
    )


def trainer_run(arguments: str = "", ranks: int = 8, nodes: int = 2) -> str:
    """A script that starts the Trainer of Transformers."""
    return (
        "#!/bin/bash\n"
        f"torchrun --nnodes={nodes} --nproc_per_node={ranks} --rdzv_backend=c10d "
        f"--rdzv_endpoint=head:29400 finetune.py --deepspeed ds.json "
        f"--model_name_or_path /models/base --output_dir out {arguments}\n"
    )


def mindformers(
    *,
    data: object = 2,
    tensor: object = 4,
    pipeline: object = 2,
    context: object = 1,
    micro: object = 4,
    layers: object = 32,
    heads: object = 32,
    groups: object = 8,
    hidden: object = 4096,
    use_parallel: bool = True,
    mode: object = 1,
    execution: int = 0,
    more: str = "",
) -> str:
    """A configuration of MindFormers."""
    return f"""# pre-training
seed: 0
output_dir: './output'
use_parallel: {use_parallel}
run_mode: 'train'
runner_config:
  epochs: 2
  batch_size: 1
  sink_mode: True
context:
  mode: {execution}
  device_target: "Ascend"
parallel:
  parallel_mode: {mode} # 1: semi auto parallel
  gradients_mean: False
  full_batch: True
parallel_config:
  data_parallel: {data}
  model_parallel: {tensor}
  pipeline_stage: {pipeline}
  context_parallel: {context}
  micro_batch_num: {micro}
  use_seq_parallel: True
{more}
model:
  model_config:
    type: LlamaConfig
    num_layers: {layers}
    num_heads: {heads}
    n_kv_heads: {groups}
    hidden_size: {hidden}
    seq_length: 4096
    compute_dtype: "bfloat16"
"""


def msrun(workers: object = 16, local: object = 8, join: str = "--join=True", config: str = "train.yaml") -> str:
    """A script that starts MindFormers with msrun."""
    return (
        "#!/bin/bash\n"
        f"msrun --worker_num={workers} --local_worker_num={local} --master_addr=10.0.0.1 --master_port=8118 "
        f"--node_rank=$NODE_RANK --log_dir=log {join} run_mindformer.py --config {config} --use_parallel True\n"
    )


def msrun_program(workers: int = 8, join: str = "--join=True") -> str:
    """A script that starts a program of the user's with msrun."""
    return f"#!/bin/bash\nmsrun --worker_num={workers} --local_worker_num={workers} {join} train.py\n"


def accelerate(*, ranks: int = 16, machines: int = 2, kind: str = "FSDP", rank: int = 0, more: str = "") -> str:
    """A configuration of Accelerate."""
    return f"""compute_environment: LOCAL_MACHINE
debug: false
distributed_type: {kind}
downcast_bf16: 'no'
machine_rank: {rank}
main_training_function: main
mixed_precision: bf16
num_machines: {machines}
num_processes: {ranks}
rdzv_backend: static
same_network: true
{more}"""


def accelerate_run(options: str = "") -> str:
    """A script that starts Accelerate with its configuration."""
    return f"#!/bin/bash\naccelerate launch --config_file acc.yaml {options} train_llm.py --learning_rate 2e-5\n"


def lightning(devices: object = 8, nodes: object = 2, more: str = "") -> str:
    """A configuration of Lightning, as Hydra reads it."""
    return f"""defaults:
  - _self_
seed: 42
cluster:
  gpus: {devices}
trainer:
  accelerator: gpu
  devices: ${{cluster.gpus}}
  num_nodes: {nodes}
  strategy: ddp
  accumulate_grad_batches: 2
  precision: bf16-mixed
{more}"""


def nemo(tensor: int = 4, pipeline: int = 2, batch: int = 64, heads: int = 32) -> str:
    """A configuration of NeMo."""
    return f"""name: megatron_gpt
trainer:
  devices: 8
  num_nodes: 2
  accelerator: gpu
model:
  micro_batch_size: 2
  global_batch_size: {batch}
  tensor_model_parallel_size: {tensor}
  pipeline_model_parallel_size: {pipeline}
  encoder_seq_length: 2048
  num_layers: 24
  hidden_size: 2048
  num_attention_heads: {heads}
  sequence_parallel: True
"""


def fsdp(shard: int = 8, replicate: int = 2, strategy: str = "HYBRID_SHARD") -> str:
    """A configuration of a program with FSDP."""
    return f"""fsdp:
  sharding_strategy: {strategy}
  sharding_group_size: {shard}
  replica_group_size: {replicate}
  activation_checkpointing: true
"""


def torchrun(nodes: object = 1, ranks: object = 8, program: str = "train.py", before: str = "", after: str = "") -> str:
    """A script that starts a program with torchrun."""
    return f"#!/bin/bash\n{before}\ntorchrun --nnodes={nodes} --nproc-per-node={ranks} {program} {after}\n"
