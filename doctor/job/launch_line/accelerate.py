"""``accelerate launch`` of Hugging Face.

Source: Accelerate, src/accelerate/commands/launch.py
(https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py). What the line does not say
comes from a configuration file, so it is unresolved.
"""

from __future__ import annotations

from collections.abc import Mapping

from doctor.job.launch_line.launcher import Started
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import option_table, split_options
from doctor.job.shell.word import Word

NAMES = ("accelerate", "accelerate-launch")
MODULES = ("accelerate.commands.launch", "accelerate.commands.accelerate_cli")

_TABLE = option_table(
    """
    config-file mixed-precision num-processes num-machines num-cpu-threads-per-process dynamo-backend dynamo-mode
    gpu-ids machine-rank main-process-ip main-process-port t/tee log-dir role rdzv-backend rdzv-conf max-restarts
    monitor-interval vm env main-training-function deepspeed-config-file zero-stage offload-optimizer-device
    offload-param-device offload-optimizer-nvme-path offload-param-nvme-path gradient-accumulation-steps
    gradient-clipping zero3-init-flag zero3-save-16bit-model deepspeed-hostfile deepspeed-exclusion-filter
    deepspeed-inclusion-filter deepspeed-multinode-launcher deepspeed-moe-layer-cls-names fsdp-version
    fsdp-offload-params fsdp-min-num-params fsdp-sharding-strategy fsdp-reshard-after-forward fsdp-auto-wrap-policy
    fsdp-transformer-layer-cls-to-wrap fsdp-backward-prefetch fsdp-backward-prefetch-policy fsdp-state-dict-type
    fsdp-forward-prefetch fsdp-use-orig-params fsdp-cpu-ram-efficient-loading fsdp-sync-module-states
    fsdp-activation-checkpointing megatron-lm-tp-degree megatron-lm-use-custom-fsdp megatron-lm-no-load-optim
    megatron-lm-eod-mask-loss megatron-lm-overlap-cpu-optimizer-d2h-h2d megatron-lm-no-save-optim
    megatron-lm-optimizer-cpu-offload megatron-lm-use-precision-aware-optimizer
    megatron-lm-decoder-last-pipeline-num-layers megatron-lm-pp-degree megatron-lm-num-micro-batches
    megatron-lm-sequence-parallelism megatron-lm-recompute-activations megatron-lm-use-distributed-optimizer
    megatron-lm-gradient-clipping megatron-lm-recompute-granularity megatron-lm-recompute-method
    megatron-lm-recompute-num-layers megatron-lm-attention-backend megatron-lm-expert-model-parallel-size
    megatron-lm-context-parallel-size megatron-lm-attention-dropout megatron-lm-hidden-dropout
    megatron-lm-attention-softmax-in-fp32 megatron-lm-expert-tensor-parallel-size megatron-lm-calculate-per-token-loss
    megatron-lm-use-rotary-position-embeddings fp8-backend fp8-margin fp8-interval fp8-format fp8-amax-history-len
    fp8-amax-compute-algo fp8-override-linear-precision fp8-opt-level fp8-enable-fsdp-float8-all-gather
    fp8-pad-inner-dim aws-access-key-id aws-secret-access-key mpirun-hostfile mpirun-ccl
    parallelism-config-dp-replicate-size parallelism-config-dp-shard-size parallelism-config-tp-size
    parallelism-config-cp-size parallelism-config-cp-backend parallelism-config-cp-comm-strategy
    parallelism-config-sp-size parallelism-config-sp-backend parallelism-config-sp-seq-length
    parallelism-config-sp-seq-length-is-variable parallelism-config-sp-attn-implementation
    """,
    """
    h/help q/quiet cpu multi-gpu tpu ipex enable-cpu-affinity dynamo-use-fullgraph dynamo-use-dynamic
    dynamo-use-regional-compilation use-deepspeed use-fsdp use-parallelism-config use-megatron-lm use-xpu same-network
    m/module no-python tpu-cluster no-tpu-cluster tpu-use-sudo downcast-bf16 fp8-use-autocast-during-eval debug
    """,
    abbreviates=False,
)


def read(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> Started:
    """See `doctor.job.launch_line.launcher.ReadCall`."""
    options = split_options(command, argv, _TABLE)
    ranks = options.number("num-processes", least=1)
    nodes = options.number("num-machines", least=1)
    if ranks is None and "num-processes" not in options.unresolved:
        options.unresolved["num-processes"] = "from Accelerate's configuration file or the devices"
    if nodes is None and "num-machines" not in options.unresolved:
        options.unresolved["num-machines"] = "from Accelerate's configuration file"
    per_node = ranks // nodes if ranks and nodes and ranks % nodes == 0 else None
    call = LaunchCall(
        launcher="accelerate",
        command=command,
        nodes=nodes,
        max_nodes=nodes,
        ranks=ranks,
        ranks_per_node=per_node,
        node_rank=options.number("machine-rank"),
        master_addr=options.text("main-process-ip"),
        master_port=options.number("main-process-port", most=65535),
        rdzv_backend=options.text("rdzv-backend"),
        hostfile=options.text("deepspeed-hostfile"),
        options=options.as_texts(),
        unresolved=options.unresolved,
        problems=tuple(options.problems),
    )
    return Started(call, options.rest, "no-python" not in options, "module" in options)
