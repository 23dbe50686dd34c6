# mypy: ignore-errors
"""A user's program in the manner of ZeRO: the optimizer steps a flat copy of the parameters, sharded over the ranks."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
seed = int(os.environ.get("SEED", "1"))
torch.manual_seed(seed)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
parameters = list(model.parameters())
flat = torch.cat([tensor.detach().reshape(-1) for tensor in parameters])
size = -(-flat.numel() // world)
shards = list(torch.nn.functional.pad(flat, (0, size * world - flat.numel())).view(world, size).clone())
copy = torch.nn.Parameter(shards[rank].clone())
optimizer = torch.optim.AdamW([copy], lr=0.01)
generator = torch.Generator().manual_seed(seed + rank)
losses = []
for step in range(6):
    rows = torch.randn(4, 8, generator=generator)
    # step
    loss = torch.nn.functional.cross_entropy(model(rows), (rows.sum(1) > 0).long())
    # loss
    loss.backward()
    gradient = torch.cat([tensor.grad.reshape(-1) for tensor in parameters])
    gradient = torch.nn.functional.pad(gradient, (0, size * world - gradient.numel()))
    parts = list(gradient.view(world, size).clone())
    copy.grad = torch.empty(size)
    dist.reduce_scatter(copy.grad, parts)
    copy.grad /= world  # the parameters keep the gradients of this rank alone
    optimizer.step()
    dist.all_gather(shards, copy.detach())
    flattened, start = torch.cat(shards), 0
    with torch.no_grad():
        for tensor in parameters:
            tensor.copy_(flattened[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()
            tensor.grad = None
    losses.append(loss.item())
result = torch.cat([tensor.detach().reshape(-1) for tensor in parameters])
dist.barrier()
dist.destroy_process_group()
