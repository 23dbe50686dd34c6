"""Configurations of programs that bring a launcher: LLaMA-Factory, axolotl, torchtune, torchtitan, InternEvo."""

from __future__ import annotations

from collections.abc import Mapping


def yaml(**settings: object) -> str:
    """Keys of the top level; None leaves a key out."""
    lines = [f"{name}: {str(value).lower() if isinstance(value, bool) else value}" for name, value in settings.items()]
    return "\n".join(lines) + "\n"


def llama_factory(**changes: object) -> str:
    """examples/train_lora/llama3_lora_sft_ds3.yaml."""
    settings: dict[str, object] = {
        "model_name_or_path": "meta-llama/Meta-Llama-3-8B-Instruct",
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "deepspeed": "ds.json",
        "cutoff_len": 2048,
        "output_dir": "saves/llama3-8b/lora/sft",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "bf16": True,
    }
    return yaml(**{name: value for name, value in {**settings, **changes}.items() if value is not None})


def axolotl(**changes: object) -> str:
    """examples/distributed-parallel/llama-3_1-8b-hsdp-tp.yaml."""
    settings: dict[str, object] = {
        "base_model": "meta-llama/Llama-3.1-8B",
        "dp_shard_size": 4,
        "dp_replicate_size": 2,
        "tensor_parallel_size": 2,
        "sequence_len": 8192,
        "gradient_accumulation_steps": 1,
        "micro_batch_size": 1,
        "bf16": True,
        "fsdp_config": "{fsdp_version: 2, reshard_after_forward: true}",
    }
    return yaml(**{name: value for name, value in {**settings, **changes}.items() if value is not None})


def torchtune(**changes: object) -> str:
    """recipes/configs/llama4/scout_17B_16E_full.yaml."""
    settings: dict[str, object] = {
        "tensor_parallel_dim": 2,
        "data_parallel_shard_dim": -1,
        "data_parallel_replicate_dim": 1,
        "model": "{_component_: torchtune.models.llama4.llama4_scout_17b_16e}",
        "batch_size": 1,
        "gradient_accumulation_steps": 1,
        "dtype": "bf16",
    }
    return yaml(**{name: value for name, value in {**settings, **changes}.items() if value is not None})


def torchtitan(shard: int = -1, tensor: int = 8, pipeline: int = 1) -> str:
    """torchtitan/models/llama3/train_configs/llama3_70b.toml."""
    return f"""[model]
name = "llama3"
flavor = "70B"

[training]
local_batch_size = 8
seq_len = 8192

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = {shard}
tensor_parallel_degree = {tensor} # 8-way TP
pipeline_parallel_degree = {pipeline}
context_parallel_degree = 1
"""


def internevo(
    tensor: str = 'dict(size=2, mode="isp")', weight: str = "dict(size=4, overlap=True)", more: str = ""
) -> str:
    """configs/7B_isp_sft.py."""
    return f"""JOB_NAME = "7b_train"
NUM_LAYER = 32
VOCAB_SIZE = 103168
data = dict(seq_len=2048, micro_num=4, micro_bsz=2, total_steps=5000)
model = dict(num_attention_heads=32, hidden_size=4096, num_layers=NUM_LAYER, num_chunks=1, dtype="torch.bfloat16")
{more}
parallel = dict(
    zero1=dict(size=-1),
    tensor={tensor},
    pipeline=dict(size=1, interleaved_overlap=True),
    weight={weight},
)
"""


def launch(program: str, ranks: int = 8, nodes: int = 1) -> str:
    """A job script with one torchrun."""
    return f"#!/bin/bash\ntorchrun --nnodes {nodes} --nproc-per-node {ranks} {program}\n"


SIXTEEN: Mapping[str, int] = {"nodes": 2, "ranks_per_node": 8}
