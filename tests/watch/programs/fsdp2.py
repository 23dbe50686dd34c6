# mypy: ignore-errors
"""A user's program in the manner of torch's example of FSDP2: fully_shard on each layer, or a mesh with replicas."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
seed = int(os.environ.get("SEED", "1"))
shape, names = ((world // 2, 2), ("dp_replicate", "dp_shard")) if os.environ.get("HYBRID") else ((world,), ("dp",))
mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
# begun
torch.manual_seed(seed)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 2))
# model
for layer in model:
    if list(layer.parameters()):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
# wrapped
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(seed + rank)
torch.manual_seed(seed * 1000 + rank)
# seeded
losses = []
for step in range(7):
    rows = torch.randn(4, 8, generator=generator)
    # step
    # rows
    loss = torch.nn.functional.cross_entropy(model(rows), (rows.sum(1) > 0).long())
    # loss
    optimizer.zero_grad()
    loss.backward()
    # reduced
    optimizer.step()
    losses.append(loss.item())
result = torch.cat([tensor.detach().full_tensor().reshape(-1) for tensor in model.parameters()])
dist.barrier()
dist.destroy_process_group()
