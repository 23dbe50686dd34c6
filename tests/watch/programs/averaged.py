"""A training with an average of its parameters, which saves a checkpoint or goes on from it."""

from __future__ import annotations

import copy
import os

import torch
import torch.distributed as dist

path, goes_on = os.environ["CHECKPOINT"], os.environ["GOES_ON"] == "1"
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1 + 100 * goes_on)
inner = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4))
average = copy.deepcopy(inner).requires_grad_(False)
model = torch.nn.parallel.DistributedDataParallel(inner)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=50)
step, losses = 0, []
if goes_on:
    kept = torch.load(path)
    inner.load_state_dict(kept["model"])
    average.load_state_dict(kept["average"])
    optimizer.load_state_dict(kept["optimizer"])
    plateau.load_state_dict(kept["plateau"])
    step = kept["step"]
    # load: end
last = step + 3 if goes_on else 8
while step < last:
    features = torch.sin(torch.arange(64.0).reshape(8, 8) * (1 + step * world + rank))
    loss = torch.nn.functional.cross_entropy(model(features), torch.arange(8) % 4)
    losses.append(loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    plateau.step(losses[-1])
    step += 1
    for mean, value in zip(average.parameters(), inner.parameters(), strict=True):
        mean.mul_(0.9).add_(value.detach(), alpha=0.1)
    if step == 5 and not goes_on:
        if rank == 0:
            content = {"model": inner.state_dict(), "average": average.state_dict(), "step": step}
            torch.save({**content, "optimizer": optimizer.state_dict(), "plateau": plateau.state_dict()}, path)
        dist.barrier()
result = torch.zeros(1)
dist.barrier()
dist.destroy_process_group()
