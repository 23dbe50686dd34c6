# mypy: ignore-errors
"""A training that saves a checkpoint, or goes on from it, by the means of a framework (KIND); LOSE: what it loses."""

import os
import random
import shutil
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.utils.data import DataLoader, Dataset, DistributedSampler

KIND, LOSE = os.environ["KIND"], os.environ.get("LOSE", "")
path, goes_on = os.environ["CHECKPOINT"], os.environ["GOES_ON"] == "1"
SAVE_AT, LAST, EPOCH = 6, 8, 16


class Rows(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        values = torch.arange(8, dtype=torch.float32) + index
        return torch.sin(values), torch.tensor(index % 4)


def loses(what):
    return goes_on and what in LOSE.split()


if KIND == "safetensors":
    import safetensors.torch
if KIND == "accelerate":
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
elif KIND.startswith("zero"):
    import deepspeed

    deepspeed.ops.__compatible_ops__.clear()  # nothing is compiled
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
else:
    dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1 + rank + 100 * goes_on)
random.seed(2 + rank + 100 * goes_on)
inner = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4))
count = 2 * EPOCH * 2
sampler = DistributedSampler(Rows(count), world, rank, shuffle=True, seed=3)
loader = DataLoader(Rows(count), batch_size=2, sampler=sampler)
engine = None
if KIND == "fsdp2":
    from torch.distributed.fsdp import fully_shard

    for layer in (inner[0], inner[2]):
        fully_shard(layer)
    model = fully_shard(inner)
elif KIND == "fsdp2 root":  # parameters of its own, in shards of unequal size
    from torch.distributed.fsdp import fully_shard

    inner[2] = torch.nn.Linear(16, 5)
    fully_shard(inner[0])
    model = fully_shard(inner)
elif KIND == "fsdp1":
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(inner, use_orig_params=True, device_id=torch.device("cpu"))
elif KIND == "safetensors":
    model = torch.nn.parallel.DistributedDataParallel(inner)
else:
    model = inner
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
if rank and os.environ.get("LAG") and not goes_on:  # it ends the step after the others have begun to save
    optimizer.register_step_pre_hook(lambda *_: time.sleep(0.3) if step == SAVE_AT - 1 else None)
if KIND == "accelerate":
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
elif KIND.startswith("zero"):
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": int(KIND[4:])},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
    }
    engine, optimizer, _, scheduler = deepspeed.initialize(
        model=model, optimizer=optimizer, lr_scheduler=scheduler, config=config
    )
    model = engine


def own_generators():
    return {"torch": torch.get_rng_state(), "python": random.getstate()}


def gathered():
    generators = [None] * world
    dist.all_gather_object(generators, own_generators())
    return generators


def save(step):
    if KIND.startswith("fsdp"):
        weights, states = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": states}, checkpoint_id=path)
    rest = {"scheduler": scheduler.state_dict(), "generators": gathered(), "step": step}
    if KIND.startswith("fsdp"):
        if rank == 0:
            torch.save(rest, os.path.join(path, "rest.pt"))
    elif KIND == "safetensors":
        if rank == 0:
            safetensors.torch.save_file(model.module.state_dict(), path + ".safetensors")
            torch.save({**rest, "optimizer": optimizer.state_dict()}, path)
    elif KIND == "accelerate":
        accelerator.save_state(path)
        if rank == 0:
            torch.save({"step": step}, os.path.join(path, "rest.pt"))
    else:
        engine.save_checkpoint(path, tag="last", client_state=rest)
    dist.barrier()


def load():  # noqa: C901, PLR0912
    if KIND.startswith("fsdp"):
        weights, states = get_state_dict(model, optimizer)
        if loses("layer"):
            for name in [name for name in weights if name.startswith("2.")]:
                del weights[name]
        content = {"model": weights} if loses("optimizer") else {"model": weights, "optimizer": states}
        dcp.load(content, checkpoint_id=path)
        set_model_state_dict(model, weights, options=StateDictOptions(strict=False))
        if not loses("optimizer"):
            set_optimizer_state_dict(model, optimizer, states)
        rest = torch.load(os.path.join(path, "rest.pt"), weights_only=False)
    elif KIND == "safetensors":
        rest = torch.load(path, weights_only=False)
        weights = safetensors.torch.load_file(path + ".safetensors")
        if loses("layer"):
            weights = {name: value for name, value in weights.items() if not name.startswith("2.")}
        model.module.load_state_dict(weights, strict=False)
        if not loses("optimizer"):
            optimizer.load_state_dict(rest["optimizer"])
    elif KIND == "accelerate":
        if loses("generators"):
            place = path + "-without"
            if rank == 0:
                shutil.copytree(path, place, ignore=shutil.ignore_patterns("random_states*"))
            dist.barrier()
            accelerator.load_state(place)
        elif loses("optimizer"):
            accelerator._optimizers, kept = [], accelerator._optimizers
            accelerator.load_state(path)
            accelerator._optimizers = kept
        else:
            accelerator.load_state(path)
        return torch.load(os.path.join(path, "rest.pt"), weights_only=False)["step"]
    else:
        _, rest = engine.load_checkpoint(
            path, tag="last", load_optimizer_states=not loses("optimizer"), load_lr_scheduler_states=False
        )
    if not loses("scheduler"):
        scheduler.load_state_dict(rest["scheduler"])
    if not loses("generators"):
        own = rest["generators"][0 if loses("others") else rank % len(rest["generators"])]
        torch.set_rng_state(own["torch"])
        random.setstate(own["python"])
    return rest["step"]


step = load() if goes_on else 0
states = getattr(optimizer, "optimizer", optimizer).state
if loses("second"):
    for state in states.values():
        (state.get("exp_avg_sq") if state.get("exp_avg_sq") is not None else torch.zeros(1)).zero_()
if loses("layer") and KIND == "zero3":
    for parameter in inner[2].parameters():
        (parameter if parameter.numel() else parameter.ds_tensor).data.normal_()
if loses("layer") and KIND in ("accelerate", "zero1"):
    with torch.no_grad():
        for parameter in inner[2].parameters():
            parameter.normal_()
if KIND == "accelerate" and loses("scheduler"):
    getattr(scheduler, "scheduler", scheduler).last_epoch = 0
skip = 0 if loses("position") else step
last = step + 2 if goes_on else LAST
sampler.set_epoch(0)
for number, (features, labels) in enumerate(loader):
    if number < skip:
        continue
    random.random()
    loss = torch.nn.functional.cross_entropy(model(features), labels)
    if engine is not None:
        engine.backward(loss)
        engine.step()
    else:
        optimizer.zero_grad()
        loss.backward() if KIND != "accelerate" else accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
    step += 1
    if step == SAVE_AT and not goes_on:
        save(step)
    if step >= last:
        break
losses, result = [loss.item()], torch.zeros(1)
dist.barrier()
dist.destroy_process_group()
