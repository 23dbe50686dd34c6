"""Faults on the user's side of programs with other people's libraries: patches, and what doctor must say of each."""

from __future__ import annotations

from typing import NamedTuple

BLOCKED, DIED, LEFT_EARLY = "smoke-rank-blocked", "smoke-rank-died", "smoke-rank-left"
INPUT, STOPPED = "smoke-input-stalled", "smoke-rank-stopped"
MISMATCH, ORDER = "smoke-collective-mismatched", "smoke-collective-order"
DATA, MASK, UPDATE = "smoke-shards-wrong", "smoke-mask-differs", "smoke-update-missing"
UNREDUCED = "smoke-gradient-not-synchronised"
NAN, SUMMED, APART = "smoke-not-finite", "smoke-gradient-summed", "smoke-parameters-not-broadcast"
TORCH = ("replicas", "tensor_parallel", "fsdp1", "fsdp2", "dtensor_tp")
"""Programs that need torch alone."""
LIBRARIES = {
    "hf_trainer": ("accelerate", "transformers.trainer", "transformers.models.gpt2.modeling_gpt2"),
    "accelerate_loop": ("accelerate", "accelerate.data_loader"),
    "lightning_fit": ("lightning", "lightning.pytorch.strategies"),
    "deepspeed_zero": ("deepspeed",),
    "megatron_tp": ("megatron.core.parallel_state", "megatron.core.distributed", "megatron.core.tensor_parallel"),
}
"""Programs that need other libraries, and what is imported of them before the ranks are forked."""


class JobFault(NamedTuple):
    """One patch of a program.

    ``{bad}`` is the culprit rank, ``{pair}`` another rank that works beside it, ``{at}`` the step in which it happens.
    """

    marker: str
    patch: str
    checks: tuple[str, ...]
    """Any of these is right."""
    programs: tuple[str, ...] = ()
    """Empty: all that have the marker."""
    everybody: bool = False
    """All ranks do it."""
    nobody: bool = False
    """It is between ranks: none of them is the culprit, and naming several as possible ones is right."""
    variables: tuple[tuple[str, str], ...] = ()
    least_world: int = 2


def _here(patch: str) -> str:
    return f"if rank == {{bad}} and step == {{at}}:\n    {patch}"


