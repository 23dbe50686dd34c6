"""The mutation suite: launches and configurations of the documented forms, and one thing wrong in each second one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.lint import configurations as c
from tests.lint import programs as p
from tests.lint import recipes as r


@dataclass(frozen=True)
class Case:
    """Files, the one that is named, and the check that finds something: exactly it."""

    name: str
    files: Mapping[str, str]
    finds: str = ""
    """Empty: sound."""
    named: tuple[str, ...] = ("run.sh",)
    product: str = "A2"
    command: str = ""
    place: str = ""
    """What the finding gives as its place, where the case is about that."""
    undecided: bool = False
    """Something is not decided, and nothing is found."""
    counts: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


RANKS, CONTRADICT, MODEL = "launch-ranks-not-divisible", "launch-ranks-contradict", "launch-model-not-divisible"
BATCH, SPAN, A1 = "launch-batch-not-divisible", "launch-tensor-group-spans-hosts", "launch-npu-count-refused"
MODE, SUMMED, BROADCAST = "launch-parallel-mode-refused", "launch-gradients-summed", "launch-parameters-not-broadcast"
SHARDED, EPOCH, LOCAL = "launch-data-not-sharded", "launch-epoch-not-set", "launch-rank-is-local"
DEVICE, JOIN, TYPE = "launch-device-not-chosen", "launch-workers-not-joined", "launch-type-not-reduced"
SCALE, SETTINGS = "launch-scale-outdated", "launch-settings-contradict"
TIMEOUT = "launch-group-timeout-disordered"


def megatron(
    name: str, finds: str = "", nodes: object = 2, ranks: object = 8, style: str = "array", **changes: object
) -> Case:
    options = {key.replace("_", "-"): value for key, value in changes.items()}
    return Case(f"megatron: {name}", {"run.sh": c.megatron(options, nodes, ranks, style)}, finds)


MEGATRON = [
    megatron("3D parallel, options in an array"),
    megatron("options in a string", style="string"),
    megatron("a sequence beyond its positions", SETTINGS, seq_length=4096, max_position_embeddings=2048),
    megatron("options in the line", style="line"),
    megatron("one host", nodes=1, pipeline_model_parallel_size=1),
    megatron("query groups", group_query_attention=None, num_query_groups=8),
    megatron("query groups without the switch", num_query_groups=3),
    megatron("sequence parallel", sequence_parallel=None),
    megatron("context parallel", context_parallel_size=2, global_batch_size=32),
    megatron("Ulysses of MindSpeed", context_parallel_size=2, context_parallel_algo="ulysses_cp_algo", seq_length=4098),
    megatron("experts", num_experts=8, expert_model_parallel_size=2),
    megatron("experts with their own tensor size", num_experts=8, expert_model_parallel_size=8, expert_tensor_parallel_size=1),
    megatron("interleaved schedule", num_layers_per_virtual_pipeline_stage=4, tensor_model_parallel_size=2, pipeline_model_parallel_size=4),
    megatron("uneven first stage", num_layers=31, decoder_first_pipeline_num_layers=15),
    megatron("a batch that grows", global_batch_size=63, rampup_batch_size="16 16 1000"),
    megatron("three hosts", nodes=3, global_batch_size=96),
    megatron("heads of their own size", hidden_size=3000, kv_channels=128),
    megatron("heads and sequence of MindSpeed's uneven linear layers", unaligned_linear=None, sequence_parallel=None, seq_length=4098, num_attention_heads=30, hidden_size=3840),
    megatron("31 layers with uneven linear layers", MODEL, unaligned_linear=None, num_layers=31, sequence_parallel=None),
    Case("megatron: sizes in variables", {"run.sh": c.megatron_variables()}),
    megatron("tensor size 3", RANKS, tensor_model_parallel_size=3, num_attention_heads=33, hidden_size=4224),
    megatron("pipeline of 5", RANKS, pipeline_model_parallel_size=5, num_layers=30),
    megatron("context of 3", RANKS, context_parallel_size=3, seq_length=4098),
    megatron("too few ranks", RANKS, nodes=1, ranks=6, style="string"),
    megatron("experts in groups of 3", RANKS, num_experts=9, expert_model_parallel_size=3),
    megatron("experts with tensor size 1 in groups of 16", RANKS, num_experts=16, expert_model_parallel_size=16, expert_tensor_parallel_size=1),
    megatron("30 heads", MODEL, num_attention_heads=30, hidden_size=3840),
    megatron("6 query groups", MODEL, group_query_attention=None, num_query_groups=6),
    megatron("31 layers", MODEL, num_layers=31),
    megatron("hidden size 4100", MODEL, hidden_size=4100),
    megatron("7 experts", MODEL, num_experts=7, expert_model_parallel_size=2),
    megatron("sequence of 4098", MODEL, sequence_parallel=None, seq_length=4098),
    megatron("sequence of 4098 in context parallelism", MODEL, context_parallel_size=2, seq_length=4098, global_batch_size=32),
    megatron("3 layers of a virtual stage", MODEL, num_layers_per_virtual_pipeline_stage=3),
    megatron("batch of 63", BATCH, global_batch_size=63, style="line"),
    megatron("micro batch of 3", BATCH, micro_batch_size=3),
    megatron("from two hosts to three", BATCH, nodes=3),
    megatron("interleaved with too few micro batches", BATCH, global_batch_size=4, num_layers_per_virtual_pipeline_stage=4, tensor_model_parallel_size=2, pipeline_model_parallel_size=4),
    megatron("fp16 and bf16", SETTINGS, fp16=None),
    megatron("a word for a number", SETTINGS, seed="none4"),
    megatron("a schedule misspelt", SETTINGS, lr_decay_style="cosin"),
    megatron("an option misspelt", SETTINGS, save_intervall=500),
    megatron("options of a program's own beside it", data_cache_path="/d", save_retain_interval=500),
    megatron("interleaved without a pipeline", SETTINGS, pipeline_model_parallel_size=1, num_layers_per_virtual_pipeline_stage=4),
    megatron("tensor size 16", SPAN, tensor_model_parallel_size=16, pipeline_model_parallel_size=1),
    Case("megatron: pipeline of 3 in variables", {"run.sh": c.megatron_variables(pipeline=3)}, RANKS),
    Case("megatron: bf16 on A1", {"run.sh": c.megatron()}, TYPE, product="A1"),
    Case("megatron: fp16 on A1", {"run.sh": c.megatron({"bf16": False, "fp16": None})}, product="A1"),
    Case("megatron: 6 NPUs on A1", {"run.sh": c.megatron({"tensor-model-parallel-size": 2, "global-batch-size": 60, "bf16": False}, ranks=6)}, A1, product="A1"),
    Case("megatron: hosts from the scheduler", {"run.sh": c.megatron(nodes="$NNODES")}, undecided=True),
    Case("megatron: hosts from an option", {"run.sh": c.megatron(nodes="$NNODES")}, counts={"nodes": 2}),
    Case("megatron: options that nobody sees", {"run.sh": c.megatron({}, style="line").replace("--bf16", '"$@"')}, undecided=True),
    Case("megatron: on the command line", {}, named=(), command="torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --num-attention-heads 64 --micro-batch-size 1"),
    Case("megatron: wrong on the command line", {}, MODEL, named=(), command="torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --num-attention-heads 60 --micro-batch-size 1", place="command line"),
]  # fmt: skip


def deepspeed(
    name: str, finds: str = "", program: str = "", *, undecided: bool = False, nodes: int = 2, **changes: object
) -> Case:
    files = {
        "run.sh": c.deepspeed_run(nodes),
        "ds.json": c.deepspeed(dict(changes)),
        "train.py": program or p.deepspeed_program(),
    }
    return Case(f"deepspeed: {name}", files, finds, undecided=undecided)


def slots(count: int) -> dict[str, str]:
    """A launch of 8 GPUs on two hosts with so many slots."""
    run = c.deepspeed_run().replace("deepspeed --num", "deepspeed --hostfile hosts.txt --num", 1)
    hosts = f"# ours\nn1 slots=8\nn2 slots={count}\n"
    return {"run.sh": run, "hosts.txt": hosts, "ds.json": c.deepspeed(), "train.py": p.deepspeed_program()}


TRAINER = "--per_device_train_batch_size 4 --gradient_accumulation_steps 4 --bf16 True"
AUTO = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
BY_SLOTS = {
    "run.sh": "deepspeed --hostfile hosts.txt{} train.py --deepspeed_config ds.json\n", "ds.json": c.deepspeed(),
    "train.py": p.deepspeed_program(),
}  # fmt: skip


def by_slots(name: str, hosts: str, finds: str = "", options: str = "", *, undecided: bool = False) -> Case:
    """A launch whose hostfile alone says how many ranks there are."""
    files = {**BY_SLOTS, "run.sh": BY_SLOTS["run.sh"].format(options), "hosts.txt": hosts}
    return Case(f"deepspeed: {name}", files, finds, undecided=undecided)


DEEPSPEED = [
    by_slots("ranks of the hostfile", "# ours\n\nn1 slots=8\nn2 slots=8 # old\n"),
    by_slots("ranks of the hostfile that do not give the batch", "n1 slots=12\nn2 slots=12\n", BATCH),
    by_slots("an entry without slots", "n1 slots=8\nn2 slot=8\n", CONTRADICT, undecided=True),
    by_slots("a host twice", "n1 slots=8\nn1 slots=8\n", CONTRADICT, undecided=True),
    by_slots("a host that is not in the hostfile", "n1 slots=8\nn2 slots=8\n", CONTRADICT, " --include n3@n1", undecided=True),
    by_slots("a host without slots, excluded", "n1 slots=8\nn2 slots=8\n", CONTRADICT, " --exclude n3", undecided=True),
    *(
        Case(f"colossalai: {name}", {"run.sh": f"colossalai run --nproc_per_node 8 --hostfile h {options} t.py\n", "h": hosts}, finds)
        for name, hosts, options, finds in (
            ("a host that is not in the hostfile", "n1\nn2\n", "--include n1,n9", CONTRADICT),
            ("no such host to leave out", "n1\nn2\n", "--exclude n9", CONTRADICT),
            ("a host twice", "n1\nn1\n", "", CONTRADICT),
            ("hosts of the hostfile", "n1\n\nn2\n", "--include n2,n1", ""),
            ("hosts but one", "n1\nn2\n", "--exclude n2", ""),
        )
    ),
    by_slots("hosts of the hostfile", "n1 slots=8\nn2 slots=8\nn3 slots=9\n", "", " --include n1@n2", undecided=True),
    by_slots("hosts without one", "n1 slots=8\nn2 slots=8\nn3 slots=8\n", "", " --exclude n3", undecided=True),
    deepspeed("all three sizes"),
    deepspeed("two sizes", gradient_accumulation_steps=None),
    deepspeed("batch alone", train_micro_batch_size_per_gpu=None, gradient_accumulation_steps=None),
    deepspeed("micro batch alone", train_batch_size=None),
    deepspeed("one host", nodes=1, gradient_accumulation_steps=8),
    deepspeed("ZeRO 3", zero_optimization={"stage": 3, "stage3_max_live_parameters": 1e9}),
    deepspeed("parameters in groups", zero_optimization={"stage": 3, "zero_hpz_partition_size": 8}),
    deepspeed("elastic", elasticity={"enabled": True, "max_train_batch_size": 2000}, train_batch_size=77),
    deepspeed("fp16 on, bf16 off", bf16={"enabled": False}, fp16={"enabled": True, "loss_scale": 0}),
    deepspeed("a pipeline that divides the ranks", "", p.deepspeed_program("model = PipelineModule(layers, num_stages=4)", "from deepspeed.pipe import PipelineModule"), undecided=True, train_batch_size=64),
    Case("transformers: derived sizes", {"run.sh": c.trainer_run(TRAINER), "ds.json": c.deepspeed(AUTO)}),
    Case("transformers: the same sizes", {"run.sh": c.trainer_run(TRAINER), "ds.json": c.deepspeed()}),
    Case("deepspeed: configuration alone", {"ds.json": c.deepspeed()}, named=("ds.json",)),
    deepspeed("batch of 250", BATCH, train_batch_size=250),
    deepspeed("accumulation of 2", BATCH, gradient_accumulation_steps=2),
    deepspeed("from two hosts to one", BATCH, nodes=1),
    deepspeed("batch alone, not divisible", BATCH, train_batch_size=100, train_micro_batch_size_per_gpu=None, gradient_accumulation_steps=None),
    deepspeed("two sizes, not divisible", BATCH, gradient_accumulation_steps=None, train_batch_size=200),
    deepspeed("a pipeline, and no number of ranks fits", BATCH, p.deepspeed_program("model = PipelineModule(layers, num_stages=4)", "from deepspeed.pipe import PipelineModule"), train_batch_size=250),
    deepspeed("fp16 and bf16", SETTINGS, fp16={"enabled": True}),
    deepspeed("stage 4", SETTINGS, zero_optimization={"stage": 4}),
    deepspeed("parameters in groups of 5", RANKS, zero_optimization={"stage": 3, "zero_hpz_partition_size": 5}),
    deepspeed("a word for a size", SETTINGS, train_micro_batch_size_per_gpu="eight", undecided=True),
    deepspeed("a size in quotes", SETTINGS, train_micro_batch_size_per_gpu="4", undecided=True),
    deepspeed("a word for true", SETTINGS, zero_optimization={"stage": 2, "overlap_comm": "ture"}),
    deepspeed("a device in capitals", SETTINGS, zero_optimization={"stage": 2, "offload_optimizer": {"device": "CPU"}}),
    deepspeed("a key misspelt in a section", SETTINGS, zero_optimization={"stage": 2, "overlap_com": True}),
    deepspeed("a key misspelt", SETTINGS, gradient_cliping=1.0),
    deepspeed("keys that it has beside these", zero_optimization={"stage": 3, "stage3_max_live_parameters": 1e9}, prescale_gradients=False),
    deepspeed("words that it takes", zero_optimization={"stage": "2", "overlap_comm": "yes", "reduce_bucket_size": 5e8}),
    Case("deepspeed: a key twice", {"ds.json": '{"train_micro_batch_size_per_gpu": 4,\n "zero_optimization": {"stage": 1},\n "zero_optimization": {"stage": 2}}'}, SETTINGS, named=("ds.json",), place="ds.json:3"),
    Case("transformers: micro batches differ", {"run.sh": c.trainer_run(TRAINER.replace("size 4", "size 8")), "ds.json": c.deepspeed()}, BATCH),
    Case("transformers: micro batches differ, and a loop of its own that does not compare them", {"run.sh": c.trainer_run(TRAINER.replace("size 4", "size 8")), "ds.json": c.deepspeed(), "finetune.py": "import deepspeed\nfrom transformers import HfArgumentParser\n"}),
    Case("transformers: accumulation differs", {"run.sh": c.trainer_run(TRAINER.replace("steps 4", "steps 1")), "ds.json": c.deepspeed({"train_batch_size": "auto"})}, BATCH, place="ds.json:4"),
    *(
        Case(f"transformers: {words}", {"run.sh": c.trainer_run(f"{TRAINER} {words}"), "ds.json": c.deepspeed(AUTO)}, finds)
        for words, finds in (
            *(("--weight_decay 0,1", SETTINGS), ("--lr_scheduler_type cosinus", SETTINGS), ("--save_strategy step", SETTINGS)),
            *(("--max_steps 1e5", SETTINGS), ("--num_train_epochs 3epochs", SETTINGS), ("--tf32 ture", SETTINGS)),
            *(("--learnin_rate 1e-5", SETTINGS), ("--num_train_epoch 3 --warmup_stable_steps 3", "")),
            *(("--max_steps 1_000 --logging_steps 0.5 --tf32 YES", ""), ("--lr_scheduler_type my_own --seed SEED", "")),
        )
    ),
    Case("transformers: fp16 and bf16", {"run.sh": c.trainer_run(TRAINER + " --fp16 True"), "ds.json": c.deepspeed(AUTO)}, SETTINGS),
    Case("deepspeed: as many GPUs as slots", {**slots(8)}),
    Case("deepspeed: more GPUs than slots", {**slots(4)}, CONTRADICT),
    Case("deepspeed: a configuration that is not here", {"run.sh": c.deepspeed_run(), "train.py": p.deepspeed_program()}, undecided=True),
]  # fmt: skip


def mindformers(
    name: str,
    finds: str = "",
    workers: int = 16,
    local: int = 8,
    product: str = "A2",
    join: str = "--join=True",
    **changes: Any,
) -> Case:
    files = {"run.sh": c.msrun(workers, local, join), "train.yaml": c.mindformers(**changes)}
    return Case(f"mindformers: {name}", files, finds, product=product)


MINDFORMERS = [
    mindformers("3D parallel"),
    mindformers("one host", workers=8, data=1),
    mindformers("context parallel", data=1, context=2),
    mindformers("data parallel mode", mode=0, data=16, tensor=1, pipeline=1),
    mindformers("more stages than micro batches, without a pipeline", data=4, pipeline=1, micro=1),
    mindformers("layers that are not divided evenly", layers=33),
    mindformers("recomputation and experts", more="recompute_config:\n  recompute: True\nmoe_config:\n  expert_num: 8"),
    mindformers("merged section", more="common: &common\n  warmup: 100\nlr_schedule:\n  <<: *common\n  type: CosineWithWarmUpLR"),
    Case("mindformers: one NPU", {"run.sh": "python run_mindformer.py --config train.yaml --use_parallel False\n", "train.yaml": c.mindformers()}),
    mindformers("product of 8 on 16", RANKS, data=1),
    mindformers("product of 32 on 16", RANKS, data=4),
    mindformers("context forgotten in the product", RANKS, context=2),
    mindformers("12 workers on three hosts", RANKS, workers=12, local=4),
    mindformers("30 heads", MODEL, heads=30, hidden=3840, groups="null"),
    mindformers("hidden size 4100", MODEL, hidden=4100),
    mindformers("6 groups", MODEL, groups=6),
    mindformers("fewer layers than stages", MODEL, data=1, pipeline=4, layers=3),
    mindformers("one micro batch in a pipeline", BATCH, micro=1),
    mindformers("workers that nobody starts", CONTRADICT, workers=16, local=12, data=16, tensor=1, pipeline=1),
    mindformers("6 NPUs of each host on A1", A1, workers=12, local=6, product="A1", data=3, tensor=2),
    mindformers("PyNative, semi auto parallel", MODE, execution=1),
    mindformers("PyNative, data parallel", execution=1, mode=0, data=16, tensor=1, pipeline=1),
    mindformers("not joined", JOIN, join=""),
    mindformers("joined is False", JOIN, join="--join=False"),
    mindformers("model parallel over hosts", SPAN, data=1, tensor=16, pipeline=1),
]  # fmt: skip


def accelerate(name: str, finds: str = "", options: str = "", **changes: Any) -> Case:
    files = {"run.sh": c.accelerate_run(options), "acc.yaml": c.accelerate(**changes)}
    return Case(f"accelerate: {name}", files, finds)


FSDP1 = "fsdp_config:\n  fsdp_version: 1\n  fsdp_sharding_strategy: {}\n  fsdp_use_orig_params: true\n"
SIZES = "parallelism_config:\n  parallelism_config_dp_replicate_size: {}\n  parallelism_config_dp_shard_size: {}\n  parallelism_config_tp_size: {}\n"
MEGATRON_LM = "megatron_lm_config:\n  megatron_lm_tp_degree: {}\n  megatron_lm_pp_degree: {}\n"
HOSTFILE = "# two hosts\nn1 slots=8\nn2 slots = 8 max-slots=9\n"
GPUS = "#!/bin/bash\n#SBATCH --{}\n"
OTHERS = [
    accelerate("FSDP", more=FSDP1.format("FULL_SHARD")),
    accelerate("FSDP by number", more=FSDP1.format(1)),
    accelerate("three dimensions", more=SIZES.format(2, 4, 2)),
    accelerate("Megatron-LM", kind="MEGATRON_LM", more=MEGATRON_LM.format(4, 2)),
    accelerate("options over the file", options="--num_processes 8 --num_machines 1", more=SIZES.format(1, 8, 1)),
    Case("accelerate: configuration alone", {"acc.yaml": c.accelerate()}, named=("acc.yaml",)),
    accelerate("the second machine", rank=1),
    accelerate("each machine's own number", options="--machine_rank $SLURM_NODEID"),
    accelerate("a machine beyond the last, by the line", CONTRADICT, options="--machine_rank 2"),
    accelerate("the line's number over the file's", options="--machine_rank 1", rank=2),
    accelerate("a loopback address in the line", CONTRADICT, options="--main_process_ip 127.0.0.1"),
    Case("mpirun: 16 ranks in 16 slots", {"run.sh": "mpirun -np 16 --hostfile hosts python train.py\n", "hosts": HOSTFILE}),
    Case("mpirun: 17 ranks in 16 slots", {"run.sh": "mpirun -np 17 --hostfile hosts python train.py\n", "hosts": HOSTFILE}, CONTRADICT),
    Case("mpirun: more ranks than slots on purpose", {"run.sh": "mpirun -np 17 --oversubscribe --hostfile hosts python train.py\n", "hosts": HOSTFILE}),
    Case("mpirun: a host without a number of slots", {"run.sh": "mpirun -np 17 --hostfile hosts python train.py\n", "hosts": HOSTFILE + "n3\n"}),
    Case("slurm: 8 ranks and 8 GPUs", {"run.sh": GPUS.format("gres=gpu:a100:8") + c.torchrun(1)}),
    Case("slurm: 8 ranks and 4 GPUs", {"run.sh": GPUS.format("gres=gpu:a100:4") + c.torchrun(1)}, CONTRADICT),
    Case("slurm: 8 ranks and 6 GPUs", {"run.sh": GPUS.format("gpus-per-node=6") + c.torchrun(1)}, CONTRADICT),
    Case("slurm: GPUs without a number", {"run.sh": GPUS.format("gres=gpu") + c.torchrun(1)}),
    accelerate("a third machine of two", CONTRADICT, rank=2),
    accelerate("a master that others reach", more="main_process_ip: 10.0.0.1\nmain_process_port: 29500\n"),
    accelerate("a master that is each machine itself", CONTRADICT, more="main_process_ip: 127.0.0.1\nmain_process_port: 29500\n"),
    accelerate("one machine, loopback", ranks=8, machines=1, more="main_process_ip: localhost\n"),
    accelerate("unknown type", SETTINGS, kind="MULTIGPU"),
    accelerate("a key misspelt", SETTINGS, more="main_proces_ip: 10.0.0.1\n"),
    accelerate("a key that no version has", SETTINGS, more="main_process_adr: 10.0.0.1\n"),
    accelerate("keys of TPUs, of old and of new versions", more="tpu_env: []\nfp16: false\nnext_config:\n  a: 1\n"),
    accelerate("a port that is none", SETTINGS, more="main_process_port: 295000\n"),
    accelerate("a port to be chosen", more="main_process_ip: 10.0.0.1\nmain_process_port: 0\nuse_cpu: false\n"),
    accelerate("unknown precision", SETTINGS, more="mixed_precision: bfloat16\n"),
    accelerate("precision in capitals, and a type of later releases", kind="MULTI_TPU", more="mixed_precision: BF16\n"),
    accelerate("unknown strategy", SETTINGS, more=FSDP1.format("FULL_SHARDING")),
    accelerate("three dimensions of 8", RANKS, more=SIZES.format(1, 4, 2)),
    accelerate("Megatron-LM with 3 stages", RANKS, kind="MEGATRON_LM", more=MEGATRON_LM.format(4, 3)),
    accelerate("processes of one machine", CONTRADICT, ranks=7),
    accelerate("options make it wrong", RANKS, options="--num_processes 8 --num_machines 1", more=SIZES.format(2, 8, 1)),
    Case("accelerate: wrong configuration alone", {"acc.yaml": c.accelerate(ranks=9)}, CONTRADICT, named=("acc.yaml",), place="acc.yaml:9"),
    Case("lightning: torchrun", {"run.sh": c.torchrun(2, after="--config-name exp"), "exp.yaml": c.lightning()}, named=("run.sh", "exp.yaml")),
    Case("lightning: its own launcher", {"run.sh": "python train.py --config-name exp trainer.devices=4\n", "exp.yaml": c.lightning()}, named=("run.sh", "exp.yaml")),
    Case("lightning: overridden", {"run.sh": c.torchrun(1, 4, after="trainer.devices=4 trainer.num_nodes=1"), "exp.yaml": c.lightning()}, named=("run.sh", "exp.yaml")),
    Case("lightning: all devices", {"run.sh": c.torchrun(2), "exp.yaml": c.lightning(-1)}, named=("run.sh", "exp.yaml")),
    Case("lightning: devices differ", {"run.sh": c.torchrun(2, 4), "exp.yaml": c.lightning()}, CONTRADICT, named=("run.sh", "exp.yaml")),
    Case("lightning: hosts differ", {"run.sh": c.torchrun(4), "exp.yaml": c.lightning()}, CONTRADICT, named=("run.sh", "exp.yaml"), place="exp.yaml:9"),
    Case("lightning: an override differs", {"run.sh": c.torchrun(2, after="trainer.num_nodes=1"), "exp.yaml": c.lightning()}, CONTRADICT, named=("run.sh", "exp.yaml")),
    Case("lightning: an unknown reference", {"run.sh": c.torchrun(2), "exp.yaml": c.lightning().replace("${cluster.gpus}", "${oc.env:GPUS}")}, named=("run.sh", "exp.yaml"), undecided=True),
    Case("nemo: 3D parallel", {"run.sh": c.torchrun(2), "gpt.yaml": c.nemo()}, named=("run.sh", "gpt.yaml")),
    Case("nemo: batch of 30", {"run.sh": c.torchrun(2), "gpt.yaml": c.nemo(batch=30)}, BATCH, named=("run.sh", "gpt.yaml")),
    Case("nemo: pipeline of 3", {"run.sh": c.torchrun(2), "gpt.yaml": c.nemo(pipeline=3)}, RANKS, named=("run.sh", "gpt.yaml")),
    Case("nemo: 18 heads", {"run.sh": c.torchrun(2), "gpt.yaml": c.nemo(heads=18).replace("2048\n  num_a", "2304\n  num_a")}, MODEL, named=("run.sh", "gpt.yaml")),
    Case("fsdp: hybrid shards", {"run.sh": c.torchrun(2), "fsdp.yaml": c.fsdp()}, named=("run.sh", "fsdp.yaml")),
    Case("fsdp: groups of 4", {"run.sh": c.torchrun(2), "fsdp.yaml": c.fsdp(4, 4)}, named=("run.sh", "fsdp.yaml")),
    Case("fsdp: groups for 8 ranks", {"run.sh": c.torchrun(2), "fsdp.yaml": c.fsdp(4, 2)}, RANKS, named=("run.sh", "fsdp.yaml")),
    Case("lightning: a key of another program's trainer", {"c.yaml": c.lightning().replace("  devices:", "  device: cuda\n  gpus:")}, named=("c.yaml",)),
    Case("fsdp: unknown strategy", {"fsdp.yaml": c.fsdp(strategy="HYBRID")}, SETTINGS, named=("fsdp.yaml",), place="fsdp.yaml:2"),
]  # fmt: skip


def torch(
    name: str, finds: str = "", nodes: int = 1, ranks: int = 8, *, undecided: bool = False, **changes: Any
) -> Case:
    files = {"run.sh": c.torchrun(nodes, ranks), "train.py": p.torch_ddp(**changes)}
    return Case(f"torch: {name}", files, finds, undecided=undecided)


def npu(name: str, finds: str = "", product: str = "A2", ranks: int = 8, before: str = "", **changes: str) -> Case:
    return Case(
        f"npu: {name}",
        {"run.sh": c.torchrun(1, ranks, before=before), "train.py": p.torch_npu(**changes)},
        finds,
        product=product,
    )


ALONE: dict[str, Any] = {"epoch": "", "sampler": ""}
TORCH = [
    torch("one host"),
    torch("four hosts", nodes=4),
    torch("local rank as rank on one host", init='dist.init_process_group("nccl", rank=local_rank, world_size=8)'),
    torch("global rank", nodes=2, init='dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=16)'),
    torch("computed rank", nodes=2, init='dist.init_process_group("nccl", rank=node * 8 + local_rank, world_size=16)', local_rank='local_rank = int(os.environ["LOCAL_RANK"]); node = int(os.environ["GROUP_RANK"])'),
    torch("no shuffle", sampler="sampler = DistributedSampler(dataset, shuffle=False)", epoch=""),
    torch("device by rank", device='torch.cuda.set_device(dist.get_rank() % 8)', local_rank="pass"),
    torch("device by name", device='device = torch.device(f"cuda:{dist.get_rank() % 8}")', local_rank="pass"),
    torch("one rank on each host", ranks=1, nodes=2, device="pass", local_rank="pass"),
    torch("gloo", backend="gloo", device="pass", local_rank="pass"),
    torch("batches by rank", loader="DataLoader(dataset, batch_sampler=batches_of(dist.get_rank()))", **ALONE),
    torch("reduced in float64 by NCCL", within="total = torch.zeros(1, dtype=torch.float64).cuda(); dist.all_reduce(total)"),
    torch("scaled by this launch", before="num_gpus = 8; learning_rate = 0.1; learning_rate = learning_rate * num_gpus"),
    torch("scaled by the world size", ranks=2, before="world_size = dist.get_world_size(); batch_size = 256; batch_size = batch_size // world_size"),
    torch("data elsewhere", undecided=True, imports="from my_data import make_loader", loader="DataLoader(dataset)", **ALONE),
    torch("local rank as rank", LOCAL, nodes=2, init='dist.init_process_group("nccl", rank=local_rank, world_size=16)'),
    torch("argument as rank", LOCAL, nodes=2, init='dist.init_process_group("nccl", rank=args.local_rank, world_size=16)', imports="from argparse import Namespace; args = Namespace(local_rank=0)"),
    torch("variable as rank", LOCAL, nodes=4, init='dist.init_process_group("nccl", rank=int(os.environ["LOCAL_RANK"]), world_size=32)'),
    torch("no epoch", EPOCH, epoch=""),
    torch("no epoch on two hosts", EPOCH, nodes=2, epoch="", sampler="sampler = DistributedSampler(dataset, shuffle=True)"),
    torch("no sampler", SHARDED, loader="DataLoader(dataset, batch_size=32, shuffle=True)", **ALONE),
    torch("no sampler on two hosts", SHARDED, nodes=2, loader="DataLoader(dataset, batch_size=32)", **ALONE),
    torch("no device", DEVICE, device="pass", local_rank="pass"),
    torch("no device, two ranks", DEVICE, ranks=2, nodes=2, device='device = "cuda"', local_rank="pass"),
    torch("device 0 for all", DEVICE, device="torch.cuda.set_device(0)", local_rank="pass"),
    torch("device 0, one rank", ranks=1, device="torch.cuda.set_device(0)", local_rank="pass"),
    torch("device 0, and the number of the rank elsewhere", device="torch.cuda.set_device(0)"),
    torch("a world of 8 for 16 ranks", CONTRADICT, nodes=2, init='dist.init_process_group("nccl", world_size=8)'),
    torch("a world of 16 for 16 ranks", nodes=2, init='dist.init_process_group("nccl", world_size=16)'),
    torch("a world of one in a branch", nodes=2, init='dist.init_process_group("nccl", world_size=1) if local_rank < 0 else dist.init_process_group("nccl")'),
    torch("written for 8, started on 2", SCALE, ranks=2, before="num_gpus = 8; base_lr = 0.1; base_lr = base_lr * num_gpus"),
    torch("batch divided by 8, started on 2", SCALE, ranks=2, before="world_size = 8; batch_size = 256; batch_size = batch_size // world_size"),
    npu("HCCL"),
    npu("reduced in float32", within="total = torch.zeros(1, dtype=torch.float32).npu(); dist.all_reduce(total)"),
    npu("bfloat16 on A2", within="total = torch.zeros(1, dtype=torch.bfloat16).npu(); dist.all_reduce(total)"),
    npu("float64 gathered", within="total = torch.zeros(1, dtype=torch.float64).npu(); dist.broadcast(total, 0)"),
    npu("4 NPUs of one ring on A1", product="A1", ranks=4, before="export ASCEND_RT_VISIBLE_DEVICES=4,5,6,7"),
    npu("6 NPUs on A2", ranks=6),
    npu("reduced in float64", TYPE, within="total = torch.zeros(1, dtype=torch.float64).npu(); dist.all_reduce(total)"),
    npu("reduced as bool", TYPE, within="flag = torch.ones(1).bool(); dist.all_reduce(flag)"),
    npu("reduced as double", TYPE, within="dist.reduce(torch.tensor(3.0).double().npu(), 0)"),
    npu("bfloat16 on A1", TYPE, product="A1", within="total = torch.zeros(1, dtype=torch.bfloat16).npu(); dist.all_reduce(total)"),
    npu("4 NPUs of both rings on A1", A1, product="A1", ranks=4, before="export ASCEND_RT_VISIBLE_DEVICES=2,3,4,5"),
    npu("6 NPUs on A1", A1, product="A1", ranks=6),
    npu("no device", DEVICE, device="pass", local_rank="pass"),
    Case("torch: restarts, by a torch of unknown version", {"run.sh": "torchrun --nproc-per-node 8 --max-restarts 3 train.py\n", "train.py": p.torch_ddp()}, undecided=True),
    Case("torch: restarts with stores of their own", {"run.sh": "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\ntorchrun --standalone --nproc-per-node 8 --max-restarts 3 train.py\n", "train.py": p.torch_ddp()}),
]  # fmt: skip


def mindspore(name: str, finds: str = "", workers: int = 8, *, undecided: bool = False, **changes: str) -> Case:
    files = {"run.sh": c.msrun_program(workers), "train.py": p.mindspore_program(**changes)}
    return Case(f"mindspore: {name}", files, finds, undecided=undecided)


SEMI = 'parallel_mode="semi_auto_parallel"'
MINDSPORE = [
    mindspore("data parallel"),
    mindspore("data parallel in PyNative mode", mode="ms.PYNATIVE_MODE"),
    mindspore("semi-automatic", parallel=SEMI, network="self.multiply = ops.MatMul().shard(((2, 4), (4, 1)))"),
    mindspore("semi-automatic with a pipeline", parallel=SEMI + ", pipeline_stages=2", network="self.multiply = ops.MatMul().shard(((4, 1), (1, 1)))"),
    mindspore("strategy of 6 on 12", workers=12, parallel=SEMI, network="self.multiply = ops.MatMul().shard(((6, 1), (1, 2)))"),
    mindspore("broadcast without a seed", parallel="parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, parameter_broadcast=True", seed=""),
    mindspore("the sum is meant", parallel="parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=False"),
    mindspore("number of devices", parallel="parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=8"),
    mindspore("settings elsewhere", undecided=True, imports="from settings import prepare", parallel='parallel_mode="data_parallel"'),
    mindspore("PyNative with semi-automatic", MODE, mode="ms.PYNATIVE_MODE", parallel=SEMI),
    mindspore("PyNative by number with automatic", MODE, mode="1", parallel='parallel_mode="auto_parallel"'),
    mindspore("unknown mode", MODE, parallel='parallel_mode="model_parallel"'),
    mindspore("strategy of 3", MODE, parallel=SEMI, network="self.multiply = ops.MatMul().shard(((3, 1), (1, 2)))"),
    mindspore("strategy of 16 on 8", MODE, parallel=SEMI, network="self.multiply = ops.MatMul().shard(((16, 1), (1, 1)))"),
    mindspore("pipeline of 3", MODE, parallel=SEMI + ", pipeline_stages=3"),
    mindspore("number of devices of another launch", MODE, workers=2, parallel="parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=8"),
    mindspore("gradients summed", SUMMED, parallel='parallel_mode="data_parallel"'),
    mindspore("gradients summed in PyNative mode", SUMMED, mode="ms.PYNATIVE_MODE", parallel="parallel_mode=ms.ParallelMode.DATA_PARALLEL"),
    mindspore("no seed", BROADCAST, seed=""),
    mindspore("broadcast off", BROADCAST, seed="", parallel="parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, parameter_broadcast=False"),
    mindspore("no shards", SHARDED, shards=""),
]  # fmt: skip


def recipe(
    name: str,
    text: str,
    finds: str = "",
    file: str = "config.yaml",
    *,
    counts: Mapping[str, int] = r.SIXTEEN,
    **more: Any,
) -> Case:
    return Case(
        f"recipe: {name}",
        {file: text, "ds.json": c.deepspeed({"train_batch_size": "auto"})},
        finds,
        (file,),
        counts=counts,
        **more,
    )


TITAN = "-m torchtitan.train --job.config_file train.toml"
INTERNEVO = "train.py --config config.py --launcher torch"
RECIPES = [
    recipe("LLaMA-Factory", r.llama_factory()),
    recipe("LLaMA-Factory without DeepSpeed", r.llama_factory(deepspeed=None, quantization_bit=4)),
    recipe("LLaMA-Factory with a stream", r.llama_factory(streaming=True, max_steps=1000)),
    recipe("LLaMA-Factory, DeepSpeed elsewhere", r.llama_factory(deepspeed="examples/deepspeed/ds_z3_config.json"), undecided=True),
    recipe("LLaMA-Factory in fp16 and bf16", r.llama_factory(fp16=True), SETTINGS),
    recipe("LLaMA-Factory, other micro batches", r.llama_factory(per_device_train_batch_size=8), BATCH),
    recipe("LLaMA-Factory, quantized and full", r.llama_factory(finetuning_type="full", quantization_bit=4), SETTINGS),
    recipe("LLaMA-Factory, a stream without an end", r.llama_factory(streaming=True), SETTINGS),
    recipe("axolotl", r.axolotl()),
    recipe("axolotl, ranks not known", r.axolotl(), counts={}),
    recipe("axolotl, the rest is data parallel", r.axolotl(dp_shard_size=None, dp_replicate_size=None, bf16="auto")),
    recipe("axolotl with DeepSpeed", r.axolotl(dp_shard_size=None, dp_replicate_size=None, deepspeed="ds.json", micro_batch_size=4, gradient_accumulation_steps=4)),
    recipe("axolotl, groups of 3", r.axolotl(tensor_parallel_size=3), RANKS),
    recipe("axolotl, too few ranks", r.axolotl(), RANKS, counts={"nodes": 1, "ranks_per_node": 8}),
    recipe("axolotl in fp16 and bf16", r.axolotl(fp16=True), SETTINGS),
    recipe("axolotl with DeepSpeed and FSDP", r.axolotl(deepspeed="ds.json", fsdp="[full_shard]"), SETTINGS),
    recipe("torchtune", r.torchtune()),
    recipe("torchtune without parallel sizes", r.torchtune(tensor_parallel_dim=None, data_parallel_shard_dim=None, data_parallel_replicate_dim=None)),
    recipe("torchtune, all sizes", r.torchtune(data_parallel_shard_dim=8)),
    recipe("torchtune, tensor size 3", r.torchtune(tensor_parallel_dim=3), RANKS),
    recipe("torchtune, a shard too small", r.torchtune(data_parallel_shard_dim=4), RANKS),
    recipe("torchtitan", r.torchtitan(), file="train.toml"),
    recipe("torchtitan, pipeline of 3", r.torchtitan(pipeline=3), RANKS, "train.toml", place="train.toml:10"),
    Case("recipe: torchtitan in a script", {"run.sh": r.launch(TITAN, nodes=2), "train.toml": r.torchtitan(shard=2)}),
    Case("recipe: torchtitan with an option", {"run.sh": r.launch(TITAN + " --parallelism.tensor_parallel_degree 3"), "train.toml": r.torchtitan()}, RANKS),
    Case("recipe: torchtitan with options that nobody sees", {"run.sh": r.launch(TITAN + ' "$@"'), "train.toml": r.torchtitan(tensor=1)}, undecided=True),
    Case("recipe: torchtitan's form in another program", {"run.sh": r.launch("train_ds.py --job.config_file train.toml", ranks=4), "train.toml": r.torchtitan(tensor=3)}),
    recipe("InternEvo", r.internevo(), file="config.py"),
    recipe("InternEvo, sizes as numbers", r.internevo(tensor="8", weight="dict(size=1)"), file="config.py"),
    recipe("InternEvo, a size from the environment", r.internevo(tensor="dict(size=TP, mode='mtp')", weight="dict(size=1)", more='TP = int(os.environ["TP"])'), file="config.py", undecided=True),
    recipe("InternEvo, tensor size 3", r.internevo(tensor="dict(size=3, mode='isp')"), RANKS, "config.py"),
    recipe("InternEvo, weight size 3", r.internevo(weight="dict(size=3)"), RANKS, "config.py"),
    recipe("InternEvo, weight without isp", r.internevo(tensor="dict(size=2, mode='msp')"), SETTINGS, "config.py"),
    recipe("InternEvo, unknown mode", r.internevo(tensor="dict(size=2, mode='tp')", weight="dict(size=1)"), SETTINGS, "config.py"),
    Case("recipe: InternEvo in a script", {"run.sh": r.launch(INTERNEVO), "config.py": r.internevo()}),
    Case("recipe: InternEvo in a script, tensor size 3", {"run.sh": r.launch(INTERNEVO), "config.py": r.internevo(tensor="dict(size=3, mode='isp')")}, RANKS),
    Case("recipe: model parallel groups of Megatron", {"run.sh": r.launch("train.py", ranks=2), "train.py": p.torch_ddp(before="parallel_state.initialize_model_parallel(2, 1)", loader="DataLoader(dataset)", **ALONE)}),
]  # fmt: skip


def timed(
    name: str, finds: str = "", script: str = "", timeout: str = "timedelta(minutes=40)", undecided: bool = False
) -> Case:
    """A program that sets the timeout of its process group, in a job script."""
    init = f'dist.init_process_group("hccl", timeout={timeout})'
    program = p.torch_ddp(init=init, imports="from datetime import timedelta")
    text = f"#!/bin/bash\n#SBATCH -N 2\n{script}\ntorchrun --nnodes 2 --nproc-per-node 8 --master-addr n1 train.py\n"
    return Case(f"timeout: {name}", {"run.sh": text, "train.py": program}, finds, undecided=undecided)


FACTORY = "src/train.py train.yaml"
TIMEOUTS = [
    timed("no limit is known"),
    timed("below the job's limit", script="#SBATCH --time=2:00:00"),
    timed("computed in the program", script="#SBATCH -t 90", timeout="timedelta(seconds=60 * 30)"),
    timed("above HCCL's", script="export HCCL_EXEC_TIMEOUT=1836"),
    timed("HCCL's is switched off", script="export HCCL_EXEC_TIMEOUT=0"),
    timed("of an option", script="#SBATCH -t 60", timeout="timedelta(seconds=args.seconds)", undecided=True),
    timed("above the job's limit", TIMEOUT, "#SBATCH --time=00:30:00"),
    timed("as long as the job", TIMEOUT, "#SBATCH --time=40"),
    timed("below HCCL's", TIMEOUT, "export HCCL_EXEC_TIMEOUT=3600"),
    timed("below that to connect", TIMEOUT, "export HCCL_CONNECT_TIMEOUT=2390"),
    timed("by position", TIMEOUT, "#SBATCH -t 10", "datetime.timedelta(0, 600)"),
    Case("timeout: LLaMA-Factory", {"run.sh": "#SBATCH -t 0:50:00\n" + r.launch(FACTORY), "train.yaml": r.llama_factory(ddp_timeout=1800, deepspeed=None)}),
    Case("timeout: LLaMA-Factory, for years", {"run.sh": "#SBATCH -t 0:50:00\n" + r.launch(FACTORY), "train.yaml": r.llama_factory(ddp_timeout=180000000, deepspeed=None)}, TIMEOUT),
    Case("timeout: Megatron", {"run.sh": "#SBATCH -t 20\n" + c.megatron({"distributed-timeout-minutes": 30}, 2, 8, "line")}, TIMEOUT),
    Case("timeout: Megatron, short", {"run.sh": "#SBATCH -t 60\n" + c.megatron({"distributed-timeout-minutes": 30}, 2, 8, "line")}),
]  # fmt: skip


def verl(name: str, finds: str = "", *, undecided: bool = False, **changes: object) -> Case:
    """A script of verl: Hydra's overrides, ranks that Ray starts."""
    numbers = {"nodes": 2, "tensor": 4, "batch": 1024, "micro": 16, "actor": "fsdp", **changes}
    overrides = {
        "algorithm.adv_estimator": "grpo", "data.train_batch_size": numbers["batch"], "data.max_prompt_length": 1024,
        "actor_rollout_ref.model.path": "Qwen/Qwen2-7B-Instruct", "actor_rollout_ref.actor.ppo_mini_batch_size": 256,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": numbers["micro"], "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.tensor_model_parallel_size": numbers["tensor"], "actor_rollout_ref.rollout.n": 5,
        "actor_rollout_ref.actor.strategy": numbers["actor"], "trainer.n_gpus_per_node": 8, "trainer.nnodes": numbers["nodes"], "trainer.total_epochs": 15,
    }  # fmt: skip
    words = " \\\n    ".join(f"{key}={value}" for key, value in overrides.items())
    return Case(
        f"verl: {name}",
        {"run.sh": f"set -x\npython3 -m verl.trainer.main_ppo \\\n    {words} $@\n"},
        finds,
        undecided=undecided,
    )


VERL = [
    verl("GRPO on two hosts"),
    verl("one host", nodes=1, tensor=2),
    Case(
        "verl: options of Hydra's own",
        {
            "run.sh": "python3 -m verl.trainer.main_ppo --config-path=config --config-name=ppo ++trainer.nnodes=1 trainer.n_gpus_per_node=8\n"
        },
    ),
    verl("hosts from a variable", nodes="$NNODES", undecided=True),
    verl("a rollout over 3 GPUs", RANKS, tensor=3),
    verl("a batch below the mini batch", BATCH, batch=128),
    verl("a batch that 16 ranks cannot share", BATCH, batch=1025),
    verl("a part of 80 in micro batches of 12", BATCH, micro=12),
    verl("micro batches of Megatron's own rules", micro=12, actor="megatron"),
]

CASES = [*TIMEOUTS, *VERL, *MEGATRON, *DEEPSPEED, *MINDFORMERS, *OTHERS, *TORCH, *MINDSPORE, *RECIPES]
