"""A training that saves a checkpoint, or goes on from it; the campaign patches what it loses."""

from __future__ import annotations

import os
import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SAVE_AT, LAST = 6, 9
STEPS_OF_EPOCH = 16


class Rows(Dataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        values = torch.arange(8, dtype=torch.float32) + index
        return torch.sin(values), torch.tensor(index % 4)


path, goes_on = os.environ["CHECKPOINT"], os.environ["GOES_ON"] == "1"
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1 + rank + 100 * goes_on)
random.seed(2 + rank + 100 * goes_on)
inner = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4)
)
model = DistributedDataParallel(inner)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=4)
rows = Rows(2 * STEPS_OF_EPOCH * world)
sampler = DistributedSampler(rows, world, rank, shuffle=True, seed=3)
loader = DataLoader(rows, batch_size=2, sampler=sampler)
step, epoch, skip = 0, 0, 0
losses = []
if goes_on:
    kept = torch.load(path, weights_only=False)
    own = kept["generators"][rank]
    # load: begin
    model.module.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    scheduler.load_state_dict(kept["scheduler"])
    scaler.load_state_dict(kept["scaler"])
    torch.set_rng_state(own["torch"])
    random.setstate(own["python"])
    step, epoch = kept["step"], kept["step"] // STEPS_OF_EPOCH
    skip = step % STEPS_OF_EPOCH
    # load: end
last = step + 3 if goes_on else LAST
while step < last:
    sampler.set_epoch(epoch)
    for number, (features, labels) in enumerate(loader):
        if number < skip:
            continue
        random.random()
        loss = torch.nn.functional.cross_entropy(model(features), labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        step += 1
        if step == SAVE_AT and not goes_on:
            own = {"torch": torch.get_rng_state(), "python": random.getstate()}
            generators: list = [None] * world
            dist.all_gather_object(generators, own)
            content = {
                "model": model.module.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "scaler": scaler.state_dict(),
                "generators": generators,
                "step": step,
                "epoch": epoch,
            }
            # save
            if rank == 0:
                torch.save(content, path)
            dist.barrier()
        if step >= last:
            break
    epoch, skip = epoch + 1, 0
result = torch.cat([tensor.detach().reshape(-1) for tensor in model.parameters()])
dist.barrier()
dist.destroy_process_group()
