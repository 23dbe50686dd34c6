"""Random sound launches of each format, and each with one mutation: the check that finds it, and the line it stands in.

Everything follows from a seed: sizes that fit each other, the order of keys, notation, comments. The text of a mutated
file differs from that of its sound one in one setting.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.lint import cases as k
from tests.lint import configurations as c
from tests.lint import programs as p
from tests.lint import recipes as r


class Mutation(NamedTuple):
    """One pair of launches."""

    name: str
    sound: k.Case
    broken: k.Case
    marks: tuple[str, ...]
    """One of these texts stands in the line that the finding names, or in a launch line that goes on there."""


Maker = Callable[[random.Random], Mutation]


def _pair(name: str, finds: str, marks: tuple[str, ...], *files: Mapping[str, str], **more: Any) -> Mutation:
    sound, broken = files
    return Mutation(
        name, k.Case(f"{name}: sound", sound, **more), k.Case(f"{name}: broken", broken, finds, **more), marks
    )


def _megatron(choose: random.Random, extra: Mapping[str, object], change: Mapping[str, object], finds: str) -> Mutation:
    tensor, pipeline, nodes = choose.choice((2, 4, 8)), choose.choice((2, 4)), choose.choice((4, 8))
    heads, micro = tensor * choose.choice((2, 4, 6)), choose.choice((1, 2))
    ranks = nodes * 8 // tensor // pipeline
    options = {
        "tensor-model-parallel-size": tensor,
        "pipeline-model-parallel-size": pipeline,
        "num-layers": pipeline * choose.choice((4, 6, 10)),
        "num-attention-heads": heads,
        "hidden-size": heads * 128,
        "micro-batch-size": micro,
        "global-batch-size": micro * ranks * pipeline * choose.choice((2, 3, 8)),
        **extra,
    }
    options = dict(choose.sample(sorted(options.items()), len(options)))
    style = choose.choice(("array", "string", "line"))
    texts = [c.megatron({**options, **changes}, nodes, 8, style) for changes in ({}, change)]
    if "use-megatron-fsdp" in extra or "use-torch-fsdp2" in extra:
        texts = [text.replace("export CUDA_DEVICE_MAX_CONNECTIONS=1\n", "") for text in texts]
        texts[1] = texts[1].replace("#!/bin/bash\n", "#!/bin/bash\n" + str(change.get("head", "")))
        texts[1] = "\n".join(line for line in texts[1].split("\n") if "--head" not in line)
    name = f"megatron {' '.join(change)} {style}"
    marks = tuple("torchrun" if option == "head" else f"--{option}" for option in change)
    marks += ("-model-parallel-size",) if finds == k.RANKS else ()
    return _pair(name, finds, marks, {"run.sh": texts[0]}, {"run.sh": texts[1]})


MEGATRON: list[tuple[dict[str, object], dict[str, object], str]] = [
    ({}, {"tensor-model-parallel-size": 3, "num-attention-heads": 48, "hidden-size": 6144}, k.RANKS),
    ({}, {"pipeline-model-parallel-size": 7, "num-layers": 28}, k.RANKS),
    ({}, {"num-attention-heads": 31, "hidden-size": 31 * 128}, k.MODEL),
    ({}, {"num-layers": 33}, k.MODEL),
    ({}, {"global-batch-size": 101}, k.BATCH),
    ({"sequence-parallel": None}, {"seq-length": 4093}, k.MODEL),
    ({}, {"fp16": None}, k.SETTINGS),
    ({"num-distributed-optimizer-instances": 1}, {"num-distributed-optimizer-instances": 5}, k.RANKS),
    ({"use-megatron-fsdp": None, "ckpt-format": "fsdp_dtensor"}, {"ckpt-format": "torch_dist"}, k.SETTINGS),
    (
        {"use-megatron-fsdp": None, "ckpt-format": "fsdp_dtensor", "data-parallel-sharding-strategy": "optim_grads"},
        {"data-parallel-sharding-strategy": "full_shard"},
        k.SETTINGS,
    ),
    (
        {"use-megatron-fsdp": None, "ckpt-format": "fsdp_dtensor"},
        {"head": "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"},
        k.SETTINGS,
    ),
    (
        {"use-torch-fsdp2": None, "pipeline-model-parallel-size": 1, "ckpt-format": "torch_dist"},
        {"use-distributed-optimizer": None},
        k.SETTINGS,
    ),
    (
        {"use-torch-fsdp2": None, "pipeline-model-parallel-size": 1},
        {"ckpt-format": "torch"},
        k.SETTINGS,
    ),
]


def _deepspeed(choose: random.Random, change: Mapping[str, object], finds: str, marks: tuple[str, ...]) -> Mutation:
    nodes, micro, steps = choose.choice((1, 2, 4)), choose.choice((1, 2, 6)), choose.choice((2, 5, 8))
    settings: dict[str, object] = {
        "train_batch_size": nodes * 8 * micro * steps,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": choose.choice((1, 2, 3))},
        "gradient_clipping": 1.0,
    }
    settings = dict(choose.sample(sorted(settings.items()), len(settings)))
    created = []
    for changes in ({}, change):
        text = json.dumps({**settings, **changes}, indent=choose.choice((2, 4)))
        created.append({"run.sh": c.deepspeed_run(nodes), "ds.json": text, "train.py": p.deepspeed_program()})
    return _pair(f"deepspeed {' '.join(change)}", finds, marks, *created)


DEEPSPEED: list[tuple[dict[str, object], str, tuple[str, ...]]] = [
    ({"train_batch_size": 1001}, k.BATCH, ('"train_batch_size"',)),
    ({"gradient_accumulation_steps": 7}, k.BATCH, ('"train_batch_size"',)),
    ({"train_micro_batch_size_per_gpu": 11}, k.BATCH, ('"train_batch_size"',)),
    ({"fp16": {"enabled": True}}, k.SETTINGS, ('"enabled"',)),
    ({"zero_optimization": {"stage": 7}}, k.SETTINGS, ('"stage"',)),
    ({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}}, k.RANKS, ("zero_hpz",)),
]


def _mindformers(choose: random.Random, change: Mapping[str, Any], finds: str, mark: str) -> Mutation:
    tensor, pipeline, hosts = choose.choice((2, 4, 8)), choose.choice((2, 4)), choose.choice((4, 8))
    heads = tensor * choose.choice((4, 5))
    sizes: dict[str, Any] = {
        "data": hosts * 8 // tensor // pipeline,
        "tensor": tensor,
        "pipeline": pipeline,
        "micro": pipeline * choose.choice((1, 2)),
        "layers": pipeline * choose.choice((5, 8)),
        "heads": heads,
        "groups": tensor,
        "hidden": heads * 64,
    }
    created = [
        {"run.sh": c.msrun(hosts * 8), "train.yaml": c.mindformers(**{**sizes, **changes})} for changes in ({}, change)
    ]
    return _pair(f"mindformers {' '.join(change)}", finds, (mark, "msrun"), *created)


MINDFORMERS: list[tuple[dict[str, Any], str, str]] = [
    ({"data": 3}, k.RANKS, "data_parallel"),
    ({"context": 2}, k.RANKS, "data_parallel"),
    ({"heads": 37, "hidden": 37 * 64, "groups": "null"}, k.MODEL, "num_heads"),
    ({"micro": 1}, k.BATCH, "micro_batch_num"),
    ({"layers": 1}, k.MODEL, "num_layers"),
]


def _accelerate(choose: random.Random, change: Mapping[str, Any], finds: str, mark: str) -> Mutation:
    machines, replicate = choose.choice((2, 4)), choose.choice((1, 2))
    base: dict[str, Any] = {
        "ranks": machines * 8,
        "machines": machines,
        "shape": (replicate, machines * 8 // replicate, 1),
    }
    created = []
    for changes in ({}, change):
        merged = {**base, **changes}
        more = k.SIZES.format(*merged.pop("shape")) + choose.choice(("", "use_cpu: false\n", "# two racks\n"))
        created.append({"run.sh": c.accelerate_run(), "acc.yaml": c.accelerate(**merged, more=more)})
    return _pair(f"accelerate {' '.join(change)}", finds, (mark,), *created)


ACCELERATE: list[tuple[dict[str, Any], str, str]] = [
    ({"shape": (3, 4, 1)}, k.RANKS, "parallelism_config_dp"),
    ({"shape": (1, 2, 3)}, k.RANKS, "parallelism_config_dp"),
]


def _text(name: str, finds: str, mark: str, sound: str, broken: str, file: str = "config.yaml") -> Mutation:
    return _pair(name, finds, (mark,), {file: sound}, {file: broken}, named=(file,), counts=r.SIXTEEN)


def llama_v1(**changes: object) -> str:
    """examples/v1/train_full/train_full_ulysses_cp.yaml of LLaMA-Factory."""
    lines = {
        "model": "Qwen/Qwen3-0.6B",
        "model_class": "llm",
        "dist_config": "\n  name: fsdp2\n  dcp_path: null",
        "train_dataset": "data/v1_sft_demo.yaml",
        "micro_batch_size": 1,
        "cutoff_len": 2048,
        "bf16": "true",
        **changes,
    }
    return "\n".join(f"{name}: {value}" for name, value in lines.items()) + "\n"


FSDP2 = "\n  name: fsdp2\n  {}"
TURBO = "\n  name: fsdpturbo\n  ep_size: {}\n  ep_dispatcher: eager"
ZERO = "\n  name: deepspeed\n  config_file: ds.json"


def _zero(batch: int) -> str:
    """A DeepSpeed configuration that gives a batch for all of 16 ranks."""
    return json.dumps({"train_batch_size": batch, "zero_optimization": {"stage": 3}}, indent=2)


def _llama_deepspeed(name: str, finds: str, mark: str, **change: object) -> Mutation:
    """examples/v1/train_full/train_full_deepspeed.yaml of LLaMA-Factory."""
    sound = {"train.yaml": llama_v1(dist_config=ZERO), "ds.json": _zero(32)}
    broken = {**sound, "train.yaml": llama_v1(**{"dist_config": ZERO, **change})}
    return _pair(f"llama v1 DeepSpeed {name}", finds, (mark,), sound, broken, named=("train.yaml",), counts=r.SIXTEEN)


TEXTS = [
    _text("llama v1 context", k.RANKS, "cp_size", llama_v1(cp_size=2), llama_v1(cp_size=3)),
    _text("llama v1 data", k.RANKS, "size:", llama_v1(dist_config=FSDP2.format("cp_size: 4\n  dp_size: 4")), llama_v1(dist_config=FSDP2.format("cp_size: 4\n  dp_size: 8"))),
    _text("llama v1 shards", k.RANKS, "mp_", llama_v1(dist_config=FSDP2.format("mp_replicate_size: 2\n  mp_shard_size: 8")), llama_v1(dist_config=FSDP2.format("mp_replicate_size: 3\n  mp_shard_size: 8"))),
    _text("llama v1 replicas", k.RANKS, "mp_", llama_v1(dist_config=FSDP2.format("mp_replicate_size: 4")), llama_v1(dist_config=FSDP2.format("mp_replicate_size: 5"))),
    _text("llama v1 batch", k.BATCH, "global_batch_size", llama_v1(global_batch_size=64), llama_v1(global_batch_size=72)),
    _text("llama v1 micro batch", k.BATCH, "global_batch_size", llama_v1(global_batch_size=48), llama_v1(global_batch_size=48, micro_batch_size=2)),
    _text("llama v1 batch in context parallelism", k.BATCH, "global_batch_size", llama_v1(cp_size=4, global_batch_size=4), llama_v1(cp_size=4, global_batch_size=6)),
    _text("llama v1 experts", k.RANKS, "ep_size", llama_v1(dist_config=TURBO.format(8)), llama_v1(dist_config=TURBO.format(6))),
    _text("llama v1 experts and context", k.RANKS, "ep_size", llama_v1(cp_size=2, dist_config=TURBO.format(8)), llama_v1(cp_size=2, dist_config=TURBO.format(16))),
    _text("llama v1 sizes of today", k.RANKS, "size:", llama_v1(dp_size=8, cp_size=2), llama_v1(dp_size=16, cp_size=2)),
    _text("llama v1 shards of today", k.RANKS, "mp_", llama_v1(mp_replicate_size=2, mp_shard_size=8), llama_v1(mp_replicate_size=2, mp_shard_size=4)),
    _text("llama v1 context mode", k.SETTINGS, "cp_", llama_v1(cp_size=2, cp_mode="ulysses"), llama_v1(cp_size=2, cp_mode="ring")),
    _text("llama v1 attention", k.SETTINGS, "flash_attn", llama_v1(cp_size=2, flash_attn="flash_attention_2"), llama_v1(cp_size=2, flash_attn="sdpa")),
    _llama_deepspeed("context", k.SETTINGS, "name: deepspeed", cp_size=2),
    _llama_deepspeed("file", k.SETTINGS, "name: deepspeed", dist_config="\n  name: deepspeed"),
    _pair("llama v1 DeepSpeed batch", k.BATCH, ("train_batch_size",), {"train.yaml": llama_v1(dist_config=ZERO), "ds.json": _zero(32)}, {"train.yaml": llama_v1(dist_config=ZERO), "ds.json": _zero(40)}, named=("train.yaml",), counts=r.SIXTEEN),
    _text("torchtitan tensor", k.RANKS, "_degree", r.torchtitan(), r.torchtitan(tensor=6), "train.toml"),
    _text("torchtune shards", k.RANKS, "_dim", r.torchtune(data_parallel_shard_dim=8), r.torchtune(data_parallel_shard_dim=6)),
    _text("axolotl tensor", k.RANKS, "size", r.axolotl(), r.axolotl(tensor_parallel_size=6)),
    _text("axolotl precision", k.SETTINGS, "16", r.axolotl(), r.axolotl(fp16=True)),
    _text("InternEvo weight", k.RANKS, "weight", r.internevo(), r.internevo(weight="dict(size=5)"), "config.py"),
    _text("fsdp strategy", k.SETTINGS, "sharding_strategy", c.fsdp(), c.fsdp(strategy="FULL"), "fsdp.yaml"),
    _text("fsdp groups", k.RANKS, "_group_size", c.fsdp(), c.fsdp(4, 2), "fsdp.yaml"),
]  # fmt: skip


def _python(choose: random.Random, change: Mapping[str, str], finds: str, mark: str) -> Mutation:
    nodes = choose.choice((2, 3, 5))
    created = [
        {"run.sh": c.torchrun(nodes, choose.choice((4, 8))), "train.py": p.torch_ddp(**changes)}
        for changes in ({}, change)
    ]
    return _pair(f"python {' '.join(change)}", finds, (mark,), *created)


PYTHON: list[tuple[dict[str, str], str, str]] = [
    ({"epoch": ""}, k.EPOCH, "ampler"),
    ({"epoch": "", "sampler": "", "loader": "DataLoader(dataset, batch_size=16)"}, k.SHARDED, "DataLoader"),
    ({"device": "pass", "local_rank": "pass"}, k.DEVICE, ""),
    (
        {"init": 'dist.init_process_group("nccl", rank=local_rank, world_size=int(os.environ["WORLD_SIZE"]))'},
        k.LOCAL,
        "init_process_group",
    ),
]


def _hydra(choose: random.Random, change: Mapping[str, object], finds: str, mark: str) -> Mutation:
    nodes, devices = choose.choice((2, 4)), choose.choice((4, 8))
    created = []
    for changes in ({}, change):
        merged: dict[str, Any] = {"devices": devices, "nodes": nodes, **changes}
        created.append(
            {"run.sh": c.torchrun(nodes, devices, after="--config-name exp"), "exp.yaml": c.lightning(**merged)}
        )
    return _pair(f"hydra {' '.join(change)}", finds, (mark,), *created, named=("run.sh", "exp.yaml"))


HYDRA: list[tuple[dict[str, object], str, str]] = [
    ({"nodes": 3}, k.CONTRADICT, "num_nodes"),
    ({"devices": 2}, k.CONTRADICT, "devices"),
]

FAMILIES: list[tuple[Callable[..., Mutation], list[Any]]] = [
    (_megatron, MEGATRON),
    (_deepspeed, DEEPSPEED),
    (_mindformers, MINDFORMERS),
    (_accelerate, ACCELERATE),
    (_python, PYTHON),
    (_hydra, HYDRA),
]


def mutations(seed: str) -> list[Mutation]:
    """One pair of every mutation."""
    created = []
    for make, rows in FAMILIES:
        for number, row in enumerate(rows):
            created.append(make(random.Random(f"{seed} {make.__name__} {number}"), *row))
    return created
