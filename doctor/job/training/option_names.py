"""Which option or key of a framework is which setting.

The settings, by name: ``tensor``, ``pipeline``, ``context``, ``expert``, ``expert_tensor``, ``data``, ``replicate``,
``shard`` are sizes of groups of ranks; ``layers``, ``hidden``, ``heads``, ``groups``, ``experts``, ``vocabulary`` and
``sequence`` are the model's; ``micro_batch``, ``batch`` and ``accumulation`` the batch's; ``timeout_minutes`` and
``timeout_seconds`` the process group's.

Sources: Megatron-LM, megatron/training/arguments.py; DeepSpeed, deepspeed/runtime/constants.py; Transformers,
training_args.py; MindFormers, "Configuration File Descriptions"; Accelerate, commands/config; Lightning, Trainer;
NeMo, examples of megatron_gpt_config.yaml; llama-recipes, configs/fsdp.py; LLaMA-Factory,
src/llamafactory/hparams and src/llamafactory/v1/config; axolotl, src/axolotl/utils/schemas; torchtune,
recipes/configs; torchtitan, config/job_config.py; InternEvo, configs/7B_sft.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from doctor.engine.sanitize import printable
from doctor.job.launch_line.model import LaunchLine, OptionProblem
from doctor.job.launch_line.options import is_misspelt

MEGATRON = {
    "tensor-model-parallel-size": "tensor",
    "pipeline-model-parallel-size": "pipeline",
    "context-parallel-size": "context",
    "expert-model-parallel-size": "expert",
    "expert-tensor-parallel-size": "expert_tensor",
    "num-layers": "layers",
    "hidden-size": "hidden",
    "num-attention-heads": "heads",
    "num-query-groups": "groups",
    "kv-channels": "head_size",
    "num-experts": "experts",
    "seq-length": "sequence",
    "max-position-embeddings": "positions",
    "micro-batch-size": "micro_batch",
    "global-batch-size": "batch",
    "num-layers-per-virtual-pipeline-stage": "virtual_layers",
    "num-virtual-stages-per-pipeline-rank": "virtual_stages",
    "pipeline-model-parallel-layout": "uneven_layers",
    "decoder-first-pipeline-num-layers": "uneven_layers",
    "decoder-last-pipeline-num-layers": "uneven_layers",
    "num-layer-list": "uneven_layers",
    "noop-layers": "uneven_layers",
    "rampup-batch-size": "ramp",
    "hybrid-override-pattern": "uneven_layers",
    "hybrid-layer-pattern": "uneven_layers",
    "encoder-num-layers": "uneven_layers",
    "context-parallel-algo": "context_algorithm",
    "cp-comm-type": "context_algorithm",
    "yaml-cfg": "elsewhere",
    "lr": "learning_rate",
    "distributed-timeout-minutes": "timeout_minutes",
    "ckpt-format": "checkpoint_format",
    "data-parallel-sharding-strategy": "data_sharding",
    "num-distributed-optimizer-instances": "optimizer_copies",
}
"""Options with one value."""

MEGATRON_FLAGS = {
    "sequence-parallel": "sequence_parallel",
    "group-query-attention": "grouped",
    "bf16": "bf16",
    "fp16": "fp16",
    "account-for-embedding-in-pipeline-split": "extra_layers",
    "account-for-loss-in-pipeline-split": "extra_layers",
    "use-torch-fsdp2": "fsdp2",
    "use-megatron-fsdp": "megatron_fsdp",
    "use-megatron-fsdp-v2": "megatron_fsdp",
    "use-distributed-optimizer": "distributed_optimizer",
    "multi-latent-attention": "latent",
    "moe-tp-extend-ep": "extended_experts",
}

MEGATRON_SWITCHES = MEGATRON_FLAGS.keys() - {"bf16", "fp16"}
"""Without a value in every framework: Transformers also takes ``--bf16 True``."""

MEGATRON_MARKS = frozenset(
    ("tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size", "num-attention-heads")
)
"""An argument of a program that only Megatron-LM and what is built on it have."""

TRANSFORMERS = {
    "per-device-train-batch-size": "micro_batch",
    "gradient-accumulation-steps": "accumulation",
    "bf16": "bf16",
    "fp16": "fp16",
    "deepspeed": "deepspeed",
    "learning-rate": "learning_rate",
    "ddp-timeout": "timeout_seconds",
}

DEEPSPEED = {
    "train_batch_size": "batch",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "fp16.enabled": "fp16",
    "bf16.enabled": "bf16",
    "bfloat16.enabled": "bf16",
    "zero_optimization.stage": "zero_stage",
    "zero_optimization.mics_shard_size": "mics",
    "zero_optimization.zero_hpz_partition_size": "hpz",
    "elasticity.enabled": "elastic",
    "sequence_parallel_size": "context",
    "tensor_parallel.autotp_size": "tensor",
}

MINDFORMERS = {
    "parallel_config.data_parallel": "data",
    "parallel_config.model_parallel": "tensor",
    "parallel_config.pipeline_stage": "pipeline",
    "parallel_config.context_parallel": "context",
    "parallel_config.expert_parallel": "expert",
    "parallel_config.micro_batch_num": "micro_batches",
    "parallel_config.use_seq_parallel": "sequence_parallel",
    "model.model_config.num_layers": "layers",
    "model.model_config.hidden_size": "hidden",
    "model.model_config.num_heads": "heads",
    "model.model_config.n_kv_heads": "groups",
    "model.model_config.seq_length": "sequence",
    "model.model_config.compute_dtype": "dtype",
    "model.model_config.offset": "uneven_layers",
    "moe_config.expert_num": "experts",
    "runner_config.batch_size": "micro_batch",
    "runner_config.gradient_accumulation_steps": "accumulation",
    "parallel.parallel_mode": "parallel_mode",
    "parallel.gradients_mean": "gradients_mean",
    "parallel.full_batch": "full_batch",
    "parallel.parameter_broadcast": "broadcast",
    "context.mode": "mode",
    "use_parallel": "use_parallel",
    "run_mode": "run_mode",
    "seed": "seed",
}

ACCELERATE = {
    "num_processes": "ranks",
    "num_machines": "machines",
    "machine_rank": "machine_rank",
    "main_process_ip": "main_address",
    "mixed_precision": "precision",
    "distributed_type": "distributed_type",
    "gradient_accumulation_steps": "accumulation",
    "fsdp_config.fsdp_sharding_strategy": "sharding",
    "megatron_lm_config.megatron_lm_tp_degree": "tensor",
    "megatron_lm_config.megatron_lm_pp_degree": "pipeline",
    "parallelism_config.parallelism_config_dp_replicate_size": "replicate",
    "parallelism_config.parallelism_config_dp_shard_size": "shard",
    "parallelism_config.parallelism_config_tp_size": "tensor",
    "parallelism_config.parallelism_config_cp_size": "context",
    "parallelism_config.parallelism_config_sp_size": "sequence_size",
}

VERL = {
    "trainer.n_gpus_per_node": "devices",
    "trainer.nnodes": "machines",
    "data.train_batch_size": "batch",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "mini_batch",
    "actor_rollout_ref.actor.ppo_micro_batch_size": "micro_batch",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "micro_per_rank",
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size": "ulysses",
    "actor_rollout_ref.actor.strategy": "strategy",
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size": "megatron",
    "actor_rollout_ref.rollout.n": "responses",
    "config-name": "recipe",
    "actor_rollout_ref.actor.use_dynamic_bsz": "dynamic",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "tensor",
}
"""Hydra's overrides of verl."""