GROUPS = (
    "if 'own_groups' not in globals():\n"
    "    globals()['own_groups'] = [dist.new_group(list(range(world))) for _ in range(2)]\n"
)
RAGGED = "if step == {at}:\n    "
BLOCK = (BLOCKED,)
MIXED = (MISMATCH, ORDER, BLOCKED)
FAULTS = {
    # hangs
    "sleep": JobFault("# step", _here("import time; time.sleep(1000)"), BLOCK),
    "lock": JobFault("# step", _here("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"), BLOCK),
    "fifo": JobFault(
        "# step",
        _here("import os, tempfile; path = tempfile.mktemp(); os.mkfifo(path); open(path).read()"),
        BLOCK,
    ),
    "worker stuck": JobFault(
        "# item",
        "items = globals().setdefault('ITEMS', []); items.append(index)\n"
        "if int(os.environ['RANK']) == {bad} and len(items) > 9:\n    import time; time.sleep(1000)",
        (INPUT, BLOCKED),
        variables=(("WORKERS", "1"), ("DISPATCH", "0")),
    ),
    "stopped": JobFault("# step", _here("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"), (STOPPED,)),
    "endless loop": JobFault("# step", _here("while True: pass"), BLOCK, variables=(("GROUP_SECONDS", "15"),)),
    "collective left out": JobFault(
        "# step", "if rank != {bad} and step == {at}:\n    dist.all_reduce(torch.ones(3))", MIXED
    ),
    "another group": JobFault(
        "# step", GROUPS + RAGGED + "dist.all_reduce(torch.ones(3), group=own_groups[rank == {bad}])", MIXED
    ),
    # crashes
    "raise": JobFault("# step", _here("raise ValueError('bad batch')"), (DIED,)),
    "killed": JobFault("# step", _here("import os; os.kill(os.getpid(), 9)"), (DIED,)),
    "os._exit": JobFault("# step", _here("import os; os._exit(3)"), (DIED,)),
    "segfault": JobFault("# step", _here("import os; os.kill(os.getpid(), 11)"), (DIED,)),
    "leaves": JobFault("# step", _here("raise SystemExit(0)"), (LEFT_EARLY, DIED)),
    # other collectives
    "shape": JobFault("# step", RAGGED + "dist.all_reduce(torch.ones(3 + (rank == {bad})))", (MISMATCH,)),
    "dtype": JobFault(
        "# step",
        RAGGED + "dist.all_reduce(torch.ones(3, dtype=torch.float64 if rank == {bad} else torch.float32))",
        (MISMATCH,),
    ),
    "operation": JobFault(
        "# step",
        RAGGED + "dist.broadcast(torch.ones(3), 0) if rank == {bad} else dist.all_reduce(torch.ones(3))",
        (MISMATCH,),
    ),
    "order": JobFault(
        "# step",
        GROUPS + RAGGED + "for group in own_groups[:: -1 if rank == {bad} else 1]: dist.all_reduce(torch.ones(3), group=group)",
        (ORDER, MISMATCH),
    ),
    # data
    "not prepared": JobFault(
        "loader, validation = accelerator.prepare(model, optimizer, loader, validation)",
        "_, validation = accelerator.prepare(model, optimizer, loader, validation)",
        (DATA,),
        everybody=True,
    ),
    "not distributed": JobFault(
        "logger=False,", "logger=False, use_distributed_sampler=False,", (DATA,), everybody=True
    ),
    "own loader": JobFault(
        "# trainer",
        "from torch.utils.data import DataLoader\n"
        "trainer.get_train_dataloader = lambda: DataLoader(\n"
        "    trainer.train_dataset, batch_size=2, shuffle=True, collate_fn=trainer.data_collator\n)",
        (DATA,),
        everybody=True,
    ),
    "shard of another": JobFault(
        "num_replicas=world, rank=rank", "num_replicas=world, rank=rank if rank != {bad} else {pair}", (DATA,),
        programs=("deepspeed_zero",),
    ),
    "shard missing": JobFault(
        "num_replicas=world, rank=rank", "num_replicas=world + 1, rank=rank", (DATA,), programs=("deepspeed_zero",),
        everybody=True, variables=(("FULL", "1"),),
    ),
    "epoch not set": JobFault(
        "    sampler.set_epoch(epoch)", "    sampler.set_epoch(epoch if rank != {bad} else 7)", (DATA,),
        programs=("deepspeed_zero",),
    ),
    "seed of another": JobFault(
        "manual_seed(seed + rank)", "manual_seed(seed + (rank if rank != {bad} else {pair}))", (DATA,),
        programs=("fsdp1", "fsdp2"),
    ),
    "same rows over dp": JobFault(
        "manual_seed(seed + replica)\n", "manual_seed(seed)\n", (DATA,), everybody=True, least_world=4,
        programs=("dtensor_tp",),
    ),
    "batch inside tp": JobFault("# batch", "if rank == {bad}: rows = rows.flip(1).clone()", (DATA, MASK), programs=("megatron_tp", "dtensor_tp")),
    "mask inside tp": JobFault("# mask", "if rank == {bad}: mask = mask.roll(1, 1)", (MASK, DATA)),
    "torch seed inside tp": JobFault(
        "# seeded", "if rank == {bad}: torch.manual_seed(777)", (MASK,), programs=("megatron_tp", "tensor_parallel")
    ),
    "python seed inside tp": JobFault(
        "# seeded", "if rank == {bad}: random.seed(777)", (MASK,), programs=("megatron_tp", "tensor_parallel")
    ),
    "numpy seed inside tp": JobFault(
        "# seeded", "if rank == {bad}: numpy.random.seed(777)", (MASK,), programs=("tensor_parallel",)
    ),
    # values
    "sum by hook": JobFault(
        "# wrapped",
        "def add(state, bucket):\n"
        "    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])\n"
        "model.register_comm_hook(None, add)",
        (SUMMED,),
        programs=("accelerate_loop", "replicas"),
        everybody=True,
        variables=(("ACCUMULATE", "1"),),
    ),
    "sum of lightning": JobFault(
        "    def configure_optimizers(self):",
        "    def on_train_start(self):\n"
        "        def add(state, bucket):\n"
        "            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])\n"
        "        self.trainer.model.register_comm_hook(None, add)\n\n"
        "    def configure_optimizers(self):",
        (SUMMED,),
        everybody=True,
        variables=(("ACCUMULATE", "1"),),
    ),
    "sum of megatron": JobFault(
        "tensor.grad = tensor.main_grad\n", "tensor.grad = tensor.main_grad * (world // width)\n", (SUMMED,),
        everybody=True, least_world=4,
    ),
    "sum of fsdp": JobFault(
        "# wrapped",
        "for layer in model.modules():\n"
        "    if hasattr(layer, 'set_gradient_divide_factor'):\n"
        "        layer.set_force_sum_reduction_for_comms(True); layer.set_gradient_divide_factor(1.0)\n"
        "    if hasattr(layer, '_gradient_postdivide_factor'):\n"
        "        layer._gradient_predivide_factor = layer._gradient_postdivide_factor = 1.0",
        (SUMMED,),
        programs=("fsdp1", "fsdp2"),
        everybody=True,
    ),
    "sum of zero": JobFault(
        "        # reduced\n",
        "        for parts in engine.optimizer.averaged_gradients.values():\n"
        "            for part in parts or (): part.mul_(world)\n",
        (SUMMED,),
        programs=("deepspeed_zero",),
        everybody=True,
        variables=(("ACCUMULATE", "1"), ("STAGE", "2"), ("CLIP", "0")),
    ),
    "replica of a shard": JobFault(
        "# wrapped",
        "if rank == {bad}:\n"
        "    with torch.no_grad(): getattr(model[0].weight, '_local_tensor', model[0].weight).add_(0.1)",
        (APART,),
        programs=("fsdp2",),
        variables=(("HYBRID", "1"),),
    ),
    "gradient of a replica": JobFault(
        "# reduced",
        "if rank == {bad} and step >= {at}: model[0].weight.grad._local_tensor.mul_(1.5)",
        (UNREDUCED,),
        programs=("fsdp2",),
        variables=(("HYBRID", "1"),),
    ),
    "not broadcast": JobFault(
        "# wrapped",
        "if rank == {bad}:\n    with torch.no_grad(): list(model.parameters())[1].add_(0.1)",
        (APART,),
        programs=("accelerate_loop", "replicas"),
    ),
    "no step": JobFault(
        "optimizer.step()", "(optimizer.step() if rank != {bad} else None)", (UPDATE,),
        programs=("accelerate_loop", "replicas", "fsdp1", "fsdp2", "dtensor_tp", "tensor_parallel", "megatron_tp"),
    ),
    "frozen layer": JobFault(
        "AdamW(model.parameters(), lr=0.01", "AdamW(list(model.parameters())[2:], lr=0.01", (UPDATE,), everybody=True,
        programs=("accelerate_loop", "replicas", "fsdp1", "fsdp2", "dtensor_tp", "tensor_parallel", "megatron_tp"),
    ),
    "frozen in lightning": JobFault(
        "AdamW(self.parameters(), lr=0.01", "AdamW(list(self.parameters())[2:], lr=0.01", (UPDATE,), everybody=True
    ),
    "lr 0": JobFault(
        "lr=0.01", "lr=0.01 if rank != {bad} else 0.0", (UPDATE,),
        programs=("accelerate_loop", "lightning_fit", "fsdp1", "fsdp2", "megatron_tp", "replicas", "tensor_parallel"),
    ),
    "lr 0 everywhere": JobFault("lr=0.01", "lr=0.0", (UPDATE,), everybody=True),
    "lr 0 of the trainer": JobFault("learning_rate=0.01", "learning_rate=0.0", (UPDATE,), everybody=True),
    "NaN in the loss": JobFault("# loss", _here("loss = loss * float('nan')"), (NAN,)),
    "NaN in the rows": JobFault(
        "# rows", _here("rows = rows * float('nan')"), (NAN,),
        programs=("accelerate_loop", "lightning_fit", "deepspeed_zero", "fsdp1", "fsdp2"),
    ),
    "NaN in a module": JobFault(
        "# model",
        "if int(os.environ['RANK']) == {bad}:\n"
        "    list(model.modules())[-2].register_forward_hook(lambda m, a, o: o * float('nan'))",
        (NAN,),
        programs=("accelerate_loop", "lightning_fit", "deepspeed_zero", "fsdp1", "fsdp2"),
    ),
}  # fmt: skip