def misspelt_overrides(line: LaunchLine) -> Iterator[OptionProblem]:
    """Overrides of verl by a key that is another one, misspelt: Hydra ends at a key that the configuration has not."""
    if not (line.is_module and line.program.startswith("verl.")):
        return
    for word in line.arguments:
        key, equals, value = word.partition("=")
        meant = [name for name in VERL if is_misspelt(key, name)] if equals and key not in VERL else []
        if len(meant) == 1:
            yield OptionProblem(line.program, printable(key, 80), printable(value, 80), meant[0])


LIGHTNING = {
    "trainer.devices": "devices",
    "trainer.num_nodes": "machines",
    "trainer.accumulate_grad_batches": "accumulation",
    "trainer.strategy": "strategy",
    "trainer.precision": "precision",
}

NEMO = {
    **LIGHTNING,
    "model.tensor_model_parallel_size": "tensor",
    "model.pipeline_model_parallel_size": "pipeline",
    "model.context_parallel_size": "context",
    "model.expert_model_parallel_size": "expert",
    "model.virtual_pipeline_model_parallel_size": "virtual_stages",
    "model.micro_batch_size": "micro_batch",
    "model.global_batch_size": "batch",
    "model.rampup_batch_size": "ramp",
    "model.num_layers": "layers",
    "model.hidden_size": "hidden",
    "model.num_attention_heads": "heads",
    "model.num_query_groups": "groups",
    "model.encoder_seq_length": "sequence",
    "model.sequence_parallel": "sequence_parallel",
    "model.num_moe_experts": "experts",
}

FSDP = {
    "sharding_strategy": "sharding",
    "fsdp_sharding_strategy": "sharding",
    "sharding_group_size": "shard",
    "replica_group_size": "replicate",
    "dp_replicate": "replicate",
    "dp_shard": "shard",
    "dp_replicate_degree": "replicate",
    "dp_shard_degree": "shard",
    "data_parallel_replicate_degree": "replicate",
    "data_parallel_shard_degree": "shard",
    "tensor_parallel_degree": "tensor",
    "pipeline_parallel_degree": "pipeline",
    "context_parallel_degree": "context",
}
"""By the last key of a path."""

TRAINER = {
    "per_device_train_batch_size": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "bf16": "bf16",
    "fp16": "fp16",
    "deepspeed": "deepspeed",
    "learning_rate": "learning_rate",
    "quantization_bit": "quantization",
    "finetuning_type": "finetuning",
    "streaming": "streaming",
    "max_steps": "max_steps",
    "ddp_timeout": "timeout_seconds",
}
"""Of Transformers' Trainer in a file: that of LLaMA-Factory, or of any program with HfArgumentParser."""

LLAMA_FACTORY_V1 = {
    "micro_batch_size": "micro_batch",
    "global_batch_size": "batch",
    "bf16": "bf16",
    "learning_rate": "learning_rate",
    "max_steps": "max_steps",
    "cp_size": "context",
    "cp_mode": "context_mode",
    "dp_size": "data",
    "mp_replicate_size": "replicate",
    "mp_shard_size": "shard",
    "dist_timeout": "timeout_seconds",
    "flash_attn": "attention",
    "dist_config.name": "backend",
    "dist_config.config_file": "deepspeed",
    "dist_config.ep_size": "expert",
    "dist_config.cp_size": "context",
    "dist_config.dp_size": "data",
    "dist_config.mp_replicate_size": "replicate",
    "dist_config.mp_shard_size": "shard",
    "dist_config.timeout": "timeout_seconds",
}
"""Of the trainer that USE_V1 switches on; its earlier releases had the sizes in ``dist_config``."""

AXOLOTL = {
    "micro_batch_size": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "bf16": "bf16",
    "fp16": "fp16",
    "deepspeed": "deepspeed",
    "fsdp.0": "fsdp",
    "tensor_parallel_size": "tensor",
    "context_parallel_size": "context",
    "sequence_parallel_degree": "context",
    "expert_parallel_size": "expert",
    "dp_shard_size": "shard",
    "dp_replicate_size": "replicate",
    "learning_rate": "learning_rate",
    "ddp_timeout": "timeout_seconds",
}

TORCHTUNE = {
    "batch_size": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "tensor_parallel_dim": "tensor",
    "context_parallel_dim": "context",
    "data_parallel_shard_dim": "shard",
    "data_parallel_replicate_dim": "replicate",
    "dtype": "dtype",
}

TORCHTITAN = {
    "parallelism.data_parallel_replicate_degree": "replicate",
    "parallelism.data_parallel_shard_degree": "shard",
    "parallelism.tensor_parallel_degree": "tensor",
    "parallelism.pipeline_parallel_degree": "pipeline",
    "parallelism.context_parallel_degree": "context",
    "comm.train_timeout_seconds": "timeout_seconds",
}

INTERNEVO = {
    "parallel.tensor": "tensor",
    "parallel.tensor.size": "tensor",
    "parallel.tensor.mode": "tensor_mode",
    "parallel.pipeline": "pipeline",
    "parallel.pipeline.size": "pipeline",
    "parallel.pipeline.interleaved_overlap": "overlap",
    "parallel.weight": "weight",
    "parallel.weight.size": "weight",
    "parallel.zero1.fsdp": "fsdp",
    "model.num_chunks": "virtual_stages",
    "model.num_layers": "layers",
    "model.hidden_size": "hidden",
    "model.num_attention_heads": "heads",
    "data.micro_bsz": "micro_batch",
    "data.micro_num": "micro_batches",
    "data.gradient_accumulation": "accumulation",
}
